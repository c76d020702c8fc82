"""The columns of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.format import OFFSET_COLUMN

if TYPE_CHECKING:
    from sawlog.leveldb.options import LogReadOptions

RECORD_COLUMN = "record"
END_COLUMN = "_end"
"""Where the last fragment of a record ends; for the views that decode records, not for users."""

ROWS_SCHEMA = pa.schema([pa.field(RECORD_COLUMN, pa.binary(), nullable=False)])
RECORDS_SCHEMA = pa.schema(
    [
        *ROWS_SCHEMA,
        pa.field(OFFSET_COLUMN, pa.int64(), nullable=False),
        pa.field(END_COLUMN, pa.int64(), nullable=False),
    ]
)
"""What the views that decode records ask the ranges for."""

STALE_COLUMN = "stale"
"""Whether a row is from the former life of a recycled log; only with `salvage="stale"`."""
RECOVERED_COLUMN = "recovered"
"""Whether a row begins after damage in the same block; only with `salvage="damaged"`."""


def marked(schema: pa.Schema, options: LogReadOptions) -> pa.Schema:
    """A schema with the columns that mark rows which LevelDB itself would not deliver."""
    wanted = {STALE_COLUMN: "stale" in options.salvage, RECOVERED_COLUMN: "damaged" in options.salvage}
    return pa.schema([*schema, *(pa.field(name, pa.bool_(), nullable=False) for name in wanted if wanted[name])])
