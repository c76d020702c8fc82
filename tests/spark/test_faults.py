"""Stores that do not answer: never damage, never fewer rows, and a task that sees such a fault is tried again."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

import sawlog
from sawlog.errors import PipelineError, SawlogError
from sawlog.pipeline import load
from sawlog.pipeline.plan import Plan
from sawlog.pipeline.run import PipelineRun
from sawlog.spark.errors import is_damage, is_transient, list_spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP = 8

PIPELINE = """\
[pipeline]
name = "faults"

[sources.log]
path = "{url}"
format = "leveldb_log"
storage = {{ control = "{control}" }}
on_damage = "quarantine"

[sinks.copy]
from = "log"
format = "noop"
mode = "append"

[quarantine]
format = "json"
path = "{quarantine}"
mode = "overwrite"
"""


class FaultyStore:
    """A log with damage in a store that fails when it should; Spark's processes find it by their Python path."""

    def __init__(self, damaged: Path, control: Path) -> None:
        self.control = control
        self.control.mkdir()
        self.url = f"faulty://{damaged}"
        self.options = {"format": "leveldb_log", "storage.control": str(control)}
        with pytest.warns(sawlog.DamageWarning):
            self.intact = sawlog.read(damaged, on_damage="skip").num_rows
        self.damage = sawlog.read(damaged, view="damage").num_rows

    def fails(self, number: int | None) -> None:
        """Have a request fail, counted from 1, from now on."""
        (self.control / "asked").write_text("")
        (self.control / "fails").unlink(missing_ok=True)
        if number is not None:
            (self.control / "fails").write_text(str(number))

    def list_requests(self) -> list[str]:
        """Where requests came from: `plan` or `task`."""
        return (self.control / "asked").read_text().split()

    def attempts(self, first: int, ask: Callable[[], Any]) -> list[tuple[str, Any]]:
        """For every eighth request that is made without a fault: where it came from, and what is said if it fails."""
        from sawlog_faulty import FaultyFileSystem

        fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
        self.fails(None)
        ask()
        attempts = []
        for number, place in list(enumerate(self.list_requests(), 1))[first::STEP]:
            self.fails(number)
            try:
                attempts.append((place, ask()))
            except (*list_spark_errors(), SawlogError) as error:
                attempts.append((place, error))
        self.fails(None)
        return attempts


@pytest.fixture
def faulty(plugins: None, damaged: Path, tmp_path: Path) -> FaultyStore:
    return FaultyStore(damaged, tmp_path / "control")


def is_fault(error: Any) -> bool:
    return isinstance(error, Exception) and is_transient(error) and not is_damage(error)


def count(spark: SparkSession, faulty: FaultyStore) -> Any:
    reading = spark.read.format("sawlog").options(**faulty.options, mode="DROPMALFORMED", task_bytes="262144")
    return reading.load(faulty.url).count()


@pytest.mark.parametrize("first", range(STEP))
@pytest.mark.spread(STEP)
def test_no_fault_is_skipped(spark: SparkSession, faulty: FaultyStore, first: int) -> None:
    attempts = faulty.attempts(first, lambda: count(spark, faulty))
    assert {place for place, _ in attempts} == {"plan", "task"}
    assert all(is_fault(answer) or answer == faulty.intact for _, answer in attempts), attempts
    assert any(is_fault(answer) for place, answer in attempts if place == "task")


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(STEP))
def test_no_fault_is_quarantined(spark: SparkSession, faulty: FaultyStore, tmp_path: Path, first: int) -> None:
    quarantine = tmp_path / "quarantine"
    path = tmp_path / "pipeline.toml"
    path.write_text(PIPELINE.format(url=faulty.url, control=faulty.control, quarantine=quarantine))

    def run() -> int:
        totals = PipelineRun(Plan(load(path), spark), lambda _: None)()
        assert spark.read.json(str(quarantine)).count() == totals.damage
        return totals.damage

    for _, answer in faulty.attempts(first, run):
        failed = isinstance(answer, PipelineError) and answer.transient and not answer.damaged
        assert failed or answer == faulty.damage, answer


@pytest.mark.parametrize("first", range(STEP))
@pytest.mark.nightly
def test_a_micro_batch_with_a_fault_does_not_commit(
    spark: SparkSession, faulty: FaultyStore, tmp_path: Path, pyspark_version: tuple[int, int], first: int
) -> None:
    if pyspark_version < (4, 2):
        pytest.skip("streams need PySpark 4.2")
    reading = spark.readStream.format("sawlog").options(**faulty.options, mode="DROPMALFORMED").schema("record binary")
    places = (tmp_path / f"query{number}" for number in itertools.count())

    def run() -> int:
        place = next(places)
        writer = reading.load(faulty.url).writeStream.trigger(availableNow=True).format("parquet")
        writer = writer.option("checkpointLocation", str(place / "checkpoint"))
        try:
            writer.start(str(place / "out")).awaitTermination()
        except list_spark_errors():
            assert not list(place.glob("checkpoint/commits/[0-9]*"))
            assert not list(place.glob("out/_spark_metadata/[0-9]*"))
            faulty.fails(None)
            writer.start(str(place / "out")).awaitTermination()
            assert spark.read.parquet(str(place / "out")).count() == faulty.intact
            raise
        return spark.read.parquet(str(place / "out")).count()

    attempts = faulty.attempts(first, run)
    assert all(is_fault(answer) or answer == faulty.intact for _, answer in attempts), attempts
    assert any(is_fault(answer) for _, answer in attempts)


@pytest.mark.nightly
def test_a_task_that_sees_a_fault_is_tried_again(faulty: FaultyStore, tmp_path: Path) -> None:
    """In a session of its own, for a local one gives up at once unless its master says otherwise."""
    command = [sys.executable, "-m", "tests.spark.two_attempts", faulty.url, str(faulty.control)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(done.stdout)
    assert document["asked"] > 0
    assert document["rows"] == [faulty.intact] * document["asked"], "of queries with a fault in a task"
    assert document["outcomes"] == ["an answer", "StorageError", "FormatError"]
    assert document["calls"] == [2, 2, 1]
