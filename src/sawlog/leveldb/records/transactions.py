"""Two-phase transactions in RocksDB's logs: which operations count, by which numbers, and what is not decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import call_function, make_array, make_fixed_array, view_values
from sawlog.format.contract import OFFSET_COLUMN
from sawlog.leveldb.columns import KEY, OPERATION, OPERATION_NAMES, SEQUENCE, VALUE, find_numbers, make_name_array
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import NAMES, Field

PREPARED = "prepared"
"""The state of transactions that wait for nothing but the commit."""
UNWRITTEN = -1
"""Instead of a sequence number: the operation has none before its transaction is committed."""

_FAMILY = "column_family"
_SHAPES = np.array([operation.shape for operation in layout.OPERATIONS])
_COUNTED = (_SHAPES & Field.COUNTED) != 0


def _find_codes(*names: str) -> NDArray[np.int64]:
    return np.array([NAMES.index(name) for name in names])


_HELD, _WRITTEN, _UNPREPARED = _find_codes("begin_prepare", "begin_persisted_prepare", "begin_unprepare").tolist()
_END, _COMMIT, _COMMIT_STAMPED, _ROLLBACK = _find_codes(
    "end_prepare", "commit", "commit_with_timestamp", "rollback"
).tolist()
_NOOP = NAMES.index("noop")
_BEGINS = (_HELD, _WRITTEN, _UNPREPARED)
_CLOSERS = np.array([_END, _COMMIT, _COMMIT_STAMPED, _ROLLBACK])
_IS_MARK = np.array([name in layout.MARKS for name in OPERATION_NAMES])
_MARKS = np.array([*_BEGINS, *_CLOSERS.tolist()])


def _encode_operations(operations: pa.Array) -> pa.Array:
    """Return the place of each operation in `NAMES`."""
    return call_function("index_in", operations, options=("SetLookupOptions", make_name_array(NAMES)))


def has_marks(batch: pa.RecordBatch) -> bool:
    """Return whether operations are among these that transactions write around others."""
    return bool(_IS_MARK[find_numbers(batch.column(OPERATION))].any())


@dataclass(frozen=True, slots=True)
class PendingOperations:
    """The operations whose transactions are neither committed nor rolled back: no database answers with them.

    Attributes:
        starts: First sequence numbers, ascending.
        ends: The last one of each.
        states: `prepared` or `unprepared`, of each.
        places: Logs, and where in them the write batches are, of those that take no numbers before they are committed.
    """

    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    places: frozenset[tuple[str, int]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.starts)

    def of(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the place in `states` of each sequence number; -1 for those of operations that count."""
        if not self.starts:
            return np.full(len(sequences), -1)
        places = np.searchsorted(np.array(self.starts), sequences, "right") - 1
        inside = (places >= 0) & (sequences <= np.array(self.ends)[places])
        states: NDArray[np.int64] = np.where(inside, places, -1)
        return states


class _Section(NamedTuple):
    """A part of a transaction: its rows, whether they wait for the commit, its place, and its sequence numbers."""

    begin: int
    end: int
    kind: int
    place: tuple[str, int]
    first: int = UNWRITTEN
    last: int = UNWRITTEN


