"""FiloDB records: the gauge schema at 155.9 bytes a record, read, told apart by series, and built."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sawlog
from benchmarks.harness import Case, Settings, Side
from sawlog.filodb.layer import Layer
from sawlog.filodb.options import WriteOptions
from sawlog.filodb.target import Target
from sawlog.filodb.walk import WINDOW_BYTES, ContainerRange, RowsWalk
from sawlog.filodb.writer import OUT_BYTES
from sawlog.format.damage import Findings

RECORD = 156
"""Bytes of a record with its padding, about."""
SERIES = 1000
START = 1_700_000_000_000
CACHED = 1 << 20
"""Bytes of containers that stay in a core's cache."""


def cases(settings: Settings) -> Iterator[Case]:
    rows = settings.size // RECORD
    table = gauges(rows)
    path = settings.place / "gauges.container"
    sawlog.write(table, path, format="filodb_record", table="gauge", container_timestamp=START)
    size = path.stat().st_size
    scanned = Side("sum of the mapped file", partial(scan, path), size, rows, "touches every byte once: the limit")
    if settings.wanted("read_columns"):
        columns = ["timestamp", "value", "_hash"]
        whole_file = Containers(path, columns, np.fromfile(path, np.uint8))
        cached = Containers(path, columns, repeated(settings.place, size))
        sides = (
            Side("sawlog", partial(read, path, rows, columns=columns), size, rows),
            scanned,
            Side("sawlog, from memory", whole_file.read, whole_file.size, whole_file.rows, "containers held in memory"),
            Side("sawlog, from the cache", cached.read, cached.size, cached.rows, "the first MB of them, repeated"),
            Side("strided copies", cached.copy, cached.size, cached.rows, "as many values, from the cache, by NumPy"),
        )
        yield Case("read_columns", "timestamp, value and hash into Arrow, one core", sides, per="rows")
    if settings.wanted("read_tags"):
        tags = Side("sawlog, all tags", partial(read, path, rows, columns=["tags"]), size, rows)
        all_columns = Side("sawlog, all columns", partial(read, path, rows), size, rows)
        moved = ByteCopy(path)
        floor = Side("the same bytes, moved", moved.move, size, rows, "the file read, as large buffers copied")
        sides = (tags, all_columns, floor, scanned)
        yield Case("read_tags", "all tags into an Arrow map, one core", sides, per="rows")
        series = Side("sawlog, partkeys", partial(read, path, min(rows, SERIES), view="partkeys"), size, rows)
        yield Case("read_tags_partkeys", "distinct series, against decoding all tags", (series, tags), per="rows")
    if settings.wanted("build"):
        target = settings.memory / "built.container"
        sides = (
            Side("sawlog", partial(build, table, target), size, rows, "written to a file in memory"),
            Side("sawlog, handed on", partial(hand_on, table), size, rows, "containers in memory, not written"),
            Side("the same bytes, written", partial(rewrite, path, target), size, rows, "write() of 2 MiB at a time"),
        )
        yield Case("build", "containers from Arrow, one core", sides, per="rows")


def gauges(rows: int) -> pa.Table:
    """The rows of the golden benchmark data: a metric and eight tags, five of them predefined keys."""
    labels = [
        [
            ("_ws_", "demo"),
            ("_ns_", f"App-{k % 4}"),
            ("instance", f"Instance-{k}"),
            ("host", f"H{k % 20}"),
            ("dc", f"DC{k % 3}"),
            ("cloudProvider", "AmazonAWS"),
            ("region", "us-west-2"),
            ("job", "node-exporter"),
        ]
        for k in range(SERIES)
    ]
    i = np.arange(rows)
    return pa.table(
        {
            "timestamp": pa.array(START + i).cast(pa.timestamp("ms", "UTC")),
            "value": i * 0.25,
            "_metric_": pa.repeat(pa.scalar("heap_usage0"), rows),
            "tags": pa.array(labels, pa.map_(pa.string(), pa.string())).take(pa.array(i % SERIES)),
        }
    )


def read(path: Path, rows: int, **options: Any) -> None:
    dataset = sawlog.open(path, format="filodb_record", **options)
    assert sum(batch.num_rows for batch in dataset.to_batches()) == rows


