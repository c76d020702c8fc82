"""The logs of a database as its history: what RocksDB keeps of damaged ones, and the last state of each key."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.chain.kernels import Window
from sawlog.damage import Damage, DamageWarning, FileReport, Findings, Tail, TailStatus
from sawlog.errors import DamageError, OptionError, warn
from sawlog.format import OFFSET_COLUMN, Fragment, Request, View
from sawlog.leveldb.columns import count_below
from sawlog.leveldb.log import kernels as k
from sawlog.leveldb.log import layout as log_layout
from sawlog.leveldb.log.columns import marked
from sawlog.leveldb.log.dataset import LogContents
from sawlog.leveldb.log.judge import rules_of
from sawlog.leveldb.log.layout import Kind
from sawlog.leveldb.log.walk import LogRange
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import BatchKind
from sawlog.leveldb.records.writes import BATCH_ROWS, WRITES_SCHEMA, WriteRange
from sawlog.storage import File

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb.options import RecoveryMode

_NEEDED = tuple(WRITES_SCHEMA.field(name) for name in ("sequence", "operation"))
_STRICT = ("absolute_consistency", "tolerate_corrupted_tail_records")
"""In these modes RocksDB refuses to open a database with damaged logs."""
_TAILS_COUNT = ("absolute_consistency", "point_in_time_recovery")
"""In these modes an unfinished record at the end of a log is damage."""
_REFUSED = frozenset(
    kind.name.lower()
    for kind in (
        Kind.READ_ERROR,
        Kind.RECORD_TOO_LARGE,
        BatchKind.UNKNOWN_OPERATION,
        BatchKind.BROKEN_OPERATION,
        BatchKind.WRONG_COUNT,
    )
)
"""Broken batches within intact records no mode lets pass; of the first two, RocksDB's answer cannot be known."""
_QUIET = frozenset(kind.name.lower() for kind in (Kind.CHECKSUM_MISMATCH, Kind.BAD_LENGTH, Kind.FOREIGN_FRAGMENT))
"""What may stand where a recycled log ends."""


