"""Entries of tables and logs in key order, merged as they are read, and what a database would answer with."""

from __future__ import annotations

import copy
import heapq
import itertools
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sawlog.arrow import (
    Column,
    make_array,
    make_batch,
    make_batch_from_rows,
    make_fixed_array,
    make_scalar,
    pack_bits,
    unpack_booleans,
    view_binary,
    view_offsets,
    view_values,
)
from sawlog.errors import SawlogError
from sawlog.kernels.columns import gather_bytes
from sawlog.leveldb.columns import (
    BLOB,
    ENTITY,
    ENTRY_SCHEMA,
    KEY,
    LIVE,
    OPERATION,
    OPERATION_NAMES,
    RANGE,
    SEQUENCE,
    SIZE,
    STAMP,
    STAMPED_SCHEMA,
    STRAY,
    TRANSACTION,
    VALUE,
    EntryRun,
    Stream,
    convert_codes,
    count_below,
    make_disjoint_ranges,
    slice_keys,
)
from sawlog.leveldb.database import kernels as k
from sawlog.leveldb.database.kernels import Covers
from sawlog.leveldb.database.order import KeyOrder, VirtualTable, list_places
from sawlog.leveldb.database.version import LiveTable
from sawlog.leveldb.records.transactions import PendingOperations

_BEFORE = -1
"""Instead of the entry after which another one is given: those before the batch."""
_AFTER = -2
"""Instead of it: all that the table should hold."""


