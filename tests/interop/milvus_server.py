"""A real Milvus 2.3.5, embedded, in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENVIRONMENT = "SAWLOG_MILVUS_PYTHON"
"""Names a Python with the packages below, where one is at hand already."""
PACKAGES = ("milvus==2.3.5", "pymilvus==2.3.8", "marshmallow<4", "setuptools<70")
CACHE = Path(__file__).parents[2] / ".cache" / "milvus-2.3.5"

LOOPBACK = 'ip link set lo up && exec "$0" "$@"'
"""A new network namespace has a loopback that is down."""


def milvus_python() -> str:
    """The Python of an environment with the server and its client; made once."""
    if named := os.environ.get(ENVIRONMENT):
        return named
    python = CACHE / "bin" / "python"
    ready = CACHE / ".ready"
    if not ready.exists():
        venv.create(CACHE, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        ready.touch()
    return str(python)


class Milvus:
    """A running server, and the directory where it keeps its binlogs."""

    def __init__(self, process: subprocess.Popen[str], base: Path) -> None:
        self._process = process
        self.storage = base / "data"

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the Milvus server has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def run(self, *command: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """A command in the server's network namespace."""
        users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        inside = ["nsenter", "--target", str(self._process.pid), *users, "--net"]
        return subprocess.run(
            [*inside, *command], cwd=directory, capture_output=True, text=True, check=False, timeout=300
        )

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            self._process.stdin.flush()
            return self.answer()

        return call


@contextmanager
def milvus(base: Path) -> Iterator[Milvus]:
    """Start a server; ended with the block."""
    driver = Path(__file__).with_name("milvus_driver.py")
    isolated = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    with (base / "driver.log").open("w") as log:
        process = subprocess.Popen(
            [*isolated, "sh", "-c", LOOPBACK, milvus_python(), str(driver), str(base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            server = Milvus(process, base)
            server.answer()
            yield server
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                print("the Milvus server had to be killed", file=sys.stderr)
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
