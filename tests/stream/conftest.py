"""Fixtures of the tests of streams."""

from __future__ import annotations

from tests.stream.support import close_loggers, later

__all__ = ["close_loggers", "later"]