class Memory:
    """Bytes as a source."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.size = len(data)

    def read_window(self, offset: int, length: int) -> np.ndarray:
        return self.data[offset : offset + length]

    def close(self) -> None:
        pass


class Containers:
    """Containers held in memory, as values are that came through Kafka."""

    def __init__(self, path: Path, columns: list[str], data: np.ndarray) -> None:
        dataset = sawlog.open(path, format="filodb_record", columns=columns)
        self.source = Memory(data)
        (whole_fragment,) = dataset.fragments(None)
        assert isinstance(whole_fragment, ContainerRange)
        file = replace(whole_fragment.file, size=len(data))
        self.fragment = replace(whole_fragment, file=file, end=len(data))
        self.size = len(data)
        self.rows = self.count()

    def count(self) -> int:
        walk = RowsWalk(self.fragment, self.source, self.fragment.projection.decoded, Findings())
        return sum(batch.num_rows for batch in walk.read_batches())

    def read(self) -> None:
        assert self.count() == self.rows

    def copy(self) -> None:
        """Copy two values of eight bytes and one of four of as many records, a window at a time."""
        step = WINDOW_BYTES // RECORD * RECORD
        for start in range(0, self.size - step, step):
            window = self.source.data[start : start + step]
            for dtype, place in ((np.int64, 1), (np.int64, 2), (np.int32, 6)):
                size = np.dtype(dtype).itemsize
                values = np.lib.stride_tricks.as_strided(
                    window[place * size :][:size].view(dtype), (step // RECORD - 1,), (RECORD,)
                )
                values.copy()


def repeated(place: Path, size: int) -> np.ndarray:
    """The first whole containers, the same pages of memory again and again: they stay in the cache."""
    path = place / "whole.container"
    rows = gauges(2 * CACHED // RECORD)
    sawlog.write(rows, path, format="filodb_record", table="gauge", container_timestamp=START, whole=True)
    memory = os.memfd_create("containers")
    os.write(memory, path.read_bytes()[:CACHED])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    times = max(1, size // CACHED)
    start = libc.mmap(None, times * CACHED, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    fixed = 0x10
    for number in range(times):
        offset = start + number * CACHED
        assert libc.mmap(offset, CACHED, mmap.PROT_READ, mmap.MAP_SHARED | fixed, memory, 0) == offset
    return np.ctypeslib.as_array((ctypes.c_uint8 * (times * CACHED)).from_address(start))


class ByteCopy:
    """What no reader of all tags can do without: the file is read, and bytes are put where Arrow wants them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.window = np.empty(WINDOW_BYTES, np.uint8)
        batch = next(iter(sawlog.open(path, format="filodb_record", columns=["tags"]).to_batches()))
        buffers = [np.frombuffer(buffer, np.uint8) for buffer in batch.column(0).buffers() if buffer is not None]
        self.pairs = [(buffer, np.empty_like(buffer)) for buffer in buffers]

    def move(self) -> None:
        with self.path.open("rb", buffering=0) as file:
            while file.readinto(self.window):
                for source, target in self.pairs:
                    target[:] = source


def rewrite(path: Path, target: Path) -> None:
    """Write a file's bytes to another one, from memory that is always the same."""
    with path.open("rb") as file:
        piece = file.read(OUT_BYTES)
    with target.open("wb", buffering=0) as out:
        for _ in range(path.stat().st_size // OUT_BYTES):
            out.write(piece)


def hand_on(table: pa.Table) -> None:
    """Make containers, without writing them."""
    options = WriteOptions(table="gauge")
    layer = Layer(Target.of(table.schema, options), options, OUT_BYTES, lambda data: None)
    for batch in table.to_batches():
        layer.add(batch, START)
    layer.finish()


def build(table: pa.Table, path: Path) -> None:
    sawlog.write(table, path, format="filodb_record", table="gauge", container_timestamp=START)


def scan(path: Path) -> int:
    words = np.memmap(path, np.uint64, "r", shape=(path.stat().st_size // 8,))
    return int(words.sum())