class Replay:
    """Logs of one database, one after the other, as RocksDB replays them.

    Args:
        mode: RocksDB's `WALRecoveryMode`.
        findings: Where rows are counted, and damage that is passed over.
    """

    def __init__(self, mode: RecoveryMode, findings: Findings) -> None:
        self._mode = mode
        self._findings = findings
        self._stopped = False
        self._next = -1

    def batches(self, log: WriteRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The operations of the next log that RocksDB would keep.

        Raises:
            DamageError: Where RocksDB would refuse to open the database.
        """
        needed = pa.schema([*schema, *(f for f in _NEEDED if f.name not in schema.names)])
        ledger = _Skipping("skip") if self._mode == "skip_any_corrupted_records" else Findings("fail")
        try:
            for batch in log.decode(needed, ledger):
                if not self._goes_on(batch):
                    return
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
        """Whether a log after a damaged one goes on where that one ended: then nothing is missing between them."""
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
            raise DamageError(damage)
        self._stopped = self._mode == "point_in_time_recovery"
        self._findings.tally(damage.kind, 1, damage.length)
        detail = f"{damage}; RocksDB keeps nothing that follows in this log"
        warn(detail, DamageWarning)

    def _judge_tail(self, log: WriteRange, ledger: Findings) -> None:
        """An end that is not clean is damage in some modes."""
        tail = ledger.tail
        if self._mode not in _TAILS_COUNT or tail is None:
            return
        unfinished = tail.status in (TailStatus.TORN, TailStatus.OPEN)
        if tail.status is TailStatus.STALE:
            kind = _kind_at(log, tail)
            # A fragment of another log is the end of this one, in good order.
            unfinished = kind != Kind.FOREIGN_FRAGMENT
        if unfinished and self._mode in _STRICT:
            raise DamageError(Damage(log.path, tail.offset, tail.length, f"{tail.status}_tail", tail.detail))
        stale = tail.status is TailStatus.STALE
        self._stopped = self._mode == "point_in_time_recovery" and (unfinished or stale)


def _kind_at(log: WriteRange, tail: Tail) -> int:
    """What is wrong where a recycled log ends; 0 for nothing, where a record begins that has no end."""
    head = log.head
    with closing(log.scan.storage.open(log.path, log.file.size)) as source:
        data = np.array(source.window(tail.offset, min(log_layout.BLOCK_SIZE, log.file.size - tail.offset)))
    size = np.uint64(log.file.size)
    window = Window(data, np.uint64(tail.offset), size, size)
    state = k.first_state(tail.offset)
    rules = rules_of(head.dialect, log=head.log_number, recycled=True, gather=False, longest=0)
    return 0 if k.judge_fragment(window, state, rules) else int(state.kind)


class _Skipping(Findings):
    """A ledger for the mode that passes over damage, but for what no mode does."""

    __slots__ = ()

    def damage(self, damage: Damage) -> None:
        if damage.kind in _REFUSED:
            raise DamageError(damage)
        self.tally(damage.kind, 1, damage.length)

    @property
    def listing(self) -> bool:
        return True


@dataclass(frozen=True)
class ReplayedWrites(Fragment):
    """The logs of one database, replayed. They cannot be split.

    Attributes:
        ranges: They, in order.
    """

    ranges: tuple[WriteRange, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        replay = Replay(self.scan.options.recovery, findings)
        for log in self.ranges:
            yield from replay.batches(log, schema)


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
            keys = table.column("key").slice(first, last - first).combine_chunks()
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


def covered(ranges: list[dict[str, Any]], family: int, keys: pa.Array) -> Iterator[tuple[int, int, int]]:
    """Stretches of the keys of a family, each with the newest of the ranges (by its number) that cover it."""
    edges: list[tuple[int, int, int]] = []
    for rank, one in enumerate(ranges):
        if one["column_family"] == family:
            start, stop = count_below(keys, one["key"]), count_below(keys, one["value"])
            if start < stop:
                edges.append((start, rank, stop))
    edges.sort()
    # The ranges that have begun, newest first; those that have ended are dropped when they come up.
    begun: list[tuple[int, int]] = []
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


@dataclass(frozen=True)
class LatestWrites(Fragment):
    """The whole history of a database, folded. It cannot be split.

    Attributes:
        ranges: All logs, in order.
    """

    ranges: tuple[WriteRange, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. Rows come in the order of their sequence numbers."""
        known = [*WRITES_SCHEMA.names, OFFSET_COLUMN]
        offset = pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)
        needed = pa.schema([*WRITES_SCHEMA, offset, *(f for f in schema if f.name not in known)])
        fold = Fold(needed)
        unfinished = None
        mode = self.scan.options.recovery
        replay = Replay(mode, findings) if mode is not None else None
        for one in self.ranges:
            findings.tail = None
            fold.begin_log()
            for batch in one.decode(needed, findings) if replay is None else replay.batches(one, needed):
                findings.rows -= batch.num_rows
                fold.add(batch)
            if findings.tail is not None and findings.tail.unfinished:
                unfinished = findings.tail
        findings.tail = unfinished or findings.tail
        states = fold.finish()
        findings.rows += states.num_rows
        for start in range(0, states.num_rows, BATCH_ROWS):
            rows = states.slice(start, BATCH_ROWS).select(schema.names).cast(schema)
            yield from rows.combine_chunks().to_batches() if schema.names else ()


class WritesContents(LogContents):
    """The operations of logs, in the order in which they were written."""

    range_type: ClassVar[type[LogRange]] = WriteRange

    def _operations(self, request: Request, task_bytes: int | None) -> Iterator[Any]:
        """Ranges; with `latest` or `recovery`, one fragment for all logs: the whole history is needed."""
        options = request.scan.options
        if not options.latest and options.recovery is None:
            yield from self._ranges(request, task_bytes)
            return
        ranges: tuple[Any, ...] = tuple(
            one for file in self.files for one in self._cut(request, file, 0, file.size, True, None)
        )
        if ranges:
            kind = LatestWrites if options.latest else ReplayedWrites
            yield kind(*request, ranges[0].path, sum(one.size for one in ranges), ranges)

    views: ClassVar = {"writes": View(lambda self: marked(WRITES_SCHEMA, self.scan.options), _operations)}

    def committed_end(self, request: Request, file: File, position: int) -> int:
        """See `Contents.committed_end`."""
        if self.scan.options.latest:
            raise OptionError("latest=true cannot be followed as a stream: it is one answer about the whole history")
        return super().committed_end(request, file, position)

    def verify(
        self, request: Request, task_bytes: int | None, advance: Callable[[int], None] | None, *, every: bool
    ) -> Iterator[FileReport]:
        """See `Contents.verify`; `latest` and `recovery` make no difference."""
        options = replace(request.scan.options, latest=False, recovery=None)
        history = request._replace(scan=replace(request.scan, options=options))
        return super().verify(history, task_bytes, advance, every=every)
