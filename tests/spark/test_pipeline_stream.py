"""Pipelines as streams: started, stopped, killed, watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log.logger import Logger
from sawlog.pipeline import load
from sawlog.pipeline.progress import BatchReport
from tests.exactly_once.processes import command, descendants, kill
from tests.support import find_free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("n", pa.int64()), ("sym", pa.string()), ("price", pa.float64())])
PIPELINE = """\
[pipeline]
name = "ticks"
mode = "stream"
checkpoint = "state"
{trigger}

[spark]
master = "local[2]"
ui.enabled = false
sql.shuffle.partitions = 2

[sources.log]
path = "logs"
format = "deephaven_log"
on_damage = "{on_damage}"

[steps.dear]
sql = "SELECT n, sym, price * 2 AS twice FROM log WHERE price >= 10"

[sinks.dear]
from = "dear"
format = "parquet"
path = "dear"
{more}
"""
QUARANTINE = """
[quarantine]
format = "parquet"
path = "quarantine"
"""
NOW = 'trigger = "available-now"'


@pytest.fixture(autouse=True)
def _streams_are_new(pyspark_version: tuple[int, int]) -> None:
    if pyspark_version < (4, 2):
        pytest.skip("streams need PySpark 4.2")


def ticks(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {"n": list(numbers), "sym": [f"S{n % 3}" for n in numbers], "price": [float(n % 20) for n in numbers]},
        schema=SCHEMA,
    )


@pytest.fixture
def logger(tmp_path: Path) -> Iterator[Logger]:
    with Logger(tmp_path / "logs", SCHEMA, namespace="Market", table="Ticks", roll_bytes=40_000) as log:
        yield log


def write_pipeline(directory: Path, *, trigger: str = NOW, on_damage: str = "fail", settings: str = "") -> Path:
    path = directory / "p.toml"
    path.write_text(PIPELINE.format(trigger=trigger, on_damage=on_damage, more=settings))
    return path


def once(spark: SparkSession, path: Path) -> tuple[list[BatchReport], Any]:
    """Run a pipeline whose trigger ends; what it reported."""
    from sawlog.pipeline.plan import Plan
    from sawlog.pipeline.run import PipelineRun

    reports: list[BatchReport] = []
    totals = PipelineRun(Plan(load(path), spark), reports.append)()
    return reports, totals


def read_dear(spark: SparkSession, directory: Path) -> list[int]:
    """What a sink of Spark's holds, by its own account."""
    return sorted(spark.read.parquet(str(directory / "dear")).toArrow()["n"].to_pylist())


def make_expected(count: int) -> list[int]:
    return [n for n in range(count) if n % 20 >= 10]


@pytest.mark.nightly
def test_what_is_added_is_read_once(spark: SparkSession, logger: Logger, tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, settings='[sinks.copy]\nfrom = "dear"\nformat = "deephaven_log"\npath = "copy"')
    logger.write(ticks(0, 2000))
    logger.write(ticks(2000, 1000))
    first, _ = once(spark, path)
    assert read_dear(spark, tmp_path) == make_expected(3000)
    logger.write(ticks(3000, 500))
    second, totals = once(spark, path)
    assert read_dear(spark, tmp_path) == make_expected(3500)
    assert sorted(sawlog.read(tmp_path / "copy")["n"].to_pylist()) == make_expected(3500)
    assert totals.rows == {"dear": 500, "copy": 500}
    first, second = ([report for report in reports if report.sink == "dear"] for reports in (first, second))
    assert len(logger.files) > 2
    assert sum(report.rows for report in first) == 3000
    assert sum(report.rows for report in second) == 500
    assert [report.batch for report in (*first, *second)] == list(range(len(first) + len(second)))
    assert {report.damage for report in (*first, *second)} == {0}
    total_bytes = sum(os.path.getsize(file) for file in logger.files)
    assert 0 < sum(report.bytes or 0 for report in (*first, *second)) <= total_bytes
    assert (second[-1].lag_bytes, second[-1].sink, second[-1].pipeline) == (0, "dear", "ticks")
    again, _ = once(spark, path)
    assert again == []


