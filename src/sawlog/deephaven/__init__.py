"""Deephaven: intraday logs, column files and trees of them, and the import of logs into trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.format.lazy import lazy_module_getattr

if TYPE_CHECKING:
    from sawlog.deephaven import ingest as ingest
    from sawlog.deephaven import log as log
    from sawlog.deephaven import table as table

if not TYPE_CHECKING:
    __getattr__ = lazy_module_getattr(__name__, {"": ("ingest", "log", "table")})
