"""`sawlog cat`: rows on stdout."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import typer

from sawlog.arrow import make_fixed_array
from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Advance, make_text_sink, show_progress
from sawlog.cli.scan import DamageSummary, count_bytes, read_dataset_rows
from sawlog.cli.tabular import CsvEncoder, JsonlEncoder, Sink, TextWriteOptions
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError

if TYPE_CHECKING:
    from sawlog.dataset.watch import Watch

_POLL_SECONDS = 0.5
"""Seconds between two looks at files that are followed."""
_ROWS_AT_ONCE = 1000
"""Rows rendered at a time, so that the first ones are seen at once."""


class Rendering(StrEnum):
    """Forms in which rows are shown."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"


def cat(
    paths: arguments.Paths,
    *,
    output: Annotated[Rendering, typer.Option("--output", help="Format of the rows.")] = Rendering.TABLE,
    selection: arguments.Selection,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after N rows.")] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", metavar="N", min=0, help="Only the last N rows; with --follow, those and what is added."
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=0, help="N rows at random, in order.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with rows as they are written, until Ctrl-C.")
    ] = False,
    provenance: arguments.Provenance = False,
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="skip: show everything intact, report the rest. fail: stop there."),
    ] = arguments.OnDamage.SKIP,
    format: arguments.FormatName = None,
    reading: arguments.Reading,
    json: Annotated[bool, typer.Option("--json", help="The same as --output jsonl.")] = False,
) -> int:
    """Print rows as a table, JSON lines or CSV.

    Exit code 1 damaged or incomplete, 4 unsupported in part.
    """
    if limit is not None:
        reading = replace(reading, threads=1)  # nothing is read ahead
    dataset = arguments.open_dataset(
        paths, reading, selection, format=format, on_damage=on_damage, provenance=provenance
    )
    if sample is not None and (tail is not None or follow):
        raise OptionError("--sample excludes --tail and --follow")
    if follow:
        batches = _flush_batches(_limit_rows(follow_rows(dataset.watch(poll=_POLL_SECONDS), tail), limit))
        print_rows(batches, dataset.schema, Rendering.JSONL if json else output)
        return Exit.OK
    losses = DamageSummary(dataset.skipped)
    # A bar and rows on one terminal would overwrite each other.
    watch = show_progress(0 if sys.stdout.isatty() else count_bytes(dataset), "reading")
    with watch as advance, closing(_limit_rows(_choose_rows(dataset, losses, advance, tail, sample), limit)) as batches:
        print_rows(batches, dataset.schema, Rendering.JSONL if json else output)
    sys.stdout.flush()
    losses.report()
    return losses.code


def follow_rows(watch: Watch, tail: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield rows without end; of those that the first look finds, only the last `tail`."""
    if tail is not None:
        yield from _take_last_rows(_retry_look(watch.added), tail)
    yield from _retry_look(lambda: watch)


def _retry_look(look: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield batches of a look.

    Where the storage cannot answer, it looks again: nothing is lost, and nothing shown twice.
    """
    last_error = ""
    while True:
        try:
            yield from look()
            return
        except OSError as error:
            if str(error) != last_error:
                last_error = str(error)
                complain(f"warning: {last_error}; looking again")
            time.sleep(_POLL_SECONDS)


def _limit_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> Generator[pa.RecordBatch, None, None]:
    """Yield the first rows, in small batches; nothing after them is read."""
    missing = sys.maxsize if limit is None else limit
    if not missing:
        return
    for batch in batches:
        for start in range(0, min(batch.num_rows, missing), _ROWS_AT_ONCE):
            yield batch.slice(start, min(_ROWS_AT_ONCE, missing - start))
        missing -= min(batch.num_rows, missing)
        if not missing:
            return


def _choose_rows(
    dataset: Dataset, losses: DamageSummary, advance: Advance, tail: int | None, sample: int | None
) -> Iterator[pa.RecordBatch]:
    """Return the rows that are wanted: all, the last ones, or some."""
    batches = read_dataset_rows(dataset, losses, advance)
    if tail is not None:
        return iter(_take_last_rows(batches, tail))
    return iter(_sample_rows(batches, sample)) if sample is not None else batches


def _take_last_rows(batches: Iterator[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return the last rows; no more of those before are held than one batch."""
    last_batches: deque[pa.RecordBatch] = deque()
    held_rows = 0
    for batch in batches:
        last_batches.append(batch)
        held_rows += batch.num_rows
        while held_rows - last_batches[0].num_rows >= count and len(last_batches) > 1:
            held_rows -= last_batches.popleft().num_rows
    if last_batches and held_rows > count:
        last_batches[0] = last_batches[0].slice(held_rows - count)
    return [batch for batch in last_batches if batch.num_rows]


def _sample_rows(batches: Iterator[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return rows at random, in order; every row has the same chance. The same ones for the same rows."""
    random = np.random.default_rng(0)
    sample: pa.Table | None = None
    drawn = np.empty(0)
    for batch in batches:
        table = pa.Table.from_batches([batch])
        sample = table if sample is None else pa.concat_tables([sample, table])
        drawn = np.concatenate([drawn, random.random(batch.num_rows)])
        if len(drawn) > count:
            lowest = np.sort(np.argpartition(drawn, count)[:count]) if count else np.empty(0, np.int64)
            sample, drawn = sample.take(make_fixed_array(pa.int64(), lowest)), drawn[lowest]
    return [] if sample is None else sample.combine_chunks().to_batches()


def _flush_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches, and flush stdout after each, before the next one is waited for."""
    for batch in batches:
        yield batch
        sys.stdout.flush()


def print_rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema, rendering: Rendering) -> None:
    """Print rows on stdout, while they are read."""
    if rendering is Rendering.TABLE:
        from sawlog.cli.table import print_table

        print_table(batches, schema)
        return
    sink = Sink(make_text_sink(sys.stdout.buffer.write))
    options = TextWriteOptions()
    encoder = (CsvEncoder if rendering is Rendering.CSV else JsonlEncoder)(sink, schema, options)
    for batch in batches:
        encoder.write(batch)
        sys.stdout.buffer.flush()
    encoder.close()
