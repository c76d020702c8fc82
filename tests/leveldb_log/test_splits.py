"""However a log is cut into ranges, their rows, damaged ranges and accounts add up to those of the whole."""

from __future__ import annotations

import itertools
import random
import tempfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.format.damage import Findings, TailStatus

from .fragments import BLOCK, FIRST, FULL, LAST, MIDDLE, LogReading, fragment, offsets, scan, write

SIZES = [0, 1, 5, 100, 1000, 32754, 32755, 32761, 40_000, 99_999]


def cut(data: bytes, cuts: list[int], name: str = "000007.log", **arguments: object) -> tuple[LogReading, LogReading]:
    """What the whole log gives, and what its ranges give that end at `cuts`."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(data)
        dataset = sawlog.open(path, format="leveldb_log", columns=["_offset", "record"], on_damage="skip", **arguments)
        (whole_fragment,) = dataset.fragments(None)
        edges = sorted({0, len(data), *(-(-place // BLOCK) * BLOCK for place in cuts if place <= len(data) - BLOCK)})
        pieces = [
            replace(whole_fragment, start=start, end=end, synced=start == 0, size=end - start)
            for start, end in itertools.pairwise(edges)
        ]
        return read_fragments([whole_fragment]), read_fragments(pieces)


def read_fragments(fragments: list) -> LogReading:
    reading = LogReading()
    for part in fragments:
        findings = Findings("skip")
        for batch in part.to_batches(findings):
            reading.rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        reading.damages += findings.damages
        reading.account.add(findings.account)
        if findings.tail is not None:
            assert reading.tail is None, "two ranges claim the tail"
            reading.tail = findings.tail
    return reading


def check(data: bytes, cuts: list[int], **arguments: object) -> LogReading:
    whole_reading, pieces = cut(data, cuts, **arguments)
    assert pieces.rows == whole_reading.rows
    # LevelDB reports a damaged block before the record that breaks off in front of it, which may be another range's.
    places = attrgetter("offset", "length", "kind")
    assert sorted(pieces.damages, key=places) == sorted(whole_reading.damages, key=places)
    assert pieces.account == whole_reading.account
    assert pieces.tail == whole_reading.tail
    assert whole_reading.account.total == len(data)
    return whole_reading


def records_of(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice(SIZES)) for _ in range(count)]


def damage(data: bytes, seed: int) -> bytes:
    """Flipped bytes, zeroed and duplicated blocks, and fragments where none belong."""
    rng = random.Random(seed)
    log = bytearray(data)
    for _ in range(rng.randint(1, 12)):
        offset = rng.randrange(len(log))
        block = offset - offset % BLOCK
        match rng.randrange(5):
            case 0:
                log[offset] ^= 1 << rng.randrange(8)
            case 1:
                log[block : block + BLOCK] = bytes(len(log[block : block + BLOCK]))
            case 2:
                log[block:block] = log[block : block + BLOCK]
            case 3:
                kind = rng.choice([0, FULL, FIRST, MIDDLE, LAST, 9, 77, 130])
                piece = fragment(kind, rng.randbytes(rng.randrange(50)))
                log[block : block + len(piece)] = piece
            case 4:
                log[block : block + 7] = fragment(rng.choice([0, FIRST, LAST]), b"")
    return bytes(log)


cuts_of_a_log = st.lists(st.integers(0, 3 << 20), max_size=12)


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(1, 60), cuts_of_a_log)
def test_any_cuts_of_an_intact_log_have_its_records(seed: int, count: int, cuts: list[int]) -> None:
    records = records_of(seed, count)
    reading = check(write(*records), cuts)
    assert reading.rows == list(zip(offsets(*records), records, strict=True))
    assert reading.damages == []


@settings(max_examples=80)
@given(st.integers(0, 1 << 30), st.integers(1, 40), cuts_of_a_log)
def test_any_cuts_of_a_damaged_log_find_what_one_pass_finds(seed: int, count: int, cuts: list[int]) -> None:
    check(damage(write(*records_of(seed, count)) or b"\0", seed), cuts, dialect="leveldb")


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(1, 40), cuts_of_a_log, st.booleans())
def test_any_cuts_of_a_recycled_log_find_what_one_pass_finds(
    seed: int, count: int, cuts: list[int], damaged: bool
) -> None:
    fresh = write(*records_of(seed, count), log=7)
    stale = write(*records_of(seed + 1, count + 5), log=3)
    data = fresh + stale[len(fresh) :]
    if damaged:
        data = damage(data, seed)
    reading = check(data, cuts, dialect="rocksdb")
    if not damaged:
        assert reading.damages == []
        assert reading.records == records_of(seed, count)


def test_every_single_cut_between_all_kinds_of_fragments() -> None:
    records = [bytes([i]) * size for i, size in enumerate(SIZES)]
    data = write(*records, *reversed(records))
    for place in range(0, len(data), BLOCK):
        reading = check(data, [place])
        assert reading.records == [*records, *reversed(records)]
    check(data, list(range(0, len(data), BLOCK)))


def test_an_empty_first_of_an_old_writer_before_the_cut() -> None:
    data = write(b"x" * (BLOCK - 14)) + fragment(FIRST, b"") + write(b"bar")
    reading = check(data, [BLOCK])
    assert reading.records == [b"x" * (BLOCK - 14), b"bar"]
    assert reading.damages == []


@pytest.mark.parametrize("task_bytes", [1, BLOCK, BLOCK + 1, 100_000, 1 << 20])
def test_planned_fragments_have_every_record(task_bytes: int) -> None:
    records = records_of(5, 60)
    data = write(*records)
    assert scan(data, task_bytes).rows == list(zip(offsets(*records), records, strict=True))


def test_ranges_are_whole_blocks_of_about_the_size_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(bytes(10 * BLOCK + 5))
    ranges = sawlog.open(path, format="leveldb_log").fragments(3 * BLOCK - 1)
    assert [(range_.start, range_.end, range_.size, range_.synced) for range_ in ranges] == [
        (0, 3 * BLOCK, 3 * BLOCK, True),
        (3 * BLOCK, 6 * BLOCK, 3 * BLOCK, False),
        (6 * BLOCK, 9 * BLOCK, 3 * BLOCK, False),
        (9 * BLOCK, 10 * BLOCK + 5, BLOCK + 5, False),
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("_offset", "<", 40_000)], (0, 2)),
        ([("_offset", ">", 70_000)], (2, 5)),
        ([("_offset", "==", 66_000)], (2, 3)),
        ([("_offset", ">=", 40_000), ("_offset", "<=", 99_999)], (1, 4)),
        ([("_offset", "<", 0)], (0, 0)),
        ([("_offset", ">=", 10**9)], (0, 0)),
        ([("_offset", ">=", -5)], (0, 5)),
    ],
)
def test_filters_on_offsets_leave_out_the_ranges_that_cannot_match(
    filters: list[tuple[str, str, int]], expected: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(write(*[bytes([i]) * 30_000 for i in range(5)]))
    ranges = sawlog.open(path, filters=filters).fragments(1)
    blocks = [range_.start // BLOCK for range_ in ranges]
    assert blocks == list(range(*expected))


def test_the_damage_view_is_the_same_however_it_is_filtered(tmp_path: Path) -> None:
    data = bytearray(write(*[bytes([i]) * 30_000 for i in range(5)]))
    data[40_000] ^= 1
    path = tmp_path / "1.log"
    path.write_bytes(data)
    values = sawlog.read(path, view="damage").column("offset").to_pylist()
    assert len(values) > 1
    for place in values:
        table = sawlog.read(path, view="damage", filters=[("_offset", "==", place)])
        assert table.column("offset").to_pylist() == [place]


def test_unused_space_that_began_in_an_earlier_range() -> None:
    data = write(b"x" * 100) + bytes(3 * BLOCK)
    reading = check(data, [BLOCK, 2 * BLOCK])
    assert reading.tail is not None
    assert (reading.tail.status, reading.tail.offset) == (TailStatus.PADDING, 107)
    check(bytes(2 * BLOCK + 5), [1, BLOCK])


@pytest.mark.parametrize(("seed", "count", "cuts"), [(13, 12, [1]), (9076, 3, [1])])
def test_damaged_logs_that_were_once_told_in_another_order(seed: int, count: int, cuts: list[int]) -> None:
    check(damage(write(*records_of(seed, count)), seed), cuts, dialect="leveldb")
