"""The columns of records."""

from __future__ import annotations

import pyarrow as pa

from sawlog.format import OFFSET_COLUMN

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
