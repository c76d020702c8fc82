"""Against the real RocksDB: its plain, recycled and compressed logs are read, and ours are recovered."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.format.damage import TailStatus
from tests.support import write_records

from .fragments import BLOCK, batch, scan_file

ENTRIES = {b"key%05d" % i: b"v" * (i % 200) for i in range(2_000)} | {
    b"random": random.Random(1).randbytes(100_000),
    b"regular": b"ab" * 150_000,
}


def snapshot(db: Rdict, home: Path, to: Path) -> Path:
    """The directory as it would be found after a crash."""
    db.flush_wal(sync=True)
    to.mkdir()
    for path in home.iterdir():
        # RocksDB deletes in the background what it no longer needs.
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(path, to)
    return to


def puts(path: Path) -> dict[bytes, bytes]:
    """Keys and values of a log of single puts, of column family 0."""
    values_by_key = {}
    for record in scan_file(path).records:
        assert int.from_bytes(record[8:12], "little") == 1
        key_size = record[13]
        key, tail = record[14 : 14 + key_size], record[14 + key_size :]
        size = shift = offset = 0
        while True:
            size |= (tail[offset] & 127) << shift
            shift += 7
            offset += 1
            if tail[offset - 1] < 128:
                break
        assert len(tail) == offset + size
        values_by_key[key] = tail[offset:]
    return values_by_key


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("plain")
    db = Rdict(str(home / "db"), Options(raw_mode=True))
    for key, value in ENTRIES.items():
        db[key] = value
    copy = snapshot(db, home / "db", home / "copy")
    db.close()
    return copy


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("compressed")
    Rdict(str(home / "db"), Options(raw_mode=True)).close()
    newest = max((home / "db").glob("OPTIONS-*"))
    text = newest.read_text()
    assert "wal_compression=kNoCompression" in text
    newest.write_text(text.replace("wal_compression=kNoCompression", "wal_compression=kZSTD"))
    options, families = Options.load_latest(str(home / "db"))
    db = Rdict(str(home / "db"), options, families)
    for key, value in ENTRIES.items():
        db[key] = value
    copy = snapshot(db, home / "db", home / "copy")
    db.close()
    return copy


def newest_log(home: Path) -> Path:
    return max(home.glob("*.log"), key=lambda path: int(path.stem))


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator:
    """Recovers a copy of a directory with its log replaced, and gives what the database then holds."""

    def recover(home: Path, log: Path) -> dict[bytes, bytes]:
        target = tmp_path / "recovered"
        shutil.copytree(home, target)
        shutil.copy(log, newest_log(target))
        db = Rdict(str(target), Options(raw_mode=True))
        content = dict(db.items())
        db.close()
        return content

    return recover


def test_reads_a_plain_log(plain: Path) -> None:
    path = newest_log(plain)
    assert puts(path) == ENTRIES
    reading = scan_file(path)
    assert reading.damages == []
    assert scan_file(path, BLOCK).rows == reading.rows


def test_reads_a_compressed_log(compressed: Path) -> None:
    path = newest_log(compressed)
    assert path.stat().st_size < sum(map(len, ENTRIES.values()))
    assert puts(path) == ENTRIES
    assert sawlog.open(path).info()["compression"] == "zstd"
    reading = scan_file(path)
    assert reading.account.header == 11
    assert reading.damages == []
    assert scan_file(path, BLOCK).rows == reading.rows


def test_reads_recycled_logs(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.set_recycle_log_file_num(2)
    options.set_write_buffer_size(256 << 10)
    db = Rdict(str(tmp_path / "db"), options)
    for round in range(8):
        for i in range(40):
            db[b"round %d key %d" % (round, i)] = bytes([i]) * 20_000
        db.flush()
    for i in range(40):
        db[b"last%02d" % i] = bytes([i]) * 1_000
    copy = snapshot(db, tmp_path / "db", tmp_path / "copy")
    db.close()
    path = newest_log(copy)
    reading = scan_file(path)
    assert puts(path) == {b"last%02d" % i: bytes([i]) * 1_000 for i in range(40)}
    assert reading.damages == []
    assert reading.tail is not None
    assert reading.tail.status is TailStatus.STALE
    assert reading.tail.length > 2 * BLOCK
    assert "recycled, log number" in sawlog.open(path).info()
    for task_bytes in (BLOCK, 3 * BLOCK):
        pieces = scan_file(path, task_bytes)
        assert (pieces.rows, pieces.account, pieces.tail) == (reading.rows, reading.account, reading.tail)


@pytest.mark.parametrize("recyclable", [False, True])
def test_rocksdb_recovers_what_sawlog_wrote(recyclable: bool, plain: Path, tmp_path: Path, reopen) -> None:
    expected = {b"k%06d" % i: b"value %d" % i for i in range(10_000)} | {b"large": b"L" * 100_000}
    records = [batch(1 + i, item) for i, item in enumerate(expected.items())]
    options = {"dialect": "rocksdb", "log_number": int(newest_log(plain).stem)} if recyclable else {}
    log = tmp_path / "new.log"
    write_records(log, records, **options)
    assert reopen(plain, log) == expected


def test_rocksdb_recovers_a_compressed_log_that_was_repaired(compressed: Path, tmp_path: Path, reopen) -> None:
    sawlog.repair(newest_log(compressed), tmp_path / "repaired.log")
    assert reopen(compressed, tmp_path / "repaired.log") == ENTRIES


def test_writing_again_gives_the_same_bytes(plain: Path, tmp_path: Path) -> None:
    for source in (newest_log(plain), *plain.glob("MANIFEST-*")):
        sawlog.write(sawlog.read(source), tmp_path / "copy.log", format="leveldb_log")
        assert (tmp_path / "copy.log").read_bytes() == source.read_bytes()


def test_a_directory_of_rocksdb_is_recognised(plain: Path) -> None:
    assert sawlog.open(plain).format.name == "leveldb_database"
    dataset = sawlog.open(plain, format="leveldb_log")
    assert dataset.info()["dialect"] == "rocksdb"
    assert dataset.count_rows() == len(ENTRIES)
