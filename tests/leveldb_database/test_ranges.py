"""Ranges of keys: cut inside of tables, read by threads, with files that they share."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import sawlog
from sawlog.leveldb.database.fragments import KeyRange, LogEntries
from sawlog.leveldb.table import rows as table_rows

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

PIECE = 64 << 10
ROUNDS = 4


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of tables that overlap, and of a log, each with puts and deletions of keys from everywhere."""
    path = tmp_path_factory.mktemp("ranges") / "db"
    dice = np.random.default_rng(5)
    for _ in range(ROUNDS):  # what a log holds becomes a table when the database is opened again
        with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=4 << 20, compression=None) as database:
            for number in dice.integers(0, 9000, 4000).tolist():
                key = b"key%06d" % number
                database.delete(key) if number % 7 == 0 else database.put(key, dice.bytes(100))
    return path


@pytest.mark.parametrize("view", ["live", "all", "bedrock"])
def test_threads_give_the_rows_of_one_in_its_order(
    overlapping: Path, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sawlog.format.planning.PIECE_BYTES", PIECE)
    dataset = sawlog.open(overlapping, format="leveldb_database", view=view, use_threads=4)
    tables = [file for file in dataset.files if file.path.endswith(".ldb")]
    assert len(list(dataset.fragments(PIECE))) > len(tables)
    maps, logs = 0, 0

    class CountingReader(table_rows.MapReader):
        def read(self) -> table_rows.TableMap:
            nonlocal maps
            maps += 1
            return super().read()

    read_logs = KeyRange.read_logs

    def count_reads(key_range: KeyRange, on_damage: sawlog.format.damage.OnDamage) -> LogEntries:
        nonlocal logs
        logs += 1
        return read_logs(key_range, on_damage)

    monkeypatch.setattr(table_rows, "MapReader", CountingReader)
    monkeypatch.setattr(KeyRange, "read_logs", count_reads)
    table = dataset.to_table()
    assert logs == 1
    assert maps <= 2 * len(tables)  # for the cuts, and for the rows
    alone = sawlog.read(overlapping, format="leveldb_database", view=view, use_threads=False)
    assert table.equals(alone)


def test_a_range_that_another_process_reads_gives_the_same_rows(overlapping: Path) -> None:
    dataset = sawlog.open(overlapping, format="leveldb_database", use_threads=False)
    ranges = list(dataset.fragments(PIECE))
    assert len(ranges) > ROUNDS
    batches = [batch for part in pickle.loads(pickle.dumps(ranges)) for batch in part.to_batches()]
    assert sum(batch.num_rows for batch in batches) == dataset.count_rows()
    keys = [key for batch in batches for key in batch.column("key").to_pylist()]
    assert keys == sorted(set(keys))
