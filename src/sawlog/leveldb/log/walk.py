"""Ranges of logs as fragments, and the passes over them: records as batches, and what the log says besides them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, make_array, make_binary_array, make_constant, make_fixed_array
from sawlog.chain.kernels import Window
from sawlog.chain.walk import ChainWalk, Span, WalkEvent
from sawlog.errors import ChangedError, DiskError, UnsupportedError, warn
from sawlog.format.contract import OFFSET_COLUMN, PROBE_BYTES, FileRange, Projection, Scan, assemble, find_intact_end
from sawlog.format.damage import Damage, DamageWarning, Findings, Tail, TailStatus
from sawlog.leveldb.log import kernels as k
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.head import LogHead, iterate_first_fragments, read_head
from sawlog.leveldb.log.layout import (
    GIVEN_UP,
    RECORD_COLUMN,
    RECOVERED_COLUMN,
    STALE_COLUMN,
    Dialect,
    LogDamageKind,
    Role,
)
from sawlog.leveldb.options import LogReadOptions
from sawlog.storage import File, Source, Storage

END_COLUMN = "_end"
"""Where the last fragment of a record ends; for the views that decode records, not for users."""

ROWS_SCHEMA = pa.schema([pa.field(RECORD_COLUMN, pa.binary(), nullable=False)])
RECORDS_SCHEMA = pa.schema(
    [
        *ROWS_SCHEMA,
        pa.field(OFFSET_COLUMN, pa.int64(), nullable=False),
        pa.field(END_COLUMN, pa.int64(), nullable=False),
    ]
)
"""What the views that decode records ask the ranges for."""

BATCH_BYTES = 4 << 20
"""Payload per batch, unless one record is larger."""
BATCH_ROWS = 64 << 10
_SEARCHED = 32 * layout.BLOCK_SIZE
"""Bytes in which the next life is looked for at a time."""


@dataclass(frozen=True, slots=True)
class MetadataFragment:
    """A fragment that describes the records after it. Offset of its header in the file, type, sizes."""

    offset: int
    type: int
    header_size: int
    length: int


class StampSizes:
    """The number of bytes of keys that are timestamps, as a log says of its column families between its records."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []

    def add(self, offset: int, payload: bytes) -> None:
        """Take in the payload of a fragment."""
        for start in range(0, len(payload) - layout.STAMP_ENTRY + 1, layout.STAMP_ENTRY):
            entry = payload[start : start + layout.STAMP_ENTRY]
            self._entries.append((layout.STAMP_FAMILY.of(entry), offset, layout.STAMP_SIZE.of(entry)))

    def of(self, families: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the size in force for each operation, by its column family and the offset of its record."""
        if not self._entries:
            return np.zeros(len(families), np.int64)
        entries = np.array(self._entries, np.int64)
        count = len(entries)
        family, offset = np.concatenate([entries[:, 0], families]), np.concatenate([entries[:, 1], offsets])
        order = np.lexsort((offset, family))
        last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
        source = order[np.maximum(last, 0)]
        holds = (last >= 0) & (source < count) & (family[source] == family[order])
        sizes = np.zeros(len(order), np.int64)
        sizes[order[holds]] = entries[source[holds], 2]
        return sizes[count:]


class Walk(ChainWalk):
    """Pass over a range of a log.

    Attributes:
        head: What the beginning of the file says.
        metadata: Where metadata fragments are collected, each before the rows after it are yielded; `None`: nowhere.
        stamps: Likewise for the sizes of timestamps.
    """

    kinds: ClassVar = LogDamageKind
    torn: ClassVar = "the file ends inside a fragment"

    def __init__(
        self,
        fragment: LogRange,
        source: Source,
        head: LogHead,
        schema: pa.Schema,
        findings: Findings,
        metadata: list[MetadataFragment] | None = None,
        stamps: StampSizes | None = None,
        *,
        stale: bool = False,
    ) -> None:
        options: LogReadOptions = fragment.scan.options
        size = fragment.end - fragment.start
        max_rows = min(BATCH_ROWS, size // layout.HEADER_SIZE + 1)
        fields = {"synced": fragment.synced, "open": -1, "suspect": -1}
        fields["note_metadata"] = metadata is not None or stamps is not None
        span = Span(fragment.file, fragment.start, fragment.end)
        super().__init__(span, source, findings, k.STATE, max_rows=max_rows, **fields)
        self.metadata = metadata
        self.stamps = stamps
        self._fragment = fragment
        self.head = head
        self._schema = schema
        self._stale = stale
        self._longest = options.max_item_bytes
        self._compressed = head.compression != layout.Compression.NONE
        gather = RECORD_COLUMN in schema.names or self._compressed
        # What ZSTD cannot make smaller grows by less than this.
        longest = self._longest + (self._longest >> 8) + (1 << 10) if self._compressed else self._longest
        self._rules = k.make_rules(
            head.dialect,
            log=head.log_number,
            recycled=head.recycled,
            verify=options.verify_checksums,
            gather=gather,
            longest=longest,
            resync="damaged" in options.salvage,
        )
        self._usual = min(BATCH_BYTES, max(size, 1)) if gather else 0
        self._capacity = self._usual
        self.starts = Column(np.int64, max_rows).values
        self._stops = Column(np.int64, max_rows).values
        self._ends = Column(np.int32, max_rows + 1).values
        self._ends[0] = 0
        self._recovered = np.zeros(max_rows if "damaged" in options.salvage else 0, np.uint8)
        self._data = Column(np.uint8, self._capacity)
        self._was_delivered = False

    def read(self, window: Window) -> int:
        if self._was_delivered:  # room for rows to come, not before there are any
            self._allocate(self._capacity if self.state.committed > self._capacity // 4 else self._usual)
            self._recovered[:] = 0
            self._was_delivered = False
        out = k.Out(self._data.values, self._ends, self.starts, self._stops, self._recovered, self.events)
        return int(k.read_fragments(window, self.state, out, self._rules))

    def grow(self) -> None:
        self._allocate(2 * self._capacity)

    def reset(self) -> None:
        """Take fresh room before the next rows. What one large record needed is kept only while others use it."""
        self._was_delivered = True

    def _allocate(self, capacity: int) -> None:
        """Allocate a column for payloads, and copy the bytes of the open record to it."""
        state = self.state
        length = int(state.open_bytes) if self._rules.gather and state.open >= 0 and not state.oversize else 0
        self._capacity = max(capacity, length)
        data = Column(np.uint8, self._capacity)
        committed = int(state.committed)
        data.values[:length] = self._data.values[committed : committed + length]
        self._data = data
        state.committed = 0

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._compressed:
            yield from self._expand_rows(rows)
            return
        records = make_binary_array(self._ends[: rows + 1], self._data) if self._rules.gather else None
        yield rows, self._make_batch(slice(0, rows), records)

    def _expand_rows(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows in hand, expanded. Stops at one that cannot be, where damage fails."""
        from sawlog.leveldb.codecs import expand_records

        if not rows:
            yield 0, self._make_batch(slice(0, 0), make_array([], pa.binary()))
        for group in expand_records(self._data.values, self._ends[: rows + 1], self._longest):
            row_count = len(group.rows)
            if group.failed and self.fails:
                row_count = int(np.searchsorted(group.rows, min(group.failed)))
            records = pa.Array.from_buffers(pa.binary(), row_count, [None, pa.py_buffer(group.ends), group.data])
            yield row_count, self._make_batch(group.rows[:row_count], records)
            for row, size in sorted(group.failed.items()):
                start, stop = int(self.starts[row]), int(self._stops[row])
                kind = LogDamageKind.BAD_COMPRESSION if size is None else LogDamageKind.RECORD_TOO_LARGE
                self.complain(kind, start, stop - start, kind.detail.format(size, self._longest))
            if group.failed and self.fails:
                return

    def _make_batch(self, rows: slice | NDArray[np.int64], records: pa.Array | None) -> pa.RecordBatch:
        starts = self.starts[rows]
        columns: dict[str, pa.Array] = {RECORD_COLUMN: records}
        for name in self._schema.names:
            if name == END_COLUMN:
                columns[name] = make_fixed_array(pa.int64(), self._stops[rows].copy())
            elif name == RECOVERED_COLUMN:
                columns[name] = make_array(self._recovered[rows], pa.bool_())
            elif name == STALE_COLUMN:
                columns[name] = make_constant(self._stale, pa.bool_(), len(starts))
        return assemble(
            self._schema, len(starts), columns, self.path, lambda: make_fixed_array(pa.int64(), starts.copy())
        )

    def note_event(self, event: WalkEvent) -> None:
        """Keep what a metadata fragment says."""
        if self.metadata is not None:
            self.metadata.append(MetadataFragment(event.offset, event.one, event.two, event.length - event.two))
        if self.stamps is not None and event.one in layout.STAMP_SIZES:
            payload = self.source.read_window(event.offset + event.two, event.length - event.two)
            self.stamps.add(event.offset, bytes(payload))

    def describe(self, event: WalkEvent) -> str:
        two = Role(event.two).name if event.kind == LogDamageKind.MISSING_START else event.two
        detail = LogDamageKind(event.kind).detail.format(event.one, two)
        return detail.removesuffix(GIVEN_UP) if self._rules.resync else detail

    def find_pending(self) -> tuple[int, ...]:
        return int(self.state.open), self.suspect_offset

    @property
    def suspect_offset(self) -> int:
        """Return the byte at which a recycled log ends or is damaged, with no fragment of it after; -1 for none."""
        return int(self.state.suspect)

    def count_lost_bytes(self, length: int) -> int:
        """Return the size of a block, which LevelDB counts however little of it is lost."""
        return layout.BLOCK_SIZE

    def judge_tail(self) -> Tail | None:
        state, size = self.state, self.span.file.size
        open_, suspect = int(state.open), int(state.suspect)
        if not state.synced or (state.position < size and state.tail < 0):
            return None
        if suspect >= 0:
            offset = open_ if open_ >= 0 else suspect
            return Tail(TailStatus.STALE, offset, size - offset, "no fragment of this log follows")
        if open_ >= 0:
            detail = f"a record of {int(state.open_bytes)} bytes so far has no end"
            return Tail(TailStatus.OPEN, open_, size - open_, detail)
        if state.zeros == self.span.start and not self._fragment.synced:
            return self._find_padding()
        return super().judge_tail()

    def _find_padding(self) -> Tail | None:
        """Return the unused space at the end around this range; all of the file is walked to find its start."""
        walk = Walk(
            replace(self._fragment, start=0, synced=True), self.source, self.head, pa.schema([]), Findings("skip")
        )
        for _ in walk.read_batches():
            pass
        return walk.findings.tail


@dataclass(frozen=True)
class LogRange(FileRange):
    """Fragment of a log: those records whose first header is in `[start, end)`.

    Attributes:
        file: The log; its size is where this scan takes the file to end.
        start: A block boundary, or, when `synced`, the end of a complete record.
        end: A block boundary, or the size of the file.
        synced: Whether a record may start right at `start`; otherwise what is left of an earlier one is skipped.
        dialect: As in the options, or as the directory says.
        numbered: Whether a database takes the file for the log of the number in its name.
    """

    synced: bool
    dialect: Dialect | Literal["auto"]
    numbered: bool = False

    @classmethod
    def cover_file(
        cls,
        file: File,
        scan: Scan,
        projection: Projection,
        dialect: Dialect | Literal["auto"],
        *,
        numbered: bool = False,
    ) -> Self:
        """Return one range over all of a log."""
        size = file.size
        return cls(scan, projection, file.path, size, file, 0, size, synced=True, dialect=dialect, numbered=numbered)

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Return the records of a range. Section 5.2 of the format gives every record to exactly one range."""
        return self.read_records(schema, findings)

    def read_records(
        self, schema: pa.Schema, findings: Findings, stamps: StampSizes | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records, as `decode` delivers them; what the log says of timestamps is collected before them."""
        with closing(self.scan.storage.open(self.file, self.end)) as source:
            if source.size < self.file.size:
                raise ChangedError.from_sizes(self.path, self.file.size, source.size)
            try:
                if self.start < PROBE_BYTES:
                    # What is read of a remote file anyway is not fetched twice.
                    vars(self)["head"] = self._read_head(bytes(source.read_window(0, PROBE_BYTES)))
                head = self.head
            except DiskError as error:
                kind, length = LogDamageKind.READ_ERROR.label, self.end - self.start
                findings.add_damage(Damage(self.path, self.start, length, kind, str(error), layout.BLOCK_SIZE))
                return
            except UnsupportedError as error:
                findings.add_damage(replace(error.damage, offset=self.start, length=self.end - self.start))
                return
            if head.renamed and self.start == 0:
                findings.notes["renamed_logs"] += 1
                detail = "no fragment carries the number in the file's name; it is read as log"
                warn(f"{self.path}: {detail} {head.log_number}", DamageWarning)
            walk = Walk(self, source, head, schema, findings, stamps=stamps)
            yield from walk.read_batches()
            if "stale" in self.scan.options.salvage:
                yield from _read_former_logs(self, walk, schema)

    @cached_property
    def head(self) -> LogHead:
        """Return the properties that the beginning of the file states.

        Raises:
            OSError: When it cannot be read.
        """
        return self._read_head(self.scan.storage.read(self.file, 0, PROBE_BYTES))

    def _read_head(self, head: bytes) -> LogHead:
        return read_head(head, self.file, self.dialect, self.scan.storage, numbered=self.numbered)

    def find_tail(self) -> Tail | None:
        """Return how the log ends, if the range reaches there; records are only walked, in every view."""
        findings = Findings("skip")
        for _ in LogRange.decode(self, pa.schema([]), findings):
            pass
        return findings.tail

    def find_end(self) -> int:
        """Return the end of the last complete record, or of the intact part, if damage reaches up to the end."""
        findings = Findings("skip", drained=True, columns=[])
        return find_intact_end(LogRange.decode(self, pa.schema([]), findings), findings, self.file.size)


def make_log_range(file: File, options: LogReadOptions, storage: Storage) -> LogRange:
    """Return one range over all of a log, delivering everything intact."""
    scan = Scan(options=options, on_damage="skip", storage=storage)
    return LogRange.cover_file(file, scan, Projection.of(ROWS_SCHEMA, scan), options.dialect)


def _read_former_logs(fragment: LogRange, walk: Walk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of earlier logs in a file, from the end of the log that was written over them.

    The log that the file was before goes on after that place, up to where it ended in turn; and so forth. What cannot
    be read there is no damage: it was given up when the file was written over.
    """
    findings = walk.findings
    while walk.suspect_offset >= 0:
        life = _find_next_log(walk.suspect_offset, fragment.file.size, walk.head, walk.source)
        if life is None:
            return
        start, head = life
        ledger = Findings("skip")
        begin = walk.suspect_offset if "damaged" in fragment.scan.options.salvage else start
        range_ = replace(fragment, start=begin, end=fragment.file.size, synced=True)
        walk = Walk(range_, walk.source, head, schema, ledger, stale=True)
        for batch in walk.read_batches():
            findings.rows += ledger.rows
            findings.notes["stale_rows"] += ledger.rows
            ledger.rows = 0
            yield batch


def _find_next_log(doubtful: int, size: int, head: LogHead, source: Source) -> tuple[int, LogHead] | None:
    """Return the first block after a place that begins with a fragment of another log, and that log's number."""
    for start in range(layout.find_block_end(doubtful), size, _SEARCHED):
        window = bytes(source.read_window(start, min(_SEARCHED, size - start)))
        for offset, kind, body in iterate_first_fragments(window, head.dialect):
            if layout.TYPES[head.dialect][kind].header_size == layout.HEADER_SIZE:
                continue
            number = layout.LOG_NUMBER.of(body, -layout.TYPE.end)
            if number != head.log_number:
                return start + offset, replace(head, log_number=number)
    return None
