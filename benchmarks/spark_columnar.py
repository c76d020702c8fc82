"""Spark with the jar: Arrow batches as columns, beside Spark's Parquet of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import sawlog
import sawlog.spark
from benchmarks.deephaven_log import ROW_BYTES, write_log
from benchmarks.harness import Case, Probe, Settings, Side
from benchmarks.spark import noop

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
OTHERS = ("leveldb_log", "filodb_record", "milvus_binlog")


def cases(settings: Settings) -> Iterator[Case | Probe]:
    """The bars for Deephaven's logs, and one case for each other format."""
    if not settings.wanted("columnar"):
        return
    own = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    own |= {"spark.sql.warehouse.dir": str(settings.place / "wh"), "spark.local.dir": str(settings.place / "spark")}
    spark = sawlog.spark.session("sawlog benchmarks", own)
    count = max(1, settings.size // ROW_BYTES)
    log = write_log(settings.place / "trades.bin", count)
    size = log.stat().st_size
    for name, (asked, query) in QUERIES.items():
        what = f"market data, {asked} (bar: {BARS[name]})"
        yield _case(spark, settings, f"columnar_{name}", what, log, size, count, query)
    log.unlink()
    for format in OTHERS:
        table, options = _rows(format, settings.size)
        place = settings.place / format
        sawlog.write(table, place if format == "milvus_binlog" else f"{place}.log", format=format, **options)
        path = place if place.exists() else Path(f"{place}.log")
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        size = sum(one.stat().st_size for one in files)
        what = f"{format}, all columns"
        yield _case(spark, settings, f"columnar_{format}", what, path, size, table.num_rows, noop, format)


def _case(
    spark: Any, settings: Settings, name: str, what: str, path: Path, size: int, rows: int, query: Any, format: str = ""
) -> Case:
    parquet = settings.place / "rows.parquet"
    reading = spark.read.format("sawlog")
    reading = reading.option("format", format) if format else reading
    reading.load(str(path)).write.mode("overwrite").parquet(str(parquet))
    sides = (
        Side("sawlog with the jar", lambda: query(reading.load(str(path))), size, rows),
        Side("Spark's Parquet", lambda: query(spark.read.parquet(str(parquet))), size, rows),
    )
    return Case(name, f"{what}, local[2]", sides, per="rows", cores=0, headline=False)


def _rows(format: str, size: int) -> tuple[pa.Table, dict[str, Any]]:
    """Rows of a format, of about so many bytes."""
    if format == "leveldb_log":
        count = size // 107
        return pa.table({"record": pa.array([b"%0100d" % n for n in range(count)], pa.binary())}), {}
    if format == "filodb_record":
        count = size // 200
        pairs = [[("_ws_", "demo"), ("_ns_", f"App-{n % 100}")] for n in range(count)]
        tags = pa.array(pairs, pa.map_(pa.string(), pa.string()))
        times = pa.array(range(1_700_000_000_000, 1_700_000_000_000 + count), pa.timestamp("ms", "UTC"))
        values = pa.array([float(n % 1000) for n in range(count)])
        metric = pa.array(["heap_usage"] * count)
        return pa.table({"timestamp": times, "value": values, "_metric_": metric, "tags": tags}), {"schema": "gauge"}
    count = size // 40
    table = pa.table({"id": pa.array(range(count)), "text": [f"row {n}" for n in range(count)]})
    return table, {"primary_key": "id", "timestamp": 100}
