"""What newer and older RocksDBs write is read; what nobody knows yet is unsupported, and costs no more than itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import xxhash

import sawlog
from sawlog import DamageError, UnsupportedError
from tests.leveldb_table.support import GOLDEN, GOLDEN_ROWS, TRAILER, append_block, assert_holds, rocksdb_tables

FOOTER = 53
LAST_BYTE_FACTOR = 0x6B9083D9


@pytest.mark.parametrize("name", ["11-none", "11-zstd", "11-uniform", "11-apart", "11-trained", "11-embedded"])
def test_format_version_7_is_read(name: str) -> None:
    file = GOLDEN / f"{name}.sst"
    assert_holds([file], GOLDEN_ROWS)
    assert sawlog.open(file).info()["format version"] == 7
    table = sawlog.read(file, filters=[("key", ">=", b"user/0290")])
    assert table["key"].to_pylist() == sorted(GOLDEN_ROWS)[290:]


@pytest.mark.parametrize("way", ["longer", "shorter", "values"])
def test_values_apart_from_keys_that_do_not_fit_cost_their_block(way: str, tmp_path: Path) -> None:
    data = (GOLDEN / "11-none.sst").read_bytes()
    block = next(row for row in sawlog.read(GOLDEN / "11-none.sst", view="frames").to_pylist() if row["name"] == "data")
    start, size = block["offset"], block["length"] - TRAILER
    flag = struct.pack("<I", 1 << 28 | 1)
    content = {"longer": b"\xff" * (size - 8) + struct.pack("<I", size), "shorter": b"", "values": b""}[way]
    content = content.ljust(size - 4, b"\x01" if way == "shorter" else b"\xfe") + flag
    path = tmp_path / "a.sst"
    path.write_bytes(data[:start] + content + data[start + size :])
    with pytest.warns(sawlog.DamageWarning):
        rows = sawlog.read(path, verify_checksums=False, on_damage="skip")
    assert 0 < rows.num_rows < len(GOLDEN_ROWS)
    assert dict(sawlog.verify(path, verify_checksums=False).files[0].kinds) == {"bad_block": 1}


@pytest.fixture(scope="module")
def table_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A table whose blocks hold one key each."""
    options = {"set_block_size": 1}
    data = {b"key%d" % number: b"value" for number in range(6)}
    return rocksdb_tables(tmp_path_factory.mktemp("table"), data, table=options)[0].read_bytes()


