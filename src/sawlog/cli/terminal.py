"""The console that text for people goes to."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """Plain where stdout is no terminal; takes text as it is, without markup."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Leave it to the verb, as any other write does; Rich would exit with code 1."""
        raise BrokenPipeError
