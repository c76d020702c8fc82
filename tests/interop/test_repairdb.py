"""The same damaged databases, repaired by sawlog and by `RepairDB`: never fewer rows.

Pebble has no `RepairDB`.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.format.damage import DamageWarning

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

pytestmark = pytest.mark.interop
SEEDS = range(50)
Rows = dict[bytes, bytes]
History = dict[bytes, list[tuple[int, bytes | None]]]
"""The sequence numbers and values that a key has had, the last one last; `None` where it was deleted."""


def draw(
    dice: random.Random, put: Callable[[bytes, bytes], None], delete: Callable[[bytes], None], done: History
) -> None:
    """Write to a database, and note what was written."""
    before = sum(map(len, done.values()))
    for sequence in range(before + 1, before + 1 + dice.choice([300, 1500, 4000])):
        key = b"k%05d" % dice.randrange(2000)
        value = dice.choice([dice.randbytes(dice.randrange(90)), b"text " * dice.randrange(20)])
        if dice.random() < 0.15:
            delete(key)
            done.setdefault(key, []).append((sequence, None))
        else:
            put(key, value)
            done.setdefault(key, []).append((sequence, value))


def leveldb(path: Path, dice: random.Random) -> History:
    """A database of LevelDB's that was closed, with tables on several levels and a log."""
    done: History = {}
    compression = dice.choice([None, "snappy"])
    with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=65_536, compression=compression) as db:
        draw(dice, db.put, db.delete, done)
        if dice.random() < 0.3:
            db.compact_range()
            draw(dice, db.put, db.delete, done)
    return done


def copied(place: Path, path: Path) -> None:
    """Copy a database that is open; logs that have been flushed may vanish meanwhile."""
    for _ in range(100):
        with contextlib.suppress(shutil.Error):
            shutil.copytree(place, path)
            return
        shutil.rmtree(path)
    pytest.fail(f"{place}: never the same for long enough to be copied")


def rocksdb(path: Path, dice: random.Random) -> History:
    """A database of RocksDB's, as it was closed or while it was open, with logs then."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(65_536)
    options.set_disable_auto_compactions(True)
    place = path.with_name("open")
    db = Rdict(str(place), options)
    done: History = {}
    draw(dice, db.__setitem__, db.__delitem__, done)
    if dice.random() < 0.5:
        db.flush()
    if dice.random() < 0.3:
        db.compact_range(None, None)
        draw(dice, db.__setitem__, db.__delitem__, done)
    is_open = dice.random() < 0.5
    if is_open:
        copied(place, path)
    db.close()
    if not is_open:
        shutil.copytree(place, path)
    shutil.rmtree(place)
    return done


def flip(dice: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(dice.choice([1, 1, 3])):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)


def cut(dice: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes()[: dice.randrange(file.stat().st_size)])


def overwrite(dice: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    begin = dice.randrange(len(data))
    end = min(len(data), begin + dice.choice([16, 512, 4096]))
    data[begin:end] = dice.choice([bytes(end - begin), dice.randbytes(end - begin)])
    file.write_bytes(data)


def remove(dice: random.Random, file: Path) -> None:
    del dice
    file.unlink()


def damage(path: Path, dice: random.Random) -> str:
    """Damage some files of a database, and return what was done."""
    changes = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        names = dice.choice(["*.ldb", "*.sst", "*.log", "MANIFEST-*", "MANIFEST-*", "CURRENT"])
        files = sorted(file for file in path.glob(names) if file.stat().st_size) or sorted(path.glob("*.[ls][ds][bt]"))
        if files:
            change, file = dice.choice([flip, flip, cut, overwrite, remove]), dice.choice(files)
            change(dice, file)
            changes.append(f"{change.__name__} {file.name}")
    return ", ".join(changes)


_ANSWERS = """
import pathlib, pickle, plyvel, sys
path, target, how = sys.argv[1:]
if how:
    plyvel.repair_db(path, paranoid_checks=how == "paranoid")
rows = {}
try:
    with plyvel.DB(path) as db:
        for key, value in db:
            rows[key] = value
except plyvel.Error:
    pass