@pytest.mark.nightly
def test_a_log_that_has_a_column_more(spark: SparkSession, logger: Logger, tmp_path: Path) -> None:
    """Each run asks for the columns before it looks at the checkpoint."""
    path = write_pipeline(tmp_path)
    logger.write(ticks(0, 100))
    once(spark, path)
    wider = ticks(100, 100).append_column("venue", pa.array(["X"] * 100))
    with Logger(tmp_path / "logs", wider.schema, namespace="Market", table="Ticks", internal_partition="w") as later:
        later.write(wider)
    for _ in range(2):
        once(spark, path)
        assert read_dear(spark, tmp_path) == make_expected(200)


def test_damage_is_written_down_as_it_comes(spark: SparkSession, logger: Logger, tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, on_damage="quarantine", settings=QUARANTINE)
    logger.write(ticks(0, 400))
    logger.flush()
    file = Path(logger.files[0])
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    reports, totals = once(spark, path)
    damage = sawlog.read(file, view="damage")
    table = spark.read.parquet(str(tmp_path / "quarantine")).toArrow()
    spans = zip(damage["offset"].to_pylist(), damage["length"].to_pylist(), strict=True)
    assert table["bytes"].to_pylist() == [bytes(data[offset : offset + length]) for offset, length in spans]
    assert table["offset"].to_pylist() == damage["offset"].to_pylist()
    assert set(table["source"].to_pylist()) == {"log"}
    assert (totals.damage, totals.skipped) == (damage.num_rows, 0)
    assert sum(report.rows for report in reports if report.sink == "quarantine") == damage.num_rows
    with pytest.warns(sawlog.DamageWarning):
        intact = sawlog.read(file, on_damage="skip", filters=[("price", ">=", 10)])
    assert read_dear(spark, tmp_path) == sorted(intact["n"].to_pylist())


FILES = 120
"""Logs that come under load, every third of them damaged."""
KILLS = 2


