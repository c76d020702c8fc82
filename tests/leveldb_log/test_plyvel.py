"""Against the real LevelDB: its logs are read, ours are recovered, and its count of dropped bytes is ours."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

import sawlog
from tests.support import write_records

from .fragments import BLOCK, batch, fragment, reference, scan_file, write
from .reference_cases import CASES, CLEAN

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

DROP = re.compile(r"dropping (\d+) bytes; Corruption: (.*)")
EDIT = b"\x01\x1aleveldb.BytewiseComparator\x02\x00\x09\x00\x03\x02\x04\x00"


def database(directory: Path) -> Path:
    """An empty database, made by sawlog: all it needs is a MANIFEST and the name of it."""
    directory.mkdir()
    write_records(directory / "MANIFEST-000001", [EDIT])
    (directory / "CURRENT").write_text("MANIFEST-000001\n")
    return directory


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the directory of a database in use, its log not yet turned into tables."""
    home = tmp_path_factory.mktemp("leveldb")
    db = plyvel.DB(str(home / "db"), create_if_missing=True, write_buffer_size=64 << 20)
    for i in range(10_000):
        db.put(b"key%06d" % i, b"v" * (i % 300))
    db.put(b"large", bytes(range(256)) * 400)
    with db.write_batch() as operations:
        operations.put(b"a", b"1")
        operations.delete(b"key000007")
    db.delete(b"key000008")
    shutil.copytree(home / "db", home / "copy")
    db.close()
    return home / "copy"


def test_reads_what_leveldb_wrote(real: Path) -> None:
    (path,) = real.glob("*.log")
    reading = scan_file(path)
    assert len(reading.rows) == 10_003
    assert reading.damages == []
    assert reading.account.total == path.stat().st_size
    assert reading.records[0] == batch(1, (b"key000000", b""))
    assert reading.records[10_000] == batch(10_001, (b"large", bytes(range(256)) * 400))
    assert reading.records[10_001] == batch(10_002, (b"a", b"1"), (b"key000007", None))
    assert reading.records[10_002] == batch(10_004, (b"key000008", None))
    for task_bytes in (BLOCK, 100_000):
        assert scan_file(path, task_bytes).rows == reading.rows


def test_writes_the_same_bytes_as_leveldb(real: Path, tmp_path: Path) -> None:
    (path,) = real.glob("*.log")
    for source in (path, *real.glob("MANIFEST-*")):
        sawlog.write(sawlog.read(source), tmp_path / "copy.log", format="leveldb_log")
        assert (tmp_path / "copy.log").read_bytes() == source.read_bytes()


def test_a_directory_of_leveldb_is_recognised(real: Path) -> None:
    assert sawlog.open(real).format.name == "leveldb_database"
    dataset = sawlog.open(real, format="leveldb_log")
    assert dataset.count_rows() == 10_003


def test_leveldb_recovers_what_sawlog_wrote(tmp_path: Path) -> None:
    home = database(tmp_path / "db")
    expected = {b"k%06d" % i: b"value %d" % i for i in range(10_000)} | {b"large": b"L" * 100_000}
    operations: list[tuple[bytes, bytes | None]] = [*expected.items(), (b"k000123", None)]
    del expected[b"k000123"]
    write_records(home / "000003.log", [batch(1 + i, operation) for i, operation in enumerate(operations)])
    db = plyvel.DB(str(home), create_if_missing=False, paranoid_checks=True)
    assert dict(db.iterator()) == expected
    db.close()


def test_leveldb_recovers_a_log_that_was_appended_to_and_repaired(tmp_path: Path) -> None:
    home = database(tmp_path / "db")
    log = tmp_path / "000003.log"
    records = [batch(i + 1, (b"k%03d" % i, b"v" * 1000)) for i in range(100)]
    write_records(log, records[:60])
    log.write_bytes(log.read_bytes() + write(records[60], start=log.stat().st_size)[:-5])
    write_records(log, records[60:], append=True)
    data = bytearray(log.read_bytes())
    data[BLOCK + 5_000] ^= 1
    log.write_bytes(data)
    report = sawlog.repair(log, home / "000003.log")
    repaired_records = scan_file(home / "000003.log").records
    assert report.damaged
    assert 60 < len(repaired_records) < 100
    db = plyvel.DB(str(home), create_if_missing=False, paranoid_checks=True)
    assert dict(db.iterator()) == {record[14:18]: b"v" * 1000 for record in repaired_records}
    db.close()


def drops_of_leveldb(home: Path, log: bytes) -> list[tuple[int, str]]:
    """What LevelDB notes about a log in its own journal when it recovers from it."""
    (home / "000003.log").write_bytes(log)
    plyvel.DB(str(home), create_if_missing=False).close()
    text = (home / "LOG").read_text(errors="replace")
    drops = [(int(size), reason) for size, reason in DROP.findall(text)]
    # These report payloads that are no write batches.
    return [drop for drop in drops if not drop[1].startswith(("log record too small", "WriteBatch"))]


QUIRKS = {"type 5", "type 6"}
ORACLE = [(name, log) for name, log, _, _ in CASES if name not in QUIRKS]
ORACLE += [(name, write(*records)) for name, records, _ in CLEAN if len(records) < 100]


@pytest.mark.parametrize(("name", "log"), ORACLE, ids=[name for name, _ in ORACLE])
def test_leveldb_counts_the_same_drops(name: str, log: bytes, tmp_path: Path) -> None:
    theirs = drops_of_leveldb(database(tmp_path / "db"), log)
    path = tmp_path / "000003.log"
    path.write_bytes(log)
    ours = scan_file(path, dialect="leveldb").drops
    assert [size for size, _ in theirs] == [size for size, _ in ours]
    assert all(reason.startswith(start) for (_, reason), (_, start) in zip(theirs, ours, strict=True))


@pytest.mark.parametrize("seed", range(25))
def test_leveldb_counts_the_same_drops_in_random_damage(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = [batch(1 + i, (b"%d" % i, rng.randbytes(rng.choice([1, 40, 3_000, 40_000])))) for i in range(30)]
    log = bytearray(write(*records))
    for _ in range(rng.randint(1, 5)):
        offset = rng.randrange(len(log))
        match rng.randrange(4):
            case 0:
                log[offset] ^= 1 << rng.randrange(8)
            case 1:
                log[offset : offset + 50] = bytes(50)
            case 2:
                del log[offset : offset + rng.randrange(5_000)]
            case 3:
                log[offset:offset] = fragment(rng.choice([1, 2, 3, 4, 77]), batch(99, (b"x", b"y")))
    home = database(tmp_path / "db")
    theirs = drops_of_leveldb(home, bytes(log))
    path = tmp_path / "000003.log"
    path.write_bytes(log)
    reading = scan_file(path, dialect="leveldb")
    assert [size for size, _ in theirs] == [size for size, _ in reading.drops]
    assert reading.rows == reference(bytes(log)).rows
