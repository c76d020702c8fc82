"""Building containers record by record, and reading them again, without Arrow: FiloDB's own interface in Python."""

from __future__ import annotations

from sawlog.filodb.builder.builder import RecordBuilder
from sawlog.filodb.builder.container import RecordContainer

__all__ = ["RecordBuilder", "RecordContainer"]
