"""Sets of rows: the state machine, and splits at any byte."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError, OptionError
from sawlog.format.damage import DamageWarning, Findings

from .reference import Col, committed, header, row
from .support import FLAGS, HEADER, make, put, read_numbers


@given(FLAGS)
@example([1, 0, 5, 2, 3])
@example([1, 4, 2, 3])
@example([1, 0, 3, 0, 2])
def test_the_state_machine_delivers_complete_sets(flags):
    path = put(make(flags))
    try:
        assert read_numbers(path) == committed(flags)
        assert read_numbers(path, verify_checksums=False) == committed(flags)
        assert read_numbers(path, deletes="ignore") == committed(flags, deletes=False)
        (report,) = sawlog.verify(path, format="deephaven_log").files
        assert report.account.total == report.size
        assert not report.damaged
        assert report.rows == len(committed(flags))
    finally:
        os.unlink(path)


@given(FLAGS, st.integers(1, 300), st.booleans())
def test_splits_at_any_byte_deliver_the_same_rows(flags, task_bytes, verify):
    path = put(make(flags))
    try:
        for options in (
            {"split": "scan"},
            {"split": "scan", "on_damage": "skip"},
            {"split": "resync", "deletes": "ignore"},
        ):
            dataset = sawlog.open(path, format="deephaven_log", verify_checksums=verify, **options)
            rows: list[int] = []
            total = 0
            fragments = dataset.fragments(task_bytes)
            for fragment in pickle.loads(pickle.dumps(fragments)):
                findings = Findings("fail")
                for batch in fragment.to_batches(findings):
                    rows += batch.column("N").to_pylist()
                total += findings.account.total
            assert rows == committed(flags, deletes=options.get("deletes") != "ignore")
            assert total == os.path.getsize(path)
    finally:
        os.unlink(path)


def test_fragments_of_a_log_are_of_one_size(tmp_path: Path):
    path = tmp_path / "t.bin"
    path.write_bytes(make([3] * 1000))
    entries = path.stat().st_size - len(HEADER)
    thousandth = entries // 1000
    for options in ({}, {"split": "resync", "deletes": "ignore"}):
        dataset = sawlog.open(path, **options)
        sizes = [fragment.size for fragment in dataset.fragments(entries * 10 // 11)]
        assert len(sizes) == 2
        assert max(sizes) - min(sizes) <= 2 * thousandth
        assert len(dataset.fragments(entries)) == 1


def test_a_long_log_is_cut_into_many_fragments(tmp_path: Path):
    flags = [3, 1, 0, 0, 2] * 4000
    path = tmp_path / "long.bin"
    path.write_bytes(make(flags))
    for options in ({}, {"split": "resync", "deletes": "ignore"}):
        dataset = sawlog.open(path, **options)
        fragments = dataset.fragments(10_000)
        assert len(fragments) > 30
        numbers = [n for f in fragments for b in f.to_batches() for n in b.column("N").to_pylist()]
        assert numbers == list(range(len(flags)))


def test_a_log_inside_a_value_is_not_mistaken_for_the_log(tmp_path: Path):
    cols = [Col("N", "Int"), Col("B", "Blob")]
    inner = b"".join(row(cols, {"N": -i, "B": b"inner"}) for i in range(3000))
    parts = [header(cols)]
    for index in range(40):
        parts.append(row(cols, {"N": index, "B": inner if index % 4 == 1 else b"outer"}))
    path = tmp_path / "nested.bin"
    path.write_bytes(b"".join(parts))
    for options in ({}, {"split": "resync", "deletes": "ignore"}):
        fragments = sawlog.open(path, **options).fragments(20_000)
        assert [n for f in fragments for b in f.to_batches() for n in b.column("N").to_pylist()] == list(range(40))


@pytest.mark.parametrize(("salvage", "rows"), [("", [0]), ("incomplete", [0, 1, 2])], ids=["drop", "salvage"])
def test_an_unfinished_set(tmp_path: Path, salvage: str, rows: list[int]) -> None:
    path = tmp_path / "open.bin"
    path.write_bytes(make([3, 1, 0]))
    if not salvage:
        with pytest.warns(DamageWarning, match="open tail of"):
            table = sawlog.read(path, salvage=salvage)
    else:
        table = sawlog.read(path, salvage=salvage)
    assert table.column("N").to_pylist() == rows
    (report,) = sawlog.verify(path, salvage=salvage).files
    assert report.notes == ({"incomplete_rows": 2} if not salvage else {"salvaged_rows": 2})
    assert report.account.total == report.size


def test_an_unfinished_set_as_an_error(tmp_path: Path):
    path = tmp_path / "open.bin"
    path.write_bytes(make([3, 1, 0]))
    with pytest.raises(DamageError, match="incomplete_set"):
        sawlog.read(path, incomplete="error")
    assert read_numbers(str(path), incomplete="error", on_damage="skip") == [0]
    (report,) = sawlog.verify(path, incomplete="error").files
    assert report.kinds == {"incomplete_set": 1}
    assert report.account.total == report.size


def test_strict_readers_take_orphans_for_damage(tmp_path: Path):
    path = tmp_path / "orphan.bin"
    path.write_bytes(make([3, 0, 2, 3]))
    assert read_numbers(str(path)) == [0, 1, 2, 3]
    assert sawlog.verify(path).files[0].notes == {"orphan_rows": 2}
    with pytest.raises(DamageError, match="orphan_row"):
        sawlog.read(path, strict=True)
    assert read_numbers(str(path), strict=True, on_damage="skip") == [0, 3]


def test_aborted_sets_are_counted(tmp_path: Path):
    path = tmp_path / "aborted.bin"
    path.write_bytes(make([1, 0, 1, 2, 1, 3]))
    assert read_numbers(str(path)) == [2, 3, 5]
    assert sawlog.verify(path).files[0].notes == {"aborted_rows": 3}


def test_deletions_reach_back_over_the_files_of_their_partition(tmp_path: Path):
    def name(internal: str, date: str, time: str) -> Path:
        return tmp_path / f"Ns.T.System.{internal}.{date}.bin.{date}.{time}.000+0000"

    name("a", "2024-01-01", "090000").write_bytes(make([3, 3]))
    name("a", "2024-01-01", "100000").write_bytes(make([5, 5, 3, 4, 5, 3]))
    name("a", "2024-01-01", "110000").write_bytes(make([5] * 6 + [3]))
    name("b", "2024-01-01", "090000").write_bytes(make([3]))
    name("a", "2024-01-02", "090000").write_bytes(make([3, 3, 3]))
    table = sawlog.read(tmp_path)
    assert table.select(["N", "Date"]).to_pydict() == {
        "N": [5, 6, 0, 0, 1, 2],
        "Date": ["2024-01-01"] * 3 + ["2024-01-02"] * 3,
    }
    assert sawlog.read(tmp_path, deletes="ignore").num_rows == 9
    reports = sawlog.verify(tmp_path).files
    assert [report.notes["deleted_rows"] for report in reports] == [2, 1, 0, 0, 0]


def test_resynchronisation_cannot_see_every_command(tmp_path: Path):
    path = tmp_path / "log.bin"
    path.write_bytes(make([3]))
    with pytest.raises(OptionError, match="deletes"):
        sawlog.open(path, split="resync")


@settings(max_examples=25)
@given(FLAGS, st.lists(st.floats(0, 1), max_size=6))
def test_following_a_growing_log(flags, fractions):
    data = make([flag if flag != 4 else 5 for flag in flags])
    expected = committed([flag if flag != 4 else 5 for flag in flags])
    path = put(b"")
    try:
        positions: dict = {}
        rows: list[int] = []
        for fraction in [*sorted(fractions), 1.0]:
            Path(path).write_bytes(data[: int(len(data) * fraction)])
            if int(len(data) * fraction) < len(HEADER):
                continue
            watch = sawlog.open(path, format="deephaven_log").watch(positions)
            rows += [n for batch in watch.look() for n in batch.column("N").to_pylist()]
            positions = watch.positions
        # A stream delivers an orphan only once a later entry shows that nothing will change any more: as a batch does.
        assert rows == expected
    finally:
        os.unlink(path)


@settings(max_examples=40)
@given(FLAGS, st.integers(0, 39), st.lists(st.floats(0, 1), max_size=6))
@example([1, 0, 2, 3], 0, [0.75])
@example([1, 0, 0, 2, 3], 1, [0.8])
@example([1, 0, 0, 0, 2, 0, 3], 1, [0.5, 0.7])
def test_following_a_growing_log_with_damage(flags, place, fractions):
    flags = [flag if flag != 4 else 5 for flag in flags] + [3]
    data = bytearray(make(flags))
    start = len(make(flags[: min(place, len(flags) - 1)]))
    data[start + 6] ^= 0x55
    path = put(bytes(data))
    try:
        expected = read_numbers(path, on_damage="skip")
        positions: dict = {}
        rows: list[int] = []
        for fraction in [*sorted(fractions), 1.0]:
            size = int(len(data) * fraction)
            if size >= len(HEADER):
                Path(path).write_bytes(data[:size])
                dataset = sawlog.open(path, format="deephaven_log", on_damage="skip")
                watch = dataset.watch(positions)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DamageWarning)
                    rows += [n for batch in watch.look() for n in batch.column("N").to_pylist()]
                positions = watch.positions
        assert rows == expected
    finally:
        os.unlink(path)
