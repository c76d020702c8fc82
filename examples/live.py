"""The live part of the demo: logs that are being written, a pipeline that streams them into a table, and a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
PIPELINE = ROOT / "examples" / "market.toml"
MARKET = ROOT / "out" / "demo" / "market"
LOGS = MARKET / "logs"
TABLE = MARKET / "table"
BEFORE_KILL = 6
"""Micro-batches that the pipeline is left to take before it is killed, and after."""
INTERVAL_SECONDS = 2.0
"""Seconds between lines of the summary."""
PATIENCE = 300.0


class Logger:
    """The process that writes logs, and how many rows it has written."""

    def __init__(self) -> None:
        command = [sys.executable, str(ROOT / "examples" / "market.py"), str(LOGS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.count = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.count = int(line)

    def end(self) -> int:
        """Let it finish its log; how many rows it has written."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        return self.count


class Pipeline:
    """`sawlog run` as a process of its own, and what it reports of its micro-batches."""

    def __init__(self) -> None:
        self._log = (MARKET / "pipeline.log").open("a")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sawlog", "run", str(PIPELINE), "--json"],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self.batches: list[dict[str, Any]] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            event = json.loads(line)
            if event["event"] == "batch":
                self.batches.append(event)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self, number: signal.Signals) -> None:
        """SIGTERM ends it in good order; SIGKILL does not even let it know."""
        if self.running:
            os.killpg(self._process.pid, number)
        self._process.wait()
        self._reader.join()
        self._log.close()


def live(console: Console, spark: SparkSession) -> bool:
    """Run it all; whether every row arrived once."""
    shutil.rmtree(MARKET, ignore_errors=True)
    LOGS.mkdir(parents=True)
    console.print("\n[bold]live[/]: a logger writes Deephaven logs, a pipeline streams them into a table\n")
    show(console, "pipeline", f"{os.path.relpath(PIPELINE)}, run by sawlog run")
    logger = Logger()
    wait_for(lambda: any(LOGS.iterdir()))
    pipeline = Pipeline()
    try:
        show(console, "starting", "the logger is at work already; Spark takes a moment")
        watch(console, spark, logger, pipeline)
        show(console, "killed", "[red]SIGKILL[/] to the pipeline, Spark and all; the logger writes on")
        pipeline.end(signal.SIGKILL)
        pipeline = Pipeline()
        show(console, "started", "once more, from its checkpoint")
        watch(console, spark, logger, pipeline)
        logged = logger.end()
        files = len(list(LOGS.iterdir()))
        show(console, "logged", f"the logger has ended: {logged:,} rows in {files} files")
        wait_for(lambda: not pipeline.running or bool(summary(spark)[0] >= logged), 0.5)
        pipeline.end(signal.SIGTERM)
    finally:
        pipeline.end(signal.SIGKILL)
        logger.end()
    return prove(console, spark, logged)


def watch(console: Console, spark: SparkSession, logger: Logger, pipeline: Pipeline) -> None:
    """A rolling summary of the table, until the pipeline has taken some micro-batches."""
    while pipeline.running and len(pipeline.batches) < BEFORE_KILL:
        time.sleep(INTERVAL_SECONDS)
        if pipeline.batches:
            rows, prices = summary(spark)
            last = "  ".join(f"[bold]{symbol}[/] {price:.2f}" for symbol, price in prices.items())
            show(console, "table", f"{rows:>9,} of {logger.count:>9,} rows   {last}")
    if not pipeline.running:
        raise SystemExit(f"the pipeline has ended; see {MARKET / 'pipeline.log'}")


def summary(spark: SparkSession) -> tuple[int, dict[str, float]]:
    """How many rows the table has, and the last price of each symbol."""
    table = spark.read.parquet(str(TABLE)).groupBy("symbol")
    rows = table.agg(sql.count("*").alias("rows"), sql.max_by("price", "number").alias("price")).collect()
    return sum(row["rows"] for row in rows), {row["symbol"]: row["price"] for row in sorted(rows)}


def prove(console: Console, spark: SparkSession, logged: int) -> bool:
    """Every number that was logged is in the table, and no other, once."""
    number = sql.col("number")
    counts = (sql.count("*"), sql.count_distinct(number), sql.min(number), sql.max(number))
    totals = tuple(spark.read.parquet(str(TABLE)).agg(*counts).first() or ())
    once = totals == (logged, logged, 0, logged - 1)
    mark = "[green]✓[/]" if once else "[red]✗[/]"
    show(
        console, "proved", f"{mark} {totals[0]:,} rows in the table, {totals[1]:,} of them different, {logged:,} logged"
    )
    return once


def wait_for(met: Any, pause: float = 0.1) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing has happened for {PATIENCE:.0f} s; see {MARKET / 'pipeline.log'}")
        time.sleep(pause)


def show(console: Console, label: str, text: str) -> None:
    console.print(f"  [dim]{label:>8}[/]  {text}", soft_wrap=True)
