"""Databases whose files are in several directories, and backups, drawn from a seed and asked by RocksDB itself."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

import sawlog
from tests.leveldb_database.support import read_live_state

pytestmark = pytest.mark.interop
PROGRAM = Path(__file__).parent / "Backups.java"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RocksDB."""
    place = tmp_path_factory.mktemp("rocksdb")
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", "-Dartifact=org.rocksdb:rocksdbjni:11.8.1"]
    subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    return next(place.glob("*.jar"))


@pytest.mark.parametrize("seed", range(12))
def test_backups_are_what_rocksdb_held(library: Path, seed: int, tmp_path: Path) -> None:
    tmp_path.joinpath("backup").mkdir()
    command = ["java", "-cp", str(library), str(PROGRAM), str(tmp_path), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    state: dict[int, dict[bytes, bytes]] = {}
    for number, key, value in (line.split("\t") for line in done.stdout.splitlines()):
        state.setdefault(int(number), {})[bytes.fromhex(key)] = bytes.fromhex(value)
    assert state
    for number, answers in state.items():
        assert read_live_state(tmp_path / "backup", "default", backup=number) == answers
        report = sawlog.verify(tmp_path / "backup", format="leveldb_database", backup=number)
        assert not report.damaged
        assert not report.incomplete


@pytest.mark.parametrize("seed", range(12))
def test_directories_are_what_rocksdb_held(seed: int, tmp_path: Path) -> None:
    """Logs are found next to the copy; tables where the caller says."""
    from rocksdict import DBPath, Options, Rdict

    dice = random.Random(seed)
    home = tmp_path / "first" / "db"
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)  # a copy of an open database must not miss what these delete
    has_logs, has_paths = dice.choice([(True, False), (False, True), (True, True)])
    if has_logs:
        options.set_wal_dir(str(tmp_path / "first" / "db-logs"))
    if has_paths:
        options.set_db_paths([DBPath(str(tmp_path / "first" / f"tables{number}"), 40000) for number in range(2)])
    home.parent.mkdir()
    database = Rdict(str(home), options)
    for _ in range(dice.choice([20, 300, 900])):
        key = b"key%d" % dice.randrange(200)
        if dice.random() < 0.2:
            database.delete(key)
        else:
            database.put(key, dice.randbytes(dice.randrange(200)))
        if dice.random() < 0.02:
            database.flush(True)
    state = dict(database.items())
    shutil.copytree(home.parent, tmp_path / "copies")
    database.close()
    shutil.rmtree(home.parent)
    copy = tmp_path / "copies" / "db"
    settings = {"paths": list(tmp_path.glob("copies/tables*"))} if has_paths else {}
    assert read_live_state(copy, "default", **settings) == state
    report = sawlog.verify(copy, format="leveldb_database", **settings)
    assert not report.damaged
    assert not report.incomplete
    if has_logs:
        shutil.rmtree(tmp_path / "copies" / "db-logs")
        assert sawlog.verify(copy, format="leveldb_database", **settings).incomplete


@pytest.fixture(scope="module")
def pebble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pebble, with a program that draws from a seed."""
    program = tmp_path_factory.mktemp("pebble") / "elsewhere"
    source = PROGRAM.parent / "pebble"
    subprocess.run(["go", "build", "-o", str(program), "./elsewhere"], cwd=source, check=True, timeout=900)
    return program


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("case", ["logs", "failover", "shared", "external", "excise"])
def test_directories_are_what_pebble_held(pebble: Path, case: str, seed: int, tmp_path: Path) -> None:
    """The database and what belongs to it are moved; parts of logs come about as slow disks have it."""
    first = tmp_path / "first"
    first.mkdir()
    command = [str(pebble), str(first), case, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    state = {bytes.fromhex(key): bytes.fromhex(value) for key, value in rows}
    first.rename(tmp_path / "copies")
    copy = tmp_path / "copies" / "db"
    assert read_live_state(copy, "default") == state
    report = sawlog.verify(copy, format="leveldb_database")
    assert not report.damaged
    assert not report.incomplete
    objects = list(tmp_path.glob("copies/remote/*"))
    if objects:
        tmp_path.joinpath("copies", "remote").rename(tmp_path / "moved")
        assert sawlog.verify(copy, format="leveldb_database").incomplete
        assert read_live_state(copy, "default", paths=tmp_path / "moved") == state
