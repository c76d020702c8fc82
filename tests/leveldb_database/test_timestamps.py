"""Keys with timestamps, which a RocksDB wrote: see `tests/interop/rocksdb_timestamps.py`."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import OptionError, SchemaError
from sawlog.leveldb.log.walk import StampSizes
from tests.leveldb_database.support import read_answers, read_live_state
from tests.support import write_records

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_table"
DATABASE = GOLDEN / "timestamps"
DRAWN = Path(__file__).parents[1] / "golden" / "leveldb_database"
STRIPPED = DRAWN / "rocksdb-11.8.1-udt-not-persisted" / "db"
CASES = ["udt-ranges", "udt-not-persisted", "udt-enabled-later", "udt-disabled-later"]


def list_answers() -> list[tuple[bytes, int, bytes]]:
    """What RocksDB answered, key by key."""
    state = {}
    for turn in range(3):
        for number in range(200):
            key, stamp = b"key%03d" % number + bytes(number % 3), 10 * (turn + 1) + number % 5
            if number % 7 != turn:
                state[key] = stamp, b"v%d.%d" % (number, turn)
            elif turn:
                state.pop(key, None)
    return [(key, *state[key]) for key in sorted(state)]


def test_the_newest_version_of_each_key() -> None:
    rows = sawlog.read(DATABASE, format="leveldb_database", view="live").to_pylist()
    assert [(row["key"], row["timestamp"], row["value"]) for row in rows] == list_answers()
    table = sawlog.read(DATABASE, format="leveldb_database", columns=["timestamp"], filters=[("key", ">=", b"key150")])
    assert table["timestamp"].to_pylist() == [stamp for key, stamp, _ in list_answers() if key >= b"key150"]


def test_every_version_is_read() -> None:
    rows = sawlog.read(DATABASE, format="leveldb_database", view="all").to_pylist()
    assert len(rows) == 3 * 200 - 29
    assert rows == sorted(rows, key=lambda row: (row["key"], -row["timestamp"]))
    assert {row["operation"] for row in rows} == {"put", "delete"}


def test_timestamps_of_a_table_stand_in_a_column() -> None:
    table = min(DATABASE.glob("*.sst"))
    whole_rows, apart = sawlog.read(table).to_pylist(), sawlog.read(table, keys="stamped").to_pylist()
    for row, split in zip(whole_rows, apart, strict=True):
        assert row["key"] == split["key"] + split["timestamp"].to_bytes(8, "little")
    picked = sawlog.read(table, keys="stamped", filters=[("key", "=", b"key003")]).to_pylist()
    assert picked == [row for row in apart if row["key"] == b"key003"]
    assert len(picked) == 1


def test_keys_that_have_none_are_refused(tmp_path: Path) -> None:
    sawlog.write(sawlog.read(min(DATABASE.glob("*.sst"))).slice(0, 0), tmp_path / "a.sst", format="leveldb_table")
    assert sawlog.read(tmp_path / "a.sst", keys="stamped").num_rows == 0

    sawlog.write(pa.table({"key": [b"short"], "value": [b""]}), tmp_path / "b.ldb", format="leveldb_table")
    with pytest.raises(SchemaError, match="has no timestamp"):
        sawlog.read(tmp_path / "b.ldb", keys="stamped")


def test_timestamps_that_a_table_does_not_have_are_zero() -> None:
    table = min(STRIPPED.glob("*.sst"))
    whole_rows, apart = sawlog.read(table).to_pylist(), sawlog.read(table, keys="stamped").to_pylist()
    assert [{**row, "timestamp": 0} for row in whole_rows] == apart
    key = apart[-1]["key"]
    picked = sawlog.read(table, keys="stamped", filters=[("key", "=", key)]).to_pylist()
    assert picked == [row for row in apart if row["key"] == key]


def test_range_deletions_of_a_table_end_in_no_timestamp() -> None:
    table = min((DRAWN / "rocksdb-11.8.1-udt-ranges" / "db").glob("*.sst"))
    (row,) = sawlog.read(table, keys="stamped", filters=[("operation", "=", "delete_range")]).to_pylist()
    assert len(row["key"]) == len(row["value"]) == len("key00000")
    assert row["timestamp"]


def test_logs_have_timestamps_that_tables_do_not_keep() -> None:
    rows = sawlog.read(STRIPPED, format="leveldb_database", view="all", table="zweite").to_pylist()
    stamps = {row["level"]: row["timestamp"] for row in rows}
    assert stamps[-1] > 0
    assert stamps[0] == 0
    assert {len(row["key"]) for row in rows} == {len("key00000")}


@pytest.mark.parametrize("case", CASES)
def test_a_repaired_database_keeps_its_timestamps(case: str, tmp_path: Path) -> None:
    place = DRAWN / f"rocksdb-11.8.1-{case}"
    sawlog.repair(place / "db", tmp_path / "copy", format="leveldb_database")
    for suffix, table in ((".kv", "default"), (".kv2", "zweite")):
        assert read_live_state(tmp_path / "copy", table) == read_answers(place / f"db{suffix}")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["absolute_consistency", "point_in_time_recovery"])
def test_sound_logs_are_replayed_in_every_mode(case: str, mode: str) -> None:
    place = DRAWN / f"rocksdb-11.8.1-{case}"
    for suffix, table in ((".kv", "default"), (".kv2", "zweite")):
        assert read_live_state(place / "db", table, recovery=mode) == read_answers(place / f"db{suffix}")


@pytest.mark.parametrize("case", CASES)
def test_ranges_of_keys_are_together_all_of_them(case: str) -> None:
    place = DRAWN / f"rocksdb-11.8.1-{case}" / "db"
    keys = sorted(set(sawlog.read(place, format="leveldb_database")["key"].to_pylist()))
    values = sawlog.read(place, format="leveldb_database").to_pylist()
    middle = keys[len(keys) // 2]
    low, high = (
        sawlog.read(place, format="leveldb_database", filters=[("key", op, middle)]).to_pylist() for op in ("<", ">=")
    )
    assert low + high == values
    dataset = sawlog.open(place, format="leveldb_database")
    parts = [pickle.loads(pickle.dumps(part)).to_batches() for part in dataset.fragments(task_bytes=1)]
    assert [row for part in parts for batch in part for row in batch.to_pylist()] == values


def test_the_manifest_says_which_tables_have_no_timestamps() -> None:
    (manifest,) = (DRAWN / "rocksdb-11.8.1-udt-enabled-later" / "db").glob("MANIFEST-*")
    edits = sawlog.read(manifest, format="leveldb_log", view="edits").to_pylist()
    assert [row["timestamps_persisted"] for row in edits if row["comparator"]] == [False, False]
    files = sawlog.read(manifest, format="leveldb_log", view="files").to_pylist()
    assert {row["timestamps_persisted"] for row in files} == {False}


def test_sizes_of_timestamps_count_from_where_a_log_says_them() -> None:
    sizes = StampSizes()
    families, offsets = np.array([0, 1, 7, 1, 0]), np.array([5, 5, 5, 500, 500])
    assert sizes.of(families, offsets).tolist() == [0] * 5
    sizes.add(100, bytes([1, 0, 0, 0, 8, 0, 7, 0, 0, 0, 16, 0, 9]))
    sizes.add(0, bytes([7, 0, 0, 0, 8, 0]))
    assert sizes.of(families, offsets).tolist() == [0, 0, 8, 8, 0]
    assert sizes.of(np.array([7, 7, 8]), np.array([99, 101, 101])).tolist() == [8, 16, 0]


@pytest.mark.parametrize("case", [*CASES, "family-reverse"])
def test_a_repaired_table_keeps_its_order(case: str, tmp_path: Path) -> None:
    for table in (DRAWN / f"rocksdb-11.8.1-{case}" / "db").glob("*.sst"):
        copy = tmp_path / table.name
        sawlog.repair(table, copy)
        assert sawlog.read(copy).equals(sawlog.read(table))
        assert sawlog.read(copy, keys="stamped").equals(sawlog.read(table, keys="stamped"))


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("case", [*CASES, "commit-with-timestamp"])
def test_timestamps_of_logs_stand_in_a_column(case: str) -> None:
    options = {"format": "leveldb_log", "view": "writes"}
    place = DRAWN / f"rocksdb-11.8.1-{case}" / "db"
    values = sawlog.read(place, **options).to_pylist()
    dataset = sawlog.open(place, keys="stamped", **options)
    parts = [
        row for part in dataset.fragments(task_bytes=1) for batch in part.to_batches() for row in batch.to_pylist()
    ]
    assert parts == dataset.to_table().to_pylist()
    for row, split in zip(values, parts, strict=True):
        stamp = split.pop("timestamp")
        end = b"" if stamp is None else stamp.to_bytes(8, "little")
        split["key"] = split["key"] and split["key"] + end
        if split["operation"] == "delete_range":
            split["value"] += end
        assert row == split


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
def test_keys_of_a_log_have_timestamps_where_it_says_so() -> None:
    logs = DRAWN / "rocksdb-11.8.1-udt-enabled-later" / "db"
    options = {"format": "leveldb_log", "view": "writes", "keys": "stamped"}
    stamped = {log.name: set(sawlog.read(log, **options)["timestamp"].to_pylist()) for log in logs.glob("*.log")}
    assert stamped["000010.log"] == {None}, "it is older"
    assert all(None not in stamps for name, stamps in stamped.items() if name != "000010.log")
    latest = sawlog.read(logs, latest=True, columns=["column_family", "key"], **options)
    assert len(latest) == len({tuple(row.values()) for row in latest.to_pylist()})
    assert {len(key) for key in latest["key"].to_pylist()} == {len("key00000")}


def test_timestamps_of_logs_are_for_operations_of_whole_logs() -> None:
    log = min((DRAWN / "rocksdb-11.8.1-udt-ranges" / "db").glob("*.log"))
    with pytest.raises(OptionError, match="for the view 'writes'"):
        sawlog.open(log, format="leveldb_log", keys="stamped")
    with pytest.raises(OptionError, match="cannot be followed"):
        list(sawlog.open(log, format="leveldb_log", view="writes", keys="stamped").watch().look())


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
def test_keys_of_a_log_are_split_whichever_columns_are_read() -> None:
    options = {"format": "leveldb_log", "view": "writes", "keys": "stamped"}
    place = DRAWN / "rocksdb-11.8.1-udt-ranges" / "db"
    table = sawlog.read(place, **options)
    for name in ("key", "value", "operation", "timestamp"):
        assert sawlog.read(place, columns=[name], **options).equals(table.select([name]))
    result_table = sawlog.read(place, columns=["key"], filters=[("timestamp", ">", 3)], **options)
    assert result_table["key"].to_pylist() == [row["key"] for row in table.to_pylist() if row["timestamp"] > 3]


def test_values_in_blob_files_of_before_timestamps_were_switched_off(tmp_path: Path) -> None:
    """As the MANIFEST would say: RocksDB itself does not find these values then."""
    shutil.copytree(STRIPPED, tmp_path / "db")
    (manifest,) = (tmp_path / "db").glob("MANIFEST-*")
    name = b"leveldb.BytewiseComparator"
    records = [
        record.replace(bytes([len(name) + 6]) + name + b".u64ts", bytes([len(name)]) + name)
        for record in sawlog.read(manifest, format="leveldb_log")["record"].to_pylist()
    ]
    write_records(manifest, records)
    for suffix, table in ((".kv", "default"), (".kv2", "zweite")):
        expected = {key[:-8]: value for key, value in read_answers(STRIPPED.parent / f"db{suffix}").items()}
        assert read_live_state(tmp_path / "db", table) == expected
        operations = sawlog.read(tmp_path / "db", format="leveldb_database", table=table)["operation"].to_pylist()
        assert ("put_blob_index" in operations) == (table == "zweite")
        assert sawlog.verify(tmp_path / "db", format="leveldb_database", table=table).verdict == "clean"


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("case", CASES)
def test_timestamps_are_known_without_a_manifest(case: str, tmp_path: Path) -> None:
    """Tables and logs say it, and logs that tables have replaced are read, too, with the times of entries."""
    place = DRAWN / f"rocksdb-11.8.1-{case}"
    shutil.copytree(place / "db", tmp_path / "db")
    for path in [tmp_path / "db" / "CURRENT", *(tmp_path / "db").glob("MANIFEST-*")]:
        path.unlink()
    for suffix, table in ((".kv", "default"), (".kv2", "zweite")):
        expected, live_state = (
            read_answers(place / f"db{suffix}"),
            read_live_state(tmp_path / "db", table, on_damage="skip"),
        )
        assert {len(key) for key in live_state} == {len(key) for key in expected}
        keys = [{key[: len("key00000")]: value for key, value in rows.items()} for rows in (expected, live_state)]
        assert keys[0] == keys[1]
