"""Logs of RocksDBs with two-phase transactions, of every write policy, fold to what the database holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import sawlog

pytestmark = pytest.mark.interop

ROCKSDB = "org.rocksdb:rocksdbjni:9.10.0"
PROGRAM = Path(__file__).parent / "Transactions.java"
TIMESTAMPS = Path(__file__).parent / "rocksdb_timestamps.py"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, compiled, and RocksDB, as a class path."""
    place = tmp_path_factory.mktemp("rocksdb")
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={ROCKSDB}"]
    subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    (jar,) = place.glob("*.jar")
    subprocess.run(["javac", "-d", str(place), "-cp", str(jar), str(PROGRAM)], check=True)
    return f"{place}:{jar}"


@pytest.mark.parametrize("policy", ["WRITE_COMMITTED", "WRITE_PREPARED", "WRITE_UNPREPARED"])
def test_the_last_state_of_each_key(classes: str, policy: str, tmp_path: Path) -> None:
    command = ["java", "-cp", classes, "Transactions", str(tmp_path / "db"), policy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    held = dict(line.split("\t") for line in done.stdout.splitlines())
    assert len(held) > 200
    puts = sawlog.read(tmp_path / "db", format="leveldb_log", view="writes", latest=True).to_pylist()
    found = {row["key"].decode(): row["value"].decode() for row in puts if row["operation"] == "put"}
    assert found == held


def test_keys_with_timestamps(classes: str, tmp_path: Path) -> None:
    library = "librocksdbjni-linux64.so"
    with ZipFile(classes.partition(":")[2]) as jar:
        jar.extract(library, tmp_path)
    command = [sys.executable, str(TIMESTAMPS), str(tmp_path / library), str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    held = [line.split("\t") for line in done.stdout.splitlines()]
    rows = sawlog.read(tmp_path / "db", format="leveldb_database", view="live").to_pylist()
    assert [[row["key"].hex(), str(row["timestamp"]), row["value"].hex()] for row in rows] == held
