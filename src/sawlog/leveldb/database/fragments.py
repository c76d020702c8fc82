"""Ranges of keys of a database, each merged independently; its tables, held to what its MANIFEST says of them."""

from __future__ import annotations

import itertools
import posixpath
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import fill_null, make_array, make_constant, make_fixed_array, make_scalar, view_binary, view_values
from sawlog.errors import SawlogError
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, Fragment
from sawlog.format.damage import UNSUPPORTED, Damage, Findings, OnDamage, Tail, TailStatus
from sawlog.format.scan import Projection, Scan
from sawlog.leveldb.columns import (
    BLOB,
    ENTRY_SCHEMA,
    EXCISE,
    KEY,
    LEVEL,
    LIVE,
    NUMBERED_OPERATION,
    OPERATION,
    OPERATION_NAMES,
    RANGE,
    SCHEMAS,
    SEQUENCE,
    STAMP,
    STAMPED_SCHEMA,
    STATE_SCHEMA,
    TRANSACTION_SCHEMA,
    WRITES_SCHEMA,
    EntryRun,
    Stream,
    find_numbers,
    slice_keys,
    split_stamps,
)
from sawlog.leveldb.database.blobs import BlobPart, Blobs, insert_addresses, open_blob_file
from sawlog.leveldb.database.layout import INGESTS, TABLE_NAME, DatabaseDamageKind
from sawlog.leveldb.database.order import VirtualTable
from sawlog.leveldb.database.version import (
    DatabaseVersion,
    LiveBlobs,
    LiveTable,
    LoggedTransactions,
    make_live_table,
    parse_number,
    read_entries,
)
from sawlog.leveldb.options import LogReadOptions
from sawlog.leveldb.records.history import Replay
from sawlog.leveldb.records.layout import OPERATIONS, Field
from sawlog.leveldb.records.numbered import NumberedRange
from sawlog.leveldb.records.parts import LogParts
from sawlog.leveldb.records.transactions import Transactions, has_marks
from sawlog.leveldb.records.writes import STAMP_SIZE, STAMP_SIZE_FIELD, WriteRange
from sawlog.leveldb.table.layout import STAMP_WIDTH, Role
from sawlog.leveldb.table.meta import EVERY_KEY, BoundsReader, TableMap, find_key_interval
from sawlog.leveldb.table.pebble import MalformedError
from sawlog.leveldb.table.rows import RowReader, TableRange, make_reels
from sawlog.storage.flight import WHOLE_BYTES
from sawlog.storage.names import is_remote
from sawlog.storage.workers import ReadOnce

if TYPE_CHECKING:
    from sawlog.arrow import Reel
    from sawlog.format.contract import BoundScan
    from sawlog.leveldb.database.merge import MergedEntries
    from sawlog.storage import File, Source

LOG_LEVEL = -1
"""The level of what is in a log."""

ORPHAN = "orphan"
"""In `all` with orphans: whether an entry is in a file that the MANIFEST does not name."""

_APART = (*INGESTS, "range_key_set", "range_key_unset", "range_key_delete")
_KEYED = {
    operation.name
    for operation in OPERATIONS
    if operation.key and operation.shape & Field.COUNTED and operation.name not in _APART
}
"""Pebble's tables that are taken in are read as tables, see `version`; its range keys are no part of the state."""
_IS_KEYED = np.array([name in _KEYED for name in OPERATION_NAMES])


_JUDGED = pa.schema([ENTRY_SCHEMA.field(name) for name in (OPERATION, KEY, SEQUENCE)])
"""What is read of entries where no column is wanted."""
_BLOCK_OFFSET = pa.field(OFFSET_COLUMN, pa.int64())


