"""Damage of every kind: nothing but sawlog's own errors, nothing invented, every byte accounted for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import FINDING_ERRORS
from sawlog.format.damage import TailStatus
from tests.bytes import mask_crc
from tests.support import is_subsequence

from .fragments import BLOCK, FIRST, FULL, LAST, MIDDLE, fragment, offsets, read_in_agreement, scan, write

SMALL = [b"", b"x", b"hello", b"y" * 300, b"", bytes(range(100))]
CROSSING = [b"a" * 32_600, b"b" * 300, b"", b"c" * 70_000, b"end"]


def test_truncation_at_every_byte_leaves_a_prefix() -> None:
    data = write(*SMALL)
    starts = offsets(*SMALL)
    ends = [*starts[1:], len(data)]
    for size in range(len(data) + 1):
        reading = read_in_agreement(data[:size])
        complete = sum(1 for end in ends if end <= size)
        assert reading.records == SMALL[:complete]
        assert reading.damages == []
        assert reading.tail is not None
        clean = size in (0, *ends)
        assert (reading.tail.status, reading.tail.offset) == (
            (TailStatus.CLEAN, size) if clean else (TailStatus.TORN, starts[complete])
        )


def test_truncation_of_records_in_pieces() -> None:
    data = write(*CROSSING)
    ends = [*offsets(*CROSSING)[1:], len(data)]
    places = {near + step for near in (*ends, BLOCK, 2 * BLOCK, 3 * BLOCK) for step in range(-15, 16)}
    for size in sorted(place for place in places if 0 <= place <= len(data)):
        reading = read_in_agreement(data[:size])
        assert reading.records == CROSSING[: sum(1 for end in ends if end <= size)]
        assert reading.damages == []


blocks = st.integers(0, 3)
bytes_of = st.binary(max_size=40)
positions = st.integers(0, 103_000)
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), positions, st.integers(1, 255)),
        st.tuples(st.just("overwrite"), positions, bytes_of),
        st.tuples(st.just("insert"), positions, bytes_of),
        st.tuples(st.just("delete"), positions, st.integers(1, 40_000)),
        st.tuples(st.just("double block"), blocks, blocks),
        st.tuples(st.just("zero block"), blocks, st.none()),
        st.tuples(
            st.just("fragment"),
            positions,
            st.tuples(st.sampled_from([0, FULL, FIRST, MIDDLE, LAST, 5, 9, 130, 255]), bytes_of),
        ),
        st.tuples(st.just("truncate"), positions, st.none()),
    ),
    min_size=1,
    max_size=6,
)


def mutate(data: bytes, steps: list) -> bytes:
    log = bytearray(data)
    for name, offset, change in steps:
        block = slice(offset * BLOCK, offset * BLOCK + BLOCK)
        match name:
            case "flip" if offset < len(log):
                log[offset] ^= change
            case "overwrite":
                log[offset : offset + len(change)] = change
            case "insert":
                log[offset:offset] = change
            case "delete":
                del log[offset : offset + change]
            case "double block":
                log[change * BLOCK : change * BLOCK] = log[block]
            case "zero block":
                log[block] = bytes(len(log[block]))
            case "fragment":
                piece = fragment(*change)
                log[offset : offset + len(piece)] = piece
            case "truncate":
                del log[offset:]
    return bytes(log)


@settings(max_examples=200)
@given(st.booleans(), mutations)
def test_mutated_logs_are_read_as_leveldb_reads_them(crossing: bool, steps: list) -> None:
    read_in_agreement(mutate(write(*(CROSSING if crossing else SMALL)), steps))


quiet = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), positions, st.integers(1, 255)),
        st.tuples(st.just("zero block"), blocks, st.none()),
        st.tuples(st.just("delete"), positions, st.integers(1, 40_000)),
        st.tuples(st.just("truncate"), positions, st.none()),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=100)
@given(st.booleans(), quiet)
def test_nothing_is_invented(crossing: bool, steps: list) -> None:
    records = CROSSING if crossing else SMALL
    reading = read_in_agreement(mutate(write(*records), steps))
    assert is_subsequence(reading.records, records)


@settings(max_examples=60)
@given(st.booleans(), mutations)
def test_fail_delivers_what_stands_before_the_first_damage(tmp_path_factory, crossing: bool, steps: list) -> None:
    path = tmp_path_factory.getbasetemp() / "000009.log"
    data = mutate(write(*(CROSSING if crossing else SMALL)), steps)
    path.write_bytes(data)
    skipped = scan(data, dialect="leveldb")
    dataset = sawlog.open(path, format="leveldb_log", dialect="leveldb", columns=["_offset", "record"])
    (whole_fragment,) = dataset.fragments()
    delivered: list = []

    def read() -> None:
        for batch in whole_fragment.to_batches(sawlog.format.damage.Findings("fail")):
            delivered.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    if not skipped.damages:
        read()
        assert delivered == skipped.rows
        return
    with pytest.raises(FINDING_ERRORS) as caught:
        read()
    first = caught.value.damage
    assert (first.offset, first.length, first.kind) == skipped.ranges[0]
    assert str(path) in str(caught.value)
    assert delivered == [row for row in skipped.rows if row[0] < first.offset]


@settings(max_examples=60)
@given(st.binary(max_size=300), st.sampled_from(["auto", "leveldb", "rocksdb", "pebble"]))
def test_any_bytes_at_all_are_read_or_reported(data: bytes, dialect: str) -> None:
    scan(data, dialect=dialect)


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, *range(13), 77, 127, 128, 130, 131, 255]),
            st.binary(max_size=30),
            st.sampled_from([3, 7, None]),
        ),
        max_size=12,
    ),
    st.sampled_from(["rocksdb", "pebble"]),
    st.booleans(),
)
def test_fragments_of_any_kind_in_any_order(pieces: list, dialect: str, padded: bool) -> None:
    data = b""
    for kind, payload, log in pieces:
        data += fragment(kind, payload, log if kind in (*range(5, 9), 11, 131) else None)
    if padded:
        data += bytes(-len(data) % BLOCK)
    try:
        scan(data, dialect=dialect)
    except sawlog.FormatError:
        # A compression that nobody knows.
        assert dialect == "rocksdb"
        assert pieces[0][0] == 9


@pytest.mark.spread(3)
@pytest.mark.parametrize("verify_checksums", [True, False])
def test_lengths_that_reach_beyond_everything(verify_checksums: bool) -> None:
    for length in (1, 4, 100, 32_761, 32_762, 65_535):
        header = mask_crc(b"\1foo").to_bytes(4, "little") + length.to_bytes(2, "little") + b"\1foo"
        for data in (header, header + bytes(BLOCK - 10), bytes(BLOCK) + header):
            table = scan(data, verify_checksums=verify_checksums)
            assert all(offset + 7 + len(record) <= len(data) for offset, record in table.rows)


@pytest.mark.parametrize("limit", [0, 1, 299, 300, 32_754, 69_999, 70_000])
def test_longer_records_than_allowed_are_damage(limit: int) -> None:
    for records in (SMALL, CROSSING):
        data = write(*records)
        table = scan(data, max_item_bytes=limit)
        assert table.records == [record for record in records if len(record) <= limit]
        assert {damage.kind for damage in table.damages} <= {"record_too_large"}
        assert len(table.damages) == sum(1 for record in records if len(record) > limit)
        pieces = scan(data, BLOCK, max_item_bytes=limit)
        assert (pieces.rows, pieces.ranges) == (table.rows, table.ranges)


@pytest.mark.parametrize("limit", [-1, 1 << 31])
def test_a_limit_that_arrow_cannot_hold_is_an_error(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(write(b"x"))
    with pytest.raises(sawlog.OptionError, match="max_item_bytes"):
        sawlog.open(path, max_item_bytes=limit)


def test_batches_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.leveldb.log.walk.BATCH_BYTES", 64)
    monkeypatch.setattr("sawlog.leveldb.log.walk.BATCH_ROWS", 3)
    monkeypatch.setattr("sawlog.chain.walk.EVENT_ROOM", 3)
    monkeypatch.setattr("sawlog.chain.walk.WINDOW_BYTES", BLOCK)
    rng = random.Random(3)
    read_in_agreement(write(*CROSSING, *SMALL))
    for _ in range(40):
        data = bytearray(write(*CROSSING, *SMALL))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        read_in_agreement(bytes(data))


def test_a_hostile_file_of_damage_alone_is_counted_not_hoarded() -> None:
    data = fragment(LAST, b"") * (200_000 // 7)
    table = scan(data)
    assert len(table.damages) == 1000
    assert table.account.damage == len(data) - table.account.padding - table.account.tail


def test_what_many_damaged_ranges_say_is_put_into_words_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawlog.leveldb.log.walk import Walk

    path = tmp_path / "000001.log"
    kinds = [(fragment(LAST, b""), 1300), (fragment(77, b""), 1300), (fragment(MIDDLE, b"x"), 1300)]
    path.write_bytes(b"".join(piece * count for piece, count in kinds))
    dataset = sawlog.open(path, on_damage="skip")
    (listed,) = dataset.verify(every=True)
    words = []
    describe = Walk.describe
    monkeypatch.setattr(Walk, "describe", lambda self, event: words.append(event) or describe(self, event))
    table = sawlog.open(path, view="damage").to_table()
    assert table.to_pylist() == [
        {
            "file": damage.path,
            **{name: getattr(damage, name) for name in ("offset", "length", "kind", "detail", "dropped")},
        }
        for damage in listed.damages
    ]
    assert table.num_rows == 3900
    assert len(words) < 20
    (fragment_,) = dataset.fragments(None)
    assert fragment_.find_end() == 0
