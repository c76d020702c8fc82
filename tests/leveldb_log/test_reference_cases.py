"""The cases of LevelDB's own log tests, and vectors measured with its reader: sections 6, 7 and 15 of the format."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import sawlog
from sawlog.format.damage import TailStatus
from tests.support import write_records

from .fragments import (
    FIRST,
    FULL,
    LAST,
    MIDDLE,
    LogReading,
    fragment,
    offsets,
    reference,
    scan,
    scan_file,
    write,
)
from .reference_cases import BAR, CASES, CLEAN, FIVE_LEFT, FOO, B, H, bar, big, bump, skewed_records


@pytest.mark.parametrize(("name", "records", "places"), CLEAN, ids=[case[0] for case in CLEAN])
def test_what_leveldb_writes_is_read(name: str, records: list[bytes], places: list[int] | None) -> None:
    table = scan(write(*records))
    assert table.records == records
    assert [offset for offset, _ in table.rows] == (offsets(*records) if places is None else places)
    assert table.damages == []
    assert table.tail is not None
    assert table.tail.status is TailStatus.CLEAN


GOLDEN = [
    ("ManyBlocks", 1_289_116, "3746401e56b62027dc20820856ca77148590f9c76a5c64e2768be6df2b20742c"),
    ("Fragmentation", 150_054, "c2df3caf8657dd7cdf8a3abc3daca72e72279501109b8bca1942de1e6c22d772"),
    ("RandomRead", 3_492_213, "9de93bc1434e06c09ac3d8753d389387fe417617e4a42bb66408a5a0f7fbb882"),
    ("SeedExample", 106_311, "e5420c39c7955f9dd62118ce3262724095c13f9e45f050ca78b2a31c89ca11ed"),
]
GOLDEN_RECORDS = {name: records for name, records, _ in CLEAN} | {
    "SeedExample": [b"A" * 1000, b"B" * 97270, b"C" * 8000]
}


@pytest.mark.parametrize(("name", "size", "digest"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_golden_files_are_written_and_read(name: str, size: int, digest: str, tmp_path: Path) -> None:
    records = GOLDEN_RECORDS[name]
    path = tmp_path / "000001.log"
    write_records(path, records)
    data = path.read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (size, digest)
    assert scan(data).records == records


def test_generator_of_skewed_records() -> None:
    lengths = [len(record) for record in skewed_records()]
    assert (max(lengths), lengths.count(0)) == (129_780, 48)


def test_fragments_of_the_seed_example_are_read() -> None:
    table = scan(write(*GOLDEN_RECORDS["SeedExample"]))
    assert [offset for offset, _ in table.rows] == [0, 1007, 98304]
    assert table.account.padding == 6


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (FULL, b"", "05 2b 28 43 00 00 01"),
        (FULL, b"foo", "dd 5f b3 7a 03 00 01 66 6f 6f"),
        (FULL, b"hello", "0b b9 57 58 05 00 01 68 65 6c 6c 6f"),
        (FIRST, b"", "64 51 d0 e9 00 00 02"),
        (MIDDLE, b"", "33 6d cd e3 00 00 03"),
        (LAST, b"", "a7 16 20 2b 00 00 04"),
        (0, b"", "d2 8f 25 49 00 00 00"),
        (FULL, bytes.fromhex("0100000000000000020000000101 6b01760004676f6e65"), None),
    ],
)
def test_fragments_have_the_bytes_of_the_reference(kind: int, payload: bytes, expected: str | None) -> None:
    if expected is None:
        expected = "f7 be e5 b8 17 00 01 01 00 00 00 00 00 00 00 02 00 00 00 01 01 6b 01 76 00 04 67 6f 6e 65"
    assert fragment(kind, payload) == bytes.fromhex(expected)
    table = scan(bytes.fromhex(expected))
    assert table.records == ([payload] if kind == FULL else [])


def test_a_manifest_has_the_bytes_of_the_reference() -> None:
    edit = b"\x01\x1aleveldb.BytewiseComparator\x02\x00\x09\x00\x03\x02\x04\x00"
    manifest = bytes.fromhex("0d493f3c240001") + edit
    assert len(manifest) == 43
    assert scan(manifest, name="MANIFEST-000001").records == [edit]


@pytest.mark.parametrize(
    ("room", "second", "place", "size"),
    [
        *((room, FOO, 32768, 32778) for room in range(7)),
        (7, FOO, 32761, 32778),
        (8, FOO, 32760, 32777),
        (7, b"", 32761, 32768),
    ],
)
def test_every_way_to_meet_a_block_end(room: int, second: bytes, place: int, size: int, tmp_path: Path) -> None:
    records = [b"x" * (B - H - room), second]
    path = tmp_path / "000001.log"
    write_records(path, records)
    data = path.read_bytes()
    assert data == write(*records)
    assert len(data) == size
    assert scan(data).rows == [(0, records[0]), (place, second)]


@pytest.mark.parametrize(("name", "log", "records", "drops"), CASES, ids=[case[0] for case in CASES])
def test_damage_is_counted_as_leveldb_counts_it(
    name: str, log: bytes, records: list[bytes], drops: list[tuple[int, str]]
) -> None:
    table = scan(log, dialect="leveldb")
    assert table.records == records
    assert table.drops == drops
    model = reference(log)
    assert (model.rows, model.drops) == (table.rows, drops)


@pytest.mark.parametrize(("name", "log", "records", "drops"), CASES, ids=[case[0] for case in CASES])
def test_the_damage_view_lists_the_same(
    name: str, log: bytes, records: list[bytes], drops: list[tuple[int, str]], tmp_path: Path
) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(log)
    view = sawlog.read(path, format="leveldb_log", view="damage", dialect="leveldb")
    assert view.column("dropped").to_pylist() == [size for size, _ in drops]
    assert set(view.column("file").to_pylist()) <= {str(path)}
    for offset, length in zip(view.column("offset").to_pylist(), view.column("length").to_pylist(), strict=True):
        assert 0 <= offset < offset + length <= len(log)


def test_checksums_can_be_left_unverified() -> None:
    log = bump(write(FOO), 0, 1) + bar
    assert scan(log, verify_checksums=False).records == [FOO, BAR]
    assert scan(log).records == []


@pytest.mark.parametrize(
    ("log", "status", "offset"),
    [
        (write(FOO), TailStatus.CLEAN, 10),
        (write(FOO) + bar[:3], TailStatus.TORN, 10),
        (write(FOO) + bar[:-1], TailStatus.TORN, 10),
        (write(FOO) + fragment(FIRST, b"ba"), TailStatus.OPEN, 10),
        (write(FOO) + fragment(FIRST, b"ba") + fragment(LAST, b"r")[:7], TailStatus.OPEN, 10),
        (write(FOO) + bytes(100), TailStatus.PADDING, 10),
        (write(FOO) + bytes(B * 2 - 10 + 3), TailStatus.PADDING, 10),
        (bytes(B + 5), TailStatus.PADDING, 0),
        (bytes(5), TailStatus.TORN, 0),
        (FIVE_LEFT + bytes(5), TailStatus.PADDING, B - 5),
    ],
)
def test_tails_are_classified_as_the_reference_does(log: bytes, status: TailStatus, offset: int) -> None:
    table = scan(log)
    assert table.tail is not None
    assert (table.tail.status, table.tail.offset, table.tail.length) == (status, offset, len(log) - offset)
    assert table.damages == []


INITIAL = [bytes([ord("a") + i]) * size for i, size in enumerate([10000, 10000, 2 * B - 1000, 1, 13716, B - H])]
INITIAL_LOG = write(*INITIAL)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        *((start, 0) for start in [0]),
        *((start, 1) for start in [1, 10000, 10007]),
        *((start, 2) for start in [10008, 20014]),
        *((start, 3) for start in [20015, B - 4, B, B + 1, 2 * B, 2 * B + 1, 66571, 84571]),
        (84572, 4),
        *((start, 5) for start in range(3 * B - 7, 3 * B + 1)),
        *((start, 6) for start in [3 * B + 1, 4 * B, 4 * B + 5]),
    ],
)
def test_a_filter_of_offsets_reads_as_an_initial_offset(start: int, first: int) -> None:
    assert len(INITIAL_LOG) == 131_072
    places = [0, 10007, 20014, 84571, 84579, 98304]
    table = scan(INITIAL_LOG, filters=[("_offset", ">=", start)])
    assert table.rows == list(zip(places, INITIAL, strict=True))[first:]
    assert table.damages == []


def test_skip_into_a_record_of_many_blocks(tmp_path: Path) -> None:
    log = write(big("foo", 3 * B), b"correct")
    table = scan(log, filters=[("_offset", ">=", B)])
    assert table.rows == [(98332, b"correct")]
    assert table.damages == []
    path = tmp_path / "000007.log"
    path.write_bytes(log)
    (fragment,) = sawlog.open(path, filters=[("_offset", ">=", B + 5)]).fragments()
    assert (fragment.start, fragment.end) == (B, len(log))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., LogReading]:
    """Reads a log in small windows from a disk that fails from some byte on."""
    monkeypatch.setattr("sawlog.chain.walk.WINDOW_BYTES", 4 * B)
    monkeypatch.setattr("sawlog.chain.walk.REST_BYTES", 4 * B)
    monkeypatch.setattr("sawlog.storage.sources.LEAST_BYTES", 0)
    preadv = os.preadv

    def read(log: bytes, broken_from: int, task_bytes: int | None = None) -> LogReading:
        def failing(descriptor: int, buffers: list[memoryview], offset: int) -> int:
            if offset >= broken_from:
                raise OSError(errno.EIO, "Input/output error")
            return preadv(descriptor, [buffers[0][: broken_from - offset]], offset)

        (tmp_path / "000007.log").write_bytes(log)
        monkeypatch.setattr(os, "preadv", failing)
        return scan_file(tmp_path / "000007.log", task_bytes, dialect="leveldb")

    return read


def test_a_read_error_is_reported_as_by_the_reference(broken) -> None:
    reading = broken(write(FOO), 0)
    assert [(damage.kind, damage.offset, damage.length, damage.dropped) for damage in reading.damages] == [
        ("read_error", 0, 10, 32768)
    ]
    assert "Input/output error" in reading.damages[0].detail
    assert reading.account.total == 10


@pytest.mark.parametrize("task_bytes", [None, 6 * B])
def test_read_error_far_inside(broken, tmp_path: Path, task_bytes: int | None) -> None:
    records = [bytes([i]) * 20_000 for i in range(30)]
    log = write(*records)
    reading = broken(log, 10 * B, task_bytes)
    lowest, highest = (sum(1 for offset in offsets(*records) if offset + 20_014 < end) for end in (6 * B, 10 * B))
    assert lowest <= len(reading.records) <= highest
    assert reading.records == records[: len(reading.records)]
    assert reading.account.total == len(log)
    assert {damage.kind for damage in reading.damages} == {"read_error"}
    with pytest.raises(sawlog.DamageError, match="read_error"):
        sawlog.read(tmp_path / "000007.log", format="leveldb_log", dialect="leveldb")
