"""Which data blocks a filter on the key leaves possible, by the index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sawlog.leveldb_table.columns import KEY

if TYPE_CHECKING:
    from sawlog.leveldb_table.bounds import Bounds
    from sawlog.leveldb_table.meta import TableMap
    from sawlog.scan import Projection

SPARED = "spared by filters"
"""The fact about a dataset that tells of it."""


def block_bounds(table: TableMap, projection: Projection) -> tuple[int, int]:
    """The numbers of the first data block that may hold matching keys, and of the first one behind.

    Separators tell only where blocks are held to them, and where timestamps are no part of the keys.
    """
    count = len(table.handles)
    bounds = table.bounds
    if bounds is None or table.has_stamps != table.stamped:
        return 0, count
    low, high = _key_bounds(projection)
    # What is behind the last separator stands in the last block, if anywhere.
    first = min(_search(bounds, low), count - 1) if low is not None and count else 0
    # A key that equals a separator may go on in the next block.
    behind = min(_search(bounds, high + b"\0") + 1, count) if high is not None else count
    return first, behind


def on_keys(projection: Projection) -> bool:
    """Whether there are filters on the key."""
    return any(one.column == KEY for one in projection.filters)


def told(tables: Iterable[TableMap | None], projection: Projection) -> str:
    """What filters on the key spare of some tables, for people."""
    blocks = read = 0
    for table in filter(None, tables):
        first, behind = block_bounds(table, projection)
        blocks += len(table.handles)
        read += max(behind - first, 0)
    return f"{blocks - read} of {blocks} data blocks"


def _key_bounds(projection: Projection) -> tuple[bytes | None, bytes | None]:
    low: bytes | None = None
    high: bytes | None = None
    for condition in projection.filters:
        if condition.column != KEY:
            continue
        values = condition.value if condition.op == "in" else [condition.value]
        keys = [value.encode() if isinstance(value, str) else value for value in values]
        if not keys or not all(isinstance(key, bytes) for key in keys):
            continue
        if condition.op in ("=", "==", "in", ">", ">="):
            low = max(min(keys), low) if low is not None else min(keys)
        if condition.op in ("=", "==", "in", "<", "<="):
            high = min(max(keys), high) if high is not None else max(keys)
    return low, high


def _search(bounds: Bounds, key: bytes) -> int:
    """The first data block whose separator is not below a key."""
    low, high = 0, len(bounds.starts)
    while low < high:
        middle = (low + high) // 2
        if bounds.separator(middle) < key:
            low = middle + 1
        else:
            high = middle
    return low
