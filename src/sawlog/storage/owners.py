"""Owners of work: which process works on something, in a few characters, and whether it is still there.

An owner is the machine's boot and the namespace of its processes, the number of the process, and when it began.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_DAEMONS = (b"pyspark.daemon", b"sawlog.spark.daemon")
"""What Spark's Python workers are forked from."""
PATTERN = r"[0-9a-f]{8}-\d+-\d+"
"""Of an owner, as a regular expression."""


def find_owner(process: int) -> str:
    """Return the owner that a process is; empty where it has ended, or the system does not show its processes."""
    start_time = _read_status(process)[19:20]
    return f"{_identify_machine()}-{process}-{start_time[0].decode()}" if start_time else ""


def find_current_owner() -> str:
    """Return the owner of what this process begins: in a Python worker of Spark, the driver that has started it.

    Empty where the system does not show its processes: only age shows what is abandoned there.
    """
    process = os.getpid()
    if any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
        process = os.getppid()
        if any(daemon in _read_proc(process, "cmdline") for daemon in _DAEMONS):
            process = int(_read_status(process)[1])
    return find_owner(process) if process > 1 else ""


def has_exited(owner: str) -> bool | None:
    """Return whether a process has ended; `None` where this machine cannot know."""
    machine, _, process_start = owner.partition("-")
    process, _, start = process_start.partition("-")
    if not start or machine != _identify_machine():
        return None
    return _read_status(int(process))[19:20] != [start.encode()]


def _identify_machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot}{os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]
    except OSError:
        return ""


def _read_proc(process: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:
        return b""


def _read_status(process: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` from the third on, the state; none of a process that has ended."""
    fields = _read_proc(process, "stat").rpartition(b")")[2].split()
    return [] if fields[:1] in ([b"Z"], [b"X"]) else fields
