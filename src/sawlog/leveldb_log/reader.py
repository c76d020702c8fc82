"""Reading LevelDB logs: files to fragments, fragments to record batches."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa

from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.errors import FormatError, OptionError, SawlogError
from sawlog.follow import Range
from sawlog.format import OFFSET_COLUMN, PROBE_BYTES, TASK_BYTES, Dataset, Fragment, Projection, Scan
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.layout import Dialect, Kind, Role
from sawlog.storage import File, Storage

RECORD_COLUMN = "record"
END_COLUMN = "_end"
"""Where the last fragment of a record ends; for the views that decode records, not for users."""
ROWS_SCHEMA = pa.schema([pa.field(RECORD_COLUMN, pa.binary(), nullable=False)])

MAX_RECORD_BYTES = (1 << 31) - 1
"""What a record column's 32-bit offsets reach."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading LevelDB logs.

    Attributes:
        dialect: Whose fragment types are understood. `auto` takes RocksDB's where the file begins with one of them, or
            lies beside RocksDB's IDENTITY file, and LevelDB's otherwise.
        verify_checksums: Whether the CRC-32C of every fragment is verified.
        max_record_bytes: Longer records (expanded, where the log is compressed) are described as damage and skipped.
        latest: View `writes` only: the last operation on each key instead of all of them; needs memory for all keys.
        schema: View `entities` only: `json` delivers properties as one JSON string, `infer` one typed column per
            property, for which all entities are read twice.
        kind: View `entities` only: deliver the entities of this kind.
    """

    dialect: Literal["auto", "leveldb", "rocksdb", "pebble"] = "auto"
    verify_checksums: bool = True
    max_record_bytes: int = 1 << 30
    latest: bool = False
    schema: Literal["json", "infer"] = "json"
    kind: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_record_bytes <= MAX_RECORD_BYTES:
            raise OptionError(f"max_record_bytes={self.max_record_bytes}: expected 0 to {MAX_RECORD_BYTES}")


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


def first_fragments(head: bytes, dialect: Dialect) -> Iterator[tuple[int, int, bytes]]:
    """Intact fragments at the block starts in `head`, and behind those that hold no record but tell of the log.

    Yields:
        Offset, type, and body (what follows the type byte).
    """
    from sawlog.leveldb_log.kernels import masked_checksum

    for start in range(0, len(head), layout.BLOCK_SIZE):
        block = head[start : start + layout.BLOCK_SIZE]
        rest = block
        while len(rest) >= layout.HEADER_SIZE:
            kind = rest[layout.TYPE_OFFSET]
            length = int.from_bytes(rest[layout.LENGTH_OFFSET : layout.TYPE_OFFSET], "little")
            known = layout.TYPES[dialect].get(kind)
            if known is None or known.header_size + length > len(rest):
                break
            checked = rest[layout.TYPE_OFFSET : known.header_size + length]
            if masked_checksum(checked) != int.from_bytes(rest[: layout.LENGTH_OFFSET], "little"):
                break
            yield start + len(block) - len(rest), kind, checked[1:]
            if known.role not in (Role.METADATA, Role.COMPRESSION):
                break
            rest = rest[known.header_size + length :]


def settle_dialect(file: File, dialect: Dialect | Literal["auto"], storage: Storage) -> Dialect | Literal["auto"]:
    """The dialect from the options, or RocksDB's where its IDENTITY file lies beside the log (or its archive)."""
    directory = posixpath.dirname(file.path)
    if posixpath.basename(directory) == layout.ARCHIVE_NAME:
        directory = posixpath.dirname(directory)
    if dialect == "auto" and storage.exists(posixpath.join(directory, layout.IDENTITY_NAME)):
        return "rocksdb"
    return dialect


