"""Between which keys the blocks of a table lie, by its index: filters go by it, and every reading holds keys to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.leveldb_table import layout
from sawlog.leveldb_table.stamps import WIDTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb_table.meta import TableMap


class Bounds(NamedTuple):
    """The separators of an index, as user keys: those of block i lie from the one before the i-th up to the i-th.

    The last one bounds nothing: no other block could hold what is behind it.

    Attributes:
        keys: uint8, the keys of the index.
        starts: int64, separator i is `keys[starts[i] : stops[i]]`.
        stops: int64.
        stamp: Bytes at the end of a user key that do not count.
    """

    keys: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    stamp: int

    def separator(self, number: int) -> bytes:
        """The separator of a block."""
        return self.keys[int(self.starts[number]) : int(self.stops[number])].tobytes()

    def ascend(self) -> bool:
        """Whether no separator is below the one before."""
        import pyarrow.compute as pc

        count = len(self.starts)
        if count < 2:
            return True
        lengths = self.stops - self.starts
        ends = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
        places = np.arange(ends[-1]) + np.repeat(self.starts - ends[:-1], lengths)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self.keys[places])]
        separators = pa.Array.from_buffers(pa.large_binary(), count, buffers)
        return not pc.any(pc.less(separators.slice(1), separators.slice(0, count - 1))).as_py()


def separators(table: TableMap, *, stamped: bool) -> Bounds:
    """The separators of an index as user keys, without timestamps if they are `stamped`."""
    starts, stops = table.ends[:-1], table.ends[1:]
    if table.internal_index:
        stops = np.where(stops - starts < layout.KEY_TRAILER, stops, stops - layout.KEY_TRAILER)
    stamp = WIDTH if stamped else 0
    return Bounds(table.keys, starts, np.maximum(stops - stamp, starts), stamp)


def bounds_of(table: TableMap) -> Bounds | None:
    """The bounds of the blocks of a table; `None` where it does not say that its keys are ordered by their bytes."""
    if not table.ordered or table.damages or len(table.ends) - 1 != len(table.handles):
        return None
    return separators(table, stamped=table.has_stamps)
