"""Databases whose logs and tables are not all in their directory: found, asked for, or missed, never left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog import IncompleteError
from sawlog.kernels.varints import encode_varint
from sawlog.leveldb.database.catalog import RemoteObject, read_remote_objects
from sawlog.storage import Storage
from tests.leveldb_database.support import GOLDEN, read_answers, read_live_state
from tests.support import write_records

LOGS = {
    "rocksdb-11.8.1-wal-dir": "waldir-wal",
    "pebble-2.1.7-wal-dir": "3-wal",
    "pebble-2.1.7-failover": "3-sec",
}
"""Databases that have logs elsewhere, and the last part of the path that their OPTIONS file names."""


@pytest.fixture(params=LOGS)
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a database without the logs that are elsewhere; those are in a directory `logs`."""
    name = request.param
    shutil.copytree(GOLDEN / name / "db", tmp_path / "copies" / "db")
    shutil.copytree(GOLDEN / name / LOGS[name], tmp_path / "logs")
    tmp_path.joinpath("name").write_text(name)
    return tmp_path


def read_expected(copied: Path) -> dict[bytes, bytes]:
    """What the engine answered."""
    return read_answers(GOLDEN / copied.joinpath("name").read_text() / "db.kv")


def named(copied: Path) -> str:
    """The last part of the path of the directory that the OPTIONS file names."""
    return LOGS[copied.joinpath("name").read_text()]


def test_logs_are_found_next_to_the_copy(copied: Path) -> None:
    copied.joinpath("logs").rename(copied / "copies" / named(copied))
    assert read_live_state(copied / "copies" / "db", "default") == read_expected(copied)


def test_logs_are_found_in_the_copy(copied: Path) -> None:
    """They are no files that a read leaves out."""
    copied.joinpath("logs").rename(copied / "copies" / "db" / named(copied))
    database = sawlog.open(copied / "copies" / "db", format="leveldb_database")
    assert read_live_state(copied / "copies" / "db", "default") == read_expected(copied)
    assert not any(file.path.endswith(".log") for file in database.skipped)
    report = database.report()
    assert not report.damaged
    assert {Path(file.path).suffix for file in report.files} == {"", ".log"}


def test_logs_are_found_where_the_options_name_them(copied: Path, tmp_path: Path) -> None:
    """As in a database that was not copied."""
    name = named(copied)
    (options,) = copied.glob("copies/db/OPTIONS-*")
    written = next(line for line in options.read_text().splitlines() if line.endswith(f"/{name}"))
    elsewhere = tmp_path / "disk" / name
    shutil.copytree(copied / "logs", elsewhere)
    options.write_text(options.read_text().replace(written, f"{written.partition('=')[0]}={elsewhere}"))
    assert read_live_state(copied / "copies" / "db", "default") == read_expected(copied)


def test_logs_that_are_not_found_are_missing(copied: Path) -> None:
    """The directory is named, and how to go on."""
    database = copied / "copies" / "db"
    with pytest.raises(IncompleteError, match=rf"{named(copied)}.*missing_file.*OPTIONS-\d+ says .*wal_dir="):
        sawlog.read(database, format="leveldb_database")
    report = sawlog.verify(database, format="leveldb_database")
    assert report.incomplete
    assert not report.damaged
    assert [kind for file in report.files for kind in file.kinds] == ["missing_file"]
    with pytest.warns(sawlog.DamageWarning, match="missing_file"):
        sawlog.read(database, format="leveldb_database", on_damage="skip")


def test_logs_where_the_caller_says(copied: Path) -> None:
    database = copied / "copies" / "db"
    for logs_option in (copied / "logs", str(copied / "logs"), [str(copied / "logs")]):
        assert read_live_state(database, "default", wal_dir=logs_option) == read_expected(copied)
    report = sawlog.verify(database, format="leveldb_database", wal_dir=copied / "logs")
    assert not report.damaged
    assert {Path(file.path).parent.name for file in report.files} == {"db", "logs"}


