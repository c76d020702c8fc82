"""The table files that `sawlog convert` knows besides logs: Parquet, Arrow, CSV, JSON lines, databases."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from sawlog.arrow import GrowingDictionary, is_text, make_array, validate_batches
from sawlog.cli.databases import DatabaseWriteOptions, DuckdbEncoder, SqliteEncoder, refuse_reading
from sawlog.cli.output import Advance, make_text_sink
from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.format.contract import FileWriter
from sawlog.format.options import NoOptions
from sawlog.format.printing import DECODE, ENCODE, BinaryText, encode_json_lines, make_text_array
from sawlog.guard import Undecodable, call_decoder
from sawlog.storage import File, Storage, is_remote, normalize
from sawlog.storage.sources import SourceFile
from sawlog.storage.staging import STDOUT

BATCH_ROWS = 64 << 10
_ROW_GROUP_BYTES = 64 << 20
"""Arrow bytes collected for a row group of Parquet."""
_BLOCK_BYTES = 16 << 20
"""Bytes of text parsed at a time; no line may be longer."""

Rows: TypeAlias = "tuple[pa.Schema, Iterator[pa.RecordBatch]]"


@dataclass(frozen=True, slots=True)
class _ParquetWriteOptions:
    """Options for writing Parquet.

    Attributes:
        compression: Codec of all columns.
    """

    compression: Literal["none", "snappy", "gzip", "brotli", "zstd", "lz4"] = "zstd"


@dataclass(frozen=True, slots=True)
class _ArrowWriteOptions:
    """Options for writing Arrow IPC files.

    Attributes:
        compression: Codec of all buffers.
    """

    compression: Literal["none", "zstd", "lz4"] = "none"


@dataclass(frozen=True, slots=True)
class _TextReadOptions:
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


class Encoder(Protocol):
    """Writes one file on a sink; made with the sink, a schema and options."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Complete the file; the sink stays open."""


class _ParquetEncoder:
    """Parquet in row groups of about `_ROW_GROUP_BYTES`."""

    def __init__(self, sink: Any, schema: pa.Schema, options: _ParquetWriteOptions) -> None:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(sink, schema, compression=options.compression)
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._batches.append(batch)
        if sum(pending.nbytes for pending in self._batches) >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the last row group, and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
        self._batches = []


class _ArrowEncoder:
    """Encoder of Arrow IPC files, in which a column has one dictionary that later batches may only add to."""

    def __init__(self, sink: Any, schema: pa.Schema, options: _ArrowWriteOptions) -> None:
        compression = None if options.compression == "none" else options.compression
        ipc = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
        self._writer = pa.ipc.new_file(sink, schema, options=ipc)
        places = (place for place, field in enumerate(schema) if pa.types.is_dictionary(field.type))
        self._dictionaries = {place: GrowingDictionary() for place in places}
        self.close = self._writer.close

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        for place, dictionary in self._dictionaries.items():
            batch = batch.set_column(place, batch.schema.field(place), dictionary.take(batch.column(place)))
        self._writer.write_batch(batch)


class CsvEncoder:
    """CSV with a header line. Null is nothing, the empty string is `""`; nested values are JSON."""

    def __init__(self, sink: Any, schema: pa.Schema, options: TextWriteOptions) -> None:
        from pyarrow import csv

        self._encode, self._names = ENCODE[options.binary], schema.names
        self._writer = csv.CSVWriter(sink, self._convert_to_text([pa.nulls(0, field.type) for field in schema]).schema)
        self.close = self._writer.close

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write(self._convert_to_text(batch.columns))

    def _convert_to_text(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [make_text_array(column, self._encode) for column in columns], names=self._names
        )


class JsonlEncoder:
    """Encoder of rows as JSON objects, one per line."""

    def __init__(self, sink: Any, schema: pa.Schema, options: TextWriteOptions) -> None:
        self._sink, self._encode = sink, ENCODE[options.binary]

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._sink.write("".join(f"{line}\n" for line in encode_json_lines(batch, self._encode)).encode())

    def close(self) -> None:
        """Do nothing: a file of lines needs no end."""


def _read_parquet(file: pa.NativeFile, _: NoOptions) -> Rows:
    from pyarrow import parquet

    opened = _run_decoder(parquet.ParquetFile, file)
    return opened.schema_arrow, opened.iter_batches(BATCH_ROWS)


