"""Import and merge of Deephaven tables against Spark reading CSV and writing Parquet; symbols; followed rows."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

import sawlog
from benchmarks.harness import Case, Probe, Settings, Side, wait_for
from benchmarks.spark import session
from sawlog.deephaven.log import Logger
from sawlog.errors import FormatError

SEED = 20
ROW_BYTES = 40
"""Of a log: about."""
SYMBOLS = 500
BATCH_ROWS = 64 << 10
HOSTS = ("vm1", "vm2")
DATE = "2024-03-01"
DISTINCT = 2_000_000
FOLLOWED_SECONDS, EVERY_SECONDS = 20.0, 0.1
_PROVEN = "spread over 2 locations, all rows hashed twice to prove them, all files synced"
SCHEMA = pa.schema(
    [
        ("Timestamp", pa.timestamp("us", "UTC")),
        ("Sym", pa.string()),
        ("Price", pa.float64()),
        ("Size", pa.int32()),
    ]
)
XML = """<Table name="Trades" namespace="Market">
  <Partitions keyFormula="${autobalance_single}" />
  <Column name="Date" dataType="String" columnType="Partitioning" />
  <Column name="Timestamp" dataType="DateTime" />
  <Column name="Sym" dataType="String" columnType="Grouping" />
  <Column name="Price" dataType="double" />
  <Column name="Size" dataType="int" />
