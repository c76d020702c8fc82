"""A MinIO server on loopback, with drives of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

ENVIRONMENT = "SAWLOG_MINIO"
"""Names a MinIO server's program, where one is at hand already."""
CACHE = Path(__file__).parents[3] / ".cache" / "bin"

IN_PARTS = {"MINIO_STORAGE_CLASS_INLINE_BLOCK": "1"}
"""Has objects in files of their own."""
SEVERAL = {"MINIO_CI_CD": "1"}
"""Lets several drives share a disk."""
_KILLED = signal.SIGKILL


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


@contextmanager
def running(
    drives: Sequence[Path], settings: Mapping[str, str] = MappingProxyType({}), *, killed: bool = False
) -> Iterator[dict[str, Any]]:
    """A server of drives, which are made; the storage options to reach it."""
    for drive in drives:
        drive.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    environment = {**os.environ, "MINIO_ROOT_USER": "sawlog", "MINIO_ROOT_PASSWORD": "sawlog-secret", **settings}
    command = [program(), "server", "--address", address, "--console-address", "127.0.0.1:0", *map(str, drives)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        time.sleep(2)
        yield {"key": "sawlog", "secret": "sawlog-secret", "client_kwargs": {"endpoint_url": f"http://{address}"}}
    finally:
        server.send_signal(_KILLED if killed else signal.SIGTERM)
        server.wait(30)
