"""SQL over logs with DuckDB, which decodes no more than the columns and rows that a query needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sawlog import api
from sawlog.format import Dataset
from sawlog.guard import optional
from sawlog.inputs import Input

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
    """
    from sawlog.facade import ArrowDataset

    dataset = source if isinstance(source, Dataset) else api.open(source, **options)
    connection.register(name, ArrowDataset(dataset))
    return dataset


def sql(
    query: str,
    connection: DuckDBPyConnection | None = None,
    tables: Mapping[str, str] | None = None,
    **options: Any,
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
    duckdb = optional("duckdb", "sql", "SQL needs DuckDB")
    database = duckdb.connect() if connection is None else connection
    names: dict[str, str] = {}

    def add(name: str, path: str) -> None:
        place, mark, view = path.rpartition("#")
        chosen = {**options, "view": view} if mark else options
        register(database, name, place if mark else path, **chosen)

    for name, path in (tables or {}).items():
        add(name, path)

    def table(match: re.Match[str]) -> str:
        path = match["path"].replace("''", "'")
        if path.lower().endswith(_OWN_FILES):
            return match[0]
        if path not in names:
            names[path] = f"sawlog_{len(names)}"
            add(names[path], path)
        return f"{match['word']}{names[path]}"

    return database.sql(_SOURCE.sub(table, query))
