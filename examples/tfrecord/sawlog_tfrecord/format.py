"""TFRecord files: recognised, read in ranges, followed, written and repaired."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, binary_array, constant_string, fixed_array
from sawlog.chain.kernels import Window
from sawlog.chain.walk import ChainWalk, Span
from sawlog.damage import FileReport, Findings
from sawlog.errors import OptionError, SchemaError
from sawlog.follow import Range
from sawlog.format import Dataset, Format, Fragment, Match, Scan, Writer
from sawlog.scan import Projection
from sawlog.storage import File, Staged, Storage
from sawlog_tfrecord import kernels, layout

RECORD = pa.schema([pa.field("record", pa.binary(), nullable=False)])
BATCH_ROWS, BATCH_BYTES, MAX_RECORD = 64 << 10, 4 << 20, (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`verify_checksums`: whether those of data are; `max_record_bytes`: longer records are damage."""

    verify_checksums: bool = True
    max_record_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not 0 <= self.max_record_bytes <= MAX_RECORD:
            raise OptionError(f"max_record_bytes={self.max_record_bytes}: expected 0 to {MAX_RECORD}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """None."""


class Walk(ChainWalk):
    """One pass over a range of a file."""

    kinds = layout.Kind
    details = layout.DETAIL

    def __init__(self, fragment: "RecordRange", source: Any, schema: pa.Schema, findings: Findings) -> None:
        span = Span(fragment.file, fragment.start, fragment.end)
        super().__init__(span, source, findings, kernels.STATE, max_rows=BATCH_ROWS)
        options: ReadOptions = fragment.scan.options
        self._schema = schema
        self._rules = kernels.Rules(options.verify_checksums, "record" in schema.names, options.max_record_bytes)
        self._room = min(BATCH_BYTES, max(1, span.end - span.start)) if self._rules.gather else 0
        self.starts = np.zeros(BATCH_ROWS, np.int64)
        self.renew()

    def read(self, window: Window) -> int:
        return int(
            kernels.read(
                window, self.state, kernels.Out(self._data.values, self._ends, self.starts, self.events), self._rules
            )
        )

    def grow(self) -> None:
        self._room *= 2
        self.renew()

    def renew(self) -> None:
        self._data, self._ends = Column(np.uint8, self._room), np.zeros(BATCH_ROWS + 1, np.int32)
        self.state.used = 0

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        make = {
            "record": lambda: binary_array(self._ends[: rows + 1], self._data),
            "_offset": lambda: fixed_array(pa.int64(), self.starts[:rows].copy()),
            "_file": lambda: constant_string(self.path, rows),
        }
        yield rows, pa.RecordBatch.from_arrays([make[name]() for name in self._schema.names], schema=self._schema)


@dataclass(frozen=True)
class RecordRange(Fragment):
    """The records that begin in `[start, end)`; both are ends of records, or of the file."""

    file: File
    start: int
    end: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.start, self.end - self.start

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        with closing(self.scan.storage.open(self.path, self.end)) as source:
            yield from Walk(self, source, schema, findings).batches()


class Records(Dataset):
    """TFRecord files, one after the other."""

    def view_schema(self) -> pa.Schema:
        return RECORD

    def plan(self, task_bytes: int | None) -> Iterator[RecordRange]:
        for file in self.files:
            whole = self._range(file, 0, file.size)
            start = 0
            for begin in self._starts(whole) if task_bytes and file.size > task_bytes else ():
                if begin - start >= task_bytes:
                    yield self._range(file, start, begin)
                    start = begin
            yield self._range(file, start, file.size)

    def frontier(self, file: File, position: int) -> int:
        """Behind the last complete record; damage up to the end may be one that is still being written."""
        found = self._range(file, position, file.size).inspect(every=True)
        end = found.tail.offset if found.tail is not None and found.tail.unfinished else file.size
        for damage in reversed(found.damages):
            end = damage.offset if damage.offset + damage.length >= end else end
        return end

    def between(self, ranges: Sequence[Range]) -> list[Fragment]:
        return [self._range(replace(file, size=end), start, end) for file, start, end in ranges]

    def _range(self, file: File, start: int, end: int) -> RecordRange:
        return RecordRange(self.scan, self.projection, file.path, end - start, file, start, end)

    def _starts(self, whole: RecordRange) -> Iterator[int]:
        """Where records begin, by the same walk; their data are not looked at."""
        scan = replace(self.scan, options=replace(self.scan.options, verify_checksums=False))
        offsets = pa.schema([pa.field("_offset", pa.int64(), nullable=False)])
        for batch in replace(whole, scan=scan).decode(offsets, Findings("skip")):
            yield from batch.column(0).to_pylist()


class RecordWriter(Writer):
    """Writes one file."""

    def __init__(self, path: str, schema: pa.Schema, storage: Storage) -> None:
        if [(one.name, one.type) for one in schema] not in ([("record", pa.binary())], [("record", pa.large_binary())]):
            raise SchemaError(f"a TFRecord file has one binary column, 'record'; found {schema}")
        self.storage, self._rows, self._file = storage, 0, storage.stage(path)

    def write(self, batch: pa.RecordBatch) -> None:
        column = batch.column("record").cast(pa.binary())
        if column.null_count:
            row = self._rows + column.is_null().index(True).as_py()
            raise SchemaError(f"column 'record', row {row}: a TFRecord file cannot hold null")
        self._rows += len(column)
        _, ends, data = column.buffers()
        offsets = (
            np.frombuffer(ends, np.int32, len(column) + 1, column.offset * 4) if len(column) else np.zeros(1, np.int32)
        )
        frame = layout.HEADER_SIZE + layout.CHECKSUM.size
        out = np.empty(int(offsets[-1]) - int(offsets[0]) + frame * len(column), np.uint8)
        kernels.write(np.frombuffer(data or b"", np.uint8), offsets, out)
        self._file.write(out)

    def finish(self) -> list[Staged]:
        return [self._file.finish()]

    def abort(self) -> None:
        self._file.discard(self.storage)


class TFRecord(Format):
    """The format."""

    name = "tfrecord"
    title = "TFRecord file"
    suffix = ".tfrecord"
    views: ClassVar = {"rows": "one row per record", "damage": "one row per damaged range"}
    read_options = ReadOptions
    write_options = WriteOptions

    def match(self, file: File, head: bytes) -> Match:
        if len(head) >= layout.HEADER_SIZE:
            data = np.frombuffer(head, np.uint8)
            if kernels.sound(Window(data, *map(np.uint64, (0, len(head), file.size))), np.uint64(0), None, None):
                return Match.CONTENT
        return Match.NAME if file.name.endswith(self.suffix) else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        return [file for file in files if file.explicit or file.name.endswith(self.suffix)]

    def open(self, files: Sequence[File], scan: Scan) -> Dataset:
        return Records(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        return RecordWriter(path, schema, storage)

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> FileReport:
        findings = Findings("skip")
        scan = Scan(options=options, on_damage="skip", storage=storage)
        whole = RecordRange(scan, Projection.of(RECORD, scan), file.path, file.size, file, 0, file.size)
        with self.writer(target, RECORD, None, storage) as writer:
            for batch in whole.to_batches(findings):
                writer.write(batch)
        return FileReport.of(file.path, file.size, [findings])
