"""Fragments are read several at a time: the same rows in the same order, within bounds, and no longer than wanted."""

from __future__ import annotations

import gc
import shutil
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.chain.walk import ChainWalk
from sawlog.leveldb.table.rows import SpanWalk
from sawlog.storage import workers
from sawlog.storage.workers import finish_all, map_ordered
from tests.cli.conftest import Run, run
from tests.leveldb_log.fragments import write
from tests.samples import ALL, FORMATS, ROWS, samples
from tests.support import write_records

__all__ = ["run", "samples"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("sawlog.storage.workers", "sawlog.format.planning"):
        monkeypatch.setattr(f"{place}.PIECE_BYTES", 1 << 20)
    monkeypatch.setattr("sawlog.filodb.dataset.ContainerContents.threads_split_files", True)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", FORMATS)
def test_what_reads_a_fragment_is_released_with_it(samples: dict[str, Path], name: str) -> None:
    """A cycle would keep its buffers until the garbage collector looks: 4 MB for each of FiloDB's."""
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = sawlog.open(samples[name], format=name, on_damage="skip", use_threads=False)
            for fragment in dataset.fragments(1 << 20):
                for _ in fragment.to_batches():
                    pass
        assert [object_ for object_ in gc.get_objects() if isinstance(object_, ChainWalk | SpanWalk)] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("name", FORMATS)
def test_threads_deliver_what_one_thread_delivers(samples: dict[str, Path], name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = sawlog.open(samples[name], format=name, use_threads=False)
        several = sawlog.open(samples[name], format=name, use_threads=3)
        assert several.to_table() == alone.to_table()
        assert several.count_rows() == alone.count_rows() == ALL.get(name, ROWS)
        reports = [sawlog.verify(samples[name], format=name, use_threads=threads).to_dict() for threads in (1, 3)]
        assert reports[0] == reports[1]
        assert pa.RecordBatchReader.from_stream(several).read_all() == alone.to_table()


def test_reading_counting_and_checking_are_the_work_of_all_threads(
    samples: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sawlog.leveldb.log.walk import LogRange

    workers: set[str] = set()
    decode_range = LogRange.decode

    def decode(self: LogRange, schema: pa.Schema, findings: object) -> Iterator[pa.RecordBatch]:
        workers.add(threading.current_thread().name.partition("_")[0])
        time.sleep(0.001)
        return decode_range(self, schema, findings)  # type: ignore[arg-type]

    monkeypatch.setattr(LogRange, "decode", decode)
    dataset = sawlog.open(samples["leveldb_log"], format="leveldb_log", use_threads=2)
    for work in (dataset.to_table, dataset.count_rows, lambda: list(dataset.verify())):
        workers.clear()
        work()
        assert workers == {"sawlog", "MainThread"}


@pytest.mark.parametrize(("length", "pools"), [(8100, []), (8300, [2, 2, 2])])
def test_many_small_files_are_the_work_of_one_thread(
    length: int, pools: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path / "000000.log", [bytes(length)])
    for number in range(1, 300):
        shutil.copy(tmp_path / "000000.log", tmp_path / f"{number:06}.log")
    pool_sizes: list[int] = []

    class WatchedPool(workers.WorkerPool):
        def __init__(self, threads: int, measure: Callable[[Any], int] | None = None) -> None:
            pool_sizes.append(threads)
            super().__init__(threads, measure)

    monkeypatch.setattr(workers, "WorkerPool", WatchedPool)
    dataset = sawlog.open(tmp_path, format="leveldb_log", use_threads=2)
    assert dataset.to_table().num_rows == dataset.count_rows() == len(list(dataset.verify())) == 300
    assert pool_sizes == pools


ALONE = """
import os, sys, pyarrow.compute as pc, sawlog
path, wanted = sys.argv[1:]
before = len(os.listdir("/proc/self/task"))
given = {
    "rows": {}, "latest": {"view": "writes", "latest": True}, "filter": {"filter": pc.field("record") > b"\\0"},
    "columns": {"columns": {"length": pc.binary_length(pc.field("record"))}},
}[wanted]
assert sawlog.read(path, format="leveldb_log", use_threads=False, **given).num_rows
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.spread(2)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists threads there")
@pytest.mark.parametrize("thread_count", ["rows", "latest", "filter", "columns"])
def test_one_thread_is_one_thread(tmp_path: Path, thread_count: str) -> None:
    """Arrow's own threads are not started either: they may hold Python's memory when the call has come back."""
    batch = struct.pack("<QIBB", 1, 1, 1, 1) + b"k" + b"\1v"
    (tmp_path / "000007.log").write_bytes(write(batch, batch))
    command = [sys.executable, "-c", ALONE, str(tmp_path / "000007.log"), thread_count]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "0\n"


def damage(path: Path, places: range) -> Path:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 0xFF
    copy = path.with_name(f"damaged-{path.name}")
    copy.write_bytes(data)
    return copy


def test_damage_is_told_as_by_one_thread(samples: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.dataset.scanning.MAX_LISTED", 100)
    path = damage(samples["leveldb_log"], range(200_000, 14_000_000, 10_001))
    outcomes = []
    for threads in (1, 3):
        with warnings.catch_warnings(record=True) as warning_records:
            warnings.simplefilter("always")
            table = sawlog.read(path, format="leveldb_log", on_damage="skip", use_threads=threads)
        report = sawlog.verify(path, format="leveldb_log", use_threads=threads)
        outcomes.append((table, [str(record.message) for record in warning_records], report.to_dict()))
        with pytest.raises(sawlog.DamageError) as failed:
            sawlog.read(path, format="leveldb_log", use_threads=threads)
        outcomes[-1] = (*outcomes[-1], failed.value.damage)
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][1]) == 1, "one remark per file"
    assert len(outcomes[0][2]["files"][0]["damages"]) == 100
    results = [run("verify", path, "--format", "leveldb_log", "--threads", n) for n in (1, 2)]
    assert results[0] == results[1]


def test_rows_before_damage_are_delivered_and_none_after(samples: dict[str, Path]) -> None:
    path = damage(samples["leveldb_log"], range(9_000_000, 9_000_001))
    delivered = []
    for threads in (1, 4):
        batches: list[pa.RecordBatch] = []
        with pytest.raises(sawlog.DamageError):
            batches.extend(sawlog.open(path, format="leveldb_log", use_threads=threads).to_batches())
        delivered.append(sum(batch.num_rows for batch in batches))
    assert delivered[0] == delivered[1]


class Work:
    """Counts results that were made and not yet taken; the first `threads` items wait until all of them are at work."""

    def __init__(self, steps: int, threads: int = 0) -> None:
        self.lock = threading.Lock()
        self.together = threading.Barrier(threads or 1)
        self.threads = threads
        self.steps, self.made, self.most, self.taken, self.closed = steps, 0, 0, 0, 0
        self.working = self.most_working = 0

    def __call__(self, item: int) -> Iterator[tuple[int, int]]:
        try:
            for step in range(self.steps):
                with self.lock:
                    self.made += 1
                    self.most = max(self.most, self.made - self.taken)
                    self.working += 1
                    self.most_working = max(self.most_working, self.working)
                if item < self.threads and not step:
                    self.together.wait(30)
                time.sleep(0.0005)
                with self.lock:
                    self.working -= 1
                yield item, step
        finally:
            self.closed += 1

    def take(self) -> None:
        with self.lock:
            self.taken += 1


@pytest.mark.parametrize("steps", [1, 3, 20])
@pytest.mark.parametrize("threads", [2, 4])
def test_no_more_results_are_in_flight_than_twice_the_threads(steps: int, threads: int) -> None:
    work = Work(steps, threads)
    results = []
    for item, result in map_ordered(range(12), work, threads):
        work.take()
        results.append(result)
        assert item == result[0]
    assert results == [(item, step) for item in range(12) for step in range(steps)]
    assert work.most <= 2 * threads
    assert work.most_working == threads, "all of them have worked, and no others"
    assert work.closed == 12


@pytest.mark.parametrize("size", [1 << 16, 1 << 20, 3 << 20])
def test_small_results_of_one_item_do_not_wait_for_the_item_before(size: int) -> None:
    steps, piece = 8, workers.PIECE_BYTES
    second_item_ended = threading.Event()

    def work(item: int) -> Iterator[int]:
        if item == 0:
            second_item_ended.wait(10 if size * steps < 2 * piece else 0.2)
        for _ in range(steps):
            yield size
        if item == 1:
            second_item_ended.set()

    results = map_ordered(range(2), work, 2, measure=lambda result: result)
    assert next(results) == (0, size)
    assert second_item_ended.is_set() == (size * steps < 2 * piece), "at most a piece per thread is held"
    assert [item for item, _ in results] == [0] * (steps - 1) + [1] * steps


def test_nothing_new_is_begun_when_the_consumer_stops() -> None:
    work = Work(5)
    results = map_ordered(iter(range(10**9)), work, 3)
    for _ in range(4):
        next(results)
        work.take()
    results.close()
    begin_count = work.made
    assert begin_count <= 4 + 6
    time.sleep(0.05)
    assert work.made == begin_count
    assert work.closed >= 1


def test_errors_come_in_their_turn() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2)
        raise OSError("the plan")

    def work(item: int) -> Iterator[int]:
        yield item * 10
        if item == 2:
            raise ValueError("the work")

    for source, error in ((range(1, 9), ValueError), (items(), ValueError)):
        numbers = []
        results = map_ordered(source, work, 2)
        with pytest.raises(error, match="the work"):
            numbers.extend(result for _, result in results)
        assert numbers == [] or numbers == [10, 20]
    results = map_ordered(items(), lambda item: iter([item]), 2)
    assert [next(results), next(results)] == [(1, 1), (2, 2)]
    with pytest.raises(OSError, match="the plan"):
        next(results)


def test_what_is_to_be_taken_back_has_ended_when_an_error_is_raised() -> None:
    start_event, failed, ended = threading.Event(), threading.Event(), []

    def move(item: int) -> None:
        if item:
            start_event.wait()
            failed.set()
            raise OSError("no answer")
        start_event.set()
        failed.wait()
        time.sleep(0.05)
        ended.append(item)

    with pytest.raises(OSError, match="no answer"):
        finish_all([1, 0], move, 2)
    assert ended == [0]


def test_head_reads_nothing_ahead(samples: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = sawlog.open(samples["leveldb_log"], format="leveldb_log", use_threads=4)
    monkeypatch.setattr(workers, "WorkerPool", None)
    assert dataset.head(5).num_rows == 5


def test_directories_are_repaired_by_several_threads(samples: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    path = tmp_path / "part"  # several pieces, and as many blocks as there are in them
    path.write_bytes(samples["leveldb_log"].read_bytes()[: 96 * 32768])
    path = damage(path, range(200_000, 3_000_000, 1_900_001))
    for number in range(2):
        (tmp_path / "db" / f"{number:06}.log").symlink_to(path)
    reports = [sawlog.repair(tmp_path / "db", tmp_path / f"{n}", use_threads=n).to_dict() for n in (1, 3)]
    assert reports[0] == reports[1]
    for number in range(2):
        saved = [(tmp_path / f"{n}" / f"{number:06}.log").read_bytes() for n in (1, 3)]
        assert saved[0] == saved[1]


def test_a_number_of_threads_is_a_number(samples: dict[str, Path]) -> None:
    with pytest.raises(sawlog.OptionError, match="use_threads=0: expected True, False or a number"):
        sawlog.open(samples["leveldb_log"], format="leveldb_log", use_threads=0)
    assert sawlog.open(samples["leveldb_log"], format="leveldb_log").scan.threads == workers.count_cores() >= 1
