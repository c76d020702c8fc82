"""Blocks of every codec, with and without dictionaries: they are read, and one that is broken costs itself only."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sawlog
from sawlog.errors import OptionError
from tests.bytes import mask_crc
from tests.leveldb_table.support import GOLDEN, GOLDEN_ROWS, assert_holds, leveldb_tables, pairs, rocksdb_tables
from tests.unit_of_loss import Rows, assert_lost_by_unit

FORMAT = "leveldb_table"
TRAILER = 5
LEVELDB_MAGIC = bytes.fromhex("57fb808b247547db")
CODECS = ["snappy", "zlib", "lz4", "lz4hc", "zstd", "bz2"]
CASES = [(codec, dictionary) for codec in CODECS for dictionary in ("", "raw", "trained")]
CASES.remove(("zlib", "trained"))
"""Snappy and BZip2 ignore dictionaries, which are in the table nevertheless."""
PAIRS = {key: value * 6 for key, value in pairs(1500).items()}


def data_of(codec: str) -> dict[bytes, bytes]:
    """What `table` holds."""
    return GOLDEN_ROWS if codec == "zlib" else PAIRS


def write_table(directory: Path, codec: str, dictionary: str) -> Path:
    """A table of many small blocks; rocksdict is built without zlib."""
    if codec == "zlib":
        return Path(shutil.copy(GOLDEN / f"zlib{'-' * bool(dictionary)}{dictionary}.sst", directory.parent))
    small = {"set_block_size": 512 if dictionary else 1500}
    (file,) = rocksdb_tables(directory, PAIRS, compression=codec, table=small, dictionary=dictionary)
    return file


@pytest.mark.spread(4)
@pytest.mark.parametrize(("codec", "dictionary"), CASES)
def test_blocks_of_every_codec_are_read(codec: str, dictionary: str, tmp_path: Path) -> None:
    file = write_table(tmp_path / "db", codec, dictionary)
    assert_holds([file], data_of(codec))
    blocks = sawlog.read(file, format=FORMAT, view="frames").to_pylist()
    assert ("rocksdb.compression_dict" in {block["name"] for block in blocks}) == bool(dictionary)
    names = {"bz2": "bzip2"}
    assert names.get(codec, codec) in {block["compression"] for block in blocks if block["name"] == "data"}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "zlib"])
def test_blocks_of_the_first_versions_are_read(codec: str, version: int, tmp_path: Path) -> None:
    (file,) = rocksdb_tables(tmp_path / "db", PAIRS, compression=codec, version=version)
    assert (file.read_bytes().endswith(LEVELDB_MAGIC)) == (version == 0)
    assert_holds([file], PAIRS)
    blocks = sawlog.read(file, format=FORMAT, view="frames").to_pylist()
    assert {"bz2": "bzip2"}.get(codec, codec) in {block["compression"] for block in blocks if block["name"] == "data"}


def broken(content: bytes, codes: tuple[int, ...]) -> Iterator[bytes]:
    """The same stored block in ways that no decoder takes, its checksum made good."""
    for code, stored in ((codes[0], b"\xff" * len(content)), (codes[0], content[:9] + b"\xff" * (len(content) - 9))):
        whole_block = stored + bytes([code])
        yield whole_block + mask_crc(whole_block).to_bytes(4, "little")


def assert_blocks_are_units(file: Path) -> None:
    data = file.read_bytes()
    blocks = [row for row in sawlog.read(file, format=FORMAT, view="frames").to_pylist() if row["name"] == "data"]
    packed = [number for number, block in enumerate(blocks) if block["compression"] != "none"]
    assert len(packed) >= 20
    units: dict[int, Rows] = {number: [] for number in range(len(blocks))}
    places = {block["offset"]: number for number, block in enumerate(blocks)}
    for row in sawlog.read(file, format=FORMAT, provenance=True).to_pylist():
        units[places[row.pop("_offset")]].append({name: value for name, value in row.items() if name != "_file"})
    picked_blocks = [packed[0], packed[len(packed) // 2]]
    for way in range(2):
        changed = {}
        for number in picked_blocks:
            start, length = blocks[number]["offset"], blocks[number]["length"]
            stored = data[start : start + length - TRAILER]
            block = list(broken(stored, (data[start + length - TRAILER],)))[way]
            changed[number] = data[:start] + block + data[start + length :]
        assert_lost_by_unit(file, FORMAT, changed, units)


def test_without_zstandard_only_dictionaries_of_it_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert_holds([write_table(tmp_path / "plain", "zstd", "")], PAIRS)
    with pytest.raises(OptionError, match=r"dictionary: pip install '.*\[rocksdb\]'"):
        sawlog.read(write_table(tmp_path / "db", "zstd", "raw"), format=FORMAT, on_damage="skip")


@pytest.mark.parametrize(("codec", "dictionary"), CASES)
@pytest.mark.nightly
def test_a_block_that_a_decoder_refuses_costs_itself_only(codec: str, dictionary: str, tmp_path: Path) -> None:
    assert_blocks_are_units(write_table(tmp_path / "db", codec, dictionary))


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_in_tables_of_leveldb_likewise(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "000005.ldb"
    rows = sawlog.read(leveldb_tables(tmp_path / "db", PAIRS)[0])
    sawlog.write(rows, path, format=FORMAT, dialect="leveldb", compression=compression, block_bytes=3000)
    assert_blocks_are_units(path)
