"""DELETE_PARTITION: a read of all rows walks a log once; others look for commands first."""

from __future__ import annotations

import os
import random
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sawlog
from sawlog.deephaven.log import dataset as datasets
from sawlog.deephaven.log import plan, walk
from sawlog.deephaven.log.kernels.scan import MARK_BYTES, may_delete
from sawlog.format.planning import plan_for_few_rows, plan_for_threads, plan_fragments

from .reference import DELETE, Col, committed, entry, header, row
from .support import checked, make

MARK = DELETE[2:]
BLOBS = [Col("N", "Int"), Col("B", "Blob")]


class Work:
    """What a reader does to a log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches = 0
        self.scans = 0
        self.reads = 0
        search, init, read = plan.may_hold_delete, walk.CutWalk.__init__, walk.RowWalk.read_batches

        def searched(*arguments: Any) -> bool:
            self.searches += 1
            return search(*arguments)

        def scanned(*arguments: Any, **options: Any) -> None:
            self.scans += 1
            init(*arguments, **options)

        def walked(row_walk: walk.RowWalk) -> Any:
            self.reads += 1
            yield from read(row_walk)

        monkeypatch.setattr(plan, "STABLE_SECONDS", float("inf"))
        monkeypatch.setattr(plan, "may_hold_delete", searched)
        monkeypatch.setattr(walk.CutWalk, "__init__", scanned)
        monkeypatch.setattr(walk.RowWalk, "read_batches", walked)

    def take(self) -> tuple[int, int, int]:
        done = self.searches, self.scans, self.reads
        self.searches = self.scans = self.reads = 0
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def test_a_log_without_deletions_is_walked_once(tmp_path: Path, work: Work):
    path = tmp_path / "log.bin"
    path.write_bytes(make([3, 1, 5, 2, 3]))
    dataset = sawlog.open(path)
    assert dataset.to_table().num_rows == 4
    assert work.take() == (0, 0, 1)
    assert dataset.count_rows() == 4
    assert work.take() == (0, 0, 1)
    assert sawlog.read(path, filters=[("N", ">", 1)]).num_rows == 2
    assert work.take() == (0, 0, 1)
    assert sum(batch.num_rows for batch in dataset.to_batches()) == 4
    assert work.take() == (0, 0, 1), "a small log is searched when its header is read"


def test_threads_begin_before_a_log_is_cut(tmp_path: Path, monkeypatch):
    path = tmp_path / "log.bin"
    path.write_bytes(make([3] * 400))
    planned = len(sawlog.open(path).fragments(1000))
    assert planned > 5
    steps: list[int] = []
    go_on = walk.CutWalk.go_on

    def counted(cut_walk: walk.CutWalk, target: int) -> int | None:
        steps.append(target)
        return go_on(cut_walk, target)

    monkeypatch.setattr(walk.CutWalk, "go_on", counted)
    dataset = sawlog.open(path, deletes="ignore")
    pieces = plan_for_threads(dataset.contents, dataset.request, 1000)
    next(pieces)
    assert len(steps) == 1
    assert len(list(pieces)) == planned - 1


def test_a_log_with_deletions_is_read_again(tmp_path: Path, work: Work):
    for number, flags in enumerate(([3, 3, 4, 3], [3], [3, 4])):
        (tmp_path / f"Ns.T.System.a.2024-01-01.bin.2024-01-01.0{number}0000.000+0000").write_bytes(make(flags))
    dataset = sawlog.open(tmp_path)
    assert dataset.to_table().num_rows == 0
    assert work.take() == (2, 2, 4)
    assert dataset.count_rows() == 0
    assert work.take() == (2, 2, 4)


def test_what_only_looks_like_a_deletion_is_told_apart_by_a_walk(tmp_path: Path, work: Work):
    path = tmp_path / "log.bin"
    rows = [row(BLOBS, {"N": 0}), row(BLOBS, {"N": 1, "B": entry(4, DELETE)})]
    path.write_bytes(header(BLOBS) + b"".join(rows))
    assert [n for batch in sawlog.open(path).to_batches() for n in batch.column("N").to_pylist()] == [0, 1]
    assert work.take() == (1, 1, 1)


def test_a_warning_is_given_once(tmp_path: Path, work: Work):
    (tmp_path / "Ns.T.System.a.2024-01-01.bin.2024-01-01.010000.000+0000").write_bytes(make([3, 3])[:-1])
    (tmp_path / "Ns.T.System.b.2024-01-01.bin.2024-01-01.020000.000+0000").write_bytes(make([3, 4, 3]))
    with pytest.warns(sawlog.DamageWarning) as warning_records:
        assert sawlog.read(tmp_path).num_rows == 2
    assert len(warning_records) == 1


@pytest.mark.parametrize("searched", [MARK_BYTES, 33, 1 << 20])
def test_the_search_finds_every_deletion_wherever_windows_end(tmp_path: Path, monkeypatch, searched: int):
    monkeypatch.setattr(plan, "SEARCHED_BYTES", searched)
    for before in range(20):
        path = tmp_path / f"{before}.bin"
        path.write_bytes(header(BLOBS) + row(BLOBS, {"N": 1, "B": bytes(before)}) + entry(4, DELETE) + bytes(9))
        assert sawlog.open(path, on_damage="skip").head().num_rows == 0


def test_the_search_is_right_about_every_place() -> None:
    assert len(MARK) == MARK_BYTES
    rng = random.Random(5)
    for length in (0, 1, 9, 10, 73, 74, 75, 140, 300):
        for _ in range(30):
            data = bytearray(rng.choices(MARK, k=length))
            if length >= MARK_BYTES and rng.random() < 0.5:
                offset = rng.choice([0, length - MARK_BYTES, rng.randrange(length - MARK_BYTES + 1)])
                data[offset : offset + MARK_BYTES] = MARK
            starts = range(length - MARK_BYTES + 1)
            expected = any(data[i : i + 2] == b"\x4e\x20" and data[i + 8 : i + 10] == b"\x27\x10" for i in starts)
            assert bool(may_delete(np.frombuffer(bytes(data), np.uint8))) == expected


def test_hope_is_for_those_who_can_start_again(tmp_path: Path):
    path = tmp_path / "log.bin"
    path.write_bytes(make([3]))
    dataset = sawlog.open(path)
    dataset.to_table()
    assert isinstance(dataset.contents, datasets.DeephavenLogContents)
    assert not any(fragment.optimistic for fragment in dataset.fragments())  # type: ignore[attr-defined]


@pytest.mark.parametrize("flags", [[3, 1, 4, 0], [1, 4, 2], [1, 4, 0, 3], [1, 0, 4, 1, 2], [4, 1, 5, 4]])
@pytest.mark.parametrize("deletes", ["apply", "ignore"])
def test_a_repaired_log_ends_sets_where_its_readers_do(flags: list[int], deletes: str):
    assert checked(make(flags), deletes=deletes)[0] == committed(flags, deletes=deletes == "apply")


def test_what_was_found_in_a_log_holds_until_the_log_changes(tmp_path: Path, work: Work, monkeypatch):
    path = tmp_path / "a.bin"
    rows = [row(BLOBS, {"N": n, "B": b"x" * 20}) for n in range(200)]
    path.write_bytes(header(BLOBS) + b"".join(rows) + entry(4, DELETE) + b"".join(rows[:7]))

    def planned() -> tuple[int, bool]:
        work.take()
        parts = sawlog.open(path).fragments(2000)
        row_count = sum(batch.num_rows for part in parts for batch in part.to_batches())
        return row_count, work.take()[1] > 0

    assert planned() == (7, True)
    assert planned() == (7, True), "it has only just been written"
    monkeypatch.setattr(plan, "STABLE_SECONDS", -1.0)
    assert planned() == (7, True)
    assert planned() == (7, False)
    before = path.stat()
    time.sleep(0.05)
    with path.open("r+b") as log:
        log.seek(len(header(BLOBS)) + len(b"".join(rows)))
        log.write(entry(4, (7).to_bytes(4, "big") + DELETE[4:]))  # of the same size, and some other command
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert planned() == (207, True)
    assert planned() == (207, False)
    with path.open("ab") as log:
        log.write(entry(4, DELETE))
    assert planned() == (0, True)
    with path.open("ab") as log:
        log.write(bytes(5000))
    assert planned() == (0, True)
    assert planned() == (0, True), "zeros may be filled unseen"


@pytest.mark.parametrize("seed", range(40))
def test_few_rows_are_found_from_the_end(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretch by stretch, until there are none: together they are all rows, however the logs are damaged."""
    monkeypatch.setattr(datasets, "FEW_ROWS_BYTES", 150)
    draw = random.Random(seed)
    number = 0
    for log in range(draw.choice([1, 3])):
        data = header(BLOBS)
        for _ in range(draw.randrange(40)):
            flags = draw.choice([[3], [3], [1, 0, 2], [1, 0], [4] if draw.random() < 0.2 else [3]])
            for flag in flags:
                number += 1
                data += (
                    entry(4, DELETE) if flag == 4 else row(BLOBS, {"N": number, "B": b"x" * draw.randrange(60)}, flag)
                )
        if draw.random() < 0.3:
            data = data[: draw.randrange(len(header(BLOBS)), len(data) + 1)]
        if draw.random() < 0.3 and len(data) > len(header(BLOBS)) + 9:
            place = draw.randrange(len(header(BLOBS)), len(data))
            data = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
        (tmp_path / f"N.T.System.a.2026-01-02.bin.2026-01-02.1{log}0000.000+0000").write_bytes(data)
    dataset = sawlog.open(tmp_path, format="deephaven_log", on_damage="skip", columns=["N"])

    def rows(fragments: Any) -> list[int]:
        return [n for part in fragments for batch in part.to_batches() for n in batch.column("N").to_pylist()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = list(plan_fragments(plan_for_few_rows(dataset.contents), dataset.request, None))
        assert sorted(rows(few)) == sorted(rows(dataset.fragments(None)))
    assert len(few) == len({(part.path, part.extent) for part in few})
