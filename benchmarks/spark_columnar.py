"""Spark with the jar: Arrow batches as columns, beside Spark's Parquet of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import sawlog
from benchmarks.deephaven_log import ROW_BYTES, write_log
from benchmarks.harness import Case, Probe, Settings, Side
from benchmarks.spark import noop, session_with_jar

BARS = {"noop": 1.0, "sum": 0.9, "column": 0.8, "filter": 0.8}
"""How fast Deephaven logs are to be, Parquet being 1."""
QUERIES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "noop": ("all columns", noop),
    "sum": (
        "sum(price * size) by symbol",
        lambda t: t.selectExpr("Sym", "Price * Size AS p").groupBy("Sym").sum("p").collect(),
    ),
    "column": ("sum of one column", lambda t: t.selectExpr("sum(Size)").collect()),
    "filter": ("a filter that leaves 1 %", lambda t: t.where("Price > 495.1").selectExpr("sum(Size)").collect()),
}
OTHER_FORMATS = ("leveldb_log", "filodb_record", "milvus_binlog")


@dataclass(frozen=True)
class Source:
    """Rows in a format, and as Parquet that Spark has made of them."""

    reader: Any
    path: Path
    size: int
    rows: int
    parquet: Path

    def __post_init__(self) -> None:
        self.load().write.parquet(str(self.parquet))

    def load(self) -> Any:
        """Return a DataFrame that has listed its files anew."""
        return self.reader.load(str(self.path))


def cases(settings: Settings) -> Iterator[Case | Probe]:
    """The bars for Deephaven's logs, and one case for each other format."""
    if not settings.wanted("columnar"):
        return
    spark = session_with_jar(settings.program)
    count = max(1, settings.size // ROW_BYTES)
    log = write_log(settings.place / "trades.bin", count)
    source = Source(spark.read.format("sawlog"), log, log.stat().st_size, count, settings.place / "log.parquet")
    for name, (query_text, query) in QUERIES.items():
        description = f"market data, {query_text} (bar: {BARS[name]})"
        yield _case(spark, f"columnar_{name}", description, source, query)
    log.unlink()
    for format in OTHER_FORMATS:
        table, options = _rows(format, settings.size)
        place = settings.place / format
        sawlog.write(table, place if format == "milvus_binlog" else f"{place}.log", format=format, **options)
        path = place if place.exists() else Path(f"{place}.log")
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files)
        reader = spark.read.format("sawlog").option("format", format)
        source = Source(reader, path, size, table.num_rows, settings.place / f"{format}.parquet")
        yield _case(spark, f"columnar_{format}", f"{format}, all columns", source, noop)


def _case(spark: Any, name: str, description: str, source: Source, query: Callable[[Any], object]) -> Case:
    sides = (
        Side("sawlog with the jar", lambda: query(source.load()), source.size, source.rows),
        Side("Spark's Parquet", lambda: query(spark.read.parquet(str(source.parquet))), source.size, source.rows),
    )
    return Case(name, f"{description}, local[2]", sides, per="rows", cores=0, headline=False)


def _rows(format: str, size: int) -> tuple[pa.Table, dict[str, Any]]:
    """Rows of a format, of about so many bytes."""
    count = size // {"leveldb_log": 107, "filodb_record": 200, "milvus_binlog": 40}[format]
    numbers = np.arange(count)
    texts = pa.array(numbers).cast(pa.string())
    if format == "leveldb_log":
        return pa.table({"record": pc.utf8_lpad(texts, 100, "0").cast(pa.binary())}), {}
    if format == "filodb_record":
        keys = pa.array(["_ws_", "_ns_"]).take(pa.array(np.tile([0, 1], count)))
        names = pa.array(["demo", *(f"App-{n}" for n in range(100))])
        items = names.take(pa.array(np.stack([np.zeros_like(numbers), 1 + numbers % 100], 1).ravel()))
        tags = pa.MapArray.from_arrays(pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32)), keys, items)
        times = pa.array(1_700_000_000_000 + numbers).cast(pa.timestamp("ms", "UTC"))
        metric = pa.array(["heap_usage"]).take(pa.array(np.zeros_like(numbers)))
        columns = {"timestamp": times, "value": pa.array((numbers % 1000).astype(float)), "_metric_": metric}
        return pa.table({**columns, "tags": tags}), {"table": "gauge"}
    table = pa.table({"id": numbers, "text": pc.binary_join_element_wise("row", texts, " ")})
    return table, {"primary_key": "id", "timestamp": 100}
