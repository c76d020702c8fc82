"""Every core: what threads gain, per format, beside what as many processes gain, in one run."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import sawlog
from benchmarks.harness import Case, Probe, Settings, Side
from sawlog.kernels.crc32c import crc32c
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, UInt64

LENGTH = 100
"""Bytes of a LevelDB record or value."""
SHARE = 0.4
"""Of the size asked for: there are as many copies of everything as processes."""
CORES = os.cpu_count() or 1
THREADS = tuple(count for count in (2, 4, 8) if count <= max(2, CORES))
TABLE = 2 << 20
"""Bytes of a table in a LevelDB database, by default."""
FLUSHED = 16 << 20
"""Bytes of what Milvus flushes at a time, by default."""
FILES = 8
"""Files of FiloDB's containers, none of which is shared by threads."""
PIECE = 1 << 20
"""Bytes that a thread takes at a time to show what the machine can do."""


def leveldb_log(path: Path, size: int) -> None:
    from benchmarks import data

    data.write_log(path, data.records(data.count_for(size, LENGTH), LENGTH))


def leveldb_database(path: Path, size: int) -> None:
    from benchmarks import leveldb_table as bench

    bench.fill_leveldb(path, size // LENGTH, LENGTH, None, TABLE)


def leveldb_table(path: Path, size: int) -> None:
    from benchmarks import leveldb_table as bench

    bench.fill_leveldb(path, size // LENGTH, LENGTH, None)


def deephaven_log(path: Path, size: int) -> None:
    from benchmarks import deephaven_log as bench

    bench.write_log(path, size // bench.ROW_BYTES)


def deephaven_table(path: Path, size: int) -> None:
    from benchmarks import deephaven_table as bench

    bench.write(path, size // 40)


def filodb_record(path: Path, size: int) -> None:
    from benchmarks import filodb_record as bench

    rows = bench.gauges(size // bench.RECORD)
    path.mkdir()
    for number in range(FILES):
        part = rows.slice(number * len(rows) // FILES, len(rows) // FILES)
        to = path / f"{number}.container"
        sawlog.write(part, to, format="filodb_record", table="gauge", container_timestamp=bench.START)


def milvus_binlog(path: Path, size: int) -> None:
    from benchmarks import milvus_binlog as bench

    rows = bench.collection(size // bench.ROW_BYTES)
    sawlog.write(rows, path, format="milvus_binlog", timestamp=bench.TIMESTAMP, binlog_bytes=FLUSHED)


MAKERS: tuple[Callable[[Path, int], None], ...] = (
    leveldb_log,
    leveldb_table,
    leveldb_database,
    deephaven_log,
    deephaven_table,
    filodb_record,
    milvus_binlog,
)


class Gains:
    """How often work was faster than by one thread, by what was said of it."""

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[float, float]] = {}
        self._share: dict[str, tuple[str, int]] = {}

    def timed(self, name: str, by: str, work: Callable[[], object], times: int = 1) -> Callable[[], None]:
        """The work, with its best times kept; `times` is how much more of it there is than for one thread."""
        description = f"{name}, {by}"
        self._share[description] = f"{name}, 1 thread", times

        def run() -> None:
            begin, processor_start = time.perf_counter(), time.process_time()
            work()
            spent = time.perf_counter() - begin, time.process_time() - processor_start
            best = self._seconds.get(description, spent)
            self._seconds[description] = min(best[0], spent[0]), min(best[1], spent[1])

        return run

    def numbers(self) -> dict[str, float]:
        """Times the speed of one thread; of threads also times its processor time."""
        gains = {}
        for description, (alone, times) in self._share.items():
            if description in self._seconds and description != alone:
                one_thread, several = self._seconds[alone], self._seconds[description]
                gains[description] = times * one_thread[0] / several[0]
                if times == 1:
                    gains[f"{description}: processor time"] = several[1] / one_thread[1]
        return gains


def cases(settings: Settings) -> Iterator[Case | Probe]:
    """Reading into Arrow batches by threads of one process, and by processes that read copies; then the gains."""
    warnings.simplefilter("ignore")
    gains = Gains()
    size = int(settings.size * SHARE)
    if settings.wanted("threads_machine"):
        yield machine(size, gains)
    for make in MAKERS:
        name = make.__name__
        if settings.wanted(f"threads_{name}"):
            yield of_format(make, settings.memory, size, gains)
    yield Probe("threads_gains", "times as fast as one thread", gains.numbers, "x")


def of_format(make: Callable[[Path, int], None], place: Path, size: int, gains: Gains) -> Case:
    """One file or tree read by threads; as many copies as there are processes, by one thread each, as the bound."""
    name = make.__name__
    shutil.rmtree(place, ignore_errors=True)  # what the format before has left
    paths = [place / f"{number}-{name}" for number in range(THREADS[-1])]
    place.mkdir()
    make(paths[0], size)
    for path in paths[1:]:
        (shutil.copytree if paths[0].is_dir() else shutil.copy)(paths[0], path)
    dataset = sawlog.open(paths[0], format=name)
    size, rows = sum(file.size for file in dataset.files), dataset.count_rows()
    sides = []
    for threads in (*THREADS, 1):
        by = "1 thread" if threads == 1 else f"{threads} threads"
        run = gains.timed(name, by, partial(read, paths[0], name, threads))
        sides.append(Side(f"sawlog, {by}", run, size, rows))
    for count in THREADS:
        by, work = f"{count} processes", partial(read_apart, paths[:count], name)
        run = gains.timed(name, by, work, count)
        sides.append(Side(f"sawlog, {by}", run, count * size, count * rows, "each reads a copy, by one thread"))
    description = f"{name}: everything into Arrow batches, by threads"
    return Case(f"threads_{name}", description, tuple(sides), per="rows", cores=0, headline=False)


def machine(size: int, gains: Gains) -> Case:
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

    sides = []
    for name, work in (("CRC-32C", checksum), ("copy", copy)):
        for threads in (*THREADS, 1):
            spoken = "1 thread" if threads == 1 else f"{threads} threads"
            run = gains.timed(name, spoken, partial(by, threads, work))
            sides.append(Side(f"{name}, {spoken}", run, size, len(cuts)))
    return Case("threads_machine", "machine: pieces of 1 MiB, by threads", tuple(sides), cores=0, headline=False)


@kernel
def checksum_of(data: Bytes) -> UInt64:
    """The CRC-32C of some bytes."""
    return crc32c(data, np.uint64(0), np.uint64(len(data)))


def read(path: Path, name: str, threads: int) -> None:
    """Take every batch and let it go."""
    for _ in sawlog.open(path, format=name, use_threads=threads).to_batches():
        pass


def read_apart(paths: list[Path], name: str) -> None:
    """Read every path in a process of its own."""
    for done in [_processes().submit(read, path, name, 1) for path in paths]:
        done.result()


@cache
def _processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(THREADS[-1], get_context("spawn"), warnings.simplefilter, ("ignore",))