@pytest.mark.heavy
def test_quarantine_under_load(spark: SparkSession, tmp_path: Path) -> None:
    """Damaged and intact logs arrive while the pipeline is killed: intact rows and damaged ranges are there once.

    A source's own process is killed, too: then the pipeline goes on by itself.
    """
    path = write_pipeline(tmp_path, trigger='trigger = "100 milliseconds"', on_damage="quarantine", settings=QUARANTINE)
    place = tmp_path / "logs"
    place.mkdir()
    running = RunningPipeline(path)
    for number in range(FILES):
        aside, options = tmp_path / "aside", {"internal_partition": f"w{number}"}
        with Logger(aside, SCHEMA, namespace="Market", table="Ticks", **options) as log:
            log.write(ticks(number * 400, 400))
        (file,) = aside.iterdir()
        if not number % 3:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 0xFF
            file.write_bytes(data)
        file.rename(place / file.name)
        if number % (FILES // (KILLS + 1)) == FILES // (KILLS + 1) - 1 and number < FILES - 1:
            running.wait_for(lambda run_status=running: run_status.rows > 0)
            running.end(signal.SIGKILL)
            running = RunningPipeline(path)
    running.wait_for(lambda: running.rows > 0)
    planning = [pid for pid in descendants(running.process.pid) if "pyspark_sawlog" in command(pid)]
    kill(planning[-1])  # the first one is the daemon that the others are forked from
    with pytest.warns(sawlog.DamageWarning):
        intact = sorted(sawlog.read(place, on_damage="skip", filters=[("price", ">=", 10)])["n"].to_pylist())
    damage = sawlog.read(place, view="damage")
    running.wait_for(lambda: len(read_dear(spark, tmp_path)) >= len(intact), 1.0)
    running.wait_for(lambda: spark.read.parquet(str(tmp_path / "quarantine")).count() >= damage.num_rows, 1.0)
    assert running.end(signal.SIGTERM) == 0
    assert read_dear(spark, tmp_path) == intact
    result_table = spark.read.parquet(str(tmp_path / "quarantine")).toArrow()
    assert damage.num_rows >= FILES // 3

    def spans(table: pa.Table) -> list[tuple[str, int]]:
        names = [os.path.basename(value) for value in table["file"].to_pylist()]
        return sorted(zip(names, table["offset"].to_pylist(), strict=True))

    assert spans(result_table) == spans(damage)


@pytest.mark.nightly
def test_damage_that_is_skipped_is_counted(spark: SparkSession, logger: Logger, tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, on_damage="skip")
    logger.write(ticks(0, 400))
    logger.flush()
    file = Path(logger.files[0])
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    _, totals = once(spark, path)
    assert totals.damage == totals.skipped == sawlog.read(file, view="damage").num_rows


@pytest.mark.nightly
def test_a_sink_that_fails_ends_all(spark: SparkSession, logger: Logger, tmp_path: Path) -> None:
    from sawlog.errors import PipelineError

    path = write_pipeline(
        tmp_path,
        settings='[sinks.bad]\nfrom = "bad"\nformat = "noop"\n[steps.bad]\nsql = "SELECT raise_error(sym) FROM log"',
    )
    logger.write(ticks(0, 10))
    with pytest.raises(PipelineError, match=r"p\.toml:\d+: sinks\.bad: .*S0"):
        once(spark, path)
    assert not spark.streams.active


class RunningPipeline:
    """`sawlog run --json` as a process of its own, and its lines as they come."""

    def __init__(self, path: Path) -> None:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            environment.pop(name, None)
        self._errors = (path.parent / "run.log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sawlog", "run", str(path), "--json"],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.events.extend(json.loads(line) for line in lines)

    def wait_for(self, met: Callable[[], bool], pause: float = 0.1) -> None:
        deadline = time.monotonic() + 300
        while not met():
            assert self.process.poll() is None, "the pipeline has ended"
            assert time.monotonic() < deadline, "the pipeline does not get there"
            time.sleep(pause)

    def end(self, number: signal.Signals) -> int:
        """Send a signal: SIGKILL to everything that was started, others only to the command."""
        if number is signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(60)
        self._errors.close()
        return code

    @property
    def rows(self) -> int:
        return sum(event["rows"] for event in self.events if event["event"] == "batch")


@pytest.mark.nightly
def test_killed_and_started_again_every_row_arrives_once(spark: SparkSession, logger: Logger, tmp_path: Path) -> None:
    port = find_free_port()
    path = write_pipeline(tmp_path, trigger='trigger = "100 milliseconds"', settings=f"[metrics]\nport = {port}")
    logger.write(ticks(0, 500))
    running = RunningPipeline(path)
    running.wait_for(lambda: running.rows > 0)
    logger.write(ticks(500, 500))
    running.end(signal.SIGKILL)  # in the middle of a file
    logger.write(ticks(1000, 500))
    running = RunningPipeline(path)
    running.wait_for(lambda: running.rows > 0)
    logger.write(ticks(1500, 500))
    running.wait_for(lambda: read_dear(spark, tmp_path) == make_expected(2000), 1.0)
    running.wait_for(lambda: b"sawlog_last_batch" in metrics(port))
    assert b'sawlog_rows_total{pipeline="ticks",sink="dear"}' in metrics(port)
    assert b"sawlog_lag_bytes" in metrics(port)
    assert len(logger.files) == 2
    assert running.end(signal.SIGTERM) == 0
    assert running.events[-1]["event"] == "end"
    assert read_dear(spark, tmp_path) == make_expected(2000)


def metrics(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return bytes(answer.read())
