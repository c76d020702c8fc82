"""The table files that `sawlog convert` knows besides logs: Parquet, Arrow, CSV and JSON lines."""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from sawlog.arrow import GrowingDictionary
from sawlog.cli.output import Advance
from sawlog.cli.render import DECODE, ENCODE, BinaryText, binary_array, is_text, json_lines, text_array
from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.format import Writer
from sawlog.options import NoOptions
from sawlog.storage import File, Source, Staged, Storage, is_remote, normalize

BATCH_ROWS = 64 << 10
ROW_GROUP_BYTES = 64 << 20
"""Arrow bytes collected for a row group of Parquet."""
BLOCK_BYTES = 16 << 20
"""Bytes of text parsed at a time; no line may be longer."""


@dataclass(frozen=True, slots=True)
class ParquetWriteOptions:
    """Options for writing Parquet.

    Attributes:
        compression: Codec of all columns.
    """

    compression: Literal["none", "snappy", "gzip", "brotli", "zstd", "lz4"] = "zstd"


@dataclass(frozen=True, slots=True)
class ArrowWriteOptions:
    """Options for writing Arrow IPC files.

    Attributes:
        compression: Codec of all buffers.
    """

    compression: Literal["none", "zstd", "lz4"] = "none"


@dataclass(frozen=True, slots=True)
class TextReadOptions:
    r"""Options for reading CSV and JSON lines.

    Attributes:
        binary_columns: Columns that hold binary as text.
        binary: How they hold it: `escape` is text with `\xNN` and doubled backslashes, as sawlog writes it.
    """

    binary_columns: tuple[str, ...] = ()
    binary: BinaryText = "escape"


@dataclass(frozen=True, slots=True)
class TextWriteOptions:
    r"""Options for writing CSV and JSON lines.

    Attributes:
        binary: How binary becomes text: `escape` is UTF-8 with `\xNN` for bytes that are not part of a printable
            character, and doubled backslashes.
    """

    binary: BinaryText = "escape"


