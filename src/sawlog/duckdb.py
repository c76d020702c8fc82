"""SQL over logs with DuckDB, which decodes no more than the columns and rows that a query needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset

from sawlog import api
from sawlog.dataset.dataset import Dataset, Scanner
from sawlog.errors import OptionError
from sawlog.format.capabilities import list_tables
from sawlog.guard import import_optional
from sawlog.storage.inputs import Input

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_SOURCE = re.compile(r"(?P<word>\b(?:from|join)\s+|,\s*)'(?P<path>(?:[^']|'')+)'", re.IGNORECASE)
_OWN_FILES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".db", ".duckdb")
"""What DuckDB reads by itself."""


def register(connection: DuckDBPyConnection, name: str, source: Input | Dataset, **options: Any) -> Dataset:
    """Make a path a table of a connection. Columns and filters of queries are pushed into the decoder.

    Args:
        connection: A connection of DuckDB.
        name: What queries call it.
        source: A dataset, or what `sawlog.open` takes.
        **options: What `sawlog.open` takes besides.

    Returns:
        The dataset.

    Raises:
        OptionError: When the path holds several tables, and the options choose none of them.
    """
    dataset = source if isinstance(source, Dataset) else api.open(source, **options)
    _check_chosen(dataset)
    connection.register(name, ArrowDataset(dataset))
    return dataset


def _check_chosen(dataset: Dataset) -> None:
    """Refuse several tables: they have no columns in common, and DuckDB takes no table without columns.

    Raises:
        OptionError: When the dataset has no columns. Names its tables, and the option that chooses each.
    """
    if dataset.schema.names:
        return
    place = ", ".join(dataset.scan.roots)
    choices = {
        " ".join(f"-o {option}={value}" for option, value in table.options.items()): table.name
        for table in reversed(list_tables(dataset.contents))
    }
    if not choices:
        raise OptionError(f"{place}: no columns, so there is nothing to query")
    listed = ", ".join(f"{option} ({table})" for option, table in sorted(choices.items()))
    raise OptionError(f"{place}: {len(choices)} tables, and a query takes one: choose it with the option {listed}")


def sql(
    query: str, connection: DuckDBPyConnection | None = None, tables: Mapping[str, str] | None = None, **options: Any
) -> DuckDBPyRelation:
    """Run a query whose tables may be paths of logs: `SELECT count(*) FROM 'db/000005.log'`.

    A path may end in `#VIEW`, to name one of the format's views. What DuckDB reads by itself, such as Parquet, it does.

    Args:
        query: SQL, in DuckDB's dialect.
        connection: Where it runs; in a new database in memory if not given.
        tables: Names that the query has for paths.
        **options: What `sawlog.open` takes, for all paths.

    Raises:
        OptionError: When DuckDB is not installed.
    """
    duckdb = import_optional("duckdb", "sql", "SQL needs DuckDB")
    database = duckdb.connect() if connection is None else connection
    statements = database.extract_statements(query)
    names: dict[str, str] = {}

    def add(name: str, path: str) -> None:
        place, mark, view = path.rpartition("#")
        view_options = {**options, "view": view} if mark else options
        register(database, name, place if mark else path, **view_options)

    for name, path in (tables or {}).items():
        add(name, path)

    def replace_path(match: re.Match[str]) -> str:
        path = match["path"].replace("''", "'")
        if path.lower().endswith(_OWN_FILES):
            return match[0]
        if path not in names:
            names[path] = f"sawlog_{len(names)}"
            add(names[path], path)
        return f"{match['word']}{names[path]}"

    translated = _SOURCE.sub(replace_path, query)
    try:
        return database.sql(translated)
    except (duckdb.BinderException, duckdb.CatalogException):
        if len(statements) == 1:
            database.execute(translated)  # raises the same, with the line of the query
        raise


class ArrowDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """A dataset of sawlog that is one of pyarrow, as far as reading goes."""

    def __init__(self, dataset: Dataset) -> None:
        if isinstance(dataset.scan.columns, dict):
            raise OptionError("a dataset whose columns are computed: let the query compute them")
        self._dataset = dataset

    @property
    def schema(self) -> pa.Schema:
        """Columns of the dataset."""
        return self._dataset.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, batch_size: int | None = None, **_: Any
    ) -> Scanner:
        """Return the rows that meet an expression, with some of the columns; pyarrow's other settings mean nothing."""
        if columns is None:
            columns = None if filter is None else self.schema.names
        return self._dataset.scanner(columns, filter, batch_size)

    def to_batches(self, *args: Any, **settings: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows as batches; arguments are those of `scanner`."""
        return self.scanner(*args, **settings).to_batches()

    def to_table(self, *args: Any, **settings: Any) -> pa.Table:
        """Return the rows as a table; arguments are those of `scanner`."""
        return self.scanner(*args, **settings).to_table()

    def head(self, num_rows: int, *args: Any, **settings: Any) -> pa.Table:
        """Return the first rows; other arguments are those of `scanner`."""
        return self.scanner(*args, **settings).head(num_rows)

    def count_rows(self, filter: Any = None, **_: Any) -> int:
        """Return how many rows meet an expression."""
        return self._dataset.count_rows(filter)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArrowDataset, (self._dataset,))
