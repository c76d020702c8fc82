"""Work and memory, counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from sawlog.dataset.dataset import Dataset
from sawlog.storage import File, PathLike, Storage
from sawlog.storage.sources import Source

_POOLS: list[pa.MemoryPool] = []
"""Pools that were measured; what was allocated from one may live on, and frees into it."""

SPARE_MEMORY = 64 << 20
"""What a read may take beyond twice its input."""


@dataclass
class ReadCount:
    """Bytes that were looked at, in any file, each as often as it was asked for."""

    bytes: int = 0


class CountingSource:
    """A source that counts the bytes it hands out."""

    def __init__(self, source: Source, work: ReadCount) -> None:
        self._source = source
        self._work = work
        self.size = source.size

    def read_window(self, offset: int, length: int) -> Any:
        """Return the bytes of a range, and count them; see `Source.read_window`."""
        window = self._source.read_window(offset, length)
        self._work.bytes += len(window)
        return window

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@dataclass(frozen=True)
class CountingStorage(Storage):
    """A storage that counts the bytes that are read from it."""

    work: ReadCount = field(default_factory=ReadCount)

    def open(self, path: PathLike | File, end: int | None = None) -> Any:
        return CountingSource(super().open(path, end), self.work)

    def read(self, path: PathLike | File, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        self.work.bytes += len(data)
        return data


def count_work(dataset: Dataset) -> tuple[Dataset, ReadCount]:
    """Return the same dataset, and the count of the bytes that it looks at."""
    storage = CountingStorage(dataset.scan.storage.options)
    scan = replace(dataset.scan, storage=storage)
    again = Dataset(dataset.format.open(dataset.files, scan), scan)
    return again, storage.work


@dataclass
class PeakMemory:
    """The most memory that was in use at a time: Python's and NumPy's, and Arrow's."""

    peak: int = 0


@contextmanager
def measure_memory() -> Iterator[PeakMemory]:
    """Measure what is allocated meanwhile.

    Nothing may be at work in other threads when it ends: CPython may crash if one takes or leaves memory just then.
    """
    used = PeakMemory()
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start(1)
    try:
        yield used
    finally:
        used.peak = tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
        tracemalloc.stop()
        pa.set_memory_pool(usual)
