"""The columns of entries, and what tables, logs and databases share of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import call_function, make_array, make_constant_string, make_fixed_array, view_binary, view_values
from sawlog.errors import SchemaError
from sawlog.format.scan import PROVENANCE
from sawlog.kernels.columns import gather_bytes
from sawlog.leveldb.records.layout import NAMES, TIMED_SUFFIX
from sawlog.leveldb.table.layout import OPERATIONS, STAMP_WIDTH

_SAME_ROWS = 64 << 10
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
SCHEMAS = {
    "internal": ROWS_SCHEMA,
    "stamped": ROWS_SCHEMA.insert(1, pa.field(STAMP, pa.uint64(), nullable=False)),
    "raw": pa.schema([ROWS_SCHEMA.field(KEY), ROWS_SCHEMA.field(VALUE)]),
}
"""By the option `keys`; timestamps of keys are in a column of their own. Raw keys have no sequence and operation."""

WRITES_SCHEMA = pa.schema(
    [
        pa.field(SEQUENCE, pa.int64(), nullable=False),
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field("column_family", pa.int64(), nullable=False),
        pa.field(KEY, pa.binary()),
        pa.field(VALUE, pa.binary()),
    ]
)
"""One row per operation of a log.

`sequence` is the number that the operation takes, or, for those that take none, that of the next one. `key` and `value`
are what the operation has of them: `delete_range` has the first key and the key after the last one, prepared
transactions have their id as the key, `log_data` has only a value.
"""
TRANSACTION_SCHEMA = WRITES_SCHEMA.append(PROVENANCE[1])
"""The same with offsets: what is read of logs."""
MARKED_SCHEMA = pa.schema([field for field in TRANSACTION_SCHEMA if field.name != VALUE])
NUMBERED_OPERATION = pa.field(OPERATION, pa.uint8(), nullable=False)
"""Operations as numbers of `OPERATION_NAMES`, where nobody asks for their names."""

LIVE, LEVEL = "live", "level"
STATE_SCHEMA = pa.schema([ROWS_SCHEMA.field(name) for name in (KEY, VALUE, SEQUENCE, OPERATION)])
"""`rows` and `live`: one row per key that the database would answer with, in key order.

`operation` is `put`, or what else RocksDB keeps: `put_entity`, `put_blob_index` (the value is in a blob file), and
`merge` for operands, which come newest first before the value that they are merged into; how, only the database knows.
"""
HISTORY_SCHEMA = pa.schema(
    [
        *STATE_SCHEMA,
        pa.field(LIVE, pa.bool_(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field(LEVEL, pa.int32(), nullable=False),
    ]
)
"""`all`: every entry that is still in the live files, deletions included; level -1 is that of logs."""
TRANSACTION = "transaction"
"""Whether an entry belongs to a transaction that is `prepared` or `unprepared`, and not committed."""
STRAY = "stray"
"""In batches of entries that are not where a database looks for them: their keys. `key` is where they are given."""
SIZE = "value_size"
"""In batches of entries whose values are where they are stored: their bytes; `value` goes on up to the next one."""
ENTRY_SCHEMA = pa.schema([(SEQUENCE, pa.int64()), (OPERATION, pa.uint8()), (KEY, pa.binary()), (VALUE, pa.binary())])
"""What runs are made of; operations are numbers of `OPERATION_NAMES`."""
OPERATION_NAMES = tuple(dict.fromkeys([*OPERATIONS.values(), *NAMES]))
"""Those of tables first, as the reader of tables numbers them."""
STAMPED_SCHEMA = ENTRY_SCHEMA.append(pa.field(STAMP, pa.uint64()))
"""Where keys have timestamps."""
RANGE = OPERATION_NAMES.index("delete_range")
EXCISE = OPERATION_NAMES.index("excise")
BLOB = OPERATION_NAMES.index("put_blob_index")
ENTITY = OPERATION_NAMES.index("put_entity")
TIMED = OPERATION_NAMES.index("timed_put")


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries of one file."""

    path: str
    level: int
    batches: Sequence[pa.RecordBatch]

    @property
    def rows(self) -> int:
        """Number of entries."""
        return sum(batch.num_rows for batch in self.batches)


@dataclass(frozen=True, slots=True)
class Stream:
    """The entries of one file.

    Attributes:
        path: The file.
        level: Its level.
        smallest: A key that no entry of it precedes.
        batches: Entries of `ENTRY_SCHEMA`: range deletions first, in batches of their own, the others in key order;
            among them batches with a column `STRAY`, none of which precedes what was given already.
    """

    path: str
    level: int
    smallest: bytes
    batches: Iterator[pa.RecordBatch]


@cache
def make_name_array(names: tuple[str, ...]) -> pa.Array:
    """Return the names of operations, by code."""
    return make_array(names, pa.string())


def find_numbers(operations: pa.Array) -> NDArray[Any]:
    """Return the places of operations in `OPERATION_NAMES`; of their names, or of these numbers themselves."""
    if pa.types.is_integer(operations.type):
        return view_values(operations, np.uint8)
    lookup = ("SetLookupOptions", make_name_array(OPERATION_NAMES))
    return view_values(call_function("index_in", operations, options=lookup), np.int32)


