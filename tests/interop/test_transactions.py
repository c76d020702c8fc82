"""Logs of RocksDBs with two-phase transactions, of every write policy, fold to what the database holds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import sawlog

pytestmark = pytest.mark.interop

ROCKSDB = "org.rocksdb:rocksdbjni:9.10.0"
PROGRAM = Path(__file__).parent / "Transactions.java"


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
