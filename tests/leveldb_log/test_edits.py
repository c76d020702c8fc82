"""Version edits and live files: by hand, and against the MANIFEST files of LevelDB and RocksDB."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.errors import DamageError, FormatError, OptionError, SawlogError, UnsupportedError
from sawlog.format.damage import DamageWarning
from tests.bytes import encode_varint
from tests.leveldb_log.support import MANIFEST, length_prefixed

from .fragments import write

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")


def internal(key: bytes, sequence: int, kind: int = 1) -> bytes:
    return length_prefixed(key + (sequence << 8 | kind).to_bytes(8, "little"))


def new_file(level: int, number: int, size: int = 10, low: bytes = b"a", high: bytes = b"z") -> bytes:
    return (
        b"\x07"
        + encode_varint(level)
        + encode_varint(number)
        + encode_varint(size)
        + internal(low, 5)
        + internal(high, 9, 0)
    )


def write_manifest(directory: Path, *edits: bytes, name: str = "MANIFEST-000001") -> Path:
    (directory / name).write_bytes(write(*edits))
    return directory / name


def edits(path: Path, **arguments: Any) -> list[dict]:
    """Edits, without what they do not say."""
    table = sawlog.read(path, format="leveldb_log", view="edits", **arguments)
    return [{name: value for name, value in row.items() if value} for row in table.to_pylist()]


def live(path: Path, **arguments: Any) -> list[tuple[int, int]]:
    table = sawlog.read(path, format="leveldb_log", view="files", **arguments)
    return [(row["level"], row["file"]) for row in table.to_pylist()]


def test_fields_of_leveldb_are_read(tmp_path: Path) -> None:
    pointer = b"\x05\x02" + internal(b"p", 77)
    path = write_manifest(
        tmp_path, MANIFEST, pointer + b"\x06\x01" + encode_varint(300) + new_file(1, 301, 1 << 40), b""
    )
    first, second, third = edits(path)
    assert first == {"comparator": "leveldb.BytewiseComparator", "next_file": 2}
    assert second["compact_pointers"] == [{"level": 2, "key": b"p", "sequence": 77}]
    assert second["deleted_files"] == [{"level": 1, "file": 300}]
    (entry,) = second["new_files"]
    assert {name: value for name, value in entry.items() if value is not None} == {
        "level": 1,
        "file": 301,
        "size": 1 << 40,
        "smallest_key": b"a",
        "largest_key": b"z",
        "smallest_key_sequence": 5,
        "largest_key_sequence": 9,
    }
    assert third == {}
    row = sawlog.read(path, view="edits").to_pylist()[0]
    assert (row["log_number"], row["previous_log_number"], row["last_sequence"]) == (0, 0, 0)
    assert row["min_log_to_keep"] is None


def test_fields_of_rocksdb_are_read(tmp_path: Path) -> None:
    v2 = encode_varint(100) + new_file(0, 1)[1:] + encode_varint(3) + encode_varint(8)
    v3 = (
        encode_varint(102)
        + b"\x00"
        + encode_varint(2)
        + encode_varint(1)
        + encode_varint(10)
        + internal(b"a", 5)
        + internal(b"z", 9)
        + b"\x03\x08"
    )
    custom = (
        encode_varint(6)
        + length_prefixed(encode_varint(1700000000))
        + encode_varint(7)
        + length_prefixed(b"sum")
        + encode_varint(8)
        + length_prefixed(b"crc32c")
        + encode_varint(9)
        + length_prefixed(b"\x02")
    )
    unknown = (
        encode_varint(12)
        + length_prefixed(b"id")
        + encode_varint(13)
        + length_prefixed(encode_varint(44))
        + encode_varint(65)
        + length_prefixed(b"\x03")
        + encode_varint(1)
    )
    v4 = encode_varint(103) + new_file(6, 3)[1:] + encode_varint(3) + encode_varint(8) + custom + unknown
    blob = (
        encode_varint(400)
        + encode_varint(9)
        + encode_varint(100)
        + encode_varint(1000)
        + length_prefixed(b"SHA")
        + length_prefixed(b"xx")
        + encode_varint(2)
        + length_prefixed(b"?")
        + b"\x00"
    )
    garbage = encode_varint(8195) + encode_varint(9) + encode_varint(1) + encode_varint(10) + b"\x00"
    wals = (
        encode_varint(8199)
        + length_prefixed(encode_varint(7) + b"\x02" + encode_varint(99) + b"\x01")
        + encode_varint(8200)
        + length_prefixed(encode_varint(6))
    )
    family = (
        encode_varint(200)
        + b"\x03"
        + encode_varint(201)
        + length_prefixed(b"cf")
        + encode_varint(203)
        + b"\x04"
        + encode_varint(10)
        + b"\x05"
    )
    skipped = encode_varint(8192 + 1000) + length_prefixed(b"whatever")
    (row,) = edits(
        write_manifest(
            tmp_path,
            v2 + v3 + v4 + blob + garbage + wals + family + skipped + encode_varint(8193) + length_prefixed(b"uuid"),
        )
    )
    first_file, two, three = ({k: v for k, v in entry.items() if v is not None} for entry in row["new_files"])
    assert (first_file["smallest_sequence"], first_file["largest_sequence"]) == (3, 8)
    assert (two["path_id"], two["file"]) == (1, 2)
    assert three["level"] == 6
    assert {name: three[name] for name in ("creation_time", "checksum", "checksum_function", "temperature")} == {
        "creation_time": 1700000000,
        "checksum": b"sum",
        "checksum_function": "crc32c",
        "temperature": 2,
    }
    assert (three["epoch_number"], three["path_id"]) == (44, 3)
    assert row["new_blob_files"] == [
        {"file": 9, "count": 100, "size": 1000, "checksum_method": "SHA", "checksum": b"xx"}
    ]
    assert row["blob_garbage"] == [{"file": 9, "count": 1, "size": 10}]
    assert row["wals_added"] == [{"log": 7, "synced_size": 99}]
    assert row["wals_deleted_before"] == 6
    assert (row["column_family"], row["column_family_added"], row["max_column_family"]) == (3, "cf", 4)
    assert (row["min_log_to_keep"], row["db_id"]) == (5, "uuid")


DAMAGED = [
    (b"\x02", "does not end"),
    (b"\x02" + b"\xff" * 10, "does not end"),
    (b"\x01\x05abc", "5 bytes expected at byte 2, 3 are left"),
    (b"\x05\x01" + length_prefixed(b"short"), "internal key of 5 bytes"),
    (b"\x06" + encode_varint(256) + b"\x01", "level 256"),
    (encode_varint(9001), "a varint at byte 2"),
]


@pytest.mark.parametrize(("edit", "detail"), DAMAGED)
def test_a_record_that_is_no_edit_is_damage(tmp_path: Path, edit: bytes, detail: str) -> None:
    path = write_manifest(tmp_path, MANIFEST, new_file(0, 1), edit, new_file(0, 2))
    with pytest.raises(DamageError, match="bad_edit") as caught:
        sawlog.read(path, view="edits")
    assert detail in caught.value.damage.detail
    (report,) = sawlog.verify(path, view="edits").files
    assert (report.rows, report.account.total) == (3, report.size)
    with pytest.warns(DamageWarning, match="bad_edit"):
        assert live(path, on_damage="skip") == [(0, 1), (0, 2)]


TABLE = encode_varint(103) + new_file(0, 1)[1:] + b"\x01\x01"
NEWER = [
    (b"\x08", "tag 8 at byte 0"),
    (encode_varint(109) + b"\x01", "tag 109 at byte 0"),
    (encode_varint(301) + b"\x01", "tag 301 at byte 0"),
    (TABLE + encode_varint(71) + length_prefixed(b""), "field 71 of a new file"),
    (encode_varint(8196) + b"\x07" + b"\x03\x01", "field 3 of a log"),
    (
        encode_varint(400)
        + b"\x09\x01\x02"
        + length_prefixed(b"")
        + length_prefixed(b"")
        + b"\x41"
        + length_prefixed(b"")
        + b"\x00",
        "field 65 of a blob file",
    ),
]


@pytest.mark.parametrize(("edit", "detail"), NEWER)
def test_a_field_of_a_newer_engine_is_unsupported(tmp_path: Path, edit: bytes, detail: str) -> None:
    path = write_manifest(tmp_path, MANIFEST, new_file(0, 1), edit, new_file(0, 2))
    with pytest.raises(UnsupportedError) as caught:
        sawlog.read(path, view="edits")
    assert detail in caught.value.damage.detail
    (report,) = sawlog.verify(path, view="edits").files
    assert (report.rows, report.damaged, report.unsupported, report.account.total) == (3, False, True, report.size)
    (tmp_path / "CURRENT").write_text(path.name + "\n")
    with pytest.raises(UnsupportedError, match="which files are alive is not known") as caught:
        sawlog.open(tmp_path, format="leveldb_database", on_damage="skip")
    assert "on_damage" not in str(caught.value)  # which was no way to read it
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_fields_that_may_be_skipped_are(tmp_path: Path) -> None:
    skipped = encode_varint(8192 + 77) + length_prefixed(b"anything")
    blob = (
        encode_varint(400)
        + b"\x09\x01\x02"
        + length_prefixed(b"")
        + length_prefixed(b"")
        + b"\x21"
        + length_prefixed(b"new")
        + b"\x00"
    )
    table = TABLE[:2] + b"\x09" + TABLE[3:] + b"\x3f" + length_prefixed(b"") + b"\x01"
    path = write_manifest(tmp_path, MANIFEST, skipped + new_file(0, 1) + blob, table)
    assert live(path) == [(0, 1), (0, 9)]


EXCISE = b"\x0a" + length_prefixed(b"a") + length_prefixed(b"c") + b"\x00\x31"


def test_pebbles_tags_of_2026(tmp_path: Path) -> None:
    references = encode_varint(70) + b"\x01\x01" + b"\x05\x07\x08"
    path = write_manifest(tmp_path, MANIFEST, TABLE + references + b"\x01" + EXCISE + b"\x0b\x02\x09")
    row = edits(path)[-1]
    assert row["excises"] == [{"low": b"a", "high": b"c", "inclusive": False, "sequence": 49}]
    assert row["marked_files"] == [{"level": 2, "file": 9}]
    assert row["new_files"][0]["blob_references"] == [{"file": 5, "size": 7}]
    (tmp_path / "marker.format-version.000001.028").write_bytes(b"")
    assert edits(path)[-1] == row
    (tmp_path / "marker.format-version.000001.028").unlink()
    (tmp_path / "IDENTITY").write_bytes(b"")
    with pytest.raises(SawlogError):
        edits(path)


def test_live_files_are_those_after_all_edits(tmp_path: Path) -> None:
    family = encode_varint(200) + b"\x02"
    drop_edit = encode_varint(200) + b"\x03"
    path = write_manifest(
        tmp_path,
        MANIFEST + new_file(0, 5) + new_file(0, 4),
        b"\x06\x00\x05" + new_file(1, 5),
        family + encode_varint(201) + length_prefixed(b"other"),
        family + new_file(0, 9),
        drop_edit + encode_varint(201) + length_prefixed(b"dropped") + new_file(0, 11),
        drop_edit + encode_varint(202),
        encode_varint(300) + b"\x01" + new_file(3, 20),
        encode_varint(300) + b"\x00" + new_file(3, 21),
        encode_varint(300) + b"\x01" + new_file(3, 22),
    )
    table = sawlog.read(path, view="files").select(["column_family", "column_family_name", "level", "file"])
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, "default", 0, 4),
        (0, "default", 1, 5),
        (0, "default", 3, 20),
        (0, "default", 3, 21),
        (2, "other", 0, 9),
    ]
    dataset = sawlog.open(path, view="files")
    assert len(dataset.fragments(1)) == 1
    assert dataset.count_rows() == 5
    with pytest.raises(OptionError, match="cannot be followed"):
        dataset.watch().look()


def test_current_names_the_live_manifest(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST, new_file(0, 1), name="MANIFEST-000009")
    write_manifest(tmp_path, MANIFEST, new_file(0, 2), name="MANIFEST-000010")
    (tmp_path / "000003.log").write_bytes(b"")
    with pytest.warns(DamageWarning, match="nothing says which MANIFEST is the live one"):
        assert live(tmp_path) == [(0, 2)]
    (tmp_path / "CURRENT").write_text("MANIFEST-000009\n")
    assert live(tmp_path) == [(0, 1)]
    assert len(edits(tmp_path)) == 2
    for name in ("000001.MANIFEST-000009", "000002.MANIFEST-000010"):
        (tmp_path / f"marker.manifest.{name}").write_bytes(b"")
    assert live(tmp_path) == [(0, 2)], "what Pebble's last marker says"
    (tmp_path / "marker.manifest.000003.MANIFEST-000009").write_bytes(b"")
    assert live(tmp_path) == [(0, 1)]
    assert live(tmp_path / "MANIFEST-000010") == [(0, 2)]
    with pytest.raises(FormatError, match="none of the"):
        sawlog.read(tmp_path, format="leveldb_log", view="entities")


def test_live_files_are_those_that_leveldb_has(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path), create_if_missing=True, write_buffer_size=64 << 10) as db:
        for i in range(20_000):
            db.put(b"key%06d" % (i * 7919 % 10_000), bytes(20))
        db.compact_range()
        db.put(b"last", b"")
    files = sawlog.read(tmp_path, view="files", provenance=True).to_pylist()
    tables = {int(path.stem): path.stat().st_size for path in tmp_path.glob("*.ldb")}
    assert {row["file"]: row["size"] for row in files}.items() <= tables.items()
    assert files
    assert min(row["smallest_key"] for row in files) == b"key000000"
    assert max(row["largest_key"] for row in files) == b"key009999"
    history = edits(tmp_path)
    assert history[0]["comparator"] == "leveldb.BytewiseComparator"
    assert history[-1]["log_number"] <= max(int(path.stem) for path in tmp_path.glob("*.log"))


def test_live_files_are_those_that_rocksdb_has(tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = Rdict(str(path), Options(raw_mode=True))
    other_family = db.create_column_family("other", Options(raw_mode=True))
    for i in range(500):
        db[b"key%03d" % i] = b"value"
    other_family[b"x"] = b"y"
    db.flush()
    db.compact_range(None, None)
    for i in range(500, 700):
        db[b"key%03d" % i] = b"value"
    db.flush()
    other_family.flush()
    truth = {
        (file["name"], file["level"], file["size"], file["start_key"], file["end_key"]) for file in db.live_files()
    }
    values = sawlog.read(path, view="files").to_pylist()
    assert {
        (f"/{row['file']:06}.sst", row["level"], row["size"], row["smallest_key"], row["largest_key"]) for row in values
    } == truth
    assert {row["column_family_name"] for row in values} == {"default", "other"}
    assert any(row.get("db_id") for row in edits(path))
    db.close()


def test_a_database_that_was_closed_cleanly(tmp_path: Path) -> None:
    """Its log is empty, and what it holds is in a table: the MANIFEST is read without naming the format."""
    database = tmp_path / "db"
    for key in (b"a", b"b"):
        with plyvel.DB(str(database), create_if_missing=True) as opened:
            opened.put(key, b"1")
    plyvel.DB(str(database)).close()
    live = sawlog.read(database, view="files").to_pylist()
    assert {row["smallest_key"] for row in live} == {b"a", b"b"}
    assert sawlog.open(database, view="edits").format.name == "leveldb_log"
    for log in database.glob("*.log"):
        assert log.stat().st_size == 0
        log.unlink()
    assert sawlog.read(database, view="files").to_pylist() == live
    fresh = tmp_path / "fresh"
    plyvel.DB(str(fresh), create_if_missing=True).close()
    assert sawlog.read(fresh, view="files").num_rows == 0
    assert sawlog.read(fresh, view="writes").num_rows == 0
