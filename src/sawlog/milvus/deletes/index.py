"""The deletes of some delta logs, read once for all rows that they concern: the newest of a key, or every one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import combine_column, make_scalar, unpack_booleans, view_values
from sawlog.errors import OptionError
from sawlog.format.damage import Findings
from sawlog.kernels.intern import Interner, Strings, make_seed
from sawlog.milvus import layout
from sawlog.milvus.columns import split_binary
from sawlog.milvus.deletes import kernels
from sawlog.milvus.deletes.kernels import Table
from sawlog.milvus.deletes.log import Deletes, read_deletes
from sawlog.milvus.log import hold_log, open_log
from sawlog.storage import File, Storage, map_files

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
        max_bytes: Bytes that it may take; `None` for any number.
        room: How many keys there is room for from the beginning.

    Raises:
        OptionError: When it takes more.
    """

    def __init__(
        self, deletes: Iterable[Deletes], until: int | None, max_bytes: int | None = None, room: int = 0
    ) -> None:
        self._tables: dict[pa.DataType, _Numbers | _Texts] = {}
        for delete in deletes:
            keys, times = _select_until(delete, until)
            if not len(keys):
                continue
            if keys.type not in self._tables:
                self._tables[keys.type] = _Numbers(room) if pa.types.is_int64(keys.type) else _Texts()
            self._tables[keys.type].add(keys, view_values(times, np.int64))
            if max_bytes is not None:
                _check_room(self.nbytes, max_bytes)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return sum(table.nbytes for table in self._tables.values())

    def mark_survivors(self, keys: pa.Array, times: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Return 1 for each row that is not deleted, 0 for the others; `None` when all of them survive."""
        table = self._tables.get(keys.type)
        if table is None:
            return None
        keep = np.empty(len(keys), np.uint8)
        return None if table.mark_survivors(keys, times, keep) == len(keys) else keep


def _check_room(used_bytes: int, max_bytes: int) -> None:
    """Refuse deletes that take more memory than they may.

    Raises:
        OptionError: Names the option.
    """
    if used_bytes > max_bytes:
        raise OptionError(
            f"the deletes take more than {max_bytes} bytes of memory; "
            "where that is right, give a larger max_delete_bytes"
        )


def _select_until(deletes: Deletes, until: int | None) -> tuple[pa.Array, pa.Array]:
    """Return keys and times of the deletes that have happened at a TSO; of all of them for `None`."""
    if until is None:
        return deletes.keys, deletes.times
    import pyarrow.compute as pc

    early = pc.less_equal(deletes.times, make_scalar(until, deletes.times.type))
    return deletes.keys.filter(early), deletes.times.filter(early)


def _make_table(salt: np.uint64, keys: int) -> Table:
    """Return an empty table with room for some keys."""
    room = max(_SMALLEST_TABLE, 1 << (2 * keys).bit_length())
    slots = np.full(2 * room, -1, np.int64)
    return Table(salt, slots, slots.view(np.uint8), np.zeros(room // 64 * _MARKS, np.uint64))


class _Numbers:
    """The newest delete of every int64 key."""

    def __init__(self, room: int) -> None:
        self._count = 0
        self._salt = make_seed()
        self._table = _make_table(self._salt, room)

    @property
    def nbytes(self) -> int:
        return int(self._table.slots.nbytes + self._table.marks.nbytes)

    def add(self, keys: pa.Array, times: NDArray[np.int64]) -> None:
        """Take deletes in; where the table is too small for all of them, a larger one is made."""
        if self._count + len(keys) > len(self._table.slots) // 4:
            before = self._table.slots.reshape(-1, 2)
            before = before[before[:, 1] >= 0]
            self._table = _make_table(self._salt, self._count + len(keys))
            kernels.add_numbers(_freeze(before[:, 0]), _freeze(before[:, 1]), self._table)
        self._count += int(kernels.add_numbers(view_values(keys, np.int64), times, self._table))

    def mark_survivors(self, keys: pa.Array, times: NDArray[np.int64], keep: NDArray[np.uint8]) -> int:
        """Mark the rows that are not deleted, and count them."""
        suspects = np.empty(len(keys), np.int64)
        return int(kernels.mark_numbers(view_values(keys, np.int64), times, self._table, suspects, keep))


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
        numbers, _ = self._keys.assign_numbers(Strings(*split_binary(keys)))
        if self._keys.count > len(self._newest):
            fresh = np.zeros(2 * self._keys.count - len(self._newest), np.int64)
            self._newest = np.concatenate((self._newest, fresh))
        np.maximum.at(self._newest, numbers, times)

    def mark_survivors(self, keys: pa.Array, times: NDArray[np.int64], keep: NDArray[np.uint8]) -> int:
        """Mark the rows that are not deleted, and count them."""
        texts, known_keys = Strings(*split_binary(keys)), self._keys
        return int(
            kernels.mark_texts(texts, known_keys.compute_hashes(texts), times, known_keys.interned, self._newest, keep)
        )


def _freeze(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array as kernels take all input, so that there is one version of each: contiguous and read-only."""
    copied = np.ascontiguousarray(array)
    copied = copied.view()
    copied.flags.writeable = False
    return copied


NEVER = layout.MAX_TSO
"""The end of what is not deleted."""


def _find_indices(values: pa.Array | pa.ChunkedArray, known_keys: pa.Array) -> pa.Array:
    """Return the place of each value among those known; null where it is not."""
    import pyarrow.compute as pc

    return pc.index_in(values, known_keys)


class DeleteHistory:
    """When keys were deleted, every time.

    Args:
        deletes: All deletes that concern the rows; keys of one type.
        until: Later deletes have not happened.
        max_bytes: Bytes that it may take.

    Raises:
        OptionError: When it takes more.
    """

    def __init__(self, deletes: Iterable[Deletes], until: int | None, max_bytes: int) -> None:
        keys: list[pa.Array] = []
        times: list[pa.Array] = []
        used_bytes = 0
        for delete in deletes:
            deleted, stamps = _select_until(delete, until)
            used_bytes += deleted.nbytes + stamps.nbytes
            _check_room(used_bytes, max_bytes)
            keys.append(deleted)
            times.append(stamps)
        all_keys = pa.chunked_array(keys) if keys else pa.chunked_array([], pa.int64())
        self._distinct_keys = all_keys.unique()
        stamps = np.concatenate([np.empty(0, np.int64), *(view_values(time, np.int64) for time in times)])
        self._times = np.unique(stamps)
        codes = view_values(combine_column(_find_indices(all_keys, self._distinct_keys)), np.int32).astype(np.int64)
        self._deletes = np.sort(self._rank_deletes(codes, np.searchsorted(self._times, stamps)))

    def _rank_deletes(self, codes: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a number per delete that orders deletes by key, then by time."""
        return codes * (len(self._times) + 1) + ranks

    def find_ends(self, keys: pa.Array, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when each row was deleted: by the first younger delete of its key, or `NEVER`."""
        deleted_at = np.full(len(keys), NEVER, np.int64)
        if keys.type != self._distinct_keys.type or not len(self._distinct_keys):
            return deleted_at
        codes = _find_indices(keys, self._distinct_keys)
        rows = np.flatnonzero(unpack_booleans(codes.is_valid()))
        key = view_values(codes.drop_null(), np.int32).astype(np.int64)
        after = self._rank_deletes(key, np.searchsorted(self._times, times[rows], side="right"))
        first = np.searchsorted(self._deletes, after)
        place = self._deletes[np.minimum(first, len(self._deletes) - 1)]
        key_of, rank = np.divmod(place, len(self._times) + 1)
        deleted = (first < len(self._deletes)) & (key_of == key)
        deleted_at[rows[deleted]] = self._times[rank[deleted]]
        return deleted_at


_FREE_BYTES = 64 << 20
"""Memory that the deleted keys may always take."""
EXPANSION = 32
"""They may take so many times the bytes of their delta logs, unless an option says otherwise."""
_KEY_BYTES = 16
"""Bytes that a delete takes in a log, about: so many keys are reckoned with."""


@dataclass(frozen=True, slots=True)
class DeltaLogs:
    """Delta logs whose deletes are looked up together.

    Attributes:
        files: The delta logs.
        key: Type of the primary key; `None` where it is unknown.
        opened: Identifies the dataset that they were found by. What another one reads is read again.
        until: Later deletes have not happened.
        max_page_bytes: See the read options.
        max_delete_bytes: See the read options.
        storage: Where they are.
        counts: How many deletes they have by the metadata, by path.
    """

    files: tuple[File, ...]
    key: pa.DataType | None
    opened: str
    until: int | None = field(compare=False)
    max_page_bytes: int | None = field(compare=False)
    max_delete_bytes: int | None = field(compare=False)
    storage: Storage = field(compare=False)
    counts: Mapping[str, int] = field(compare=False)

    def read_newest(self, *, strict: bool) -> DeleteIndex:
        """Return the newest delete of every key, which the batches of a segment, or of a partition, share.

        Args:
            strict: Whether damage of any of them is an error.

        Raises:
            OptionError: When the keys take more memory than they may.
        """
        return _read_newest(self, strict=strict)

    def read_history(self, *, strict: bool) -> DeleteHistory:
        """Return all deletes of every key, shared as those of `read_newest`."""
        return _read_history(self, strict=strict)

    def report(self, files: Iterable[File], findings: Findings) -> None:
        """Report what is wrong with those of them that the caller answers for; others answer for the rest."""
        for file in self.files:
            if file in files:
                quiet = Findings("skip", drained=True)
                for _ in self._read(file, quiet):
                    pass
                for damage in quiet.damages:
                    findings.add_damage(damage)

    @property
    def max_bytes(self) -> int:
        """Bytes that the deleted keys may take."""
        if self.max_delete_bytes is not None:
            return self.max_delete_bytes
        return max(_FREE_BYTES, EXPANSION * sum(file.size for file in self.files))

    def _read(self, file: File, findings: Findings) -> Iterator[Deletes]:
        with hold_log(file, self.storage, self.max_page_bytes) as log:
            yield from read_deletes(log, findings, self.key, self.counts.get(file.path, 0))

    def read_all(self, *, strict: bool) -> Iterator[Deletes]:
        """Yield the deletes of all of them; none where the type of keys is unknown, since no row has any."""
        findings = Findings("fail" if strict else "skip")
        for log in map_files(lambda file: open_log(file, self.storage, self.max_page_bytes), self.files):
            with closing(log.source):
                deletes = read_deletes(log, findings, self.key, self.counts.get(log.path, 0))
                yield from (delete for delete in deletes if self.key is not None)


@lru_cache(maxsize=2)
def _read_newest(logs: DeltaLogs, *, strict: bool) -> DeleteIndex:
    room = sum(file.size for file in logs.files) // _KEY_BYTES
    return DeleteIndex(logs.read_all(strict=strict), logs.until, logs.max_bytes, room)


@lru_cache(maxsize=2)
def _read_history(logs: DeltaLogs, *, strict: bool) -> DeleteHistory:
    return DeleteHistory(logs.read_all(strict=strict), logs.until, logs.max_bytes)
