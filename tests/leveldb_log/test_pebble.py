"""Databases written by Pebble itself, with the operations that the program that wrote them has committed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sawlog
from sawlog.errors import SchemaError, UnsupportedError
from sawlog.format.damage import TailStatus
from tests.leveldb_log.support import read_operations, read_pebble_truth

from .fragments import fragment

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_log" / "pebble"
FORMATS = ["new", "old"]


@pytest.mark.parametrize("version", FORMATS)
def test_every_operation_is_what_pebble_committed(version: str) -> None:
    log = GOLDEN / version / "000002.log"
    expected = read_pebble_truth(GOLDEN / f"{version}.jsonl")
    assert read_operations(log) == expected
    assert sawlog.open(log).info()["dialect"] == "pebble"
    (report,) = sawlog.verify(log, view="writes").files
    assert (report.kinds, report.tail.status, report.tail.length) == ({}, TailStatus.STALE, 11)
    assert report.account.total == report.size


def test_a_table_that_came_by_way_of_the_log() -> None:
    (row,) = read_operations(GOLDEN / "new" / "000005.log")
    assert (row["operation"], row["key"], row["value"]) == ("ingest_sst", "04", None)


@pytest.mark.parametrize("version", FORMATS)
def test_a_log_that_pebble_has_closed_empty(version: str) -> None:
    (report,) = sawlog.verify(GOLDEN / version / "000006.log").files
    assert (report.kinds, report.rows) == ({}, 0)


def test_without_its_database_a_log_is_known_by_its_fragments(tmp_path: Path) -> None:
    log = tmp_path / "000002.log"
    shutil.copy(GOLDEN / "new" / "000002.log", log)
    assert sawlog.open(log).info()["dialect"] == "pebble"
    assert read_operations(log) == read_pebble_truth(GOLDEN / "new.jsonl")
    (report,) = sawlog.verify(log, view="writes").files
    assert report.kinds == {}


def test_options_tell_whose_a_database_is(tmp_path: Path) -> None:
    for name in ("000002.log", "OPTIONS-000003"):
        shutil.copy(GOLDEN / "old" / name, tmp_path)
    assert read_operations(tmp_path / "000002.log") == read_pebble_truth(GOLDEN / "old.jsonl")


@pytest.mark.parametrize("version", FORMATS)
def test_repair_keeps_every_record(tmp_path: Path, version: str) -> None:
    log, copy = GOLDEN / version / "000002.log", tmp_path / "000009.log"
    report = sawlog.repair(log, copy)
    assert not report.damaged
    assert sawlog.read(copy).equals(sawlog.read(log))


def test_an_operation_that_the_dialect_does_not_have_is_unsupported(tmp_path: Path) -> None:
    header = bytes(8) + b"\x01\0\0\0"
    unset = header + b"\x14" + b"\x01a" + b"\x02\x01b"
    log = tmp_path / "000001.log"
    log.write_bytes(fragment(1, unset))
    assert [row["operation"] for row in read_operations(log, dialect="pebble")] == ["range_key_unset"]
    for dialect in ("rocksdb", "leveldb", "auto"):
        with pytest.raises(UnsupportedError, match="tag 0x14"):
            read_operations(log, dialect=dialect)
    log.write_bytes(fragment(1, header + b"\x09"))
    with pytest.raises(UnsupportedError, match="tag 0x09"):
        read_operations(log, dialect="pebble")


def test_operations_of_pebble_are_not_written(tmp_path: Path) -> None:
    table = sawlog.read(GOLDEN / "new" / "000002.log", view="writes")
    with pytest.raises(SchemaError, match="row 5: 'delete_sized' is Pebble's"):
        sawlog.write(table, tmp_path / "000001.log", format="leveldb_log", view="writes")


def test_keys_of_ranges_count_in_the_manifest(tmp_path: Path) -> None:
    edits = sawlog.read(GOLDEN / "new" / "MANIFEST-000001", view="edits").to_pylist()
    added = {file["file"]: file for edit in edits for file in edit["new_files"]}
    # Keys of ranges (a to y) lie around the point keys.
    assert (added[7]["smallest_key"], added[7]["largest_key"]) == (b"a", b"y")
    live = sawlog.read(GOLDEN / "new", view="files").to_pylist()
    # An ingested table took a stretch out of the first one, which now backs the two that are left of it.
    assert [
        (row["level"], row["file"], row["smallest_key"], row["largest_key"], row["backing_file"]) for row in live
    ] == [
        (0, 9, b"a", b"c", 7),
        (0, 10, b"key003", b"y", 7),
        (6, 8, b"key001", b"key001", None),
    ]
    backing = [file for edit in edits for file in edit["new_backing_files"]]
    assert backing == [{"file": 7, "size": 3867}]
