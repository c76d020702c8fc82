"""Spark reads the log of a LevelDB database, and a pipeline streams logs that are being written: `make demo`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from live import live, show
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from rich.text import Text

import sawlog
from sawlog.map import render, survey

ROOT = Path(__file__).resolve().parent.parent
SHOP = ROOT / "examples" / "data" / "shop"
OUT = ROOT / "out" / "demo"
PARQUET = OUT / "shop.parquet"
SPARK_LOG = OUT / "spark.log"
WIDTH = 78
"""Characters of a value that are shown."""


def main() -> int:
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=120)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    report = sawlog.verify(SHOP)
    size = sum(file.size for file in report.files)
    console.print("\n[bold]sawlog[/]: the log of a LevelDB database, read by Spark, written as Parquet\n")
    show(console, "log", f"{relative(SHOP)}/000003.log, {size:,} bytes, written by LevelDB 1.22")
    show(console, "found", f"{report.rows:,} keys, {report.account.damage} damaged bytes")
    survive_damage(console)

    console.print("  [dim]starting Spark …[/]")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with stderr_to(SPARK_LOG):
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    started = time.perf_counter()
    writes = spark.read.format("sawlog").option("view", "writes").load(str(SHOP))
    texts = writes.selectExpr("sequence", "operation", "string(key) as key", "string(value) as value")
    texts.write.parquet(str(PARQUET))
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    texts.write.format("noop").mode("overwrite").save()
    again = time.perf_counter() - started

    table = pq.read_table(PARQUET).sort_by("sequence")
    show(console, "wrote", f"{relative(PARQUET)}, {sum(f.stat().st_size for f in PARQUET.glob('*.parquet')):,} bytes")
    show(console, "rows", f"{table.num_rows:,} operations in {seconds:.1f} s, most of it Spark waking up")
    show(console, "", f"read once more in {again:.2f} s: {table.num_rows / again:,.0f} rows/s")

    # In a database that never was compacted, the last sequence number is the number of operations.
    expected = sawlog.open(SHOP, view="writes").count_rows()
    last = table.column("sequence")[-1].as_py()
    agreed = table.num_rows == expected == last
    mark = "[green]✓[/]" if agreed else "[red]✗[/]"
    show(console, "checked", f"{mark} Parquet {table.num_rows:,} rows, log {expected:,}, last sequence number {last:,}")
    console.print("\n[dim]an order, and a cart that the database itself no longer knows:[/]")
    console.print(history(table))

    agreed = live(console, spark) and agreed
    spark.stop()
    sawlog_command = relative(Path(sys.executable).with_name("sawlog"))
    console.print(f"\nNext: [bold]{sawlog_command} cat {relative(SHOP)} --view writes --limit 5[/]\n")
    return 0 if agreed else 1


def survive_damage(console: Console) -> None:
    """Change one byte of a copy of the log, save what is intact, and draw what happened."""
    log, copy, page = SHOP / "000003.log", OUT / "broken.log", OUT / "map.html"
    data = bytearray(log.read_bytes())
    data[50_000] ^= 0x20
    copy.write_bytes(data)
    lost_bytes = sawlog.verify(copy).account.damage
    row_count = sawlog.repair(copy, OUT / "repaired.log").rows
    show(console, "broke", f"one byte of a copy: {lost_bytes:,} bytes that LevelDB would drop")
    show(
        console,
        "repaired",
        f"{row_count:,} of {sawlog.open(log).count_rows():,} records are in {relative(OUT)}/repaired.log",
    )
    page.write_text(render(survey(sawlog.open(copy, on_damage="skip"))), "utf-8")
    show(console, "page", f"{relative(page)} shows every byte of it in a browser")


def history(writes: pa.Table) -> Table:
    """What a database shows is the last value of each key; its log has them all."""
    keys = writes.column("key")
    order = writes.filter(pc.equal(keys, "order:0000042"))
    cart = writes.filter(pc.equal(keys, "cart:000000")).slice(0, 2)
    grid = Table(box=None, pad_edge=False)
    for name in ("sequence", "operation", "key", "value"):
        grid.add_column(name)
    for row in (*order.to_pylist(), *cart.to_pylist()):
        value = row["value"] or ""
        cut = value if len(value) <= WIDTH else value[: WIDTH - 1] + "…"
        grid.add_row(str(row["sequence"]), row["operation"], row["key"], Text(cut, no_wrap=True))
    return grid


def relative(path: Path) -> str:
    return os.path.relpath(path)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Give processes that are started meanwhile a file for their messages."""
    descriptor = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(descriptor, 2)
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