@pytest.mark.parametrize("code", [6, 8, 0x80, 0xFF])
def test_a_block_of_an_unknown_codec_is_unsupported_and_others_are_read(
    code: int, table_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.sst"
    path.write_bytes(append_block(table_bytes, 2, None, code))
    assert_unsupported(path, f"compression type {code:#04x}", 5)


def test_a_block_with_an_unknown_flag_likewise(table_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.sst"
    content = bytes([0, 12, 0]) + b"key2" + bytes(8) + struct.pack("<II", 0, 1 << 30 | 1)
    path.write_bytes(table_bytes)
    blocks = sawlog.read(path, view="frames").to_pylist()
    size = next(block for block in blocks if block["name"] == "data")["length"] - TRAILER
    content = bytes([0, 12, size - 23]) + b"key2" + bytes(8) + bytes(size - 23) + content[-8:]
    path.write_bytes(append_block(table_bytes, 2, content, 0))
    assert_unsupported(path, "flags 0x40000000", 5)


def assert_unsupported(path: Path, message: str, rows: int) -> None:
    with pytest.raises(UnsupportedError, match=message):
        sawlog.read(path)
    with pytest.warns(sawlog.DamageWarning, match="does not|version of"):
        assert sawlog.read(path, on_damage="skip").num_rows == rows
    (file,) = sawlog.verify(path).files
    assert (file.damaged, file.unsupported, dict(file.kinds)) == (False, True, {"unsupported": 1})
    assert file.account.total == path.stat().st_size


@pytest.mark.parametrize("version", [8, 1 << 20])
def test_a_format_version_to_come_is_unsupported(version: int, tmp_path: Path) -> None:
    data = (GOLDEN / "11-none.sst").read_bytes()
    path = tmp_path / "a.sst"
    path.write_bytes(data[:-12] + struct.pack("<I", version) + data[-8:])
    assert_unsupported(path, f"format version {version} of rocksdb's tables; known up to 7", 0)


def test_a_compression_manager_of_an_application_is_unsupported(tmp_path: Path) -> None:
    """Its codes of compression may mean anything."""
    data = (GOLDEN / "11-zstd.sst").read_bytes()
    place = data.index(b"BuiltinV2;07;")
    changed = bytearray(data.replace(b"BuiltinV2;07;", b"SomeoneX2;07;"))
    (block,) = [
        row
        for row in sawlog.read(GOLDEN / "11-zstd.sst", view="frames").to_pylist()
        if row["offset"] < place < row["offset"] + row["length"]
    ]
    start, end = block["offset"], block["offset"] + block["length"]
    context = int.from_bytes(data[-FOOTER + 9 : -FOOTER + 13], "little")
    checksum = xxhash.xxh3_64_intdigest(changed[start : end - TRAILER]) ^ changed[end - TRAILER] * LAST_BYTE_FACTOR
    checksum += context ^ (start + (start >> 32))
    changed[end - 4 : end] = (checksum & 0xFFFFFFFF).to_bytes(4, "little")
    path = tmp_path / "a.sst"
    path.write_bytes(changed)
    with pytest.raises(UnsupportedError, match="does not know"):
        sawlog.read(path)
    (file,) = sawlog.verify(path).files
    assert set(file.kinds) == {"unsupported"}


def test_a_sequence_number_that_was_put_into_properties_breaks_no_checksum(tmp_path: Path) -> None:
    """As RocksDB did by default before 8.0 when it took in a table."""
    file = GOLDEN / "6-ingested" / "000010.sst"
    rows = sawlog.read(file)
    assert set(rows["sequence"].to_pylist()) == {61}
    assert not sawlog.verify(file).damaged
    names = sawlog.read(file, view="frames")["name"].to_pylist()
    assert "rocksdb.properties" in names
    properties = dict(zip(*sawlog.read(file, view="properties").to_pydict().values(), strict=True))
    assert properties["rocksdb.external_sst_file.global_seqno"] == "61"
    # Any other byte of that block does.
    data = bytearray(file.read_bytes())
    data[data.index(b"global_seqno") + 1] ^= 1
    path = tmp_path / "a.sst"
    path.write_bytes(data)
    with pytest.raises(DamageError, match="checksum_mismatch"):
        sawlog.read(path)


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("name", ["11-none", "11-zstd", "11-uniform"])
def test_a_table_that_has_lost_its_properties_has_its_rows(name: str, tmp_path: Path) -> None:
    """They say how the index is laid out; so does the format version."""
    file = GOLDEN / f"{name}.sst"
    data = bytearray(file.read_bytes())
    data[data.index(b"leveldb.BytewiseComparator")] ^= 1
    path = tmp_path / "a.sst"
    path.write_bytes(data)
    rows = sawlog.read(path, on_damage="skip")
    assert dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)) == GOLDEN_ROWS
    assert dict(sawlog.verify(path).files[0].kinds) == {"checksum_mismatch": 1}


def test_values_between_blocks_cost_their_entries_only(tmp_path: Path) -> None:
    data = (GOLDEN / "11-embedded-small.sst").read_bytes()
    path = tmp_path / "a.sst"
    blocks = sawlog.read(GOLDEN / "11-embedded-small.sst", view="frames").to_pylist()
    values = [block["offset"] for block in blocks if block["name"] == "values"]
    keys = dict.fromkeys([b"apple", b"apricot", b"banana", b"cherry", b"date"])
    for offset, key in zip(values, (b"apricot", b"banana", b"banana", b"date"), strict=True):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.warns(sawlog.DamageWarning):
            rows = sawlog.read(path, on_damage="skip")
        assert rows["key"].to_pylist() == [key_kept for key_kept in keys if key_kept != key]
        kinds = dict(sawlog.verify(path).files[0].kinds)
        assert kinds == {"checksum_mismatch": 1, "lost_value": 1}


def test_values_between_blocks_are_found_without_properties(tmp_path: Path) -> None:
    data = (GOLDEN / "11-embedded-small.sst").read_bytes()
    offset = data.index(b"embedded.blob")
    path = tmp_path / "a.sst"
    path.write_bytes(data[:offset] + b"X" + data[offset + 1 :])
    with pytest.warns(sawlog.DamageWarning):
        rows = sawlog.read(path, on_damage="skip")
    assert rows.equals(sawlog.read(GOLDEN / "11-embedded-small.sst"))
