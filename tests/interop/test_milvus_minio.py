"""A collection below a root in a real MinIO, read and written through obstore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

import sawlog
from tests.milvus_binlog.support import GOLDEN, with_etcd
from tests.storage.minio.server import running

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning"),
]


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server on loopback; the storage options to reach it."""
    with running([tmp_path_factory.mktemp("minio")]) as options:
        fsspec.filesystem("s3", **options).mkdir("milvus")
        yield options


def test_a_collection_is_read_from_minio(minio: dict[str, Any]) -> None:
    fsspec.filesystem("s3", **minio).put(f"{GOLDEN / '2.3.5'}/", "milvus/files", recursive=True)
    options = {"table": "alltypes", "metadata": "s3://milvus/files/etcd.json", "storage_options": minio}
    table = sawlog.read("s3://milvus/files", **options)
    assert table.equals(with_etcd("2.3.5", "alltypes").to_table())
    sawlog.write(table, "s3://milvus/written", format="milvus_binlog", storage_options=minio)
    assert sawlog.read("s3://milvus/written", storage_options=minio).num_rows == 996
    assert not sawlog.verify("s3://milvus/written", storage_options=minio).damaged