def test_a_directory_that_is_not_there(copied: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sawlog.read(copied / "copies" / "db", format="leveldb_database", wal_dir=copied / "nowhere")


def test_a_checkpoint_has_logs_of_its_own(copied: Path) -> None:
    """The database that it was taken of may be next to it, and goes on."""
    if named(copied) == "3-sec":
        pytest.skip("parts of logs are in both directories")
    database = copied / "copies" / "db"
    for log in copied.glob("logs/*.log"):
        shutil.copy(log, database)
        copied.joinpath("copies", named(copied)).mkdir()
        copied.joinpath("copies", named(copied), "000099.log").write_bytes(log.read_bytes())
    assert read_live_state(database, "default") == read_expected(copied)
    assert {Path(file.path).parent.name for file in sawlog.verify(database, format="leveldb_database").files} == {"db"}


def test_a_second_directory_may_be_empty(tmp_path: Path) -> None:
    """Pebble writes to it only while the first one is slow."""
    shutil.copytree(GOLDEN / "pebble-2.1.7-failover" / "db", tmp_path / "db")
    tmp_path.joinpath("3-sec").mkdir()
    rows = sawlog.read(tmp_path / "db", format="leveldb_database").num_rows
    assert 0 < rows < len(read_answers(GOLDEN / "pebble-2.1.7-failover" / "db.kv"))


def test_parts_of_a_log_have_some_batches_twice() -> None:
    """Which are read once, in every mode of recovery."""
    database = GOLDEN / "pebble-2.1.7-failover"
    parts = [database / "db" / "000002.log", database / "3-sec" / "000002-001.log"]
    writes = [sawlog.read(path, view="writes").filter(~_is_remark()).to_pylist() for path in parts]
    first, second = ([(row["sequence"], row["key"]) for row in rows] for rows in writes)
    assert set(first) & set(second)
    values = sawlog.read(database / "db", format="leveldb_database", view="all").to_pylist()
    versions = [(row["sequence"], row["key"]) for row in values]
    assert len(versions) == len(set(versions))
    assert set(versions) == {version for version in (*first, *second) if version[1] is not None}
    state = read_answers(database / "db.kv")
    assert read_live_state(database / "db", "default", recovery="point_in_time_recovery") == state


def _is_remark() -> object:
    import pyarrow.compute as pc

    return pc.field("operation") == "log_data"


def test_a_log_that_only_another_family_needs_is_not_left_out() -> None:
    """Files of all families are checked, whichever is read."""
    database = GOLDEN / "rocksdb-11.8.1-family-log" / "db"
    for table in ("default", "zweite"):
        report = sawlog.verify(database, format="leveldb_database", table=table)
        checked = {Path(file.path).name for file in report.files}
        assert {"000004.log", "000012.sst", "000014.sst", "000016.sst"} <= checked
        assert len(checked) == len(report.files)
        assert not {Path(file.path).name for file in report.skipped} & checked
        assert not report.damaged


def test_damage_in_a_table_of_another_family_is_found(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "rocksdb-11.8.1-family-log" / "db", tmp_path / "db")
    for name in ("000012.sst", "000016.sst"):
        path = tmp_path / "db" / name
        data = path.read_bytes()
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    for table in ("default", "zweite"):
        report = sawlog.verify(tmp_path / "db", format="leveldb_database", table=table)
        damaged = {Path(file.path).name for file in report.files if file.damaged}
        assert damaged == {"000012.sst", "000016.sst"}
        rows = sawlog.read(tmp_path / "db", format="leveldb_database", view="damage", table=table)
        assert {Path(path).name for path in rows["file"].to_pylist()} == damaged


def test_tables_where_the_caller_says(tmp_path: Path) -> None:
    """RocksDB's OPTIONS files do not name `db_paths` and `cf_paths`."""
    source = GOLDEN / "rocksdb-11.8.1-cf-paths"
    with pytest.raises(IncompleteError, match=r"000009: missing_file.*paths="):
        sawlog.read(source / "db", format="leveldb_database")
    assert read_live_state(source / "db", "default", paths=source / "db-cf") == read_answers(source / "tables.kv")
    report = sawlog.verify(source / "db", format="leveldb_database", paths=str(source / "db-cf"))
    assert not report.damaged
    assert "000009.sst" in {Path(file.path).name for file in report.files}


STACKED = GOLDEN / "rocksdb-11.8.1-stacked-blobdb" / "db"


def test_blob_files_of_a_stacked_blobdb_are_its_own() -> None:
    """No MANIFEST names them."""
    database = sawlog.open(STACKED)
    assert [Path(file.path).suffix for file in database.skipped] == [""]
    assert "000001.blob" in {Path(file.path).name for file in database.report().files}


def test_a_value_that_expires_may_be_in_its_entry(tmp_path: Path) -> None:
    """After the time when it does; in a row of its own it is only the value."""
    shutil.copytree(STACKED, tmp_path / "db")
    values = [b"", b"value", b"\x80" * 9]
    stored = [b"\0" + encode_varint(2_000_000_000 << shift) + value for shift, value in enumerate(values)]
    columns = {
        "key": [b"a", b"b", b"c"],
        "value": stored,
        "operation": ["put_blob_index"] * 3,
        "column_family": [0] * 3,
    }
    last = max(sawlog.read(STACKED, view="all")["sequence"].to_pylist())
    log = pa.table({"sequence": [last + 1 + number for number in range(3)], **columns})
    sawlog.write(
        log, tmp_path / "db" / "000005.log", format="leveldb_log", view="writes", dialect="rocksdb", log_number=5
    )
    live_state = read_live_state(tmp_path / "db", "default")
    assert [live_state[key] for key in (b"a", b"b", b"c")] == values
    assert not sawlog.verify(tmp_path / "db").damaged


@pytest.mark.parametrize("length", [29, 31, 40, 100, 200])
def test_a_blob_file_that_is_being_written(length: int, tmp_path: Path) -> None:
    """It ends anywhere; values before that are read, and those after it are lost."""
    shutil.copytree(STACKED, tmp_path / "db")
    path = tmp_path / "db" / "blob_dir" / "000001.blob"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.warns(sawlog.DamageWarning, match="bad_blob"):
        rows = sawlog.read(tmp_path / "db", format="leveldb_database", on_damage="skip").num_rows
    assert rows < len(read_answers(STACKED.parent / "db.kv"))
    kinds = {kind for file in sawlog.verify(tmp_path / "db").files for kind in file.kinds}
    assert kinds == ({"bad_blob"} if length >= 30 else {"bad_blob", "bad_blob_part"})


def object_name(creator: int, number: int) -> str:
    """The name of a table in Pebble's remote storage."""
    return f"{creator * 7459 + number * 17539 & 0xFFFF:04x}-{creator}-{number:06d}.sst"


def catalog(database: Path, records: list[bytes]) -> None:
    """Write what Pebble has in remote storage."""
    name = "REMOTE-OBJ-CATALOG-000001"
    log = database / "000099.log"
    write_records(log, records)
    log.rename(database / name)
    database.joinpath(f"marker.remote-obj-catalog.000001.{name}").touch()


def with_objects(tmp_path: Path, locator: str, custom: str) -> tuple[Path, dict[bytes, bytes]]:
    """A database whose tables are objects in the directory `remote`, and what it holds."""
    source = GOLDEN.parent / "leveldb_table" / "pebble" / "22-plain"
    shutil.copytree(source, tmp_path / "db")
    state = read_live_state(source, "default")
    records = [b"", b"\x03\x07"]
    for path in tmp_path.glob("db/*.sst"):
        number = int(path.stem)
        name = f"{custom}{number}" if custom else object_name(7, number)
        target = tmp_path / "remote" / name
        target.parent.mkdir(exist_ok=True, parents=True)
        path.rename(target)
        custom_name = b"\x05" + encode_varint(len(name)) + name.encode() if custom else b""
        new = b"\x01" + encode_varint(number) + b"\x01\x07" + encode_varint(number)
        records += [new + b"\x00\x04" + encode_varint(len(locator)) + locator.encode() + custom_name + b"\x00"]
    catalog(tmp_path / "db", [*records, b"\x01\x63\x01\x07\x63\x00\x00\x02\x63"])
    return tmp_path / "db", state


@pytest.mark.parametrize("custom", ["", "obj2", "a/b.sst"])
def test_objects_in_remote_storage_are_read(custom: str, tmp_path: Path) -> None:
    """The catalog names them; a directory that holds them is given."""
    _, state = with_objects(tmp_path, "loc", custom)
    with pytest.raises(IncompleteError, match=rf"CATALOG-000001 says .*{custom or '-7-'}.*'loc'.*paths="):
        sawlog.read(tmp_path / "db", format="leveldb_database")
    assert read_live_state(tmp_path / "db", "default", paths=tmp_path / "remote") == state
    report = sawlog.verify(tmp_path / "db", format="leveldb_database", paths=tmp_path / "remote")
    assert not report.damaged
    assert not report.incomplete


@pytest.mark.parametrize("locator", ["remote", "/mnt/remote", "nodelocal://1/backups/remote", "in it", "as written"])
def test_objects_are_found_where_the_catalog_says(locator: str, tmp_path: Path) -> None:
    """The locator leads to a directory next to the database, in it, in the same place, or at the path itself."""
    target = {"in it": tmp_path / "db" / "in it", "as written": tmp_path / "a" / "b" / "c"}.get(locator)
    database, state = with_objects(tmp_path, str(target) if locator == "as written" else locator, "obj")
    if target is not None:
        target.parent.mkdir(exist_ok=True, parents=True)
        tmp_path.joinpath("remote").rename(target)
    assert read_live_state(database, "default") == state
    report = sawlog.verify(database, format="leveldb_database")
    assert not report.damaged
    assert not report.incomplete
    path = next((target or tmp_path / "remote").iterdir())
    path.unlink()
    with pytest.raises(IncompleteError, match=f"{path.name}.* in the remote storage .*paths="):
        sawlog.read(database, format="leveldb_database")


def remote_objects(directory: Path) -> dict[int, RemoteObject]:
    return read_remote_objects(Storage().list_files(directory), Storage())


def test_a_catalog_of_pebble() -> None:
    """Pebble has written it, with objects that it shares, and with one that it has taken in."""
    objects = remote_objects(GOLDEN / "pebble-2.1.7-remote" / "shared")
    assert objects == {
        number: RemoteObject("REMOTE-OBJ-CATALOG-000001", "loc", object_name(1, number)) for number in (5, 7)
    }
    objects = remote_objects(GOLDEN / "pebble-2.1.7-remote" / "external")
    assert objects == {10: RemoteObject("REMOTE-OBJ-CATALOG-000001", "loc", "obj2")}


@pytest.mark.parametrize("length", range(1, 13))
def test_a_catalog_that_is_cut(length: int, tmp_path: Path) -> None:
    record = b"\x01\x05\x01\x01\x05\x00\x04\x03loc\x00"
    tmp_path.joinpath("db").mkdir()
    catalog(tmp_path / "db", [record[:length]])
    assert len(remote_objects(tmp_path / "db")) == (length == len(record))


def test_an_object_outside_of_the_directory_is_not_read() -> None:
    for name in ("../x", "/x", "a/../../x", ""):
        assert not RemoteObject("", "", name).is_below
