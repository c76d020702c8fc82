"""The logs of a database as its history: what RocksDB keeps of damaged ones, and the last state of each key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, make_constant_string, make_fixed_array, unpack_booleans, view_binary, view_values
from sawlog.chain.kernels import Window
from sawlog.errors import DamageError, OptionError, SawlogError, warn
from sawlog.format.contract import OFFSET_COLUMN, BoundScan, Fragment, View
from sawlog.format.damage import UNSUPPORTED, Damage, DamageWarning, Findings, Tail, TailStatus
from sawlog.kernels.intern import Interner, Strings
from sawlog.leveldb.columns import (
    STAMP,
    STAMPED_SCHEMA,
    TRANSACTION_SCHEMA,
    WRITES_SCHEMA,
    count_below,
    make_disjoint_ranges,
)
from sawlog.leveldb.log import kernels as k
from sawlog.leveldb.log import layout as log_layout
from sawlog.leveldb.log.dataset import LogContents, add_marks
from sawlog.leveldb.log.layout import LogDamageKind
from sawlog.leveldb.log.walk import LogRange
from sawlog.leveldb.options import RecoveryMode
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import BatchDamageKind
from sawlog.leveldb.records.numbered import NumberedRange, enumerate_logs
from sawlog.leveldb.records.transactions import Following, has_marks
from sawlog.leveldb.records.writes import BATCH_ROWS, WriteRange
from sawlog.storage import File

_NEEDED = tuple(WRITES_SCHEMA.field(name) for name in ("sequence", "operation"))
_MARKED = tuple(TRANSACTION_SCHEMA.field(name) for name in ("sequence", "operation", "key", OFFSET_COLUMN))
"""The same where there may be transactions."""
_STRICT = ("absolute_consistency", "tolerate_corrupted_tail_records")
"""In these modes RocksDB refuses to open a database with damaged logs."""
_TAILS_COUNT = ("absolute_consistency", "point_in_time_recovery")
"""In these modes an unfinished record at the end of a log is damage."""
_REFUSED = frozenset(
    {
        UNSUPPORTED,
        LogDamageKind.READ_ERROR.label,
        LogDamageKind.RECORD_TOO_LARGE.label,
        BatchDamageKind.BROKEN_OPERATION.label,
        BatchDamageKind.WRONG_COUNT.label,
    }
)
"""Broken batches within intact records no mode lets pass; of the first two, RocksDB's answer cannot be known."""
_QUIET = frozenset(
    kind.label for kind in (LogDamageKind.CHECKSUM_MISMATCH, LogDamageKind.BAD_LENGTH, LogDamageKind.FOREIGN_FRAGMENT)
)
"""What may be where a recycled log ends."""


class RefusedError(DamageError):
    """A fault for which RocksDB does not open a database, in a recovery mode, whatever the policy."""

    def __init__(self, damage: Damage) -> None:
        SawlogError.__init__(
            self, f"{damage}; RocksDB opens no database with it in this recovery mode: take another, or leave it out"
        )
        self.damage = damage

    def __reduce__(self) -> tuple[type[RefusedError], tuple[Damage]]:
        return (RefusedError, (self.damage,))


