"""Sawlog saws binary logs into tables: read, write, check, repair and convert binary log formats through Arrow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sawlog import duckdb as duckdb
    from sawlog import filodb as filodb
    from sawlog import leveldb as leveldb
    from sawlog import milvus as milvus
    from sawlog import polars as polars
    from sawlog import spark as spark
    from sawlog.api import Written, formats, open, read, repair, verify, write
    from sawlog.dataset.dataset import Dataset
    from sawlog.dataset.index import Indexed, IndexWarning, index
    from sawlog.dataset.watch import Watch
    from sawlog.deephaven import log as log
    from sawlog.deephaven import table as table
    from sawlog.errors import (
        ChangedError,
        DamageError,
        FormatError,
        IncompleteError,
        InternalError,
        OptionError,
        SawlogError,
        SchemaError,
        StorageError,
        UnsupportedError,
    )
    from sawlog.format.contract import Format, Fragment, Writer
    from sawlog.format.damage import Damage, DamageWarning, FileReport, Report, Skipped, Tail, TailStatus, Verdict
    from sawlog.format.scan import Scan

__all__ = [
    "ChangedError",
    "Damage",
    "DamageError",
    "DamageWarning",
    "Dataset",
    "FileReport",
    "Format",
    "FormatError",
    "Fragment",
    "IncompleteError",
    "IndexWarning",
    "Indexed",
    "InternalError",
    "OptionError",
    "Report",
    "SawlogError",
    "Scan",
    "SchemaError",
    "Skipped",
    "StorageError",
    "Tail",
    "TailStatus",
    "UnsupportedError",
    "Verdict",
    "Watch",
    "Writer",
    "Written",
    "formats",
    "index",
    "open",
    "read",
    "repair",
    "verify",
    "write",
]
__version__ = "0.3.0"

_PLACES = {
    "api": ("Written", "formats", "open", "read", "repair", "verify", "write"),
    "format.damage": ("Damage", "DamageWarning", "FileReport", "Report", "Skipped", "Tail", "TailStatus", "Verdict"),
    "dataset.dataset": ("Dataset",),
    "errors": (
        "ChangedError",
        "DamageError",
        "FormatError",
        "IncompleteError",
        "InternalError",
        "OptionError",
        "SawlogError",
        "SchemaError",
        "StorageError",
        "UnsupportedError",
    ),
    "format.contract": ("Format", "Fragment", "Writer"),
    "dataset.index": ("IndexWarning", "Indexed", "index"),
    "format.scan": ("Scan",),
    "dataset.watch": ("Watch",),
}
"""Modules, and the public names that come from them."""
_HOMES = {name: module for module, names in _PLACES.items() for name in names}


if not TYPE_CHECKING:  # to type checkers, a name that is not listed above is an error

    def __getattr__(name: str) -> Any:
        """Import what is asked for, be it a module: `import sawlog` itself loads nothing that is large."""
        if name in _HOMES:
            value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
            return value
        try:
            if not name.startswith("_"):
                return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
