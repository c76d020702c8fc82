"""RocksDB's and Pebble's fragments, built by hand: sections 8 and 9 of the format."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.format.damage import DamageWarning, Findings, TailStatus
from tests.bytes import mask_crc
from tests.leveldb_log.support import COMPRESSED, compressed_log, zstd
from tests.unit_of_loss import Rows, assert_lost_by_unit

from .fragments import BLOCK, FIRST, LAST, MIDDLE, fragment, scan, scan_file, write

SIZES = struct.pack("<IH", 1, 8)
PREDECESSOR = struct.pack("<QQQ", 6, 1000, 55)
FRESH = [b"one", b"", b"two" * 20_000, b"three"]
STALE = [bytes([65 + i]) * (3_000 + i) for i in range(40)]


def unsized(content: bytes) -> bytes:
    """A frame that does not declare its size."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content[: len(content) // 2])
        stream.flush()
        stream.write(content[len(content) // 2 :])
    return sink.getvalue().to_pybytes()


def recycled(fresh: bytes, stale: bytes) -> bytes:
    return fresh + stale[len(fresh) :]


@pytest.mark.parametrize("name", ["000007.log", "copy.log"])
def test_a_recycled_log_ends_where_the_old_one_begins(name: str) -> None:
    fresh = write(*FRESH, log=7)
    table = scan(recycled(fresh, write(*STALE, log=3)), name=name)
    assert table.records == FRESH
    assert table.damages == []
    assert table.tail is not None
    assert (table.tail.status, table.tail.offset) == (TailStatus.STALE, len(fresh))


def test_a_recycled_log_may_be_cut_off_anywhere() -> None:
    fresh, stale = write(*FRESH, log=7), write(*STALE, log=3)
    ends = [len(write(*FRESH[: i + 1], log=7)) for i in range(4)]
    for place in [*range(60), *range(BLOCK - 15, BLOCK + 15), *range(len(fresh) - 30, len(fresh))]:
        for data in (fresh[:place] + stale[place:], fresh[:place]):
            table = scan(data, dialect="rocksdb")
            complete = [record for record, end in zip(FRESH, ends, strict=True) if end <= place]
            if place >= 11 + 3:
                assert table.records == complete
                assert table.damages == []


def test_a_file_that_was_taken_over_and_not_written_yet_is_empty() -> None:
    table = scan(write(*STALE, log=3), name="000007.log")
    assert table.records == []
    assert table.damages == []
    assert table.tail is not None
    assert (table.tail.status, table.tail.offset) == (TailStatus.STALE, 0)


def test_a_log_that_was_given_another_name_is_read_by_its_own_number(tmp_path: Path) -> None:
    path = tmp_path / "000009.log"
    path.write_bytes(recycled(write(*FRESH, log=7), write(*STALE, log=3)))
    with pytest.warns(DamageWarning, match="it is read as log 7"):
        reading = scan_file(path)
    assert reading.records == FRESH
    assert sawlog.open(path).info()["recycled, log number"] == 7
    with pytest.warns(DamageWarning, match="it is read as log 7"):
        (report,) = sawlog.verify(path).files
    assert (report.rows, report.notes) == (len(FRESH), {"renamed_logs": 1})
    # In its database the name counts: there the log was taken over, and nothing is written yet.
    (tmp_path / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    assert scan_file(path).records == []


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("dialect", ["auto", "rocksdb"])
def test_a_log_of_another_name_whose_first_fragment_is_broken_has_the_others(dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "000009.log"
    data = bytearray(write(*FRESH, log=7))
    for place in (0, 6, 11):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x82]) + data[place + 1 :])
        reading = scan_file(path, dialect=dialect)
        assert reading.records == FRESH[3:], "the others begin in the block that is lost"


def test_a_log_that_was_taken_over_is_not_taken_for_the_earlier_one(tmp_path: Path) -> None:
    """Its own fragments are found after a broken one, and those of the log before it are not its."""
    path = tmp_path / "000007.log"
    data = bytearray(recycled(write(*FRESH, log=7), write(*STALE, log=3)))
    data[12] ^= 1
    path.write_bytes(data)
    reading = scan_file(path)
    assert reading.records == FRESH[3:], "the others begin in the block that is lost"


@pytest.mark.parametrize("declared", [True, False])
def test_a_record_that_does_not_expand_costs_itself_only(declared: bool, tmp_path: Path) -> None:
    records = [b"record %d " % number * 40 for number in range(60)]
    frames = [
        zstd(record) if declared else zstandard.ZstdCompressor(write_content_size=False).compress(record)
        for record in records
    ]
    broken = {
        number: COMPRESSED + write(*frames[:number], frames[number][:9] + b"\xff" * 20, *frames[number + 1 :], start=11)
        for number in (0, 30, 59)
    }
    units: dict[int, Rows] = {number: [{"record": record}] for number, record in enumerate(records)}
    path = tmp_path / "000007.log"
    path.write_bytes(COMPRESSED + write(*frames, start=11))
    assert sawlog.read(path)["record"].to_pylist() == records
    assert_lost_by_unit(path, "leveldb_log", broken, units)


def test_log_numbers_of_64_bits() -> None:
    data = write(b"a", b"b", log=5)
    assert scan(data, name=f"{2**32 + 5}.log").records == [b"a", b"b"]
    assert scan(data, name=f"{2**32 + 6}.log").records == []


def test_damage_inside_a_recycled_log_is_not_its_end() -> None:
    records = [bytes([i]) * 20_000 for i in range(20)]
    data = bytearray(recycled(write(*records, log=7), write(*STALE * 8, log=3)))
    data[100_000] ^= 1
    table = scan(bytes(data))
    assert [record[0] for record in table.records] == [0, 1, 2, 3, *range(7, 20)]
    assert [damage.kind for damage in table.damages] == ["checksum_mismatch", "broken_record", "missing_start"]
    assert table.tail is not None
    assert table.tail.status is TailStatus.STALE
    for cut in range(BLOCK, 10 * BLOCK, BLOCK):
        assert scan(bytes(data), cut).ranges == table.ranges


def test_a_torn_end_of_a_recycled_log_that_outgrew_the_old_one() -> None:
    data = write(b"one", b"two", log=7)
    for size in range(len(data) - 13, len(data)):
        table = scan(data[:size])
        assert table.records == [b"one"]
        assert table.tail is not None
        assert (table.tail.status, table.tail.offset) == (TailStatus.TORN, 14)


@pytest.mark.parametrize("kind", [1, 4, 77])
def test_fragments_of_no_log_number_end_a_recycled_log(kind: int) -> None:
    table = scan(write(b"one", log=7) + fragment(kind, b"old"))
    assert table.records == [b"one"]


def test_a_recyclable_fragment_after_a_legacy_one_is_judged() -> None:
    data = write(b"legacy") + write(b"recyclable", log=7) + write(b"legacy again")
    table = scan(data, dialect="rocksdb")
    assert table.records == [b"legacy", b"recyclable", b"legacy again"]
    result_table = scan(write(b"legacy") + write(b"recyclable", log=8) + write(b"lost"), dialect="rocksdb")
    assert result_table.records == [b"legacy"]
    assert [damage.kind for damage in result_table.damages] == ["foreign_fragment"]


@pytest.mark.parametrize(
    "metadata",
    [
        fragment(10, SIZES),
        fragment(130, PREDECESSOR),
        fragment(128, b"ignorable"),
        fragment(254, b""),
        fragment(11, SIZES, 7),
        fragment(131, PREDECESSOR, 7),
    ],
)
def test_metadata_is_no_record_and_no_damage(metadata: bytes) -> None:
    table = scan(metadata + write(b"one") + metadata + write(b"two"), dialect="rocksdb")
    log = 7 if metadata[6] in (11, 131) else None
    if log is not None:
        table = scan(metadata + write(b"one", log=7) + metadata + write(b"two", log=7))
    assert table.records == [b"one", b"two"]
    assert table.damages == []
    assert table.account.header == 2 * len(metadata)


def test_a_log_that_begins_with_metadata_is_recognised_as_rocksdbs() -> None:
    assert scan(fragment(130, PREDECESSOR) + write(b"one")).damages == []
    stale = write(*STALE, log=3)
    for head in (fragment(131, PREDECESSOR, 7), COMPRESSED + fragment(11, SIZES, 7)):
        fresh = head + write(b"", log=7)
        table = scan(recycled(fresh, stale))
        assert (table.records, table.damages) == ([b""], [])


def test_an_identity_file_beside_the_log_tells_of_rocksdb(tmp_path: Path) -> None:
    data = write(b"one") + fragment(130, PREDECESSOR) + write(b"two")
    (tmp_path / "archive").mkdir()
    for path in (tmp_path / "000007.log", tmp_path / "archive" / "000005.log"):
        path.write_bytes(data)
        assert [damage.kind for damage in scan_file(path).damages] == ["unsupported"]
    (tmp_path / "IDENTITY").write_text("some uuid")
    for path in (tmp_path / "000007.log", tmp_path / "archive" / "000005.log"):
        assert scan_file(path).damages == []
    assert scan_file(tmp_path).records == [b"one", b"two"] * 2


def test_unknown_types_below_the_mask_are_unsupported() -> None:
    table = scan(write(b"one") + fragment(77, b"???") + write(b"two"), dialect="rocksdb")
    assert table.records == [b"one", b"two"]
    assert table.drops == [(3, "unknown record type")]


def test_metadata_inside_a_record_forgets_it() -> None:
    data = fragment(FIRST, b"ab") + fragment(130, PREDECESSOR) + fragment(LAST, b"cd") + write(b"next")
    table = scan(data, dialect="rocksdb")
    assert table.records == [b"next"]
    assert [damage.kind for damage in table.damages] == ["partial_record", "missing_start"]


def test_zeros_before_metadata_that_did_not_fit() -> None:
    head = write(b"x" * (BLOCK - 7 - 20))
    data = head + bytes(20) + fragment(130, PREDECESSOR) + write(b"two")
    table = scan(data, dialect="rocksdb")
    assert table.records == [b"x" * (BLOCK - 27), b"two"]
    assert table.damages == []
    assert table.account.padding == 20


RECORDS = [b"a" * 1000, b"", random.Random(1).randbytes(100_000), b"b" * 300_000, b"c"]


@pytest.mark.parametrize("log", [None, 7])
@pytest.mark.parametrize("frame", [zstd, unsized])
def test_compressed_records_are_expanded(frame, log: int | None) -> None:
    data = compressed_log(*(frame(record) if record else b"" for record in RECORDS), log=log)
    table = scan(data)
    assert table.records == RECORDS
    assert table.damages == []
    assert table.account.header == len(COMPRESSED)
    for task_bytes in (1, 3 * BLOCK):
        assert scan(data, task_bytes).rows == table.rows


def test_compressed_records_in_small_chunks() -> None:
    frame = zstd(RECORDS[2])
    log = COMPRESSED + fragment(FIRST + 4, frame[:6_000], 7)
    for start in range(6_000, len(frame), 6_000):
        chunk = frame[start : start + 6_000]
        room = BLOCK - len(log) % BLOCK
        if room < 11:
            log += bytes(room)
        elif room < 11 + len(chunk):
            log += fragment(MIDDLE + 4, chunk[: room - 11], 7)
            chunk = chunk[room - 11 :]
        log += fragment(MIDDLE + 4, chunk, 7)
    log += fragment(LAST + 4, b"", 7)
    assert scan(log).records == [RECORDS[2]]


def test_a_long_trailer_inside_a_compressed_record() -> None:
    frame = zstd(random.Random(3).randbytes(50_000))
    for room in (7, 10):
        first = BLOCK - len(COMPRESSED) - 11 - room
        log = COMPRESSED + fragment(FIRST + 4, frame[:first], 7) + bytes(room)
        log += fragment(LAST + 4, frame[first : first + 30_000], 7)
        table = scan(log)
        assert table.account.record == len(log) - len(COMPRESSED)


def broken_frames() -> list[tuple[str, bytes]]:
    good = zstd(b"content " * 100)
    flipped = bytearray(good)
    flipped[10] ^= 0x03
    lying = bytearray(good)
    lying[6] ^= 1
    return [
        ("not zstd", b"plain bytes"),
        ("cut", good[:-1]),
        ("more after it", good + b"x"),
        ("two frames", good + good),
        ("undecodable", bytes(flipped)),
        ("wrong size", bytes(lying)),
        ("a bomb's size", b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\x01\x00\x00"),
        ("only the magic number", b"\x28\xb5\x2f\xfd"),
        ("skippable", b"\x50\x2a\x4d\x18\x00\x00\x00\x00"),
        ("unsized and cut", unsized(b"content " * 100)[:-3]),
    ]


@pytest.mark.parametrize(("name", "frame"), broken_frames(), ids=[name for name, _ in broken_frames()])
def test_broken_streams_are_damage_of_exactly_their_record(name: str, frame: bytes) -> None:
    frames = [zstd(b"before"), frame, zstd(b"behind"), b""]
    data = compressed_log(*frames)
    table = scan(data)
    assert table.records == [b"before", b"behind", b""]
    start = len(COMPRESSED) + 7 + len(frames[0])
    assert table.ranges == [(start, 7 + len(frame), "bad_compression")]
    assert table.account.damage == 7 + len(frame)
    assert table.account.record == len(data) - len(COMPRESSED) - 7 - len(frame)


def test_fail_stops_at_a_broken_stream(tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(compressed_log(zstd(b"before"), b"broken", zstd(b"behind")))
    delivered: list = []
    (whole_fragment,) = sawlog.open(path).fragments()

    def read() -> None:
        for batch in whole_fragment.to_batches(Findings("fail")):
            delivered.extend(batch.column("record").to_pylist())

    with pytest.raises(sawlog.DamageError, match="bad_compression"):
        read()
    assert delivered == [b"before"]
    with pytest.raises(sawlog.DamageError, match="bad_compression"):
        sawlog.open(path).count_rows()


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.sampled_from([0, 10, 1_000, 1 << 30]))
def test_damaged_compressed_logs(seed: int, limit: int) -> None:
    rng = random.Random(seed)
    contents = [rng.randbytes(rng.randrange(50)) * rng.choice([0, 1, 30, 3_000]) for _ in range(30)]
    frames = [rng.choice([zstd, unsized])(content) if content else b"" for content in contents]
    broken = rng.sample(range(30), rng.randrange(4))
    frames = [b"\0" + frame if i in broken else frame for i, frame in enumerate(frames)]
    data = bytearray(compressed_log(*frames))
    intact = [c for i, c in enumerate(contents) if i not in broken and len(c) <= limit]
    table = scan(bytes(data), max_item_bytes=limit)
    assert table.records == intact
    assert len(table.damages) == len(contents) - len(intact)
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(COMPRESSED), len(data))] ^= 1 << rng.randrange(8)
    table = scan(bytes(data), max_item_bytes=limit)
    pieces = scan(bytes(data), BLOCK, max_item_bytes=limit)
    assert (pieces.rows, pieces.ranges, pieces.account) == (table.rows, table.ranges, table.account)
    iterator = iter(intact)
    assert all(record in iterator for record in table.records)


