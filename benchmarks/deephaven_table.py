"""Deephaven's column files: one column against numpy.memmap, a table against Parquet, a group against a full scan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sawlog
from benchmarks.harness import Case, Settings, Side

SEED = 11
ROW_BYTES = 24
"""Timestamp, symbol id, price, size: 500 MB are 20 million rows."""
BATCH_ROWS = 1 << 20
SYMBOLS = 500
TYPES = {"Timestamp": "DateTime", "Sym": "String", "Price": "double", "Size": "int"}
NULL_DOUBLE = -np.finfo(np.float64).max
DATA_START = 128 << 10
ONE_GROUP = [("Sym", "=", "SYM0250")]
SCHEMA = pa.schema(
    [
        ("Timestamp", pa.timestamp("ns", "UTC")),
        ("Sym", pa.dictionary(pa.int32(), pa.string())),
        ("Price", pa.float64()),
        ("Size", pa.int32()),
    ]
)


def cases(settings: Settings) -> Iterator[Case]:
    rows = max(SYMBOLS, settings.size // ROW_BYTES)
    grouped = settings.place / "grouped" / "Trades"
    write(grouped, rows, group=("Sym",))
    if settings.wanted("deephaven_column"):
        yield column_case(grouped, rows)
    if settings.wanted("deephaven_table"):
        yield table_case(grouped, settings.place / "trades.parquet", rows)
    if settings.wanted("deephaven_group"):
        plain = settings.place / "plain" / "Trades"
        write(plain, rows)
        yield group_case(grouped, plain, rows)


def trades(rows: int) -> Iterator[pa.RecordBatch]:
    """Trades by symbol, as the nightly merge leaves them; the same ones on every run."""
    random = np.random.default_rng(SEED)
    names = pa.array([f"SYM{number:04d}" for number in range(SYMBOLS)])
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        symbols = (np.arange(first, first + count) * SYMBOLS // rows).astype(np.int32)
        columns = [
            pa.array(1_700_000_000_000_000_000 + np.cumsum(random.integers(0, 10**6, count)), SCHEMA.field(0).type),
            pa.DictionaryArray.from_arrays(pa.array(symbols), names),
            pa.array(np.round(random.uniform(10, 500, count), 2)),
            pa.array(random.integers(1, 10_000, count).astype(np.int32)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(location: Path, rows: int, group: tuple[str, ...] = ()) -> None:
    reader = pa.RecordBatchReader.from_batches(SCHEMA, trades(rows))
    sawlog.write(reader, location, format="deephaven_table", group=group)


def column_case(location: Path, rows: int) -> Case:
    data = location / "Price.dat"
    size = 8 * rows
    prices = partial(sawlog.open, location, format="deephaven_table", types=TYPES, columns=["Price"])
    return Case(
        "deephaven_column",
        "a column of doubles, every value looked at, one core",
        (
            Side("sawlog", lambda: exhaust(prices()), size, rows, "Arrow batches, nulls found"),
            Side("numpy.memmap, summed", lambda: mapped(data).sum(), size, rows, "nulls are numbers"),
            Side("numpy.memmap, compared with null", lambda: bool(np.any(mapped(data) == NULL_DOUBLE)), size, rows),
            Side("sawlog, summed by pyarrow", lambda: add(prices()), size, rows, "looked at twice, once by each"),
            Side(
                "sawlog, sentinels_as_null=False, summed by pyarrow",
                lambda: add(prices(sentinels_as_null=False)),
                size,
                rows,
            ),
        ),
    )


def table_case(location: Path, parquet: Path, rows: int) -> Case:
    with pq.ParquetWriter(parquet, SCHEMA) as writer:
        for batch in trades(rows):
            writer.write_batch(batch)
    size = ROW_BYTES * rows
    return Case(
        "deephaven_table",
        "trades (timestamp, symbol, price, size) into an Arrow table, one core",
        (
            Side("sawlog", lambda: sawlog.read(location, types=TYPES), size, rows),
            Side("pyarrow, Parquet", lambda: pq.read_table(parquet, use_threads=False), size, rows),
        ),
        per="rows",
    )


def group_case(grouped: Path, plain: Path, rows: int) -> Case:
    size = ROW_BYTES * rows
    read_group = partial(sawlog.read, types=TYPES, filters=ONE_GROUP)
    return Case(
        "deephaven_group",
        f"the trades of one of {SYMBOLS} symbols, one core",
        (
            Side("sawlog, by the groups of the column", lambda: read_group(grouped), size, rows),
            Side("sawlog, full scan", lambda: read_group(plain), size, rows, "the same table without grouping"),
        ),
        per="rows",
        headline=False,
    )


def mapped(data: Path) -> np.memmap:
    return np.memmap(data, np.float64, mode="r", offset=DATA_START)


def exhaust(dataset: sawlog.Dataset) -> None:
    for _ in dataset.to_batches():
        pass


def add(dataset: sawlog.Dataset) -> float:
    return sum(pc.sum(batch.column(0)).as_py() for batch in dataset.to_batches())