def read_head(head: bytes, file: File, dialect: Dialect | Literal["auto"]) -> LogHead:
    """Settle dialect, log number and compression from the first `PROBE_BYTES` of a file.

    Raises:
        FormatError: For a compression that is not supported.
    """
    if dialect == "auto":
        foreign = any(kind in layout.ROCKSDB_ONLY for _, kind, _ in first_fragments(head, "rocksdb"))
        dialect = "rocksdb" if foreign else "leveldb"
    if dialect == "leveldb":
        return LogHead(dialect, recycled=False, log_number=-1, compression=layout.COMPRESSION_NONE)
    named = layout.LOG_NAME.match(file.name)
    number = int(named[1]) & 0xFFFFFFFF if named else -1
    recycled = False
    compression = layout.COMPRESSION_NONE
    for offset, kind, body in first_fragments(head, dialect):
        known = layout.TYPES[dialect][kind]
        recycled = known.header_size > layout.HEADER_SIZE
        if recycled and number < 0:
            number = int.from_bytes(body[:4], "little")
        if known.role is Role.COMPRESSION and offset == 0 and len(body) == layout.COMPRESSION_PAYLOAD:
            compression = int.from_bytes(body, "little")
        if recycled or known.role not in (Role.METADATA, Role.COMPRESSION):
            break
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
        from sawlog.leveldb_log.walk import Walk

        storage = self.scan.storage
        with closing(storage.open(self.path, self.end)) as source:
            if source.size < self.file.size:
                raise SawlogError(f"{self.path}: the file shrank from {self.file.size} to {source.size} bytes")
            try:
                # Far from its start, a remote file's window would be fetched for nothing.
                near = self.start < PROBE_BYTES
                probe = bytes(source.window(0, PROBE_BYTES)) if near else storage.read(self.path, 0, PROBE_BYTES)
            except OSError as error:
                kind, length = Kind.READ_ERROR.name.lower(), self.end - self.start
                findings.damage(Damage(self.path, self.start, length, kind, str(error), layout.BLOCK_SIZE))
                return
            yield from Walk(self, source, read_head(probe, self.file, self.dialect), schema, findings).batches()

    def find_tail(self) -> Tail | None:
        """How the log ends, if the range reaches there; records are walked, whatever the view, not decoded."""
        return self._walked().tail

    def find_end(self) -> int:
        """Where the last complete record of the log ends, or the intact part, if damage reaches up to the end."""
        found = self._walked()
        end = self.file.size if found.tail is None or found.tail.status is TailStatus.CLEAN else found.tail.offset
        for damage in reversed(found.damages):
            if damage.offset + damage.length < end:
                break
            end = damage.offset
        return end

    def _walked(self) -> Findings:
        findings = Findings("skip", drained=True)
        for _ in LogRange.decode(self, pa.schema([]), findings):
            pass
        return findings


def whole_log(file: File, options: ReadOptions, storage: Storage) -> LogRange:
    """One range over all of a log, delivering everything intact."""
    scan = Scan(options=options, on_damage="skip", storage=storage)
    projection = Projection.of(ROWS_SCHEMA, scan)
    return LogRange(scan, projection, file.path, file.size, file, 0, file.size, synced=True, dialect=options.dialect)


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
            start = low - low % layout.BLOCK_SIZE
            stop = min(layout.block_end(high), file.size)
            if start < stop or not file.size:
                yield from self._cut(file, start, stop, start == 0, task_bytes)

    def frontier(self, file: File, position: int) -> int:
        """See `FollowedDataset.frontier`. The new bytes are walked once, to find where the last complete record ends.

        Damage that reaches up to the end of the file may be a block that is still being written, and waits too.
        """
        (rest,) = self._cut(file, position, file.size, True, None)
        return rest.find_end()

    def between(self, ranges: Sequence[Range]) -> list[Fragment]:
        """See `FollowedDataset.between`."""
        return [
            fragment
            for file, start, end in ranges
            for fragment in self._cut(replace(file, size=end), start, end, True, TASK_BYTES)
        ]

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

    def _cut(self, file: File, start: int, stop: int, synced: bool, task_bytes: int | None) -> Iterator[LogRange]:
        """Ranges of about `task_bytes` that together are `[start, stop)`; at least one."""
        dialect = self._dialect(file)
        begin = start
        while True:
            end = min(layout.block_end(begin + task_bytes), stop) if task_bytes else stop
            scan, projection, first = self.scan, self.projection, synced and begin == start
            yield self.range_type(scan, projection, file.path, end - begin, file, begin, end, first, dialect)
            if end >= stop:
                return
            begin = end

    def _dialect(self, file: File) -> Dialect | Literal["auto"]:
        directory = posixpath.dirname(file.path)
        if directory not in self._dialects:
            self._dialects[directory] = settle_dialect(file, self.scan.options.dialect, self.scan.storage)
        return self._dialects[directory]

    @cached_property
    def _dialects(self) -> dict[str, Dialect | Literal["auto"]]:
        return {}

    def _offset_bounds(self) -> tuple[int, int]:
        """The range of record offsets that the filters leave possible."""
        low, high = 0, 1 << 62
        for condition in self.projection.filters:
            # Damage in front of a block may be noticed only in it.
            if condition.column != OFFSET_COLUMN or condition.value is None or self.scan.view == "damage":
                continue
            if condition.op in (">", ">=", "=", "=="):
                low = max(low, int(condition.value))
            if condition.op in ("<", "<=", "=", "=="):
                high = min(high, int(condition.value) + (condition.op != "<"))
        return low, high
