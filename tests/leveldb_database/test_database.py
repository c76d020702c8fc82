"""A database read from its files gives what the database itself gives."""

from __future__ import annotations

import random
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

import sawlog
from sawlog import DamageError, IncompleteError, OptionError, SawlogError
from sawlog.format.damage import Findings

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

KEYS = 3000


def changes(count: int, seed: int = 1) -> list[tuple[bytes, bytes | None]]:
    """Puts and deletions, many on the same keys."""
    dice = random.Random(seed)
    return [
        (b"key%05d" % dice.randrange(KEYS), None if dice.random() < 0.2 else dice.randbytes(dice.randrange(60)))
        for _ in range(count)
    ]


def leveldb(path: Path) -> dict[bytes, bytes]:
    """A LevelDB of several levels and a log; what it holds."""
    with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=100_000, max_file_size=1 << 20) as database:
        for number, (key, value) in enumerate(changes(12_000)):
            if value is None:
                database.delete(key)
            else:
                database.put(key, value)
            if number == 6000:
                database.compact_range(stop=b"key01500")
        return dict(database)


def rocksdb(path: Path) -> dict[bytes, bytes]:
    """A RocksDB of several levels and a log, with range deletions; what it holds."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(100_000)
    options.set_max_bytes_for_level_base(300_000)
    options.set_target_file_size_base(60_000)
    options.set_compression_type(DBCompressionType.snappy())
    database = Rdict(str(path), options)
    for number, (key, value) in enumerate(changes(12_000)):
        if value is None:
            del database[key]
        else:
            database[key] = value
        if number % 400 == 0:
            database.delete_range(key, key[:-2] + b"99")
    # However far compactions have come: from here on older versions stay.
    database.set_options({"disable_auto_compactions": "true"})
    for key, value in changes(300, 2):
        database[key] = value or b""
    database.delete_range(b"key00100", b"key00110")
    database.flush()
    state = dict(database.items())
    database.close()
    return state


def read_state(path: Path, **options: object) -> list[tuple[bytes, bytes]]:
    table = sawlog.read(path, view="live", **options)
    return list(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))


@pytest.mark.parametrize("make", [leveldb, rocksdb])
def test_the_state_is_what_the_database_answers(tmp_path: Path, make: Callable[[Path], dict[bytes, bytes]]) -> None:
    path = tmp_path / "db"
    expected = make(path)
    assert read_state(path) == sorted(expected.items())
    dataset = sawlog.open(path, view="live")
    assert dataset.count_rows() == len(expected)
    for task_bytes in (1, 50_000):
        fragments = dataset.fragments(task_bytes)
        rows = [row for fragment in fragments for batch in fragment.to_batches() for row in batch.to_pylist()]
        assert [(row["key"], row["value"]) for row in rows] == sorted(expected.items())
    assert len(dataset.fragments(1)) > 1


@pytest.mark.parametrize("make", [leveldb, rocksdb])
@pytest.mark.parametrize("view", ["live", "all"])
@pytest.mark.nightly
def test_filters_on_the_key_read_the_blocks_that_may_hold_it(
    tmp_path: Path, make: Callable[[Path], dict[bytes, bytes]], view: str
) -> None:
    path = tmp_path / "db"
    make(path)
    table = sawlog.read(path, view=view)
    keys = [b"", b"key00000", b"key00104", b"key01500", b"key01500\0", b"key02999", b"z"]
    filters = [[("key", op, key)] for op in ("=", "<", ">=") for key in keys]
    filters += [[("key", ">", b"key00100"), ("key", "<=", b"key00111")], [("key", "in", [b"key01000", b"key02000"])]]
    for filter_ in filters:
        expected = table.filter(pq.filters_to_expression(filter_))
        for size in (None, 50_000):
            dataset = sawlog.open(path, view=view, filters=filter_)
            batches = [batch for fragment in dataset.fragments(size) for batch in fragment.to_batches()]
            assert pa.Table.from_batches(batches, dataset.schema).equals(expected), (filter_, size)
    skipped_count = sawlog.open(path, view=view, filters=[("key", "=", b"key01500")]).info()["skipped by filters"]
    spared, blocks = map(int, re.findall(r"\d+", skipped_count))
    assert blocks > spared > 0.8 * blocks
    assert "skipped by filters" not in sawlog.open(path, view=view).info()


@pytest.mark.parametrize("make", [leveldb, rocksdb])
def test_every_version_that_still_exists(tmp_path: Path, make: Callable[[Path], dict[bytes, bytes]]) -> None:
    path = tmp_path / "db"
    state = make(path)
    table = sawlog.read(path, view="all")
    rows = table.to_pylist()
    live = [(row["key"], row["value"]) for row in rows if row["live"]]
    assert live == sorted(state.items())
    assert len(rows) > len(live)
    # RocksDB's binding empties the log when it closes a database; LevelDB's leaves it to be read.
    assert (-1 in {row["level"] for row in rows}) == (make is leveldb)
    entries = sum(
        sawlog.read(file.file.path, format="leveldb_table").num_rows
        for file in sawlog.open(path, view="live").contents.version.tables
    )
    assert sum(row["level"] >= 0 for row in rows) == entries


def test_a_column_family_is_read_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = Rdict(str(path), Options(raw_mode=True))
    other_family = database.create_column_family("other", Options(raw_mode=True))
    batch = WriteBatch(raw_mode=True)
    batch.put(b"a", b"1")
    batch.put(b"a", b"2", database.get_column_family_handle("other"))
    database.write(batch)
    other_family.close()
    database.close()
    assert read_state(path) == [(b"a", b"1")]
    assert read_state(path, table="other") == [(b"a", b"2")]
    with pytest.raises(OptionError, match=r"no column family 'none'; there are: default, other"):
        read_state(path, table="none")


def test_a_damaged_table_costs_its_block_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    expected = leveldb(path)
    table = sawlog.open(path, view="live").contents.version.tables[0].file
    data = bytearray(Path(table.path).read_bytes())
    data[100] ^= 1
    Path(table.path).write_bytes(data)
    with pytest.raises(DamageError, match="checksum_mismatch"):
        read_state(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = read_state(path, on_damage="skip")
    assert 0 < len(set(expected.items()) - set(rows)) < 500
    report = sawlog.verify(path, format="leveldb_database")
    assert report.rows == len(rows)
    assert [file.path for file in report.files if file.damaged] == [table.path]
    assert all(file.account.total == file.size for file in report.files)
    (listed,) = sawlog.read(path, format="leveldb_database", view="damage").to_pylist()
    assert (listed["file"], listed["kind"]) == (table.path, "checksum_mismatch")


def test_a_database_without_one_of_its_tables_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "db"
    leveldb(path)
    Path(sawlog.open(path, view="live").contents.version.tables[0].file.path).unlink()
    with pytest.raises(IncompleteError, match="missing_file"):
        read_state(path)
    report = sawlog.verify(path, format="leveldb_database")
    assert (report.verdict, report.incomplete, report.damaged) == ("incomplete", True, False)


def test_a_file_that_goes_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "db"
    leveldb(path)
    dataset = sawlog.open(path, view="live")
    Path(dataset.contents.version.tables[0].file.path).unlink()
    with pytest.raises(SawlogError, match="has changed while it was read"):
        dataset.to_table()


def test_files_that_are_not_alive_are_told(tmp_path: Path) -> None:
    path = tmp_path / "db"
    leveldb(path)
    (path / "000001.ldb").write_bytes(b"old")
    dataset = sawlog.open(path, view="live")
    assert "the MANIFEST does not name it any more" in {file.reason for file in dataset.skipped if file.bytes == 3}


def test_damage_in_a_table_of_several_ranges_is_told_once(tmp_path: Path) -> None:
    """Of a table that reaches over ranges of keys, each range reads its share; the range of a block reports it."""
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    for part in range(4):
        keys = [b"%06d" % number for number in range(1000 * part, 1000 * part + 1000)]
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([b"old" * 9] * 1000, pa.binary())})
        sawlog.write(table, tmp_path / f"{part}.sst", format="leveldb_table", dialect="rocksdb", compression="none")
        database.ingest_external_file([str(tmp_path / f"{part}.sst")])
    for number in range(0, 4000, 4):
        database[b"%06d" % number] = b"new" * 20
    database.flush()
    database.close()
    dataset = sawlog.open(tmp_path / "db", view="live", on_damage="skip")
    (wide,) = {t.file.path for fragment in dataset.fragments() for t in fragment.tables if t.level == 0}
    data = Path(wide).read_bytes()
    blocks = sawlog.read(wide, format="leveldb_table", view="frames").to_pylist()
    for block in (block for block in blocks if block["name"] == "data"):
        Path(wide).write_bytes(data[: block["offset"] + 9] + b"?" + data[block["offset"] + 10 :])
        for task_bytes in (None, 16 << 10):
            damages = []
            parts = dataset.fragments(task_bytes)
            assert len(parts) > 4 if task_bytes else len(parts) == 1
            for fragment in parts:
                findings = Findings("skip")
                list(fragment.to_batches(findings))
                damages += findings.damages
            assert [damage.offset for damage in damages] == [block["offset"]]


SHOP = Path(__file__).parents[2] / "examples/data/shop"


def test_versions_of_a_key_in_several_files_of_one_level_are_one_row(tmp_path: Path) -> None:
    """LevelDB ends a file between two of them, where snapshots keep them."""
    sizes = {"write_buffer_size": 100_000, "max_file_size": 1 << 20}
    with plyvel.DB(str(tmp_path), create_if_missing=True, compression=None, **sizes) as database:
        for key in (b"a", b"z"):  # which take level 2, where the first file would go
            database.put(key, bytes(100_000))
        snapshots = []
        for number in range(4):
            database.put(b"k", bytes([number]) * 1_200_000)
            snapshots.append(database.snapshot())
        database.compact_range(start=b"b", stop=b"y")
        for snapshot in snapshots:
            snapshot.close()
    only = {"format": "leveldb_database", "filters": [("key", "==", b"k")]}
    entries = sawlog.read(tmp_path, view="all", **only)
    assert len(set(entries["file"].to_pylist())) == 4
    assert len(set(entries["level"].to_pylist())) == 1
    assert [value[0] for value in entries["value"].to_pylist()] == [3, 2, 1, 0]
    assert entries["live"].to_pylist() == [True, False, False, False]
    assert [value[0] for value in sawlog.read(tmp_path, **only)["value"].to_pylist()] == [3]


def test_short_and_long_files_of_one_level_are_handed_on(tmp_path: Path) -> None:
    """Nothing overlaps: rows come as they are stored, each with its file, also from a file that has few of them."""
    entries = {b"%06d" % number: b"%0100d" % number for number in range(20_000)}
    with plyvel.DB(str(tmp_path), create_if_missing=True, write_buffer_size=1 << 20, compression=None) as database:
        for number, (key, value) in enumerate(entries.items()):
            database.put(key, value)
            if number in (7000, 7500, 19_999):
                database.compact_range()
        assert dict(database) == entries
    rows = sawlog.read(tmp_path, view="all")
    counts = rows.group_by(["file", "level"]).aggregate([("key", "count")]).to_pydict()
    assert len(set(counts["level"])) == 1
    assert {500, 7001} < set(counts["key_count"])
    for table in (rows, sawlog.read(tmp_path)):
        assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == entries
    assert rows["live"].to_pylist() == [True] * len(entries)
    files = dict(zip(rows["key"].to_pylist(), rows["file"].to_pylist(), strict=True))
    assert len({files[b"%06d" % number] for number in range(7001, 7501)}) == 1
    assert files[b"007000"] != files[b"007001"] != files[b"007501"]


@pytest.mark.parametrize("view", ["rows", "all", "bedrock"])
def test_warnings_name_what_is_damaged_and_not_the_manifest(tmp_path: Path, view: str) -> None:
    database = Path(shutil.copytree(SHOP, tmp_path / "shop"))
    log = database / "000003.log"
    data = bytearray(log.read_bytes())
    data[50_000] ^= 0x20
    log.write_bytes(data[:-1])
    with warnings.catch_warnings(record=True) as warning_records:
        warnings.simplefilter("always")
        sawlog.read(database, view=view, on_damage="skip")
    damage, tail = [str(record.message) for record in warning_records if record.category is sawlog.DamageWarning]
    assert damage.startswith(f"{database}: skipped 15")
    assert tail.startswith(f"{database}: torn tail of ")
    assert tail.endswith("was not read: 000003.log: the file ends inside a fragment")


def test_the_latest_writes_of_several_logs_name_the_one_with_a_tail(tmp_path: Path) -> None:
    log = (SHOP / "000003.log").read_bytes()
    (tmp_path / "000003.log").write_bytes(log)
    (tmp_path / "000004.log").write_bytes(log[:99_999])
    with pytest.warns(sawlog.DamageWarning, match=r": torn tail of .*000004\.log: the file ends") as warning_records:
        sawlog.read(tmp_path, format="leveldb_log", view="writes", latest=True)
    assert "000003" not in str(warning_records[0].message)
