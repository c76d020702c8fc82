"""All deletes of every key, to look up when a version of a row ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import boolean_values, values_of
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.deletes.index import check_room, until_then
from sawlog.milvus_binlog.deletes.log import Deletes

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = layout.MAX_TSO
"""The end of what is not deleted."""


def _index_in(values: pa.Array | pa.ChunkedArray, known: pa.Array) -> pa.Array:
    """The place of each value among those known; null where it is not."""
    import pyarrow.compute as pc

    return pc.index_in(values, known)


class DeleteHistory:
    """When keys were deleted, every time.

    Args:
        deletes: All deletes that concern the rows; keys of one type.
        until: Later deletes have not happened.
        most: Bytes that it may take.

    Raises:
        OptionError: When it takes more.
    """

    def __init__(self, deletes: Iterable[Deletes], until: int | None, most: int) -> None:
        keys: list[pa.Array] = []
        times: list[pa.Array] = []
        taken = 0
        for one in deletes:
            some, stamps = until_then(one, until)
            taken += some.nbytes + stamps.nbytes
            check_room(taken, most)
            keys.append(some)
            times.append(stamps)
        every = pa.chunked_array(keys) if keys else pa.chunked_array([], pa.int64())
        self._known = every.unique()
        stamps = np.concatenate([np.empty(0, np.int64), *(values_of(one, np.int64) for one in times)])
        self._times = np.unique(stamps)
        codes = values_of(_index_in(every, self._known).combine_chunks(), np.int32).astype(np.int64)
        self._deletes = np.sort(self._places(codes, np.searchsorted(self._times, stamps)))

    def _places(self, codes: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers that order deletes by key, then by time."""
        return codes * (len(self._times) + 1) + ranks

    def ends(self, keys: pa.Array, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """When rows were deleted: the first delete of their key that is younger than they; `NEVER` where there is none.

        Args:
            keys: Their primary keys.
            times: When they were inserted.
        """
        found = np.full(len(keys), NEVER, np.int64)
        if keys.type != self._known.type or not len(self._known):
            return found
        codes = _index_in(keys, self._known)
        rows = np.flatnonzero(boolean_values(codes.is_valid()))
        key = values_of(codes.drop_null(), np.int32).astype(np.int64)
        after = self._places(key, np.searchsorted(self._times, times[rows], side="right"))
        at = np.searchsorted(self._deletes, after)
        place = self._deletes[np.minimum(at, len(self._deletes) - 1)]
        key_of, rank = np.divmod(place, len(self._times) + 1)
        deleted = (at < len(self._deletes)) & (key_of == key)
        found[rows[deleted]] = self._times[rank[deleted]]
        return found
