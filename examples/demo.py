"""Spark reads the log of a LevelDB database and writes it as Parquet: `make demo`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import sawlog

ROOT = Path(__file__).resolve().parent.parent
SHOP = ROOT / "examples" / "data" / "shop"
OUT = ROOT / "out" / "demo"
PARQUET = OUT / "shop.parquet"
SPARK_LOG = OUT / "spark.log"


def main() -> int:
    console = Console(highlight=False)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    report = sawlog.verify(SHOP)
    size = sum(file.size for file in report.files)
    console.print("\n[bold]sawlog[/]: the log of a LevelDB database, read by Spark, written as Parquet\n")
    show(console, "log", f"{relative(SHOP)}/000003.log, {size:,} bytes, written by LevelDB 1.22")
    show(console, "found", f"{report.rows:,} records, {report.account.damage} damaged bytes")

    console.print("  starting Spark …", style="dim", end="\r")
    with stderr_to(SPARK_LOG):
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    started = time.perf_counter()
    writes = spark.read.format("sawlog").option("view", "writes").load(str(SHOP))
    texts = writes.selectExpr("sequence", "operation", "string(key) as key", "string(value) as value")
    texts.write.parquet(str(PARQUET))
    seconds = time.perf_counter() - started
    spark.stop()

    table = pq.read_table(PARQUET).sort_by("sequence")
    show(console, "wrote", f"{relative(PARQUET)}, {sum(f.stat().st_size for f in PARQUET.glob('*.parquet')):,} bytes")
    speed = f"{table.num_rows / seconds:,.0f} rows/s, most of it Spark waking up"
    show(console, "rows", f"{table.num_rows:,} in {seconds:.1f} s: {speed}")
    console.print(life_of_an_order(table))

    # In a database that never was compacted, the last sequence number is the number of operations.
    expected = sawlog.open(SHOP, view="writes").count_rows()
    last = table.column("sequence")[-1].as_py()
    agreed = table.num_rows == expected == last
    mark = "[green]✓[/]" if agreed else "[red]✗[/]"
    show(console, "check", f"{mark} Parquet {table.num_rows:,} rows, log {expected:,}, last sequence number {last:,}")
    console.print(f"\nNext: [bold]{relative(Path(sys.executable).parent)}/sawlog cat {relative(SHOP)} --limit 3[/]")
    console.print("      or the rows of your own: [bold]sawlog info PATH[/]; the documentation is in docs/\n")
    return 0 if agreed else 1


def life_of_an_order(writes: pa.Table) -> Table:
    """What a database shows is the last value of each key; its log has them all."""
    sample = writes.filter(pa.compute.equal(writes.column("key"), "order:0000042"))
    carts = writes.filter(pa.compute.equal(writes.column("key"), "cart:000000")).slice(0, 2)
    shown = Table(title="a few of them", title_justify="left", title_style="dim", show_edge=False, pad_edge=True)
    shown.add_column("sequence", justify="right")
    for name in ("operation", "key", "value"):
        shown.add_column(name, no_wrap=True)
    for row in (*sample.to_pylist(), *carts.to_pylist()):
        value = row["value"] or ""
        shown.add_row(str(row["sequence"]), row["operation"], row["key"], value)
    return shown


def show(console: Console, what: str, text: str) -> None:
    console.print(f"  [dim]{what:>6}[/]  {text}")


def relative(path: Path) -> str:
    return os.path.relpath(path)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Give processes that are started meanwhile a file for their messages."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