class _Log(NamedTuple):
    """The operations of a log.

    Attributes:
        codes: Places in `NAMES`.
        begins: The first row of each write batch.
        numbers: The write batch of each row.
        sequences: The first sequence number of each write batch.
        counts: How many operations of each take numbers.
    """

    codes: NDArray[np.int64]
    begins: NDArray[np.int64]
    numbers: NDArray[np.int64]
    sequences: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> _Log:
        codes = view_values(_encode_operations(rows.column(OPERATION)), np.int32).astype(np.int64)
        offsets = view_values(rows.column(OFFSET_COLUMN), np.int64)
        first = np.concatenate([[True], offsets[1:] != offsets[:-1]])[: len(offsets)]
        begins, numbers = np.flatnonzero(first), np.cumsum(first) - 1
        counts = np.bincount(numbers, _COUNTED[codes], len(begins)).astype(np.int64)
        return cls(codes, begins, numbers, view_values(rows.column(SEQUENCE), np.int64)[begins], counts)

    @property
    def lasts(self) -> NDArray[np.int64]:
        """The last operation of each write batch."""
        codes: NDArray[np.int64] = self.codes[np.append(self.begins[1:], len(self.codes)) - 1]
        return codes

    def count_before(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of steps before each row in its write batch."""
        total = np.cumsum(steps) - steps
        counted: NDArray[np.int64] = total - total[self.begins][self.numbers]
        return counted


def _compute_steps(rows: pa.RecordBatch, log: _Log) -> NDArray[np.int64]:
    """Return steps of the sequence number, if all operations of a batch share it: 1 at the end of a batch.

    A batch ends in a `noop`, if it has no other mark; one that precedes all operations is none. What comes again on the
    same key begins the next batch, too: the step is noted at the row before it.
    """
    codes = log.codes
    closers = np.isin(codes, _CLOSERS)
    ended = closers | (codes == _NOOP)
    fresh = np.concatenate([[True], ended[:-1]])[: len(codes)]
    fresh[log.begins] = True
    steps: NDArray[np.int64] = (closers | ((codes == _NOOP) & ~fresh)).astype(np.int64)
    batches = np.cumsum(steps) - steps + log.numbers
    keyed = np.flatnonzero(_COUNTED[codes])
    keys = rows.column(KEY).dictionary_encode().indices
    names = view_values(keys.fill_null(-1), np.int32).astype(np.int64)[keyed]
    families = view_values(rows.column(_FAMILY), np.int64)[keyed]
    order = np.lexsort((families, names, batches[keyed]))
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in (batches[keyed], names, families):
        is_same &= np.diff(column[order]) == 0
    doubled = np.unique(batches[keyed][order[1:][is_same]])
    inside = np.isin(batches[keyed], doubled)
    batch_keys: set[tuple[int, int]] = set()
    current = -1
    for row, batch, *key in zip(
        *(column[inside].tolist() for column in (keyed, batches[keyed], names, families)), strict=True
    ):
        if batch != current:
            batch_keys, current = set(), batch
        if tuple(key) in batch_keys:
            steps[row - 1] += 1
            batch_keys = set()
        batch_keys.add((key[0], key[1]))
    return steps


class Numbering:
    """Finds out whether the operations of a batch share one sequence number, from the logs of a database.

    So it is where transactions are written before they are committed. Then a batch begins with a mark that only these
    have, or ends in a `noop`; and its numbers, counted one by one, would reach into those of the next batch.
    """

    def __init__(self) -> None:
        self._proven = False
        self._refuted = False
        self._closed = False

    def add(self, rows: pa.RecordBatch) -> None:
        """Take in a log."""
        if not rows.num_rows:
            return
        log = _Log.of(rows)
        self._proven |= bool(np.isin(log.codes, (_WRITTEN, _UNPREPARED)).any())
        self._refuted |= bool((log.codes == _HELD).any())
        closed = (log.lasts == _NOOP) & (log.counts > 0)
        self._closed |= bool(closed.any())
        if self._proven or len(closed) < 2 or not closed[:-1].any():
            return
        gaps = np.diff(log.sequences)
        self._proven |= bool((closed[:-1] & (gaps < log.counts[:-1])).any())
        step_counts = np.bincount(log.numbers, _compute_steps(rows, log), len(closed)).astype(np.int64)
        self._refuted |= bool((closed & (step_counts < log.counts))[:-1][gaps >= log.counts[:-1]].any())

    @property
    def shared(self) -> bool:
        """Whether they do."""
        return self._proven or (self._closed and not self._refuted)

    @property
    def decided(self) -> bool | None:
        """Whether they do; `None` where nothing shows it."""
        return self._proven if self._proven or self._refuted else None


@dataclass
class Transactions:
    """Takes the logs of a database, the oldest first, and says which of their operations count, and by which numbers.

    Attributes:
        shared: See `Numbering.shared`.
        pending: What is known not to be decided by any log.
    """

    shared: bool
    pending: PendingOperations = field(default_factory=PendingOperations)

    def __post_init__(self) -> None:
        self._open: dict[bytes, list[_Section]] = {}
        self._open_batches: list[pa.RecordBatch] = []

    def resolve_rows(self, rows: pa.RecordBatch, path: str, stamped: int | None = None) -> pa.RecordBatch:
        """Return operations of the next log that take effect there, and such that wait for a commit that never comes.

        The latter have the sequence number `UNWRITTEN`.

        Args:
            rows: In `TRANSACTION_SCHEMA`, or without values.
            path: Of the log.
            stamped: A column family whose keys end in timestamps: those that a commit decides are put there.
        """
        if not rows.num_rows:
            return rows
        log = _Log.of(rows)
        before = sum(batch.num_rows for batch in self._open_batches)
        all_rows = pa.concat_batches([*self._open_batches, rows]) if self._open_batches else rows
        sections = list(self._split_sections(all_rows, log, before, path))
        waits = np.zeros(len(log.codes), np.bool_)
        for _, section in sections:
            if section.kind == _HELD:
                waits[section.begin - before : section.end - before] = True
        sequences = _compute_sequences(rows, log, waits, shared=self.shared)
        marks = np.flatnonzero(np.isin(log.codes, _CLOSERS))
        names = rows.column(KEY)
        ended = dict(sections)
        row_groups, numbers, stamps = [np.flatnonzero(~waits & _COUNTED[log.codes]) + before], [], []
        numbers.append(sequences[row_groups[0] - before])
        stamps.append(np.zeros(len(row_groups[0]), np.int64))
        shift, current, undecided = 0, -1, []
        added = np.zeros(len(log.codes), np.int64)
        for row in marks.tolist():
            if log.numbers[row] != current:
                shift, current = 0, int(log.numbers[row])
            name = names[row].as_py()
            if log.codes[row] == _END:
                if row in ended:
                    section = ended[row]
                    if section.kind != _HELD:
                        first, last = int(sequences[section.begin - before]), int(sequences[row])
                        section = section._replace(first=first, last=last)
                    elif section.place in self.pending.places:
                        undecided.append(np.arange(section.begin, section.end))
                    self._open.setdefault(name, []).append(section)
                continue
            for section in self._open.pop(name, []):
                if section.kind == _HELD and log.codes[row] != _ROLLBACK:
                    count = section.end - section.begin
                    row_groups.append(np.arange(section.begin, section.end))
                    numbers.append(sequences[row] + shift + np.arange(count))
                    stamps.append(np.full(count, row + 1 if log.codes[row] == _COMMIT_STAMPED else 0))
                    shift += count
                    added[row] += count
        numbers[0] = numbers[0] + log.count_before(added)[row_groups[0] - before]
        for places in undecided:
            row_groups.append(places)
            numbers.append(np.full(len(places), UNWRITTEN))
            stamps.append(np.zeros(len(places), np.int64))
        operations = all_rows.take(make_fixed_array(pa.int64(), np.concatenate(row_groups)))
        index = operations.schema.get_field_index(SEQUENCE)
        numbered = make_fixed_array(pa.int64(), np.concatenate(numbers))
        effective = operations.set_column(index, operations.schema.field(index), numbered)
        self._keep(all_rows)
        if stamped is None:
            return effective
        return _stamp_operations(effective, np.concatenate(stamps), rows, stamped)

    def _split_sections(
        self, all_rows: pa.RecordBatch, log: _Log, before: int, path: str
    ) -> Iterator[tuple[int, _Section]]:
        """Yield the parts of transactions that end in a log, by the rows of their ends."""
        offsets = all_rows.column(OFFSET_COLUMN)
        begin = None
        for row in np.flatnonzero(np.isin(log.codes, _MARKS)).tolist():
            code = int(log.codes[row])
            if code in _BEGINS:
                begin = row
            elif code == _END and begin is not None and log.numbers[begin] == log.numbers[row]:
                place = path, offsets[before + begin].as_py()
                yield row, _Section(before + begin + 1, before + row, int(log.codes[begin]), place)
                begin = None

    def _keep(self, all_rows: pa.RecordBatch) -> None:
        places, begin = [], 0
        for name, sections in self._open.items():
            for number, section in enumerate(sections):
                if section.kind == _HELD:
                    places.append(np.arange(section.begin, section.end))
                    count = section.end - section.begin
                    self._open[name][number] = section._replace(begin=begin, end=begin + count)
                    begin += count
        self._open_batches = [all_rows.take(make_fixed_array(pa.int64(), np.concatenate(places)))] if begin else []

    def list_undecided(self) -> PendingOperations:
        """Return the transactions that are open after the last log."""
        ranges = []
        places = set()
        for sections in self._open.values():
            unprepared = all(section.kind == _UNPREPARED for section in sections)
            state = "unprepared" if unprepared else PREPARED
            for section in sections:
                ranges.append((section.first, section.last, state))
                if section.kind == _HELD:
                    places.add(section.place)
        if not ranges:
            return PendingOperations()
        starts, ends, states = zip(*sorted(set(ranges)), strict=True)
        return replace(self.pending, starts=starts, ends=ends, states=states, places=frozenset(places))


def _compute_sequences(rows: pa.RecordBatch, log: _Log, waits: NDArray[np.bool_], *, shared: bool) -> NDArray[np.int64]:
    """Return the sequence number of each operation, but for what commits add."""
    has_own_number = np.isin(log.codes, (_WRITTEN, _UNPREPARED))
    joins = np.bincount(log.numbers, has_own_number, len(log.begins)) > 0
    if shared:
        joins |= np.isin(log.lasts, [*_CLOSERS, _NOOP])
    single = log.count_before((_COUNTED[log.codes] & ~waits).astype(np.int64))
    sequences: NDArray[np.int64] = log.sequences[log.numbers] + single
    if joins.any():
        joint = log.sequences[log.numbers] + log.count_before(_compute_steps(rows, log))
        sequences = np.where(joins[log.numbers], joint, sequences)
    return sequences


def compute_sequences(rows: pa.RecordBatch, *, shared: bool) -> NDArray[np.int64]:
    """Return the sequence number of each operation where it is written, by those that write batches begin with.

    Args:
        rows: In `TRANSACTION_SCHEMA`, or without values.
        shared: See `Numbering.shared`.
    """
    log = _Log.of(rows)
    return _compute_sequences(rows, log, np.zeros(len(log.codes), np.bool_), shared=shared)


class Following:
    """Says which sequence number follows operations that are taken in one after the other."""

    def __init__(self) -> None:
        self._prepared_counts: dict[bytes, int] = {}
        self._section: int | None = None
        self._kind = self._offset = -1
        self._added = 0

    def find_next_number(self, rows: pa.RecordBatch, *, shared: bool) -> int:
        """Return the number after the last row's.

        Args:
            rows: Operations with their numbers, as `compute_sequences` has them, their keys and offsets.
            shared: See `Numbering.shared`.
        """
        codes = view_values(_encode_operations(rows.column(OPERATION)), np.int32).astype(np.int64)
        offsets, names = view_values(rows.column(OFFSET_COLUMN), np.int64), rows.column(KEY)
        total, start = np.cumsum(_COUNTED[codes]), 0
        if offsets[-1] != self._offset:
            self._offset, self._added = int(offsets[-1]), 0
        for row in np.flatnonzero(np.isin(codes, _MARKS)).tolist():
            code, name = int(codes[row]), names[row].as_py()
            added = 0
            if code in _BEGINS:
                self._section, self._kind, start = 0, code, int(total[row])
            elif code == _END and self._section is not None:
                if self._kind == _HELD:
                    count = self._section + int(total[row]) - start
                    self._prepared_counts[name] = self._prepared_counts.get(name, 0) + count
                    added = -count
                self._section = None
            elif code != _END:
                count = self._prepared_counts.pop(name, 0)
                added = 0 if code == _ROLLBACK else count
            self._added += added if offsets[row] == self._offset else 0
        if self._section is not None:
            self._section += int(total[-1]) - start
        last, code = rows.column(SEQUENCE)[-1].as_py(), int(codes[-1])
        if shared and (code == _NOOP or code in _CLOSERS):
            return int(last) + 1
        return int(last) + int(_COUNTED[code]) + self._added


def _stamp_operations(
    operations: pa.RecordBatch, marks: NDArray[np.int64], rows: pa.RecordBatch, family: int
) -> pa.RecordBatch:
    """Return operations with the timestamps of commits, rows counted from 1, at the ends of a family's keys."""
    families = view_values(operations.column(_FAMILY), np.int64)
    stamped_rows = np.flatnonzero((marks > 0) & (families == family))
    if not len(stamped_rows):
        return operations
    keys = operations.column(KEY).to_pylist()
    values = rows.column(VALUE)
    for place in stamped_rows.tolist():
        stamp = values[int(marks[place]) - 1].as_py()
        keys[place] = keys[place][: -len(stamp)] + stamp
    key_index = operations.schema.get_field_index(KEY)
    return operations.set_column(key_index, operations.schema.field(key_index), make_array(keys, pa.binary()))
