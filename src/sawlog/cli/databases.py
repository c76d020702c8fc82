"""The databases that `sawlog convert` writes: DuckDB and SQLite, each one file with one table."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from sawlog.arrow import is_binary
from sawlog.errors import DiskError, FormatError, SchemaError
from sawlog.format.printing import encode_texts, encode_values
from sawlog.guard import import_optional

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DatabaseWriteOptions:
    """Options for writing a database.

    Attributes:
        table: Name of its table.
    """

    table: str = "rows"


class DatabaseEncoder:
    """A database that is made in the directory for temporary files, and copied to its sink when it is complete.

    Raises:
        SchemaError: For columns whose names differ in case only.
    """

    def __init__(self, sink: Any, schema: pa.Schema, options: DatabaseWriteOptions) -> None:
        self._sink, self._table = sink, _quote(options.table)
        names = [name.casefold() for name in schema.names]
        for name in schema.names:
            if names.count(name.casefold()) > 1:
                raise SchemaError(
                    f"two columns are named {name!r} but for upper and lower case; databases do not tell them apart"
                )
        self._place = tempfile.TemporaryDirectory(prefix="sawlog-")
        self._path = os.path.join(self._place.name, "database")

    def _copy(self) -> None:
        with self._place, open(self._path, "rb") as database:
            shutil.copyfileobj(database, self._sink, _PIECE_BYTES)


class SqliteEncoder(DatabaseEncoder):
    """Integers, floats, text and BLOBs; what SQLite has no type for is text, as JSON lines have it."""

    def __init__(self, sink: Any, schema: pa.Schema, options: DatabaseWriteOptions) -> None:
        import sqlite3

        super().__init__(sink, schema, options)
        columns = ", ".join(f"{_quote(field.name)} {_choose_sqlite_type(field.type)}" for field in schema)
        with _explain_errors(sqlite3.Error, ()):
            self._database = sqlite3.connect(self._path, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute(f"CREATE TABLE {self._table} ({columns})")
            self._database.execute("BEGIN")
        self._insert = f"INSERT INTO {self._table} VALUES ({', '.join('?' * len(schema))})"  # noqa: S608 # quoted

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        import sqlite3

        columns = [_convert_sqlite_values(column) for column in batch.columns]
        with _explain_errors((sqlite3.Error, OverflowError), (sqlite3.OperationalError,)):
            self._database.executemany(self._insert, zip(*columns, strict=True))

    def close(self) -> None:
        """Complete the file."""
        import sqlite3

        with _explain_errors(sqlite3.Error, (sqlite3.OperationalError,)):
            self._database.execute("COMMIT")
            self._database.close()
        self._copy()


class DuckdbEncoder(DatabaseEncoder):
    """Columns have DuckDB's types; where it has fewer digits of a time than the rows, that is an error."""

    def __init__(self, sink: Any, schema: pa.Schema, options: DatabaseWriteOptions) -> None:
        self._duckdb = import_optional("duckdb", "sql", "DuckDB databases")
        super().__init__(sink, schema, options)
        self._schema = pa.schema([pa.field(field.name, _choose_duckdb_type(field.type)) for field in schema])
        with _explain_errors(self._duckdb.Error, ()):
            self._database = self._duckdb.connect(self._path)
            self._run("CREATE TABLE {} AS SELECT * FROM incoming", pa.Table.from_batches([], self._schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        table = pa.Table.from_batches([batch]).cast(self._schema)
        with _explain_errors(self._duckdb.Error, (self._duckdb.IOException, self._duckdb.OutOfMemoryException)):
            self._run("INSERT INTO {} SELECT * FROM incoming", table)

    def close(self) -> None:
        """Complete the file."""
        with _explain_errors(self._duckdb.Error, (self._duckdb.Error,)):
            self._database.close()
        self._copy()

    def _run(self, statement: str, incoming: pa.Table) -> None:
        self._database.register("incoming", incoming)
        self._database.execute(statement.format(self._table))
        self._database.unregister("incoming")


def refuse_reading(*_: object) -> NoReturn:
    """Refuse: a database has a reader of its own.

    Raises:
        FormatError: Always.
    """
    raise FormatError("sawlog writes databases and does not read them; export a table as Parquet or CSV")


@contextmanager
def _explain_errors(all_errors: Any, of_disk: tuple[type[Exception], ...]) -> Iterator[None]:
    """Explain errors of a database: of the disk, or of values and types that it does not have."""
    try:
        yield
    except of_disk as error:
        raise DiskError(f"cannot be written: {error}") from error
    except all_errors as error:
        raise SchemaError(f"cannot be written: {error}") from error


def _quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _choose_sqlite_type(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _choose_sqlite_type(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if is_binary(kind) else "TEXT"


def _convert_sqlite_values(column: pa.Array) -> list[Any]:
    """Return values as SQLite takes them; of floats, NaN is text, as SQLite would make NULL of it."""
    kind = _choose_sqlite_type(column.type)
    if kind == "BLOB":
        return list(column.to_pylist())
    return list(encode_texts(column)) if kind == "TEXT" else encode_values(column)


def _choose_duckdb_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column as DuckDB can hold all of it: it knows zones with microseconds only."""
    if pa.types.is_dictionary(kind):
        return _choose_duckdb_type(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("ns")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_choose_duckdb_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_choose_duckdb_type(kind.key_type), _choose_duckdb_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return (pa.list_ if pa.types.is_list(kind) else pa.large_list)(_choose_duckdb_type(kind.value_type))
    return kind
