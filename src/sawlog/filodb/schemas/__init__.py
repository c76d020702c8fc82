"""Schemas: columns, layouts of records, and sets of schemas by name and by schema ID. Section 5 of the format."""

from __future__ import annotations

from sawlog.filodb.schemas.definitions import (
    BUILT_IN,
    DatasetOptions,
    PartitionSchema,
    Schema,
    Schemas,
    make_default_partition,
)
from sawlog.filodb.schemas.record import Buffer, Column, RecordSchema, parse_columns

__all__ = [
    "BUILT_IN",
    "Buffer",
    "Column",
    "DatasetOptions",
    "PartitionSchema",
    "RecordSchema",
    "Schema",
    "Schemas",
    "make_default_partition",
    "parse_columns",
]
