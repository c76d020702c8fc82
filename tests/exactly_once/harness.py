"""Kills processes at random, lets the queries finish, and counts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sawlog

ROOT = Path(__file__).parents[2]
VICTIMS = ("worker", "worker", "writer", "writer", "driver")
"""Who is killed, by chance: a driver costs most, for Spark has to be started again."""


@dataclass
class Tally:
    """What was killed, and what became of the rows.

    Attributes:
        logged: Rows that are complete in the logs at the end.
        kills: How often each kind of process was killed.
        sinks: Rows in each sink, and how many of them are missing, doubled or unknown.
    """

    logged: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    sinks: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every sink holds every row once."""
        return all(one == (self.logged, 0, 0, 0) for one in self.sinks.values())

    def __str__(self) -> str:
        kills = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.kills.items()))
        lines = [f"killed with SIGKILL: {kills}", f"rows in the logs: {self.logged:,}"]
        for sink, (rows, missing, doubled, unknown) in self.sinks.items():
            lines.append(f"  {sink:<14} {rows:>10,} rows, {missing} missing, {doubled} doubled, {unknown} unknown")
        return "\n".join([*lines, "every row arrived once" if self.exact else "NOT EXACTLY ONCE"])


class Harness:
    """One run.

    Args:
        root: A new directory for logs, checkpoints and sinks.
        sinks: Names of the sinks.
        seed: Of what is random.
    """

    def __init__(self, root: Path, sinks: Sequence[str], seed: int = 0) -> None:
        self.root = root
        self.sinks = list(sinks)
        self.tally = Tally()
        self._chance = random.Random(seed)
        self._writers = 0
        self._ours: list[subprocess.Popen[bytes]] = []
        (root / "logs").mkdir()

    def run(self, kills: int, pause: float) -> Tally:
        """Kill `kills` processes, `pause` seconds apart on average, then count."""
        first = sorted(set(VICTIMS))
        self._chance.shuffle(first)
        try:
            writer, driver = self._start_writer(), self._start_driver()
            self._wait_for_sinks(driver)
            while self.tally.kills.total() < kills:
                time.sleep(self._chance.uniform(0, 2 * pause))
                victim = first.pop() if first else self._chance.choice(VICTIMS)
                if victim == "writer":
                    self._kill(victim, [writer.pid])
                    writer.wait()
                    writer = self._start_writer()
                elif victim == "driver":
                    self._kill(victim, [driver.pid, *descendants(driver.pid)])
                    driver.wait()
                    driver = self._start_driver()
                    self._wait_for_sinks(driver)
                else:
                    workers = [pid for pid in descendants(driver.pid) if "pyspark" in command(pid).partition(" ")[2]]
                    workers = [pid for pid in workers if "pyspark/" not in command(pid) and "java" not in command(pid)]
                    if workers:
                        self._kill(victim, [self._chance.choice(workers)])
                    else:
                        first.append(victim)
            self._kill("writer", [writer.pid])
            writer.wait()
            (self.root / "finish").touch()
            if driver.wait(600):
                raise RuntimeError(f"the driver ended with {driver.returncode}; see {self.root}/run_queries.log")
            return self._count()
        finally:
            for process in self._ours:
                for pid in [*descendants(process.pid), process.pid] if process.poll() is None else ():
                    kill(pid)
                process.wait()

    def _start_writer(self) -> subprocess.Popen[bytes]:
        self._writers += 1
        return self._start("log_rows", str(self.root / "logs"), str(self._writers))

    def _start_driver(self) -> subprocess.Popen[bytes]:
        return self._start("run_queries", str(self.root), *self.sinks)

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{module}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tests.exactly_once.{module}", *arguments], stdout=log, stderr=log, cwd=ROOT
            )
        self._ours.append(process)
        return process

    def _wait_for_sinks(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until every query has committed a micro-batch since the driver was started: there is work to kill."""
        begun = time.time()
        while driver.poll() is None and time.time() - begun < 300:
            commits = [self.root / "checkpoints" / sink / "commits" for sink in self.sinks]
            if all(commit.exists() and commit.stat().st_mtime > begun for commit in commits):
                return
            time.sleep(0.1)

    def _kill(self, kind: str, pids: Sequence[int]) -> None:
        self.tally.kills[kind] += 1
        print(f"kill {self.tally.kills.total()}: {kind}", file=sys.stderr, flush=True)
        for pid in pids:
            kill(pid)

    def _count(self) -> Tally:
        logged = self._keys("logs", "deephaven_log")
        self.tally.logged = len(logged)
        for sink in self.sinks:
            found = self._keys(f"sinks/{sink}", sink)
            distinct = np.unique(found)
            missing = len(np.setdiff1d(logged, distinct))
            unknown = len(np.setdiff1d(distinct, logged))
            self.tally.sinks[sink] = (len(found), missing, len(found) - len(distinct), unknown)
        return self.tally

    def _keys(self, place: str, format: str) -> NDArray[np.int64]:
        if format == "parquet":
            with pa.memory_map(str(self.root / "parquet.arrow")) as file:
                return pa.ipc.open_file(file).read_all().column("k").to_numpy()
        options = {"schema": "gauge"} if format == "filodb_record" else {}
        column = {"filodb_record": "timestamp", "leveldb_log": "record"}.get(format, "k")
        read = sawlog.open(self.root / place, format=format, columns=[column], on_damage="skip", **options)
        batches = [batch.column(0) for fragment in read.fragments() for batch in fragment.to_batches()]
        if format == "leveldb_log":
            return np.array([int(one.as_py()) for batch in batches for one in batch], np.int64)
        arrays = [batch.view(pa.int64()).to_numpy() for batch in batches]
        return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.append(child)
            waiting.append(child)
    return found


def command(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> None:
    """Kill a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
