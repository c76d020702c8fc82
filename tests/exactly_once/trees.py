"""Kills imports and merges at random, reboots, fills the disk, lets all come to an end, and counts."""

from __future__ import annotations

import resource
import subprocess
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import sawlog
from sawlog.deephaven.table.validation import ColumnExpectation, Expectations, validate

from .log_trades import NAMESPACE, TABLES
from .processes import Processes, descendants, is_worker, kill

VICTIMS = {"importer": 10, "writer": 3, "reboot": 2, "full disk": 3}
"""What happens, and how often in comparison; `reboot` ends writer and importer at the same moment."""
WORKER = "worker"
"""With Spark, instead of every third importer."""
FULL_BYTES = 700
"""Longest file that can be written while the disk is full: enough for some, too little for others."""
FULL_SECONDS = 0.5
PATIENCE = 300


@dataclass
class Counts:
    """What was killed, and what became of the rows.

    Attributes:
        kills: How often each kind of process was killed.
        logged: Rows that are complete in the logs at the end.
        tables: Rows of each table in the trees, and how many are missing, doubled or unknown.
        problems: What validation of the trees says, and what was left behind.
    """

    kills: Counter[str]
    logged: int = 0
    tables: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether every row is there once."""
        rows = sum(table[0] for table in self.tables.values())
        return (
            rows == self.logged and not self.problems and all(table[1:] == (0, 0, 0) for table in self.tables.values())
        )

    def __str__(self) -> str:
        kills = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.kills.items()))
        lines = [f"ended: {self.kills.total()} ({kills})", f"rows in the logs: {self.logged:,}"]
        for table, (rows, missing, doubled, unknown) in self.tables.items():
            lines.append(f"  {table:<16} {rows:>10,} rows, {missing} missing, {doubled} doubled, {unknown} unknown")
        return "\n".join([*lines, *self.problems, "every row is there once" if self.exact else "NOT EXACTLY ONCE"])


class Trees:
    """One run.

    Args:
        root: A new directory.
        spark: How many of the importers run on Spark, between 0 and 1; the others follow logs, or merge, in threads.
        seed: Of what is random.
    """

    def __init__(self, root: Path, spark: float, seed: int = 0) -> None:
        self.root = root
        self._spark = spark
        self._processes = Processes(root, seed)
        self._chance = self._processes.chance
        self._writers = 0
        self._mode = ""
        (root / "logs").mkdir()
        (root / "done").touch()

    def run(self, kills: int, pause: float) -> Counts:
        """End `kills` processes, `pause` seconds apart on average, each kind at least once; then count."""
        counts = Counts(self._processes.kills)
        first = self._chance.sample(list(VICTIMS), len(VICTIMS))
        with self._processes.running():
            writer, importer = self._start_writer(), self._start_importer()
            while self._processes.kills.total() < kills or first:
                time.sleep(self._chance.uniform(0, 2 * pause))
                if importer.poll() is not None:
                    raise RuntimeError(f"the importer has ended with {importer.returncode}; see {self.root}")
                victim = first.pop() if first else self._chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
                if victim == "full disk":
                    self._fill_disk(importer)
                    continue
                workers = [pid for pid in descendants(importer.pid) if is_worker(pid)]
                if victim == "importer" and workers and self._chance.random() < 1 / 3:
                    self._processes.kill(WORKER, [self._chance.choice(workers)])
                    continue
                ended = [writer] if victim != "importer" else []
                ended += [importer] if victim != "writer" else []
                pids = [pid for process in ended for pid in (process.pid, *descendants(process.pid))]
                self._processes.kill(victim, pids, f", while it is at {self._mode}")
                for process in ended:
                    process.wait()
                writer = self._start_writer() if writer in ended else writer
                importer = self._start_importer() if importer in ended else importer
            kill(writer.pid)
            writer.wait()
            self._finish(importer)
        return self._count(counts)

    def _start_writer(self) -> subprocess.Popen[bytes]:
        self._writers += 1
        return self._processes.start("log_trades", str(self.root / "logs"), str(self._writers))

    def _start_importer(self) -> subprocess.Popen[bytes]:
        """A new importer, once it has done something."""
        self._mode = "spark" if self._chance.random() < self._spark else self._chance.choice(["follow", "nightly"])
        done = (self.root / "done").stat().st_size
        importer, start_time = self._processes.start("import_trades", str(self.root), self._mode), time.monotonic()
        while importer.poll() is None and time.monotonic() - start_time < PATIENCE:
            if (self.root / "done").stat().st_size > done:
                break
            time.sleep(0.02)
        return importer

    def _fill_disk(self, importer: subprocess.Popen[bytes]) -> None:
        """Have every longer write of the importer fail for a while, wherever it is in a file."""
        self._processes.kill("full disk", [], f", while it is at {self._mode}")
        pids = [importer.pid, *(pid for pid in descendants(importer.pid) if is_worker(pid))]
        for limit in (FULL_BYTES, resource.RLIM_INFINITY):
            for pid in pids:
                try:
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                except ProcessLookupError:
                    continue
            time.sleep(FULL_SECONDS if limit == FULL_BYTES else 0)

    def _finish(self, importer: subprocess.Popen[bytes]) -> None:
        """Let an importer import all that is left, and another one merge it."""
        self._processes.say("all is imported that is left")
        (self.root / "finish").touch()
        importer.wait(PATIENCE)
        if self._mode == "follow":
            importer = self._processes.start("import_trades", str(self.root), "nightly")
            importer.wait(2 * PATIENCE)
        if importer.returncode:
            raise RuntimeError(f"the importer has ended with {importer.returncode}; see {self.root}")

    def _count(self, counts: Counts) -> Counts:
        db = self.root / "db"
        order = Expectations(columns={"Sym": ColumnExpectation(max_nulls=0)})
        for table in TABLES:
            logged = self._keys(self.root / "logs", "deephaven_log", table=table)
            places = [db / "Intraday" / NAMESPACE / table]
            places += [db / "Systems"] if (db / "Systems").exists() else []
            parts = [self._keys(place, "deephaven_table", table=table) for place in places]
            numbers = np.concatenate(parts)
            distinct = np.unique(numbers)
            missing, unknown = len(np.setdiff1d(logged, distinct)), len(np.setdiff1d(distinct, logged))
            counts.logged += len(logged)
            counts.tables[table] = (len(numbers), missing, len(numbers) - len(distinct), unknown)
            for place in places:
                counts.problems += validate(place, order, table=table).problems
        leftovers = [path for path in db.rglob(".*") if path.name != ".sawlog.lock"]
        counts.problems += [f"{path}: was left behind" for path in leftovers]
        return counts

    @staticmethod
    def _keys(place: Path, format: str, **options: str) -> NDArray[np.int64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torn tails
            table = sawlog.read(place, format=format, columns=["k"], on_damage="skip", **options)
        return np.asarray(table.column("k"), np.int64)
