"""The newest delete of every key, to look rows up in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import scalar_of, values_of
from sawlog.errors import OptionError
from sawlog.kernels.intern import Interner, Strings, new_seed
from sawlog.milvus_binlog.columns import offsets_of
from sawlog.milvus_binlog.deletes import kernels
from sawlog.milvus_binlog.deletes.kernels import Table
from sawlog.milvus_binlog.deletes.log import Deletes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SMALLEST_TABLE = 64
_MARKS = 8
"""Bits per slot of a table, of which each key sets one: few rows that are not deleted find theirs set."""


class DeleteIndex:
    """The newest delete of every key. What is older is dropped while it is filled.

    Args:
        deletes: All deletes that concern the rows; keys of one type.
        until: Later deletes have not happened.
        most: Bytes that it may take; `None` for any number.
        room: How many keys there is room for from the beginning.

    Raises:
        OptionError: When it takes more.
    """

    def __init__(self, deletes: Iterable[Deletes], until: int | None, most: int | None = None, room: int = 0) -> None:
        self._tables: dict[pa.DataType, _Numbers | _Texts] = {}
        for one in deletes:
            keys, times = until_then(one, until)
            if not len(keys):
                continue
            if keys.type not in self._tables:
                self._tables[keys.type] = _Numbers(room) if pa.types.is_int64(keys.type) else _Texts()
            self._tables[keys.type].add(keys, values_of(times, np.int64))
            if most is not None:
                check_room(self.nbytes, most)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return sum(table.nbytes for table in self._tables.values())

    def surviving(self, keys: pa.Array, times: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Which rows are not deleted, 1 or 0 each; `None` when all of them survive.

        Args:
            keys: Their primary keys.
            times: When they were inserted.
        """
        table = self._tables.get(keys.type)
        if table is None:
            return None
        keep = np.empty(len(keys), np.uint8)
        return None if table.surviving(keys, times, keep) == len(keys) else keep


def check_room(taken: int, most: int) -> None:
    """Refuse deletes that take more memory than they may.

    Raises:
        OptionError: Names the option.
    """
    if taken > most:
        raise OptionError(
            f"the deletes take more than {most} bytes of memory; where that is right, give a larger max_delete_bytes"
        )


def until_then(deletes: Deletes, until: int | None) -> tuple[pa.Array, pa.Array]:
    """Keys and times of the deletes that have happened at a TSO; of all of them for `None`."""
    if until is None:
        return deletes.keys, deletes.times
    import pyarrow.compute as pc

    early = pc.less_equal(deletes.times, scalar_of(until, deletes.times.type))
    return deletes.keys.filter(early), deletes.times.filter(early)


def _table(salt: np.uint64, keys: int) -> Table:
    """An empty table with room for some keys."""
    room = max(_SMALLEST_TABLE, 1 << (2 * keys).bit_length())
    slots = np.full(2 * room, -1, np.int64)
    return Table(salt, slots, slots.view(np.uint8), np.zeros(room // 64 * _MARKS, np.uint64))


class _Numbers:
    """The newest delete of every int64 key."""

    def __init__(self, room: int) -> None:
        self._count = 0
        self._salt = new_seed()
        self._table = _table(self._salt, room)

    @property
    def nbytes(self) -> int:
        return int(self._table.slots.nbytes + self._table.marks.nbytes)

    def add(self, keys: pa.Array, times: NDArray[np.int64]) -> None:
        """Take deletes in; where the table is too small for all of them, a larger one is made."""
        if self._count + len(keys) > len(self._table.slots) // 4:
            before = self._table.slots.reshape(-1, 2)
            before = before[before[:, 1] >= 0]
            self._table = _table(self._salt, self._count + len(keys))
            kernels.add_numbers(_frozen(before[:, 0]), _frozen(before[:, 1]), self._table)
        self._count += int(kernels.add_numbers(values_of(keys, np.int64), times, self._table))

    def surviving(self, keys: pa.Array, times: NDArray[np.int64], keep: NDArray[np.uint8]) -> int:
        """Mark the rows that are not deleted, and count them."""
        suspects = np.empty(len(keys), np.int64)
        return int(kernels.surviving_numbers(values_of(keys, np.int64), times, self._table, suspects, keep))


class _Texts:
    """The newest delete of every varchar key, and the keys themselves."""

    def __init__(self) -> None:
        self._keys = Interner()
        self._newest = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        return int(self._keys.nbytes + self._newest.nbytes)

    def add(self, keys: pa.Array, times: NDArray[np.int64]) -> None:
        """Take deletes in."""
        numbers, _ = self._keys.numbers(Strings(*offsets_of(keys)))
        if self._keys.count > len(self._newest):
            fresh = np.zeros(2 * self._keys.count - len(self._newest), np.int64)
            self._newest = np.concatenate((self._newest, fresh))
        np.maximum.at(self._newest, numbers, times)

    def surviving(self, keys: pa.Array, times: NDArray[np.int64], keep: NDArray[np.uint8]) -> int:
        """Mark the rows that are not deleted, and count them."""
        texts, known = Strings(*offsets_of(keys)), self._keys
        return int(kernels.surviving_texts(texts, known.hashes(texts), times, known.interned, self._newest, keep))


def _frozen(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """An array as all input of kernels, so that there is one version of each: in order, and not to be written to."""
    copied = np.ascontiguousarray(array)
    copied = copied.view()
    copied.flags.writeable = False
    return copied
