"""`sawlog sql`: a query over logs."""

from __future__ import annotations

import sys
from typing import Annotated

import pyarrow as pa
import typer

from sawlog.cli import arguments
from sawlog.cli.cat import Rendering, print_rows
from sawlog.cli.errors import Exit


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL in DuckDB's dialect; FROM 'PATH' or 'PATH#VIEW'.")],
    output: Annotated[Rendering, typer.Option("--output", help="Format of the rows.")] = Rendering.TABLE,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME=PATH", help="A name for PATH or PATH#VIEW.")
    ] = None,
    on_damage: Annotated[
        arguments.OnDamage, typer.Option("--on-damage", help="fail: stop at damage. skip: query everything intact.")
    ] = arguments.OnDamage.FAIL,
    format: arguments.FormatName = None,
    option: arguments.ReadOptions = None,
    storage: arguments.StorageOptions = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --output jsonl.")] = False,
) -> int:
    """Query logs with SQL.

    Needs DuckDB, which the extra `sql` brings. Exit code 1 if damage stopped it.
    """
    from sawlog import duckdb

    relation = duckdb.sql(
        query,
        tables=arguments.parse_key_values(table, "--table"),
        format=format,
        on_damage=on_damage.value,
        storage_options=arguments.parse_storage_options(storage),
        **arguments.parse_format_options(option, call=duckdb.sql),
    )
    rows = pa.RecordBatchReader.from_stream(relation)
    print_rows(iter(rows), rows.schema, Rendering.JSONL if json else output)
    sys.stdout.flush()
    return Exit.OK
