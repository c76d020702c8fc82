"""Logs of RocksDBs with two-phase transactions, of every write policy, fold to what the database holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import sawlog
from tests.leveldb_database.support import read_live_state

pytestmark = pytest.mark.interop

ROCKSDB = "org.rocksdb:rocksdbjni:9.10.0"
PROGRAM = Path(__file__).parent / "Transactions.java"
DRAWN = Path(__file__).parent / "PreparedTransactions.java"
NEWEST = "org.rocksdb:rocksdbjni:11.8.1"
POLICIES = ("WRITE_COMMITTED", "WRITE_PREPARED", "WRITE_UNPREPARED")
TIMESTAMPS = Path(__file__).parent / "rocksdb_timestamps.py"


def compiled(place: Path, artifact: str, program: Path) -> str:
    """A program, compiled, and RocksDB, as a class path."""
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}"]
    subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    (jar,) = place.glob("*.jar")
    subprocess.run(["javac", "-d", str(place), "-cp", str(jar), str(program)], check=True)
    return f"{place}:{jar}"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("rocksdb"), ROCKSDB, PROGRAM)


@pytest.fixture(scope="module", params=[ROCKSDB, NEWEST], ids=lambda image: image.rpartition(":")[2])
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("drawn"), request.param, DRAWN)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", POLICIES)
def test_live_is_what_a_killed_database_answers(drawn: str, policy: str, seed: int, tmp_path: Path) -> None:
    """Transactions are committed, rolled back, or left prepared; RocksDB answers when it opens a copy."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", drawn, "PreparedTransactions"]
    subprocess.run([*command, "write", str(tmp_path / "db"), policy, str(seed)], check=True)
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    answer = [*command, "answer", str(tmp_path / "copy"), policy]
    done = subprocess.run(answer, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    for number, table in enumerate(("default", "zweite")):
        state = {bytes.fromhex(key): bytes.fromhex(value) for of, key, value in lines if of == str(number)}
        assert read_live_state(tmp_path / "db", table) == state
    assert not sawlog.verify(tmp_path / "db", format="leveldb_database").damaged
    if policy != "WRITE_UNPREPARED":  # of which RocksDB itself says 0 when it is opened again
        assert prepared(tmp_path / "db") == int(lines[0][1])
    if policy != "WRITE_COMMITTED":
        assert numbers_that_are_others(tmp_path / "db", tmp_path / "copy") == []


def prepared(path: Path) -> int:
    """How many entries `all` shows as prepared, in both families: none is live."""
    count = 0
    for table in ("default", "zweite"):
        rows = sawlog.read(path, format="leveldb_database", view="all", table=table).to_pylist()
        waiting = [row for row in rows if row.get("transaction") == "prepared"]
        assert not any(row["live"] for row in waiting)
        count += len(waiting)
    return count


def numbers_that_are_others(path: Path, recovered: Path) -> list[tuple[object, ...]]:
    """Entries that RocksDB has moved from the logs into tables with other numbers than the view `writes` has."""
    names = ("key", "sequence", "operation")
    logged = sawlog.read(sorted(path.glob("*.log")), format="leveldb_log", view="writes").to_pylist()
    logs = {(row["column_family"], *(row[name] for name in names)) for row in logged}
    wrong = []
    for number, table in enumerate(("default", "zweite")):
        settings = {"format": "leveldb_database", "view": "all", "table": table}
        before = {
            tuple(row[name] for name in names) for row in sawlog.read(path, **settings).to_pylist() if row["level"] >= 0
        }
        for row in sawlog.read(recovered, **settings).to_pylist():
            entry = tuple(row[name] for name in names)
            if row["level"] >= 0 and entry not in before and (number, *entry) not in logs:
                wrong.append((table, *entry))
    return wrong


@pytest.mark.parametrize("policy", POLICIES)
def test_the_last_state_of_each_key(classes: str, policy: str, tmp_path: Path) -> None:
    command = ["java", "-cp", classes, "Transactions", str(tmp_path / "db"), policy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    state = dict(line.split("\t") for line in done.stdout.splitlines())
    assert len(state) > 200
    puts = sawlog.read(tmp_path / "db", format="leveldb_log", view="writes", latest=True).to_pylist()
    puts_by_key = {row["key"].decode(): row["value"].decode() for row in puts if row["operation"] == "put"}
    assert puts_by_key == state


def test_keys_with_timestamps(classes: str, tmp_path: Path) -> None:
    library = "librocksdbjni-linux64.so"
    with ZipFile(classes.partition(":")[2]) as jar:
        jar.extract(library, tmp_path)
    command = [sys.executable, str(TIMESTAMPS), str(tmp_path / library), str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines_held = [line.split("\t") for line in done.stdout.splitlines()]
    rows = sawlog.read(tmp_path / "db", format="leveldb_database", view="live").to_pylist()
    assert [[row["key"].hex(), str(row["timestamp"]), row["value"].hex()] for row in rows] == lines_held
