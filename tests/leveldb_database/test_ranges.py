"""Ranges of keys: cut inside of tables, read by threads, with files that they share."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog import DamageError
from sawlog.format.damage import Findings, OnDamage
from sawlog.format.planning import plan_for_threads
from sawlog.leveldb.applications.fragments import Decoded
from sawlog.leveldb.columns import ENTRY_SCHEMA, KEY, OPERATION_NAMES, VALUE, EntryRun
from sawlog.leveldb.database import kernels
from sawlog.leveldb.database.dataset import DatabaseContents
from sawlog.leveldb.database.fragments import KeyRange, LogEntries
from sawlog.leveldb.database.merge import MergedEntries
from sawlog.leveldb.database.version import LiveTable
from sawlog.leveldb.records.transactions import PendingOperations
from sawlog.leveldb.table import entries
from sawlog.leveldb.table import rows as table_rows
from sawlog.leveldb.table.rows import TableRange
from sawlog.storage import File
from tests.leveldb_database.support import APPLICATION_PATHS, GOLDEN, rename_comparator

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

PIECE = 64 << 10
NO_COVERS = np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.int64)
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
        def __init__(self, *arguments: Any) -> None:
            nonlocal maps
            maps += 1
            super().__init__(*arguments)

    read_logs = KeyRange.read_logs

    def count_reads(key_range: KeyRange, on_damage: OnDamage) -> LogEntries:
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


def test_rows_of_a_whole_range_may_wait_for_those_before(overlapping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is ahead by a range has no room for more, and waits, where ranges are larger than pieces."""
    monkeypatch.setattr("sawlog.format.planning.PIECE_BYTES", PIECE)
    dataset = sawlog.open(overlapping, format="leveldb_database", use_threads=4)
    ranges = list(plan_for_threads(dataset.contents, dataset.request))
    assert len(ranges) == len(list(dataset.fragments(PIECE)))


def test_tables_are_not_asked_for_as_a_whole_where_alternatives_spare_blocks(overlapping: Path) -> None:
    keys = [b"key000010", b"key000020"]
    filters = [[("key", "=", key)] for key in keys]
    dataset = sawlog.open(overlapping, format="leveldb_database", filters=filters, use_threads=False)
    (part,) = dataset.fragments()
    assert not [file.path for file, _, _ in part.extents if file.path.endswith(".ldb")]
    stored_keys = sawlog.read(overlapping, format="leveldb_database")["key"].to_pylist()
    assert dataset.to_table()["key"].to_pylist() == [key for key in stored_keys if key in keys]


def test_a_range_that_another_process_reads_gives_the_same_rows(overlapping: Path) -> None:
    dataset = sawlog.open(overlapping, format="leveldb_database", use_threads=False)
    ranges = list(dataset.fragments(PIECE))
    assert len(ranges) > ROUNDS
    batches = [batch for part in pickle.loads(pickle.dumps(ranges)) for batch in part.to_batches()]
    assert sum(batch.num_rows for batch in batches) == dataset.count_rows()
    keys = [key for batch in batches for key in batch.column("key").to_pylist()]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("step", [1, -1])
def test_keys_before_those_of_a_damaged_table_are_delivered(step: int, tmp_path: Path) -> None:
    """Tables of level 0 are read where their keys begin, whatever their ages; all range deletions before them count."""
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(tmp_path / "db"), options)
    for number in range(6)[::step]:
        for key in range(10):
            database[b"%d%d" % (number, key)] = bytes(100)
        database.delete_range(b"%d0" % number, b"%d2" % number)
        database.flush()
    database.close()
    table = sorted((tmp_path / "db").glob("*.sst"))[::step][4]
    content = table.read_bytes()
    table.write_bytes(content[:10] + b"\xff" + content[11:])
    batches: list[pa.RecordBatch] = []
    with pytest.raises(DamageError, match=table.name):
        batches.extend(sawlog.open(tmp_path / "db", view="live").to_batches())
    keys = [key for batch in batches for key in batch.column("key").to_pylist()]
    assert keys == [b"%d%d" % (number, key) for number in range(4) for key in range(2, 10)]


def test_tables_give_what_the_engine_answers_however_they_overlap(tmp_path: Path) -> None:
    dice = random.Random(54)
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(tmp_path), options)
    for number in range(80):
        first = dice.randrange(900)
        for _ in range(dice.randrange(1, 40)):
            key = first + dice.randrange(dice.choice([1, 40, 900]))
            if dice.random() < 0.1:
                database.delete_range(b"%04d" % key, b"%04d" % (key + dice.randrange(1, 90)))
            elif dice.random() < 0.2:
                database.delete(b"%04d" % key)
            else:
                database[b"%04d" % key] = b"%d" % number
        database.flush()
    expected = list(database.items())
    database.close()
    for size in (None, 4 << 10):
        dataset = sawlog.open(tmp_path, format="leveldb_database", view="live")
        batches = [batch for part in dataset.fragments(size) for batch in part.to_batches()]
        table = pa.Table.from_batches(batches, dataset.schema)
        assert list(zip(*(table.column(name).to_pylist() for name in ("key", "value")), strict=True)) == expected


