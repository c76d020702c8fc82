"""Profiles of browsers as ccl_chromium_reader and dfindexeddb read them: entry by entry, by sequence numbers."""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sawlog
from tests.interop.chromium.make_profiles import PORT, Pages, serve, visit

PROFILE = Path(__file__).parents[1] / "golden" / "leveldb_database" / "chromium-156"
DATABASE = PROFILE / "IndexedDB" / "http_127.0.0.1_8123.indexeddb.leveldb"
KINDS = {
    "ScopesPrefixKey": "global.scopes",
    "SchemaVersionKey": "global.schema_version",
    "DataVersionKey": "global.data_version",
    "MaxDatabaseIdKey": "global.max_database_id",
    "ActiveBlobJournalKey": "global.active_blob_journal",
    "RecoveryBlobJournalKey": "global.recovery_blob_journal",
    "DatabaseNameKey": "global.database_id",
    "DatabaseMetaDataKey": "database.",
    "ObjectStoreNamesKey": "database.object_store_id",
    "ObjectStoreMetaDataKey": "object_store.",
    "IndexMetaDataKey": "index.",
    "ObjectStoreDataKey": "record",
    "ExistsEntryKey": "exists",
    "BlobEntryKey": "external_objects",
    "IndexDataKey": "index_entry",
}
"""What dfindexeddb calls keys, and how the kinds of rows begin."""

NOT_ON_PYPI = "ccl_chromium_reader and ccl_simplesnappy are only at github.com/cclgroupltd"

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@cache
def ours(view: str, path: Path) -> dict[int, dict[str, Any]]:
    return {row["sequence"]: row for row in sawlog.read(path, view=view, history=True).to_pylist()}


@pytest.fixture(autouse=True)
def left_open() -> Iterator[None]:
    """Close the files that the readers leave open while Python does not warn of them."""
    yield
    gc.collect()


def test_dfindexeddb_finds_the_same_keys() -> None:
    """It refuses values of V8's version 16, and leaves their records out."""
    record = importlib.import_module("dfindexeddb.indexeddb.chromium.record")
    rows = ours("indexed_db", DATABASE)
    theirs = [entry for entry in record.FolderReader(DATABASE).GetRecords() if entry.sequence_number in rows]
    assert len(theirs) > 1000
    for their_record in theirs:
        row = rows[their_record.sequence_number]
        assert row["kind"].startswith(KINDS[type(their_record.key).__name__])
        prefix = their_record.key.key_prefix
        assert (row["database_id"] or 0) == prefix.database_id
        if prefix.object_store_id:
            assert row["object_store_id"] == prefix.object_store_id
        if type(their_record.key).__name__ == "ExistsEntryKey" and row["operation"] == "put":
            assert row["version"] == their_record.value
    missing_numbers = rows.keys() - {their_record.sequence_number for their_record in theirs}
    assert {rows[number]["kind"] for number in missing_numbers} <= {"record", "external_objects"}


