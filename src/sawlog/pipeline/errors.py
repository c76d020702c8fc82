"""Errors of pipelines."""

from __future__ import annotations

from sawlog.errors import SawlogError


class PipelineError(SawlogError):
    """A pipeline failed while it ran.

    Attributes:
        damaged: Whether it was damage in a source that stopped it.
        transient: Whether what stopped it may be gone when it is tried again.
    """

    def __init__(self, message: str, *, damaged: bool = False, transient: bool = False) -> None:
        super().__init__(message)
        self.damaged = damaged
        self.transient = transient