@pytest.mark.parametrize("runs", [2, 12])
def test_runs_whose_keys_are_not_in_order_are_merged_as_if_they_were(runs: int) -> None:
    """Keys in the middle begin otherwise than the first and the last, and ascend after that."""
    dice = random.Random(runs)
    numbers = list(range(runs * 200))
    dice.shuffle(numbers)
    groups, newest = [], {}
    for number in range(runs):
        keys = [b"key%05d" % place for place in sorted(numbers[number::runs])]
        keys[50:150] = [key.replace(b"key", b"new") for key in keys[50:150]]
        values = [dice.randbytes(dice.randrange(200)) for _ in keys]
        sequences = [1000 * (runs - number) + place for place in range(len(keys))]
        newest |= {key: (key, value) for key, value in zip(keys, values, strict=True) if key not in newest}
        rows = zip(sequences, [OPERATION_NAMES.index("put")] * len(keys), keys, values, strict=True)
        batch = pa.RecordBatch.from_pylist([dict(zip(ENTRY_SCHEMA.names, row, strict=True)) for row in rows])
        groups.append([EntryRun(f"{number}.ldb", 0, [batch.cast(ENTRY_SCHEMA)])])
    merged = MergedEntries(groups, kernels.Covers(*NO_COVERS), PendingOperations(), bytewise=True)
    (entries,) = merged.make_batches(
        pa.schema([ENTRY_SCHEMA.field(KEY), ENTRY_SCHEMA.field(VALUE)]), {}, include_dead=False
    )
    assert list(zip(*(column.to_pylist() for column in entries.columns), strict=True)) == sorted(newest.values())


@pytest.mark.parametrize(("key", "value"), [(6 << 20, 1), (1, 6 << 20), (3 << 20, 3 << 20)])
def test_batches_are_bounded_by_bytes_of_keys_and_values(key: int, value: int) -> None:
    put = OPERATION_NAMES.index("put")
    groups = []
    for run in range(2):
        rows = [(place, put, bytes([2 * place + run]) * key, bytes(value)) for place in range(3)]
        batch = pa.RecordBatch.from_pylist([dict(zip(ENTRY_SCHEMA.names, row, strict=True)) for row in rows])
        groups.append([EntryRun(f"{run}.ldb", 0, [batch.cast(ENTRY_SCHEMA)])])
    merged = MergedEntries(groups, kernels.Covers(*NO_COVERS), PendingOperations(), bytewise=True)
    batches = merged.make_batches(ENTRY_SCHEMA.remove(1), {}, include_dead=True)
    assert [batch.num_rows for batch in batches] == [2, 2, 2]


@pytest.mark.parametrize("compression", [None, "snappy"])
@pytest.mark.parametrize("levels", [1, 3])
def test_values_that_are_stored_as_they_are_are_copied_once(
    compression: str | None, levels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the rows of the database, where several files are merged: those of one file are copied from its blocks."""
    for level in range(levels):
        with plyvel.DB(str(tmp_path), create_if_missing=True, compression=compression) as database:
            for number in range(level, 3000, level + 1):
                database.put(b"%04d" % number, b"%d" % level * (number % 300))
    with plyvel.DB(str(tmp_path), compression=compression) as database:  # what is in the log becomes a table
        expected = list(database)
    are_copied = set()
    read = entries.read_blocks

    def observe(*arguments: Any) -> int:
        are_copied.add(not len(arguments[-1].value_sizes))
        return int(read(*arguments))

    monkeypatch.setattr(entries, "read_blocks", observe)
    batches = list(sawlog.open(tmp_path, format="leveldb_database").to_batches())
    rows = [zip(*(batch.column(name).to_pylist() for name in (KEY, VALUE)), strict=True) for batch in batches]
    assert [row for part in rows for row in part] == expected
    assert are_copied == {levels == 1 or compression is not None}


class CountedKey(bytes):
    """A key that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, right: bytes) -> bool:
        CountedKey.comparisons += 1
        return bytes(self) < bytes(right)

    def __gt__(self, right: bytes) -> bool:
        CountedKey.comparisons += 1
        return bytes(self) > bytes(right)

    def __le__(self, right: bytes) -> bool:
        CountedKey.comparisons += 1
        return bytes(self) <= bytes(right)


def test_planning_compares_keys_of_tables_as_often_for_each_of_many() -> None:
    counts = {}
    for tables in (100, 400):
        dataset = sawlog.open(GOLDEN / "rocksdb-11.8.1-timed-put" / "db", format="leveldb_database")
        contents = dataset.contents
        assert isinstance(contents, DatabaseContents)
        bounds = [(CountedKey(b"%06d" % number), CountedKey(b"%06d~" % number)) for number in range(tables)]
        live = tuple(
            LiveTable(File(f"{number:06}.sst", 10), 1, smallest, end) for number, (smallest, end) in enumerate(bounds)
        )
        contents.version = replace(contents.version, tables=live)
        CountedKey.comparisons = 0
        ranges = dataset.fragments(10)
        assert len(ranges) >= tables // 2
        counts[tables] = CountedKey.comparisons
    assert counts[400] <= 6 * counts[100]  # sorting them grows by a little more


