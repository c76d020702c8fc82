"""Deephaven logs: a market-data log into Arrow, some of its columns, writing, and Spark against its own readers."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import sawlog
from benchmarks.harness import Case, Probe, Settings, Side
from benchmarks.spark import noop, register_premade, session

SEED = 7
ROW_BYTES = 47
"""About: timestamp, symbol, price, size, side, exchange, odd lot; with their framing."""
BATCH_ROWS = 256 << 10
WINDOW = 4 << 20
SYMBOLS = np.array(["AAPL", "MSFT", "GOOG", "IBM", "TSLA", "NVDA", "AMZN", "META", "BRK.A", "T"])
EXCHANGES = np.array(["N", "Q", "P", "Z", "ARCA"])
LATIN = {b"sawlog.charset": b"ISO-8859-1"}
SCHEMA = pa.schema(
    [
        pa.field("Timestamp", pa.int64()),
        pa.field("Sym", pa.string(), metadata=LATIN),
        pa.field("Price", pa.float64()),
        pa.field("Size", pa.int32()),
        pa.field("Side", pa.uint16()),
        pa.field("Exchange", pa.string(), metadata=LATIN),
        pa.field("OddLot", pa.bool_()),
    ]
)


def cases(settings: Settings) -> Iterator[Case | Probe]:
    count = max(1, settings.size // ROW_BYTES)
    if settings.wanted("deephaven_read") or settings.wanted("deephaven_columns"):
        yield from read_cases(settings, count)
    if settings.wanted("deephaven_write"):
        yield write_case(settings, count)
    if settings.wanted("deephaven_spark"):
        yield from spark_cases(settings, count)


def market_data(count: int) -> Iterator[pa.RecordBatch]:
    """Trades, the same ones on every run."""
    random = np.random.default_rng(SEED)
    for first in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - first)
        times = 1_700_000_000_000 + first + np.cumsum(random.integers(0, 3, rows))
        columns = [
            pa.array(times, pa.int64()),
            pa.array(SYMBOLS[random.integers(0, len(SYMBOLS), rows)]),
            pa.array(np.round(random.uniform(10, 500, rows), 2)),
            pa.array(random.integers(1, 10_000, rows).astype(np.int32)),
            pa.array(random.integers(65, 70, rows).astype(np.uint16)),
            pa.array(EXCHANGES[random.integers(0, len(EXCHANGES), rows)]),
            pa.array(random.integers(0, 2, rows).astype(np.bool_)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write_log(path: Path, count: int) -> Path:
    reader = pa.RecordBatchReader.from_batches(SCHEMA, market_data(count))
    sawlog.write(reader, path, format="deephaven_log")
    return path


def read_cases(settings: Settings, count: int) -> Iterator[Case]:
    log = write_log(settings.place / "trades.bin", count)
    size = log.stat().st_size
    source = np.frombuffer(log.read_bytes(), np.uint8)
    target = np.zeros(size, np.uint8)
    unverified = partial(read, log, count, verify_checksums=False)
    yield Case(
        "deephaven_read",
        "market data (7 columns, about 47 bytes a row) into Arrow, one core",
        (
            Side("sawlog", partial(read, log, count), size, count, "digests verified, deletes=apply: a search first"),
            Side("sawlog, deletes=ignore", partial(read, log, count, deletes="ignore"), size, count, "one pass"),
            Side("sawlog, verify_checksums=False", unverified, size, count, "deletes=apply"),
            Side(
                "sawlog, neither",
                partial(read, log, count, verify_checksums=False, deletes="ignore"),
                size,
                count,
                "verify_checksums=False, deletes=ignore",
            ),
            Side("sawlog, into a table", partial(read_table, log, count), size, count, "deletes=apply, in one pass"),
            Side(
                "sawlog, into a table, verify_checksums=False",
                partial(read_table, log, count, verify_checksums=False),
                size,
                count,
                "deletes=apply, in one pass",
            ),
            Side("sawlog, count_rows()", partial(count_rows, log, count), size, count, "digests verified, in one pass"),
            Side("memcpy", partial(np.copyto, target, source), size, note="from and to memory in use: the limit"),
            Side("copy of the mapped file, 4 MiB at a time", partial(copy_windows, log), size),
        ),
    )
    few = ["Sym", "Price"]
    yield Case(
        "deephaven_columns",
        "2 of 7 columns of market data into Arrow, one core",
        (
            Side("sawlog, 2 of 7 columns", partial(read, log, count, columns=few), size, count),
            Side("sawlog, all columns", partial(read, log, count), size, count),
            Side(
                "sawlog, 2 of 7 columns, neither",
                partial(read, log, count, columns=few, verify_checksums=False, deletes="ignore"),
                size,
                count,
            ),
            Side("sawlog, all columns, neither", partial(unverified, deletes="ignore"), size, count),
        ),
        headline=False,
    )
    log.unlink()


def write_case(settings: Settings, count: int) -> Case:
    log = settings.memory / "trades.bin"
    table = pa.Table.from_batches(market_data(count))
    size = write_log(log, count).stat().st_size
    return Case(
        "deephaven_write",
        "market data from Arrow to a log in memory, one core",
        (
            Side("sawlog", partial(sawlog.write, table, log, format="deephaven_log"), size, count),
            Side("pyarrow, Parquet", partial(write_parquet, table, settings.memory / "trades.parquet"), size, count),
        ),
        per="rows",
        headline=False,
    )


def spark_cases(settings: Settings, count: int) -> Iterator[Case]:
    log = write_log(settings.place / "trades.bin", count)
    parquet, text = settings.place / "trades.parquet", settings.place / "trades.csv"
    spark = session(settings.program)
    frame = spark.read.format("sawlog").load(str(log))
    frame.write.mode("overwrite").parquet(str(parquet))
    frame.write.mode("overwrite").csv(str(text))
    types = frame.schema
    no_nulls = ", ".join(f"{field.name} {field.dataType.simpleString()} NOT NULL" for field in types)
    path = settings.place / "trades.arrow"
    register_premade(spark, "premade", sawlog.open(log, format="deephaven_log").to_batches(), types, path)
    readers: dict[str, Callable[[], object]] = {
        "sawlog": lambda: spark.read.format("sawlog").load(str(log)),
        "sawlog, NOT NULL": lambda: spark.read.format("sawlog").schema(no_nulls).load(str(log)),
        "sawlog, resync": lambda: (
            spark.read.format("sawlog").option("split", "resync").option("deletes", "ignore").load(str(log))
        ),
        "a Python source of batches made before": lambda: spark.read.format("premade").schema(types).load(),
        "Spark's Parquet": lambda: spark.read.parquet(str(parquet)),
        "Spark's CSV": lambda: spark.read.schema(types).csv(str(text)),
    }
    sides = tuple(Side(who, lambda load=load: noop(load()), log.stat().st_size, count) for who, load in readers.items())
    description = "market data, all columns, read by Spark, local[2]"
    yield Case("deephaven_spark", description, sides, per="rows", cores=0)
    log.unlink()
    path.unlink()
    shutil.rmtree(parquet)
    shutil.rmtree(text)


def read(log: Path, expected: int, **options: object) -> None:
    """Every batch is made, and let go."""
    rows = sum(batch.num_rows for batch in sawlog.open(log, format="deephaven_log", **options).to_batches())
    if rows != expected:
        raise RuntimeError(f"expected {expected} rows, found {rows}")


def read_table(log: Path, expected: int, **options: object) -> None:
    """All rows at once."""
    if (rows := sawlog.read(log, format="deephaven_log", **options).num_rows) != expected:
        raise RuntimeError(f"expected {expected} rows, found {rows}")


def count_rows(log: Path, expected: int) -> None:
    if (rows := sawlog.open(log, format="deephaven_log").count_rows()) != expected:
        raise RuntimeError(f"expected {expected} rows, counted {rows}")


def copy_windows(log: Path) -> None:
    window = np.zeros(WINDOW, np.uint8)
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        source = np.frombuffer(mapped, np.uint8)
        for start in range(0, len(source), len(window)):
            part = source[start : start + len(window)]
            np.copyto(window[: len(part)], part)
        del source, part


def write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)