class Judge:
    """Judges the entries of one table, in the order of the file.

    The key of each must lie in the range that the MANIFEST names, and not before that of another one. Where it does
    not, the entry is kept apart, as if it followed the last one that is in its place. So entries are given in the
    order of the file, and every range of keys has its part of them, whatever their keys are.

    Args:
        live: What the MANIFEST says of the table.
        begins: Entries from this key on are wanted.
        ends: And before this key; `None`: all that follow.

    Attributes:
        flaws: The offsets of blocks with entries that are not in their places, and what is said of each.
    """

    def __init__(self, live: LiveTable, begins: bytes, ends: bytes | None) -> None:
        self._live = live
        self._begins = begins
        self._ends = ends
        self._place = live.smallest
        self.flaws: dict[int, str] = {}

    def judge_entries(
        self, batch: pa.RecordBatch, offsets: NDArray[np.int64], *, is_ascending: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted entries of a batch of data blocks: those in their places, and, with `STRAY`, the others.

        Args:
            batch: The entries.
            offsets: int64, those of their blocks.
            is_ascending: Whether it is known that no key is below the one before it.
        """
        keys, rows = batch.column(KEY), batch.num_rows
        before, end = self._place, self._live.end
        has_ranges = RANGE in view_values(batch.column(OPERATION), np.uint8).tobytes()
        is_inside = keys[0].as_py() >= before and keys[-1].as_py() < end
        if is_inside and not has_ranges and (is_ascending or k.ascend(*view_binary(keys, is_own=True), False)):
            self._place = keys[-1].as_py()
            requested_rows = self._select_wanted(batch)
            if requested_rows.num_rows:
                yield requested_rows
            return
        row_numbers, places = np.arange(rows), np.full(rows, _BEFORE)
        first = _find_first(pc.greater_equal(keys, make_scalar(before, pa.binary()))) if keys[0].as_py() < before else 0
        if first < rows:
            data, ends = view_binary(keys)
            self._place = keys[int(k.find_places(data, ends.astype(np.int64), first, places))].as_py()
        if self._place >= end:
            places[
                _find_first(
                    pc.and_(
                        pc.greater_equal(keys, make_scalar(end, pa.binary())),
                        make_array(places == row_numbers, pa.bool_()),
                    )
                ) :
            ] = _AFTER
            self._place = end
        # Range deletions have blocks of their own.
        is_stray = (places != row_numbers) | (view_values(batch.column(OPERATION), np.uint8) == RANGE)
        if is_stray.any():
            bounded_keys = pa.concat_arrays([keys, make_array([before, end], pa.binary())])
            key_places = np.where(places < 0, rows - 1 - places, places)[is_stray]
            strays = batch.filter(make_array(is_stray, pa.bool_()))
            yield from self._move_strays(
                strays, bounded_keys.take(make_fixed_array(pa.int64(), key_places)), offsets[is_stray]
            )
            batch = batch.filter(make_array(~is_stray, pa.bool_()))
        requested_rows = self._select_wanted(batch)
        if requested_rows.num_rows:
            yield requested_rows

    def judge_deletions(self, batch: pa.RecordBatch, offsets: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Range deletions: they hold as far as the range of their table, and are no damage where they reach beyond."""
        is_range = view_values(batch.column(OPERATION), np.uint8) == RANGE
        if VALUE in batch.schema.names and is_range.any():
            yield from self._clip_batch(batch.filter(make_array(is_range, pa.bool_())))
        if not is_range.all():
            strays, places = self._arrange_entries(batch.filter(make_array(~is_range, pa.bool_())))
            yield from self._move_strays(strays, places, np.full(len(places), offsets[~is_range][0]))

    def _clip_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        smallest, end = self._live.smallest, self._live.end
        keys, values = (batch.column(name).to_pylist() for name in (KEY, VALUE))
        inside = [key < end and (key >= smallest or value > smallest) for key, value in zip(keys, values, strict=True)]
        if not all(inside) and not self._live.part:
            outside = batch.filter(make_array([not is_inside for is_inside in inside], pa.bool_()))
            yield from self._move_strays(*self._arrange_entries(outside), None)
        cut = {KEY: [max(key, smallest) for key in keys], VALUE: [min(value, end) for value in values]}
        columns = [
            make_array(cut[name], pa.binary()) if name in cut else batch.column(name) for name in batch.schema.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema).filter(make_array(inside, pa.bool_()))

    def _arrange_entries(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return entries of no known order in the order of their keys, each in the place that is nearest to its key."""
        batch = batch.sort_by(KEY)
        smallest, end = self._live.smallest, self._live.end
        return batch, make_array([min(max(key, smallest), end) for key in batch.column(KEY).to_pylist()], pa.binary())

    def _move_strays(
        self, batch: pa.RecordBatch, places: pa.Array, offsets: NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield entries that are not in their places, given in others; those with offsets are flaws of their blocks."""
        keys = batch.column(KEY)
        key_index = batch.schema.get_field_index(KEY)
        strays = batch.set_column(key_index, batch.schema.field(key_index), places).append_column(STRAY, keys)
        if self._live.part:
            inside = pc.and_(
                pc.greater_equal(keys, make_scalar(self._live.smallest, pa.binary())),
                pc.less(keys, make_scalar(self._live.end, pa.binary())),
            )
            strays = strays.filter(inside)
            offsets = offsets[unpack_booleans(inside)] if offsets is not None else None
        if offsets is not None:
            for offset, row in zip(*np.unique(offsets, return_index=True), strict=True):
                self.flaws.setdefault(int(offset), self._describe_key(strays.column(STRAY)[int(row)].as_py()))
        strays = self._select_wanted(strays)
        if strays.num_rows:
            yield strays

    def _describe_key(self, key: bytes) -> str:
        live = self._live
        return (
            f"the key {key[:40]!r} is where a database does not look for it:"
            f" after larger keys, or not between {live.smallest[:40]!r} and {live.end[:40]!r}, as the MANIFEST has it"
        )

    def _select_wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return slice_keys(batch, self._begins, self._ends)


def _find_first(flags: pa.Array) -> int:
    """Return the first place that is true; how many there are if none is."""
    hits = unpack_booleans(flags)
    return int(hits.argmax()) if hits.any() else len(flags)


def select_virtual_entries(table: VirtualTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the entries that a virtual table has of a batch of stored entries, under the keys that it shows."""
    is_range = view_values(batch.column(OPERATION), np.uint8) == RANGE
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns[KEY] = _replace_keys(table, columns[KEY], is_range)
    if VALUE in columns and is_range.any():
        columns[VALUE] = _replace_keys(table, columns[VALUE], is_range, only_ranges=True)
    if table.order is None:
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
    return _clip_entries(table, columns, is_range, batch.schema, table.order)


def _clip_entries(
    table: VirtualTable, columns: dict[str, pa.Array], is_range: NDArray[np.bool_], schema: pa.Schema, order: KeyOrder
) -> pa.RecordBatch:
    """Return the entries between the bounds of a virtual table; range deletions are cut there."""
    low, high = order.compute_place(table.first), order.compute_place(table.last) + (b"\0" if table.closed else b"")
    keys = order.compute_column(columns[KEY])
    low_value, high_value = (make_scalar(limit, pa.large_binary()) for limit in (low, high))
    inside = unpack_booleans(pc.less(keys, high_value))
    if VALUE in columns and is_range.any():
        ends = order.compute_column(columns[VALUE])
        begins_before = unpack_booleans(pc.less(keys, low_value))
        reaches_in = unpack_booleans(pc.greater(ends, low_value))
        inside &= np.where(is_range, reaches_in, ~begins_before)
        ends_after = is_range & unpack_booleans(pc.greater(ends, high_value))
        columns[KEY] = _with(columns[KEY], is_range & begins_before, table.first)
        columns[VALUE] = _with(columns[VALUE], ends_after, table.last)
    else:
        inside &= unpack_booleans(pc.greater_equal(keys, low_value)) | is_range
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    return batch if inside.all() else batch.filter(make_array(inside, pa.bool_()))


def _replace_keys(
    table: VirtualTable, keys: pa.Array, is_range: NDArray[np.bool_], *, only_ranges: bool = False
) -> pa.Array:
    """Return the keys of entries, or the ends of range deletions only, as a virtual table shows them."""
    if not table.prefix and not table.suffix:
        return keys
    data, offsets = view_binary(keys)
    edges = offsets.astype(np.int64)
    starts, lengths = edges[:-1], np.diff(edges)
    suffixed = np.zeros(len(keys), np.bool_) if only_ranges or not table.suffix else ~is_range
    prefixed = is_range if only_ranges else np.ones(len(keys), np.bool_)
    lengths = np.where(suffixed, lengths - _measure_versions(data, starts, lengths), lengths)
    prefix, suffix = len(table.prefix), len(table.suffix)
    source = np.concatenate([np.frombuffer(table.prefix + table.suffix, np.uint8), data])
    zeros = np.zeros(len(keys), np.int64)
    parts = np.stack([zeros, starts + prefix + suffix, zeros + prefix], axis=1)
    sizes = np.stack([prefix * prefixed, lengths, suffix * suffixed], axis=1)
    ends, content = gather_bytes(source, parts.reshape(-1), sizes.reshape(-1))
    key_offsets = np.frombuffer(ends, np.int32)[::3].copy()
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(key_offsets), content])


def _measure_versions(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the bytes of the versions of keys with their lengths, which their last bytes say; 0 for none that fits."""
    versions = np.zeros(len(starts), np.int64)
    filled = lengths > 0
    versions[filled] = data[(starts + lengths)[filled] - 1]
    return np.where(versions < lengths, versions, 0)


def _with(keys: pa.Array, replaced: NDArray[np.bool_], key: bytes) -> pa.Array:
    """Return keys, some of which another one replaces."""
    return pc.if_else(make_array(replaced, pa.bool_()), make_scalar(key, pa.binary()), keys) if replaced.any() else keys


BATCH_ROWS = 64 << 10
_PICKED_BYTES = 16 << 20
"""Bytes of keys and values that are picked for a batch, unless one entry has more."""
_LONG = 1024
"""Batches of so many entries, of which none is left out, are delivered as they are."""
_NO_SIZES = np.zeros(0, np.int32)
_FEW_ENTRIES = 256
"""Of so many entries, words are made of the first bytes of keys: to find out first what all share takes longer."""
_PUT = OPERATION_NAMES.index("put")
_DELETES = ("delete", "single_delete", "delete_sized")
_MERGES = ("merge", "delete_range")
_EFFECTS = np.full(256, k.MERGES, np.uint8)
"""What each operation does to its key. A range deletion neither hides nor shows its first key."""
_EFFECTS[: len(OPERATION_NAMES)] = [
    k.DELETES if name in _DELETES else k.MERGES if name in _MERGES else k.PUTS for name in OPERATION_NAMES
]


class MergedEntries:
    """The entries of some runs in key order, newest first where keys are equal.

    Args:
        groups: Runs, newest first; those of a group follow each other in key order.
        covers: The range deletions that count.
        pending: The entries that are not committed: they neither answer nor hide others.
        bytewise: Whether that order is the bytes'; otherwise all is sorted again.
        order_of_keys: Another order that is known.
        uncertain: The sequence number up to which range deletions may have deleted entries, of which nobody knows
            which: these do not answer.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[EntryRun]],
        covers: k.Covers,
        pending: PendingOperations,
        *,
        bytewise: bool,
        order_of_keys: KeyOrder | None = None,
        uncertain: int = 0,
    ) -> None:
        self._order_of_keys = order_of_keys
        lengths = [sum(run.rows for run in group) for group in groups]
        self._runs = [run for group in groups for run in group]
        self._batches = [batch for run in self._runs for batch in run.batches if batch.num_rows]
        counts = [batch.num_rows for batch in self._batches]
        self._starts = np.array([0, *itertools.accumulate(counts)], np.int64)
        self._run_ends = np.array([*itertools.accumulate(run.rows for run in self._runs)], np.int64)
        stamped = any(STAMP in batch.schema.names for batch in self._batches)
        self._stamps = _concatenate(
            [view_values(batch.column(STAMP), np.uint64) for batch in self._batches if stamped], np.uint64
        )
        has_strays = [STRAY in batch.schema.names for batch in self._batches]
        self._strays = np.repeat(np.array(has_strays, np.bool_), np.diff(self._starts)) if any(has_strays) else None
        self._states = pending.states
        self._pending = pending.of(self._columns.sequences) if pending else None
        rows = int(self._starts[-1])
        self._is_plain = (
            bytewise
            and len(groups) == 1
            and not (pending or stamped or any(has_strays) or len(covers.sequences))
            and _are_single_puts(self._batches)
        )
        if self._is_plain:
            return
        entries = self._make_entries()
        stored = k.Order(self._columns.numbers, self._columns.words)
        order = _merge_runs(entries, stored, lengths) if bytewise else _sort_entries(entries, 0, rows)
        fates = np.zeros(len(order.numbers), np.uint8)
        if not k.resolve(entries, order, covers, fates):
            stored = k.Order(np.arange(rows), np.zeros(rows, np.uint64))
            order = _merge_runs(entries, stored, lengths, presorted=False)
            k.resolve(entries, order, covers, fates)
        self.order = order.numbers
        self.live = fates == k.SHOWN
        codes = self._columns.codes
        if RANGE in codes.tobytes():
            self.live &= codes[self.order] != RANGE
        if uncertain:
            self.live &= self._columns.sequences[self.order] > uncertain
        if self._pending is not None:
            self.live &= self._pending[self.order] < 0
        if self._strays is not None:
            self.live &= ~self._strays[self.order]
            # Entries under their own keys, wherever they are given.
            for number, batch in enumerate(self._batches):
                if STRAY in batch.schema.names:
                    key_index = batch.schema.get_field_index(KEY)
                    self._batches[number] = batch.set_column(
                        key_index, batch.schema.field(key_index), batch.column(STRAY)
                    )
            del self._columns

    def take_part(
        self, part: int, parts: int, select: Callable[[pa.Array], NDArray[np.bool_] | None] | None
    ) -> MergedEntries:
        """Return one of so many parts of the entries, in order; it shares the columns of all.

        Args:
            part: Which of them.
            parts: How many there are.
            select: Returns a mask of keys that are wanted, or `None` for all of them; `None`: all are.
        """
        first, last = (len(self.order) * edge // parts for edge in (part, part + 1))
        entries = copy.copy(self)
        entries.order, entries.live = self.order[first:last], self.live[first:last]
        if select is not None:
            masks = [select(batch.column(KEY)) for batch in self._batches]
            rows = zip(masks, np.diff(self._starts), strict=True)
            selected = [np.ones(count, np.bool_) if mask is None else mask for mask, count in rows]
            are_selected = _concatenate(selected, np.bool_)[entries.order]
            entries.order, entries.live = entries.order[are_selected], entries.live[are_selected]
        return entries

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Numbers of entries, int64, counted through all runs."""
        return np.arange(self._starts[-1])

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Whether a database would answer with each of `order`."""
        return np.ones(int(self._starts[-1]), np.bool_)

    def count_rows(self, *, include_dead: bool) -> int:
        """Return how many entries there are, or how many a database would answer with."""
        if self._is_plain:
            return int(self._starts[-1])
        return len(self.order) if include_dead else int(np.count_nonzero(self.live))

    @property
    def blobs(self) -> bool:
        """Whether values of entries may be in blob files."""
        return not self._is_plain and any(code in self._columns.codes.tobytes() for code in (BLOB, ENTITY))

    @property
    def has_strays(self) -> bool:
        """Whether some entries are not in their places."""
        return self._strays is not None

    @property
    def runs(self) -> Sequence[EntryRun]:
        """All runs."""
        return self._runs

    def measure_runs(self, fates: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of bytes of keys and values, and of entries, int64, by run and fate.

        Args:
            fates: int64, below `count`: what became of each entry of `order`.
            count: How many fates there are.
        """
        sizes = (np.diff(self._columns.edges) + self._columns.value_sizes)[self.order]
        groups = np.searchsorted(self._run_ends, self.order, "right") * count + fates
        shape = len(self._runs), count
        total = np.bincount(groups, sizes, len(self._runs) * count).astype(np.int64)
        return total.reshape(shape), np.bincount(groups, minlength=len(self._runs) * count).reshape(shape)

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The operations of the entries of `order`, as numbers of `OPERATION_NAMES`."""
        codes: NDArray[np.uint8] = self._columns.codes[self.order]
        return codes

    def make_batches(
        self, schema: pa.Schema, of_run: dict[str, list[Any]], *, include_dead: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield entries, in order, as batches of bounded size.

        Args:
            schema: Columns of entries, of runs, and `live`.
            of_run: Columns that are the same for all of a run: their values by run.
            include_dead: Whether entries are wanted that are not live.
        """
        names = [name for name in schema.names if name in STAMPED_SCHEMA.names]
        if self._is_plain and int(self._starts[-1]) >= _LONG * len(self._batches):
            for batch, (first, last) in zip(self._batches, itertools.pairwise(self._starts.tolist()), strict=True):
                yield self._make_batch(
                    _cut_values(batch).select(names), None, schema, of_run, partial(np.arange, first, last)
                )
            return
        numbers = self.order if include_dead or self._is_plain else self.order[self.live]
        for first, last, sizes in self._split_entries(numbers):
            part = numbers[first:last]
            live = self.live[first:last] if include_dead and not self._is_plain else None
            yield self._make_batch(self._gather(part, names, sizes), live, schema, of_run, partial(np.asarray, part))

    def _split_entries(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, int, list[int]]]:
        """Yield ranges of entries, of which neither rows nor bytes are too many, with the bytes of keys and values."""
        first, rows = 0, len(numbers)
        most = -(-rows // max(-(-rows // BATCH_ROWS), 1))
        while first < rows:
            sizes = np.zeros(2, np.int64)
            fitting = k.measure_entries(self._columns, numbers[first : first + most], _PICKED_BYTES, sizes)
            yield first, first + fitting, sizes.tolist()
            first += fitting

    def _make_batch(
        self,
        gathered: pa.RecordBatch,
        live: NDArray[np.bool_] | None,
        schema: pa.Schema,
        of_run: dict[str, list[Any]],
        list_numbers: Callable[[], NDArray[np.int64]],
    ) -> pa.RecordBatch:
        """Return rows with the columns that are not stored; these may need the numbers of the rows.

        Without `live`, all of them are.
        """
        rows = gathered.num_rows
        arrays = []
        for field in schema:
            if field.name == OPERATION:
                arrays.append(convert_codes(view_values(gathered.column(OPERATION), np.uint8), OPERATION_NAMES))
            elif field.name == LIVE:
                bits = pack_bits(np.ones(rows, np.bool_) if live is None else live)
                arrays.append(pa.Array.from_buffers(pa.bool_(), rows, [None, bits]))
            elif field.name == TRANSACTION:
                arrays.append(self._make_transactions(list_numbers()))
            elif field.name in of_run:
                runs = np.searchsorted(self._run_ends, list_numbers(), "right")
                arrays.append(make_array(of_run[field.name], field.type).take(make_fixed_array(pa.int64(), runs)))
            else:
                arrays.append(gathered.column(field.name))
        return make_batch(arrays, schema, rows)

    def _make_transactions(self, numbers: NDArray[np.int64]) -> pa.Array:
        places = np.full(len(numbers), -1) if self._pending is None else self._pending[numbers]
        state_numbers = make_fixed_array(pa.int64(), np.maximum(places, 0))
        names = make_array(list(self._states) or [""], pa.string()).take(state_numbers)
        return pc.if_else(make_array(places < 0, pa.bool_()), make_scalar(None, pa.string()), names)

    def _gather(self, numbers: NDArray[np.int64], names: Sequence[str], sizes: list[int]) -> pa.RecordBatch:
        """Return rows by number, of which the bytes of keys and values are known."""
        count = len(numbers)
        if not names:
            return make_batch([], pa.schema([]), count)
        key_bytes, value_bytes = sizes
        rooms = {
            "keys": (np.uint8, key_bytes, KEY),
            "key_ends": (np.int32, count + 1, KEY),
            "value_ends": (np.int32, count + 1, VALUE),
            "sequences": (np.int64, count, SEQUENCE),
            "codes": (np.uint8, count, OPERATION),
        }
        picked = {key: Column(dtype, room if name in names else 0) for key, (dtype, room, name) in rooms.items()}
        k.pick_entries(self._columns, numbers, k.Picked(**{key: column.values for key, column in picked.items()}))
        buffers = {key: column.take(len(column.values)) for key, column in picked.items()}
        parts = {
            KEY: [buffers["key_ends"], buffers["keys"]],
            SEQUENCE: [buffers["sequences"]],
            OPERATION: [buffers["codes"]],
        }
        if VALUE in names:
            values = self._gather_values(numbers, picked["value_ends"].values, value_bytes)
            parts[VALUE] = [buffers["value_ends"], values]
        if STAMP in names:
            parts[STAMP] = [pa.py_buffer(self._stamps[numbers])]
        fields = [STAMPED_SCHEMA.field(name) for name in names]
        arrays = [pa.Array.from_buffers(field.type, count, [None, *parts[field.name]]) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, list(names))

    def _gather_values(self, numbers: NDArray[np.int64], ends: NDArray[np.int32], size: int) -> pa.Buffer:
        """Return the bytes of values, each copied once, those of some batches after those of others."""
        values = Column(np.uint8, size)
        groups = [(numbers, numbers[:0])]
        if len(self._values) > 1:
            sorted_numbers, places = Column(np.int64, 2 * len(numbers)).values.reshape(2, -1)
            group_ends = np.zeros(len(self._values), np.int64)
            k.sort_by_batch(numbers, self._columns.batches, sorted_numbers, places, group_ends)
            edges = itertools.pairwise([0, *group_ends.tolist()])
            groups = [(sorted_numbers[first:last], places[first:last]) for first, last in edges]
        for values_of_group, group in zip(self._values, groups, strict=True):
            k.put_values(values_of_group, self._columns, *group, ends, values.values)
        return values.take(size)

    @cached_property
    def _values(self) -> list[k.Values]:
        """The bytes of values, of some batches together."""
        parts = [view_binary(batch.column(VALUE), is_own=True)[0] for batch in self._batches]
        parts += [np.zeros(0, np.uint8)] * (-len(parts) % len(k.Values._fields))
        return [k.Values(*group) for group in zip(*[iter(parts)] * len(k.Values._fields), strict=True)]

    @cached_property
    def _columns(self) -> k.Columns:
        """The columns of all batches, but for the bytes of values."""
        rows = int(self._starts[-1])
        key_parts = [view_binary(batch.column(KEY), is_own=True) for batch in self._batches]
        keys = Column(np.uint8, sum(int(offsets[-1] - offsets[0]) for _, offsets in key_parts)).values
        edges, sequences, batches, numbers = Column(np.int64, 4 * (rows + 1)).values.reshape(4, -1)
        codes, effects = Column(np.uint8, 2 * rows).values.reshape(2, -1)
        starts, sizes = Column(np.int32, 2 * rows).values.reshape(2, -1)
        words = Column(np.uint64, rows).values
        columns = k.Columns(
            keys, edges, sizes, sequences[:rows], codes, effects, batches[:rows], starts, numbers[:rows], words
        )
        edges[0] = 0
        parts = [
            k.Batch(
                *keys_of_batch,
                view_offsets(batch.column(VALUE), is_own=True),
                view_values(batch.column(SIZE), np.int32) if SIZE in batch.schema.names else _NO_SIZES,
                view_values(batch.column(SEQUENCE), np.int64),
                view_values(batch.column(OPERATION), np.uint8),
            )
            for keys_of_batch, batch in zip(key_parts, self._batches, strict=True)
        ]
        for shared in (_measure_prefix(key_parts) if rows > _FEW_ENTRIES else 0, 0):
            if all(
                k.append_batch(batch, number, int(self._starts[number]), shared, _EFFECTS, columns)
                for number, batch in enumerate(parts)
            ):
                break
        return columns

    def _make_entries(self) -> k.Entries:
        """Return columns as kernels take them. Entries that are not in their place come first there, and do nothing."""
        columns = self._columns
        keys, edges, sequences, effects = columns.keys, columns.edges, columns.sequences, columns.effects
        ranks = sequences
        if len(self._stamps):  # by timestamps, and then by sequence numbers
            ranks = np.empty(len(self._stamps), np.int64)
            ranks[np.lexsort((sequences, self._stamps))] = np.arange(len(ranks))
        if self._pending is not None:
            effects = np.where(self._pending < 0, effects, np.uint8(k.MERGES))
        if self._strays is not None:
            ranks, sequences = (np.where(self._strays, np.iinfo(np.int64).max, column) for column in (ranks, sequences))
            effects = np.where(self._strays, np.uint8(k.MERGES), effects)
        if self._order_of_keys is not None:
            keys, edges = self._order_of_keys.compute_places(keys, edges[:-1], edges[1:])
        return k.Entries(keys, edges, ranks, sequences, effects)


def _concatenate(arrays: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, kind), *arrays])


def _cut_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return entries whose values are next to each other, whether they were before or not."""
    if SIZE not in batch.schema.names:
        return batch
    data, offsets = view_binary(batch.column(VALUE), is_own=True)
    sizes = view_values(batch.column(SIZE), np.int32).astype(np.int64)
    parts = gather_bytes(data, offsets[:-1].astype(np.int64), sizes)
    values = pa.Array.from_buffers(pa.binary(), batch.num_rows, [None, *parts])
    return batch.set_column(batch.schema.get_field_index(VALUE), VALUE, values).drop_columns([SIZE])


def _are_single_puts(batches: Sequence[pa.RecordBatch]) -> bool:
    """Return whether all entries of batches put a value, each under a key that is above the one before."""
    keys = [batch.column(KEY) for batch in batches]
    return (
        all((view_values(batch.column(OPERATION), np.uint8) == _PUT).all() for batch in batches)
        and all(before[-1].as_py() < after[0].as_py() for before, after in itertools.pairwise(keys))
        and all(k.ascend(*view_binary(column, is_own=True), True) for column in keys)
    )


def _measure_prefix(key_parts: Sequence[tuple[NDArray[np.uint8], NDArray[np.int32]]]) -> int:
    """Return how many bytes the first and the last key of each batch share."""
    return len(
        posixpath.commonprefix(
            [
                data[offsets[row] : offsets[row + 1]].tobytes()
                for data, offsets in key_parts
                for row in (0, len(offsets) - 2)
            ]
        )
    )


def _merge_runs(entries: k.Entries, order: k.Order, lengths: list[int], *, presorted: bool = True) -> k.Order:
    """Return entries in key order, by merges of two runs at a time; unsorted runs are sorted first.

    Args:
        entries: The entries.
        order: All of them as they are; overwritten.
        lengths: Of the runs.
        presorted: Whether they are sorted.
    """
    edges = [0, *itertools.accumulate(length for length in lengths if length)]
    room = edges[-1] if len(edges) > 2 else 0
    spare = k.Order(Column(np.int64, room).values, Column(np.uint64, room).values)
    for first, last in itertools.pairwise(edges if not presorted else ()):
        if not k.is_sorted(entries, first, last):
            order.numbers[first:last] = _sort_entries(entries, first, last).numbers
            order.words[first:last] = order.words[order.numbers[first:last]]
    while len(edges) > 2:
        for first, middle, last in zip(edges[0:-2:2], edges[1:-1:2], edges[2::2], strict=True):
            k.merge_runs(entries, order, first, middle, last, spare)
        if not len(edges) % 2:  # the last run has no neighbour
            for target, source in zip(spare, order, strict=True):
                target[edges[-2] :] = source[edges[-2] :]
        order, spare = spare, order
        edges = [*edges[0:-1:2], edges[-1]]
    return order


def _sort_entries(entries: k.Entries, first: int, last: int) -> k.Order:
    """Return entries in key order, newest first where keys are equal."""
    keys = pa.Array.from_buffers(
        pa.large_binary(),
        last - first,
        [None, pa.py_buffer(entries.edges[first : last + 1]), pa.py_buffer(entries.keys)],
    )
    table = pa.table([keys, make_fixed_array(pa.int64(), entries.ranks[first:last])], [KEY, SEQUENCE])
    order = pc.sort_indices(table, sort_keys=[(KEY, "ascending"), (SEQUENCE, "descending")])
    numbers: NDArray[np.int64] = view_values(order, np.uint64).astype(np.int64) + first
    return k.Order(numbers, np.zeros(last - first, np.uint64))


def sort_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return entries in key order, newest first where keys are equal."""
    stamped = [(STAMP, "descending")] if STAMP in batch.schema.names else []
    if not stamped:
        sequences, codes = view_values(batch.column(SEQUENCE), np.int64), view_values(batch.column(OPERATION), np.uint8)
        keys, ends = view_binary(batch.column(KEY))
        entries = k.Entries(keys, ends.astype(np.int64), sequences, sequences, codes)
        if k.is_sorted(entries, 0, batch.num_rows):
            return batch
    order = pc.sort_indices(batch, sort_keys=[(KEY, "ascending"), *stamped, (SEQUENCE, "descending")])
    return batch.take(order)


def _make_covers(ranges: Sequence[pa.RecordBatch], order: KeyOrder | None = None) -> k.Covers:
    """Return range deletions as disjoint ranges, each with the newest that covers it."""
    keys, values, numbers = (
        [value for batch in ranges for value in batch.column(name).to_pylist()] for name in (KEY, VALUE, SEQUENCE)
    )
    edges, sequences = make_disjoint_ranges(
        zip(list_places(keys, order), list_places(values, order), numbers, strict=True)
    )
    starts = np.concatenate([[0], np.cumsum([len(edge) for edge in edges])]).astype(np.int64)
    return k.Covers(np.frombuffer(b"".join(edges), np.uint8), starts, np.array(sequences, np.int64))


def merge_unordered(
    groups: Sequence[Sequence[Stream]],
    pending: PendingOperations,
    report: Callable[[str, int], None],
    order: KeyOrder | None,
) -> MergedEntries:
    """Merge streams that are not in the order of the bytes of keys: all is read before anything is resolved.

    Args:
        groups: Streams, newest first.
        pending: The entries that are not committed.
        report: Said of range deletions in another order, by their file and the highest of their sequence numbers: which
            keys they delete is not known, so only entries that are newer answer.
        order: The order of keys, where it is known.
    """
    runs = [[EntryRun(stream.path, stream.level, list(stream.batches)) for stream in group] for group in groups]
    uncertain = 0
    deletions_of_all = []
    for run in itertools.chain(*runs):
        deleted = [select_rows(batch, deletions=True) for batch in run.batches]
        deletions_of_all += deleted
        newest = max(map(_find_newest, deleted), default=0)
        if newest and order is None:
            report(run.path, newest)
            uncertain = max(uncertain, newest)
    covers = _make_covers([] if order is None else deletions_of_all, order)
    return MergedEntries(runs, covers, pending, bytewise=False, order_of_keys=order, uncertain=uncertain)


def merge_groups(
    groups: Sequence[Sequence[Stream]], low: bytes, high: bytes | None, pending: PendingOperations
) -> Iterator[MergedEntries]:
    """Merge streams in the order of the bytes of keys, window after window.

    Args:
        groups: Streams, newest first; those of a group follow each other in key order.
        low: The first key that is wanted. All keys but those of range deletions are in the range that is.
        high: The key after the last one; `None`: there is no end.
        pending: The entries that are not committed.
    """
    reader = _MergeReader(groups, low, high)
    while reader.bounds:
        try:
            reader.fill()
        except (SawlogError, OSError):
            yield MergedEntries(*reader.take(), pending, bytewise=True)
            raise
        yield MergedEntries(*reader.take(), pending, bytewise=True)


def _find_newest(batch: pa.RecordBatch) -> int:
    """Return the highest sequence number of a batch; 0 where it has none, or only such as wait for a commit."""
    return int(view_values(batch.column(SEQUENCE), np.int64).max(initial=0))


class _MergeReader:
    """Reads streams side by side, window after window of keys; streams are opened where their keys begin.

    Args:
        groups: Streams, newest first; those of a group follow each other in key order.
        low: The first key that is wanted.
        high: The key after the last one; `None`: there is no end.

    Attributes:
        bounds: A heap of keys that nothing precedes which is still to be read, whether streams are open, and groups.
    """

    def __init__(self, groups: Sequence[Sequence[Stream]], low: bytes, high: bytes | None) -> None:
        self._low = low
        self._high = high
        self._queue = _RunQueue()
        self._deletions = _Deletions()
        self._readers = [self._read(streams, number) for number, streams in enumerate(groups)]
        self.bounds = [next(reader) for reader in self._readers]
        heapq.heapify(self.bounds)

    def fill(self) -> None:
        """Read on from the lowest key, so much that every run that waits may have enough of the window.

        The first window is small, those after it as large as all before, up to a limit.
        """
        volume = self._queue.volume
        volume_due = volume + max(1 + len(self._queue.runs), min(volume, _WINDOW_VOLUME))
        while self.bounds and (self._queue.volume < volume_due or not self.bounds[0][1]):
            _, _, number = self.bounds[0]
            bound = next(self._readers[number], None)
            if bound is None:
                heapq.heappop(self.bounds)
            else:
                heapq.heapreplace(self.bounds, bound)

    def take(self) -> tuple[list[list[EntryRun]], Covers]:
        """Remove what precedes all that is still to be read, as groups, with the range deletions that count there."""
        limit = self.bounds[0][0] if self.bounds else None
        covers = self._deletions.find_covers(self._low)
        self._low = limit or b""
        return self._queue.take(limit), covers

    def _read(self, streams: Sequence[Stream], number: int) -> Iterator[tuple[bytes, bool, int]]:
        """Queue the entries of a group. Yield keys up to which it is read, whether the key itself is, and the group."""
        for stream in streams:
            yield stream.smallest, False, number
            for batch in stream.batches:
                if not batch.num_rows:
                    continue
                run = EntryRun(stream.path, stream.level, [batch])
                if STRAY in batch.schema.names:
                    self._queue.add(_STRAYS, number, run)
                elif batch.column(OPERATION)[0].as_py() == RANGE:
                    self._deletions.add(batch)
                    # As rows, the others belong to the ranges that they begin in.
                    rows = slice_keys(sort_batch(batch), self._low, self._high)
                    self._queue.add(_DELETIONS, number, EntryRun(stream.path, stream.level, [rows]))
                else:
                    self._queue.add(_ENTRIES, number, run)
                    yield batch.column(KEY)[-1].as_py(), True, number


_ENTRIES, _STRAYS, _DELETIONS = range(3)
"""Kinds of runs, in the order in which entries of one key and number are given."""
_RUN_ROWS = 256
_RUN_BYTES = 64 << 10
"""So many rows, or bytes, are read for each run that waits, so that a merge is not slower the more of them overlap."""
_WINDOW_VOLUME = 256
"""So many times that is read for a window, so that what a merge costs besides its rows is shared by many."""


class _RunQueue:
    """Runs of one batch each, by their first keys: a window touches only those that have something in it.

    Attributes:
        runs: A heap of first keys, kinds, groups, numbers in the order of reading, and runs.
        volume: How much was ever added, by rows and bytes.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[bytes, int, int, int, EntryRun]] = []
        self.volume = 0.0
        self._numbers = itertools.count()

    def add(self, kind: int, group: int, run: EntryRun) -> None:
        """Queue a run."""
        (batch,) = run.batches
        if batch.num_rows:
            heapq.heappush(self.runs, (batch.column(KEY)[0].as_py(), kind, group, next(self._numbers), run))
            self.volume += batch.num_rows / _RUN_ROWS + batch.nbytes / _RUN_BYTES

    def take(self, limit: bytes | None) -> list[list[EntryRun]]:
        """Remove the entries below a key, `None`: all, as groups that each are in key order."""
        parts = []
        while self.runs and (limit is None or self.runs[0][0] < limit):
            _, kind, group, number, run = self.runs[0]
            (batch,) = run.batches
            keys = batch.column(KEY)
            count = len(keys) if limit is None else count_below(keys, limit)
            if count < len(keys):
                remainder = EntryRun(run.path, run.level, [batch.slice(count)])
                heapq.heapreplace(self.runs, (keys[count].as_py(), kind, group, number, remainder))
                run = EntryRun(run.path, run.level, [batch.slice(0, count)])
            else:
                heapq.heappop(self.runs)
            parts.append((kind, group, number, run))
        groups: list[list[EntryRun]] = []
        parts.sort(key=itemgetter(0, 1, 2))
        for (kind, _), parts_of_group in itertools.groupby(parts, itemgetter(0, 1)):
            runs = [run for _, _, _, run in parts_of_group]
            groups += [runs] if kind == _ENTRIES else [[run] for run in runs]
        return groups


_NO_COVERS = _make_covers([])


class _Deletions:
    """The range deletions of the files that are open, as far as they reach into the keys that are still to be read."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._covers = _NO_COVERS
        self._is_complete = True

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in those of a file, in any order."""
        self._batches.append(batch)
        self._is_complete = False

    def find_covers(self, low: bytes) -> Covers:
        """Return the keys from `low` on that they delete; what ends before it is forgotten."""
        if not self._is_complete:
            batch = pa.concat_batches(self._batches)
            self._batches = [batch.filter(pc.greater(batch.column(VALUE), make_scalar(low, pa.binary())))]
            self._covers = _make_covers(self._batches)
            self._is_complete = True
        keys, starts, sequences = self._covers
        if not len(sequences):
            return self._covers
        reached = range(len(sequences))
        first = max(
            bisect_right(reached, low, key=lambda cover: keys[starts[cover] : starts[cover + 1]].tobytes()) - 1, 0
        )
        return Covers(keys, starts[first:], sequences[first:])


def select_rows(batch: pa.RecordBatch, *, deletions: bool) -> pa.RecordBatch:
    """Return the range deletions of a batch, or everything else."""
    codes = view_values(batch.column(OPERATION), np.uint8)
    if RANGE not in codes.tobytes():
        return _EMPTY if deletions else batch
    is_selected: NDArray[np.bool_] = (codes == RANGE) == deletions
    if is_selected.all():
        return batch
    return batch.take(make_fixed_array(pa.int64(), np.flatnonzero(is_selected))) if is_selected.any() else _EMPTY


_EMPTY = make_batch_from_rows([], ENTRY_SCHEMA)
