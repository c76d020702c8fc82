"""Formats whose files are chains of records that are bytes: one column, `record`.

What such a format has to bring is a `judge` and a kernel (see `sawlog.chain`), its options, and what a record looks
like when it is written; fragments, cuts, streams, writing and repairing are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import find_index, view_binary
from sawlog.chain.kernels import make_head_window
from sawlog.errors import SchemaError
from sawlog.format.contract import (
    BoundScan,
    Contents,
    FileRange,
    FileWriter,
    Format,
    Fragment,
    Match,
    Range,
    View,
    Writer,
    find_intact_end,
)
from sawlog.format.damage import Findings
from sawlog.format.options import MAX_RECORD_BYTES, check_record_bytes
from sawlog.format.scan import OFFSET_COLUMN, Scan
from sawlog.storage import File, Storage
from sawlog.storage.sources import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.chain.walk import ChainWalk

RECORD_COLUMN = "record"
_RECORD_SCHEMA = pa.schema([pa.field(RECORD_COLUMN, pa.binary(), nullable=False)])


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Read options of formats whose files are chains of records.

    Attributes:
        verify_checksums: Whether checksums of their bytes are verified.
        max_item_bytes: Longer records are damage.
    """

    verify_checksums: bool = True
    max_item_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        check_record_bytes(self.max_item_bytes)


class RecordFormat(Format):
    """A format of such files.

    Attributes:
        frame: Bytes that a record takes in a file besides its own.
        write: `write(data, offsets, out)`, the kernel that lays records out, see `encode_records`.
        probe: `probe(window)`, the kernel that says whether a file begins with a record.
        probe_size: Bytes that it looks at.
    """

    views: ClassVar = {"rows": "one row per record", "damage": "one row per damaged range"}
    read_options: ClassVar[type] = RecordOptions
    frame: ClassVar[int]
    write: ClassVar[Any]
    probe: ClassVar[Any]
    probe_size: ClassVar[int]

    @abstractmethod
    def walk(self, part: RecordRange, source: Source, schema: pa.Schema, findings: Findings) -> ChainWalk:
        """Return a walk over a range, such as a `sawlog.chain.record_walk.RecordWalk`."""

    def encode_records(self, data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return records as they are in a file: record `i` is `data[offsets[i] : offsets[i + 1]]`."""
        out = np.empty(int(offsets[-1]) - int(offsets[0]) + self.frame * (len(offsets) - 1), np.uint8)
        type(self).write(data, offsets, out)
        return out

    def match(self, file: File, head: bytes) -> Match:
        if len(head) >= self.probe_size and type(self).probe(make_head_window(head, file.size)):
            return Match.CONTENT
        return Match.NAME if file.name.endswith(self.suffix) else Match.NO

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        return RecordContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        del options
        return _EncodingWriter(self, path, schema, storage)


@dataclass(frozen=True)
class RecordRange(FileRange):
    """The records that begin in `[start, end)`; both are ends of records, or of the file."""

    format: RecordFormat

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        with closing(self.scan.storage.open(self.file, self.end)) as source:
            yield from self.format.walk(self, source, schema, findings).read_batches()


class RecordContents(Contents):
    """Files of records, one after the other."""

    format: RecordFormat

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Return the end of the last complete record, as one walk over the rest of the file finds it."""
        findings = Findings("skip", drained=True, columns=[])
        remaining_range = self._make_range(request, file, position, file.size)
        return find_intact_end(remaining_range.decode(pa.schema([]), findings), findings, file.size)

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Yield a fragment for each range."""
        return [self._make_range(request, replace(file, size=end), start, end) for file, start, end in ranges]

    def _plan_ranges(self, request: BoundScan, task_bytes: int | None) -> Iterator[RecordRange]:
        """Yield ranges of files, cut where the same walk finds records, without looking at their data."""
        for file in self.files:
            start = 0
            if task_bytes and file.size > task_bytes:
                for begin in self._starts(request, file):
                    if begin - start >= task_bytes:
                        yield self._make_range(request, file, start, begin)
                        start = begin
            yield self._make_range(request, file, start, file.size)

    def _make_range(self, request: BoundScan, file: File, start: int, end: int) -> RecordRange:
        return RecordRange(*request, file.path, end - start, file, start, end, self.format)

    def _starts(self, request: BoundScan, file: File) -> Iterator[int]:
        options = self.scan.options
        if "verify_checksums" in {option.name for option in fields(options)}:
            options = replace(options, verify_checksums=False)
        whole_file = replace(self._make_range(request, file, 0, file.size), scan=replace(self.scan, options=options))
        offsets = pa.schema([pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)])
        for batch in whole_file.decode(offsets, Findings("skip")):
            yield from batch.column(0).to_pylist()

    views: ClassVar = {"rows": View(_RECORD_SCHEMA, _plan_ranges)}


class RecordWriter(FileWriter):
    """Writes one file of records.

    Attributes:
        format_name: The format's name, for messages.
        file_kind: What people call such a file, for messages.

    Raises:
        SchemaError: When the data is anything but one binary (or string) column named `record`.
    """

    format_name: str
    file_kind: str

    def __init__(self, schema: pa.Schema, storage: Storage) -> None:
        self.storage = storage
        self._rows = 0
        if schema.names != [RECORD_COLUMN]:
            column_names = ", ".join(schema.names) or "none"
            raise SchemaError(f"a {self.format_name} holds one column, {RECORD_COLUMN!r}; found: {column_names}")
        kind = schema.field(RECORD_COLUMN).type
        is_supported = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
        views = (pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_fixed_size_binary)
        if not any(test(kind) for test in (*is_supported, *views)):
            raise SchemaError(f"column {RECORD_COLUMN!r} is {kind}; a {self.file_kind} holds binary")

    def write(self, batch: pa.RecordBatch) -> None:
        column = batch.column(RECORD_COLUMN)
        if column.null_count:
            row = self._rows + find_index(column.is_null(), True)
            raise SchemaError(f"column {RECORD_COLUMN!r}, row {row}: a {self.file_kind} cannot hold null")
        self._rows += batch.num_rows
        for offsets, data in _split_column(column):
            self._write_piece(offsets, data)

    @abstractmethod
    def _write_piece(self, offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> None:
        """Append records: record `i` is `data[offsets[i] : offsets[i + 1]]`."""


class _EncodingWriter(RecordWriter):
    """Writes what a `RecordFormat` encodes."""

    def __init__(self, format: RecordFormat, path: str, schema: pa.Schema, storage: Storage) -> None:
        self.format_name, self.file_kind = format.name, format.title
        super().__init__(schema, storage)
        self._format = format
        self._file = storage.stage(path)

    def _write_piece(self, offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> None:
        self._file.write(self._format.encode_records(data, offsets))


def _split_column(column: pa.Array) -> Iterator[tuple[NDArray[np.int32], NDArray[np.uint8]]]:
    """Yield a column as offsets and the data they point into, in parts where the data is larger than they reach."""
    if not len(column):
        return
    kind = column.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    data, offsets = view_binary(column)
    if offsets.dtype == np.int32:
        yield offsets, data
        return
    first = 0
    while first < len(column):
        start = int(offsets[first])
        last = int(offsets.searchsorted(start + MAX_RECORD_BYTES, "right")) - 1
        if last <= first:
            raise SchemaError(f"column {RECORD_COLUMN!r}: a record of 2 GiB or more")
        yield (offsets[first : last + 1] - start).astype(np.int32), data[start : int(offsets[last])]
        first = last
