"""Sawlog saws binary logs into tables: read, write, check, repair and convert binary log formats through Arrow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sawlog.api import Written, formats, open, read, repair, verify, write
    from sawlog.damage import Damage, DamageWarning, FileReport, Report, Tail, TailStatus
    from sawlog.errors import (
        ChangedError,
        DamageError,
        FormatError,
        InternalError,
        OptionError,
        SawlogError,
        SchemaError,
        StorageError,
        UnsupportedError,
    )
    from sawlog.skipped import Skipped

__all__ = [
    "ChangedError",
    "Damage",
    "DamageError",
    "DamageWarning",
    "FileReport",
    "FormatError",
    "InternalError",
    "OptionError",
    "Report",
    "SawlogError",
    "SchemaError",
    "Skipped",
    "StorageError",
    "Tail",
    "TailStatus",
    "UnsupportedError",
    "Written",
    "formats",
    "open",
    "read",
    "repair",
    "verify",
    "write",
]
__version__ = "0.2.0"

_PLACES = {
    "api": ("Written", "formats", "open", "read", "repair", "verify", "write"),
    "damage": ("Damage", "DamageWarning", "FileReport", "Report", "Tail", "TailStatus"),
    "errors": (
        "ChangedError",
        "DamageError",
        "FormatError",
        "InternalError",
        "OptionError",
        "SawlogError",
        "SchemaError",
        "StorageError",
        "UnsupportedError",
    ),
    "skipped": ("Skipped",),
}
"""Modules, and the public names that come from them."""
_HOMES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for, be it a module: `import sawlog` loads neither Arrow nor anything else that is large."""
    if name in _HOMES:
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found
    try:
        if not name.startswith("_"):
            return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
