"""Databases of a gigabyte, and databases that are at work, give what they themselves answer."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rocksdict import Options, Rdict, WriteBatch

import sawlog
from sawlog import SawlogError

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

GIGABYTE = 1 << 30
VALUE = 1000


def batches(size: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """Puts on keys in no order, some of them twice, and deletions."""
    dice = np.random.default_rng(1)
    pool = dice.integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
    count = size // VALUE
    for _ in range(0, count, 1000):
        numbers = dice.integers(0, count, 1000).tolist()
        starts = dice.integers(0, len(pool) - VALUE, 1000).tolist()
        yield [
            (b"%012d" % number, None if number % 17 == 0 else pool[start : start + VALUE])
            for number, start in zip(numbers, starts, strict=True)
        ]


def compare(path: Path, answers: Iterator[tuple[bytes, bytes]]) -> int:
    """Every key and value of the live view are those of an iterator, in its order."""
    rows = 0
    for batch in sawlog.open(path, format="leveldb_database", view="live").to_batches():
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        for pair in zip(keys, values, strict=True):
            assert pair == next(answers)
        rows += len(keys)
    assert next(answers, None) is None
    return rows


@pytest.mark.heavy
def test_a_leveldb_of_a_gigabyte(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as database:
        for pairs in batches(GIGABYTE):
            with database.write_batch() as batch:
                for key, value in pairs:
                    batch.delete(key) if value is None else batch.put(key, value)
    # A database that is opened may compact its files.
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with plyvel.DB(str(tmp_path / "db")) as database, database.iterator() as answers:
        assert compare(tmp_path / "copy", answers) > GIGABYTE // VALUE // 2


@pytest.mark.heavy
def test_a_rocksdb_of_a_gigabyte(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    for pairs in batches(GIGABYTE):
        batch = WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.delete(key) if value is None else batch.put(key, value)
        database.write(batch)
    database.close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    assert compare(tmp_path / "copy", iter(database.items())) > GIGABYTE // VALUE // 2
    database.close()


@pytest.mark.nightly
def test_a_database_that_is_written_gives_a_state_that_was_or_says_that_it_cannot(tmp_path: Path) -> None:
    """Each batch puts the same number under all keys: a state between two batches would show two."""
    keys = [b"key%03d" % number for number in range(200)]
    answers = []
    options = {"write_buffer_size": 100_000, "max_file_size": 1 << 20}
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True, **options) as database:
        for number in range(1, 240):
            with database.write_batch() as batch:
                for key in keys:
                    batch.put(key, b"%06d" % number * 10)
            if number % 5:
                continue
            table = read_again(tmp_path / "db")
            assert table["key"].to_pylist() == keys
            (value,) = set(table["value"].to_pylist())
            answers.append(value)
    assert answers == sorted(answers)


def read_again(path: Path) -> pa.Table:
    """The state, as soon as LevelDB leaves its files alone: it has less and less to merge while nobody writes."""
    for _ in range(200):
        with suppress(SawlogError):
            return sawlog.read(path, format="leveldb_database", view="live", columns=["key", "value"])
        time.sleep(0.01)
    raise AssertionError("the database changes whenever it is read")
