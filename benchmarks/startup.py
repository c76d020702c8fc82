"""Whole processes on small files: processor time from start to end, with a warm file cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import sawlog
from benchmarks.harness import Case, Settings, Side
from benchmarks.kernels import samples

ROWS = 1000
SHOP = Path(__file__).parents[1] / "examples" / "data" / "shop"
READY = "import sawlog.spark.reader, sawlog; next(iter(sawlog.open({0!r}, format={1!r}).to_batches()))"
"""What a Python worker of Spark does before it has decoded its first batch."""


def cases(settings: Settings) -> Iterator[Case]:
    paths = {"leveldb_database": SHOP}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (table, options) in samples(ROWS).items():
            paths[name] = settings.place / f"small_{name}"
            sawlog.write(table, paths[name], format=name, **options)
    yield case("help", "sawlog --help", ["--help"], peers(["--help"], ["--help"]))
    yield case("info", "sawlog info of a small database", ["info", str(SHOP)], peers(["-c", "select 1"], ["info"]))
    for name, path in paths.items():
        for verb in (["cat", "--limit", "5"], ["verify"]):
            what = f"sawlog {' '.join(verb)}: {name}, {ROWS} rows"
            yield case(f"{verb[0]}_{name}", what, [*verb, str(path)], peers(["-c", "select 1"], None))
    for name, path in paths.items():
        ready = Side("worker", started(sys.executable, "-c", READY.format(str(path), name)), 1)
        yield measured(f"worker_{name}", f"first batch in a Python worker: {name}", ready)


def case(name: str, what: str, arguments: list[str], others: list[Side]) -> Case:
    ours = Side("sawlog", started(sys.executable, "-m", "sawlog", *arguments), 1)
    return measured(name, what, ours, *others)


def measured(name: str, what: str, *sides: Side) -> Case:
    return Case(name, what, sides, cores=0, headline=False, processor_time=True)


def peers(duckdb: list[str], mcap: list[str] | None) -> list[Side]:
    """Programs that do the like, where the machine has them, and what every process in Python takes."""
    sides = [Side("python -c 'import pyarrow'", started(sys.executable, "-c", "import pyarrow"), 1)]
    for program, arguments in (("duckdb", duckdb), ("mcap", mcap and ["--help"]), ("parquet-tools", ["--help"])):
        if arguments is not None and shutil.which(program):
            sides.append(Side(f"{program} {' '.join(arguments)}", started(program, *arguments), 1))
    return sides


def started(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
