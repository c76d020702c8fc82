"""Keys of an etcd that was killed: those that it had answered with, and rows of Milvus as with a dump of it."""

from __future__ import annotations

import base64
import json
import lzma
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.errors import IncompleteError, OptionError
from sawlog.milvus import layout
from sawlog.milvus.etcd.member import find_database, read_member
from sawlog.storage import Storage
from tests.interop.etcd_server import Etcd, etcd
from tests.milvus_binlog.support import GOLDEN, manifest
from tests.storage.minio.golden import client
from tests.storage.minio.server import running

pytestmark = pytest.mark.interop


TOMBSTONE = base64.b64encode(b"\xe2\x9b\xbc").decode()
"""Value of a key that Milvus has deleted."""


def coded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def read_state(directory: Path) -> dict[str, str]:
    """Values in base64 by key, as they are read from the files of a server that does not run."""
    database = find_database(str(directory), Storage())
    assert database is not None
    member = read_member(database, Storage())
    assert member.broken is None
    return {key.decode(): base64.b64encode(value.data).decode() for key, value in member.store.values.items()}


class Workload:
    """Random requests to a server, of every kind that changes keys."""

    def __init__(self, server: Etcd, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.leases: list[int] = []
        self.keys = [f"by-dev/meta/{self.random.randrange(40):02}/{number}" for number in range(60)]

    def _put(self) -> dict[str, Any]:
        size = self.random.choice([0, 10, 10, 100, 9000])
        put: dict[str, Any] = {"do": "put", "key": self.random.choice(self.keys)}
        if self.random.random() < 0.1:
            return {**put, "keep": True}
        put["value"] = base64.b64encode(self.random.randbytes(size)).decode()
        if self.leases and self.random.random() < 0.2:
            put["lease"] = self.random.choice(self.leases)
        return put

    def _delete(self) -> dict[str, Any]:
        key = self.random.choice(self.keys)
        end = self.random.choice(["", "", key[:-1] + chr(ord(key[-1]) + 1), key + "~"])
        return {"do": "delete", "key": key, "end": end}

    def _condition(self) -> dict[str, Any]:
        key = self.random.choice(self.keys)
        target = self.random.choice(["value", "version", "create", "mod", "lease"])
        condition = {"key": key, "target": target, "result": self.random.choice(["=", "!=", "<", ">"])}
        condition |= {"value": coded("x"), "number": self.random.randrange(4)}
        return condition | ({"endof": key[:-1] + "~"} if self.random.random() < 0.3 else {})

    def _txn(self, depth: int = 0) -> dict[str, Any]:
        def branch(keys: list[str]) -> list[dict[str, Any]]:
            operations: list[dict[str, Any]] = [
                {"do": "put", "key": key, "value": coded(str(self.random.random()))} for key in keys
            ]
            if depth < 2 and self.random.random() < 0.4:
                operations.append(self._txn(depth + 1))
            return [*operations, {"do": "get", "key": "x"}]

        # A transaction may put each key once.
        named = [f"by-dev/meta/{depth}/{self.random.random()}" for _ in range(3)]
        conditions = [self._condition() for _ in range(self.random.randrange(3))]
        return {"do": "txn", "if": conditions, "then": branch(named[:2]), "else": branch(named[2:])}

    def step(self) -> None:
        """Send one request; the server may refuse it."""
        kind = self.random.random()
        if kind < 0.03:
            self.leases.append(self.server.do("grant"))
        elif kind < 0.05 and self.leases:
            self.server.do("revoke", lease=self.leases.pop(self.random.randrange(len(self.leases))))
        elif kind < 0.07:
            revision = self.server.do("dump", revision=0)["revision"]
            self.server.do("compact", revision=max(1, revision - self.random.randrange(30)))
        else:
            request = self._put() if kind < 0.6 else self._delete() if kind < 0.8 else self._txn()
            self.server.do(**{"command": request.pop("do"), **request})


@pytest.mark.parametrize("snapshots", [10_000, 70])
@pytest.mark.parametrize("seed", range(3))
def test_keys_of_a_killed_server_are_those_that_it_had(seed: int, snapshots: int, tmp_path: Path) -> None:
    directory, expected = tmp_path / "data", {}
    for life in range(3):
        with etcd(directory, snapshots) as server:
            if life:
                assert server.dump() == expected
            workload = Workload(server, seed * 10 + life)
            for step in range(400):
                workload.step()
                if step in (150, 330):
                    server.do(("commit", "defrag")[life % 2])
            expected = server.dump()
            assert len(expected) > 50
            server.kill()
        assert read_state(directory) == expected


def test_a_server_that_was_stopped_and_its_snapshot(tmp_path: Path) -> None:
    with etcd(tmp_path / "data") as server:
        workload = Workload(server, 7)
        for _ in range(200):
            workload.step()
        expected = server.dump()
        server.do("snapshot", path=str(tmp_path / "saved.db"))
    assert read_state(tmp_path / "data") == expected
    member = read_member(str(tmp_path / "saved.db"), Storage())
    assert {key.decode() for key in member.store.values} == expected.keys()


def directory_of(name: str, directory: Path) -> None:
    """Make the data directory of a server that holds a golden dump, parts of it in its log only."""
    values = json.loads((GOLDEN / name / "etcd.json").read_text())
    with etcd(directory) as server:
        keys = list(values)
        server.put(dict.fromkeys(keys[::3], TOMBSTONE))
        server.do("put", key="by-dev/meta/root-coord/collection/77", value=TOMBSTONE)
        third = len(keys) // 3
        server.put({key: values[key] for key in keys[:third]})
        server.do("compact", revision=server.do("dump", revision=0)["revision"] - 5)
        server.do("commit")
        server.put({key: values[key] for key in keys[third : 2 * third]})
        server.do("commit")
        server.put({key: values[key] for key in keys[2 * third :]})
        server.do("delete", key="by-dev/meta/root-coord/collection/77")
        assert server.dump() == values
        server.kill()


def read_or_refuse(path: Path, **options: Any) -> Any:
    """Rows of a collection, or what is said where there is none."""
    try:
        return sawlog.read(path, **options)
    except OptionError as error:
        return str(error)


@pytest.mark.parametrize("name", ["2.1.0", "2.3.5", "2.3.5-compacted", "2.3.5-multi"])
def test_rows_are_those_with_a_dump(name: str, tmp_path: Path) -> None:
    directory_of(name, tmp_path / "data")
    shutil.copytree(GOLDEN / name, tmp_path / "files", ignore=shutil.ignore_patterns("*.json", "*.gz"))
    database = tmp_path / "data" / "member" / "snap" / "db"
    for collection in manifest(name):
        for time in [None, *times(name, collection)]:
            options = {"table": collection, "as_of": time}
            expected = read_or_refuse(tmp_path / "files", metadata=str(GOLDEN / name / "etcd.json"), **options)
            assert not isinstance(expected, str) or time is not None
            for metadata in (tmp_path / "data", database):
                assert read_or_refuse(tmp_path / "files", metadata=str(metadata), **options) == expected


def times(name: str, collection: str) -> list[int]:
    """Times that rows of a golden collection were written at."""
    options = {"table": collection, "metadata": str(GOLDEN / name / "etcd.json"), "view": "inserts"}
    stamps = sawlog.read(GOLDEN / name, columns=["Timestamp"], **options)["Timestamp"].to_pylist()
    return [min(stamps), max(stamps)]


@pytest.mark.filterwarnings("ignore:.*as_of is later than the checkpoint")
def test_a_collection_whose_keys_are_gone_is_read_as_of_before(tmp_path: Path) -> None:
    """Milvus gives up the keys of a dropped collection later on; etcd has them until it is compacted."""
    values = json.loads((GOLDEN / "2.3.5" / "etcd.json").read_text())
    id = manifest("2.3.5")["alltypes"]["collection_id"]
    end = times("2.3.5", "alltypes")[1]
    shutil.copytree(GOLDEN / "2.3.5", tmp_path / "files", ignore=shutil.ignore_patterns("*.json", "*.gz"))

    def save_time(server: Etcd, seconds: int) -> int:
        """Save the time, some seconds after the last row, as a running server does; return it as a TSO."""
        milliseconds = (end >> layout.LOGICAL_BITS) + seconds * 1000
        value = (milliseconds * 1_000_000).to_bytes(8, "big")
        server.put({"by-dev/kv/gid/timestamp": base64.b64encode(value).decode()})
        return milliseconds << layout.LOGICAL_BITS

    with etcd(tmp_path / "data") as server:
        server.put({key: value for key, value in values.items() if not key.endswith("/timestamp")})
        save_time(server, 10)
        before = save_time(server, 13)
        server.do("commit")
        dropped = save_time(server, 16)
        for key in values:
            if "root-coord" in key and f"/{id}" in key:
                server.do("delete", key=key)
        save_time(server, 19)
        revision = server.do("dump", revision=0)["revision"]
        server.kill()
    shutil.copytree(tmp_path / "data", tmp_path / "compacted")
    with etcd(tmp_path / "compacted") as server:
        server.do("compact", revision=revision)
        server.kill()
    options = {"table": "alltypes", "metadata": str(GOLDEN / "2.3.5" / "etcd.json")}
    expected = sawlog.read(tmp_path / "files", as_of=before, **options)
    options["metadata"] = str(tmp_path / "data")
    assert sawlog.read(tmp_path / "files", as_of=before, **options).equals(expected)
    for time in (None, dropped):
        assert "there is none" in read_or_refuse(tmp_path / "files", as_of=time, **options)
    options["metadata"] = str(tmp_path / "compacted")
    assert "there is none" in read_or_refuse(tmp_path / "files", as_of=before, **options)


def make_golden(directory: Path, name: str = "etcd") -> None:
    """Make the data directory that tests without an etcd read, in a directory of golden ones."""
    directory_of("2.3.5", directory / "data")
    member = directory / "data" / "member"
    for path in [member / "snap" / "db", *sorted((member / "wal").glob("*.wal"))]:
        file = GOLDEN / name / "member" / path.parent.name / f"{path.name}.xz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(lzma.compress(path.read_bytes(), preset=9))


def test_volumes_of_real_servers_that_were_ended(tmp_path: Path) -> None:
    """MinIO and etcd, as Milvus' docker-compose keeps them; nothing runs, and nothing is named but the volumes."""
    volumes = tmp_path / "volumes"
    with running([volumes / "minio"], {}) as options:
        s3 = client(dict(options))
        s3.create_bucket(Bucket="a-bucket")
        for file in (GOLDEN / "2.3.5").rglob("*"):
            if file.is_file() and not file.suffix:
                key = f"files/{file.relative_to(GOLDEN / '2.3.5')}"
                s3.put_object(Bucket="a-bucket", Key=key, Body=file.read_bytes())
    directory_of("2.3.5", volumes / "etcd")
    for collection in manifest("2.3.5"):
        expected = sawlog.read(GOLDEN / "2.3.5", table=collection, metadata=str(GOLDEN / "2.3.5" / "etcd.json"))
        assert sawlog.read(volumes, table=collection).equals(expected)
    assert sawlog.verify(volumes).verdict == "clean"
    database = volumes / "etcd" / "member" / "snap" / "db"
    database.write_bytes(database.read_bytes()[:30_000])
    with pytest.raises(IncompleteError, match=r"etcd/member/snap/db: cut_metadata at byte 30000"):
        sawlog.read(volumes, table="alltypes")
