"""What becomes of faults where Spark tries a task twice; `test_faults.py` runs it in a process of its own.

python -m tests.spark.two_attempts URL CONTROL
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sawlog.errors import FormatError, SawlogError, StorageError
from sawlog.spark import session
from sawlog.spark.tasks import run_tasks
from tests.spark.conftest import PLUGINS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.master": "local[1,2]", "spark.ui.enabled": "false", "spark.log.level": "OFF"}
RAISED: list[tuple[int, type[SawlogError]]] = [(1, StorageError), (2, StorageError), (2, FormatError)]
"""At how many calls an item fails, and how."""


def main(url: str, control: Path) -> None:
    """Print what is found, in JSON."""
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, PLUGINS), os.environ.get("PYTHONPATH", "")])
    spark = session(settings=SETTINGS)
    attempts = count_attempts(spark, url, control) | call(spark, Path(tempfile.mkdtemp(dir=control)))
    spark.stop()
    print(json.dumps(attempts))


def count_attempts(spark: SparkSession, url: str, control: Path) -> dict[str, Any]:
    """Rows of a log, counted once for each request of its tasks, which fails."""
    reading = spark.read.format("sawlog").options(format="leveldb_log", mode="DROPMALFORMED")
    frame = reading.option("storage.control", str(control)).load(url)
    path = control / "asked"

    def count(number: int) -> int:
        path.write_text("")
        (control / "fails").write_text(str(number))
        return int(frame.count())

    count(0)
    places = [number for number, place in enumerate(path.read_text().split(), 1) if place == "task"]
    return {"asked": len(places), "rows": [count(number) for number in places]}


def call(spark: SparkSession, calls: Path) -> dict[str, Any]:
    """What `run_tasks` returns of items that fail, and how often each was called."""
    outcomes = run_tasks(spark, failing(calls), range(len(RAISED)), [1 << 30] * len(RAISED))
    answers = [type(outcome).__name__ if isinstance(outcome, SawlogError) else outcome for outcome in outcomes]
    return {"outcomes": answers, "calls": [(calls / str(item)).stat().st_size for item in range(len(RAISED))]}


def failing(calls: Path) -> Callable[[int], str]:
    """A function that fails as `RAISED` says."""
    raised = RAISED

    def function(item: int) -> str:
        with open(calls / str(item), "a") as file:
            file.write(".")
        times, kind = raised[item]
        if (calls / str(item)).stat().st_size <= times:
            raise kind("the store does not answer")
        return "an answer"

    return function


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
