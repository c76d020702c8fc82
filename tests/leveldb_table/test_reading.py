"""What LevelDB and RocksDB write is read: every format version, checksum, compression and kind of index."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import rocksdict

import sawlog
from sawlog.format.capabilities import find_field_parser
from tests.leveldb_table.support import assert_holds, leveldb_tables, make_put, pairs, rocksdb_tables

DATA = pairs(600)
INDEX = rocksdict.BlockBasedIndexType
PARTS = {"set_index_type": INDEX.two_level_index_search(), "set_metadata_block_size": 128}


@pytest.mark.parametrize("compression", [None, "snappy"])
def test_tables_of_leveldb(tmp_path: Path, compression: str | None) -> None:
    files = leveldb_tables(tmp_path / "db", DATA, compression=compression, block_size=512)
    assert_holds(files, DATA)


@pytest.mark.parametrize("checksum", ["crc32c", "xxhash", "xxhash64", "xxh3", "no_checksum"])
@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_format_versions_and_checksums_of_rocksdb(tmp_path: Path, version: int, checksum: str) -> None:
    files = rocksdb_tables(tmp_path / "db", DATA, version=version, checksum=checksum)
    assert_holds(files, DATA)
    facts = sawlog.open(str(files[0]), format="leveldb_table").info()
    names = {"xxhash": "xxh32", "xxhash64": "xxh64", "no_checksum": "none"}
    assert (facts["format version"], facts["checksum"]) == (version, names.get(checksum, checksum))


def test_every_byte_of_a_footer_has_its_name(tmp_path: Path) -> None:
    """From the sixth format version on it does not hold the handles of blocks any more."""
    leveldb = ["handles", "magic"]
    handles = ["checksum type", "handles", "format version", "magic"]
    extended = ["extended magic", "checksum", "base context", "metaindex size", "reserved", "zeros"]
    checked = ["checksum type", *extended, "format version", "magic"]
    tables = [
        (leveldb_tables(tmp_path / "leveldb", DATA), leveldb),
        (rocksdb_tables(tmp_path / "5", DATA, version=5), handles),
        (rocksdb_tables(tmp_path / "6", DATA, version=6), checked),
    ]
    for files, expected in tables:
        dataset = sawlog.open(str(files[0]), format="leveldb_table")
        (file,) = dataset.files
        with closing(dataset.scan.storage.open(file.path)) as source:
            parts = list(find_field_parser(dataset.contents, file, source)(file.size - 1))
        assert [part.name for part in parts] == expected
        assert [part.end for part in parts] == [*(part.offset for part in parts[1:]), file.size]


@pytest.mark.parametrize("version", [3, 6])
@pytest.mark.parametrize(
    "table",
    [
        PARTS,
        {**PARTS, "set_partition_filters": True, "set_bloom_filter": (10.0, False)},
        {"set_bloom_filter": (10.0, False)},
        {
            "set_data_block_index_type": rocksdict.DataBlockIndexType.binary_and_hash(),
            "set_data_block_hash_ratio": 0.75,
        },
        {"set_index_block_restart_interval": 8, "set_block_size": 256},
        {"set_block_restart_interval": 3, "set_block_size": 700},
    ],
    ids=["two levels", "partitioned filter", "filter", "hash index", "index deltas", "restarts"],
)
def test_kinds_of_index(tmp_path: Path, table: dict[str, object], version: int) -> None:
    assert_holds(rocksdb_tables(tmp_path / "db", DATA, version=version, table=table), DATA)


def test_deletes_and_range_deletes_are_operations(tmp_path: Path) -> None:
    files = rocksdb_tables(tmp_path / "db", {b"a": b"1", b"z": b"2"}, deletes=[b"q"], ranges=[(b"x", b"y")])
    rows = sawlog.read(str(files[0]), format="leveldb_table").to_pylist()
    assert [(row["operation"], row["key"], row["value"]) for row in rows] == [
        ("put", b"a", b"1"),
        ("delete", b"q", b""),
        ("put", b"z", b"2"),
        ("delete_range", b"x", b"y"),
    ]
    assert [row["sequence"] for row in rows] == [1, 3, 2, 4]


def test_ranges_hold_every_row_once(tmp_path: Path) -> None:
    (file,) = rocksdb_tables(tmp_path / "db", DATA, compression="snappy")
    table = sawlog.read(str(file), format="leveldb_table", provenance=True)
    dataset = sawlog.open(str(file), format="leveldb_table", provenance=True)
    for task_bytes in (1, 1000, 5000):
        fragments = dataset.fragments(task_bytes)
        rows = [row for fragment in fragments for batch in fragment.to_batches() for row in batch.to_pylist()]
        assert rows == table.to_pylist()
    assert len(dataset.fragments(1000)) > 3


def test_filters_on_the_key_spare_blocks(tmp_path: Path) -> None:
    (file,) = rocksdb_tables(tmp_path / "db", DATA, table={"set_block_size": 256})
    for key in [min(DATA), sorted(DATA)[300], max(DATA), b"user/5", b""]:
        for op, test in (("=", bytes.__eq__), (">=", bytes.__ge__), ("<", bytes.__lt__)):
            dataset = sawlog.open(str(file), format="leveldb_table", filters=[("key", op, key)])
            expected = [(k, v) for k, v in sorted(DATA.items()) if test(k, key)]
            assert make_put(dataset.to_table()) == expected, (op, key)
    from sawlog.format.damage import Findings

    findings = Findings("fail")
    dataset = sawlog.open(str(file), format="leveldb_table", filters=[("key", "=", sorted(DATA)[300])])
    for _ in dataset.fragments()[0].to_batches(findings):
        pass
    assert findings.notes["blocks_spared"] > 50


def test_of_leveldbs_tables_too_if_they_are_told_their_order(tmp_path: Path) -> None:
    (file,) = leveldb_tables(tmp_path / "db", DATA, block_size=256)
    ordered = {"format": "leveldb_table", "comparator": "leveldb.BytewiseComparator"}
    table = sawlog.read(str(file), **ordered)
    assert table.equals(sawlog.read(str(file)))
    key = sorted(DATA)[300]
    dataset = sawlog.open(str(file), filters=[("key", "=", key)], **ordered)
    assert make_put(dataset.to_table()) == [(key, DATA[key])]
    spared, blocks = map(int, re.findall(r"\d+", dataset.info()["skipped by filters"]))
    assert spared == blocks - 1 > 30
    unordered = sawlog.open(str(file), format="leveldb_table", filters=[("key", "=", key)])
    assert unordered.to_table().equals(dataset.to_table())
    assert unordered.info()["skipped by filters"] == f"0 of {blocks} data blocks"


def test_properties_of_rocksdb_are_read(tmp_path: Path) -> None:
    (file,) = rocksdb_tables(tmp_path / "db", DATA)
    rows = sawlog.read(str(file), format="leveldb_table", view="properties").to_pylist()
    properties = {row["name"]: row["value"] for row in rows}
    assert properties["rocksdb.num.entries"] == str(len(DATA))
    assert properties["rocksdb.comparator"] == "leveldb.BytewiseComparator"


def test_a_directory_of_tables_alone_is_recognised_and_a_database_is_its_log(tmp_path: Path) -> None:
    (file,) = leveldb_tables(tmp_path / "db", DATA)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / file.name).write_bytes(file.read_bytes())
    assert sawlog.open(alone).format.name == "leveldb_table"
    assert sawlog.open(file).format.name == "leveldb_table"
