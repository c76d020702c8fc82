"""Whole processes on small files: processor time from start to end, with a warm file cache.

To see that all works, this process runs what is Python's.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

from pyarrow import parquet

import sawlog
from benchmarks.harness import Case, Settings, Side
from benchmarks.kernel_calls import SHOP, samples

ROWS = 1000
READY = "import sawlog.spark.reader, sawlog; next(iter(sawlog.open({0!r}, format={1!r}).to_batches()))"
"""What a Python worker of Spark does before it has decoded its first batch, with the threads that Spark allows."""


def cases(settings: Settings) -> Iterator[Case]:
    return (case for case in all_cases(settings) if settings.wanted(case.name))


def all_cases(settings: Settings) -> Iterator[Case]:
    paths = {"leveldb_database": SHOP}
    rows = str(settings.place / "small.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (table, options) in samples(ROWS).items():
            paths[name] = settings.place / f"small_{name}"
            sawlog.write(table, paths[name], format=name, **options)
            parquet.write_table(table, rows)
    start = run_here if settings.once else start_process
    case, peers = partial(make_case, start), partial(find_peers, start)
    yield case("help", "sawlog --help", ["--help"], peers(["--help"], ["--help"]))
    described = peers(["-c", f"describe from '{rows}'"], ["inspect", rows])
    for name, path in paths.items():
        yield case(f"info_{name}", f"sawlog info: {name}, {ROWS} rows", ["info", str(path)], described)
    peers_showing = peers(["-c", f"from '{rows}' limit 5"], ["show", "--head", "5", rows])
    counted = peers(["-c", f"select count(*) from '{rows}'"], ["rowcount", rows])
    for name, path in paths.items():
        for verb, peers_of_verb in ((["cat", "--limit", "5"], peers_showing), (["verify"], counted)):
            description = f"sawlog {' '.join(verb)}: {name}, {ROWS} rows"
            yield case(f"{verb[0]}_{name}", description, [*verb, str(path)], peers_of_verb)
    for name, path in paths.items():
        ready = Side("worker", partial(start, "-c", READY.format(str(path), name), OMP_NUM_THREADS="1"), 1)
        yield measured(f"worker_{name}", f"first batch in a Python worker: {name}", ready)


def make_case(start: Callable[..., None], name: str, description: str, arguments: list[str], peers: list[Side]) -> Case:
    ours = Side("sawlog", partial(start, "-m", "sawlog", *arguments), 1)
    return measured(name, description, ours, *peers)


def measured(name: str, description: str, *sides: Side) -> Case:
    return Case(name, description, sides, cores=0, headline=False, processor_time=True)


def find_peers(start: Callable[..., None], duckdb: list[str], parquet_tools: list[str]) -> list[Side]:
    """Programs that do the like with a Parquet file, those that are there, and what every process in Python takes."""
    sides = [Side("python -c 'import pyarrow'", partial(start, "-c", "import pyarrow"), 1)]
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    for name, arguments in (("duckdb", duckdb), ("parquet-tools", parquet_tools)):
        program = shutil.which(name, path=places)
        if program:
            sides.append(Side(f"{name} {arguments[0]}", partial(run_program, program, *arguments), 1))
    return sides


def start_process(*arguments: str, **variables: str) -> None:
    run_program(sys.executable, *arguments, **variables)


def run_program(*command: str, **variables: str) -> None:
    hidden = subprocess.DEVNULL
    subprocess.run(command, env={**os.environ, **variables}, check=True, stdout=hidden, stderr=hidden)


def run_here(kind: str, name: str, *arguments: str, **_: str) -> None:
    """Run a module or a line of code as Python would, and hide what it writes.

    Raises:
        RuntimeError: When it ends with another exit code than 0.
    """
    before, streams = sys.argv, [os.dup(number) for number in (1, 2)]
    try:
        with open(os.devnull, "w") as hidden:
            sys.stdout.flush()
            for number in (1, 2):
                os.dup2(hidden.fileno(), number)
        sys.argv = [name, *arguments]
        if kind == "-c":
            exec(name, {})
        else:
            runpy.run_module(name, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{name} {' '.join(arguments)} ended with {ended.code}") from ended
    finally:
        sys.stdout.flush()
        sys.argv = before
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
