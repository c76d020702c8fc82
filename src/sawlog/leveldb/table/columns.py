"""The columns of entries."""

from __future__ import annotations

import pyarrow as pa

KEY, VALUE, SEQUENCE, OPERATION, STAMP = "key", "value", "sequence", "operation", "timestamp"
ROWS_SCHEMA = pa.schema(
    [
        pa.field(SEQUENCE, pa.int64(), nullable=False),
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field(KEY, pa.binary(), nullable=False),
        pa.field(VALUE, pa.binary(), nullable=False),
    ]
)
"""One row per entry. Of a `delete_range` the key is the first one that it deletes, the value the first one after."""
STAMPED_SCHEMA = ROWS_SCHEMA.insert(1, pa.field(STAMP, pa.uint64(), nullable=False))
"""Where keys have timestamps, which stand in a column of their own."""
RAW_SCHEMA = pa.schema([ROWS_SCHEMA.field(KEY), ROWS_SCHEMA.field(VALUE)])
"""Where keys have no sequence number and operation."""
SCHEMAS = {"internal": ROWS_SCHEMA, "stamped": STAMPED_SCHEMA, "raw": RAW_SCHEMA}
"""By the option `keys`."""
