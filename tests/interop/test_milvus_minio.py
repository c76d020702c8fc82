"""A collection below a root in a real MinIO, read and written through obstore."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import sawlog
from tests.milvus_binlog.support import GOLDEN, with_etcd

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning"),
]

ENVIRONMENT = "SAWLOG_MINIO"
"""Names a MinIO server's program, where one is at hand already."""
CACHE = Path(__file__).parents[2] / ".cache" / "bin"


def program() -> str:
    """The server; built once."""
    if named := os.environ.get(ENVIRONMENT):
        return named
    built = CACHE / "minio"
    if not built.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(CACHE)}
        subprocess.run(["go", "install", "github.com/minio/minio@latest"], check=True, env=environment)
    return str(built)


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server on loopback; the storage options to reach it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    data = tmp_path_factory.mktemp("minio")
    environment = {**os.environ, "MINIO_ROOT_USER": "sawlog", "MINIO_ROOT_PASSWORD": "sawlog-secret"}
    command = [program(), "server", "--address", address, "--console-address", "127.0.0.1:0", str(data)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    options = {"key": "sawlog", "secret": "sawlog-secret", "client_kwargs": {"endpoint_url": f"http://{address}"}}
    try:
        host, port = address.split(":")
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    break
            time.sleep(0.1)
        time.sleep(2)
        fsspec.filesystem("s3", **options).mkdir("milvus")
        yield options
    finally:
        server.terminate()
        server.wait(30)


def test_collection_in_minio(minio: dict[str, Any]) -> None:
    fsspec.filesystem("s3", **minio).put(f"{GOLDEN / '2.3.5'}/", "milvus/files", recursive=True)
    options = {"table": "alltypes", "metadata": "s3://milvus/files/etcd.json", "storage_options": minio}
    table = sawlog.read("s3://milvus/files", **options)
    assert table.equals(with_etcd("2.3.5", "alltypes").to_table())
    sawlog.write(table, "s3://milvus/written", format="milvus_binlog", storage_options=minio)
    assert sawlog.read("s3://milvus/written", storage_options=minio).num_rows == 996
    assert not sawlog.verify("s3://milvus/written", storage_options=minio).damaged