def _read_arrow(file: pa.NativeFile, _: NoOptions) -> Rows:
    """Return the schema and batches of an Arrow IPC file."""
    opened = _run_decoder(pa.ipc.open_file, file)
    return opened.schema, map(opened.get_batch, range(opened.num_record_batches))


def read_csv(file: pa.NativeFile, options: _TextReadOptions) -> Rows:
    """Return the rows, of types that are inferred from the first block."""
    from pyarrow import csv

    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(options.binary_columns, pa.large_string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    opened = _run_decoder(csv.open_csv, file, csv.ReadOptions(block_size=_BLOCK_BYTES), parse, convert)
    return _with_binary(opened, options)


def _read_jsonl(file: pa.NativeFile, options: _TextReadOptions) -> Rows:
    """Return the rows, of types that are inferred from the first block."""
    from pyarrow import json

    return _with_binary(_run_decoder(json.open_json, file, json.ReadOptions(block_size=_BLOCK_BYTES)), options)


def _run_decoder(decoder: Callable[..., Any], *args: Any) -> Any:
    """Return what a library's decoder returns.

    Raises:
        FormatError: When it cannot decode the file.
    """
    decoded = call_decoder(decoder, *args)
    if isinstance(decoded, Undecodable):
        raise FormatError(decoded.detail)
    return decoded


@dataclass(frozen=True)
class TableFormat:
    """Kind of table file, known by its suffixes; it writes the first of them."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    read: Callable[[pa.NativeFile, Any], Rows]
    encoder: Callable[[Any, pa.Schema, Any], Encoder]
    read_options: type
    write_options: type

    @property
    def suffix(self) -> str:
        """The suffix that is written."""
        return self.suffixes[0]

    @property
    def is_text(self) -> bool:
        """Whether its files may be shown on a terminal."""
        return self.write_options is TextWriteOptions

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> TableWriter:
        """Begin a file that appears at `path` when it is published.

        Raises:
            SchemaError: When two columns have one name.
        """
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise SchemaError(f"two columns are named {name!r}; {self.title} cannot tell them apart")
        return TableWriter(path, lambda sink: self.encoder(sink, schema, options), storage)

    def open_partitioned_writer(self, path: str, column: str, *_: Any) -> TableWriter:
        """Refuse: that is what other tools are for."""
        raise OptionError(f"--partition-by {column}: {self.title} is written as one file")

    def open(self, file: File, options: Any, storage: Storage) -> Rows:
        """Return the schema and rows of one file, in batches of bounded size.

        Raises:
            FormatError: When it cannot be read; names the file.
        """
        name = normalize(file.path)
        with self._explain_errors(file):
            stream = pa.PythonFile(SourceFile(storage.open(name)), mode="r") if is_remote(name) else pa.OSFile(name)
            schema, rows = self.read(stream, options)
        return schema, self._cut_batches(rows, file)

    def _cut_batches(self, rows: Iterator[pa.RecordBatch], file: File) -> Iterator[pa.RecordBatch]:
        with self._explain_errors(file):
            for batch in validate_batches(iter(partial(_run_decoder, next, rows, None), None)):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)

    @contextlib.contextmanager
    def _explain_errors(self, file: File) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            raise FormatError(f"{file.path}: not readable as {self.title}: {error}") from error
        except SchemaError as error:
            raise SchemaError(f"{file.path}: {error}") from error


TABLE_FORMATS: dict[str, TableFormat] = {
    table_format.name: table_format
    for table_format in (
        TableFormat(
            "parquet",
            "Parquet",
            (".parquet", ".parq", ".pq"),
            _read_parquet,
            _ParquetEncoder,
            NoOptions,
            _ParquetWriteOptions,
        ),
        TableFormat(
            "arrow",
            "Arrow IPC file",
            (".arrow", ".feather", ".ipc"),
            _read_arrow,
            _ArrowEncoder,
            NoOptions,
            _ArrowWriteOptions,
        ),
        TableFormat("csv", "CSV", (".csv",), read_csv, CsvEncoder, _TextReadOptions, TextWriteOptions),
        TableFormat(
            "jsonl", "JSON lines", (".jsonl", ".ndjson"), _read_jsonl, JsonlEncoder, _TextReadOptions, TextWriteOptions
        ),
        TableFormat(
            "duckdb", "DuckDB database", (".duckdb",), refuse_reading, DuckdbEncoder, NoOptions, DatabaseWriteOptions
        ),
        TableFormat(
            "sqlite",
            "SQLite database",
            (".sqlite", ".sqlite3"),
            refuse_reading,
            SqliteEncoder,
            NoOptions,
            DatabaseWriteOptions,
        ),
    )
}
"""By name."""


class TableWriter(FileWriter):
    """Writer of a table file, written next to its place and renamed when it is whole."""

    def __init__(self, path: str, encoder: Callable[[Any], Encoder], storage: Storage) -> None:
        self.storage = storage
        self._file = storage.stage(path)
        try:
            with _explain_write_errors():
                write = make_text_sink(self._file.write) if path in STDOUT else self._file.write
                self._encoder = encoder(pa.PythonFile(Sink(write), mode="w"))
        except BaseException:
            self._file.discard(storage)
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        with _explain_write_errors():
            self._encoder.write(batch)

    def _flush(self) -> None:
        with _explain_write_errors():
            self._encoder.close()

    def abort(self) -> None:
        super().abort()
        with contextlib.suppress(pa.ArrowException, OSError, ValueError, SchemaError):
            self._encoder.close()  # whose sink is closed: no end is written that would make it look whole


class Sink(io.RawIOBase):
    """Sink of bytes, as pyarrow wants it."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write

    def writable(self) -> bool:
        """Return True: bytes can always be written."""
        return True

    def write(self, data: Any) -> int:
        """Hand on bytes."""
        self._write(data)
        return len(data)


@contextlib.contextmanager
def _explain_write_errors() -> Iterator[None]:
    """Report, in the block, types and values that Arrow cannot write as the data's fault."""
    try:
        yield
    except pa.ArrowException as error:
        raise SchemaError(f"cannot be written: {error}") from error


def find_by_suffix(path: str) -> TableFormat | None:
    """Return the table format of a file's suffix."""
    lowered = path.lower()
    return next(
        (table_format for table_format in TABLE_FORMATS.values() if lowered.endswith(table_format.suffixes)), None
    )


def open_tables(
    format: TableFormat, files: Sequence[File], options: Any, storage: Storage
) -> tuple[pa.Schema, Callable[[Advance], Iterator[pa.RecordBatch]]]:
    """Return the schema of some files, and how to read their rows, once.

    Raises:
        FormatError: When a file cannot be read as the format.
        SchemaError: When a file has other columns than the first one.
    """
    schema, first = format.open(files[0], options, storage)

    def read_batches(advance: Advance) -> Iterator[pa.RecordBatch]:
        for file in files:
            file_schema, rows = (schema, first) if file is files[0] else format.open(file, options, storage)
            if file_schema != schema:
                raise SchemaError(f"{file.path}: columns differ from those of {files[0].path}")
            yield from rows
            advance(file.size)

    return schema, read_batches


def _with_binary(reader: Any, options: _TextReadOptions) -> Rows:
    """Return rows of text columns, with binary made of those that hold it."""
    names, schema = options.binary_columns, reader.schema
    for name in names:
        if name not in schema.names:
            raise SchemaError(f"binary_columns: no column {name!r}; columns: {', '.join(schema.names)}")
        if not is_text(schema.field(name).type):
            raise SchemaError(f"binary_columns: column {name!r} is {schema.field(name).type}, not text")
    decoded = pa.schema([pa.field(f.name, pa.large_binary()) if f.name in names else f for f in schema])

    def read_batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in reader:
            columns = zip(batch.schema.names, batch.columns, strict=True)
            arrays = [
                _decode_column(column, name, row, options.binary) if name in names else column
                for name, column in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=decoded)
            row += batch.num_rows

    return decoded, read_batches()


def _decode_column(column: pa.Array, name: str, first: int, binary: BinaryText) -> pa.Array:
    items: list[bytes | None] = []
    for text in column.to_pylist():
        try:
            items.append(None if text is None else DECODE[binary](text))
        except ValueError as error:
            raise SchemaError(f"column {name!r}, row {first + len(items)}: not binary as {binary}: {error}") from error
    return make_array(items, pa.large_binary())
