"""A real etcd, embedded in a Go program that a test drives; it ends when told to, or is killed."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "etcd"
BUILT = Path(__file__).parents[2] / ".cache" / "etcd-driver"


def built() -> Path:
    """The program; built where it is not, or is older than its source."""
    sources = [PROGRAM / name for name in ("main.go", "go.mod", "go.sum")]
    if not BUILT.exists() or any(source.stat().st_mtime > BUILT.stat().st_mtime for source in sources):
        go = shutil.which("go")
        assert go is not None, "Go is needed to build the program that embeds etcd: no go on PATH"
        BUILT.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "build", "-o", str(BUILT), "."], cwd=PROGRAM, check=True, timeout=1800)
    return BUILT


class Etcd:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, command: str, **arguments: Any) -> Any:
        """Send a command; return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def put(self, values: Mapping[str, str], **arguments: Any) -> None:
        """Put values in base64, by key."""
        for key, value in values.items():
            assert self.do("put", key=key, value=value, **arguments) == "done"

    def dump(self, revision: int = 0) -> dict[str, str]:
        """Values in base64 by key, now or at a revision."""
        kvs = self.do("dump", revision=revision)["kvs"]
        return {base64.b64decode(pair["key"]).decode(): pair["value"] or "" for pair in kvs}

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        self.do("die")
        self._process.wait(60)


@contextmanager
def etcd(directory: Path, snapshots: int = 10_000, segment: int = 64 << 10) -> Iterator[Etcd]:
    """Start a server; ended with the block, unless it was killed.

    Args:
        directory: Its data directory.
        snapshots: After how many entries of its log it writes a snapshot.
        segment: Bytes of a file of its log.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "etcd.log").open("w") as log:
        process = subprocess.Popen(
            [str(built()), directory.name, str(snapshots), str(segment)],
            cwd=directory.parent,  # where its sockets are, whose paths have to be short
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            server = Etcd(process)
            assert server.answer() == "ready", (directory.parent / "etcd.log").read_text()
            yield server
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait(60)
            process.stdout.close()
