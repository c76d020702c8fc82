"""Streams whose sink's disk is full now and then, and drivers that fight for one checkpoint.

`unshare --user --map-root-user --mount python -m tests.exactly_once.trouble ROOT` mounts a small disk of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from .harness import Harness, Tally
from .processes import descendants

SIZE = 48 << 20
"""Bytes of the disk, of which the rows need a few."""
TIMES = 3
"""How often the disk is full, and how often one driver is to find that there is another."""
STUCK = 10.0
"""Seconds for which a micro-batch that has begun is not committed: then its tasks have found the disk full."""
RIVAL = "CONCURRENT_STREAM_LOG_UPDATE"
PATIENCE = 400
"""Seconds."""


class Trouble(Harness):
    """A run in which no process is killed."""

    def full_disk(self) -> Tally:
        """Fill the disk of the sinks until nothing is committed any more, make room until it is, and again."""
        place = self.root / "sinks"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "sink", str(place)], check=True)
        with self._processes.running():
            self._start_writer()
            self._start_driver(patient=True)
            for _ in range(TIMES):
                ballast = place / ".ballast"
                self._fill(ballast)
                self._wait_until_stuck(place)
                self._kill("full disk", [])
                ballast.unlink()
                self._wait_for_rows()
            self._kill_writer("writer")
            self._finish(self._driver)
            return self._count()

    def rivals(self) -> Tally:
        """Let a second driver run the same queries, with the same checkpoints, until both have noticed."""
        with self._processes.running():
            self._start_writer()
            self._start_driver(patient=True)
            rival = self._processes.start("run_queries", str(self.root), self._interval, *self.sinks)
            self._wait_for(RIVAL, TIMES)
            self._wait_for_rows()
            self._kill("rival", [rival.pid, *descendants(rival.pid)])
            self._kill_writer("writer")
            self._finish(self._driver)
            return self._count()

    def _fill(self, ballast: Path) -> None:
        try:
            with ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError as error:
            self._processes.say(f"the disk is full: {error}")

    def _count_messages(self, text: str) -> int:
        return (self.root / "run_queries.log").read_text(errors="replace").count(text)

    def _wait_for(self, text: str, times: int) -> None:
        ended = time.monotonic() + PATIENCE
        while self._count_messages(text) < times:
            self._check(ended)

    def _wait_until_stuck(self, place: Path) -> None:
        """Spark tries a task again when it fails, so that the query lives on."""
        ended, since, positions = time.monotonic() + PATIENCE, time.monotonic(), (0, 0)
        while positions[0] <= positions[1] or time.monotonic() - since < STUCK:
            self._check(ended)
            newest = self._newest("offsets"), self._newest("commits")
            if newest != positions:
                positions, since = newest, time.monotonic()
        free = os.statvfs(place).f_bavail
        if free:
            raise RuntimeError(f"{place}: {free} blocks are free")

    def _newest(self, kind: str) -> int:
        names = os.listdir(self.root / "checkpoints" / self.sinks[0] / kind)
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _wait_for_rows(self) -> None:
        start_time, ended = time.time(), time.monotonic() + PATIENCE
        while not all(self._committed(sink) > start_time for sink in self.sinks):
            self._check(ended)

    def _check(self, ended: float) -> None:
        if self._driver.poll() is not None or time.monotonic() > ended:
            raise RuntimeError(f"the driver has ended, or does not get there; see {self.root}")
        time.sleep(0.2)


if __name__ == "__main__":
    tally = Trouble(Path(sys.argv[1]), ["deephaven_log"]).full_disk()
    print(tally)
    sys.exit(0 if tally.exact else 1)