pathlib.Path(target).write_bytes(pickle.dumps(rows))
"""


def read_answers(path: Path, repair: str = "") -> Rows:
    """What LevelDB reads, up to the first error, where its own repair has been there before, if that is asked for.

    It may end its process when it takes damaged bytes for lengths: then there is nothing.
    """
    target = path.with_suffix(".rows")
    command = [sys.executable, "-c", _ANSWERS, str(path), str(target), repair]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    return pickle.loads(target.read_bytes()) if target.exists() else {}


def rocksdb_answers(path: Path) -> Rows:
    """What RocksDB reads, up to the first error."""
    rows: Rows = {}
    with contextlib.suppress(Exception), contextlib.closing(Rdict(str(path), Options(raw_mode=True))) as db:
        for key, value in db.items():
            rows[key] = value
    return rows


def repaired(source: Path, target: Path, **options: bool) -> Path:
    sawlog.repair(source, target, format="leveldb_database", **options)
    return target


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def alive(done: History) -> Rows:
    return {key: value for key, values in done.items() for _, value in values[-1:] if value is not None}


def check(ours: Rows, theirs: Rows, done: History, message: str) -> None:
    """Every true row of theirs is ours, too; what they have besides had been deleted or replaced. All of ours is true.

    It was true at some time: a lost block may have held a later value.
    """
    truth = alive(done)
    assert {key for key, value in theirs.items() if truth.get(key) == value != ours.get(key)} == set(), message
    assert {key for key, value in ours.items() if value not in [value for _, value in done.get(key, [])]} == set(), (
        message
    )


def deleted_by_damage(source: Path, done: History) -> set[bytes]:
    """The keys of which there are deletions that nobody has written."""
    options: dict[str, Any] = {"view": "all", "on_damage": "skip", "verify_checksums": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        entries = sawlog.read(source, format="leveldb_database", **options).to_pylist()
    deletions = [(entry["key"], entry["sequence"]) for entry in entries if entry["operation"] == "delete"]
    return {key for key, sequence in deletions if (sequence, None) not in done.get(key, [])}


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_leveldb_with_checksums(seed: int, tmp_path: Path) -> None:
    """`paranoid_checks` makes it verify those of tables. Of logs, `RepairDB` never does: these are whole here."""
    dice, source = random.Random(seed), tmp_path / "source"
    done = leveldb(source, dice)
    logs = {log: log.read_bytes() for log in source.glob("*.log")}
    changes = damage(source, dice)
    for log, data in logs.items():
        log.write_bytes(data)
    theirs = copy(source, tmp_path / "theirs")
    check(read_answers(repaired(source, tmp_path / "ours")), read_answers(theirs, "paranoid"), done, changes)


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_leveldb_without_checksums(seed: int, tmp_path: Path) -> None:
    """By default it verifies none, and takes over what can be read all the same; so does `verify_checksums=False`.

    Damaged bytes may then say that a key was deleted later than it was.
    """
    dice, source = random.Random(seed), tmp_path / "source"
    done = leveldb(source, dice)
    truth = alive(done)
    changes = damage(source, dice)
    theirs = copy(source, tmp_path / "theirs")
    true = {key for key, value in read_answers(theirs, "default").items() if truth.get(key) == value}
    ours = read_answers(repaired(source, tmp_path / "ours", verify_checksums=False))
    lost_keys = true - ours.keys()
    assert not lost_keys or lost_keys <= deleted_by_damage(source, done), changes


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_repair_loses_no_more_than_that_of_rocksdb(seed: int, tmp_path: Path) -> None:
    """Its `RepairDB` verifies all checksums, and gives up a table for one block, deletions that are in it included."""
    dice, source = random.Random(seed), tmp_path / "source"
    done = rocksdb(source, dice)
    changes = damage(source, dice)
    theirs = copy(source, tmp_path / "theirs")
    with contextlib.suppress(Exception):
        Rdict.repair(str(theirs), Options(raw_mode=True))
    check(rocksdb_answers(repaired(source, tmp_path / "ours")), rocksdb_answers(theirs), done, changes)
