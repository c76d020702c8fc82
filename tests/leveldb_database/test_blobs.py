"""Values in RocksDB's blob files are read where the entries that lead to them would hold them."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rocksdict import DBCompressionType, Options, Rdict

import sawlog
from sawlog import DamageError, IncompleteError, UnsupportedError
from tests.bytes import mask_crc
from tests.leveldb_database.support import state_new_size
from tests.unit_of_loss import assert_lost_by_unit, read_rows_before_damage

from .support import database

CODECS = ("none", "snappy", "lz4", "zstd")


def live(path: Path, **arguments: object) -> dict[bytes, bytes]:
    table = sawlog.read(path, format="leveldb_database", view="live", **arguments)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("codec", CODECS)
def test_values_in_blob_files(codec: str, tmp_path: Path) -> None:
    held = database(tmp_path / "db", codec)
    assert list((tmp_path / "db").glob("*.blob"))
    assert live(tmp_path / "db") == held
    every = sawlog.read(tmp_path / "db", format="leveldb_database", view="all")
    assert {"put", "put_blob_index"} <= set(every["operation"].to_pylist())
    assert not sawlog.verify(tmp_path / "db", format="leveldb_database").damaged
    dataset = sawlog.open(tmp_path / "db", format="leveldb_database")
    assert dataset.count_rows() == len(held)
    assert sawlog.read(tmp_path / "db", format="leveldb_database", columns=["key"]).num_rows == len(held)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.nightly
def test_a_value_that_a_codec_refuses_costs_its_entry_only(codec: str, tmp_path: Path) -> None:
    """The checksum of its record is good, but where nothing else would refuse it."""
    database(tmp_path / "db", codec)
    path = tmp_path / "db"
    rows = sawlog.read(path, format="leveldb_database", view="live").to_pylist()
    blob = max(path.glob("*.blob"))
    data = blob.read_bytes()
    records = {}
    at = BLOB_FILE_HEADER
    while at < len(data) - BLOB_FILE_FOOTER:
        key, value = struct.unpack_from("<QQ", data, at)
        start = at + BLOB_RECORD_HEADER
        records[data[start : start + key]] = (at, start + key, start + key + value)
        at = start + key + value
    places = {row["key"]: number for number, row in enumerate(rows)}
    chosen = [key for key in records if key in places][::20]
    assert len(chosen) > 2
    broken = {}
    for key in chosen:
        at, start, end = records[key]
        value = b"\xff" * (end - start)
        checksum = mask_crc(key + value) ^ (codec == "none")
        head = data[: at + BLOB_RECORD_HEADER - 4] + checksum.to_bytes(4, "little")
        broken[places[key]] = head + key + value + data[end:]
    units = {number: [row] for number, row in enumerate(rows)}
    assert_lost_by_unit(path, "leveldb_database", broken, units, file=blob, damages=None, view="live")


BLOB_FILE_HEADER, BLOB_FILE_FOOTER, BLOB_RECORD_HEADER = 30, 32, 32


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("gone", [True, False])
def test_damaged_blob_files_cost_their_values(gone: bool, tmp_path: Path) -> None:
    held = database(tmp_path / "db", "none")
    blob = max((tmp_path / "db").glob("*.blob"))
    if gone:
        blob.unlink()
    else:
        data = bytearray(blob.read_bytes())
        for place in range(200, len(data), 2000):
            data[place] ^= 1
        blob.write_bytes(data)
    with pytest.raises(IncompleteError if gone else DamageError, match=blob.name):
        live(tmp_path / "db")
    found = live(tmp_path / "db", on_damage="skip")
    assert found.items() < held.items()
    assert len(held) - len(found) >= 5
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert (report.rows, report.verdict) == (len(found), "incomplete" if gone else "damaged")
    listed = sawlog.read(tmp_path / "db", format="leveldb_database", view="damage")
    lost = listed.filter(pc.not_equal(listed["kind"], "bad_blob_part"))
    assert lost.num_rows == len(held) - len(found)
    assert listed.num_rows == (lost.num_rows if gone else 2 * lost.num_rows)
    assert set(listed["file"].to_pylist()) == {str(blob)}
    assert sawlog.open(tmp_path / "db", format="leveldb_database", on_damage="skip").count_rows() == len(found)


RECORD_HEADER = 32
FILE_HEADER = 30


def records(data: bytes) -> list[tuple[int, int, int]]:
    """Where the records of a blob file begin, the bytes of their keys, and of their values."""
    found, at = [], FILE_HEADER
    while at + RECORD_HEADER < len(data) - RECORD_HEADER:
        key, value = struct.unpack_from("<QQ", data, at)
        found.append((at, key, value))
        at += RECORD_HEADER + key + value
    return found


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("codec", ["snappy", "lz4", "lz4hc", "zstd", "bz2"])
def test_a_value_that_does_not_expand_costs_itself_only(codec: str, tmp_path: Path) -> None:
    held = database(tmp_path / "db", codec)
    blob = max((tmp_path / "db").glob("*.blob"))
    data = blob.read_bytes()
    found = records(data)
    assert len(found) > 20
    for start, key_size, size in (found[0], found[len(found) // 2], found[-1]):
        place = start + RECORD_HEADER
        key = data[place : place + key_size]
        content = key + data[place + key_size : place + key_size + 3] + b"\xff" * (size - 3)
        checksum = struct.pack("<I", mask_crc(content))
        blob.write_bytes(
            data[: start + RECORD_HEADER - 4] + checksum + content + data[start + RECORD_HEADER + len(content) :]
        )
        expected = {name: value for name, value in held.items() if name != key}
        for threads in (False, True):
            assert live(tmp_path / "db", on_damage="skip", use_threads=threads) == expected
        assert len(expected) == len(held) - 1
        for view in ("live", "all"):
            rows = read_rows_before_damage(tmp_path / "db", format="leveldb_database", view=view)
            assert [row["key"] for row in rows] == sorted(name for name in held if name < key)


@pytest.mark.parametrize("code", [6, 8, 0x80, 0xFF])
def test_a_value_of_an_unknown_codec_is_unsupported_and_others_are_read(code: int, tmp_path: Path) -> None:
    """Its codec is named by the entry that leads to it."""
    options = Options(raw_mode=True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(100)
    options.set_blob_compression_type(DBCompressionType.zstd())
    opened = Rdict(str(tmp_path / "db"), options)
    held = {b"key%d" % number: b"value%d" % number * 100 for number in range(5)}
    for key, value in held.items():
        opened[key] = value
    opened.flush()
    opened.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    rows = sawlog.read(table).to_pylist()
    assert rows[2]["operation"] == "put_blob_index"
    rows[2]["value"] = rows[2]["value"][:-1] + bytes([code])
    size_before = table.stat().st_size
    sawlog.write(pa.Table.from_pylist(rows), table, format="leveldb_table", dialect="rocksdb")
    state_new_size(table, size_before)
    told = f"compression type {code:#04x}"
    with pytest.raises(UnsupportedError, match=told):
        live(tmp_path / "db")
    with pytest.warns(sawlog.DamageWarning, match="does not support"):
        found = live(tmp_path / "db", on_damage="skip")
    assert found == {key: value for key, value in held.items() if key != rows[2]["key"]}
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert (report.damaged, report.unsupported, report.rows) == (False, True, 4)
