"""Column files: two columns of fixed width in groups of rows, and a directory at the end."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog import Damage, SchemaError
from sawlog.format.contract import (
    BoundScan,
    Contents,
    FileRange,
    FileWriter,
    Findings,
    Format,
    Fragment,
    Match,
    Scan,
    View,
    Writer,
    assemble,
)
from sawlog.format.query import can_match_within
from sawlog.storage import File, Storage
from sawlog_column_file.layout import COUNT, ENTRY, MAGIC, MAX_GROUP_ROWS, ROW_BYTES, TRAILER, WIDTH

ROWS_SCHEMA = pa.schema([pa.field("time", pa.int64(), nullable=False), pa.field("value", pa.float64(), nullable=False)])


class Group(NamedTuple):
    """Rows that lie together: where they begin, how many there are, their CRC-32, their first and last time."""

    offset: int
    rows: int
    checksum: int
    low: int
    high: int

    @property
    def end(self) -> int:
        return self.offset + self.rows * ROW_BYTES


def read_directory(file: File, storage: Storage) -> list[Group] | str:
    """Return the groups of a file, or why its directory cannot be believed."""
    if file.size < len(MAGIC) + TRAILER.size:
        return f"expected a directory at the end; the file has {file.size} bytes"
    count, checksum, magic = TRAILER.unpack(storage.read(file, file.size - TRAILER.size, TRAILER.size))
    if magic != MAGIC:
        return f"expected {MAGIC!r} at the end, found {magic!r}"
    size = count * ENTRY.size
    if size > file.size - TRAILER.size - len(MAGIC):
        return f"a directory of {count} groups is longer than the file"
    directory = storage.read(file, file.size - TRAILER.size - size, size)
    if zlib.crc32(directory + COUNT.pack(count)) != checksum:
        return f"expected a directory with the CRC-32 {checksum:#x}"
    groups, offset = [], len(MAGIC)
    for entry in ENTRY.iter_unpack(directory):
        groups.append(Group(offset, *entry))
        offset = groups[-1].end
    end = file.size - TRAILER.size - size
    return groups if offset == end else f"expected groups up to byte {end}, found {offset}"


@dataclass(frozen=True)
class GroupRange(FileRange):
    """Groups of one file that follow each other; with the last of them the directory.

    Attributes:
        groups: Those whose rows it has.
        fault: Why the directory cannot be believed; empty where it can.
    """

    groups: tuple[Group, ...]
    fault: str

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        if self.fault:
            findings.add_damage(Damage(self.path, 0, self.size, "bad_directory", self.fault))
            return
        if self.start == 0:
            magic = self.scan.storage.read(self.file, 0, len(MAGIC))
            if magic == MAGIC:
                findings.account.header += len(MAGIC)
            else:
                detail = f"expected {MAGIC!r}, found {magic!r}"
                findings.add_damage(Damage(self.path, 0, len(MAGIC), "bad_magic", detail))
        for group in self.groups:
            yield from self.read_group(group, schema, findings)
        if self.end == self.file.size:
            findings.account.header += self.end - max([len(MAGIC), self.start, *(group.end for group in self.groups)])

    def read_group(self, group: Group, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group, if they are those that were written."""
        offset, rows, checksum, *_ = group
        size = group.end - offset
        if rows > MAX_GROUP_ROWS:
            detail = f"a group of {rows} rows; expected at most {MAX_GROUP_ROWS}"
            findings.add_damage(Damage(self.path, offset, size, "group_too_large", detail))
            return
        data = self.scan.storage.read(self.file, offset, size)
        if (checksum_read := zlib.crc32(data)) != checksum:
            detail = f"expected the CRC-32 {checksum:#x}, found {checksum_read:#x}"
            findings.add_damage(Damage(self.path, offset, size, "bad_checksum", detail, rows))
            return
        findings.account.record += size
        findings.rows += rows
        values = pa.py_buffer(data)
        columns = {
            "time": pa.Array.from_buffers(pa.int64(), rows, [None, values.slice(0, rows * WIDTH)]),
            "value": pa.Array.from_buffers(pa.float64(), rows, [None, values.slice(rows * WIDTH)]),
        }

        def make_offsets() -> pa.Array:
            return pa.array(offset + WIDTH * np.arange(rows), pa.int64())

        yield assemble(schema, rows, columns, self.path, make_offsets)


