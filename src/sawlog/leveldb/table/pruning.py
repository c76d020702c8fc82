"""Which data blocks a filter on the key leaves possible, by the index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sawlog.leveldb.table.bounds import BoundsReader
from sawlog.leveldb.table.columns import KEY
from sawlog.query import interval

if TYPE_CHECKING:
    from sawlog.leveldb.table.meta import TableMap
    from sawlog.scan import Projection

SPARED = "spared by filters"
"""The fact about a dataset that reports it."""


def block_bounds(table: TableMap, projection: Projection) -> tuple[int, int]:
    """The numbers of the first data block that may hold matching keys, and of the first one after.

    Separators tell only where blocks are held to them, and where timestamps are no part of the keys.
    """
    count = len(table.handles)
    bounds = table.bounds
    if bounds is None or table.has_stamps != table.stamped:
        return 0, count
    low, end = (key.encode() if isinstance(key, str) else key for key in interval(projection.query, KEY))
    index = BoundsReader(bounds)
    # What comes after the last separator is in the last block, if anywhere.
    first = min(_search(index, count, low), count - 1) if low is not None and count else 0
    # A key that equals a separator may go on in the next block.
    behind = min(_search(index, count, end) + 1, count) if end is not None else count
    return first, behind


def on_keys(projection: Projection) -> bool:
    """Whether the key is bounded."""
    return interval(projection.query, KEY) != (None, None)


def told(tables: Iterable[TableMap | None], projection: Projection) -> str:
    """What filters on the key spare of some tables, for people."""
    blocks = read = 0
    for table in filter(None, tables):
        first, behind = block_bounds(table, projection)
        blocks += len(table.handles)
        read += max(behind - first, 0)
    return f"{blocks - read} of {blocks} data blocks"


def _search(index: BoundsReader, count: int, key: bytes) -> int:
    """The first of `count` data blocks whose separator is not below a key."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if index.separator(middle) < key:
            low = middle + 1
        else:
            high = middle
    return low
