"""Exceptions that nobody thought of are faults of sawlog, and never damage; decoders are called in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.cli import main
from sawlog.errors import ChangedError, InternalError, StorageError
from sawlog.format.damage import Damage, Findings
from sawlog.guard import Undecodable, call_decoder
from sawlog.leveldb.log import format as leveldb
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.dataset import LogContents
from sawlog.leveldb.log.walk import LogRange
from tests.support import write_records

RECORDS = [b"%d" % n * 2000 for n in range(40)]


def broken(error: Callable[[], BaseException], after: int = 1) -> Callable[..., Iterator[pa.RecordBatch]]:
    """A decoder that fails after some batches, with a damage and rows that it never handed over."""
    decode = LogRange.decode

    def give_up(self: LogRange, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        batches = decode(self, schema, findings)
        for _ in range(after):
            yield next(batches)
        findings.rows += 7
        findings.account.record += 11
        if findings.on_damage == "skip":
            findings.add_damage(Damage(self.path, self.start, 1, "forgotten", ""))
        raise error()

    return give_up


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sawlog.leveldb.log.walk.BATCH_ROWS", 8)
    path = tmp_path / "1.log"
    write_records(path, RECORDS)
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


def doors(log: Path) -> Iterator[Callable[[], object]]:
    """All that reads a log."""
    yield lambda: sawlog.read(log)
    yield lambda: sawlog.read(log, on_damage="skip")
    yield lambda: sawlog.read(log, view="damage")
    yield lambda: sawlog.open(log, on_damage="skip").count_rows()
    yield lambda: sawlog.verify(log)
    yield lambda: list(sawlog.open(log, on_damage="skip").watch().look())


@pytest.mark.parametrize("error", FOREIGN)
def test_what_nobody_foresaw_is_neither_damage_nor_skipped(
    log: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    monkeypatch.setattr(LogRange, "decode", broken(error))
    for door in doors(log):
        with pytest.raises(InternalError, match=rf"{type(error()).__name__}.*please report") as raised:
            door()
        assert type(raised.value.__cause__) is type(error())


def test_the_command_line_asks_for_a_report(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LogRange, "decode", broken(MemoryError))
    for verb in ("cat", "verify"):
        assert main([verb, str(log)]) == 70
        message = capsys.readouterr().err
        assert "MemoryError" in message
        assert "please report" in message
        assert "Traceback" not in message


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, lambda: PermissionError(13, "denied")])
def test_what_is_not_about_the_bytes_passes(log: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    monkeypatch.setattr(LogRange, "decode", broken(error))
    for policy in ("fail", "skip"):
        with pytest.raises(type(error())):
            sawlog.read(log, on_damage=policy)


def test_a_decoder_says_what_is_wrong_with_bytes() -> None:
    import pyarrow.parquet as pq

    bad = pa.BufferReader(b"PAR1" + b"\xff" * 100 + b"\x20\0\0\0PAR1")
    outcome = call_decoder(pq.read_table, bad)
    assert isinstance(outcome, Undecodable)
    assert outcome.detail
    assert call_decoder(int, "7") == 7
    assert call_decoder(int, "x") == Undecodable("invalid literal for int() with base 10: 'x'")


@pytest.mark.parametrize("error", [MemoryError, RecursionError, ImportError, AttributeError, NameError, TypeError])
def test_what_says_nothing_about_bytes_is_no_word_of_a_decoder(error: type[Exception]) -> None:
    def decoder() -> None:
        raise error("oh")

    with pytest.raises(InternalError, match=f"{error.__name__}.*oh.*please report"):
        call_decoder(decoder)


def test_what_a_store_says_to_a_decoder_is_no_word_of_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        call_decoder(open, tmp_path / "none")
    with pytest.raises(ChangedError):
        call_decoder(broken_source)


def broken_source() -> None:
    raise ChangedError("it became shorter")


@pytest.mark.parametrize(
    ("place", "name", "message"),
    [
        (layout, "find_block_end", "planning failed"),
        (LogContents, "find_view", "opening as leveldb_log failed"),
        (leveldb.LevelDBLog, "match", "leveldb_log could not say"),
    ],
)
def test_planning_opening_and_recognition_say_what_they_did(
    log: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, message: str
) -> None:
    def give_up(*_: Any) -> Any:
        raise KeyError("no such thing")

    monkeypatch.setattr(place, name, give_up)
    with pytest.raises(InternalError, match=rf"1\.log.*{message}.*KeyError.*no such thing") as raised:
        sawlog.read(log)
    assert isinstance(raised.value.__cause__, KeyError)


def test_repair_says_what_it_did(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: Any) -> Any:
        raise OverflowError("too much")

    monkeypatch.setattr(leveldb.LevelDBLog, "repair", give_up)
    with pytest.raises(InternalError, match="repair as leveldb_log failed: OverflowError"):
        sawlog.repair(log, tmp_path / "2.log")
