"""What is written is opened by LevelDB and RocksDB themselves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog import OptionError, SchemaError
from tests.leveldb_table.support import pairs

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

DATA = {**pairs(600), b"": b"empty key", b"long": b"x" * 9000, b"\xff" * 300: b""}


def table_of(data: dict[bytes, bytes]) -> pa.Table:
    keys = sorted(data)
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([data[key] for key in keys], pa.binary())})


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_leveldb_opens_what_is_written(tmp_path: Path, compression: str) -> None:
    directory = tmp_path / "db"
    directory.mkdir()
    rows = table_of(DATA).append_column("sequence", pa.array(range(1, len(DATA) + 1), pa.int64()))
    sawlog.write(rows, directory / "000005.ldb", format="leveldb_table", compression=compression)
    plyvel.repair_db(str(directory))
    with plyvel.DB(str(directory)) as database:
        assert dict(database) == DATA


@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "zstd"])
def test_rocksdb_ingests_what_is_written(tmp_path: Path, compression: str) -> None:
    file = tmp_path / "new.sst"
    sawlog.write(table_of(DATA), file, format="leveldb_table", dialect="rocksdb", compression=compression)
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    database.ingest_external_file([str(file)])
    assert dict(database.items()) == DATA
    database.close()


@pytest.mark.parametrize("dialect", ["leveldb", "rocksdb"])
@pytest.mark.parametrize("block_bytes", [1, 200, 4096])
def test_any_operations_are_read_as_they_were_written(tmp_path: Path, dialect: str, block_bytes: int) -> None:
    operations = (
        ["put", "delete"] if dialect == "leveldb" else ["put", "delete", "merge", "single_delete", "put_entity"]
    )
    keys = sorted(DATA)
    rows = pa.table(
        {
            "sequence": pa.array(range(len(keys)), pa.int64()),
            "operation": pa.array([operations[i % len(operations)] for i in range(len(keys))]),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([DATA[key] for key in keys], pa.binary()),
        }
    )
    file = tmp_path / "000001.ldb"
    options = {"dialect": dialect, "block_bytes": block_bytes, "restart_interval": 3}
    sawlog.write(rows, file, format="leveldb_table", **options)
    assert sawlog.read(file, format="leveldb_table").to_pylist() == rows.to_pylist()
    again = tmp_path / "000002.ldb"
    sawlog.write(sawlog.open(file), again, format="leveldb_table", **options)
    assert again.read_bytes() == file.read_bytes()


def test_versions_of_one_key_stand_newest_first(tmp_path: Path) -> None:
    rows = {"key": [b"a", b"a"], "value": [b"new", b"old"], "sequence": [2, 1]}
    file = tmp_path / "a.ldb"
    sawlog.write(pa.table(rows), file, format="leveldb_table")
    assert sawlog.read(file).column("value").to_pylist() == [b"new", b"old"]
    rows["sequence"] = [1, 2]
    with pytest.raises(SchemaError, match=r"column 'key', row 1: .* not in ascending order"):
        sawlog.write(pa.table(rows), tmp_path / "b.ldb", format="leveldb_table")
    assert not (tmp_path / "b.ldb").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"key": [b"b", b"a"]}, r"column 'key', row 1"),
        ({"key": [b"a", None]}, r"column 'key', row 1: a table cannot hold null"),
        ({"key": [b"a"], "operation": ["merge"]}, r"column 'operation', row 0: 'merge'"),
        ({"key": [b"a"], "operation": ["delete_range"]}, r"LevelDB has no delete_range"),
        ({"key": [b"a"], "sequence": [1 << 56]}, r"column 'sequence', row 0"),
        ({"key": [1]}, r"column 'key' is int64"),
        ({"value": [b"a"]}, r"holds key, value"),
    ],
)
def test_what_cannot_be_held_is_refused(tmp_path: Path, rows: dict[str, list[object]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        sawlog.write(pa.table(rows), tmp_path / "a.ldb", format="leveldb_table")
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match='needs dialect="rocksdb"'):
        sawlog.write(table_of(DATA), tmp_path / "a.ldb", format="leveldb_table", compression="lz4")


def test_range_deletes_are_written_and_read(tmp_path: Path) -> None:
    rows = {
        "sequence": [5, 7],
        "operation": ["put", "delete_range"],
        "key": [b"a", b"c"],
        "value": [b"1", b"d"],
    }
    file = tmp_path / "a.sst"
    sawlog.write(pa.table(rows), file, format="leveldb_table", dialect="rocksdb")
    assert sawlog.read(file, format="leveldb_table").to_pydict() == rows


def test_raw_keys_have_their_trailers(tmp_path: Path) -> None:
    """A database's keys with their trailers are what a raw reading gives."""
    file = tmp_path / "a.ldb"
    sawlog.write(pa.table({"key": [b"k"], "value": [b"v"], "sequence": [3]}), file, format="leveldb_table")
    raw = sawlog.read(file, format="leveldb_table", keys="raw")
    assert raw.to_pylist() == [{"key": b"k" + (3 << 8 | 1).to_bytes(8, "little"), "value": b"v"}]
