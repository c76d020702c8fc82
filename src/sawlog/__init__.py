"""Sawlog saws binary logs into tables: read, write, check, repair and convert five binary log formats through Arrow."""

from __future__ import annotations

from sawlog.api import formats, open, read, repair, verify, write
from sawlog.damage import Damage, DamageWarning, FileReport, Report, Tail, TailStatus
from sawlog.errors import DamageError, FormatError, OptionError, SawlogError, SchemaError

__all__ = [
    "Damage",
    "DamageError",
    "DamageWarning",
    "FileReport",
    "FormatError",
    "OptionError",
    "Report",
    "SawlogError",
    "SchemaError",
    "Tail",
    "TailStatus",
    "formats",
    "open",
    "read",
    "repair",
    "verify",
    "write",
]
__version__ = "0.1.0"
