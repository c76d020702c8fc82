"""`sawlog cat`: rows on stdout."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import progress
from sawlog.cli.scan import Losses, rows, size_of
from sawlog.cli.tabular import CsvEncoder, JsonlEncoder, TextWriteOptions

_RENDERED_ROWS = 1000
"""Rows rendered at a time, so that the first ones are seen at once."""


class Rendering(StrEnum):
    """What rows look like."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"


def cat(
    paths: arguments.Paths,
    output: Annotated[Rendering, typer.Option("--output", help="What rows look like.")] = Rendering.TABLE,
    view: arguments.View = "rows",
    columns: arguments.Columns = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after N rows.", show_default=False)
    ] = None,
    where: arguments.Where = None,
    provenance: arguments.Provenance = False,
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="skip: show everything intact, say what is not. fail: stop there."),
    ] = arguments.OnDamage.SKIP,
    format: arguments.FormatName = None,
    option: arguments.ReadOptions = None,
    threads: arguments.Threads = None,
    storage: arguments.StorageOptions = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --output jsonl.")] = False,
) -> int:
    """Show rows.

    Exit code 1 if damage was met.
    """
    dataset = arguments.open_dataset(
        paths,
        format=format,
        view=view,
        columns=arguments.column_names(columns),
        where=where,
        on_damage=on_damage,
        provenance=provenance,
        storage=arguments.storage_options(storage),
        options=arguments.format_options(option),
        threads=threads if limit is None else 1,  # nothing is read ahead
    )
    losses = Losses(dataset.skipped)
    # A bar and rows on one terminal would overwrite each other.
    watch = progress(0 if sys.stdout.isatty() else size_of(dataset), "reading")
    with watch as advance, closing(_limited(rows(dataset, losses, advance), limit)) as batches:
        _print(batches, dataset.schema, Rendering.JSONL if json else output)
    sys.stdout.flush()
    losses.tell()
    return Exit.DAMAGED if losses.damaged else Exit.OK


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Generator[pa.RecordBatch, None, None]:
    """The first rows, in small batches; nothing behind them is read."""
    missing = sys.maxsize if limit is None else limit
    if not missing:
        return
    for batch in batches:
        for start in range(0, min(batch.num_rows, missing), _RENDERED_ROWS):
            yield batch.slice(start, min(_RENDERED_ROWS, missing - start))
        missing -= min(batch.num_rows, missing)
        if not missing:
            return


def _print(batches: Iterator[pa.RecordBatch], schema: pa.Schema, rendering: Rendering) -> None:
    if rendering is Rendering.TABLE:
        from sawlog.cli.table import print_table

        print_table(batches, schema)
        return
    sink = sys.stdout.buffer
    options = TextWriteOptions()
    encoder = CsvEncoder(sink, schema, options) if rendering is Rendering.CSV else JsonlEncoder(sink, options)
    for batch in batches:
        encoder.write(batch)
        sink.flush()
    encoder.close()