class TableFormat(ABC):
    """One kind of table file."""

    name: ClassVar[str]
    title: ClassVar[str]
    suffix: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """All suffixes that it is known by."""
    read_options: ClassVar[type]
    write_options: ClassVar[type]

    @abstractmethod
    def read(self, file: pa.NativeFile, options: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Schema and rows of one file."""

    @abstractmethod
    def encoder(self, sink: Any, schema: pa.Schema, options: Any) -> Encoder:
        """Begin a file on a sink with `write`."""

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> TableWriter:
        """Begin a file that appears at `path` when it is published.

        Raises:
            SchemaError: When two columns have one name.
        """
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise SchemaError(f"two columns are named {name!r}; {self.title} cannot tell them apart")
        return TableWriter(path, lambda sink: self.encoder(sink, schema, options), storage)

    def partitioned_writer(
        self, path: str, column: str, schema: pa.Schema, options: Any, storage: Storage
    ) -> TableWriter:
        """Refused: that is what other tools are for.

        Raises:
            OptionError: Always.
        """
        raise OptionError(f"--partition-by {column}: {self.title} is written as one file")


class Encoder(ABC):
    """Makes the bytes of one file."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    @abstractmethod
    def close(self) -> None:
        """Write what completes the file."""


class TableWriter(Writer):
    """One table file, written beside its place and renamed when it is whole."""

    def __init__(self, path: str, encoder: Callable[[Any], Encoder], storage: Storage) -> None:
        self.storage = storage
        self._staged = storage.stage(path)
        try:
            with _explained():
                self._encoder = encoder(pa.PythonFile(_Sink(self._staged.write), mode="w"))
        except BaseException:
            self._staged.discard(storage)
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer.write`."""
        with _explained():
            self._encoder.write(batch)

    def finish(self) -> list[Staged]:
        """See `Writer.finish`."""
        with _explained():
            self._encoder.close()
        return [self._staged.finish()]

    def abort(self) -> None:
        """See `Writer.abort`."""
        with contextlib.suppress(pa.ArrowException, OSError, ValueError):
            self._encoder.close()
        self._staged.discard(self.storage)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Types and values that Arrow cannot write are the data's fault."""
    try:
        yield
    except pa.ArrowException as error:
        raise SchemaError(f"cannot be written: {error}") from error


class Parquet(TableFormat):
    """Parquet files."""

    name = "parquet"
    title = "Parquet"
    suffix = ".parquet"
    suffixes = (".parquet", ".parq", ".pq")
    read_options = NoOptions
    write_options = ParquetWriteOptions

    def read(self, file: pa.NativeFile, options: NoOptions) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """See `TableFormat.read`."""
        from pyarrow import parquet

        opened = parquet.ParquetFile(file)
        return opened.schema_arrow, opened.iter_batches(BATCH_ROWS)

    def encoder(self, sink: Any, schema: pa.Schema, options: ParquetWriteOptions) -> Encoder:
        """See `TableFormat.encoder`."""
        return _ParquetEncoder(sink, schema, options)


class _ParquetEncoder(Encoder):
    def __init__(self, sink: Any, schema: pa.Schema, options: ParquetWriteOptions) -> None:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(sink, schema, compression=options.compression)
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
        self._batches, self._size = [], 0


class Arrow(TableFormat):
    """Arrow IPC files, also known as Feather."""

    name = "arrow"
    title = "Arrow IPC file"
    suffix = ".arrow"
    suffixes = (".arrow", ".feather", ".ipc")
    read_options = NoOptions
    write_options = ArrowWriteOptions

    def read(self, file: pa.NativeFile, options: NoOptions) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """See `TableFormat.read`."""
        opened = pa.ipc.open_file(file)
        return opened.schema, (opened.get_batch(index) for index in range(opened.num_record_batches))

    def encoder(self, sink: Any, schema: pa.Schema, options: ArrowWriteOptions) -> Encoder:
        """See `TableFormat.encoder`."""
        compression = None if options.compression == "none" else options.compression
        # A file holds one dictionary per column, which later batches may only add to.
        ipc = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
        return _ArrowEncoder(pa.ipc.new_file(sink, schema, options=ipc), schema)


class _ArrowEncoder(Encoder):
    def __init__(self, writer: pa.RecordBatchFileWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._dictionaries = {
            place: GrowingDictionary() for place, field in enumerate(schema) if pa.types.is_dictionary(field.type)
        }

    def write(self, batch: pa.RecordBatch) -> None:
        for place, dictionary in self._dictionaries.items():
            batch = batch.set_column(place, batch.schema.field(place), dictionary.take(batch.column(place)))
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class Csv(TableFormat):
    """CSV with a header line. Null is nothing, the empty string is `""`; nested values are JSON."""

    name = "csv"
    title = "CSV"
    suffix = ".csv"
    suffixes = (".csv",)
    read_options = TextReadOptions
    write_options = TextWriteOptions

    def read(self, file: pa.NativeFile, options: TextReadOptions) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """See `TableFormat.read`. Types are inferred from the first block."""
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types={name: pa.large_string() for name in options.binary_columns},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        parse = csv.ParseOptions(newlines_in_values=True)
        reader = csv.open_csv(file, csv.ReadOptions(block_size=BLOCK_BYTES), parse, convert)
        return _with_binary(reader, options)

    def encoder(self, sink: Any, schema: pa.Schema, options: TextWriteOptions) -> Encoder:
        """See `TableFormat.encoder`."""
        return CsvEncoder(sink, schema, options)


class CsvEncoder(Encoder):
    """Makes CSV of record batches."""

    def __init__(self, sink: Any, schema: pa.Schema, options: TextWriteOptions) -> None:
        from pyarrow import csv

        self._encode = ENCODE[options.binary]
        self._names = schema.names
        empty = [text_array(pa.nulls(0, field.type), self._encode) for field in schema]
        self._writer = csv.CSVWriter(sink, pa.RecordBatch.from_arrays(empty, names=self._names).schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Encoder.write`."""
        arrays = [text_array(column, self._encode) for column in batch.columns]
        self._writer.write(pa.RecordBatch.from_arrays(arrays, names=self._names))

    def close(self) -> None:
        """See `Encoder.close`."""
        self._writer.close()


class Jsonl(TableFormat):
    """JSON lines: one object per row."""

    name = "jsonl"
    title = "JSON lines"
    suffix = ".jsonl"
    suffixes = (".jsonl", ".ndjson")
    read_options = TextReadOptions
    write_options = TextWriteOptions

    def read(self, file: pa.NativeFile, options: TextReadOptions) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """See `TableFormat.read`. Types are inferred from the first block."""
        from pyarrow import json

        return _with_binary(json.open_json(file, json.ReadOptions(block_size=BLOCK_BYTES)), options)

    def encoder(self, sink: Any, schema: pa.Schema, options: TextWriteOptions) -> Encoder:
        """See `TableFormat.encoder`."""
        return JsonlEncoder(sink, options)


class JsonlEncoder(Encoder):
    """Makes JSON lines of record batches."""

    def __init__(self, sink: Any, options: TextWriteOptions) -> None:
        self._sink = sink
        self._encode = ENCODE[options.binary]

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Encoder.write`."""
        self._sink.write("".join(f"{line}\n" for line in json_lines(batch, self._encode)).encode())

    def close(self) -> None:
        """See `Encoder.close`."""


TABLE_FORMATS: dict[str, TableFormat] = {one.name: one for one in (Parquet(), Arrow(), Csv(), Jsonl())}
"""By name."""


def by_suffix(path: str) -> TableFormat | None:
    """The table format that a file's suffix stands for."""
    lowered = path.lower()
    return next((one for one in TABLE_FORMATS.values() if lowered.endswith(one.suffixes)), None)


def select(files: Sequence[File], format: TableFormat) -> list[File]:
    """Those files that the user named, or that have a suffix of the format."""
    return [file for file in files if file.explicit or by_suffix(file.path) is format]


def open_tables(
    format: TableFormat, files: Sequence[File], options: Any, storage: Storage
) -> tuple[pa.Schema, Callable[[Advance], Iterator[pa.RecordBatch]]]:
    """Schema of some files, and how to read their rows, once.

    Raises:
        FormatError: When a file cannot be read as the format.
        SchemaError: When a file has other columns than the first one.
    """
    schema, first = _open(format, files[0], options, storage)

    def batches(advance: Advance) -> Iterator[pa.RecordBatch]:
        for index, file in enumerate(files):
            own, rows = _open(format, file, options, storage) if index else (schema, first)
            if own != schema:
                raise SchemaError(f"{file.path}: columns differ from those of {files[0].path}")
            yield from _bounded(rows, file, format)
            advance(file.size)

    return schema, batches


def _open(
    format: TableFormat, file: File, options: Any, storage: Storage
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    name = normalize(file.path)
    opened = pa.PythonFile(_SourceFile(storage.open(name)), mode="r") if is_remote(name) else pa.OSFile(name)
    try:
        return format.read(opened, options)
    except pa.ArrowException as error:
        raise FormatError(f"{file.path}: not readable as {format.title}: {error}") from error


def _bounded(rows: Iterator[pa.RecordBatch], file: File, format: TableFormat) -> Iterator[pa.RecordBatch]:
    """Batches of bounded size; errors name the file."""
    try:
        for batch in rows:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)
    except pa.ArrowException as error:
        raise FormatError(f"{file.path}: not readable as {format.title}: {error}") from error


def _with_binary(reader: Any, options: TextReadOptions) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A stream of text columns, with binary made of those that hold it."""
    names = options.binary_columns
    schema = reader.schema
    for name in names:
        if name not in schema.names:
            raise SchemaError(f"binary_columns: no column {name!r}; columns: {', '.join(schema.names)}")
        if not is_text(schema.field(name).type):
            raise SchemaError(f"binary_columns: column {name!r} is {schema.field(name).type}, not text")
    fields = [pa.field(f.name, pa.large_binary()) if f.name in names else f for f in schema]
    decoded = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in reader:
            arrays = [
                _decoded(column, name, row, options.binary) if name in names else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=decoded)
            row += batch.num_rows

    return decoded, batches()


def _decoded(column: pa.Array, name: str, first: int, binary: BinaryText) -> pa.Array:
    decode = DECODE[binary]
    items: list[bytes | None] = []
    for text in column.to_pylist():
        try:
            items.append(None if text is None else decode(text))
        except ValueError as error:
            raise SchemaError(f"column {name!r}, row {first + len(items)}: not binary as {binary}: {error}") from error
    return binary_array(items)


class _Sink(io.RawIOBase):
    """A staged file as pyarrow wants it."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write(data)
        return len(data)


class _SourceFile(io.RawIOBase):
    """A source as a file that can be read and sought."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        found = self._source.window(self._position, len(buffer))
        buffer[: len(found)] = found.tobytes()
        self._position += len(found)
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()