@dataclass(frozen=True)
class JudgedTable(TableRange):
    """A table whose range deletions are read before its other entries, and whose entries are judged by their places.

    Attributes:
        live: What the MANIFEST says of it, once for each part of it; nothing where no order of keys is known.
        begins: From which key on its entries are wanted.
        ends: The key after the last; `None`: all that follow.
        reported: From which key on, and before which, damage of the blocks with such separators is to be reported.
        sequence: See `LiveTable.sequence`.
        virtual: See `LiveTable.virtual`.
        reels: Memory that all tables of a range of keys share, since they are read in turns.
        in_place: Whether values may be left where they are stored, see `columns.SIZE`.
    """

    live: tuple[LiveTable, ...] = ()
    begins: bytes = b""
    ends: bytes | None = None
    reported: tuple[bytes, bytes | None] = (b"", None)
    sequence: int | None = None
    virtual: VirtualTable | None = None
    reels: Mapping[str, Reel] = field(default_factory=make_reels, repr=False, compare=False)
    in_place: bool = False

    def read(self, table: TableMap, source: Source, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a range of a table, in batches like those of `columns.Stream`."""
        from sawlog.leveldb.database.merge import Judge, select_virtual_entries

        table.sequence = self.sequence
        ledger = findings
        if isinstance(findings, _ForwardingFindings):
            ledger = findings.outer
            index = None if table.bounds is None else BoundsReader(table.bounds)
            findings.owns = partial(self._owns, table, index)
        judges = [Judge(live, self.begins, self.ends) for live in self.live]
        delivers = KEY in schema.names
        read_schema = schema if delivers else _JUDGED
        row_schema = read_schema.append(_BLOCK_OFFSET) if judges else read_schema
        in_place = self.in_place and delivers and self.virtual is None
        reader = RowReader(self, table, source, row_schema, findings, self.reels, in_place=in_place)
        edges = _Edges(self, table, reader, ledger)
        for spans, of_deletions in self._turns(reader.spans, merged=delivers):
            reader.spans = spans
            for stored in reader.read_batches():
                batch = stored if self.virtual is None else select_virtual_entries(self.virtual, stored)
                if not batch.num_rows:
                    continue
                if not of_deletions:
                    edges.add_batch(batch)
                if not judges and delivers:
                    yield batch
                for judge in judges:
                    offsets = view_values(batch.column(OFFSET_COLUMN), np.int64)
                    rows = batch.drop_columns([OFFSET_COLUMN])
                    is_ascending = self.virtual is None and reader.is_ascending
                    judged = (
                        judge.judge_deletions(rows, offsets)
                        if of_deletions
                        else judge.judge_entries(rows, offsets, is_ascending=is_ascending)
                    )
                    for entries in judged:
                        if delivers:
                            yield entries
                    for offset, detail in judge.flaws.items():
                        reader.flaws.setdefault(offset, detail)
                    judge.flaws.clear()
            edges.add_blocks(reader.spans["offset"])
        edges.judge_edges()

    def _turns(self, spans: NDArray[np.void], *, merged: bool) -> Iterator[tuple[NDArray[np.void], bool]]:
        """Yield spans, and whether they are of range deletions: these first for a merge, else in the file's order."""
        deletions = spans["role"] == Role.RANGE_DELETES
        if not deletions.any():
            turns = iter([(spans, False)])
        elif merged:
            turns = (
                (spans[is_selected], of_deletions)
                for is_selected, of_deletions in ((deletions, True), (~deletions, False))
            )
        else:
            parts = np.split(spans, np.flatnonzero(np.diff(deletions.astype(np.int8))) + 1)
            turns = ((part, bool(len(part)) and bool(part["role"][0] == Role.RANGE_DELETES)) for part in parts)
        yield from ((part, of_deletions) for part, of_deletions in turns if len(part))

    def _owns(self, table: TableMap, index: BoundsReader | None, offset: int) -> bool | None:
        """Return whether this range reports the damage of a data block, because it has the block's separator.

        No other range need read the block. `None` for what is no data block.
        """
        block_numbers = np.flatnonzero(table.handles["offset"] == offset)
        if index is None or not len(block_numbers):
            return None
        separator = index.read_separator(int(block_numbers[0]))
        first, end = self.reported
        return separator >= first and (end is None or separator < end)


class _Edges:
    """Holds the entries of a table to what the MANIFEST says, as far as a range reads their blocks.

    Of the ranges that read a table, the one that has its first key answers for the first entry, and so on: whatever
    the ranges are, each fault is reported once. Only a range that reads all of a table sees which sequence numbers
    none of its entries has.

    Args:
        fragment: The range.
        table: The table.
        reader: The reader of the range.
        ledger: Takes what is found at the edges.
    """

    def __init__(self, fragment: JudgedTable, table: TableMap, reader: RowReader, ledger: Findings) -> None:
        self._table = table
        self._reader = reader
        self._ledger = ledger
        self._path = fragment.path
        self._identity = fragment.live[0].identity if len(fragment.live) == 1 else None
        self._bounds = None if self._identity is None else self._identity.sequences
        self._has_first = not fragment.begins
        self._has_last = fragment.ends is None
        self._first: pa.RecordBatch | None = None
        self._last: pa.RecordBatch | None = None
        self._sequences: tuple[int, int] | None = None
        self._outside: dict[int, int] = {}
        self._offsets: list[NDArray[np.int64]] = []

    def add_blocks(self, offsets: NDArray[np.int64]) -> None:
        """Take in the offsets of the next blocks that were read."""
        self._offsets.append(offsets)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows."""
        self._first = batch.slice(0, 1) if self._first is None else self._first
        self._last = batch
        if self._bounds is None:
            return
        numbers = view_values(batch.column(SEQUENCE), np.int64)
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < self._bounds[0] or highest > self._bounds[1]:
            rows = np.flatnonzero((numbers < self._bounds[0]) | (numbers > self._bounds[1]))
            offsets, firsts = np.unique(view_values(batch.column(OFFSET_COLUMN), np.int64)[rows], return_index=True)
            for offset, row in zip(offsets.tolist(), rows[firsts].tolist(), strict=True):
                self._outside.setdefault(offset, int(numbers[row]))
        before = self._sequences or (lowest, highest)
        self._sequences = min(lowest, before[0]), max(highest, before[1])

    def judge_edges(self) -> None:
        """Judge the rows that were seen: by now, what is damaged is known."""
        identity, first, last = self._identity, self._first, self._last
        if identity is None or first is None or last is None:
            return
        faults = list(identity.check_session(self._table, self._path))
        outside = {} if faults else self._outside
        faults = faults if self._has_first else []
        if self._has_first and self._is_whole(0):
            faults += identity.check_first(self._table, first, self._path)
        if self._has_last and self._is_whole(-1):
            faults += identity.check_last(self._table, last, self._path)
        for fault in faults:
            self._ledger.add_damage(fault)
        if self._bounds is None:
            return
        damaged, blocks = self._reader.damaged, self._table.handles["offset"].astype(np.int64)
        are_read = self._blocks.take(self._blocks.searchsorted(blocks), mode="clip") == blocks
        is_whole = self._has_first and self._has_last and not damaged and are_read.all()
        outside = {offset: number for offset, number in outside.items() if offset not in damaged}
        actual = self._sequences if is_whole and not faults else None
        for fault in identity.check_sequences(self._table, actual, outside, self._path):
            self._reader.findings.add_damage(fault)

    @cached_property
    def _blocks(self) -> NDArray[np.int64]:
        """The offsets of all blocks that were read, in order; of each turn they are already."""
        return self._offsets[0] if len(self._offsets) == 1 else np.sort(np.concatenate(self._offsets))

    def _is_whole(self, number: int) -> bool:
        """Return whether a block was read undamaged, so that its first and last entries are known."""
        offset = int(self._table.handles["offset"][number])
        place = int(self._blocks.searchsorted(offset))
        is_read = place < len(self._blocks) and int(self._blocks[place]) == offset
        return is_read and offset not in self._reader.damaged


class _ForwardingFindings(Findings):
    """Findings of one file, that pass damage on to those of a range of keys, or keep it.

    Args:
        findings: That of the range of keys.
        owned: Whether what is found in the file belongs there.

    Attributes:
        outer: That of the range of keys.
        owns: Whether damage at an offset is handed on; `None` where that is as for the file.
    """

    __slots__ = ("_into", "outer", "owns")

    def __init__(self, findings: Findings, *, owned: bool) -> None:
        super().__init__(findings.on_damage)
        self.outer = findings
        self._into = findings if owned or findings.on_damage == "fail" else Findings("skip")
        self.owns: Callable[[int], bool | None] = lambda offset: None

    def add_damage(self, damage: Damage) -> None:
        owned = self.owns(damage.offset)
        into = self._into if owned is None or self.on_damage == "fail" else self.outer if owned else Findings("skip")
        into.add_damage(damage)

    def tally(self, kind: str, count: int, length: int) -> None:
        self._into.tally(kind, count, length)

    @property
    def listing(self) -> bool:
        return self._into.listing


class _Reports(Findings):
    """Findings that are kept, to be handed on to those of several ranges of keys.

    Attributes:
        calls: What was reported.
    """

    __slots__ = ("calls",)

    def __init__(self, on_damage: OnDamage) -> None:
        super().__init__(on_damage)
        self.calls: list[Damage | tuple[str, int, int]] = []

    def add_damage(self, damage: Damage) -> None:
        self.calls.append(damage)

    def tally(self, kind: str, count: int, length: int) -> None:
        self.calls.append((kind, count, length))

    def hand_on(self, findings: Findings) -> None:
        """Report all of it."""
        for call in self.calls:
            if isinstance(call, Damage):
                findings.add_damage(call)
            else:
                findings.tally(*call)


@dataclass
class LogEntries:
    """The entries of logs.

    Attributes:
        reports: The damage of the logs.
        entries: Of each log that has any its path, its range deletions, and its other entries in key order.
        tail: The end of the last log that has an unfinished one.
        has_marks: Whether an operation among them is one that transactions write around others.
        ledgers: The findings of logs in which nothing is wrong.
    """

    reports: _Reports
    entries: list[tuple[str, pa.RecordBatch, pa.RecordBatch]] = field(default_factory=list)
    tail: Tail | None = None
    has_marks: bool = False
    ledgers: dict[File, Findings] = field(default_factory=dict)


@dataclass
class _UnorderedEntries:
    """The entries of a database whose files are not in the order of the bytes of keys.

    Attributes:
        entries: All of them.
        reports: The damage of the files, and the end of the logs.
        ledgers: The findings of tables, and of logs in which nothing is wrong.
    """

    entries: MergedEntries
    reports: _Reports
    ledgers: dict[File, Findings]


class SharedFiles:
    """The maps of tables, and the entries of logs, once for the ranges of keys that a process reads.

    Args:
        tables: The tables of a range.
        before: The files of the range before.

    Attributes:
        unordered: All entries, where files are not in the order of the bytes of keys; until all parts are read.
        finished: Counts the parts that are.
    """

    def __init__(self, tables: Sequence[LiveTable], before: SharedFiles | None) -> None:
        maps: dict[str, ReadOnce[TableMap]] = {} if before is None else before._maps
        self._logs: ReadOnce[LogEntries] = ReadOnce() if before is None else before._logs
        self.unordered: ReadOnce[_UnorderedEntries] = ReadOnce()
        self.finished = itertools.count(1)
        # Parts of a file have sequence numbers of their own, which their maps take.
        paths = [table.file.path for table in tables if not table.part]
        self._maps: dict[str, ReadOnce[TableMap]] = {
            path: maps[path] if path in maps else ReadOnce[TableMap]() for path in paths
        }

    def load_map(self, table: LiveTable) -> ReadOnce[TableMap] | None:
        """Return the map of a table that ranges share."""
        return None if table.part else self._maps.get(table.file.path)

    def load_logs(self, read: Callable[[], LogEntries]) -> LogEntries:
        """Return the entries of the logs, read when they are first asked for."""
        return self._logs.get(read)


@dataclass(frozen=True)
class MissingFile(Fragment):
    """A file that should be there and is not, or not whole."""

    fault: Damage

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        del schema
        findings.add_damage(self.fault)
        yield from ()


@dataclass(frozen=True)
class MetadataFile(Fragment):
    """A file that says what the database is made of; it was read when the database was opened.

    Attributes:
        own_findings: What was found in it: its account, damage and tail.
        faults: What is missing of it.
    """

    own_findings: Findings
    faults: tuple[Damage, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        del schema
        account = replace(self.own_findings.account, damage=0, unsupported=0)
        findings.account.add(account)
        for damage in (*self.own_findings.damages, *self.faults):
            findings.add_damage(damage)
        findings.tail = self.own_findings.tail
        yield from ()


@dataclass(frozen=True)
class KeyRange(Fragment):
    """The keys of a database in `[low, high)`, or a part of its entries.

    Attributes:
        version: The files.
        tables: Those tables that may hold such keys.
        low: The first user key.
        high: The user key after the last one; `None`: there is no end.
        shared: The files that other ranges of this process read, too; other processes read them again.
        part: Where files are not in the order of the bytes of keys: which of `parts` equal parts of all entries.
        parts: How many there are.
        select: There, says of keys which entries are wanted; `None`: all.
    """

    version: DatabaseVersion
    tables: tuple[LiveTable, ...]
    low: bytes
    high: bytes | None
    shared: SharedFiles | None = field(default=None, repr=False, compare=False)
    part: int = 0
    parts: int = 1
    select: Callable[[pa.Array], NDArray[np.bool_] | None] | None = field(default=None, repr=False, compare=False)

    several: ClassVar = True

    @property
    def extents(self) -> Iterator[tuple[File, int, int]]:
        """Its logs, and its tables where all of a table is in the range and no filter leaves any of it out."""
        if self.shared is not None and self.part:
            return
        if self.shared is None or not self.low:  # later ranges share what the first has read of logs
            for file in (*self.version.prior, *self.version.logs):
                yield file, 0, file.size
        if find_key_interval(self.projection) != EVERY_KEY:
            return
        for table in self.tables:
            is_whole = not table.part and self._split(table) == (b"", None)
            yield table.file, 0, table.file.size if is_whole or table.file.size <= WHOLE_BYTES else 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "shared": None}

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of keys. Damage is reported when the merging of the files reaches it."""
        from sawlog.leveldb.database.merge import merge_groups, merge_unordered

        if self._is_first:
            for fault in self.version.faults:
                findings.add_damage(fault)
            ledger = _ForwardingFindings(findings, owned=True)
            for file in self.version.nameless:
                deque(read_entries(file, self.scan.options.of_tables, self.scan.storage, [KEY], ledger), maxlen=0)
        is_history = self.scan.view == "all"
        orphan = isinstance(self, Orphan)
        ledgers: dict[File, Findings] = {}
        try:
            if self.version.bytewise:
                merged = merge_groups(self._open_files(findings, ledgers), self.low, self.high, self.version.pending)
            else:
                read = partial(self._read_unordered, merge_unordered)
                unordered = read() if self.shared is None else self.shared.unordered.get(read)
                unordered.reports.hand_on(_ForwardingFindings(findings, owned=self._is_first))
                if self._is_first:
                    findings.tail, ledgers = unordered.reports.tail, unordered.ledgers
                merged = iter([unordered.entries.take_part(self.part, self.parts, self.select)])
            for entries in merged:
                findings.rows += entries.count_rows(include_dead=is_history)
                if findings.observe is not None and not orphan:
                    findings.observe(entries)
                if entries.blobs and not orphan:
                    yield from self._with_blobs(entries, schema, findings)
                elif schema.names:
                    yield from entries.make_batches(
                        schema, _make_constants(entries.runs, orphan=orphan), include_dead=is_history
                    )
        except FileNotFoundError as error:
            raise SawlogError(
                f"{error.filename}: the file is gone: the database has changed while it was read;"
                " read it again, or read a copy"
            ) from error
        findings.tail = findings.tail or Tail(TailStatus.CLEAN, self.size, 0)
        if findings.intact is not None and not findings.kinds:
            accounts = {file: ledger.account for file, ledger in ledgers.items()}
            findings.intact |= {file.path: account for file, account in accounts.items() if account.total == file.size}

    @property
    def _is_first(self) -> bool:
        """Whether it is the range, or the part, that reports what belongs to none of them."""
        return not self.low and not self.part

    def _read_unordered(self, merge: Callable[..., MergedEntries]) -> _UnorderedEntries:
        """Return all entries, whatever the policy is: others may have another one."""
        reports = _Reports("skip")
        ledgers: dict[File, Findings] = {}
        streams = self._open_files(reports, ledgers)
        report = partial(self._report_ranges, reports)
        entries = merge(streams, self.version.pending, report, self.version.key_order)
        return _UnorderedEntries(entries, reports, ledgers)

    def _open_files(self, findings: Findings, ledgers: dict[File, Findings]) -> list[list[Stream]]:
        """Return the logs and tables of the range, newest first."""
        groups = _group_tables(self.tables, disjoint=self.version.bytewise)
        reels = make_reels()
        logs = [[stream] for stream in self._open_logs(findings, ledgers)]
        shared = {"reels": reels, "in_place": self.version.bytewise and len(logs) + len(groups) > 1}
        return [*logs, *([self._open_table(table, findings, ledgers, shared) for table in group] for group in groups)]

    def _report_ranges(self, findings: Findings, path: str, newest: int) -> None:
        """Report a file with range deletions of which the reach is not known: where the MANIFEST names the order."""
        detail = (
            f"{posixpath.basename(path)} has range deletions in an order of keys that this version of sawlog does not"
            " know: which keys they delete is not known, so entries up to sequence number"
            f" {newest} do not count as live; view 'all' has them"
        )
        findings.add_damage(Damage(self.version.path, 0, 0, UNSUPPORTED, detail))

    def _with_blobs(self, entries: MergedEntries, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield entries with values in the places of those that lead to blob files; without values that are damaged."""
        options = self.scan.options
        stamps = [STAMPED_SCHEMA.field(STAMP)] if self.version.has_stamps else []
        needed_fields = (field for field in (*STATE_SCHEMA, *stamps) if field.name not in schema.names)
        read_schema = pa.schema([*schema, *needed_fields])
        batches = entries.make_batches(read_schema, _make_constants(entries.runs), include_dead=self.scan.view == "all")
        ledger = _ForwardingFindings(findings, owned=True)
        verify, longest = options.verify_checksums, options.max_blob_bytes
        with closing(Blobs(self.version, self.scan.storage, ledger, verify=verify, longest=longest)) as blobs:
            for batch in blobs.resolve_values(batches):
                if schema.names:
                    yield batch.select(schema.names)
        findings.rows -= blobs.lost_values

    def _split(self, table: LiveTable) -> tuple[bytes, bytes | None]:
        """Return the keys that part a table of the range from the ranges before and after; nothing where none does."""
        low = self.low if table.smallest < self.low else b""
        return low, self.high if self.high is not None and table.end > self.high else None

    def _open_table(
        self, table: LiveTable, findings: Findings, ledgers: dict[File, Findings], shared: dict[str, Any]
    ) -> Stream:
        options = self.version.make_entry_options(self.scan.options)
        begins, ends = self._split(table)
        low = max(begins, table.smallest) if table.part else begins
        high = (table.end if ends is None else ends) if table.part else ends
        first_key, end_key = find_key_interval(self.projection)
        first_key = max(first_key or b"", low) or None
        end_key = min((key for key in (end_key, high) if key is not None), default=None)
        bytewise = self.version.bytewise
        interval = (first_key, end_key) if bytewise and table.virtual is None else EVERY_KEY
        scan = Scan(on_damage=findings.on_damage, options=options, storage=self.scan.storage)
        projection = Projection.of(SCHEMAS[options.keys], scan)
        live = (table,) if bytewise else ()
        first, after = table.reported
        reported = begins or first, after if ends is None else ends
        if table.virtual is not None and begins:  # every range of keys reads all of the file: the first one reports
            reported = begins, begins
        table_map = None if self.shared is None else self.shared.load_map(table)
        fields = {
            "interval": interval,
            "map": table_map,
            "live": live,
            "begins": begins,
            "ends": ends,
            "reported": reported,
            "sequence": table.sequence,
            **shared,
            "in_place": shared["in_place"] and not table.blobs and not is_remote(table.file.path),
        }
        table_range = JudgedTable.cover_file(table.file, scan, projection, virtual=table.virtual, **fields)
        schema = STAMPED_SCHEMA if self.version.has_stamps else ENTRY_SCHEMA
        ledger = _ForwardingFindings(findings, owned=not begins and not first)
        if not table.part and reported == (b"", None):
            ledgers[table.file] = ledger
        batches = table_range.decode(schema, ledger)
        if table.blobs:
            batches = (insert_addresses(batch, table.blobs, BLOB) for batch in batches)
        return Stream(table.file.path, table.level, table.smallest, batches)

    def _open_logs(self, findings: Findings, ledgers: dict[File, Findings]) -> Iterator[Stream]:
        read = partial(self.read_logs, findings.on_damage)
        logs = read() if self.shared is None else self.shared.load_logs(read)
        ledger = _ForwardingFindings(findings, owned=not self.low)
        logs.reports.hand_on(ledger)
        if not self.low and logs.tail is not None:
            findings.tail = logs.tail
        ledgers |= logs.ledgers
        for path, deletions, points in logs.entries:
            yield Stream(path, LOG_LEVEL, b"", iter([deletions, slice_keys(points, self.low, self.high)]))

    def read_logs(self, on_damage: OnDamage) -> LogEntries:
        """Return the entries of all logs that may count.

        Few databases have transactions. Most show that by the operations that are read anyway.
        """
        transactions = self.version.transactions
        if transactions is None:
            return self._read_entries(on_damage, None)
        if not transactions.has_looked and self.scan.options.recovery is None:
            logs = self._read_entries(on_damage, None)
            if not logs.has_marks and not logs.reports.calls:  # damage may be where others find marks
                transactions.note_absence()
            if transactions.logged is None:
                return logs
        return self._read_entries(on_damage, transactions.logged)

    def _read_entries(self, on_damage: OnDamage, logged: LoggedTransactions | None) -> LogEntries:
        """Return the entries of all logs that may count; without `logged`, all operations for their own."""
        import pyarrow.compute as pc

        from sawlog.leveldb.database.merge import select_rows, sort_batch

        options = LogReadOptions(verify_checksums=self.scan.options.verify_checksums)
        scan = Scan(view="writes", on_damage=on_damage, options=options, storage=self.scan.storage)
        version = self.version
        transactions = None if logged is None else Transactions(logged.has_shared_numbers, logged.pending)
        mode = self.scan.options.recovery
        schema, projection = _select_log_columns(
            are_traced=logged is not None, are_named=mode is not None, have_stamps=version.dialect != "pebble"
        )
        logs = LogEntries(_Reports(on_damage))
        replay = Replay(mode, logs.reports) if mode is not None else None
        parts = LogParts((*version.prior, *version.logs))
        for file in (*version.prior, *version.logs):
            log_range = WriteRange.cover_file(file, scan, projection, version.dialect, numbered=True)
            ledger = Findings(on_damage, drained=True)
            if transactions is None:
                log_batches = parts.read_batches(log_range, replay, ledger)
            else:
                rows = list(
                    log_range.decode(schema, ledger)
                    if replay is None
                    else replay.read_batches(NumberedRange.of(log_range, shared=transactions.shared), schema)
                )
                stamped = version.family if version.has_stamps else None
                log_batches = iter(
                    [transactions.resolve_rows(pa.concat_batches(rows), file.path, stamped)] if rows else []
                )
            batches, strays = [], Findings("skip", drained=True)
            for batch in log_batches:
                logs.has_marks = logs.has_marks or has_marks(batch)
                batches.append(self._filter_family(batch, file, strays))
            if file in version.prior:
                zero = make_scalar(0, pa.int64())  # numbers below are of operations that wait for a commit
                waiting = [batch.filter(pc.less(batch.column(SEQUENCE), zero)) for batch in batches]
                batches = [batch for batch in waiting if batch.num_rows]
            # What is wrong inside of records is found out later than what is wrong around them.
            for damage in (*sorted(ledger.damages, key=lambda finding: finding.offset), *strays.damages):
                logs.reports.add_damage(damage)
            if ledger.is_clean and transactions is None and replay is None:
                logs.ledgers[file] = ledger
            if ledger.tail is not None and ledger.tail.unfinished and not parts.has_next(file):
                logs.tail = ledger.tail.of(file.path)
            if batches:
                entries = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
                points = sort_batch(select_rows(entries, deletions=False))
                logs.entries.append((file.path, select_rows(entries, deletions=True), points))
        return logs

    def _filter_family(self, batch: pa.RecordBatch, log: File, findings: Findings) -> pa.RecordBatch:
        """Return the operations of a log on keys of the column family; without those that lack a timestamp."""
        numbers = find_numbers(batch.column(OPERATION))
        are_kept = _IS_KEYED[numbers] & (view_values(batch.column("column_family"), np.int64) == self.version.family)
        is_whole = bool(are_kept.all())
        operations = batch if is_whole else batch.filter(make_array(are_kept, pa.bool_()))
        codes = (numbers if is_whole else numbers[are_kept]).astype(np.uint8)
        codes[codes == EXCISE] = RANGE
        keys, values = operations.column("key"), fill_null(operations.column("value"), b"")
        recorded = np.zeros(operations.num_rows, np.int64)
        if STAMP_SIZE in operations.schema.names:
            recorded = view_values(operations.column(STAMP_SIZE), np.int64)
        widths = self.version.choose_stamp_widths(recorded)
        if self.version.has_stamps or widths.any():
            of_ends = np.where(codes == RANGE, widths, 0)
            lacks = _find_unstamped(keys, widths) | _find_unstamped(values, of_ends)
            if lacks.any():
                detail = (
                    f"{log.name} has {np.count_nonzero(lacks):,} operations on keys without a timestamp of"
                    f" {STAMP_WIDTH} bytes, in an order of keys that has them: they are left out"
                )
                findings.add_damage(Damage(self.version.path, 0, 0, UNSUPPORTED, detail))
                return self._filter_family(operations.filter(make_array(~lacks, pa.bool_())), log, findings)
            keys, stamps = split_stamps(keys, widths, self.path)
            values, _ = split_stamps(values, of_ends, self.path)
        columns = [operations.column("sequence"), make_fixed_array(pa.uint8(), codes), keys, values]
        if not self.version.has_stamps:
            return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
        return pa.RecordBatch.from_arrays([*columns, stamps], schema=STAMPED_SCHEMA)


def _find_unstamped(keys: pa.Array, widths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys `split_stamps` refuses: they are shorter than their timestamps, or these of another size."""
    _, ends = view_binary(keys)
    lacks: NDArray[np.bool_] = (np.diff(ends) < widths) | ((widths != 0) & (widths != STAMP_WIDTH))
    return lacks


@cache
def _select_log_columns(*, are_traced: bool, are_named: bool, have_stamps: bool) -> tuple[pa.Schema, Projection]:
    """Return the columns that are read of logs, and the scan of all of them.

    Args:
        are_traced: Whether transactions are to be told apart, by names and offsets of operations.
        are_named: Whether a replay looks at the names.
        have_stamps: Whether logs may say how long the timestamps of keys are.
    """
    schema = TRANSACTION_SCHEMA if are_traced else WRITES_SCHEMA
    if not are_traced and not are_named:
        schema = schema.set(schema.get_field_index(OPERATION), NUMBERED_OPERATION)
    schema = schema.append(STAMP_SIZE_FIELD) if have_stamps else schema
    return schema, Projection.of(schema, Scan(view="writes", options=LogReadOptions()))


@dataclass(frozen=True)
class Orphan(KeyRange):
    """The entries of one file that the MANIFEST does not name; values in blob files stay what leads there."""

    several: ClassVar = False

    @classmethod
    def of(cls, request: BoundScan, version: DatabaseVersion, file: File) -> Orphan:
        """Take a table or a log for all that the database is made of."""
        table = TABLE_NAME.match(file.name)
        options = version.make_entry_options(request.scan.options)
        named = (make_live_table(file, None, request.scan.storage, options),) if table else ()
        logs = () if table else (file,)
        version_of_file = replace(
            version, tables=named, logs=logs, faults=(), blobs={}, transactions=None, prior=(), nameless=()
        )
        return cls(*request, file.path, file.size, version_of_file, named, b"", None)

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        place = schema.get_field_index(LIVE)
        for batch in super().decode(schema, findings):
            dead = make_constant(False, pa.bool_(), batch.num_rows)
            yield batch if place < 0 else batch.set_column(place, schema.field(place), dead)


@dataclass(frozen=True)
class BlobDamage(KeyRange):
    """The damaged values of a range of keys in blob files; refused where its entries cannot be resolved."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        ledger = Findings("skip", drained=True)
        for _ in super().decode(pa.schema([]), ledger):
            pass
        for damage in sorted(ledger.damages, key=lambda damage: (damage.path, damage.offset)):
            if self.version.is_lost_value(damage):
                findings.add_damage(damage)
        yield from ()


@dataclass(frozen=True)
class BlobParts(Fragment):
    """All of a blob file, whether or not entries lead there."""

    blobs: LiveBlobs

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the damage of blob files; there are no rows."""
        del schema
        with closing(self.scan.storage.open(self.path)) as source:
            for part in self._iterate_parts(source):
                if part.wrong:
                    kind = UNSUPPORTED if part.newer else DatabaseDamageKind.BAD_BLOB_PART.label
                    findings.add_damage(Damage(self.path, part.offset, part.length, kind, part.wrong))
                elif part.header:
                    findings.account.header += part.length
                else:
                    findings.account.record += part.length
        yield from ()

    def _iterate_parts(self, source: Source) -> Iterator[BlobPart]:
        verify, longest = self.scan.options.verify_checksums, self.scan.options.max_blob_bytes
        try:
            return open_blob_file(self.blobs, source, verify=verify, longest=longest).iterate_parts()
        except MalformedError as error:
            return iter([BlobPart.of(0, source.size, error)])


def _group_tables(tables: Sequence[LiveTable], *, disjoint: bool) -> list[list[LiveTable]]:
    """Return tables in groups, newest first; those of a group are of one level, and follow each other in key order.

    Args:
        tables: The tables.
        disjoint: Whether tables are where the MANIFEST has them in the order of the bytes; otherwise each is a group.
    """
    groups: list[list[LiveTable]] = []
    for table in sorted(tables, key=_make_sort_key):
        group = groups[-1] if disjoint and groups and groups[-1][0].level == table.level else []
        row = bisect_right(group, table.smallest, key=attrgetter("smallest"))
        # Neighbours may share a key, of which the first one has the newer entries: but not on level 0.
        shared_end = table.smallest + (b"\0" if table.level else b"")
        if (
            group
            and all(before.end <= shared_end for before in group[:row][-1:])
            and all(table.end <= after.smallest for after in group[row : row + 1])
        ):
            group.insert(row, table)
        else:
            groups.append([table])
    return groups


def _make_sort_key(table: LiveTable) -> tuple[int, int, bytes, bytes]:
    """Return tables of level 0 by their numbers: where sequence numbers are the same, the newest file counts."""
    return table.level, 0 if table.level else -parse_number(table.file), table.smallest, table.end


def _make_constants(runs: Sequence[EntryRun], *, orphan: bool = False) -> dict[str, list[Any]]:
    """Return the values that all entries of a file share, by column: a value per run."""
    return {
        "file": [posixpath.basename(run.path) for run in runs],
        FILE_COLUMN: [run.path for run in runs],
        LEVEL: [run.level for run in runs],
        OFFSET_COLUMN: [0] * len(runs),
        ORPHAN: [orphan] * len(runs),
    }
