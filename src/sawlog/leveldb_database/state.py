"""The entries of a range of keys, from tables and logs, put in order and settled."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.arrow import Column, array_of, batch_of, batch_of_rows, constant_string, fixed_array, values_of
from sawlog.kernels.gather import gather_slices
from sawlog.leveldb_database import kernels as k
from sawlog.leveldb_database.columns import (
    BLOB,
    ENTITY,
    LIVE,
    OPERATION_NAMES,
    RANGE,
    STAMPED_SCHEMA,
    STRAY,
    Run,
    operation_names,
)
from sawlog.leveldb_table.columns import KEY, OPERATION, SEQUENCE, STAMP, VALUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_ROWS = 64 << 10
PORTION_BYTES = 16 << 20
"""Bytes of values that are picked for a batch."""
LONG = 1024
"""So many entries that stand together are delivered as they stand."""
_DELETES = ("delete", "single_delete", "delete_sized")


@cache
def _effects() -> NDArray[np.uint8]:
    """What each operation does to its key. A range deletion neither hides nor shows its first key."""
    merges = ("merge", "delete_range")
    found = [k.DELETES if name in _DELETES else k.MERGES if name in merges else k.PUTS for name in OPERATION_NAMES]
    return np.array(found, np.uint8)


class Settled:
    """The entries of some runs in key order, newest first where keys are equal.

    Args:
        groups: Runs, newest first; those of a group follow each other in key order.
        covers: The range deletions that count.
        bytewise: Whether that order is the bytes'; otherwise all is sorted anew.

    Attributes:
        order: int64, numbers of entries, counted through all runs.
        live: Whether a database would answer with each of them.
    """

    def __init__(self, groups: Sequence[Sequence[Run]], covers: k.Covers, *, bytewise: bool) -> None:
        lengths = [sum(run.rows for run in group) for group in groups]
        self._runs = [run for group in groups for run in group]
        self._batches = [batch for run in self._runs for batch in run.batches if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._run_ends = np.cumsum([run.rows for run in self._runs], dtype=np.int64)
        self._codes = _joined([values_of(batch.column(OPERATION), np.uint8) for batch in self._batches], np.uint8)
        self._sequences = _joined([values_of(batch.column(SEQUENCE), np.int64) for batch in self._batches], np.int64)
        stamped = any(STAMP in batch.schema.names for batch in self._batches)
        self._stamps = _joined(
            [values_of(batch.column(STAMP), np.uint64) for batch in self._batches if stamped], np.uint64
        )
        lost = [STRAY in batch.schema.names for batch in self._batches]
        self._strays = np.repeat(np.array(lost, np.bool_), np.diff(self._starts)) if any(lost) else None
        entries = self._entries()
        self.order = _merged(entries, lengths) if bytewise else _sorted(entries, 0, int(self._starts[-1]))
        fates = np.zeros(len(self.order), np.uint8)
        if not k.settle(entries, self.order, covers, fates):
            self.order = _merged(entries, lengths, in_order=False)
            k.settle(entries, self.order, covers, fates)
        self.live: NDArray[np.bool_] = fates == k.SHOWN
        if (self._codes == RANGE).any():
            self.live &= self._codes[self.order] != RANGE
        if self._strays is not None:
            self.live &= ~self._strays[self.order]
            self._batches = [_named_again(batch) for batch in self._batches]
            del self._keys

    @property
    def blobs(self) -> bool:
        """Whether values of entries may be in blob files."""
        return bool(((self._codes == BLOB) | (self._codes == ENTITY)).any())

    @property
    def runs(self) -> Sequence[Run]:
        """All runs."""
        return self._runs

    def sizes(self, fates: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bytes of keys and values, and numbers of entries, int64, by run and fate.

        Args:
            fates: int64, below `count`: what became of each entry of `order`.
            count: How many fates there are.
        """
        keys = _joined([np.diff(binary_parts(batch.column(KEY))[1]) for batch in self._batches], np.int64)
        sizes = (keys + self._value_sizes)[self.order]
        groups = np.searchsorted(self._run_ends, self.order, "right") * count + fates
        shape = len(self._runs), count
        total = np.bincount(groups, sizes, len(self._runs) * count).astype(np.int64)
        return total.reshape(shape), np.bincount(groups, minlength=len(self._runs) * count).reshape(shape)

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The operations of the entries of `order`, as numbers of `OPERATION_NAMES`."""
        return self._codes[self.order]

    def batches(self, schema: pa.Schema, of_run: dict[str, list[Any]], *, every: bool) -> Iterator[pa.RecordBatch]:
        """Entries, in order, as batches of bounded size.

        Args:
            schema: Columns of entries, of runs, and `live`.
            of_run: Columns that are the same for all of a run: their values by run.
            every: Whether entries are wanted that are not live.
        """
        numbers = self.order if every else self.order[self.live]
        live = self.live if every else np.ones(len(numbers), np.bool_)
        for first, last in self._stretches(numbers):
            yield self._batch(numbers[first:last], live[first:last], schema, of_run)

    def _stretches(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Where to cut: entries that stand together in a batch are left together, if they are many."""
        places = np.searchsorted(self._starts, numbers, "right") - 1
        cuts = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(places) != 0)) + 1
        edges = np.concatenate([np.zeros(1, np.int64), cuts, np.full(1, len(numbers))])
        long = np.flatnonzero(np.diff(edges) >= LONG)
        first = 0
        for start, stop in zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True):
            yield from self._portions(numbers, first, start)
            yield start, stop
            first = stop
        yield from self._portions(numbers, first, len(numbers))

    def _portions(self, numbers: NDArray[np.int64], first: int, last: int) -> Iterator[tuple[int, int]]:
        """Entries that are to be picked, some at a time: so many that neither rows nor bytes are too many."""
        if first == last:
            return
        sizes = self._value_sizes[numbers[first:last]].cumsum()
        while first < last:
            done = int(sizes[first - last - 1]) if first > last - len(sizes) else 0
            fitting = int(np.searchsorted(sizes, done + PORTION_BYTES, "right")) - (len(sizes) - (last - first))
            stop = min(first + max(1, min(fitting, BATCH_ROWS)), last)
            yield first, stop
            first = stop

    @cached_property
    def _value_sizes(self) -> NDArray[np.int64]:
        return _joined([np.diff(binary_parts(batch.column(VALUE))[1]) for batch in self._batches], np.int64)

    def _batch(
        self, numbers: NDArray[np.int64], live: NDArray[np.bool_], schema: pa.Schema, of_run: dict[str, list[Any]]
    ) -> pa.RecordBatch:
        found = self._gather(numbers, [name for name in schema.names if name in STAMPED_SCHEMA.names])
        arrays = []
        for field in schema:
            if field.name == OPERATION:
                arrays.append(_named(found.column(OPERATION)))
            elif field.name == LIVE:
                bits = pa.py_buffer(np.packbits(live, bitorder="little"))
                arrays.append(pa.Array.from_buffers(pa.bool_(), len(live), [None, bits]))
            elif field.name in of_run:
                runs = np.searchsorted(self._run_ends, numbers, "right")
                arrays.append(array_of(of_run[field.name], field.type).take(fixed_array(pa.int64(), runs)))
            else:
                arrays.append(found.column(field.name))
        return batch_of(arrays, schema, len(numbers))

    def _gather(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pa.RecordBatch:
        """Entries by their numbers: a slice where they stand together in a batch, otherwise copied one by one."""
        kinds = pa.schema([STAMPED_SCHEMA.field(name) for name in names])
        if not names or not len(numbers):
            return batch_of_rows([], kinds)
        places = np.searchsorted(self._starts, numbers, "right") - 1
        first = int(places[0])
        if (places == first).all() and (np.diff(numbers) == 1).all():
            return self._batches[first].select(names).slice(int(numbers[0] - self._starts[first]), len(numbers))
        arrays = []
        for name in names:
            if name == KEY:
                arrays.append(_picked(self._keys, numbers))
            elif name == VALUE:
                arrays.append(_picked(self._values, numbers))
            elif name == SEQUENCE:
                arrays.append(fixed_array(pa.int64(), self._sequences[numbers]))
            elif name == STAMP:
                arrays.append(fixed_array(pa.uint64(), self._stamps[numbers]))
            else:
                arrays.append(fixed_array(pa.uint8(), self._codes[numbers]))
        return pa.RecordBatch.from_arrays(arrays, schema=kinds)

    @cached_property
    def _keys(self) -> Strings:
        return _strings(self._batches, KEY)

    @cached_property
    def _values(self) -> Strings:
        return _strings(self._batches, VALUE)

    def _entries(self) -> k.Entries:
        """The columns as kernels take them. Entries that are not in their place come first there, and do nothing."""
        ranks = _ranks(self._stamps, self._sequences) if len(self._stamps) else self._sequences
        effects = _effects()[self._codes]
        if self._strays is not None:
            ranks = np.where(self._strays, np.iinfo(np.int64).max, ranks)
            effects = np.where(self._strays, np.uint8(k.MERGES), effects)
        arrays = (*self._keys, ranks, effects)
        for array in arrays:
            array.flags.writeable = False
        return k.Entries(*arrays)


class Strings(NamedTuple):
    """Keys or values of all batches: number i is `data[starts[i] : ends[i]]`, uint8 and int64."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def _named_again(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Entries under their own keys, wherever they are told."""
    if STRAY not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index(KEY)
    return batch.set_column(at, batch.schema.field(at), batch.column(STRAY))


def _strings(batches: Sequence[pa.RecordBatch], name: str) -> Strings:
    found = [binary_parts(batch.column(name)) for batch in batches]
    used = [data[offsets[0] : offsets[-1]] for data, offsets in found]
    shifts = np.cumsum([0, *map(len, used)])
    starts = [offsets[:-1] + (shift - offsets[0]) for (_, offsets), shift in zip(found, shifts, strict=False)]
    ends = [offsets[1:] + (shift - offsets[0]) for (_, offsets), shift in zip(found, shifts, strict=False)]
    return Strings(_joined(used, np.uint8), _joined(starts, np.int64), _joined(ends, np.int64))


def _picked(strings: Strings, numbers: NDArray[np.int64]) -> pa.Array:
    """Some of the strings, by their numbers."""
    starts = strings.starts[numbers]
    lengths = strings.ends[numbers] - starts
    out, ends = Column(np.uint8, int(lengths.sum())), Column(np.int32, len(numbers) + 1)
    ends.values[0] = 0
    gather_slices(strings.data, starts, lengths, out.values, ends.values)
    buffers = [None, ends.take(len(numbers) + 1), out.take(int(ends.values[-1]))]
    return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


def _named(codes: pa.Array) -> pa.Array:
    """The names of operations."""
    numbers = values_of(codes, np.uint8)
    if len(numbers) and (numbers == numbers[0]).all():
        return constant_string(OPERATION_NAMES[numbers[0]], len(numbers))
    return operation_names().take(codes)


def binary_parts(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Data and offsets of keys or values."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends or bytes(4), np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data or b"", np.uint8), offsets.astype(np.int64)


def _joined(arrays: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *arrays])


def _merged(entries: k.Entries, lengths: list[int], *, in_order: bool = True) -> NDArray[np.int64]:
    """Runs merged by twos, as long as there are more than one; sorted before where they may be none."""
    edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tolist()
    order = np.arange(edges[-1])
    for first, last in itertools.pairwise(edges if not in_order else ()):
        if not k.sorted_so(entries, first, last):
            order[first:last] = _sorted(entries, first, last)
    while len(edges) > 2:
        merged = order.copy()
        for first, middle, last in zip(edges[0:-2:2], edges[1:-1:2], edges[2::2], strict=True):
            k.merge_runs(entries, order, first, middle, last, merged)
        order = merged
        edges = [*edges[0:-1:2], edges[-1]]
    return order


def _sorted(entries: k.Entries, first: int, last: int) -> NDArray[np.int64]:
    """The numbers of entries, in key order, newest first where keys are equal."""
    offsets = np.append(entries.starts[first:last], entries.ends[first:last][-1:] if last > first else 0)
    keys = pa.Array.from_buffers(
        pa.large_binary(), last - first, [None, pa.py_buffer(offsets), pa.py_buffer(entries.keys)]
    )
    table = pa.table([keys, fixed_array(pa.int64(), entries.sequences[first:last])], [KEY, SEQUENCE])
    order = pc.sort_indices(table, sort_keys=[(KEY, "ascending"), (SEQUENCE, "descending")])
    numbers: NDArray[np.int64] = np.asarray(order).astype(np.int64) + first
    return numbers


def _ranks(stamps: NDArray[np.uint64], sequences: NDArray[np.int64]) -> NDArray[np.int64]:
    """What is newer has the higher number: by timestamps, and then by sequence numbers."""
    ranks = np.zeros(len(stamps), np.int64)
    ranks[np.lexsort((sequences, stamps))] = np.arange(len(stamps))
    return ranks


def sorted_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Entries in key order, newest first where keys are equal."""
    stamped = [(STAMP, "descending")] if STAMP in batch.schema.names else []
    order = pc.sort_indices(batch, sort_keys=[(KEY, "ascending"), *stamped, (SEQUENCE, "descending")])
    return batch.take(order)


def covers_of(ranges: Sequence[pa.RecordBatch]) -> k.Covers:
    """Range deletions as disjoint ranges, each with the newest that covers it."""
    columns = ([one for batch in ranges for one in batch.column(name).to_pylist()] for name in (KEY, VALUE, SEQUENCE))
    rows = [(key, end, sequence) for key, end, sequence in zip(*columns, strict=True) if key < end]
    edges = sorted({edge for row in rows for edge in row[:2]})
    rows.sort()
    active: list[tuple[int, bytes]] = []
    waiting = 0
    sequences = []
    for edge in edges:
        while waiting < len(rows) and rows[waiting][0] <= edge:
            _, end, sequence = rows[waiting]
            heapq.heappush(active, (-sequence, end))
            waiting += 1
        while active and active[0][1] <= edge:
            heapq.heappop(active)
        sequences.append(-active[0][0] if active else -1)
    starts = np.concatenate([[0], np.cumsum([len(edge) for edge in edges])]).astype(np.int64)
    keys = np.frombuffer(b"".join(edges), np.uint8)
    return k.Covers(keys, starts, np.array(sequences, np.int64))
