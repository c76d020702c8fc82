"""An hour of streaming, in which nothing happens: what Spark's Python processes need of memory is written down.

`SAWLOG_HOUR` says how many seconds it takes, and `SAWLOG_MEMORY` names the file that is written.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from .harness import LOOK, Harness
from .processes import command

SECONDS = float(os.environ.get("SAWLOG_HOUR", "3600"))
SHARE = 4
"""Of the time: what is needed in the second such share is compared with the last, when all has been loaded."""
GROWTH = 32 << 20
"""Bytes that one process may need more in the end."""


class Memory:
    """Resident bytes of processes over time, written to a file as they are seen."""

    def __init__(self, path: Path) -> None:
        self._begun = time.monotonic()
        self._path = path
        path.write_text("seconds,pid,process,resident\n")
        self.seen: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)

    def look(self, pids: Sequence[int]) -> None:
        seconds = round(time.monotonic() - self._begun, 1)
        for pid in pids:
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
            kind = command(pid).rpartition("pyspark.")[2].split()[0] if "pyspark." in command(pid) else "gone"
            resident = pages * os.sysconf("SC_PAGE_SIZE")
            self.seen[pid, kind].append((seconds, resident))
            with self._path.open("a") as file:
                file.write(f"{seconds},{pid},{kind},{resident}\n")

    def growth(self) -> dict[tuple[int, str], int]:
        """How much more each process needs in the end, of those that were there most of the time."""
        grown = {}
        for process, looks in self.seen.items():
            if len(looks) > SECONDS / LOOK / 2:
                share = len(looks) // SHARE
                early, late = looks[share : 2 * share], looks[-share:]
                middle = [statistics.median(resident for _, resident in part) for part in (early, late)]
                grown[process] = int(middle[1] - middle[0])
        return grown


@pytest.mark.heavy
@pytest.mark.spark
def test_an_hour_of_kills_loses_no_row_and_no_memory(tmp_path: Path) -> None:
    memory = Memory(Path(os.environ.get("SAWLOG_MEMORY", tmp_path / "memory.csv")))
    tally = Harness(tmp_path, ["deephaven_log", "parquet"]).let_run(SECONDS, memory.look)
    grown = memory.growth()
    print(tally, *(f"{kind} {pid}: {growth >> 10:+,} KiB" for (pid, kind), growth in sorted(grown.items())), sep="\n")
    assert tally.exact, str(tally)
    assert grown, "processes live on"
    assert all(growth < GROWTH for growth in grown.values()), grown
