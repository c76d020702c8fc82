"""Processes that are started to be killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Processes:
    """The processes of a harness, which end with it.

    Args:
        root: A new directory for all that they write.
        seed: Of what is random.

    Attributes:
        kills: How often each kind of process was killed.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._begun = time.monotonic()
        self._ours: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{module}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tests.exactly_once.{module}", *arguments], stdout=log, stderr=log, cwd=ROOT
            )
        self._ours.append(process)
        return process

    def kill(self, kind: str, pids: Sequence[int], remark: str = "") -> None:
        """Kill processes at the same time, as one."""
        self.kills[kind] += 1
        self.say(f"kill {self.kills.total()}: {kind}{remark}")
        for pid in pids:
            kill(pid)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:6.0f} s  {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """None of the processes is left behind."""
        try:
            yield
        finally:
            for process in self._ours:
                for pid in [*descendants(process.pid), process.pid] if process.poll() is None else ():
                    kill(pid)
                process.wait()


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            children.setdefault(_parent(int(name)), []).append(int(name))
    pids, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            pids.append(child)
            waiting.append(child)
    return pids


def is_worker(pid: int) -> bool:
    """Whether a process below a driver is one of Spark's Python processes: they plan, read, write and commit."""
    module = command(pid).partition(" ")[2]
    ours = ("pyspark.", "pyspark_sawlog", "sawlog.spark.daemon")
    return any(name in module for name in ours) and "java" not in command(pid)


def role(pid: int) -> str:
    """What one of Spark's Python processes does: a `daemon` forks the others, `committer` those that commit."""
    if "daemon" not in command(pid) or "java" not in command(_parent(pid)):
        return "worker"
    return "committer" if "streaming_sink_runner" in command(pid) else "daemon"


def _parent(pid: int) -> int:
    """The process above a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


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
