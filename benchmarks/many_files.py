"""Many files: processor time of one thread for each of 1,000 files and for each of 100,000, which ought to be the same.

`python -m benchmarks.many_files`, or with two other numbers. Files are of 100 rows, copies of one, in directories.
Every number is of a process of its own. It does the same with a tenth of the smaller number before; what that takes is
the constant that is subtracted. Few files are measured before and after many: the speed of a machine may change.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType
from typer.testing import CliRunner

import sawlog
from benchmarks.kernel_calls import samples
from benchmarks.small_files import NAMES, ROWS, write_sample
from sawlog.cli.app import app
from sawlog.spark import planner
from sawlog.spark.reader import make_reader, read_schema

COUNTS = (1000, 100_000)
TIMES = 3
"""How often few files are measured, before and after many."""
DIRECTORY_FILES = 1000
"""In each directory, or so many directories."""
FOLLOWED = ("leveldb_log", "deephaven_log", "filodb_record")
PLACES = {
    **{name: f"{{directory:03}}/{pattern}" for name, pattern in NAMES.items()},
    "deephaven_log": "h{directory}/NS.T.System.h{directory}.2026-01-01.bin.2026-01-01.000000.{0:06}+0000",
    "deephaven_table": "Intraday/NS/T/p{0}/{directory:04}-01-01/T",
}
"""Of files, or of directories of files; those that are not here have a number in a directory."""


def open_all(path: str, name: str) -> Iterator[sawlog.Dataset]:
    """Open a folder as one dataset, or each database in it."""
    paths = sorted(map(str, Path(path).glob("*/*"))) if name == "leveldb_database" else [path]
    return (sawlog.open(place, format=name, use_threads=False) for place in paths)


def run_tasks(path: str, name: str) -> int:
    """Plan a read for Spark without its jar, and run its tasks one after the other; how many rows they deliver."""
    options = {"path": path}
    reader = make_reader(options, name, read_schema(options, name))
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))


def count_by_tasks(path: str, name: str) -> int:
    """Describe and plan a count as Spark's jar asks for it, and run its tasks; how many rows there are."""
    options = {"path": path}
    full = StructType.fromJson(json.loads(planner.describe(options)["schema"]))
    (side,) = planner.plan(options, full, [planner.ScanRequest(StructType([]), [])], parallelism=2)
    batches = (pa.record_batch({"task": [task], "stop": [f"{path}.stop"]}) for task in side.partitions)
    return sum(sum(counts.column(0).to_pylist()) for batch in batches for counts in side.function(iter([batch])))


def sum_up(measure: Callable[[sawlog.Dataset], int]) -> Callable[[str, str], Any]:
    return lambda path, name: sum(measure(dataset) for dataset in open_all(path, name))


VERBS: dict[str, Callable[[str, str], Any]] = {
    "open": sum_up(lambda dataset: len(dataset.schema)),
    "plan": sum_up(lambda dataset: sum(1 for _ in dataset.fragments())),
    "read": sum_up(lambda dataset: sum(batch.num_rows for batch in dataset.to_batches())),
    "count": sum_up(lambda dataset: dataset.count_rows()),
    "verify": lambda path, _: sawlog.verify(path, use_threads=False),
    "ls": lambda path, _: CliRunner().invoke(app, ["ls", path]),
    "follow": lambda path, name: [dataset.watch().look() for dataset in open_all(path, name)],
    "Spark": lambda path, name: make_reader({"path": path}, name, read_schema({"path": path}, name)).partitions(),
    "Spark's rows": run_tasks,
    "Spark's count": count_by_tasks,
}
"""What is measured; following is of logs only, and work for Spark of a folder."""


def make_files(name: str, folder: Path, count: int) -> int:
    """Make copies of a file, or of a directory of files, and return how many files there are."""
    tables = {sample: table for sample, (table, _) in samples(ROWS).items()}
    key = pa.array([b"%03d" % number for number in range(ROWS)], pa.binary())
    tables["leveldb_database"] = pa.table({"key": key, "value": key})
    with tempfile.TemporaryDirectory() as place:
        first = Path(place, "first")
        write_sample(name, tables[name], first)
        contents = {
            str(path.relative_to(first)): path.read_bytes() for path in [first, *first.rglob("*")] if path.is_file()
        }
    units = max(1, count // len(contents))
    for number in range(units):
        pattern = PLACES.get(name, "{directory:03}/{0:06}")
        for inner, data in contents.items():
            path = folder / pattern.format(number, directory=number // DIRECTORY_FILES) / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return units * len(contents)


def measure_here(verb: str, name: str, folders: Sequence[Path], counts: Sequence[int]) -> list[float]:
    """Measure a folder of each size; how many seconds of processor time a file takes, of few and of many."""
    warnings.simplefilter("ignore")
    run(verb, name, folders[0])  # which imports
    constant = run(verb, name, folders[0])
    before = [run(verb, name, folders[1]) for _ in range(TIMES)]
    many = run(verb, name, folders[2])
    after = [run(verb, name, folders[1]) for _ in range(TIMES)]
    times = (constant, statistics.mean(before + after), many)
    return [(time - constant) / (count - counts[0]) for time, count in zip(times[1:], counts[1:], strict=True)]


def run(verb: str, name: str, folder: Path) -> float:
    """Do the work; how many seconds of processor time it takes."""
    start = time.process_time()
    VERBS[verb](str(folder), name)
    return time.process_time() - start


def measure_apart(verb: str, name: str, folders: Sequence[Path], counts: Sequence[int]) -> list[float]:
    """Measure in another process."""
    command = [sys.executable, "-m", "benchmarks.many_files", verb, name, *map(str, folders), *map(str, counts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return [float(number) for number in json.loads(done.stdout.splitlines()[-1])]


def list_verbs(name: str) -> list[str]:
    left_out = {"follow": name not in FOLLOWED}
    return [verb for verb in VERBS if not left_out.get(verb, name == "leveldb_database" and verb.startswith("Spark"))]


def main() -> None:
    if len(sys.argv) > 3:
        verb, name, *numbers = sys.argv[1:]
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # that threads wait for each other costs, too
        print(json.dumps(measure_here(verb, name, list(map(Path, numbers[:3])), list(map(int, numbers[3:])))))
        return
    few, many = map(int, sys.argv[1:] or COUNTS)
    print("|", " | ".join(["microseconds for each file", *VERBS]), "|")
    print("|", " | ".join(["---", *["---:" for _ in VERBS]]), "|", flush=True)
    for name in [*samples(ROWS), "leveldb_database"]:
        cells = dict.fromkeys(VERBS, "")
        with tempfile.TemporaryDirectory() as place:
            folders = [Path(place, str(count)) for count in (few // 10, few, many)]
            counts = [make_files(name, folder, int(folder.name)) for folder in folders]
            for verb in list_verbs(name):
                times = measure_apart(verb, name, folders, counts)
                cells[verb] = f"{times[0] * 1e6:.0f}, {times[1] * 1e6:.0f}: {times[1] / times[0]:.2f}"
        print("|", " | ".join([name, *cells.values()]), "|", flush=True)


if __name__ == "__main__":
    main()
