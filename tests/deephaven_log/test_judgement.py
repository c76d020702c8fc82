"""One judgement: every verb sees the same bytes the same way."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import DamageError, FormatError
from sawlog.format.damage import DamageWarning
from sawlog.testing.outcome import check_account

from .reference import Col, entry, header, row
from .support import COLS, HEADER, make

FINDINGS = Path(__file__).parent / "findings"
ENUM = [Col("N", "Int"), Col("E", "Enum", table=("a", "b"))]
TEXT = [Col("N", "Int"), Col("S", "EnhancedString")]
BAD_TEXT = entry(3, b"\3" + struct.pack(">i", 7) + struct.pack(">i", 3) + b"a\xffb")
LOGS = {
    "enum": (
        header(ENUM) + b"".join(row(ENUM, {"N": i, "E": i}) for i in range(5)),
        {},
        [2, 3, 4],
        [struct.pack(">i", i) for i in (2, 3, 4)],
    ),
    "enum in sets": (
        header(ENUM) + b"".join(row(ENUM, {"N": i, "E": i % 4}, f) for i, f in enumerate([1, 0, 0, 2, 3, 1, 0])),
        {"salvage": "incomplete"},
        [2, 3, 6],
        [struct.pack(">i", i % 4) for i in (2, 3, 6)],
    ),
    "text": (
        header(TEXT) + row(TEXT, {"N": 1, "S": "é"}) + BAD_TEXT + row(TEXT, {"N": 2}),
        {"strict": True},
        [1],
        [struct.pack(">i", 3) + b"a\xffb"],
    ),
}


def skipped(path: Path, **options) -> list[dict]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        return sawlog.read(path, format="deephaven_log", on_damage="skip", **options).to_pylist()


@pytest.mark.parametrize("name", LOGS)
def test_values_that_are_none(tmp_path: Path, name: str) -> None:
    data, options, bad, values = LOGS[name]
    path, fixed, again = (tmp_path / f"{n}.bin" for n in range(3))
    path.write_bytes(data)
    rows = skipped(path, **options)
    value = list(rows[0])[1]
    (report,) = sawlog.verify(path, **options).files
    assert report.kinds == {"bad_value": len(bad)}
    assert not list(check_account(report.damages, report.account, report.size))
    assert [data[damage.offset : damage.offset + damage.length] for damage in report.damages] == values
    assert report.rows == len(rows)
    offsets = sawlog.read(path, view="damage", **options).column("offset").to_pylist()
    assert offsets == [damage.offset for damage in report.damages]
    starts = [row["_offset"] for row in skipped(path, provenance=True, **options)]
    ends = [*starts[1:], len(data)]
    assert all(starts[place] < offset < ends[place] for place, offset in zip(bad, offsets, strict=True))
    assert all(rows[place][value] is None for place in bad)
    # Whichever columns are asked for.
    for columns in ([value], ["N"], []):
        dataset = sawlog.open(path, columns=columns, **options)
        delivered: list[pa.RecordBatch] = []
        with pytest.raises(DamageError, match="bad_value"):
            delivered.extend(dataset.to_batches())
        assert sum(len(batch) for batch in delivered) == bad[0]
        with pytest.raises(DamageError, match="bad_value"):
            sawlog.open(path, columns=columns, **options).count_rows()
    sawlog.repair(path, fixed, **options)
    options.pop("incomplete", None)
    assert not sawlog.verify(fixed, **options).damaged
    assert sawlog.read(fixed, **options).to_pylist() == rows
    sawlog.repair(fixed, again, **options)
    assert again.read_bytes() == fixed.read_bytes()


def test_values_that_are_none_in_great_numbers_are_counted_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    path.write_bytes(header(ENUM) + row(ENUM, {"E": 9}) * 3000)
    (report,) = sawlog.verify(path).files
    assert report.kinds == {"bad_value": 3000}
    assert len(report.damages) == 1000
    assert (report.account.total, report.account.damage) == (report.size, 3000 * 4)
    assert sawlog.read(path, view="damage").num_rows == 3000


def test_a_constant_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    cols = [Col("E", "Enum", table=("a", "b"), constant=struct.pack(">i", 7)), Col("N", "Int")]
    path.write_bytes(header(cols) + row(cols, {"N": 1}))
    with pytest.warns(DamageWarning, match="index 7 in a table of 2"):
        assert sawlog.read(path).to_pylist() == [{"E": None, "N": 1}]
    with pytest.raises(FormatError, match="index 7 in a table of 2"):
        sawlog.read(path, strict=True)


def test_a_record_with_reserved_flags_hides_no_deletion() -> None:
    path = FINDINGS / "delete_behind_reserved_flag.bin"
    rows = sawlog.read(path, format="deephaven_log").to_pylist()
    assert len(rows) == 1
    assert skipped(path) == rows
    (report,) = sawlog.verify(path, format="deephaven_log").files
    assert (report.rows, report.damaged, report.notes) == (1, False, {"deleted_rows": 2})
    tasks = sawlog.open(path, format="deephaven_log").fragments(20)
    assert pa.Table.from_batches([b for f in tasks for b in f.to_batches()]).to_pylist() == rows


def test_an_enum_outside_its_table_is_known_to_all(tmp_path: Path) -> None:
    path = FINDINGS / "enum_outside.bin"
    with pytest.raises(DamageError, match="index 99 in a table of 2"):
        sawlog.read(path, format="deephaven_log")
    assert sawlog.verify(path, format="deephaven_log").files[0].kinds == {"bad_value": 1}
    sawlog.repair(path, tmp_path / "fixed.bin", format="deephaven_log")
    assert sawlog.read(tmp_path / "fixed.bin").to_pylist() == skipped(path)


def bare(record: bytes) -> bytes:
    """A record without a digest."""
    return struct.pack(">iB", 1 + len(record), 4) + record


@pytest.mark.parametrize("command", [10000, 99, -5])
def test_commands_without_data_need_no_digest(tmp_path: Path, command: int) -> None:
    path = tmp_path / "t.bin"
    record = struct.pack(">iii", 20000, 1, command)
    path.write_bytes(
        make([3, 3]) + bare(record) + make([3, 1])[len(HEADER) :] + bare(record) + make([2])[len(HEADER) :]
    )
    deletes = command == 10000
    assert sawlog.read(path, deletes="ignore").column("N").to_pylist() == [0, 1, 0, 1, 0]
    assert sawlog.read(path).num_rows == (1 if deletes else 5)
    (report,) = sawlog.verify(path).files
    assert report.notes["commands_without_digest"] == 2
    assert report.account.total == report.size
    listed = sawlog.read(path, view="commands").to_pylist()
    assert [(row["record_type"], row["command_id"], row["data"]) for row in listed] == [(20000, command, b"")] * 2
    assert sawlog.read(path, view="frames").num_rows == 7


def test_commands_with_data_and_records_of_other_types_need_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    for record in (struct.pack(">iiii", 20000, 1, 99, 1), struct.pack(">iii", 20001, 1, 99)):
        path.write_bytes(make([3, 3]) + bare(record) + make([3, 3])[len(HEADER) :])
        for verb in (sawlog.read, lambda path: sawlog.read(path, view="commands")):
            with pytest.raises(DamageError, match="checksum_mismatch"):
                verb(path)
        assert len(skipped(path)) == 4
        assert sawlog.verify(path).files[0].kinds == {"checksum_mismatch": 1}


def test_no_bit_makes_a_digest_vanish(tmp_path: Path) -> None:
    """A command with a digest is never one bit away from one that needs none."""
    data = make([3, 4, 3])
    start = len(make([3]))
    for offset in range(start, start + 21):
        for bit in range(8):
            changed = bytearray(data)
            changed[offset] ^= 1 << bit
            path = tmp_path / "t.bin"
            path.write_bytes(changed)
            (report,) = sawlog.verify(path, format="deephaven_log").files
            assert report.damaged
            assert "commands_without_digest" not in report.notes


def test_a_row_that_does_not_fit_is_no_place_for_a_cut(tmp_path: Path) -> None:
    """It breaks the set that it is in, however the log is split."""
    bad = bytearray(row(COLS, {"N": 7, "S": "abc"})[:-4])
    bad[10:14] = struct.pack(">i", 4)
    bad += struct.pack(">I", zlib.adler32(bytes(bad)))
    data = make([3, 1, 0]) + bytes(bad) + make([2, 3, 1, 2])[len(HEADER) :]
    path = tmp_path / "t.bin"
    path.write_bytes(data)
    (file_report,) = sawlog.verify(path).files
    assert file_report.kinds == {"broken_set": 1, "bad_row": 1, "lost_start": 1}
    for size in range(1, 120):
        (report,) = sawlog.open(path, on_damage="skip").verify(size)
        assert report.to_dict() == file_report.to_dict()


def test_memory_for_constants_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    cols = [Col("K", "EnhancedString", constant=struct.pack(">i", 1 << 20) + bytes(1 << 20)), Col("N", "Int")]
    path.write_bytes(header(cols) + b"".join(row(cols, {"N": i}) for i in range(10_000)))
    for batch in sawlog.open(path).to_batches():
        assert batch.nbytes < 32 << 20
        break


def test_work_grows_with_the_damaged_ranges_of_a_log_and_no_faster(tmp_path: Path) -> None:
    """Every second entry is damaged: the running sums over what may be entries are not restarted for each."""
    from sawlog.deephaven.log.kernels import rows, scan

    calls = 0

    def counting(kernel):
        def count(*arguments):
            nonlocal calls
            calls += 1
            return kernel(*arguments)

        return count

    good = row(COLS, {"N": 1})
    bad = good[:6] + bytes([good[6] ^ 1]) + good[7:]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((rows, "decode_rows"), (scan, "walk_entries")):
            patch.setattr(module, name, counting(getattr(module, name)))
        for count in (1000, 100_000):
            path = tmp_path / f"{count}.bin"
            path.write_bytes(HEADER + (good + bad) * count)
            calls = 0
            (report,) = sawlog.verify(path).files
            assert report.rows == count
            assert sum(report.kinds.values()) == count
            # The sums restart with each call, at most.
            assert calls < 20 + count // 1000


def test_entries_whose_digest_is_wrong_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    data = bytearray(make([3] * 6))
    starts = sawlog.read(put(path, data), view="frames").column("offset").to_pylist()
    for index in (1, 4):
        data[starts[index] + 6] ^= 1
    listed = skipped(put(path, data), view="frames")
    assert [row["offset"] for row in listed] == starts
    assert [row["checksum"] for row in listed] == ["ok", "mismatch", "ok", "ok", "mismatch", "ok"]


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
