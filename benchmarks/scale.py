"""What planning costs the driver, from 10,000 to a million files and for one log of 10 TB, in a simulated store.

`python -m benchmarks.scale`. The store lists as many files as it is told to, which all hold the same bytes, and counts
requests; it takes no time itself. Every row is a process of its own.
"""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
from fsspec.spec import AbstractFileSystem

import sawlog
from sawlog.spark.reader import make_reader, read_schema

SIZES = (10_000, 100_000, 1_000_000)
HUGE = 10 << 40
CASES = ("leveldb_log", "deephaven_log", "deephaven_log, index made", "deephaven_log, index used")
COLUMNS = ("what", "files", "listings", "other requests", "CPU s", "driver MB", "tasks", "tasks MB")
NAMES = {"leveldb_log": "{:08}.log", "deephaven_log": "N.T.System.h{:04}.2026-01-{:02}.bin.{:08}"}


class ListedFileSystem(AbstractFileSystem):
    """Many files with the same bytes, or one that is as large as it is told to be, and what is written besides."""

    protocol = "scale"
    cachable = False
    names: ClassVar[list[str]] = []
    data: ClassVar[bytes] = b""
    size: ClassVar[int] = 0
    index: ClassVar[bytes] = b""
    requests: ClassVar[Counter[str]] = Counter()
    _lock = threading.Lock()

    def _count(self, request_name: str) -> None:
        with self._lock:
            self.requests[request_name] += 1

    def _info(self, path: str) -> dict[str, Any]:
        size = len(self.index) if path.endswith("index") else self.size
        return {"name": path, "size": size, "type": "file", "ETag": f'"{zlib.crc32(path.encode()):032x}"'}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._count("info")
        if self._strip_protocol(path) == "logs":
            return {"name": "logs", "size": 0, "type": "directory"}
        return self._info(self._strip_protocol(path))

    def ls(self, path: str, **_: Any) -> list[dict[str, Any]]:
        """No directory has a log of jobs."""
        self._count("ls")
        raise FileNotFoundError(path)

    def find(self, path: str, **_: Any) -> dict[str, dict[str, Any]]:
        self._count("find")
        return {f"logs/{name}": self._info(f"logs/{name}") for name in self.names}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        self._count("cat_file")
        if path.endswith("index"):
            return self.index[start:end]
        first, last = start or 0, self.size if end is None else min(end, self.size)
        return self.data[first:last].ljust(last - first, b"\0")


def plan(case: str, files: int, place: str) -> dict[str, Any]:
    """Plan one read as Spark has it planned, and say what it cost."""
    fsspec.register_implementation("scale", ListedFileSystem)
    format, _, index = case.partition(", ")
    sample = Path(place, "sample")
    table = pa.table({"record": [b"x"] * 10}) if format == "leveldb_log" else pa.table({"i": range(10), "x": range(10)})
    sawlog.write(table, sample, format=format)
    ListedFileSystem.data = sample.read_bytes()
    ListedFileSystem.size = len(ListedFileSystem.data) if files > 1 else HUGE
    ListedFileSystem.names = [
        NAMES[format].format(*((number,) if format == "leveldb_log" else (number % 500, number % 28 + 1, number)))
        for number in range(files)
    ]
    options = {"path": "scale://logs"}
    if format == "deephaven_log":
        options |= {"deletes": "ignore", "split": "resync"}
    if index == "index used":
        ListedFileSystem.index = Path(place, f"{files}.index").read_bytes()
        options["index"] = "scale://logs/index"
    start_time, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes: list[int] = []
    if index == "index made":
        sawlog.index("scale://logs", to=f"{place}/{files}.index", format=format)
    else:
        schema = read_schema(options, format)
        sizes = [len(pickle.dumps(partition)) for partition in make_reader(options, format, schema).partitions()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    listings = ListedFileSystem.requests.pop("find")
    return {
        "what": case,
        "files": f"{files:,}" if files > 1 else "one of 10 TB",
        "listings": listings,
        "other requests": f"{ListedFileSystem.requests.total():,}",
        "CPU s": f"{time.process_time() - start_time:.1f}",
        "driver MB": f"{(peak - memory) >> 10:,}",
        "tasks": f"{len(sizes):,}",
        "tasks MB": f"{sum(sizes) / 1e6:.1f}, at most {max(sizes, default=0) / 1e3:.0f} kB each",
    }


def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(plan(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
        return
    sizes = [int(argument) for argument in sys.argv[1:]] or [*SIZES, 1]
    print("|", " | ".join(COLUMNS), "|")
    print("|", " | ".join("---" for _ in COLUMNS), "|")
    with tempfile.TemporaryDirectory() as place:
        for files in sizes:
            for case in CASES if files > 1 else CASES[:2]:
                command = [sys.executable, "-m", "benchmarks.scale", case, str(files), place]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                document = json.loads(done.stdout.splitlines()[-1])
                print("|", " | ".join(str(document[name]) for name in COLUMNS), "|", flush=True)


if __name__ == "__main__":
    main()
