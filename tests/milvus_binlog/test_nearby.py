"""Metadata that is next to the logs is found, used, and said."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

import sawlog
from sawlog.cli.app import app
from sawlog.errors import IncompleteError
from sawlog.milvus.metadata import nearby
from sawlog.milvus.metadata.load import Metadata, load
from sawlog.storage import Storage
from tests.milvus_binlog.support import GOLDEN, copy_root, read_rows, unpack_etcd
from tests.storage.minio.maker import StoredVersion, format_drives, put

COLLECTION = "470611412203077890"


def run(verb: str, *arguments: object) -> str:
    """Run a command; return what it prints."""
    result = CliRunner().invoke(app, [verb, *map(str, arguments)], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    return result.output


def read_expected() -> Any:
    return sawlog.read(GOLDEN / "2.3.5", table="alltypes", metadata=str(GOLDEN / "2.3.5" / "etcd.json"))


PLACES = {
    "volumes/minio/a-bucket/files": "volumes/etcd",
    "volumes/milvus/data": "volumes/milvus/etcd",
    "milvus/data": "milvus/embedded/default.etcd",
    "files": "etcd-data",
    "server/files": "server/etcd/default.etcd",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_data_directory_next_to_the_logs_is_used(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = copy_root("2.3.5", tmp_path / "all" / place)
    data = PLACES[place].replace("embedded/", "")
    unpack_etcd(tmp_path / "all" / data)
    for path in (files, files / "insert_log" / COLLECTION, tmp_path / "all"):
        rows, warned = read_rows(path, table="alltypes")
        assert rows.equals(read_expected())
        assert warned == []
    assert f"{data}/member/snap/db" in run("info", files)
    rows, warned = read_rows(files, table=COLLECTION, metadata="none")
    assert rows.schema.names[0] != "pk"
    assert "give metadata=" in warned[0]
    monkeypatch.chdir(files)
    assert read_rows(Path("insert_log"), table="alltypes")[0].equals(read_expected())


def test_a_listing_sees_it(tmp_path: Path) -> None:
    copy_root("2.3.5", tmp_path / "all" / "minio" / "bucket" / "files")
    unpack_etcd(tmp_path / "all" / "etcd")
    listed = run("ls", tmp_path / "all")
    assert "default.alltypes, 996 rows" in listed
    assert "unknown" not in listed
    assert "give metadata=" not in listed


@pytest.mark.parametrize("above", ["", "..", "../.."])
def test_a_dump_next_to_the_logs_is_used(tmp_path: Path, above: str) -> None:
    files = copy_root("2.3.5", tmp_path / "a" / "b" / "files")
    shutil.copy(GOLDEN / "2.3.5" / "etcd.json", files / above / "etcd.json")
    assert read_rows(files, table="alltypes") == (read_expected(), [])


def test_the_metadata_of_a_backup_is_used_from_within(tmp_path: Path) -> None:
    table = sawlog.read(GOLDEN / "2.3.5", table="strpk", metadata=str(GOLDEN / "2.3.5" / "etcd.json"))
    sawlog.write(table, tmp_path / "backup", format="milvus_binlog", tree="backup", collection_name="named")
    rows, warned = read_rows(tmp_path / "backup" / "binlogs" / "insert_log")
    assert (rows.schema.names, warned) == (table.schema.names, [])


def changed_dump(**segment: Any) -> str:
    """A dump of the server with a segment less."""
    dump = json.loads((GOLDEN / "2.3.5" / "etcd.json").read_text())
    keys = [key for key in dump if f"datacoord-meta/s/{COLLECTION}" in key]
    del dump[keys[0]], segment
    return json.dumps(dump)


def test_of_two_that_contradict_it_is_said_which_was_taken(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "all" / "files")
    unpack_etcd(tmp_path / "all" / "etcd")
    (tmp_path / "all" / "etcd.json").write_text((GOLDEN / "2.3.5" / "etcd.json").read_text())
    assert read_rows(files, table="alltypes") == (read_expected(), [])
    (tmp_path / "all" / "etcd.json").write_text(changed_dump())
    rows, warned = read_rows(files, table="alltypes")
    assert rows.equals(read_expected())
    assert len(warned) == 1
    assert f"etcd/member/snap/db was taken as metadata, and {tmp_path}/all/etcd.json contradicts it" in warned[0]
    assert f"collection {COLLECTION} has the live segments" in warned[0]
    assert "contradicts" in run("info", files)
    (files / "etcd.json").write_text(changed_dump())  # nearer
    rows, warned = read_rows(files, table="alltypes")
    assert 0 < rows.num_rows < read_expected().num_rows
    assert len(warned) == 1
    assert f"{files}/etcd.json was taken as metadata" in warned[0]


def test_metadata_of_others_is_not_used(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "all" / "files")
    shutil.copy(GOLDEN / "2.1.0" / "etcd.json", tmp_path / "all" / "etcd.json")
    (files / "etcd.json").write_text('{"some": "thing"}')
    _, warned = read_rows(files, table=COLLECTION)
    assert len(warned) == 1
    assert "give metadata=" in warned[0]
    result = run("info", files)
    assert "all/etcd.json (dump of an etcd) is not used: it names none of these" in result
    assert f"not used: {files}/etcd.json: the value of 'some'" in result


def test_a_cut_database_next_to_the_logs_is_told(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "all" / "files")
    unpack_etcd(tmp_path / "all" / "etcd")
    database = tmp_path / "all" / "etcd" / "member" / "snap" / "db"
    database.write_bytes(database.read_bytes()[:20480])
    with pytest.raises(IncompleteError, match=r"etcd/member/snap/db: cut_metadata at byte 20480"):
        sawlog.read(files, table="alltypes")
    (tmp_path / "all" / "etcd.json").write_text((GOLDEN / "2.3.5" / "etcd.json").read_text())
    rows, warned = read_rows(files, table="alltypes")  # a whole one is better
    assert rows.equals(read_expected())
    assert warned == [text for text in warned if "etcd/member/snap/db" in text and "is not used" in text] != []


def test_collections_that_it_does_not_name_are_told(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "all" / "files")
    copy_root("2.3.5-multi", tmp_path / "other")
    shutil.copytree(tmp_path / "other", files, dirs_exist_ok=True)
    unpack_etcd(tmp_path / "all" / "etcd")
    rows, warned = read_rows(files, table="alltypes")
    assert rows.equals(read_expected())
    assert any("it does not name the collections" in text and "metadata=none" in text for text in warned)


def test_a_value_that_is_no_text_is_none(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "files")
    (files / "etcd.json").write_text(json.dumps({"a": base64.b64encode(b"b").decode()}))
    assert "no collection in these 1 keys" in run("info", files)


def test_metadata_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = copy_root("2.3.5", tmp_path / "all" / "files")
    unpack_etcd(tmp_path / "all" / "etcd")
    paths: list[str] = []

    def counted(path: str, storage: Storage) -> Metadata:
        paths.append(path)
        return load(path, storage)

    monkeypatch.setattr(nearby, "load", counted)
    assert sawlog.verify(files).rows == 1226  # of three collections
    assert len(paths) == 1


@pytest.mark.parametrize("metadata", ["etcd", "object"])
def test_volumes_of_a_server_that_does_not_start(tmp_path: Path, metadata: str) -> None:
    volumes = tmp_path / "volumes"
    format_drives([volumes / "minio"])
    files = [file for file in copy_root("2.3.5", tmp_path / "bare").rglob("*") if file.is_file()]
    for file in files:
        put(
            volumes / "minio",
            f"a-bucket/files/{file.relative_to(tmp_path / 'bare')}",
            StoredVersion([file.read_bytes()]),
        )
    if metadata == "etcd":
        unpack_etcd(volumes / "etcd")
    else:
        put(volumes / "minio", "a-bucket/etcd.json", StoredVersion([(GOLDEN / "2.3.5" / "etcd.json").read_bytes()]))
    for path in (volumes, volumes / "minio", volumes / "minio" / "a-bucket" / "files"):
        rows, warned = read_rows(path, table="alltypes")
        assert rows.equals(read_expected())
        assert warned == []
    listed = run("ls", volumes)
    assert "default.alltypes, 996 rows" in listed
    assert "give metadata=" not in listed
    assert sawlog.verify(volumes).verdict == "clean"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A store with the logs, a dump above them, and an etcd elsewhere."""
    copy_root("2.3.5", tmp_path / "store" / "bucket" / "files")
    shutil.copy(GOLDEN / "2.3.5" / "etcd.json", tmp_path / "store" / "bucket" / "etcd.json")
    unpack_etcd(tmp_path / "store" / "server" / "data")
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/store/", "/nearby/", recursive=True)
    yield "memory://nearby"
    memory.rm("/nearby", recursive=True)


def test_the_data_directory_of_an_etcd_is_found_in_a_remote_store(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.rm("/nearby/bucket/etcd.json")
    memory.mv("/nearby/server/data", "/nearby/bucket/etcd", recursive=True)
    exists = Storage.exists

    def guarded(storage: Storage, path: str, **options: bool) -> bool:
        if "/nearby/etcd" in str(path):
            raise PermissionError(path)
        return exists(storage, path, **options)

    monkeypatch.setattr(Storage, "exists", guarded)
    rows, warned = read_rows(f"{remote}/bucket/files", table="alltypes")
    assert rows.equals(read_expected())
    assert warned == []
    assert "/nearby/bucket/etcd/member/snap/db" in run("info", f"{remote}/bucket/files")


def test_metadata_in_a_remote_store(remote: str) -> None:
    files = f"{remote}/bucket/files"
    for options in ({}, {"metadata": f"{remote}/server/data"}, {"metadata": f"{remote}/server/data/member/snap/db"}):
        rows, warned = read_rows(files, table="alltypes", **options)
        assert rows.equals(read_expected())
        assert warned == []
