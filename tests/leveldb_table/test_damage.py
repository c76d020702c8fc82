"""Damaged tables: every intact row is delivered, whatever is lost is reported, repair gives what could be read."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
import rocksdict

import sawlog
from sawlog import DamageError
from sawlog.format.damage import DamageWarning, Verdict
from sawlog.testing import Sample, check, writing
from sawlog.testing.outcome import is_subsequence
from tests.bytes import mask_crc
from tests.leveldb_table.support import GOLDEN, leveldb_tables, pairs, rocksdb_tables

FORMAT = "leveldb_table"
PARTS = {
    "set_index_type": rocksdict.BlockBasedIndexType.two_level_index_search(),
    "set_metadata_block_size": 128,
    "set_block_size": 512,
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("tables")
    data = pairs(150)
    return {
        "leveldb": leveldb_tables(root / "l", data, block_size=512)[0].read_bytes(),
        "snappy": rocksdb_tables(root / "s", data, compression="snappy")[0].read_bytes(),
        "version 6": rocksdb_tables(root / "6", data, version=6, checksum="xxh3", table=PARTS)[0].read_bytes(),
    }


def rows_of(path: Path, policy: str = "skip") -> list[dict[str, object]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sawlog.read(path, format=FORMAT, on_damage=policy).to_pylist()


def damaged(data: bytes, dice: random.Random) -> bytes:
    copy = bytearray(data)
    way = dice.randrange(4)
    place = dice.randrange(len(copy))
    if way == 0:
        copy[place] ^= 1 << dice.randrange(8)
    elif way == 1:
        del copy[place:]
    elif way == 2:
        copy[place : place + dice.randrange(1, 300)] = dice.randbytes(dice.randrange(1, 300))
    else:
        copy[len(copy) - 1 - dice.randrange(300)] ^= 1 << dice.randrange(8)
    return bytes(copy)


@pytest.mark.nightly
def test_verbs_agree_on_damaged_tables(tables: dict[str, bytes]) -> None:
    dice = random.Random(5)
    refused = 0
    for name, data in tables.items():
        sample = Sample(name, FORMAT, data, "a.sst", repaired="rows")
        truth = check(sample, laws=()).rows
        for _ in range(60):
            outcome = check(sample, damaged(data, dice), laws=(writing.check_repair,))
            refused += outcome.refused is not None
            assert is_subsequence(outcome.rows, truth)
            assert outcome.refused or outcome.report.verdict is not Verdict.CLEAN or outcome.rows == truth
    assert refused < 60


def test_a_table_without_its_end_gives_the_blocks_that_can_be_proven(tables: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.ldb"
    path.write_bytes(tables["leveldb"])
    truth = rows_of(path)
    path.write_bytes(tables["leveldb"][: len(tables["leveldb"]) * 3 // 4])
    rows = rows_of(path)
    assert rows == truth[: len(rows)]
    assert len(rows) > len(truth) // 2
    (report,) = sawlog.verify(path, format=FORMAT).files
    assert set(report.kinds) == {"bad_footer"}


def test_a_table_without_its_index_gives_all_rows(tables: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.ldb"
    path.write_bytes(tables["leveldb"])
    truth = rows_of(path)
    blocks = sawlog.read(path, format=FORMAT, view="frames").to_pylist()
    (index,) = (block for block in blocks if block["name"] == "index")
    copy = bytearray(tables["leveldb"])
    copy[index["offset"] + 1] ^= 1
    path.write_bytes(copy)
    assert rows_of(path) == truth
    with pytest.raises(DamageError, match="checksum_mismatch"):
        rows_of(path, "fail")


def test_a_block_allocates_no_more_than_is_allowed(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "a.sst"
    table = pa.table({"key": [b"k"], "value": [bytes(1 << 20)]})
    sawlog.write(table, path, format=FORMAT, dialect="rocksdb", compression="zstd")
    assert path.stat().st_size < 2000
    with pytest.raises(DamageError, match=r"block_too_large .* max_item_bytes is 65536"):
        sawlog.read(path, format=FORMAT, max_item_bytes=1 << 16)
    assert sawlog.read(path, format=FORMAT).num_rows == 1


def test_what_is_no_table_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "a.sst"
    for content in (b"", b"no table", bytes(100)):
        path.write_bytes(content)
        with pytest.raises(DamageError, match="no magic number of a sorted table"):
            sawlog.read(path, format=FORMAT)
        assert rows_of(path) == []


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_table_of_leveldb_without_its_end_is_one_of_leveldb(compression: str, tmp_path: Path) -> None:
    """Its codecs have LevelDB's numbers, and what is repaired of it is LevelDB's, too."""
    path, repaired = tmp_path / "000005.ldb", tmp_path / "000006.ldb"
    rows = [{"key": b"k%05d" % index, "value": b"text " * 9, "sequence": index + 1} for index in range(2000)]
    sawlog.write(pa.Table.from_pylist(rows), path, format=FORMAT, compression=compression)
    path.write_bytes(path.read_bytes()[:-20])
    sawlog.repair(path, repaired)
    assert sawlog.read(repaired)["key"].to_pylist() == [row["key"] for row in rows]
    assert sawlog.open(repaired).info()["dialect"] == "leveldb"


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("leveldb_table/timestamps/000011.sst", "stamped"),
        ("leveldb_database/rocksdb-11.8.1-reverse-ranges/db/000013.sst", "internal"),
        ("leveldb_database/rocksdb-11.8.1-udt-blobs/db/000009.sst", "internal"),
    ],
)
def test_repair_states_no_order_of_keys_where_it_is_lost(table: str, keys: str, tmp_path: Path) -> None:
    """Keys were taken to be in the order of their bytes, and to have no timestamps: `repair` gave up."""
    intact = GOLDEN.parents[1] / table
    blocks = sawlog.read(intact, format=FORMAT, view="frames").to_pylist()
    data = bytearray(intact.read_bytes())
    data[next(block["offset"] for block in blocks if "properties" in block["name"])] ^= 1
    source, copy = tmp_path / "1.sst", tmp_path / "copy.sst"
    source.write_bytes(data)
    sawlog.repair(source, copy, format=FORMAT, keys=keys)
    assert not sawlog.verify(copy, format=FORMAT, keys=keys).damaged
    with pytest.warns(DamageWarning, match="checksum_mismatch"):
        rows = sawlog.read(source, format=FORMAT, keys=keys, on_damage="skip")
    assert sawlog.read(copy, format=FORMAT, keys=keys).equals(rows)


def test_an_index_of_values_that_is_named_by_half_is_damaged(tmp_path: Path) -> None:
    """The block that names it is whole by its checksum, and names no length."""
    path = tmp_path / "small.sst"
    data = bytearray((GOLDEN.parent / "pebble" / path.name).read_bytes())
    path.write_bytes(data)
    handle = data.rindex(b"pebble.value_index") + len(b"pebble.value_index")
    frames = sawlog.read(path, format="leveldb_table", view="frames").to_pylist()
    offset, length = next((row["offset"], row["length"]) for row in frames if row["name"] == "metaindex")
    assert offset < handle < offset + length
    data[handle + 2 : handle + 6] = b"\x80" * 4  # a number without an end
    block = bytes(data[offset : offset + length - 4])
    data[offset + length - 4 : offset + length] = mask_crc(block).to_bytes(4, "little")
    path.write_bytes(data)
    (file,) = sawlog.verify(path, format="leveldb_table").files
    assert "bad_block" in {damage.kind for damage in file.damages}
