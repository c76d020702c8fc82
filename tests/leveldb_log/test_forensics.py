"""What LevelDB and RocksDB give up, and is still there: damaged blocks, and the former lives of recycled logs."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError, OptionError
from sawlog.format.damage import TailStatus
from tests.bytes import mask_crc

from .fragments import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE, batch, fragment, offsets, scan, write

SHORT = [struct.pack("<I", number) * (1 + number % 30) for number in range(3000)]
MIXED = [struct.pack("<I", number) * (10 + number * 7919 % 9000) for number in range(60)]


def recovered(data: bytes) -> tuple[list[tuple[int, bytes]], set[int]]:
    """Rows of a damaged log, and the offsets of those that LevelDB itself gives up: every byte is tried."""
    rows: list[tuple[int, bytes]] = []
    marks: set[int] = set()
    record: tuple[int, bytes] | None = None
    for start in range(0, len(data), BLOCK):
        block, offset, resumed = data[start : start + BLOCK], 0, False
        while len(block) - offset >= HEADER:
            stored, length, kind = struct.unpack_from("<IHB", block, offset)
            if HEADER + length > len(block) - offset and len(block) < BLOCK:
                return rows, marks
            good = (
                HEADER + length <= len(block) - offset
                and mask_crc(block[offset + 6 : offset + HEADER + length]) == stored
            )
            if not good or (kind == length == 0):
                record = None
                end = offset + HEADER + length
                if kind in (FULL, FIRST, MIDDLE, LAST) and end <= len(block):
                    offset = end if len(block) - end >= HEADER else len(block)
                else:
                    offset = next(
                        (place for place in range(offset + 1, len(block)) if proven(block, place)), len(block)
                    )
                resumed = True
                continue
            payload = block[offset + HEADER : offset + HEADER + length]
            if kind in (FULL, FIRST):
                record = (start + offset, payload)
                if resumed:
                    marks.add(start + offset)
            elif kind in (MIDDLE, LAST) and record is not None:
                record = (record[0], record[1] + payload)
            elif kind not in (MIDDLE, LAST):
                record = None
            if kind in (FULL, LAST) and record is not None:
                rows.append(record)
                record = None
            offset += HEADER + length
    return rows, marks


def proven(block: bytes, offset: int) -> bool:
    if len(block) - offset < HEADER:
        return False
    stored, length, kind = struct.unpack_from("<IHB", block, offset)
    end = offset + HEADER + length
    return kind in (FULL, FIRST, MIDDLE, LAST) and end <= len(block) and mask_crc(block[offset + 6 : end]) == stored


def overwritten(data: bytes, seed: int, places: int, length: int) -> bytes:
    rng = random.Random(seed)
    out = bytearray(data)
    for _ in range(places):
        offset = rng.randrange(len(out) - length)
        out[offset : offset + length] = rng.choice([bytes(length), rng.randbytes(length)])
    return bytes(out)


def rows_of(path: Path, **options: object) -> pa.Table:
    return sawlog.read(path, format="leveldb_log", on_damage="skip", provenance=True, **options)


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("records", [SHORT, MIXED], ids=["short", "mixed"])
@pytest.mark.parametrize("seed", range(4))
def test_fragments_after_damage_are_found_again(records: list[bytes], seed: int, tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(overwritten(write(*records), seed, 5, 300))
    expected, marks = recovered(path.read_bytes())
    table = rows_of(path, salvage="damaged")
    result_pairs = list(zip(table["_offset"].to_pylist(), table["record"].to_pylist(), strict=True))
    assert result_pairs == expected
    assert set(table.filter(table["recovered"])["_offset"].to_pylist()) == marks
    # Nothing false, and nothing less than LevelDB's rule gives.
    truth = dict(zip(offsets(*records), records, strict=True))
    assert set(result_pairs) <= set(truth.items())
    plain = rows_of(path)
    assert table.filter(pa.compute.invert(table["recovered"])).drop(["recovered"]).equals(plain)


def test_every_verb_agrees(tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(overwritten(write(*SHORT), 1, 5, 300))
    table = scan(path.read_bytes(), salvage="damaged")
    for task in (BLOCK, 3 * BLOCK):
        cut = scan(path.read_bytes(), task, salvage="damaged")
        assert (cut.rows, cut.ranges, cut.account) == (table.rows, table.ranges, table.account)
    report = sawlog.verify(path, salvage="damaged")
    assert report.rows == len(table.rows) > sawlog.verify(path).rows
    assert report.account == table.account
    with pytest.raises(DamageError) as stopped:
        sawlog.read(path, salvage="damaged")
    first = stopped.value.damage
    assert (first.offset, first.length, first.kind) == table.ranges[0]
    assert "lost" not in first.detail
    copy = tmp_path / "000008.log"
    assert sawlog.repair(path, copy, salvage=()).rows == sawlog.verify(path).rows
    assert sawlog.repair(path, copy, salvage="stale").rows == sawlog.verify(path, salvage="damaged").rows
    assert sawlog.repair(path, copy).rows == len(table.rows)
    assert sawlog.read(copy)["record"].to_pylist() == table.records
    assert not sawlog.verify(copy).damaged


def test_verify_says_what_resync_would_save(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    path = tmp_path / "db" / "000007.log"
    keys = [b"%d" % i for i in range(3000)]
    batches = pa.table({"operation": ["put"] * 3000, "key": keys, "value": [b"v" * 50] * 3000})
    sawlog.write(batches, path, format="leveldb_log", view="writes")
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"?" + data[101:])
    for view in ("rows", "writes"):
        report = sawlog.verify(path, view=view)
        rows_saved = sawlog.verify(path, view=view, salvage="damaged").rows - report.rows
        assert rows_saved > 100
        assert report.rescue == f"{rows_saved} more rows with -o salvage=damaged"
        assert report.to_dict()["rescue"] == report.rescue
        assert not sawlog.verify(path, view=view, salvage="damaged").rescue
    assert not sawlog.verify(path, verify_checksums=False).rescue
    path.write_bytes(data)
    assert not sawlog.verify(path).rescue


def test_what_looks_like_fragments_in_a_damaged_record_is_none() -> None:
    """A log in a value, say."""
    inner = fragment(FULL, b"never a record")
    outer = bytearray(write(b"a", inner * 3, b"b"))
    outer[HEADER + 1 + HEADER] ^= 1
    assert scan(bytes(outer), salvage="damaged").records == [b"a", b"b"]
    assert scan(bytes(outer[:-8]) + bytes(8), salvage="damaged").records == [b"a"]
    assert scan(bytes(outer) + bytes(BLOCK), salvage="damaged").records == [b"a", b"b"]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.binary(min_size=1, max_size=60)), min_size=1, max_size=6))
def test_nothing_false_is_recovered(strokes: list[tuple[int, bytes]]) -> None:
    data = bytearray(write(*MIXED[:20]))
    for place, new in strokes:
        offset = place % (len(data) - len(new))
        data[offset : offset + len(new)] = new
    table = scan(bytes(data), salvage="damaged")
    assert table.rows == recovered(bytes(data))[0]
    assert not Counter(table.records) - Counter(MIXED[:20])


def test_operations_are_recovered_and_marked(tmp_path: Path) -> None:
    records = [batch(number, (b"k%d" % number, b"v" * 50), (b"l", None)) for number in range(1, 2000, 2)]
    data = bytearray(write(*records))
    data[40_000] ^= 1
    path = tmp_path / "000007.log"
    path.write_bytes(data)
    with pytest.warns(sawlog.DamageWarning):
        table = sawlog.read(path, view="writes", on_damage="skip", salvage="damaged")
    assert table.num_rows == 2 * len(records) - 2
    assert 0 < table["recovered"].to_pylist().count(True) < BLOCK / 70 * 2
    with pytest.warns(sawlog.DamageWarning):
        latest = sawlog.read(path, view="writes", on_damage="skip", salvage="damaged", latest=True, columns=["key"])
    assert latest.num_rows == len(records)


FRESH = [b"a" * 20_000, b"", b"b" * 300]
OLD = [bytes([65 + number]) * 5000 for number in range(30)]
OLDEST = [bytes([97 + number]) * 9000 for number in range(25)]


def lives() -> bytes:
    """A file that was log 3, then log 5, then log 7."""
    fresh, old, oldest = write(*FRESH, log=7), write(*OLD, log=5), write(*OLDEST, log=3)
    return fresh + old[len(fresh) :] + oldest[len(old) :]


def test_the_former_lives_of_a_recycled_log(tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(lives())
    table = sawlog.read(path, salvage="stale", provenance=True)
    fresh, stale = (table.filter(mask) for mask in (pa.compute.invert(table["stale"]), table["stale"]))
    assert fresh["record"].to_pylist() == FRESH
    ends = [len(write(*FRESH, log=7)), len(write(*OLD, log=5))]
    expected = []
    for records, log, end in ((OLD, 5, ends[0]), (OLDEST, 3, ends[1])):
        first = -(-end // BLOCK) * BLOCK
        for number, record in enumerate(records):
            start = len(write(*records[:number], log=log))
            if start >= first:
                expected.append((start, record))
    assert list(zip(stale["_offset"].to_pylist(), stale["record"].to_pylist(), strict=True)) == expected
    # Where the new log ends inside of a block, the rest of it holds fragments that only a search finds.
    result_table = sawlog.read(path, salvage="damaged,stale")
    assert result_table.num_rows > table.num_rows
    assert set(result_table.filter(result_table["stale"])["record"].to_pylist()) <= {*OLD, *OLDEST}
    (report,) = sawlog.verify(path, salvage="stale").files
    assert (report.rows, report.notes) == (table.num_rows, {"stale_rows": len(expected)})
    assert report.tail.status is TailStatus.STALE
    assert report.account.total == len(lives())
    assert sawlog.open(path, salvage="stale").count_rows() == table.num_rows
    few = sawlog.read(path, salvage="stale", filters=[("_offset", ">=", 3 * BLOCK), ("stale", "=", True)])
    assert few.num_rows == sum(start >= 3 * BLOCK for start, _ in expected)


def test_a_log_that_was_taken_over_and_not_written_is_all_stale() -> None:
    assert scan(write(*OLD, log=5), salvage="stale").records == OLD
    assert scan(write(*OLD[:3], log=7), salvage="stale").records == OLD[:3]
    assert scan(write(*OLD[:3]), salvage="stale").records == OLD[:3]


def test_stale_operations_are_marked_and_their_damage_is_none(tmp_path: Path) -> None:
    old = [batch(number, (b"k", b"v" * 400)) for number in range(1, 200)] + [b"no batch"]
    fresh = write(batch(500, (b"new", b"one")), log=7)
    stale = write(*old, log=5)
    path = tmp_path / "000007.log"
    path.write_bytes(fresh + stale[len(fresh) :])
    table = sawlog.read(path, view="writes", salvage="stale")
    assert table["stale"].to_pylist() == [False] + [True] * (table.num_rows - 1)
    assert table.num_rows > 50
    assert set(table["sequence"].to_pylist()[1:]) <= set(range(1, 200))
    report = sawlog.verify(path, view="writes", salvage="stale")
    assert (report.rows, report.damaged) == (table.num_rows, False)


@pytest.mark.parametrize(
    "option", [{"salvage": "damaged"}, {"salvage": "stale"}], ids=lambda option_set: next(iter(option_set))
)
def test_what_asks_for_finished_logs_is_refused_elsewhere(option: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(write(b"x"))
    with pytest.raises(OptionError, match="rows"):
        sawlog.open(path, view="edits", **option)
    dataset = sawlog.open(path, **option)
    with pytest.raises(OptionError, match="stream"):
        dataset.contents.find_committed_end(dataset.request, dataset.files[0], 0)