def find_wanted(groups: Sequence[Group], request: BoundScan) -> list[bool]:
    """Return of which groups filters allow rows."""
    limits = ([group.low for group in groups], [group.high for group in groups])
    low, high = (pa.record_batch({"time": pa.array(times, pa.int64())}) for times in limits)
    return can_match_within(request.projection.query, low, high).to_pylist()


def plan_groups(contents: Contents, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
    """Yield ranges that begin and end at groups, without those of which filters allow nothing."""
    for file in contents.files:
        directory = read_directory(file, request.scan.storage)
        if isinstance(directory, str):
            yield GroupRange(*request, file.path, file.size, file, 0, file.size, (), directory)
            continue
        start, groups = 0, []
        for group, is_wanted in zip(directory, find_wanted(directory, request), strict=True):
            is_full = task_bytes and groups and group.offset - start >= task_bytes
            if is_full or not is_wanted:
                if group.offset > start:
                    yield range_of(request, file, start, group.offset, groups)
                start, groups = group.offset if is_wanted else group.end, []
            if is_wanted:
                groups.append(group)
        yield range_of(request, file, start, file.size, groups)


def range_of(request: BoundScan, file: File, start: int, end: int, groups: Sequence[Group]) -> Fragment:
    """Return the fragment of some groups."""
    return GroupRange(*request, file.path, end - start, file, start, end, tuple(groups), "")


class ColumnFiles(Contents):
    """Column files, one after the other."""

    views: ClassVar = {"rows": View(ROWS_SCHEMA, plan_groups)}
    files_are_independent = True

    def facts(self, request: BoundScan) -> dict[str, Any]:
        directories = [read_directory(file, self.scan.storage) for file in self.files]
        return {"groups": sum(len(directory) for directory in directories if not isinstance(directory, str))}


class ColumnFileWriter(FileWriter):
    """Writes one file."""

    def __init__(self, path: str, schema: pa.Schema, storage: Storage) -> None:
        self.storage = storage
        if schema.names != ROWS_SCHEMA.names or schema.types != ROWS_SCHEMA.types:
            raise SchemaError(f"a column file has the columns time (int64) and value (double); found: {schema}")
        self._file = storage.stage(path)
        self._file.write(MAGIC)
        self._rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._directory = bytearray()

    def write(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count:
                row = self._rows + column.is_null().to_pylist().index(True)
                raise SchemaError(f"column {name!r}, row {row}: a column file cannot hold null")
        self._rows += batch.num_rows
        self._waiting.append(batch.cast(ROWS_SCHEMA))
        if sum(waiting.num_rows for waiting in self._waiting) >= MAX_GROUP_ROWS:
            self._write_groups(MAX_GROUP_ROWS)

    def _write_groups(self, min_rows: int) -> None:
        """Write groups, as long as so many rows are waiting."""
        rows = pa.Table.from_batches(self._waiting, ROWS_SCHEMA)
        while rows.num_rows >= min_rows:
            group, rows = rows.slice(0, MAX_GROUP_ROWS), rows.slice(MAX_GROUP_ROWS)
            times, values = (column.to_numpy() for column in group.columns)
            data = times.astype("<i8").tobytes() + values.astype("<f8").tobytes()
            self._file.write(data)
            self._directory += ENTRY.pack(group.num_rows, zlib.crc32(data), times.min(), times.max())
        self._waiting = rows.to_batches()

    def _flush(self) -> None:
        self._write_groups(1)
        count = len(self._directory) // ENTRY.size
        checksum = zlib.crc32(bytes(self._directory) + COUNT.pack(count))
        self._file.write(bytes(self._directory) + TRAILER.pack(count, checksum, MAGIC))


class ColumnFile(Format):
    """The format."""

    name = "column_file"
    title = "column file"
    suffix = ".scf"
    views: ClassVar = {"rows": "one row per time and value", "damage": "one row per damaged range"}

    def match(self, file: File, head: bytes) -> Match:
        if head.startswith(MAGIC):
            return Match.CONTENT
        return Match.NAME if file.name.endswith(self.suffix) else Match.NO

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        return ColumnFiles(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        return ColumnFileWriter(path, schema, storage)
