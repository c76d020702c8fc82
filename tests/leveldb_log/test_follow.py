"""Streams: a log that grows delivers each record exactly once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import sawlog
from sawlog.format.contract import Range

from .fragments import BLOCK, FIRST, fragment, write

RECORDS = [
    random.Random(i).randbytes(size) for i, size in enumerate([0, 5, 300, 0, 40_000, 7, 32_754, 1, 90_000, 12] * 3)
]


class Stream:
    """Follows one path as a stream would."""

    def __init__(self, path: Path, **options: object) -> None:
        self.path = path
        self.options = options
        self.positions: dict = {}
        self.records: list[bytes] = []

    def advance(self) -> None:
        watch = sawlog.open(self.path, format="leveldb_log", **self.options).watch(self.positions)
        self.records += [record for batch in watch.look() for record in batch.column("record").to_pylist()]
        assert watch.look() == []
        self.positions = watch.positions


def grow(path: Path, data: bytes, places: list[int], **options: object) -> Stream:
    stream = Stream(path, **options)
    for place in [*places, len(data)]:
        path.write_bytes(data[:place])
        stream.advance()
        assert stream.records == RECORDS[: len(stream.records)]
    return stream


@pytest.mark.parametrize("seed", range(4))
def test_each_record_once_however_the_log_grows(seed: int, tmp_path: Path) -> None:
    data = write(*RECORDS)
    places = sorted(random.Random(seed).sample(range(len(data)), 40))
    assert grow(tmp_path / "000007.log", data, places).records == RECORDS


def test_a_log_is_followed_byte_by_byte_around_every_boundary(tmp_path: Path) -> None:
    records = RECORDS[:5]
    data = write(*records)
    places = [place for place in range(len(data)) if place < 340 or place % BLOCK < 12 or place % BLOCK > BLOCK - 12]
    assert grow(tmp_path / "000007.log", data, places).records == records


def test_a_log_written_into_preallocated_space(tmp_path: Path) -> None:
    data = write(*RECORDS)
    stream = Stream(tmp_path / "1.log")
    for place in sorted(random.Random(9).sample(range(len(data)), 20)):
        ends = [len(write(*RECORDS[:i])) for i in range(len(RECORDS) + 1)]
        complete = max(end for end in ends if end <= place)
        stream.path.write_bytes(data[:complete] + bytes(len(data) + 1000 - complete))
        stream.advance()
    stream.path.write_bytes(data)
    stream.advance()
    assert stream.records == RECORDS


def test_a_recycled_log_that_is_overwritten(tmp_path: Path) -> None:
    fresh, stale = write(*RECORDS, log=7), write(*reversed(RECORDS), log=4)
    stream = Stream(tmp_path / "000007.log")
    for place in sorted(random.Random(5).sample(range(len(fresh)), 30)):
        stream.path.write_bytes(fresh[:place] + stale[place:])
        stream.advance()
        assert stream.records == RECORDS[: len(stream.records)]
    stream.path.write_bytes(fresh)
    stream.advance()
    assert stream.records == RECORDS


def test_a_large_backlog_is_cut_into_ranges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sawlog.leveldb.log.dataset.TASK_BYTES", 2 * BLOCK)
    path = tmp_path / "1.log"
    first = write(*RECORDS[:10])
    path.write_bytes(first)
    stream = Stream(path)
    stream.advance()
    path.write_bytes(write(*RECORDS) + fragment(FIRST, b"open"))
    dataset = sawlog.open(path)
    end = dataset.contents.find_committed_end(dataset.request, dataset.files[0], len(first))
    assert end == len(write(*RECORDS))
    fragments = dataset.contents.list_fragments(dataset.request, [Range(dataset.files[0], len(first), end)])
    assert len(fragments) > 3
    assert [fragment.synced for fragment in fragments] == [True] + [False] * (len(fragments) - 1)
    stream.advance()
    assert stream.records == RECORDS


def test_several_logs_and_new_ones_are_followed(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    (tmp_path / "000009.log").write_bytes(write(b"a") + b"torn")
    stream.advance()
    (tmp_path / "000010.log").write_bytes(write(b"c"))
    (tmp_path / "000009.log").write_bytes(write(b"a", b"b"))
    stream.advance()
    stream.advance()
    assert stream.records == [b"a", b"b", b"c"]


def test_a_log_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(write(b"a", b"b"))
    stream = Stream(path)
    stream.advance()
    path.write_bytes(write(b"a"))
    with pytest.raises(sawlog.SawlogError, match="shrank"):
        stream.advance()


def test_a_block_that_is_not_all_there_yet_waits(tmp_path: Path) -> None:
    """A page that has reached the disk as zeros, or half, is no damage while it is the last one."""
    path = tmp_path / "1.log"
    data = write(b"a", b"b" * 9000, b"c")
    path.write_bytes(data[:5000] + bytes(len(data) - 5000))
    stream = Stream(path)
    stream.advance()
    assert stream.records == [b"a"]
    path.write_bytes(data)
    stream.advance()
    assert stream.records == [b"a", b"b" * 9000, b"c"]


def test_damage_is_told_of_once_the_log_goes_on_after_it(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    records = [b"a", b"b" * 9000, b"c" * 60_000, b"d"]
    data = bytearray(write(*records))
    data[5000] ^= 1
    path.write_bytes(data[:9000])
    stream = Stream(path)
    stream.advance()
    assert stream.records == [b"a"]
    path.write_bytes(data)
    with pytest.raises(sawlog.DamageError, match="checksum_mismatch"):
        stream.advance()


def test_damage_is_followed_like_rows(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    data = bytearray(write(b"a", b"b" * 9000, b"c" * 60_000, b"d"))
    data[5000] ^= 1
    positions: dict = {}
    damages = []
    for end in (9000, 50_000, len(data)):
        path.write_bytes(data[:end])
        watch = sawlog.open(path, view="damage").watch(positions)
        damages += [row for batch in watch.look() for row in batch.to_pylist()]
        positions = watch.positions
    assert damages == sawlog.read(path, view="damage").to_pylist() != []
