"""Reading LevelDB logs: files to fragments, fragments to record batches."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.errors import FormatError, SawlogError
from sawlog.format import OFFSET_COLUMN, PROBE_BYTES, Dataset, Fragment, Projection, Scan
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.layout import DETAIL, Dialect, Kind, Role
from sawlog.storage import File, Source, Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


RECORD_COLUMN = "record"
END_COLUMN = "_end"
"""Where the last fragment of a record ends; for the views that decode records, not for users."""
ROWS_SCHEMA = pa.schema([pa.field(RECORD_COLUMN, pa.binary(), nullable=False)])

WINDOW_BYTES = 8 << 20
"""Bytes of the file that the kernel sees at a time; a multiple of the block size."""
BATCH_BYTES = 4 << 20
"""Payload per batch, unless one record is larger."""
BATCH_ROWS = 64 << 10
EVENT_ROOM = 4096
"""Damages that the kernel writes down before it hands over."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading LevelDB logs.

    Attributes:
        dialect: Whose fragment types are understood. `auto` takes RocksDB's where the file begins with one of them, or
            lies beside RocksDB's IDENTITY file, and LevelDB's otherwise.
        verify_checksums: Whether the CRC-32C of every fragment is verified.
        max_record_bytes: Longer records are described as damage and skipped.
    """

    dialect: Literal["auto", "leveldb", "rocksdb", "pebble"] = "auto"
    verify_checksums: bool = True
    max_record_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class LogHead:
    """What the beginning of a file says about the rest of it.

    Attributes:
        dialect: Whose fragment types are in use.
        recycled: Whether the file was written over an older log.
        log_number: The number that recyclable fragments must carry (low 32 bits); -1 for any.
        compression: Compression code of the records.
    """

    dialect: Dialect
    recycled: bool
    log_number: int
    compression: int


def first_fragments(head: bytes, dialect: Dialect) -> Iterator[tuple[int, bytes]]:
    """Type and body (what follows the type byte) of the intact fragments at the block starts in `head`."""
    from sawlog.leveldb_log.kernels import masked_checksum

    for start in range(0, len(head), layout.BLOCK_SIZE):
        block = head[start : start + layout.BLOCK_SIZE]
        if len(block) < layout.HEADER_SIZE:
            return
        kind = block[layout.TYPE_OFFSET]
        length = int.from_bytes(block[layout.LENGTH_OFFSET : layout.TYPE_OFFSET], "little")
        known = layout.TYPES[dialect].get(kind)
        if known is None or known.header_size + length > len(block):
            continue
        checked = block[layout.TYPE_OFFSET : known.header_size + length]
        if masked_checksum(checked) == int.from_bytes(block[: layout.LENGTH_OFFSET], "little"):
            yield kind, checked[1:]


def read_head(head: bytes, file: File, dialect: Dialect | Literal["auto"]) -> LogHead:
    """Settle dialect, log number and compression from the first `PROBE_BYTES` of a file.

    Raises:
        FormatError: For a compression that is not supported.
    """
    if dialect == "auto":
        foreign = any(kind in layout.ROCKSDB_ONLY for kind, _ in first_fragments(head, "rocksdb"))
        dialect = "rocksdb" if foreign else "leveldb"
    if dialect == "leveldb":
        return LogHead(dialect, recycled=False, log_number=-1, compression=layout.COMPRESSION_NONE)
    named = layout.LOG_NAME.match(file.name)
    number = int(named[1]) & 0xFFFFFFFF if named else -1
    recycled = False
    compression = layout.COMPRESSION_NONE
    for position, (kind, body) in enumerate(first_fragments(head, dialect)):
        known = layout.TYPES[dialect][kind]
        if known.header_size > layout.HEADER_SIZE and not recycled:
            recycled = True
            number = number if number >= 0 else int.from_bytes(body[:4], "little")
        if known.role is Role.COMPRESSION and position == 0 and len(body) == layout.COMPRESSION_PAYLOAD:
            compression = int.from_bytes(body, "little")
    if compression not in (layout.COMPRESSION_NONE, layout.COMPRESSION_ZSTD):
        raise FormatError(
            f"{file.path}: records are compressed with type {compression}; only ZSTD (7) is known in logs"
        )
    return LogHead(dialect, recycled, number, compression)


@dataclass(frozen=True)
class LogRange(Fragment):
    """Those records of one log whose first header lies in `[start, end)`.

    Attributes:
        file: The log; its size is where this scan takes the file to end.
        start: A block boundary, or, when `synced`, the end of a complete record.
        end: A block boundary, or the size of the file.
        synced: Whether a record may start right at `start`; otherwise what is left of an earlier one is passed over.
        dialect: As in the options, or as the directory tells.
    """

    file: File
    start: int
    end: int
    synced: bool
    dialect: Dialect | Literal["auto"]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. Section 5.2 of the format gives every record to exactly one range."""
        with closing(self.scan.storage.open(self.path)) as source:
            if source.size < self.file.size:
                raise SawlogError(f"{self.path}: the file shrank from {self.file.size} to {source.size} bytes")
            head = read_head(bytes(source.window(0, PROBE_BYTES)), self.file, self.dialect)
            yield from _Walk(self, source, head, schema, findings).batches()

    def find_tail(self) -> Tail | None:
        """How the log ends, if the range reaches there; records are walked, whatever the view, not decoded."""
        findings = Findings("skip")
        for _ in LogRange.decode(self, pa.schema([]), findings):
            pass
        return findings.tail