class Replay:
    """Logs of one database, one after the other, as RocksDB replays them."""

    def __init__(self, mode: RecoveryMode, findings: Findings) -> None:
        self._mode = mode
        self._findings = findings
        self._stopped = False
        self._next = -1
        self._following = Following()
        self._marked = False

    def read_batches(self, log: WriteRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the operations of the next log that RocksDB would keep.

        Raises:
            RefusedError: Where RocksDB would refuse to open the database.
        """
        may_be_marked = isinstance(log, NumberedRange)
        extra_columns = _MARKED if may_be_marked else _NEEDED
        read_schema = pa.schema([*schema, *(f for f in extra_columns if f.name not in schema.names)])
        shared = isinstance(log, NumberedRange) and log.shared is True
        ledger = _Skipping("skip") if self._mode == "skip_any_corrupted_records" else Findings("fail")
        try:
            for batch in log.decode(read_schema, ledger):
                if not self._goes_on(batch):
                    return
                self._marked = self._marked or (may_be_marked and has_marks(batch))
                if batch.num_rows and self._marked:
                    self._next = self._following.find_next_number(batch, shared=shared)
                self._findings.rows += batch.num_rows
                yield batch.select(schema.names)
        except DamageError as error:
            self._stop(log.head.recycled, error.damage)
        else:
            self._judge_tail(log, ledger)
        for kind, count in ledger.kinds.items():
            self._findings.kinds[kind] += count
        self._findings.account.damage += ledger.account.damage

    def _goes_on(self, batch: pa.RecordBatch) -> bool:
        """Return whether a log continues the damaged log before it, so that nothing is missing between them."""
        if not batch.num_rows:
            return True
        sequences = batch.column("sequence")
        if self._stopped and sequences[0].as_py() != self._next:
            return False
        self._stopped = False
        last = layout.OPERATIONS[layout.NAMES.index(batch.column("operation")[-1].as_py())]
        self._next = sequences[-1].as_py() + bool(last.shape & layout.Field.COUNTED)
        return True

    def _stop(self, recycled: bool, damage: Damage) -> None:
        tolerated = recycled and self._mode == "tolerate_corrupted_tail_records" and damage.kind in _QUIET
        if damage.kind in _REFUSED or (self._mode in _STRICT and not tolerated):
            raise RefusedError(damage)
        self._stopped = self._mode == "point_in_time_recovery"
        self._findings.tally(damage.kind, 1, damage.length)
        detail = f"{damage}; RocksDB keeps nothing that follows in this log"
        warn(detail, DamageWarning)

    def _judge_tail(self, log: WriteRange, ledger: Findings) -> None:
        """Refuse an end that is not clean, or stop at it, in modes to which it is damage."""
        tail = ledger.tail
        if self._mode not in _TAILS_COUNT or tail is None:
            return
        unfinished = tail.status in (TailStatus.TORN, TailStatus.OPEN)
        if tail.status is TailStatus.STALE:
            kind = _classify_tail(log, tail)
            # A fragment of another log is the end of this one, in good order.
            unfinished = kind != LogDamageKind.FOREIGN_FRAGMENT
        if unfinished and self._mode in _STRICT:
            raise RefusedError(Damage(log.path, tail.offset, tail.length, f"{tail.status}_tail", tail.detail))
        stale = tail.status is TailStatus.STALE
        self._stopped = self._mode == "point_in_time_recovery" and (unfinished or stale)


def _classify_tail(log: WriteRange, tail: Tail) -> int:
    """Return the kind of fault at the end of a recycled log; 0 for none, where a record begins that has no end."""
    head = log.head
    with closing(log.scan.storage.open(log.path, log.file.size)) as source:
        data = np.array(source.read_window(tail.offset, min(log_layout.BLOCK_SIZE, log.file.size - tail.offset)))
    size = np.uint64(log.file.size)
    window = Window(data, np.uint64(tail.offset), size, size)
    state = k.make_judge_state(tail.offset)
    rules = k.make_rules(head.dialect, log=head.log_number, recycled=True, gather=False, longest=0)
    return 0 if k.judge_fragment(window, state, rules) else int(state.kind)


class _Skipping(Findings):
    """Findings for the mode that skips damage, but for what no mode skips."""

    __slots__ = ()

    def add_damage(self, damage: Damage) -> None:
        if damage.kind in _REFUSED:
            raise RefusedError(damage)
        self.tally(damage.kind, 1, damage.length)

    @property
    def listing(self) -> bool:
        return True


@dataclass(frozen=True)
class ReplayedWrites(Fragment):
    """The logs of one database, replayed. They cannot be split."""

    ranges: tuple[NumberedRange, ...]
    several: ClassVar = True

    @property
    def extents(self) -> Iterator[tuple[File, int, int]]:
        return ((log.file, *log.extent) for log in self.ranges)

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        replay = Replay(self.scan.options.recovery, findings)
        for log in enumerate_logs(self.ranges):
            yield from replay.read_batches(log, schema)


ROWS_PER_FOLD = 1 << 20
"""Operations that are gathered before they are folded, unless there are more keys than that."""
_FOLD_BYTES = 256 << 20

_ORDER = ("_batch", "_place")
"""Columns by which operations take effect: the sequence number of their batch, then their place in the logs.

The numbers within a batch do not say: databases with write-prepared transactions count one per batch, so that those of
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
        self._schema = pa.schema([*wide, *(pa.field(name, pa.int64()) for name in _ORDER)])
        self._wide_schema = pa.schema(wide)
        self._folded = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in self._schema], schema=self._schema)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._places = 0
        self._ranges: list[pa.RecordBatch] = []
        self._section: list[pa.RecordBatch] | None = None
        self._prepared: dict[bytes, list[pa.RecordBatch]] = {}
        self.begin_log()

    def begin_log(self) -> None:
        """Go on with another log."""
        self._last_offset = -1
        self._last_batch = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next operations."""
        import pyarrow.compute as pc

        rows = self._order_columns(batch)
        marks = pc.invert(pc.is_in(rows.column("operation"), value_set=make_array(_KEYED, pa.string())))
        # Markers are few: go from one to the next.
        begin = 0
        for row in np.flatnonzero(unpack_booleans(marks)).tolist():
            self._take(rows.slice(begin, row - begin))
            self._mark(rows.slice(row, 1))
            begin = row + 1
        self._take(rows.slice(begin))

    def finish(self) -> pa.RecordBatch:
        """Return the last state of all keys, in the order in which they came about."""
        self._fold()
        rows = self._delete_ranges(self._folded) if self._ranges else self._folded
        return rows.take(make_fixed_array(pa.int64(), _order_effects(rows))).select(self._wide_schema.names)

    def _order_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return operations with the columns of `_ORDER`."""
        rows = batch.num_rows
        sequences = view_values(batch.column("sequence"), np.int64)
        offsets = view_values(batch.column(OFFSET_COLUMN), np.int64)
        begins = np.flatnonzero(offsets != np.append(self._last_offset, offsets)[:-1])
        runs = np.diff(np.append(begins, rows), prepend=0)[1:] if len(begins) else np.zeros(0, np.int64)
        before = int(begins[0]) if len(begins) else rows
        batches = np.append(np.full(before, self._last_batch), np.repeat(sequences[begins], runs))
        if rows:
            self._last_offset, self._last_batch = int(offsets[-1]), int(batches[-1])
        return self._move_last(batch.cast(self._wide_schema), batches)

    def _move_last(self, rows: pa.RecordBatch, batches: NDArray[np.int64]) -> pa.RecordBatch:
        """Return rows that take effect after all others of their batches."""
        places = np.arange(self._places, self._places + rows.num_rows)
        self._places += rows.num_rows
        columns = [
            *rows.select(self._wide_schema.names).columns,
            *(make_fixed_array(pa.int64(), numbers) for numbers in (batches, places)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _take(self, rows: pa.RecordBatch) -> None:
        if self._section is not None:
            self._section.append(rows)
        elif rows.num_rows:
            self._keep(rows)

    def _mark(self, row: pa.RecordBatch) -> None:
        """Apply an operation that is not about one key."""
        name = row.column("operation")[0].as_py()
        if name == _DELETE_RANGE:
            (self._ranges if self._section is None else self._section).append(row)
        elif name in _BEGINS:
            self._section = []
        elif name == "end_prepare":
            self._prepared.setdefault(row.column("key")[0].as_py(), []).extend(self._section or [])
            self._section = None
        elif name in _COMMITS:
            self._commit(row)
        elif name == "rollback":
            self._prepared.pop(row.column("key")[0].as_py(), None)

    def _commit(self, row: pa.RecordBatch) -> None:
        """Let the operations of a prepared transaction take effect where it is committed."""
        (mark,) = row.to_pylist()
        sequence = mark["sequence"]
        sequence_index = row.schema.get_field_index("sequence")
        for prepared in self._prepared.pop(mark["key"], []):
            count = prepared.num_rows
            numbers = make_fixed_array(pa.int64(), np.arange(sequence, sequence + count))
            rows = prepared.set_column(sequence_index, self._schema.field(sequence_index), numbers)
            rows = self._move_last(rows, np.full(count, mark["_batch"]))
            sequence += count
            if count and rows.column("operation")[0].as_py() == _DELETE_RANGE:
                self._ranges.append(rows)
            else:
                self._keep(rows)

    def _keep(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows > max(ROWS_PER_FOLD, self._folded.num_rows) or self._bytes > max(
            _FOLD_BYTES, self._folded.nbytes
        ):
            self._fold()

    def _fold(self) -> None:
        rows = pa.concat_batches([self._folded, *self._waiting])
        self._waiting.clear()
        self._rows = self._bytes = 0
        keys, order = _number_keys(rows), _order_effects(rows)
        last = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
        last[keys[order]] = order  # of several values for one place, the last one stays
        self._folded = rows.take(make_fixed_array(pa.int64(), np.sort(last)))

    def _delete_ranges(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, in which states that a later `delete_range` covers are deletions."""
        import pyarrow.compute as pc

        ranges = pa.concat_batches(self._ranges)
        ranges = ranges.take(make_fixed_array(pa.int64(), _order_effects(ranges)))
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("column_family", "ascending"), ("key", "ascending")]))
        order = _order_effects(pa.concat_batches([rows, ranges]))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        states, deletions = np.split(ranks, [rows.num_rows])
        families = view_values(rows.column("column_family"), np.int64)
        of_ranges = view_values(ranges.column("column_family"), np.int64)
        bounds = list(
            zip(*(ranges.column(name).to_pylist() for name in ("key", "value")), deletions.tolist(), strict=True)
        )
        newest = np.full(len(states), -1)
        for family in np.unique(of_ranges).tolist():
            first, last = np.searchsorted(families, [family, family + 1]).tolist()
            keys = rows.column("key").slice(first, last - first)
            edges, range_ranks = make_disjoint_ranges(
                [bounds[place] for place in np.flatnonzero(of_ranges == family).tolist()]
            )
            starts = [*(count_below(keys, edge) for edge in edges), len(keys)]
            newest[first + starts[0] : last] = np.repeat(range_ranks, np.diff(starts))
        dead = newest > states
        covered = rows.filter(make_array(dead, pa.bool_()))
        by = ranges.take(make_fixed_array(pa.int64(), np.searchsorted(deletions, newest[dead])))
        columns_of_deletes = {
            "operation": make_constant_string(_DELETE, len(by)),
            "value": pa.nulls(len(by), pa.large_binary()),
            **{name: covered.column(name) for name in ("column_family", "key")},
        }
        columns = [
            columns_of_deletes[name] if name in columns_of_deletes else by.column(name) for name in self._schema.names
        ]
        deleted = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return pa.concat_batches([rows.filter(make_array(~dead, pa.bool_())), deleted])


def _order_effects(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return np.lexsort([view_values(rows.column(name), np.int64) for name in reversed(_ORDER)])


def _number_keys(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Return a number for each key of each column family, of every row."""
    data, ends = view_binary(rows.column("key"))
    numbers = Interner().assign_numbers(Strings(ends, data))[0].astype(np.int64)
    families = view_values(rows.column("column_family"), np.int64)
    if (families == families[:1]).all():
        return numbers
    pairs = np.stack([families, numbers], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True)
class LatestWrites(ReplayedWrites):
    """The whole history of a database, folded. It cannot be split."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of their sequence numbers."""
        further = (field for field in schema if field.name not in TRANSACTION_SCHEMA.names)
        read_schema = pa.schema([*TRANSACTION_SCHEMA, *further])
        fold = Fold(read_schema)
        unfinished = None
        mode = self.scan.options.recovery
        replay = Replay(mode, findings) if mode is not None else None
        for log_range in self.ranges if replay is None else enumerate_logs(self.ranges):
            findings.tail = None
            fold.begin_log()
            for batch in (
                log_range.decode(read_schema, findings)
                if replay is None
                else replay.read_batches(log_range, read_schema)
            ):
                findings.rows -= batch.num_rows
                fold.add(batch)
            if findings.tail is not None and findings.tail.unfinished:
                unfinished = findings.tail.of(log_range.path)
        findings.tail = unfinished or findings.tail
        states = fold.finish()
        findings.rows += states.num_rows
        for start in range(0, states.num_rows if schema.names else 0, BATCH_ROWS):
            yield states.slice(start, BATCH_ROWS).select(schema.names).cast(schema)


class WritesContents(LogContents):
    """The operations of logs, in the order in which they were written."""

    range_type: ClassVar[type[LogRange]] = NumberedRange

    def _plan_operations(self, request: BoundScan, task_bytes: int | None) -> Iterator[Any]:
        """Yield ranges; with `latest` or `recovery`, one fragment for all logs: the whole history is needed."""
        options = request.scan.options
        if not options.latest and options.recovery is None:
            yield from self._plan_ranges(request, task_bytes)
            return
        ranges: tuple[Any, ...] = tuple(
            log_range for file in self.files for log_range in self._cut_log(request, file, 0, file.size, True, None)
        )
        if ranges:
            kind = LatestWrites if options.latest else ReplayedWrites
            yield kind(*request, ranges[0].path, sum(log_range.size for log_range in ranges), ranges)

    def _make_schema(self) -> pa.Schema:
        """Return the operations' columns, with timestamps after the keys where they are asked for."""
        after_key = WRITES_SCHEMA.get_field_index("key") + 1
        stamped = WRITES_SCHEMA.insert(after_key, STAMPED_SCHEMA.field(STAMP))
        options = self.scan.options
        return add_marks(WRITES_SCHEMA if options.keys == "internal" else stamped, options)

    views: ClassVar = {"writes": View(_make_schema, _plan_operations)}

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        if self.scan.options.latest:
            raise OptionError("latest=true cannot be followed as a stream: it is one answer about the whole history")
        return super().find_committed_end(request, file, position)

    def make_verify_request(self, request: BoundScan) -> BoundScan:
        """Return the request without `latest` and `recovery`, which make no difference to what is damaged."""
        options = replace(request.scan.options, latest=False, recovery=None)
        return request._replace(scan=replace(request.scan, options=options))
