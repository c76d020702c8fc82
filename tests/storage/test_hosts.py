"""Stores whose paths do not name them, and servers that do not say how long their files are."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options

import sawlog
from sawlog.storage import Storage

RECORDS = pa.array([b"%d" % n * 50 for n in range(400)], pa.binary())
ROWS = pa.table([RECORDS], pa.schema([pa.field("record", pa.binary(), nullable=False)]))


class Hosts(MemoryFileSystem):  # type: ignore[misc]
    """Files of several hosts: as those of FTP, SFTP and HDFS, paths do not say of which, and the file system does."""

    protocol = "hosted"
    cachable = False
    hosts: ClassVar[dict[str, dict[str, Any]]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self, host: str = "", **options: Any) -> None:
        super().__init__(**options)
        if not host:
            raise OSError("no host")
        self.store = self.hosts.setdefault(host, {})

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return "/" + infer_storage_options(path)["path"].strip("/")

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        url_parts = infer_storage_options(url)
        return {name: url_parts[name] for name in ("host", "port", "username", "password") if name in url_parts}


fsspec.register_implementation("hosted", Hosts, clobber=True)


@pytest.fixture
def log_bytes(tmp_path: Path) -> bytes:
    sawlog.write(ROWS, tmp_path / "1.log", format="leveldb_log")
    return (tmp_path / "1.log").read_bytes()


@pytest.mark.parametrize("base", ["hosted://one", "hosted://me:secret@one:21/deep/er", "hosted://one/deep/"])
def test_a_path_of_a_host_is_of_that_host(log_bytes: bytes, tmp_path: Path, base: str) -> None:
    base = f"{base.rstrip('/')}/{uuid.uuid4().hex}"
    for host, data in (("one", log_bytes), ("two", b"")):
        Hosts(host=host).pipe_file(f"{Hosts._strip_protocol(base)}/000003.log", data)
    for path in (base, f"{base}/", f"{base}/000003.log", f"{base}/*.log"):
        assert [file.path for file in Storage().find(path)] == [f"{base}/000003.log"]
        assert sawlog.read(path, format="leveldb_log").equals(ROWS)
        assert sawlog.verify(path, format="leveldb_log").rows == ROWS.num_rows
        assert sum(batch.num_rows for batch in sawlog.open(path, format="leveldb_log").watch().look()) == ROWS.num_rows
    assert [file.path for file in Storage().list_files(base)] == [f"{base}/000003.log"]
    sawlog.repair(f"{base}/000003.log", tmp_path / "2.log", format="leveldb_log")
    sawlog.write(ROWS, f"{base}/000004.log", format="leveldb_log")
    assert sawlog.read(base, format="leveldb_log").num_rows == 2 * ROWS.num_rows
    assert not Storage().directories.find_staged_paths(base, "")


class EndlessServer(BaseHTTPRequestHandler):
    """Sends a file in chunks, of which no header says how many there are, to whatever is asked."""

    protocol_version = "HTTP/1.1"
    content: ClassVar[bytes] = b""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        for offset in range(0, len(self.content), 1000):
            part = self.content[offset : offset + 1000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server(log_bytes: bytes) -> Iterator[str]:
    EndlessServer.content = log_bytes
    with ThreadingHTTPServer(("127.0.0.1", 0), EndlessServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_says_no_size_is_read_whole(server: str) -> None:
    url = f"{server}/000003.log"
    for policy in ("fail", "skip"):
        assert sawlog.read(url, format="leveldb_log", on_damage=policy).equals(ROWS)
    assert sawlog.open(url, format="leveldb_log").count_rows() == ROWS.num_rows
    assert sawlog.verify(url, format="leveldb_log").rows == ROWS.num_rows
    assert sum(batch.num_rows for batch in sawlog.open(url, format="leveldb_log").watch().look()) == ROWS.num_rows


def test_what_is_asked_for_by_itself_is_refused_without_a_size(server: str) -> None:
    with pytest.raises(sawlog.StorageError, match="does not say how long the file is"):
        Storage().read(f"{server}/schema.json")
