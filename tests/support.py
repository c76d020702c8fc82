"""Helpers that tests of several packages share."""

from __future__ import annotations

import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
import sawlog.storage.remote
from sawlog.storage import Storage
from sawlog.storage.commit import Job
from sawlog.storage.owners import find_current_owner

ABSENT_PROCESS = f"{find_current_owner().partition('-')[0]}-4194305-1"
"""A process that this machine does not have."""


def find_free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_subsequence(part: list[Any], whole_list: list[Any]) -> bool:
    iterator = iter(whole_list)
    return all(item in iterator for item in part)


def make_dead_links(directory: Path) -> None:
    """Make links that lead nowhere: to what is not there, through a file, and in a circle."""
    (directory / "file").touch()
    for name, target in {"nothing": "absent", "through": "file/x", "circle": "circle", "way": "circle/x"}.items():
        (directory / name).symlink_to(target)


def write_records(path: Any, records: Any, **options: Any) -> None:
    """Write a log of LevelDB that has these records."""
    sawlog.write(pa.table({"record": pa.array(records, pa.binary())}), path, format="leveldb_log", **options)


@pytest.fixture(params=["local", "no exchange", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Storage, str]:
    if request.param == "s3":
        return Storage(request.getfixturevalue("s3")), f"s3://logs/{tmp_path.name}/out"
    if request.param == "no exchange":
        monkeypatch.setattr(sawlog.storage.commit, "exchange", lambda *_: False)
    return Storage(), str(tmp_path / "out")


def begin_commit(place: tuple[Storage, str], name: str, **changes: Any) -> Job:
    job = Job.begin(*place, name)
    if "owner" in changes:
        changes["staging"] = job.staging.replace(job.owner, changes["owner"])
    return replace(job, **changes)


def stage_file(job: Job, *names: str, data: bytes = b"x") -> list[Any]:
    staged = []
    for name in names:
        file = job.storage.stage(f"{job.staging}/{name}")
        file.write(data)
        staged.append(file.finish())
    return staged


def put_record(place: tuple[Storage, str], name: str, *names: str) -> None:
    job = begin_commit(place, name)
    job.publish(stage_file(job, *names))
    job.sweep()


def visible_files(place: tuple[Storage, str]) -> list[str]:
    storage, root = place
    root = storage.directories.resolve_directory(root)
    return [file.path[len(root) + 1 :] for file in storage.find(root)] if storage.exists(root) else []


GOLDEN_DATABASES = Path(__file__).parent / "golden"


DATABASE = GOLDEN_DATABASES / "leveldb_database/rocksdb-11.8.1-timed-put/db"


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A database with another one in a directory of its own."""
    shutil.copytree(DATABASE, tmp_path / "db")
    shutil.copytree(DATABASE, tmp_path / "db" / "inner")
    return tmp_path / "db"


@pytest.fixture
def folder(nested: Path) -> Path:
    """Two databases, one inside another, a log, a collection of Milvus, and a text."""
    root = nested.parent
    write_records(root / "logs" / "000007.log", [b"x" * 100] * 9)
    sawlog.write(pa.table({"pk": [1, 2, 3]}), root / "milvus", format="milvus_binlog")
    (root / "notes.txt").write_text("hello")
    return root


def damage_file(path: Path, offset: int = 50) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 255
    path.write_bytes(data)


def make_gauges() -> pa.Table:
    tags = pa.array([[("_ws_", "demo")]], pa.map_(pa.string(), pa.string()))
    times = pa.array([1]).cast(pa.timestamp("ms", "UTC"))
    return pa.table({"timestamp": times, "value": [1.0], "_metric_": ["m"], "tags": tags})


SAMPLES: dict[str, tuple[str, pa.Table, dict[str, Any]]] = {
    "leveldb_log": ("{:06}.log", pa.table({"record": pa.array([b"x"])}), {}),
    "deephaven_log": ("Trades.bin.{:06}", pa.table({"i": [1]}), {}),
    "filodb_record": ("{:06}.container", make_gauges(), {"table": "gauge", "container_timestamp": 0}),
    "deephaven_table": ("Intraday/N/T/w/2024-{:06}/T", pa.table({"i": [1]}), {}),
}
