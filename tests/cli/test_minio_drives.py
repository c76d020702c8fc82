"""Commands on drives of MinIO: what they find, write, and say of lost files."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run
from tests.milvus_binlog.support import GOLDEN as MILVUS
from tests.milvus_binlog.support import with_etcd
from tests.storage.minio.golden import GOLDEN
from tests.storage.minio.maker import StoredVersion, put

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """A drive of a real server, with an etcd's dump as an object in its bucket."""
    with tarfile.open(GOLDEN / "one.tar.gz") as archive:
        archive.extractall(tmp_path / "volumes", filter="data")
    shutil.rmtree(tmp_path / "volumes" / "d1" / "versions")
    dump = (MILVUS / "2.3.5" / "etcd.json").read_bytes()
    put(tmp_path / "volumes" / "d1", "a-bucket/files/etcd.json", StoredVersion([dump]))
    return tmp_path / "volumes"


def test_volumes_are_a_collection(run: Run, volumes: Path, tmp_path: Path) -> None:
    listed = run("ls", volumes)
    assert listed.code == 0
    assert f"{volumes}/d1/a-bucket/files  Milvus binlog" in listed.out
    assert " 45 rows, clean" in listed.out
    assert "xl.meta" not in listed.out
    target = tmp_path / "rows.parquet"
    assert run("convert", volumes, target, "-o", "table=autoid").code == 0
    assert pq.read_table(target).num_rows == with_etcd("2.3.5", "autoid").to_table().num_rows
    assert run("verify", volumes).code == 0


def test_a_lost_part_has_a_name(run: Run, volumes: Path) -> None:
    part = next(volumes.rglob("insert_log/**/part.1"))
    part.unlink()
    result = run("verify", volumes)
    assert result.code == 1
    assert f"missing of the object in MinIO: {part}" in result.out
    assert "1 incomplete" in result.out
