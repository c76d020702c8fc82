"""What happens to logs besides the death of processes: nights, clocks, archives, late and recycled logs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import sawlog
from sawlog.deephaven.log import Logger

from .log_rows import SCHEMA, SPAN, make_rows

WEATHER = {"night": 2, "archive": 3, "copytruncate": 2, "late": 3, "clock": 3, "reboot": 2, "recycle": 4}
"""What may happen, and how often in comparison; clocks are an hour off for the next writer."""
HOUR = 3600
QUIET = 2 * HOUR
"""Seconds for which files seem to have been quiet after a night: longer than what makes them finished."""
ASLEEP = 1.5
"""Seconds that a night takes."""
BESIDE = 0.5
"""Seconds for which a copy is next to its original."""
LATE = 30
"""Rows of a file that comes late."""


RECYCLED = -(10**12)
"""First key of the rows in RocksDB's logs, which fall from there."""
KEPT_LOGS = 2
"""RocksDB's logs before the first one is used again."""


class Weather:
    """Changes the logs of writers.

    Args:
        logs: Their directory.
        wal: The directory of RocksDB's logs.
        chance: What is random.

    Attributes:
        recycled: How many rows RocksDB's logs have held.
    """

    def __init__(self, logs: Path, wal: Path, chance: random.Random) -> None:
        self._logs = logs
        self._wal = wal
        self._chance = chance
        self._late = 0
        self._number = 0
        self.recycled = 0

    def night(self, writer: subprocess.Popen[bytes]) -> None:
        """The writer sleeps, and all that is there has long been quiet; then it goes on."""
        writer.send_signal(signal.SIGSTOP)
        long_ago = time.time() - QUIET
        for path in self._files():
            os.utime(path, (long_ago, long_ago))
        time.sleep(ASLEEP)
        writer.send_signal(signal.SIGCONT)

    def archive(self, alive: str) -> bool:
        """A log that nobody writes to any more is moved below the directory that is read, or gets another name."""
        files = self._finished(alive)
        if not files:
            return False
        path = self._chance.choice(files)
        place = self._logs / "archive" / path.name
        place.parent.mkdir(exist_ok=True)
        path.rename(place)
        return True

    def copytruncate(self, alive: str) -> bool:
        """A log that nobody writes to any more is copied, once or twice, and emptied some time later."""
        files = self._finished(alive)
        if not files:
            return False
        path = self._chance.choice(files)
        for number in range(1, self._chance.choice([2, 2, 3])):
            shutil.copy(path, path.with_name(f"{path.name}.{number}"))
        time.sleep(self._chance.choice([0, BESIDE]))
        os.truncate(path, 0)
        return True

    def late(self) -> None:
        """A whole log comes from elsewhere, which was begun hours ago."""
        self._late += 1
        aside = self._logs.parent / f"late-{self._late}"
        with Logger(
            aside,
            SCHEMA,
            namespace="Proof",
            table="Rows",
            internal_partition=f"late{self._late}",
            clock=lambda: time.time() - self._chance.randrange(1, 5) * HOUR,
        ) as logger:
            logger.write(make_rows(-self._late * SPAN, LATE))
        for path in aside.iterdir():
            path.rename(self._logs / path.name)

    def recycle(self) -> None:
        """RocksDB writes a log over the oldest one, of which a copy is kept; the rest of that stays behind it."""
        self._number += 1
        (self._wal / "archive").mkdir(parents=True, exist_ok=True)
        old = sorted(self._wal.glob("*.log"))
        path = self._wal / f"{self._number:06}.log"
        count = self._chance.randrange(1, 200)
        keys = range(RECYCLED - self.recycled, RECYCLED - self.recycled - count, -1)
        aside = self._logs.parent / "recycled.log"
        records = pa.table({"record": [b"%d" % key for key in keys]})
        sawlog.write(records, aside, format="leveldb_log", dialect="rocksdb", log_number=self._number)
        self.recycled += count
        if len(old) < KEPT_LOGS:
            aside.rename(path)
            return
        copy = self._wal / "archive" / f".{old[0].name}"
        shutil.copy(old[0], copy)
        copy.rename(copy.with_name(old[0].name))
        old[0].rename(path)
        with path.open("r+b") as file:
            file.write(aside.read_bytes())

    def _files(self) -> Sequence[Path]:
        return sorted(path for path in self._logs.iterdir() if path.is_file() and path.stat().st_size)

    def _finished(self, alive: str) -> Sequence[Path]:
        """Logs of writers that are gone, and those that the last one has done with."""
        files = [path for path in self._files() if not path.name.endswith((".1", ".2"))]
        own_files = [path for path in files if f".{alive}." in path.name]
        newest = max(own_files, key=lambda path: path.stat().st_mtime_ns, default=None)
        return [path for path in files if path != newest and time.time() - path.stat().st_mtime > 1]
