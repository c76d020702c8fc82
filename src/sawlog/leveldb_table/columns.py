"""The columns of entries."""

from __future__ import annotations

import pyarrow as pa

KEY, VALUE, SEQUENCE, OPERATION = "key", "value", "sequence", "operation"
ROWS_SCHEMA = pa.schema(
    [
        pa.field(SEQUENCE, pa.int64(), nullable=False),
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field(KEY, pa.binary(), nullable=False),
        pa.field(VALUE, pa.binary(), nullable=False),
    ]
)
"""One row per entry. Of a `delete_range` the key is the first one that it deletes, the value the first one behind."""
RAW_SCHEMA = pa.schema([ROWS_SCHEMA.field(KEY), ROWS_SCHEMA.field(VALUE)])
"""Where keys have no sequence number and operation."""
