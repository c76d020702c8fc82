"""What killed writers leave: the next writer to the same place deletes it, if it is proven that they are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog

KILLED = """
import os, signal, sys
import pyarrow as pa
import sawlog

def batches():
    yield pa.record_batch({"record": pa.array([b"x"])})
    os.kill(os.getpid(), signal.SIGKILL)

schema = pa.schema([("record", pa.binary())])
sawlog.write(pa.RecordBatchReader.from_batches(schema, batches()), sys.argv[1], format="leveldb_log")
"""

TABLE = pa.table({"record": pa.array([b"x"])})

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="needs Linux's /proc")


def staged(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(".sawlog-staged"))


def test_the_next_writer_deletes_them(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(staged(tmp_path)) == 1
    sawlog.write(TABLE, tmp_path / "2.log", format="leveldb_log")
    assert len(staged(tmp_path)) == 1, "only the same place is looked after"
    sawlog.write(TABLE, path, format="leveldb_log")
    assert staged(tmp_path) == []
    assert sawlog.read(path).equals(sawlog.read(tmp_path / "2.log"))


def test_those_of_living_writers_and_of_other_machines_stay(tmp_path: Path) -> None:
    storage = sawlog.open(b"", format="leveldb_log").scan.storage
    living = storage.stage(tmp_path / "1.log")
    marked = storage.stage(tmp_path / "1.log", "job")
    name = os.path.basename(living.temporary)
    machine, _, suffix = name.removeprefix(".1.log.").partition("-")
    other_machine = "0" * 8 if machine != "0" * 8 else "1" * 8
    names_kept = [
        name,
        os.path.basename(marked.temporary),
        f".1.log.{other_machine}-{suffix}",
        ".1.log.0123456789ab.sawlog-staged",
    ]
    for name_kept in names_kept[2:]:
        (tmp_path / name_kept).write_bytes(b"")
    sawlog.write(TABLE, tmp_path / "1.log", format="leveldb_log")
    assert staged(tmp_path) == sorted(names_kept)
    living.discard(storage)
    marked.discard(storage)