</Table>
"""


def cases(settings: Settings) -> Iterator[Case | Probe]:
    rows = max(1000, settings.size // ROW_BYTES)
    if settings.wanted("deephaven_symbols"):
        yield symbols_case(settings.place, min(DISTINCT, max(1000, settings.size // 30)))
    if settings.wanted("deephaven_follow"):
        seconds = 0.3 if settings.once else FOLLOWED_SECONDS
        description = f"from logged to read by another reader: a batch each {EVERY_SECONDS * 1000:.0f} ms"
        yield Probe("deephaven_follow", description, partial(follow, settings.place / "followed", seconds), "ms")
    if not (settings.wanted("deephaven_import") or settings.wanted("deephaven_merge")):
        return
    logs, csv = settings.place / "logs", settings.place / "csv"
    schema = settings.place / "Trades.schema"
    schema.write_text(XML)
    write(logs, csv, rows)
    size = sum(path.stat().st_size for path in logs.iterdir())
    spark = session(settings.program)
    trees = Trees(spark, logs, csv, schema, settings.place)
    if settings.wanted("deephaven_import"):
        yield Case(
            "deephaven_import",
            "logs of two hosts to an intraday tree",
            (
                Side("sawlog, on Spark", trees.load, size, rows, prepare=trees.empty),
                Side("sawlog, in threads of one process", trees.load_here, size, rows, prepare=trees.empty),
                Side("Spark, CSV to partitioned Parquet", trees.parquet, size, rows, "the same rows", trees.empty),
            ),
            per="rows",
            cores=0,
        )
    if settings.wanted("deephaven_merge"):
        yield Case(
            "deephaven_merge",
            f"a date to history, sorted by {SYMBOLS} symbols",
            (
                Side("sawlog, on Spark", trees.merge, size, rows, _PROVEN, trees.reload),
                Side("sawlog, in threads of one process", trees.merge_here, size, rows, _PROVEN, trees.reload),
                Side("Spark, CSV to sorted, partitioned Parquet", trees.sorted, size, rows, "no proof", trees.empty),
                Side("Spark, CSV to partitioned Parquet", trees.parquet, size, rows, "not sorted", trees.empty),
            ),
            per="rows",
            cores=0,
        )


class Trees:
    """The work of both sides, in one directory."""

    def __init__(self, spark: Any, logs: Path, csv: Path, schema: Path, place: Path) -> None:
        self._spark = spark
        self._logs, self._csv, self._schema = str(logs), str(csv), str(schema)
        self._db, self._parquet = place / "db", place / "parquet"

    def empty(self) -> None:
        shutil.rmtree(self._db, ignore_errors=True)
        shutil.rmtree(self._parquet, ignore_errors=True)

    def reload(self) -> None:
        self.empty()
        self.load()

    def load(self) -> None:
        sawlog.spark.import_logs(self._spark, self._logs, self._db, schema=self._schema)

    def load_here(self) -> None:
        sawlog.spark.import_logs(None, self._logs, self._db, schema=self._schema)

    def merge(self) -> None:
        sawlog.spark.merge(self._spark, self._db, "Market", "Trades", DATE, internal_partitions=2)

    def merge_here(self) -> None:
        sawlog.spark.merge(None, self._db, "Market", "Trades", DATE, internal_partitions=2)

    def parquet(self) -> None:
        self._read().write.partitionBy("Date").parquet(str(self._parquet))

    def sorted(self) -> None:
        spread = self._read().repartition(2, "Sym").sortWithinPartitions("Sym")
        spread.write.partitionBy("Date").parquet(str(self._parquet))

    def _read(self) -> Any:
        columns = "Timestamp timestamp, Sym string, Price double, Size int, Date date"
        return self._spark.read.schema(columns).csv(self._csv)


def trades(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """The same ones on every run."""
    random = np.random.default_rng(seed)
    names = pa.array([f"SYM{number:04d}" for number in range(SYMBOLS)])
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        times = 1_709_251_200_000_000 + 1000 * (first + np.cumsum(random.integers(0, 3, count)))
        columns = [
            pa.array(times, SCHEMA.field(0).type),
            names.take(pa.array(random.integers(0, SYMBOLS, count))),
            pa.array(np.round(random.uniform(10, 500, count), 2)),
            pa.array(random.integers(1, 10_000, count).astype(np.int32)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(logs: Path, csv: Path, rows: int) -> None:
    """The rows of each host as a log and as CSV."""
    csv.mkdir()
    for number, host in enumerate(HOSTS):
        with (
            logger(logs, host) as log,
            pa.csv.CSVWriter(
                csv / f"{host}.csv",
                pa.schema([*SCHEMA, ("Date", pa.string())]),
                write_options=pa.csv.WriteOptions(include_header=False),
            ) as text,
        ):
            for batch in trades(rows // len(HOSTS), SEED + number):
                log.write(batch)
                text.write_batch(batch.append_column("Date", pa.array([DATE] * batch.num_rows)))


def logger(directory: Path, host: str) -> Logger:
    return Logger(
        directory,
        SCHEMA,
        namespace="Market",
        table="Trades",
        internal_partition=host,
        column_partition=DATE,
        timestamp_unit="ms",
    )


def symbols_case(place: Path, distinct: int) -> Case:
    texts = pa.array([f"K{number}" for number in range(distinct)])
    column = pa.table(
        {"Sym": pa.chunked_array([texts.slice(offset, BATCH_ROWS) for offset in range(0, distinct, BATCH_ROWS)])}
    )
    target = place / "symbols"
    return Case(
        "deephaven_symbols",
        f"{distinct:,} distinct symbols",
        (
            Side(
                "sawlog, written as a column",
                lambda: sawlog.write(column, target, format="deephaven_table"),
                texts.nbytes,
                distinct,
                prepare=lambda: shutil.rmtree(target, ignore_errors=True),
            ),
            Side(
                "pyarrow, dictionary_encode",
                lambda: column.column(0).combine_chunks().dictionary_encode(),
                texts.nbytes,
                distinct,
            ),
        ),
        per="rows",
        headline=False,
    )


def follow(place: Path, seconds: float) -> dict[str, float]:
    """How long rows take from the log to whoever reads the tree."""
    logs, db = place / "logs", place / "db"
    logs.mkdir(parents=True)
    stop = threading.Event()
    logged: list[tuple[int, float]] = []
    delays: list[float] = []
    batch = next(trades(100, SEED))

    def is_over() -> bool:
        now = time.monotonic()
        if now - start_time < seconds and (not logged or now - logged[-1][1] >= EVERY_SECONDS):
            log.write(batch)
            logged.append((batch.num_rows * (len(logged) + 2), time.monotonic()))
        row_count = count(db)
        while len(delays) < len(logged) and logged[len(delays)][0] <= row_count:
            delays.append((time.monotonic() - logged[len(delays)][1]) * 1000)
        return now - start_time >= seconds and len(delays) == len(logged)

    with ThreadPoolExecutor(1) as pool, logger(logs, "vm1") as log:  # an error of the import is one here
        log.write(batch)
        following = pool.submit(import_until, stop, logs, db)
        try:
            wait_for(following, lambda: count(db) >= batch.num_rows)
            start_time = time.monotonic()
            wait_for(following, is_over)
        finally:
            stop.set()
    return {"median": statistics.median(delays), "99 %": float(np.percentile(delays, 99)), "longest": max(delays)}


def import_until(stop: threading.Event, logs: Path, db: Path) -> None:
    for poll in sawlog.spark.follow_logs(None, logs, db, seconds=0.2):
        if poll.errors:
            raise RuntimeError("; ".join(poll.errors))
        if stop.is_set():
            return


def count(db: Path) -> int:
    """Return the rows that a reader sees; none before a first import is published."""
    try:
        return sawlog.open(db / "Intraday", format="deephaven_table").count_rows()
    except (FileNotFoundError, FormatError):
        return 0
