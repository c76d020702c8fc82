"""Exceptions that nobody thought of become damage, or sawlog's own errors, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.damage import Damage, DamageWarning, Findings
from sawlog.errors import DamageError, FormatError
from sawlog.leveldb_log import format as leveldb
from sawlog.leveldb_log.dataset import LevelDBLogDataset
from sawlog.leveldb_log.fragments import LogRange

RECORDS = [b"%d" % n * 2000 for n in range(40)]


def broken(error: Callable[[], BaseException], after: int = 1) -> Callable[..., Iterator[pa.RecordBatch]]:
    """A decoder that gives up behind a number of batches, with a damage and rows that it never handed over."""
    decode = LogRange.decode

    def give_up(self: LogRange, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        batches = decode(self, schema, findings)
        for _ in range(after):
            yield next(batches)
        findings.rows += 7
        findings.account.record += 11
        if findings.on_damage == "skip":
            findings.damage(Damage(self.path, self.start, 1, "forgotten", ""))
        raise error()

    return give_up


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sawlog.leveldb_log.walk.BATCH_ROWS", 8)
    path = tmp_path / "1.log"
    sawlog.write(pa.table({"record": pa.array(RECORDS, pa.binary())}), path, format="leveldb_log")
    return path


FOREIGN = [
    lambda: pa.ArrowInvalid("no such thing"),
    lambda: IndexError("index 7 is out of bounds"),
    lambda: OverflowError("int too big to convert"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    MemoryError,
    RecursionError,
    ZeroDivisionError,
]


@pytest.mark.parametrize("error", FOREIGN)
def test_what_a_kernel_raises_is_damage(log: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    whole = sawlog.read(log)
    monkeypatch.setattr(LogRange, "decode", broken(error))
    with pytest.warns(DamageWarning, match="unreadable"):
        kept = sawlog.read(log, on_damage="skip")
    assert 0 < kept.num_rows < whole.num_rows
    assert kept.equals(whole.slice(0, kept.num_rows))
    with pytest.raises(DamageError, match=type(error()).__name__) as raised:
        sawlog.read(log)
    assert type(raised.value.__cause__) is type(error())

    (report,) = sawlog.verify(log).files
    (damage,) = report.damages
    assert damage == raised.value.damage
    assert (damage.kind, damage.offset + damage.length) == ("unreadable", log.stat().st_size)
    assert damage.length == report.account.damage
    assert report.rows == kept.num_rows
    assert report.account.total == report.size
    (row,) = sawlog.read(log, view="damage").to_pylist()
    assert (row["offset"], row["length"], row["kind"]) == (damage.offset, damage.length, "unreadable")
    with pytest.warns(DamageWarning, match="unreadable"):
        assert sawlog.open(log, on_damage="skip").count_rows() == kept.num_rows


def test_in_a_later_range_the_place_is_that_of_the_file(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogRange, "decode", broken(IndexError, 0))
    fragments = sawlog.open(log, on_damage="skip").fragments(1)
    assert len(fragments) > 2
    for fragment in fragments:
        (damage,) = fragment.inspect().damages
        assert (damage.offset, damage.length) == fragment.extent == (fragment.start, fragment.size)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, lambda: PermissionError(13, "denied")])
def test_what_is_not_about_the_bytes_passes(log: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    monkeypatch.setattr(LogRange, "decode", broken(error))
    for policy in ("fail", "skip"):
        with pytest.raises(type(error())):
            sawlog.read(log, on_damage=policy)


def test_arrow_calls_bad_bytes_an_error_of_the_system(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(self: LogRange, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        yield from ()
        pq.read_table(pa.BufferReader(b"PAR1" + b"\xff" * 100 + b"\x20\0\0\0PAR1"))

    monkeypatch.setattr(LogRange, "decode", decode)
    with pytest.raises(DamageError, match="unreadable") as raised:
        sawlog.read(log)
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("place", "name", "said"),
    [
        (LevelDBLogDataset, "plan", "planning failed"),
        (LevelDBLogDataset, "view_schema", "opening as leveldb_log failed"),
        (leveldb.LevelDBLog, "match", "leveldb_log could not tell"),
    ],
)
def test_planning_opening_and_recognition_say_what_they_did(
    log: Path, monkeypatch: pytest.MonkeyPatch, place: type, name: str, said: str
) -> None:
    def give_up(*_: Any) -> Any:
        raise KeyError("no such thing")

    monkeypatch.setattr(place, name, give_up)
    with pytest.raises(FormatError, match=rf"1\.log.*{said}.*KeyError.*no such thing") as raised:
        sawlog.read(log)
    assert isinstance(raised.value.__cause__, KeyError)


def test_repair_says_what_it_did(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: Any) -> Any:
        raise OverflowError("too much")

    monkeypatch.setattr(leveldb.LevelDBLog, "repair", give_up)
    with pytest.raises(FormatError, match="repair as leveldb_log failed: OverflowError"):
        sawlog.repair(log, tmp_path / "2.log")