def test_a_merge_reads_as_much_for_a_window_as_for_all_before(tmp_path: Path) -> None:
    tables, rows = 40, 1000
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(tmp_path), options)
    for number in range(tables):
        for key in range(rows):
            database[b"%02d%04d" % (number, key)] = b"value"
        database.flush()
    database.close()
    windows: list[object] = []
    findings = Findings("fail")
    findings.observe = windows.append
    (key_range,) = sawlog.open(tmp_path, format="leveldb_database").fragments()
    assert sum(batch.num_rows for batch in key_range.to_batches(findings)) == tables * rows
    assert len(windows) < tables // 4


@pytest.fixture(scope="module")
def unordered(overlapping: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same database in an order of keys that nobody knows."""
    path = tmp_path_factory.mktemp("unordered") / "db"
    shutil.copytree(overlapping, path)
    rename_comparator(path, "leveldb.BytewiseComparator", "leveldb.BytewiseComparatoX")
    return path


def list_rows(
    path: Path, task_bytes: int | None, *, pickled: bool, **settings: Any
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many fragments a database has, and the rows that they have in order."""
    fragments = sawlog.open(path, format="leveldb_database", **settings).fragments(task_bytes)
    read = pickle.loads(pickle.dumps(fragments)) if pickled else fragments
    return len(fragments), [row for part in read for batch in part.to_batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("history", [False, True])
def test_parts_of_a_view_of_files_in_another_order_have_the_rows_of_all(pickled: bool, history: bool) -> None:
    path, settings = APPLICATION_PATHS["indexed_db"], {"view": "indexed_db", "history": history}
    count, expected = list_rows(path, None, pickled=False, **settings)
    assert count == 1
    assert list_rows(path, 4 << 10, pickled=pickled, **settings) == (4, expected)


def test_threads_read_files_in_another_order_once_for_all_parts(
    unordered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = sawlog.read(unordered, format="leveldb_database", view="indexed_db", use_threads=False)
    monkeypatch.setattr("sawlog.format.planning.PIECE_BYTES", PIECE)
    reads = _list_reads(monkeypatch)
    dataset = sawlog.open(unordered, format="leveldb_database", view="indexed_db", use_threads=4)
    assert len(list(plan_for_threads(dataset.contents, dataset.request))) == 4
    assert dataset.to_table().equals(alone)
    assert sorted(reads) == sorted(set(reads))


def test_the_last_part_may_end_before_others_begin(unordered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.format.planning.PIECE_BYTES", PIECE)
    dataset = sawlog.open(unordered, format="leveldb_database", view="indexed_db", use_threads=4)
    parts = list(plan_for_threads(dataset.contents, dataset.request))
    reads = _list_reads(monkeypatch)
    for part in reversed(parts):
        assert isinstance(part, Decoded)
        for _ in part.to_batches(Findings("fail")):
            pass
    assert sorted(reads) == sorted(set(reads))
    assert all(part.entries.shared.unordered.value is None for part in parts), "entries are in memory still"


def _list_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that takes in the path of each table that is read."""
    reads: list[str] = []
    decode = TableRange.decode

    def count_reads(table: TableRange, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        reads.append(table.path)
        return decode(table, schema, findings)

    monkeypatch.setattr(TableRange, "decode", count_reads)
    return reads


@pytest.mark.parametrize("pickled", [False, True])
def test_the_first_part_reports_the_damage_of_all(pickled: bool, unordered: Path, tmp_path: Path) -> None:
    path = tmp_path / "db"
    shutil.copytree(unordered, path)
    table = max(path.glob("*.ldb"))
    content = table.read_bytes()
    table.write_bytes(content[:10] + b"\xff" + content[11:])
    settings: dict[str, Any] = {"format": "leveldb_database", "view": "indexed_db"}
    readings = []
    for size in (None, PIECE):
        fragments = sawlog.open(path, on_damage="skip", **settings).fragments(size)
        ledgers = [Findings("skip") for _ in fragments]
        read = pickle.loads(pickle.dumps(fragments)) if pickled else fragments
        rows = [
            row
            for part, ledger in zip(read, ledgers, strict=True)
            for batch in part.to_batches(ledger)
            for row in batch.to_pylist()
        ]
        assert not any(ledger.kinds for ledger in ledgers[1:])
        assert sum(ledger.rows for ledger in ledgers) == len(rows)
        readings.append((rows, ledgers[0].damages, ledgers[0].account))
    assert readings[0] == readings[1]
    for part in sawlog.open(path, **settings).fragments(PIECE):
        with pytest.raises(DamageError, match=table.name):
            next(part.to_batches())
