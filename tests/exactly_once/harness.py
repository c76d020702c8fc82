"""Kills processes at random, changes what they write and read, lets the queries finish, and counts."""

from __future__ import annotations

import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sawlog

from .processes import Processes, descendants, is_worker, role
from .weather import HOUR, RECYCLED, WEATHER, Weather

VICTIMS = {"worker": 12, "daemon": 4, "committer": 2, "writer": 9, "driver": 3}
"""Who is killed, and how often in comparison: a driver costs most, for Spark has to be started again.

Each step of a micro-batch has a daemon that forks its workers; those that are there stay when it is killed. Committer
is the daemon of the step that commits.
"""
AT_A_TIME = 2
"""Sinks that one driver streams into; the next one takes others. Each query of Spark starts several processes."""
EARLY = 0.25
"""How often a driver has to bear kills before its queries have got anywhere."""
OFTEN, MODEST = "100 milliseconds", "5 seconds"
"""How often queries look for rows: where things happen, and where nothing does for an hour."""
PATIENCE = 3600
"""Seconds that a driver may take to read all that is left, into each sink, on a machine that has much else to do."""
LOOK = 10.0
"""Seconds between looks at Spark's processes."""
STARTED = "starts query"
"""What the driver says of each query that it starts."""


@dataclass
class Tally:
    """What was killed, and what became of the rows.

    Attributes:
        logged: Rows that are complete in the logs at the end.
        kills: How often each kind of process was killed, and how often else something happened.
        drivers: How often a driver was started.
        queries: How often a query was started, by drivers and after the loss of a process.
        sinks: Rows in each sink, and how many of them are missing, doubled or unknown.
    """

    logged: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    queries: int = 0
    sinks: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every sink holds every row once."""
        return all(sink == (self.logged, 0, 0, 0) for sink in self.sinks.values())

    def __str__(self) -> str:
        kills = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.kills.items()))
        lines = [
            f"killed with SIGKILL, or happened: {self.kills.total()} ({kills})",
            f"starts: {self.drivers} of drivers, {self.queries} of queries",
            f"rows in the logs: {self.logged:,}",
        ]
        for sink, (rows, missing, doubled, unknown) in self.sinks.items():
            lines.append(f"  {sink:<16} {rows:>10,} rows, {missing} missing, {doubled} doubled, {unknown} unknown")
        return "\n".join([*lines, "every row arrived once" if self.exact else "NOT EXACTLY ONCE"])


class Harness:
    """One run.

    Args:
        root: A new directory for logs, checkpoints and sinks.
        sinks: Names of the sinks.
        seed: Of what is random.
        victims: Who is killed.
    """

    def __init__(self, root: Path, sinks: Sequence[str], seed: int = 0, victims: Iterable[str] = VICTIMS) -> None:
        self.root = root
        self.sinks = list(sinks)
        self._victims = {victim: VICTIMS[victim] for victim in victims}
        self._processes = Processes(root, seed)
        self.tally = Tally(kills=self._processes.kills)
        self._chance = self._processes.chance
        self._weather = Weather(root / "logs", root / "wal", self._chance)
        self._writers = 0
        self._writer = ""
        self._now: list[str] = []
        self._turns = self._chance.sample(self.sinks, len(self.sinks))
        self._interval = OFTEN
        (root / "logs").mkdir()

    def run(self, kills: int, pause: float) -> Tally:
        """Let `kills` things happen, `pause` seconds apart, and count.

        Each kind of process is killed once at least, and all else happens once at least if it is among so many.
        """
        events = {**self._victims, **WEATHER}
        first = list(events if kills > len(events) else self._victims)
        self._chance.shuffle(first)
        with self._processes.running():
            self._start_writer()
            self._start_driver(patient=True)
            while self.tally.kills.total() < kills or first:
                time.sleep(self._chance.uniform(0, 2 * pause))
                if self._driver.poll() is not None:
                    raise RuntimeError(f"the driver has ended with {self._driver.returncode}; see {self.root}")
                event = first.pop() if first else self._chance.choices(list(events), list(events.values()))[0]
                if event in self._victims:
                    self._strike(event, first)
                elif not self._happen(event) and event not in self.tally.kills:
                    first.append(event)
            self._kill_writer("writer")
            self._finish(self._driver)
            return self._count()

    def let_run(self, seconds: float, look: Callable[[Sequence[int]], None]) -> Tally:
        """Let nothing happen for a time, have `look` see the ids of Spark's Python processes, and count."""
        self._interval = MODEST
        with self._processes.running():
            self._start_writer()
            self._start_driver(patient=True)
            ended = time.monotonic() + seconds
            while time.monotonic() < ended:
                time.sleep(LOOK)
                if self._driver.poll() is not None:
                    raise RuntimeError(f"the driver has ended with {self._driver.returncode}; see {self.root}")
                look([pid for pid in descendants(self._driver.pid) if is_worker(pid)])
            self._kill_writer("writer")
            self._finish(self._driver)
            return self._count()

    def _strike(self, victim: str, first: list[str]) -> None:
        """Kill a process; one that is not there yet comes first the next time."""
        if victim == "writer":
            self._kill_writer(victim)
            self._start_writer()
        elif victim == "driver":
            self._kill_driver(victim)
            self._start_driver(patient=self._chance.random() > EARLY)
        elif workers := [
            descendant
            for descendant in descendants(self._driver.pid)
            if is_worker(descendant) and role(descendant) == victim
        ]:
            self._kill(victim, [self._chance.choice(workers)])
        elif victim not in self.tally.kills:
            first.append(victim)

    def _happen(self, event: str) -> bool:
        """Anything but the death of a single process; whether it could happen."""
        if event == "night":
            self._weather.night(self._log)
        elif event in ("late", "recycle"):
            getattr(self._weather, event)()
        elif event == "clock":
            self._kill_writer(event)
            self._start_writer(self._chance.choice([-HOUR, HOUR]))
            return True
        elif event == "reboot":  # the names of the next writer sort before those of this one
            self._kill(event, [self._log.pid, self._driver.pid, *descendants(self._driver.pid)])
            self._log.wait()
            self._driver.wait()
            self._start_writer()
            self._start_driver(patient=True)
            return True
        elif not getattr(self._weather, event)(self._writer):
            return False
        self._kill(event, [])
        return True

    def _kill_writer(self, kind: str) -> None:
        self._kill(kind, [self._log.pid])
        self._log.wait()

    def _kill_driver(self, kind: str) -> None:
        self._kill(kind, [self._driver.pid, *descendants(self._driver.pid)])
        self._driver.wait()

    def _finish(self, driver: subprocess.Popen[bytes]) -> None:
        """Let a driver read all that is left into every sink."""
        self._processes.say("all is read that is left")
        (self.root / "finish").touch()
        driver.wait(PATIENCE)
        if set(self._now) != set(self.sinks):
            driver = self._processes.start("run_queries", str(self.root), self._interval, *self.sinks)
            driver.wait(PATIENCE)
        if driver.returncode:
            raise RuntimeError(f"the driver has ended with {driver.returncode}; see {self.root}")

    def _start_writer(self, skew: float = 0.0) -> None:
        self._writers += 1
        self._writer = f"w{10_000 - self._writers}"
        self._log = self._processes.start(
            "log_rows", str(self.root / "logs"), str(self._writers), self._writer, str(skew)
        )

    def _start_driver(self, *, patient: bool) -> None:
        """A driver of the sinks whose turn it is; `patient` waits until all of them have got something from it."""
        self._now = self._turns[:AT_A_TIME]
        self._turns = self._turns[AT_A_TIME:] + self._now
        self.tally.drivers += 1
        driver, start_time = (
            self._processes.start("run_queries", str(self.root), self._interval, *self._now),
            time.time(),
        )
        while patient and driver.poll() is None and time.time() - start_time < 300:
            if all(self._committed(sink) > start_time for sink in self._now):
                break
            time.sleep(0.1)
        self._driver = driver

    def _committed(self, sink: str) -> float:
        """When a query has last committed a micro-batch."""
        try:
            places = list((self.root / "checkpoints" / sink / "commits").iterdir())
            return max((place.stat().st_mtime for place in places if place.name.isdecimal()), default=0.0)
        except OSError:
            return 0.0

    def _kill(self, kind: str, pids: Sequence[int]) -> None:
        self._processes.kill(kind, pids, f", while rows go into {' and '.join(self._now)}")

    def _count(self) -> Tally:
        recycled = RECYCLED - np.arange(self._weather.recycled)
        logged = np.concatenate([np.unique(self._keys("logs", "deephaven_log")), recycled])  # copies lie there, too
        self.tally.logged = len(logged)
        self.tally.queries = (self.root / "run_queries.log").read_text(errors="replace").count(STARTED)
        for sink in self.sinks:
            keys = self._keys(f"sinks/{sink}", sink)
            distinct = np.unique(keys)
            missing = len(np.setdiff1d(logged, distinct))
            unknown = len(np.setdiff1d(distinct, logged))
            self.tally.sinks[sink] = (len(keys), missing, len(keys) - len(distinct), unknown)
        return self.tally

    def _keys(self, place: str, format: str) -> NDArray[np.int64]:
        if format == "parquet":
            with pa.memory_map(str(self.root / "parquet.arrow")) as file:
                return pa.ipc.open_file(file).read_all().column("k").to_numpy()
        options = {"table": "gauge"} if format == "filodb_record" else {}
        column = {"filodb_record": "timestamp", "leveldb_log": "record", "milvus_binlog": "100"}.get(format, "k")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torn tails, and that no metadata describes Milvus's segments
            read = sawlog.open(self.root / place, format=format, columns=[column], on_damage="skip", **options)
            batches = [batch.column(0) for fragment in read.fragments() for batch in fragment.to_batches()]
        if format == "leveldb_log":
            return np.array([int(key.as_py()) for batch in batches for key in batch], np.int64)
        arrays = [batch.view(pa.int64()).to_numpy() for batch in batches]
        return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