def test_expansion_is_limited() -> None:
    data = compressed_log(zstd(bytes(10_000_000)), unsized(bytes(10_000_000)), zstd(b"small"))
    assert len(data) < 5_000
    table = scan(data, max_item_bytes=1_000_000)
    assert table.records == [b"small"]
    assert {damage.kind for damage in table.damages} == {"record_too_large"}
    assert [len(record) for record in scan(data).records] == [10_000_000, 10_000_000, 5]


def test_batches_of_compressed_records_stay_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sawlog.leveldb.codecs.EXPANDED_BYTES", 100_000)
    path = tmp_path / "000007.log"
    path.write_bytes(compressed_log(*(zstd(bytes([i % 256]) * 30_000) for i in range(50))))
    batches = [batch for batch in sawlog.open(path).to_batches() if batch.num_rows]
    assert [batch.num_rows for batch in batches] == [3] * 16 + [2]


def test_other_compressions_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(fragment(9, struct.pack("<I", 4)) + write(b"x", start=11))
    with pytest.raises(sawlog.FormatError, match="type 4; only ZSTD"):
        sawlog.read(path)
    path.write_bytes(fragment(9, struct.pack("<I", 0)) + write(b"x", start=11))
    assert sawlog.read(path).column("record").to_pylist() == [b"x"]


