"""Which data blocks a filter on the key leaves possible, by the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sawlog.leveldb_table.meta import TableMap
    from sawlog.scan import Projection


def block_bounds(table: TableMap, projection: Projection) -> tuple[int, int]:
    """The numbers of the first data block that may hold matching keys, and of the first one behind.

    Separators tell only where blocks are held to them, and where timestamps are no part of the keys.
    """
    count = len(table.handles)
    if table.bounds is None or table.has_stamps != table.stamped:
        return 0, count
    low, high = _key_bounds(projection)
    # What is behind the last separator stands in the last block, if anywhere.
    first = min(_search(table, low), count - 1) if low is not None and count else 0
    # A key that equals a separator may go on in the next block.
    behind = min(_search(table, high + b"\0") + 1, count) if high is not None else count
    return first, behind


def _key_bounds(projection: Projection) -> tuple[bytes | None, bytes | None]:
    low: bytes | None = None
    high: bytes | None = None
    for condition in projection.filters:
        if condition.column != "key":
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


def _search(table: TableMap, key: bytes) -> int:
    """The first data block whose separator is not below a key."""
    low, high = 0, len(table.handles)
    while low < high:
        middle = (low + high) // 2
        if table.separator(middle) < key:
            low = middle + 1
        else:
            high = middle
    return low
