"""The columns of entries, and what files give and hold of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.leveldb.records.layout import NAMES
from sawlog.leveldb.table.columns import KEY, OPERATION, SEQUENCE, STAMP, VALUE
from sawlog.leveldb.table.layout import OPERATIONS

LIVE = "live"
STRAY = "stray"
"""In batches of entries that are not where a database looks for them: their keys. `key` is where they are given."""
ENTRY_SCHEMA = pa.schema(
    [(SEQUENCE, pa.int64()), (OPERATION, pa.uint8()), (KEY, pa.binary()), (VALUE, pa.binary())],
)
"""What runs are made of; operations are numbers of `OPERATION_NAMES`."""
OPERATION_NAMES = tuple(dict.fromkeys([*OPERATIONS.values(), *NAMES]))
"""Those of tables first, as the reader of tables numbers them."""
STAMPED_SCHEMA = ENTRY_SCHEMA.append(pa.field(STAMP, pa.uint64()))
"""Where keys have timestamps."""
RANGE = OPERATION_NAMES.index("delete_range")
EXCISE = OPERATION_NAMES.index("excise")
BLOB = OPERATION_NAMES.index("put_blob_index")
ENTITY = OPERATION_NAMES.index("put_entity")


@dataclass(frozen=True, slots=True)
class Run:
    """Entries of one file.

    Attributes:
        path: The file.
        level: Its level.
        batches: The entries, of `ENTRY_SCHEMA`; nearly always in the order in which a database keeps them.
    """

    path: str
    level: int
    batches: Sequence[pa.RecordBatch]

    @property
    def rows(self) -> int:
        """How many entries."""
        return sum(batch.num_rows for batch in self.batches)


@cache
def operation_names() -> pa.Array:
    """See `OPERATION_NAMES`."""
    return array_of(OPERATION_NAMES, pa.string())


@dataclass(frozen=True, slots=True)
class Stream:
    """The entries of one file.

    Attributes:
        path: The file.
        level: Its level.
        batches: Entries of `ENTRY_SCHEMA`: range deletions first, in batches of their own, the others in key order;
            among them batches with a column `STRAY`, none of which precedes what was given already.
    """

    path: str
    level: int
    batches: Iterator[pa.RecordBatch]