def test_a_compression_type_elsewhere_changes_nothing() -> None:
    table = scan(write(b"plain") + COMPRESSED + write(b"plain too"), dialect="rocksdb")
    assert table.records == [b"plain", b"plain too"]
    assert table.drops == [(4, "unknown record type")]


def repaired(data: bytes, tmp_path: Path, name: str = "000007.log") -> tuple[bytes, sawlog.FileReport]:
    source, target = tmp_path / name, tmp_path / "repaired" / name
    source.write_bytes(data)
    report = sawlog.repair(source, target, format="leveldb_log", dialect="rocksdb")
    return target.read_bytes(), report.files[0]


def test_repair_carries_metadata_over_in_its_place(tmp_path: Path) -> None:
    unknown = fragment(200, b"something new")
    data = bytearray(
        fragment(131, PREDECESSOR, 7)
        + write(b"one", b"two", log=7)
        + fragment(11, SIZES, 7)
        + write(b"three", log=7)
        + unknown
    )
    plain = fragment(130, PREDECESSOR) + write(b"one", b"two") + fragment(10, SIZES) + write(b"three") + unknown
    assert repaired(bytes(data), tmp_path)[0] == plain
    assert repaired(plain, tmp_path)[0] == plain


@pytest.mark.parametrize(
    ("before", "metadata"),
    [
        (write(b"one", log=7), fragment(11, SIZES, 7)),
        (COMPRESSED + write(zstd(b"one"), start=len(COMPRESSED)), fragment(130, PREDECESSOR)),
        (write(b"one") + fragment(FIRST, b"x" * (BLOCK - 17)), fragment(200, b"something new")),
    ],
    ids=["recyclable", "compressed", "at the start of a block"],
)
def test_what_repair_writes_is_known_for_rocksdbs_like_the_log_itself(
    before: bytes, metadata: bytes, tmp_path: Path
) -> None:
    """Only by its metadata, which then comes first: nothing else of RocksDB's is left of the log."""
    source, target, again = (tmp_path / name for name in ("source", "target", "again"))
    source.write_bytes(before + metadata + metadata)
    sawlog.repair(source, target, format="leveldb_log")
    reading = scan_file(target)
    assert (reading.records, reading.damages) == ([b"one"], [])
    plain = metadata if metadata[6] != 11 else fragment(10, SIZES)
    assert target.read_bytes() == plain + write(b"one") + plain
    sawlog.repair(target, again, format="leveldb_log")
    assert again.read_bytes() == target.read_bytes()


