"""Bad input: whatever the bytes are, what is intact comes out, and every byte that does not is described."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.errors import FormatError
from sawlog.format.damage import DamageWarning
from sawlog.testing import check
from tests.support import is_subsequence

from .reference import Col, committed, entry, header, row, text
from .support import COLS, FLAGS, HEADER, LOG, SINGLES, checked, make, put


@pytest.mark.spread(12)
@pytest.mark.parametrize("start", range(12))
def test_truncation_at_every_byte_leaves_a_prefix(start: int) -> None:
    data = make([3, 1, 0, 2, 3, 5, 1, 2])
    truth = committed([3, 1, 0, 2, 3, 5, 1, 2])
    for length in range(start, len(data), 12):
        if length < len(HEADER):
            assert "the file ends at byte" in str(check(LOG, data[:length]).refused)
            continue
        rows, report = checked(data[:length])
        assert rows == truth[: len(rows)]
        assert not report.damaged


@pytest.mark.parametrize("junk", [b"\0", b"\1", b"\0\0", b"\0\0\0", b"\0\0\1", b"\xff\0\0"])
def test_a_few_bytes_too_many_are_the_same_damage_in_front_of_a_cut(junk: bytes) -> None:
    """They are not enough for a size: what they are is seen with what follows them, wherever the log is cut."""
    for flags in ([3], [3, 3]):
        cut = len(make(flags))
        rows, report = checked(make(flags) + junk + SINGLES[cut:], strict=True)
        assert (rows, [damage.offset for damage in report.damages]) == (list(range(12)), [cut])


@pytest.mark.parametrize("start", range(len(HEADER), len(HEADER) + 12))
@pytest.mark.nightly
def test_every_flipped_bit_of_a_small_log(start: int) -> None:
    for offset in range(start, len(SINGLES), 12):
        for bit in (0, 3, 7):
            data = bytearray(SINGLES)
            data[offset] ^= 1 << bit
            rows, report = checked(bytes(data), laws=None if bit == 7 else ())
            # The size of the last entry may have grown: then it looks as if its end was still to come.
            assert report.damaged or report.tail.status == "torn"
            assert len(rows) == 11
            assert is_subsequence(rows, list(range(12)))


def test_flipped_bits_in_the_header():
    for offset in range(len(HEADER)):
        data = bytearray(SINGLES)
        data[offset] ^= 0x10
        check(LOG, bytes(data), strict=True)


@given(st.integers(0, 11), st.integers(0, 60), st.binary(max_size=90), st.integers(0, 12))
def test_all_rows_around_a_damaged_region_come_out(index, offset, junk, length):
    starts = [len(HEADER)]
    while starts[-1] < len(SINGLES):
        starts.append(starts[-1] + 4 + int.from_bytes(SINGLES[starts[-1] : starts[-1] + 4], "big"))
    begin = min(starts[index] + offset, len(SINGLES))
    end = min(begin + length, len(SINGLES))
    rows, _ = checked(SINGLES[:begin] + junk + SINGLES[end:])
    before = [i for i in range(12) if starts[i + 1] <= begin]
    after = [i for i in range(12) if starts[i] >= end]
    if SINGLES[begin:end] == junk:
        assert rows == list(range(12))
    else:
        assert is_subsequence(sorted({*before, *after}), rows)
        assert is_subsequence(rows, list(range(12)))


@given(FLAGS, st.data())
def test_mutations_of_logs_with_sets(flags, data):
    flags = [flag if flag != 4 else 5 for flag in flags]
    original = make(flags)
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        if len(mutated) > len(HEADER):
            cut = data.draw(st.integers(len(HEADER), len(mutated) - 1))
            mutated[cut] ^= data.draw(st.integers(1, 255))
    rows, _ = checked(bytes(mutated))
    # What damage separates may lose its set, never gain one; rows without a set stay without one.
    assert is_subsequence(rows, [i for i, flag in enumerate(flags) if flag < 4])


@given(st.binary(max_size=300))
def test_any_bytes_after_a_header_are_read_or_reported(junk):
    rows, _ = checked(HEADER + junk)
    assert rows == [] or junk


@given(st.binary(max_size=120))
def test_any_bytes_at_all_are_read_or_reported(junk):
    for data in (junk, b"\xdb\x1a\xa1\xdb\0\0\0\x03" + junk):
        for options in ({}, {"salvage": "unknown_versions"}):
            check(LOG, data, **options)


@pytest.mark.parametrize("size", [0, 1, 4, -1, 0x7FFFFFFF, 1 << 26, 5])
def test_a_size_that_lies(size):
    data = bytearray(SINGLES)
    offset = len(HEADER) + 40
    offset = next(s for s in range(len(HEADER), len(SINGLES)) if s >= offset and SINGLES[s : s + 3] == b"\0\0\0")
    data[offset : offset + 4] = struct.pack(">i", size)
    rows, report = checked(bytes(data))
    assert len(rows) == 11
    assert report.damaged


def test_a_set_that_lost_a_member_is_not_delivered_unless_asked_for():
    flags = [3, 1, 0, 0, 2, 3, 1, 2]
    data = make(flags)
    path = put(data)
    entries = sawlog.read(path, format="deephaven_log", view="frames").column("offset").to_pylist()
    os.unlink(path)
    for member in (1, 2, 3, 4):
        broken = bytearray(data)
        broken[entries[member] + 6] ^= 0xFF
        rows, report = checked(bytes(broken))
        assert rows == [0, 5, 6, 7]
        assert report.account.damage == entries[5] - entries[1]
        rows, report = checked(bytes(broken), salvage="incomplete")
        assert rows == [i for i in range(8) if i != member]
        assert report.account.damage == entries[member + 1] - entries[member]
        assert report.notes["salvaged_rows"] > 0


def test_values_that_do_not_fit_their_row():
    good = row(COLS, {"N": 7, "S": "abc"})
    bad = bytearray(good[:-4])
    bad[10:14] = struct.pack(">i", 4)
    bad += struct.pack(">I", zlib.adler32(bytes(bad)))
    rows, report = checked(HEADER + good + bytes(bad) + good)
    assert rows == [7, 7]
    assert report.kinds == {"bad_row": 1}
    bad[10:14] = struct.pack(">i", -1)
    rows, report = checked(HEADER + good + bytes(bad[:-4]) + struct.pack(">I", zlib.adler32(bytes(bad[:-4]))) + good)
    assert rows == [7, 7]


def test_zeros_at_the_end_are_padding_and_elsewhere_damage():
    rows, report = checked(SINGLES + bytes(5000))
    assert len(rows) == 12
    assert (report.tail.status, report.account.padding, report.damaged) == ("padding", 5000, False)
    rows, report = checked(SINGLES + bytes(100) + SINGLES[len(HEADER) :])
    assert len(rows) == 24
    assert report.kinds == {"unused_space": 1}
    assert report.account.damage == 100


@pytest.mark.parametrize("strict", [False, True])
def test_zeros_after_a_set_without_an_end_are_padding_and_no_part_of_it(strict):
    rows, report = checked(make([3, 3, 1, 0]) + bytes(100), strict=strict)
    assert len(rows) == 2
    unfinished = len(make([3, 3, 1, 0])) - len(make([3, 3]))
    assert (report.tail.status, report.tail.length) == ("open", unfinished)
    assert (report.account.padding, report.account.tail) == (100, unfinished)
    assert report.account.total == report.size


def test_reserved_flags_are_ignored_unless_strict():
    strange_entry = entry(0xF3, row(COLS, {"N": 99})[5:-4])
    assert checked(SINGLES + strange_entry + SINGLES[len(HEADER) :])[0] == [*range(12), 99, *range(12)]
    rows, report = checked(SINGLES + strange_entry + SINGLES[len(HEADER) :], strict=True)
    assert rows == [*range(12), *range(12)]
    assert report.kinds == {"unsupported": 1}  # the digest covers the flags
    assert not report.damaged


def test_bytes_after_the_last_column_are_damage():
    long = entry(3, row(COLS, {"N": 99})[5:-4] + b"more")
    assert checked(SINGLES + long)[0] == [*range(12), 99]
    rows, report = checked(SINGLES + long, strict=True)
    assert rows == list(range(12))
    assert report.kinds == {"bad_row": 1}


def test_claims_of_size_that_overlap_cost_no_more_than_linear_time():
    """Every few bytes an entry that claims megabytes; summing each claim again would take hours."""
    claim = struct.pack(">iB", 3 << 20, 3) + b"\0\0\0\x07"
    data = HEADER + b"".join(row(COLS, {"N": i}) * 2 + claim for i in range(20_000)) + bytes(range(1, 200)) * 20_000
    path = put(data)
    try:
        (report,) = sawlog.verify(path, format="deephaven_log").files
        assert report.rows == 40_000
        assert report.account.total == len(data)
    finally:
        os.unlink(path)


def test_many_damaged_ranges_are_counted_rather_than_listed(tmp_path: Path):
    path = tmp_path / "damaged.bin"
    good = row(COLS, {"N": 1})
    path.write_bytes(HEADER + (good + good + b"\xff" * 9) * 5000 + good + good)
    (report,) = sawlog.verify(path).files
    assert report.rows == 10_002
    assert sum(report.kinds.values()) == 5000
    assert len(report.damages) < 5000
    assert sawlog.read(path, view="damage").num_rows == 5000


@pytest.mark.parametrize(
    "broken",
    [
        header([Col("A", "Int"), Col("A", "Int")]),
        HEADER[:8] + struct.pack(">i", -1) + HEADER[12:],
        HEADER[:8] + struct.pack(">i", 1 << 30) + HEADER[12:],
        header(COLS, version=4),
        header([], extra=struct.pack(">iii", 4, 2, -1)),
        header(COLS, extra=struct.pack(">ii", 1 << 30, 9)),
        header(COLS, extra=struct.pack(">iiii", 8, 2, 1 << 28, 0)),
        header(COLS, extra=struct.pack(">ii", 4 + 5 + 4, 2) + struct.pack(">i", 1) + text("X") + b"\0\0\0\0"),
        header(COLS, app=1, extra=struct.pack(">iii", 4, 3, 2)),
        header([Col("E", "Enum", table=("a",) * 3)]).replace(struct.pack(">i", 3) + text("UTF-8"), b"\x7f" * 13),
    ],
)
def test_headers_that_lie(tmp_path: Path, broken: bytes):
    path = tmp_path / "broken.bin"
    path.write_bytes(broken)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        with pytest.raises(FormatError, match=str(path)):
            sawlog.read(path, format="deephaven_log")


def test_a_damaged_header_among_others(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(SINGLES)
    (tmp_path / "b.bin").write_bytes(SINGLES[:8] + b"\xff" + SINGLES[9:])
    (tmp_path / "c.bin").write_bytes(SINGLES[:20])
    with pytest.raises(FormatError, match=r"b\.bin"):
        sawlog.read(tmp_path)
    with pytest.warns(DamageWarning):
        assert sawlog.read(tmp_path, on_damage="skip").num_rows == 12
    reports = sawlog.verify(tmp_path).files
    assert [report.kinds for report in reports] == [{}, {"bad_header": 1}, {}]
    assert [report.tail.status for report in reports] == ["clean", "clean", "torn"]
    assert all(report.account.total == report.size for report in reports)


def test_places_of_damage_stay_when_more_is_found(tmp_path: Path) -> None:
    """Each batch of rows hands over one damage; the memory that it was written down in is used again."""
    path = tmp_path / "log.bin"
    sawlog.write(pa.table({"i": pa.array(range(200_000)), "s": ["x" * 60] * 200_000}), path, format="deephaven_log")
    data = bytearray(path.read_bytes())
    for offset in (500_000, 7_000_000, 14_000_000):
        data[offset] ^= 0x10
    path.write_bytes(data)
    expected = [(damage.offset, damage.length) for damage in sawlog.verify(path).files[0].damages]
    damages = sawlog.read(path, view="damage", columns=["offset", "length"]).to_pylist()
    assert [tuple(damage.values()) for damage in damages] == expected
    assert len(expected) == 3
