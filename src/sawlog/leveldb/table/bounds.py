"""Between which keys the blocks of a table lie, by its index: filters go by it, and every reading holds keys to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sawlog.leveldb.table import kernels as k

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Bounds:
    """The separators of an index, as user keys: those of block i lie from the one before the i-th up to the i-th.

    The last one bounds nothing: no other block could hold what comes after it. They stay as they are stored, and are
    expanded where they are wanted: an index of long keys that share much is many times longer than it is in the file.

    Attributes:
        data: uint8, the blocks of the index.
        separators: Of type `kernels.SEPARATOR`.
        trailer: Bytes at the end of each that are no part of the user key.
        stamp: Bytes at the end of a user key that do not count.
    """

    data: NDArray[np.uint8]
    separators: NDArray[np.void]
    trailer: int
    stamp: int

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """How many bytes the separators up to each have, with trailers and timestamps."""
        return self.separators["length"].astype(np.int64).cumsum()

    @property
    def room(self) -> NDArray[np.uint8]:
        """Room for the longest of them."""
        return np.zeros(int(self.separators["length"].max(initial=0)), np.uint8)

    def ascend(self) -> bool:
        """Whether no separator is below the one before."""
        return bool(k.ascend(self.index, self.room))

    @property
    def index(self) -> k.Index:
        """The same for kernels."""
        return k.Index(self.data, self.separators, np.uint64(self.trailer), np.uint64(self.stamp))


class BoundsReader:
    """Expands the separators of an index, best in their order: it goes on where it has been."""

    def __init__(self, bounds: Bounds) -> None:
        self._index = bounds.index
        self._held = bounds.room
        self._next = 0
        self._restarts = np.flatnonzero(bounds.separators["shared"] == 0)

    def take(self, first: int, last: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The separators of some blocks: key i is `keys[ends[i] : ends[i + 1]]`."""
        restart = int(self._restarts[np.searchsorted(self._restarts, first, "right") - 1])
        at = max(restart, self._next) if self._next <= first else restart
        keys = np.zeros(int(self._index.separators["length"][first:last].sum()), np.uint8)
        ends = np.zeros(last - first + 1, np.int64)
        k.lay_separators(self._index, at, first, self._held, keys, ends)
        self._next = last
        return keys, ends

    def separator(self, number: int) -> bytes:
        """The separator of a block."""
        keys, ends = self.take(number, number + 1)
        return keys[: ends[1]].tobytes()
