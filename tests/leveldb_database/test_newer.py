"""What engines of 2026 write is read, and what is newer still is unsupported, not damage."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import sawlog
from sawlog.errors import UnsupportedError
from sawlog.format.damage import DamageWarning
from sawlog.kernels.layout import Number
from sawlog.leveldb.database.layout import VALUE_PROPERTIES_OFFSET, VALUE_PROPERTIES_SIZE
from tests.bytes import mask_crc
from tests.leveldb_database.support import read_pebble_answers, read_pebble_live
from tests.leveldb_log.fragments import reference, write

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_database"
EXCISE, BLOBS = "pebble-master-25-excise", "pebble-master-26-blobs"
CUCKOO = "rocksdb-11.8.1-cuckoo"
PARTS = GOLDEN.parent / "leveldb_table" / "pebble" / "24-plain"
"""Some of its tables are parts of a file."""
FOOTER = 70


@pytest.mark.parametrize("name", [EXCISE, BLOBS, CUCKOO])
def test_what_the_engine_answered(name: str) -> None:
    expected = read_pebble_answers(GOLDEN / name / "answers.jsonl")
    assert len(expected) > 5
    assert read_pebble_live(GOLDEN / name / "db") == expected
    report = sawlog.verify(GOLDEN / name / "db", format="leveldb_database")
    assert not report.damaged
    assert not any(file.account.unsupported for file in report.files)


def test_blob_files_of_version_2_and_bounds_of_excises() -> None:
    excise, blobs = (GOLDEN / name / "db" for name in (EXCISE, BLOBS))
    edits = sawlog.read(excise / "MANIFEST-000001", view="edits").to_pylist()
    (bounds,) = (excise for edit in edits for excise in edit["excises"])
    assert (bounds["low"], bounds["high"], bounds["inclusive"]) == (b"k000000", b"k000010\0", False)
    files = {report.path: report for report in sawlog.verify(blobs, format="leveldb_database").files}
    for path in blobs.glob("*.blob"):
        account = files[str(path)].account
        assert (account.total, account.damage) == (path.stat().st_size, 0)
        assert account.header > FOOTER


def test_a_cuckoo_table_is_read_in_the_order_of_keys(tmp_path: Path) -> None:
    """Its entries come in the order of their keys, and whatever is changed in it costs nothing but itself."""
    table = GOLDEN / CUCKOO / "db" / "000009.sst"
    rows = sawlog.read(table).to_pylist()
    assert [row["key"] for row in rows] == [b"k%06d" % number for number in range(15)]
    assert {row["operation"] for row in rows} == {"put", "delete"}
    assert rows[1]["sequence"] == 0x37
    (report,) = sawlog.verify(table).files
    assert (report.rows, report.account.total, report.account.damage) == (15, report.size, 0)
    assert report.account.record > report.account.header
    frames = sawlog.read(table, view="frames").to_pylist()
    assert (frames[0]["name"], frames[0]["compression"]) == ("data", "none")
    assert sawlog.open(table, view="properties").count_rows() > 20
    data = table.read_bytes()
    copy = tmp_path / table.name
    for offset in range(len(data) // 2, len(data), 3):
        copy.write_bytes(data[:offset] + bytes([data[offset] ^ 0x21]) + data[offset + 1 :])
        (report,) = sawlog.verify(copy).files
        assert report.account.total == report.size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert sawlog.read(copy, on_damage="skip").num_rows == report.rows
    newer = bytearray(data)
    newer[-12] = 2
    copy.write_bytes(newer)
    with pytest.raises(UnsupportedError, match="format version 2 of RocksDB's cuckoo tables"):
        sawlog.read(copy)


def encrypted(directory: Path) -> Path:
    """A database whose files all begin with a prefix, and are no text or log to anybody without the key."""
    dice = random.Random(3)
    for name, size in (("CURRENT", 16), ("IDENTITY", 36), ("MANIFEST-000005", 127), ("000004.log", 828)):
        (directory / name).write_bytes(dice.randbytes(4096 + size))
    (directory / "000009.sst").write_bytes(dice.randbytes(4096 + 1500))
    return directory


def test_an_encrypted_database_is_unsupported(tmp_path: Path) -> None:
    encrypted(tmp_path)
    for policy in ("fail", "skip"):
        with pytest.raises(UnsupportedError, match="encrypted"):
            read_pebble_live(tmp_path, on_damage=policy)
    command = [sys.executable, "-m", "sawlog", "verify", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, "encrypted" in result.stderr) == (4, True)
    for name in ("MANIFEST-000005", "000004.log", "000009.sst"):
        with pytest.raises(UnsupportedError, match="encrypted"):
            sawlog.read(tmp_path / name)
        (report,) = sawlog.verify(tmp_path / name).files
        assert (report.damaged, report.account.unsupported) == (False, report.size)


def test_a_part_of_a_table_in_an_order_that_nobody_knows_is_unsupported(tmp_path: Path) -> None:
    """The rows of the other tables and of the logs are read."""
    shutil.copytree(PARTS, tmp_path / "db")
    (path,) = tmp_path.glob("db/MANIFEST-*")
    path.write_bytes(
        write(
            *(
                record.replace(b"leveldb.Bytewise", b"unknown.Bytewise")
                for record in reference(path.read_bytes()).records
            )
        )
    )
    with pytest.raises(UnsupportedError, match="is a part of table"):
        read_pebble_live(tmp_path / "db")
    with pytest.warns(DamageWarning):
        live_state = read_pebble_live(tmp_path / "db", on_damage="skip")
    assert 0 < len(live_state) < len(read_pebble_live(PARTS))
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert not report.damaged
    assert any(file.unsupported for file in report.files)


def change_footer(directory: Path, offset: int, value: int) -> Path:
    """A copy of a database with a blob file of whose footer a byte is another, under a checksum that matches."""
    shutil.copytree(GOLDEN / BLOBS / "db", directory / "db")
    path = directory / "db" / "000011.blob"
    data = bytearray(path.read_bytes())
    footer = len(data) - FOOTER
    data[footer + offset] = value
    data[footer : footer + 4] = mask_crc(bytes(data[footer + 4 :])).to_bytes(4, "little")
    path.write_bytes(data)
    return directory / "db"


CASES = [(21, 3, "version 3 of a blob"), (20, 5, "checksum type 5 of a blob")]


@pytest.mark.parametrize(("offset", "value", "message"), CASES)
def test_a_blob_file_of_a_newer_version_is_unsupported(tmp_path: Path, offset: int, value: int, message: str) -> None:
    database = change_footer(tmp_path, offset, value)
    with pytest.raises(UnsupportedError, match=message):
        read_pebble_live(database)
    with pytest.warns(DamageWarning, match="does not support"):
        live_state = read_pebble_live(database, on_damage="skip")
    expected = read_pebble_answers(GOLDEN / BLOBS / "answers.jsonl")
    assert 0 < len(live_state) < len(expected)
    assert live_state.items() <= expected.items()
    report = sawlog.verify(database, format="leveldb_database")
    assert not report.damaged
    assert any(file.unsupported for file in report.files)


@pytest.mark.parametrize("field", [VALUE_PROPERTIES_OFFSET, VALUE_PROPERTIES_SIZE])
@pytest.mark.parametrize(("byte", "value"), [(0, 255), (1, 2), (7, 64)])
def test_properties_past_the_end_of_a_blob_file_cost_no_value(
    tmp_path: Path, field: Number, byte: int, value: int
) -> None:
    """No value depends on them; all bytes are accounted for once."""
    database = change_footer(tmp_path, field.offset + byte, value)
    assert read_pebble_live(database) == read_pebble_answers(GOLDEN / BLOBS / "answers.jsonl")
    files = {Path(report.path).name: report for report in sawlog.verify(database, format="leveldb_database").files}
    report = files["000011.blob"]
    assert report.account.total == report.size
    assert report.kinds.keys() == {"bad_blob_part"}
