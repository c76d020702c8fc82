"""How long a fresh Spark session takes to start and to answer: a first count, later ones, and a new worker.

The first count in parts: `load` ends with a schema, `plan` with a physical plan, `run` with the answer; and the
processor time of the JVM and of the Python processes that it has started.

python -m benchmarks.first_query SIDE PATH    one session, its seconds as JSON

To see that all works, sessions follow each other in one process.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

import sawlog
from benchmarks.harness import Probe, Settings

ROWS = 10_000
PLAIN = {"spark.master": "local[2]", "spark.ui.enabled": "false"}
COUNTS = 7
"""After the first one."""
NO_REUSE = {"spark.python.worker.reuse": "false"}
"""Every task has a worker that was forked for it."""
WITHOUT = {"spark.jars": ""}
SIDES: dict[str, tuple[str, dict[str, str] | None]] = {
    "sawlog.spark.session() after sawlog warm-up": ("sawlog", None),
    "sawlog with the jar": ("sawlog", {}),
    "sawlog with the jar, new workers": ("sawlog", NO_REUSE),
    "sawlog without it": ("sawlog", WITHOUT | {"spark.python.daemon.module": "sawlog.spark.daemon"}),
    "Spark's Parquet": ("parquet", WITHOUT),
    "Spark's text": ("text", WITHOUT),
}
"""A format and Spark's settings; without them the session is that of `sawlog.spark.session()`."""


def cases(settings: Settings) -> Iterator[Probe]:
    sides = [side for side in SIDES if settings.wanted(f"first_query {side}")]
    if sides:
        description = f"seconds from load to the answer of count() in a fresh session, {ROWS:,} records, local[2]"
        yield Probe("first_query", description, partial(measure, settings, sides), "s")


def measure(settings: Settings, sides: list[str]) -> dict[str, float]:
    """Medians, and the fastest and the slowest, of sessions that are started in turns."""
    from sawlog.spark.jvm import make_archive

    make_archive()
    path = settings.place / "000003.log"
    table = pa.table({"record": pa.array([b"%0100d" % number for number in range(ROWS)], pa.binary())})
    sawlog.write(table, path, format="leveldb_log")
    parquet.write_table(table, f"{path}.parquet")
    times: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(max(1, settings.repeat)):
        for side, seconds in times.items():
            if settings.once:
                seconds.append(one_session(side, path, 1))
                continue
            command = [sys.executable, "-m", "benchmarks.first_query", side, str(path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            seconds.append(json.loads(done.stdout))
    numbers = {}
    for side, seconds in times.items():
        for kind in seconds[0]:
            all_ = [timing[kind] for timing in seconds]
            numbers[f"{side}: {kind}"] = statistics.median(all_)
            numbers |= {f"{side}: {kind}, {name}": of(all_) for name, of in (("least", min), ("most", max))}
    return numbers


def one_session(side: str, path: Path, counts: int = COUNTS) -> dict[str, float]:
    """The start, a first count and its parts, and the median of later ones."""
    import sawlog.spark
    from sawlog.spark.jar import locate_jar

    os.environ["PYSPARK_PYTHON"] = sys.executable
    format, settings = SIDES[side]
    begin = time.perf_counter()
    if settings is None:
        spark = sawlog.spark.session("benchmarks", PLAIN)
    else:
        spark = started({"spark.jars": locate_jar(), **settings})
    start = time.perf_counter() - begin
    reader = spark.read.format(format)
    place = f"{path}.parquet" if format == "parquet" else str(path)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    before, marks = processor(jvm), [time.perf_counter()]
    frame = reader.load(place).groupBy().count()
    marks.append(time.perf_counter())
    frame._jdf.queryExecution().executedPlan()
    marks.append(time.perf_counter())
    frame.collect()
    marks.append(time.perf_counter())
    used = [after - begin for begin, after in zip(before, processor(jvm), strict=True)]
    later = []
    for _ in range(counts):
        begin = time.perf_counter()
        reader.load(place).count()
        later.append(time.perf_counter() - begin)
    spark.stop()
    parts = [after - begin for begin, after in pairwise(marks)]
    return {
        "start": start,
        "first": marks[-1] - marks[0],
        **dict(zip(("load", "plan", "run"), parts, strict=True)),
        **dict(zip(("processor of the JVM", "processor of Python"), used, strict=True)),
        "later": statistics.median(later),
    }


def processor(jvm: int) -> tuple[float, float]:
    """Seconds of a processor that a JVM has used, and the processes below it: Linux only."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    own_times: dict[int, float] = {}
    ended: dict[int, float] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = [int(field) for field in status.read_text().rpartition(")")[2].split()[1:15]]
            number = int(status.parent.name)
            parents[number], own_times[number], ended[number] = fields[0], sum(fields[10:12]), sum(fields[12:14])

    def below(parent: int) -> float:
        return ended[parent] + sum(own_times[pid] + below(pid) for pid, above in parents.items() if above == parent)

    return own_times[jvm] / ticks, below(jvm) / ticks


def started(settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    return builder.config(map=PLAIN | settings).getOrCreate()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(one_session(sys.argv[1], Path(sys.argv[2]))))
