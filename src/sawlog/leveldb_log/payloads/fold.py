"""Folding operations to the last state of each key."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.format import OFFSET_COLUMN
from sawlog.leveldb_log.payloads import layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLD_ROWS = 1 << 20
"""Operations that are gathered before they are folded, unless there are more keys than that."""
FOLD_BYTES = 256 << 20

_ORDER = ("_batch", "_place")
"""Columns by which operations take effect: the sequence number of their batch, then their place in the logs.

The numbers within a batch do not tell: databases with write-prepared transactions count one per batch, so that those of
a batch reach into those of the next ones.
"""
_BEGINS = ("begin_prepare", "begin_persisted_prepare", "begin_unprepare")
_COMMITS = ("commit", "commit_with_timestamp")
_DELETE = layout.NAMES[layout.DELETE]
_DELETE_RANGE = layout.NAMES[layout.DELETE_RANGE]
_KEYED = tuple(
    operation.name
    for operation in layout.OPERATIONS
    if operation.key and operation.shape & layout.Field.COUNTED and operation.name != _DELETE_RANGE
)


class Fold:
    """The last state of each key, in memory that grows with the keys, not with the operations.

    Args:
        schema: The columns of the operations; `_offset` must be among them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        # Folded values may add up to more than 32-bit offsets reach.
        wide = [f.with_type(pa.large_binary()) if pa.types.is_binary(f.type) else f for f in schema]
        self._given = pa.schema(wide)
        self._schema = pa.schema([*wide, *(pa.field(name, pa.int64()) for name in _ORDER)])
        self._folded = self._schema.empty_table()
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._places = 0
        self._ranges: list[dict[str, Any]] = []
        self._section: list[pa.Table] | None = None
        self._prepared: dict[bytes, list[pa.Table]] = {}
        self.begin_log()

    def begin_log(self) -> None:
        """What is added next is from another log."""
        self._last_offset = -1
        self._last_batch = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next operations."""
        import pyarrow.compute as pc

        table = self._ordered(batch)
        names = table.column("operation")
        keyed = pc.is_in(names, pa.array(_KEYED))
        if self._section is None and pc.all(keyed).as_py():
            self._keep(table)
            return
        # Markers are few: go from one to the next.
        begin = 0
        for row in pc.indices_nonzero(pc.invert(keyed)).to_pylist():
            self._take(table.slice(begin, row - begin))
            self._mark(table.slice(row, 1))
            begin = row + 1
        self._take(table.slice(begin))

    def finish(self) -> pa.Table:
        """The last state of all keys, in the order in which they came about."""
        self._fold()
        table = self._delete_ranges(self._folded)
        return table.sort_by([(name, "ascending") for name in _ORDER]).select(self._given.names)

    def _ordered(self, batch: pa.RecordBatch) -> pa.Table:
        """Operations with the columns of `_ORDER`."""
        table = pa.Table.from_batches([batch]).cast(self._given)
        rows = table.num_rows
        sequences = batch.column("sequence").to_numpy()
        offsets = batch.column(OFFSET_COLUMN).to_numpy()
        begins = np.flatnonzero(offsets != np.append(self._last_offset, offsets)[:-1])
        runs = np.diff(np.append(begins, rows), prepend=0)[1:] if len(begins) else np.zeros(0, np.int64)
        before = int(begins[0]) if len(begins) else rows
        batches = np.append(np.full(before, self._last_batch), np.repeat(sequences[begins], runs))
        if rows:
            self._last_offset, self._last_batch = int(offsets[-1]), int(batches[-1])
        for name, values in zip(_ORDER, (batches, self._take_places(rows)), strict=True):
            table = table.append_column(name, pa.array(values, pa.int64()))
        return table

    def _take_places(self, count: int) -> NDArray[np.int64]:
        self._places += count
        return np.arange(self._places - count, self._places)

    def _take(self, table: pa.Table) -> None:
        if self._section is not None:
            self._section.append(table)
        elif table.num_rows:
            self._keep(table)

    def _mark(self, row: pa.Table) -> None:
        """An operation that is not about one key."""
        name = row.column("operation")[0].as_py()
        if name == _DELETE_RANGE:
            if self._section is not None:
                self._section.append(row)
            else:
                self._ranges += row.to_pylist()
        elif name in _BEGINS:
            self._section = []
        elif name == "end_prepare":
            self._prepared.setdefault(row.column("key")[0].as_py(), []).extend(self._section or [])
            self._section = None
        elif name in _COMMITS:
            self._commit(row)
        elif name == "rollback":
            self._prepared.pop(row.column("key")[0].as_py(), None)

    def _commit(self, row: pa.Table) -> None:
        """The operations of a prepared transaction take effect where it is committed."""
        (mark,) = row.to_pylist()
        sequence = mark["sequence"]
        for prepared in self._prepared.pop(mark["key"], []):
            table, count = prepared, prepared.num_rows
            new = {
                "sequence": np.arange(sequence, sequence + count),
                "_batch": np.full(count, mark["_batch"]),
                "_place": self._take_places(count),
            }
            sequence += count
            for name, numbers in new.items():
                place = table.schema.get_field_index(name)
                table = table.set_column(place, table.schema.field(place), pa.array(numbers, pa.int64()))
            if count and table.column("operation")[0].as_py() == _DELETE_RANGE:
                self._ranges += table.to_pylist()
            else:
                self._keep(table)

    def _keep(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows > max(FOLD_ROWS, self._folded.num_rows) or self._bytes > max(FOLD_BYTES, self._folded.nbytes):
            self._fold()

    def _fold(self) -> None:
        table = pa.concat_tables([self._folded, *self._waiting])
        self._waiting.clear()
        self._rows = self._bytes = 0
        order = np.lexsort([table.column(name).to_numpy() for name in reversed(_ORDER)])
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        keys = table.select(["column_family", "key"]).append_column("rank", pa.array(ranks))
        groups = keys.group_by(["column_family", "key"], use_threads=False)
        last = groups.aggregate([("rank", "max")]).column("rank_max").to_numpy()
        self._folded = table.take(pa.array(order[np.sort(last)]))

    def _delete_ranges(self, table: pa.Table) -> pa.Table:
        """States that a later `delete_range` covers become deletions."""
        if not self._ranges:
            return table
        table = table.sort_by([("column_family", "ascending"), ("key", "ascending")])
        self._ranges.sort(key=lambda one: tuple(one[name] for name in _ORDER))
        newest = np.full(table.num_rows, -1)
        families = table.column("column_family").to_numpy()
        for family in {one["column_family"] for one in self._ranges}:
            first, last = np.searchsorted(families, [family, family + 1]).tolist()
            keys = Keys(table.column("key").slice(first, last - first).combine_chunks())
            for start, stop, rank in covered(self._ranges, family, keys):
                newest[first + start : first + stop] = rank
        order = np.array([[one[name] for name in _ORDER] for one in self._ranges])
        states = np.stack([table.column(name).to_numpy() for name in _ORDER], axis=1)
        later = order[newest] > states
        same = order[newest][:, 0] == states[:, 0]
        dead = (newest >= 0) & (later[:, 0] | same & later[:, 1])
        if not dead.any():
            return table
        deletions = pa.Table.from_pylist(
            [{**one, "operation": _DELETE, "value": None} for one in self._ranges], self._schema
        ).take(pa.array(newest[dead]))
        gone = table.filter(pa.array(dead))
        for name in ("column_family", "key"):
            place = table.schema.get_field_index(name)
            deletions = deletions.set_column(place, table.schema.field(place), gone.column(name))
        return pa.concat_tables([table.filter(pa.array(~dead)), deletions])


class Keys:
    """Sorted keys, to look places up in."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys

    def place(self, key: bytes) -> int:
        """How many of the keys are less than this one."""
        low, high = 0, len(self._keys)
        while low < high:
            middle = (low + high) // 2
            if self._keys[middle].as_py() < key:
                low = middle + 1
            else:
                high = middle
        return low


def covered(ranges: list[dict[str, Any]], family: int, keys: Keys) -> Iterator[tuple[int, int, int]]:
    """Stretches of the keys of a family, each with the newest of the ranges (by its number) that cover it."""
    edges: list[tuple[int, int, int]] = []
    for rank, one in enumerate(ranges):
        if one["column_family"] == family:
            start, stop = keys.place(one["key"]), keys.place(one["value"])
            if start < stop:
                edges.append((start, rank, stop))
    edges.sort()
    # The ranges that have begun, newest first; those that have ended are dropped when they come up.
    begun: list[tuple[int, int]] = []
    at = 0
    at = 0
    for start, rank, stop in [*edges, (1 << 62, 0, 1 << 62)]:
        while begun and at < start:
            newest, end = begun[0]
            if end <= at:
                heapq.heappop(begun)
                continue
            until = min(end, start)
            yield at, until, -newest
            at = until
        at = start
        heapq.heappush(begun, (-rank, stop))