def whole_log(file: File, options: ReadOptions, storage: Storage) -> LogRange:
    """One range over all of a log, delivering everything intact."""
    scan = Scan(options=options, on_damage="skip", storage=storage)
    projection = Projection.of(ROWS_SCHEMA, scan)
    return LogRange(scan, projection, file.path, file.size, file, 0, file.size, synced=True, dialect=options.dialect)


class _Walk:
    """One pass over a range: drives the kernel, makes batches, reports findings."""

    def __init__(
        self, fragment: LogRange, source: Source, head: LogHead, schema: pa.Schema, findings: Findings
    ) -> None:
        import numpy as np

        from sawlog.arrow import Column
        from sawlog.leveldb_log import kernels

        self._kernels = kernels
        self._fragment = fragment
        self._source = source
        self._head = head
        self._schema = schema
        self._findings = findings
        self._options: ReadOptions = fragment.scan.options
        self._gather = RECORD_COLUMN in schema.names or head.compression != layout.COMPRESSION_NONE
        self._roles = np.zeros(256, np.uint8)
        self._headers = np.full(256, layout.HEADER_SIZE, np.uint8)
        for code, known in layout.TYPES[head.dialect].items():
            self._roles[code] = known.role
            self._headers[code] = known.header_size
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._state[kernels.POSITION] = fragment.start
        self._state[kernels.SYNCED] = fragment.synced
        self._state[[kernels.RECORD_START, kernels.SUSPECT, kernels.ZEROS]] = -1
        # The first damage must stop the kernel where rows behind it must not be delivered.
        room = 3 if findings.on_damage == "fail" else EVENT_ROOM
        self._events = np.zeros((room, kernels.EVENT_FIELDS), np.int64)
        span = fragment.end - fragment.start
        self._capacity = min(BATCH_BYTES, max(span, 1)) if self._gather else 0
        max_rows = min(BATCH_ROWS, span // layout.HEADER_SIZE + 1)
        self._ends = np.zeros(max_rows + 1, np.int32)
        self._starts = np.zeros(max_rows, np.int64)
        self._stops = np.zeros(max_rows, np.int64)
        self._data = Column(np.uint8, self._capacity)

    def batches(self) -> Iterator[pa.RecordBatch]:
        k = self._kernels
        state = self._state
        status = k.MORE
        while status != k.END:
            try:
                window = self._source.window(int(state[k.POSITION]), self._window_length())
            except OSError as error:
                yield from self._hand_over()
                self._read_error(error)
                return
            status = self._read(window)
            if status == k.FULL and state[k.ROWS] == 0 and state[k.EVENTS] == 0:
                self._renew(2 * self._capacity)
            elif status != k.MORE:
                yield from self._hand_over()
        self._account()

    def _window_length(self) -> int:
        """Up to a block boundary, so that no fragment is cut."""
        position = int(self._state[self._kernels.POSITION])
        return min(layout.block_end(position + WINDOW_BYTES), self._fragment.file.size) - position

    def _read(self, window: NDArray[np.uint8]) -> int:
        import numpy as np

        return int(
            self._kernels.read_fragments(
                window,
                np.uint64(self._fragment.file.size),
                np.uint64(self._fragment.end),
                self._roles,
                self._headers,
                np.int64(self._head.log_number),
                self._head.recycled,
                self._options.verify_checksums,
                self._gather,
                np.int64(self._options.max_record_bytes),
                self._state,
                self._data.values,
                self._ends,
                self._starts,
                self._stops,
                self._events,
            )
        )

    def _renew(self, capacity: int) -> None:
        """Take a fresh column for payloads, and carry the bytes of the open record over."""
        import numpy as np

        from sawlog.arrow import Column

        k = self._kernels
        data = Column(np.uint8, capacity)
        if self._gather and self._state[k.RECORD_START] >= 0 and not self._state[k.OVERSIZE]:
            committed, length = int(self._state[k.COMMITTED]), int(self._state[k.RECORD_LENGTH])
            data.values[:length] = self._data.values[committed : committed + length]
        self._capacity = capacity
        self._data = data
        self._state[[k.ROWS, k.COMMITTED]] = 0

    def _hand_over(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, then report the damage so far."""
        k = self._kernels
        rows = int(self._state[k.ROWS])
        events = self._events[: int(self._state[k.EVENTS])]
        if len(events) and self._findings.on_damage == "fail":
            rows = int((self._starts[:rows] < events[:, 1].min()).sum())
        batch = self._batch(rows)
        self._renew(self._capacity)
        self._findings.rows += rows
        yield batch
        self._report(events)
        self._state[k.EVENTS] = 0

    def _batch(self, rows: int) -> pa.RecordBatch:
        from sawlog.arrow import binary_array, constant_string, fixed_array

        arrays = []
        for name in self._schema.names:
            if name == RECORD_COLUMN:
                arrays.append(binary_array(self._ends[: rows + 1], self._data))
            elif name == OFFSET_COLUMN:
                arrays.append(fixed_array(pa.int64(), self._starts[:rows].copy()))
            elif name == END_COLUMN:
                arrays.append(fixed_array(pa.int64(), self._stops[:rows].copy()))
            else:
                arrays.append(constant_string(self._fragment.path, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _report(self, events: NDArray[np.int64]) -> None:
        for index, (kind, offset, length, dropped, one, two) in enumerate(events.tolist()):
            if not self._findings.listing:
                self._tally(events[index:])
                return
            detail = DETAIL[Kind(kind)].format(one, Role(two).name if kind == Kind.MISSING_START else two)
            self._damage(Kind(kind), offset, length, detail, dropped if dropped >= 0 else None)

    def _tally(self, events: NDArray[np.int64]) -> None:
        import numpy as np

        for kind in np.unique(events[:, 0]):
            lengths = events[events[:, 0] == kind, 2]
            self._findings.tally(Kind(kind).name.lower(), len(lengths), int(lengths.sum()))

    def _damage(self, kind: Kind, offset: int, length: int, detail: str, dropped: int | None) -> None:
        self._findings.damage(Damage(self._fragment.path, offset, length, kind.name.lower(), detail, dropped))

    def _read_error(self, error: OSError) -> None:
        """What cannot be read is damage up to the end of the range; LevelDB counts one block."""
        k = self._kernels
        position = int(self._state[k.POSITION])
        start = int(self._state[k.RECORD_START])
        end = self._fragment.end if position < self._fragment.end else self._fragment.file.size
        offset = start if start >= 0 else position
        self._account()
        self._damage(Kind.READ_ERROR, offset, end - offset, str(error), layout.BLOCK_SIZE)

    def _account(self) -> None:
        """Enter the bytes read into the ledger, and, at the end of the file, the state of its tail."""
        k = self._kernels
        state = self._state
        account = self._findings.account
        account.record += int(state[k.RECORD_BYTES])
        account.padding += int(state[k.PADDING_BYTES])
        account.header += int(state[k.METADATA_BYTES])
        size = self._fragment.file.size
        if state[k.SYNCED] and (state[k.POSITION] >= size or state[k.TORN]):
            tail = self._tail(size)
            self._findings.tail = tail
            if tail.status is not TailStatus.PADDING:
                account.tail += tail.length

    def _tail(self, size: int) -> Tail:
        k = self._kernels
        position, start, suspect, zeros = (
            int(self._state[field]) for field in (k.POSITION, k.RECORD_START, k.SUSPECT, k.ZEROS)
        )
        if suspect >= 0:
            offset = start if start >= 0 else suspect
            return Tail(TailStatus.STALE, offset, size - offset, "no fragment of this log stands behind this byte")
        if start >= 0:
            length = int(self._state[k.RECORD_LENGTH])
            return Tail(TailStatus.OPEN, start, size - start, f"a record of {length} bytes so far has no end")
        if position < size:
            return Tail(TailStatus.TORN, position, size - position, "the file ends inside a fragment")
        if zeros >= 0:
            return Tail(TailStatus.PADDING, zeros, size - zeros, "unused space")
        return Tail(TailStatus.CLEAN, size, 0)


class LevelDBLogDataset(Dataset):
    """LevelDB logs, one after the other in the order of their numbers."""

    range_type: ClassVar[type[LogRange]] = LogRange
    """What the ranges of the view are; datasets of other views put their own here."""

    def view_schema(self) -> pa.Schema:
        """`rows`: one binary column, `record`."""
        return ROWS_SCHEMA

    def plan(self, task_bytes: int | None) -> Iterator[LogRange]:
        """Ranges that begin and end at block boundaries; a filter on `_offset` leaves out what cannot match."""
        low, high = self._offset_bounds()
        for file in self.files:
            dialect = self._dialect(file)
            start = low - low % layout.BLOCK_SIZE
            stop = min(layout.block_end(high), file.size)
            step = layout.block_end(task_bytes) if task_bytes else max(stop, 1)
            for begin in range(start, stop, step) if stop else [0]:
                end = min(begin + step, stop)
                yield self._range(file, begin, end, begin == 0, dialect)

    def follow(self, positions: Mapping[str, Any]) -> tuple[list[Fragment], dict[str, Any]]:
        """See `Dataset.follow`. The new bytes are walked once here, to find where the last complete record ends."""
        if self.scan.view == "damage":
            return super().follow(positions)
        fragments: list[Fragment] = []
        reached = dict(positions)
        for file in self.files:
            start = int(positions.get(file.path, 0))
            if file.size < start:
                raise SawlogError(f"{file.path}: the file shrank to {file.size} bytes; {start} bytes are committed")
            dialect = self._dialect(file)
            tail = self._range(file, start, file.size, True, dialect).find_tail()
            end = file.size if tail is None or tail.status is TailStatus.CLEAN else tail.offset
            if end > start:
                fragments.append(self._range(replace(file, size=end), start, end, True, dialect))
            reached[file.path] = end
        return fragments, reached

    def info(self) -> dict[str, Any]:
        """Dialect, log number and compression of the first file."""
        if not self.files:
            return {}
        file = self.files[0]
        head = read_head(self.scan.storage.read(file.path, 0, PROBE_BYTES), file, self._dialect(file))
        facts: dict[str, Any] = {"dialect": head.dialect}
        if head.recycled:
            facts["recycled, log number"] = head.log_number
        if head.compression == layout.COMPRESSION_ZSTD:
            facts["compression"] = "zstd"
        return facts

    def _range(self, file: File, start: int, end: int, synced: bool, dialect: Dialect | Literal["auto"]) -> LogRange:
        return self.range_type(self.scan, self.projection, file.path, end - start, file, start, end, synced, dialect)

    def _dialect(self, file: File) -> Dialect | Literal["auto"]:
        """The dialect from the options, or RocksDB's where its IDENTITY file lies beside the log."""
        dialect: Dialect | Literal["auto"] = self.scan.options.dialect
        if dialect != "auto":
            return dialect
        directory = posixpath.dirname(file.path)
        if directory not in self._directories:
            identity = posixpath.join(directory, layout.IDENTITY_NAME)
            self._directories[directory] = "rocksdb" if self.scan.storage.exists(identity) else "auto"
        return self._directories[directory]

    @cached_property
    def _directories(self) -> dict[str, Dialect | Literal["auto"]]:
        return {}

    def _offset_bounds(self) -> tuple[int, int]:
        """The range of record offsets that the filters leave possible."""
        low, high = 0, 1 << 62
        for condition in self.projection.filters:
            if condition.column != OFFSET_COLUMN:
                continue
            if condition.op in (">", ">=", "=", "=="):
                low = max(low, condition.value)
            if condition.op in ("<", "<=", "=", "=="):
                high = min(high, condition.value + 1)
        return low, high
