"""Every core: what threads gain, per format, as a ratio in one run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sawlog
from benchmarks.harness import Case, Settings, Side
from sawlog.kernels.crc32c import crc32c
from sawlog.kernels.jit import kernel

LENGTH = 100
"""Bytes of a LevelDB record."""
THREADS = (2, 4, 8, 1)
PIECE = 1 << 20
"""Bytes that a thread takes at a time to show what the machine can do."""


def leveldb_log(path: Path, size: int) -> None:
    from benchmarks import data

    data.write_log(path, data.records(data.count_for(size, LENGTH), LENGTH))


def deephaven_log(path: Path, size: int) -> None:
    from benchmarks import deephaven_log as bench

    bench.write_log(path, size // bench.ROW_BYTES)


def deephaven_table(path: Path, size: int) -> None:
    from benchmarks import deephaven_table as bench

    bench.write(path, size // 40)


def filodb_record(path: Path, size: int) -> None:
    from benchmarks import filodb_record as bench

    rows = bench.gauges(size // bench.RECORD)
    sawlog.write(rows, path, format="filodb_record", schema="gauge", container_timestamp=bench.START)


def milvus_binlog(path: Path, size: int) -> None:
    from benchmarks import milvus_binlog as bench

    sawlog.write(bench.collection(size // bench.ROW_BYTES), path, format="milvus_binlog", timestamp=bench.TIMESTAMP)


MAKERS: tuple[Callable[[Path, int], None], ...] = (
    leveldb_log,
    deephaven_log,
    deephaven_table,
    filodb_record,
    milvus_binlog,
)


def cases(settings: Settings) -> Iterator[Case]:
    """Reading into Arrow batches with as many threads as the machine has cores, down to one."""
    warnings.simplefilter("ignore")
    if settings.wanted("threads_machine"):
        yield machine(settings.size)
    for make in MAKERS:
        name = make.__name__
        if not settings.wanted(f"threads_{name}"):
            continue
        path = settings.place / f"threads-{name}"
        make(path, settings.size)
        dataset = sawlog.open(path, format=name)
        size, rows = sum(file.size for file in dataset.files), dataset.count_rows()
        sides = [
            Side(f"sawlog, {threads} thread{'s' * (threads > 1)}", partial(read, path, name, threads), size, rows)
            for threads in THREADS
            if threads <= max(2, os.cpu_count() or 1)
        ]
        what = f"{name}: everything into Arrow batches, by threads"
        yield Case(f"threads_{name}", what, tuple(sides), per="rows", cores=0, headline=False)


def machine(size: int) -> Case:
    """What threads can gain at most here: checksums, which only compute, and copies, which only move memory."""
    data = np.arange(size // 8, dtype=np.int64).view(np.uint8)
    target = np.zeros_like(data)
    cuts = range(0, len(data), PIECE)

    def checksum(start: int) -> None:
        checksum_of(data[start : start + PIECE])

    def copy(start: int) -> None:
        np.copyto(target[start : start + PIECE], data[start : start + PIECE])

    def by(threads: int, work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, cuts))

    sides = [
        Side(f"{name}, {threads} thread{'s' * (threads > 1)}", partial(by, threads, work), size, len(cuts))
        for name, work in (("CRC-32C", checksum), ("copy", copy))
        for threads in THREADS
        if threads <= max(2, os.cpu_count() or 1)
    ]
    return Case("threads_machine", "machine: pieces of 1 MiB, by threads", tuple(sides), cores=0, headline=False)


@kernel
def checksum_of(data: Any) -> Any:
    return crc32c(data, np.uint64(0), np.uint64(len(data)))


def read(path: Path, name: str, threads: int) -> None:
    """Take every batch and let it go."""
    for _ in sawlog.open(path, format=name, use_threads=threads).to_batches():
        pass