def convert_codes(codes: NDArray[Any], names: tuple[str, ...]) -> pa.Array:
    """Return the names of some operations; mostly they are all the same one, which is written once for all batches."""
    rows = len(codes)
    if rows and (data := codes.tobytes()) == data[: codes.itemsize] * rows:
        name = names[codes[0]]
        return _repeat_name(name).slice(0, rows) if rows <= _SAME_ROWS else make_constant_string(name, rows)
    texts, ends = view_binary(make_name_array(names))
    starts, lengths = ends[:-1].astype(np.int64)[codes], np.diff(ends).astype(np.int64)[codes]
    return pa.Array.from_buffers(pa.string(), rows, [None, *gather_bytes(texts, starts, lengths)])


@cache
def _repeat_name(name: str) -> pa.Array:
    return make_constant_string(name, _SAME_ROWS)


def strip_times(values: pa.Array, timed: NDArray[np.bool_]) -> pa.Array:
    """Return values without the times after those of timed puts; a value that is too short for one is left as it is."""
    if not timed.any():
        return values
    data, ends = view_binary(values)
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    lengths[timed & (lengths >= TIMED_SUFFIX)] -= TIMED_SUFFIX
    buffers = [values.buffers()[0], *gather_bytes(data, starts, lengths)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers, values.null_count)


def append_times(values: pa.Array, timed: NDArray[np.bool_]) -> pa.Array:
    """Return values with a time of zero appended to those of timed puts, none of which is null."""
    if not timed.any():
        return values
    data, ends = view_binary(values)
    longer = ends + np.concatenate([[0], timed.cumsum()]) * TIMED_SUFFIX
    content = np.insert(data, np.repeat(ends[1:][timed], TIMED_SUFFIX), 0)
    buffers = [None, pa.py_buffer(longer.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def split_stamps(keys: pa.Array, widths: NDArray[np.int64], path: str) -> tuple[pa.Array, pa.Array]:
    """Return keys without their timestamps, and the timestamps, 0 where keys have none.

    Args:
        keys: The keys.
        widths: How many bytes of each are its timestamp: 0 or `STAMP_WIDTH`.
        path: Of their file.

    Raises:
        SchemaError: When a key is shorter than its timestamp.
    """
    stamps, stamped = np.zeros(len(keys), np.uint64), widths > 0
    if not stamped.any():
        return keys, make_fixed_array(pa.uint64(), stamps)
    source, ends = view_binary(keys)
    edges = ends.astype(np.int64)
    lengths = np.diff(edges) - widths
    if not np.isin(widths, (0, STAMP_WIDTH)).all():
        raise SchemaError(f"{path}: timestamps of {int(widths.max())} bytes, in an order of keys that has others")
    if (lengths < 0).any():
        raise SchemaError(f"{path}: a key of {int(lengths.min()) + STAMP_WIDTH} bytes has no timestamp")
    places = (edges[1:][stamped] - STAMP_WIDTH)[:, None] + np.arange(STAMP_WIDTH)
    stamps[stamped] = source[places].reshape(-1).view("<u8")
    plain = pa.Array.from_buffers(pa.binary(), len(keys), [None, *gather_bytes(source, edges[:-1], lengths)])
    return plain, make_fixed_array(pa.uint64(), stamps)


def count_below(keys: pa.Array, limit: bytes) -> int:
    """Return the number of sorted keys below a limit."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < limit:
            low = middle + 1
        else:
            high = middle
    return low


def slice_keys(batch: pa.RecordBatch, low: bytes, high: bytes | None) -> pa.RecordBatch:
    """Return the entries on keys in `[low, high)`, of such as are in key order."""
    keys = batch.column(KEY)
    first = count_below(keys, low) if low else 0
    last = len(keys) if high is None else count_below(keys, high)
    return batch.slice(first, max(last - first, 0))


def make_disjoint_ranges(ranges: Iterable[tuple[bytes, bytes, int]]) -> tuple[list[bytes], list[int]]:
    """Return the range deletions as disjoint ranges of keys.

    Args:
        ranges: Of each the first key, the key after the last one, and a number that is higher the newer it is.

    Returns:
        Where they begin, in order: each ends where the next one begins; and the number of the newest that covers each,
        -1 for none, as of the last.
    """
    rows = sorted(bounds for bounds in ranges if bounds[0] < bounds[1])
    edges = sorted({edge for row in rows for edge in row[:2]})
    active: list[tuple[int, bytes]] = []
    waiting = 0
    newest = []
    for edge in edges:
        while waiting < len(rows) and rows[waiting][0] <= edge:
            _, end, number = rows[waiting]
            heapq.heappush(active, (-number, end))
            waiting += 1
        while active and active[0][1] <= edge:
            heapq.heappop(active)
        newest.append(-active[0][0] if active else -1)
    return edges, newest
