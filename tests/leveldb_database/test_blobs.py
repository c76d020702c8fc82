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
def test_values_in_blob_files_are_read(codec: str, tmp_path: Path) -> None:
    state = database(tmp_path / "db", codec)
    assert list((tmp_path / "db").glob("*.blob"))
    assert live(tmp_path / "db") == state
    table = sawlog.read(tmp_path / "db", format="leveldb_database", view="all")
    assert {"put", "put_blob_index"} <= set(table["operation"].to_pylist())
    assert not sawlog.verify(tmp_path / "db", format="leveldb_database").damaged
    dataset = sawlog.open(tmp_path / "db", format="leveldb_database")
    assert dataset.count_rows() == len(state)
    assert sawlog.read(tmp_path / "db", format="leveldb_database", columns=["key"]).num_rows == len(state)


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
    offset = BLOB_FILE_HEADER
    while offset < len(data) - BLOB_FILE_FOOTER:
        key, value = struct.unpack_from("<QQ", data, offset)
        start = offset + BLOB_RECORD_HEADER
        records[data[start : start + key]] = (offset, start + key, start + key + value)
        offset = start + key + value
    places = {row["key"]: number for number, row in enumerate(rows)}
    picked_keys = [key for key in records if key in places][::20]
    assert len(picked_keys) > 2
    broken = {}
    for key in picked_keys:
        offset, start, end = records[key]
        value = b"\xff" * (end - start)
        checksum = mask_crc(key + value) ^ (codec == "none")
        head = data[: offset + BLOB_RECORD_HEADER - 4] + checksum.to_bytes(4, "little")
        broken[places[key]] = head + key + value + data[end:]
    units = {number: [row] for number, row in enumerate(rows)}
    assert_lost_by_unit(path, "leveldb_database", broken, units, file=blob, damages=None, view="live")


BLOB_FILE_HEADER, BLOB_FILE_FOOTER, BLOB_RECORD_HEADER = 30, 32, 32


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("is_removed", [True, False])
def test_damaged_blob_files_cost_their_values(is_removed: bool, tmp_path: Path) -> None:
    state = database(tmp_path / "db", "none")
    blob = max((tmp_path / "db").glob("*.blob"))
    if is_removed:
        blob.unlink()
    else:
        data = bytearray(blob.read_bytes())
        for place in range(200, len(data), 2000):
            data[place] ^= 1
        blob.write_bytes(data)
    with pytest.raises(IncompleteError if is_removed else DamageError, match=blob.name):
        live(tmp_path / "db")
    live_rows = live(tmp_path / "db", on_damage="skip")
    assert live_rows.items() < state.items()
    assert len(state) - len(live_rows) >= 5
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert (report.rows, report.verdict) == (len(live_rows), "incomplete" if is_removed else "damaged")
    listed = sawlog.read(tmp_path / "db", format="leveldb_database", view="damage")
    lost_entries = listed.filter(pc.not_equal(listed["kind"], "bad_blob_part"))
    assert lost_entries.num_rows == len(state) - len(live_rows)
    assert listed.num_rows == (lost_entries.num_rows if is_removed else 2 * lost_entries.num_rows)
    assert set(listed["file"].to_pylist()) == {str(blob)}
    assert sawlog.open(tmp_path / "db", format="leveldb_database", on_damage="skip").count_rows() == len(live_rows)


RECORD_HEADER = 32
FILE_HEADER = 30


def list_records(data: bytes) -> list[tuple[int, int, int]]:
    """Where the records of a blob file begin, the bytes of their keys, and of their values."""
    record_list, offset = [], FILE_HEADER
    while offset + RECORD_HEADER < len(data) - RECORD_HEADER:
        key, value = struct.unpack_from("<QQ", data, offset)
        record_list.append((offset, key, value))
        offset += RECORD_HEADER + key + value
    return record_list


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("codec", ["snappy", "lz4", "lz4hc", "zstd", "bz2"])
def test_a_value_that_does_not_expand_costs_itself_only(codec: str, tmp_path: Path) -> None:
    state = database(tmp_path / "db", codec)
    blob = max((tmp_path / "db").glob("*.blob"))
    data = blob.read_bytes()
    record_list = list_records(data)
    assert len(record_list) > 20
    for start, key_size, size in (record_list[0], record_list[len(record_list) // 2], record_list[-1]):
        place = start + RECORD_HEADER
        key = data[place : place + key_size]
        content = key + data[place + key_size : place + key_size + 3] + b"\xff" * (size - 3)
        checksum = struct.pack("<I", mask_crc(content))
        blob.write_bytes(
            data[: start + RECORD_HEADER - 4] + checksum + content + data[start + RECORD_HEADER + len(content) :]
        )
        expected = {name: value for name, value in state.items() if name != key}
        for threads in (False, True):
            assert live(tmp_path / "db", on_damage="skip", use_threads=threads) == expected
        assert len(expected) == len(state) - 1
        before = sorted(name for name in state if name < key)
        live_keys, all_keys = (
            [row["key"] for row in read_rows_before_damage(tmp_path / "db", format="leveldb_database", view=view)]
            for view in ("live", "all")
        )
        assert live_keys == before
        # `all` has older entries, too: of the damaged key, and of deleted ones where nothing has compacted them.
        assert all_keys == sorted(all_keys)
        assert all(name <= key for name in all_keys)
        assert set(all_keys) & state.keys() - {key} == set(before)


@pytest.mark.parametrize("code", [6, 8, 0x80, 0xFF])
def test_a_value_of_an_unknown_codec_is_unsupported_and_others_are_read(code: int, tmp_path: Path) -> None:
    """Its codec is named by the entry that leads to it."""
    options = Options(raw_mode=True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(100)
    options.set_blob_compression_type(DBCompressionType.zstd())
    opened = Rdict(str(tmp_path / "db"), options)
    state = {b"key%d" % number: b"value%d" % number * 100 for number in range(5)}
    for key, value in state.items():
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
    message = f"compression type {code:#04x}"
    with pytest.raises(UnsupportedError, match=message):
        live(tmp_path / "db")
    with pytest.warns(sawlog.DamageWarning, match="does not support"):
        live_rows = live(tmp_path / "db", on_damage="skip")
    assert live_rows == {key: value for key, value in state.items() if key != rows[2]["key"]}
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert (report.damaged, report.unsupported, report.rows) == (False, True, 4)
