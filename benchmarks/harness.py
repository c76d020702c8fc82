"""The bench: cases with several sides, run in turns on the same bytes; results as a table and as JSON."""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "numba",
    "numpy",
    "pyarrow",
    "pyspark",
    "obstore",
    "plyvel",
    "rocksdict",
    "rleveldb",
    "dfindexeddb",
    "protobuf",
    "leveldb-export",
)
PATIENCE = 120
"""Seconds after which what has not come about never will."""


@dataclass(frozen=True)
class Side:
    """One way to do the work of a case.

    Attributes:
        name: Who does it; the first side of a case is sawlog's.
        run: Does the work once.
        bytes: Bytes of input (of output, where a case writes).
        rows: Rows in them; 0 where there is no such thing.
        note: What a reader of the results must know about this side.
        prepare: Called before each run, not measured.
        needs: The module of the peer that does it: where it is not installed, the side is left out.
    """

    name: str
    run: Callable[[], object]
    bytes: int
    rows: int = 0
    note: str = ""
    prepare: Callable[[], object] | None = None
    needs: str = ""


@dataclass(frozen=True)
class Case:
    """Several sides of the same work.

    Attributes:
        name: Short name, for `--only`.
        what: The work, in one line.
        sides: The first is sawlog's; the others are what it is compared with.
        per: What the sides' times are divided by before they are compared.
        cores: 1 pins the process to one core; 0 leaves it alone.
        headline: Whether the README shows it.
        processor_time: Whether that is measured, of child processes, too, instead of time.
        files: How many files the input is, where what a file takes is what counts.
    """

    name: str
    what: str
    sides: tuple[Side, ...]
    per: Literal["bytes", "rows"] = "bytes"
    cores: int = 1
    headline: bool = True
    processor_time: bool = False
    files: int = 0


@dataclass(frozen=True)
class Probe:
    """Something measured once, that is not how long some work takes: `run` gives names and numbers in a unit."""

    name: str
    what: str
    run: Callable[[], dict[str, float]]
    unit: str = "MB"


@dataclass
class Settings:
    """What the command line asked for.

    Attributes:
        size: Bytes of the large logs.
        big: Bytes of the log whose reading must not need memory.
        repeat: Measured runs of each side; 0 for a single one, that warms up: to see whether everything works.
        only: Run only cases whose names contain this.
        place: A directory for data; it is deleted at the end.
        memory: The same, in memory where there is room: for what is written, so that no disk is measured.
        program: A directory that stays until the program ends: for what benchmarks share.
    """

    size: int
    big: int
    repeat: int
    only: str
    place: Path
    memory: Path
    program: Path

    @property
    def once(self) -> bool:
        """Whether nothing is to be measured: what takes a fixed time may take less."""
        return not self.repeat

    def wanted(self, name: str) -> bool:
        """Whether a case of that name was asked for."""
        return self.only in name


@dataclass
class Results:
    """What a run measured, as it is written to `results/`."""

    benchmark: str
    made: str
    environment: dict[str, str]
    settings: dict[str, int]
    cases: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, benchmark: str, settings: Settings) -> Results:
        """Nothing measured yet."""
        sizes = {"size": settings.size, "big": settings.big, "repeat": settings.repeat}
        return cls(benchmark, datetime.now(UTC).date().isoformat(), environment(), sizes)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def processor_time() -> float:
    """Of this process, and of those that it has started and that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def run_case(case: Case, settings: Settings, console: Console) -> dict[str, Any]:
    """Warm every side up, then run them in turns: A B C A B C…"""
    present = [side for side in case.sides if not side.needs or find_spec(side.needs)]
    seconds: dict[str, list[float]] = {side.name: [] for side in present}
    clock = processor_time if case.processor_time else time.perf_counter
    with pinned(case.cores):
        for turn in range(settings.repeat + 1):
            for side in present:
                if side.prepare is not None:
                    side.prepare()
                if turn:  # to warm up, and to try that it runs, garbage need not be out of the way
                    gc.collect()
                begin = clock()
                side.run()
                elapsed = clock() - begin
                if turn or settings.once:
                    seconds[side.name].append(elapsed)
    sides = [
        {"name": s.name, "bytes": s.bytes, "rows": s.rows, "note": s.note, "seconds": seconds[s.name]} for s in present
    ]
    result = {
        "name": case.name,
        "what": case.what,
        "per": case.per,
        "cores": case.cores,
        "headline": case.headline,
        "files": case.files,
        "sides": sides,
        "not installed": [side.name for side in case.sides if side not in present],
    }
    console.print(as_table(result))
    return result


def run_probe(probe: Probe, console: Console) -> dict[str, Any]:
    numbers = probe.run()
    table = Table(title=f"{probe.name}: {probe.what}", title_justify="left")
    table.add_column("")
    table.add_column(probe.unit, justify="right")
    for name, number in numbers.items():
        table.add_row(name, in_digits(number))
    console.print(table)
    return {"name": probe.name, "what": probe.what, "unit": probe.unit, "numbers": numbers}


def in_digits(number: float) -> str:
    """A number as tables show it: two decimals where it is small."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2f}"


@dataclass(frozen=True)
class Line:
    """One side of a result, worked out."""

    name: str
    note: str
    best: float
    median: float
    gigabytes: float
    rows: float
    ratio_best: float
    ratio_median: float


def lines(case: dict[str, Any]) -> list[Line]:
    """The sides of a result. A ratio says how many times as fast sawlog is as that side."""
    ours = case["sides"][0]
    line_list = []
    for side in case["sides"]:
        best, median = min(side["seconds"]), statistics.median(side["seconds"])
        scale = ours[case["per"]] / side[case["per"]]
        line_list.append(
            Line(
                side["name"],
                side["note"],
                best,
                median,
                side["bytes"] / best / 1e9,
                side["rows"] / best,
                best * scale / min(ours["seconds"]),
                median * scale / statistics.median(ours["seconds"]),
            )
        )
    return line_list


def as_table(case: dict[str, Any]) -> Table:
    table = Table(title=f"{case['name']}: {case['what']}", title_justify="left")
    table.add_column("")
    for heading in ("best s", "median s", "GB/s", "rows/s", "sawlog is (best)", "(median)"):
        table.add_column(heading, justify="right")
    for line in lines(case):
        table.add_row(
            line.name,
            f"{line.best:.3f}",
            f"{line.median:.3f}",
            f"{line.gigabytes:.3f}",
            f"{line.rows:,.0f}" if line.rows else "",
            f"{line.ratio_best:.2f} x",
            f"{line.ratio_median:.2f} x",
        )
    return table


def wait_for(work: Future[None], is_done: Callable[[], bool]) -> None:
    """Wait for something that work of another thread brings about.

    Raises:
        TimeoutError: When it has not come about in `PATIENCE`, or the work has ended.
    """
    end = time.monotonic() + PATIENCE
    while not is_done():
        if time.monotonic() > end or work.done():
            work.result(0)
            raise TimeoutError("the work that it waits for has ended")
        time.sleep(0.005)


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Run on that many cores only, where the system can; 0 for no change."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-cores:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def environment() -> dict[str, str]:
    """What the numbers depend on."""
    facts = {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
