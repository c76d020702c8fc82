"""Sawlog saws binary logs into tables: read, write, check, repair and convert binary log formats through Arrow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sawlog.api import Written, formats, open, read, repair, verify, write
from sawlog.damage import Damage, DamageWarning, FileReport, Report, Tail, TailStatus
from sawlog.errors import ChangedError, DamageError, FormatError, OptionError, SawlogError, SchemaError
from sawlog.skipped import Skipped

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "ChangedError",
    "Damage",
    "DamageError",
    "DamageWarning",
    "FileReport",
    "FormatError",
    "OptionError",
    "Report",
    "SawlogError",
    "SchemaError",
    "Skipped",
    "Tail",
    "TailStatus",
    "Written",
    "formats",
    "open",
    "read",
    "repair",
    "verify",
    "write",
]
__version__ = "0.1.0"

_PACKAGES = ("deephaven_log", "deephaven_table", "filodb_record", "leveldb_log", "leveldb_table", "milvus_binlog")
_LIBRARIES = ("duckdb", "polars", "spark")


def __getattr__(name: str) -> ModuleType:
    """Import a package when it is asked for, so that `import sawlog` stays quick."""
    if name in _PACKAGES + _LIBRARIES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