def test_repair_of_metadata_at_a_block_end(tmp_path: Path) -> None:
    for room in range(40):
        first = b"x" * (BLOCK - 11 - room)
        data = write(first, log=7) + (bytes(room) if room < 35 else b"") + fragment(131, PREDECESSOR, 7)
        data += write(b"two", log=7, start=len(data))
        plain, report = repaired(data, tmp_path)
        assert (report.rows, report.damages) == (2, [])
        table = scan(plain, dialect="rocksdb")
        assert table.records == [first, b"two"]
        assert table.account.header == 7 + len(PREDECESSOR)
        assert table.damages == []


def test_repair_makes_a_plain_log_of_a_compressed_one(tmp_path: Path) -> None:
    frames = [zstd(record) if record else b"" for record in RECORDS]
    data = compressed_log(*frames[:2], b"broken", *frames[2:])
    plain, report = repaired(data, tmp_path)
    assert plain == write(*RECORDS)
    assert report.kinds == {"bad_compression": 1}
    assert report.account.total == len(data)


def test_repair_leaves_stale_tails_out(tmp_path: Path) -> None:
    plain, report = repaired(recycled(write(*FRESH, log=7), write(*STALE, log=3)), tmp_path)
    assert plain == write(*FRESH)
    assert report.tail.status is TailStatus.STALE