def make_jsonable(value: Any) -> Any:
    """What ccl_chromium_reader gives for JSON."""
    if isinstance(value, dict):
        return {str(name): make_jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [make_jsonable(getattr(item, "value", item)) for item in value]
    return value


def test_ccl_chromium_reader_finds_the_same_records() -> None:
    """It refuses 14 of 99 values, as of maps that hold maps, and takes -5 for -4."""
    reader = pytest.importorskip("ccl_chromium_reader.ccl_chromium_indexeddb", reason=NOT_ON_PYPI)
    rows = {number: row for number, row in ours("indexed_db", DATABASE).items() if row["kind"] == "record"}
    database = reader.WrappedIndexDB(DATABASE, DATABASE.with_suffix(".blob"))
    compared = 0
    numbers = set()
    for store in (
        database[database_id.dbid_no][name]
        for database_id in database.database_ids
        for name in names(database, database_id)
    ):
        for theirs in store.iterate_records(bad_deserializer_data_handler=lambda *_: None):
            row = rows[theirs.ldb_seq_no]
            numbers.add(theirs.ldb_seq_no)
            assert row["object_store"] == store.name
            assert theirs.is_live == (row["operation"] == "put")
            if (
                row["value"] is not None
                and "$" not in row["value"]
                and isinstance(theirs.value, dict | list | str | int)
            ):
                document = json.loads(row["value"])
                assert make_jsonable(theirs.value) == (-4 if document == -5 else document)
                compared += 1
    assert len(numbers) >= len(rows) - 14
    assert compared > 30


def names(database: Any, database_id: Any) -> list[str]:
    return list(database[database_id.dbid_no].object_store_names)


def test_ccl_chromium_reader_finds_the_same_items() -> None:
    """It leaves out the value that is half of a surrogate pair."""
    reader = pytest.importorskip("ccl_chromium_reader.ccl_chromium_localstorage", reason=NOT_ON_PYPI)
    place = PROFILE / "Local Storage" / "leveldb"
    theirs = list(reader.LocalStoreDb(place).iter_all_records(include_deletions=True))
    rows = {number: row for number, row in ours("local_storage", place).items() if row["kind"] == "item"}
    for their_record in theirs:
        row = rows.pop(their_record.leveldb_seq_number)
        assert (row["storage_key"], row["key"], row["value"]) == (
            their_record.storage_key,
            their_record.script_key,
            their_record.value,
        )
    assert [row["key"] for row in rows.values()] == ["lone"]


def test_ccl_chromium_reader_finds_the_same_items_of_sessions() -> None:
    """It leaves out the value that is half of a surrogate pair."""
    reader = pytest.importorskip("ccl_chromium_reader.ccl_chromium_sessionstorage", reason=NOT_ON_PYPI)
    place = PROFILE / "Session Storage"
    store = reader.SessionStoreDb(place)
    rows = {number: row for number, row in ours("session_storage", place).items() if row["kind"] == "item"}
    for host in store.iter_hosts():
        for key, values in store.get_all_for_host(host).items():
            for value in values:
                row = rows.pop(value.leveldb_sequence_number)
                assert (row["storage_key"], row["key"], row["value"]) == (host, key, value.value)
    assert {row["key"] for row in rows.values()} <= {"lone", "gone"}


def installed() -> str:
    """Whichever Chromium is installed."""
    candidates = ("/usr/lib/chromium/chromium", shutil.which("chromium"), shutil.which("google-chrome"))
    chromium = next((candidate for candidate in candidates if candidate and os.path.exists(candidate)), None)
    if chromium is None:
        pytest.skip("there is no Chromium")
    return chromium


def without_manifest(database: Path) -> None:
    (database / "MANIFEST-000001").unlink()


def without_current(database: Path) -> None:
    without_manifest(database)
    (database / "CURRENT").write_bytes(b"")


@pytest.mark.parametrize("change", [without_manifest, without_current])
def test_chromium_opens_a_repaired_database(change: Callable[[Path], None], tmp_path: Path) -> None:
    """It shows every record, finds them by their indexes, and goes on counting where it was."""
    chromium = installed()
    shutil.copytree(PROFILE / "IndexedDB", tmp_path / "IndexedDB")
    change(tmp_path / "IndexedDB" / DATABASE.name)
    place = tmp_path / "profile" / "Default" / "IndexedDB"
    place.mkdir(parents=True)
    shutil.copytree(DATABASE.with_suffix(".blob"), place / DATABASE.with_suffix(".blob").name)
    sawlog.repair(tmp_path / "IndexedDB" / DATABASE.name, place / DATABASE.name)
    truth = json.loads((PROFILE / "truth.json").read_text())["indexed_db"]
    state = shown_by(chromium, tmp_path / "profile")
    for name in ("plain", "people", "nested", "key_values"):
        assert state[name] == truth[name]
    assert state["changes"] == {"b": {"third": 3}}
    assert (state["coders"], state["next"]) == (["Ada", "Grace"], 3)
    assert (state["wrapped"], state["blob"]) == (66000, "in a blob")


def shown_by(chromium: str, profile: Path) -> dict[str, Any]:
    """What a page shows of the database `values` of a profile."""
    site = Path(__file__).parent / "chromium"
    Pages.truth.clear()
    server = serve(site)
    try:
        visit(chromium, profile, site / "extension", f"http://127.0.0.1:{PORT}/repaired.html", {"repaired"})
    finally:
        server.shutdown()
        server.server_close()
    state: dict[str, Any] = Pages.truth["repaired"]
    return state


@pytest.mark.parametrize(
    ("maker", "tests"), [("profiles", "applications"), ("services", "chromium_services"), ("sites", "chromium_sites")]
)
def test_a_new_profile_is_what_its_pages_say(maker: str, tests: str, tmp_path: Path) -> None:
    """By whichever Chromium is installed."""
    folder, place = Path(__file__).parent, str(tmp_path / "profile")
    subprocess.run([sys.executable, str(folder / "chromium" / f"make_{maker}.py"), installed(), place], check=True)
    tests = str(folder.parent / "leveldb_database" / f"test_{tests}.py")
    environment = {**os.environ, f"SAWLOG_{maker.upper().removesuffix('S')}": place}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
