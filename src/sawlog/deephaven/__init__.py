"""Deephaven: intraday logs, column files and trees of them, and the import of logs into trees."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sawlog.deephaven import ingest as ingest
    from sawlog.deephaven import log as log
    from sawlog.deephaven import table as table

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a part when it is asked for."""
        if name in ("ingest", "log", "table"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