def sync_fragment(kind: int, payload: bytes, log: int) -> bytes:
    """Pebble's: with the offset up to which the log was synced."""
    checked = bytes([kind]) + struct.pack("<IQ", log, 123) + payload
    return struct.pack("<IH", mask_crc(checked), len(payload)) + checked


def test_logs_of_pebble_end_at_older_fragments() -> None:
    log = sync_fragment(9, b"one", 7) + sync_fragment(10, b"tw", 7) + sync_fragment(11, b"", 7)
    log += sync_fragment(12, b"o", 7) + write(b"three", log=7)
    stale = sync_fragment(9, b"old", 4) * 20
    for data in (log, log + bytes(BLOCK - len(log)), log + stale, log + fragment(5, b"", 8)):
        table = scan(data, dialect="pebble")
        assert table.records == [b"one", b"two", b"three"]
        assert table.damages == []
    assert scan(log, dialect="pebble", name="other").records == [b"one", b"two", b"three"]


def test_long_trailers_of_pebble_are_read() -> None:
    for room in range(19):
        first = b"x" * (BLOCK - 19 - room)
        log = sync_fragment(9, first, 7) + bytes(room) + sync_fragment(9, b"two", 7)
        assert scan(log, dialect="pebble").records == [first, b"two"]


def test_plain_fragments_are_the_same_in_every_dialect() -> None:
    data = write(b"one", b"two" * 30_000, b"")
    for dialect in ("auto", "leveldb", "rocksdb", "pebble"):
        assert scan(data, dialect=dialect).records == [b"one", b"two" * 30_000, b""]
