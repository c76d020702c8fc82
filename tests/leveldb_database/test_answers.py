"""Databases of RocksDB's, each with its answers: what `live` delivers must be these, for every column family."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sawlog
from sawlog.leveldb.database import version
from sawlog.leveldb.database.dataset import DatabaseContents
from sawlog.leveldb.records.transactions import PendingOperations
from tests.leveldb_database.support import GOLDEN, read_answers, read_live_state

ANSWERS = sorted(path for path in GOLDEN.glob("*/db.kv*"))
TABLES = {".kv": "default", ".kv2": "zweite"}


@pytest.mark.spread(1)
@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.parent.name + path.suffix)
def test_live_is_what_the_engine_answered(path: Path) -> None:
    state = read_answers(path)
    assert state
    assert read_live_state(path.parent / "db", TABLES[path.suffix]) == state


@pytest.mark.spread(1)
@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.parent.name + path.suffix)
def test_what_is_sound_is_not_damaged(path: Path) -> None:
    report = sawlog.verify(path.parent / "db", format="leveldb_database", table=TABLES[path.suffix])
    assert not report.damaged


def test_a_timed_put_has_its_value_in_every_view() -> None:
    rows = sawlog.read(GOLDEN / "rocksdb-11.8.1-timed-put" / "db", format="leveldb_database", view="all").to_pylist()
    timed = [row for row in rows if row["operation"] == "timed_put"]
    assert {row["level"] for row in timed} == {-1, 0}
    assert max(len(row["value"]) for row in timed) < 16


TIMED = GOLDEN / "rocksdb-11.8.1-timed-put" / "db"


@pytest.mark.parametrize(
    ("pattern", "format", "view", "values"),
    [
        ("*.sst", "leveldb_table", "rows", [b"", b"\x88\x88", b"\xfb\xb4^t41u", b"\xba\xed\x03\x94o", b"ab", b""]),
        (
            "*.log",
            "leveldb_log",
            "writes",
            [b"t\x99", b"abc", b"abcd", b"\xe5\xabi\xc8\ne", b"\xaf", b"\x9d=", b"2\x01i\x10zx\xd7"],
        ),
    ],
)
def test_a_timed_put_has_its_value_in_the_view_of_its_file(
    pattern: str, format: str, view: str, values: list[bytes], tmp_path: Path
) -> None:
    """What is written of it is a timed put again."""
    (path,) = TIMED.glob(pattern)
    rows = sawlog.read(path, format=format, view=view)
    assert [row["value"] for row in rows.to_pylist() if row["operation"] == "timed_put"] == values
    copy = tmp_path / path.name
    sawlog.write(rows, copy, format=format, **({"dialect": "rocksdb"} if view == "rows" else {"view": view}))
    assert sawlog.read(copy, format=format, view=view).equals(rows)


def test_repair_of_a_table_keeps_the_times_of_timed_puts(tmp_path: Path) -> None:
    (path,) = TIMED.glob("*.sst")
    content = bytearray(path.read_bytes())
    time = content.index(b"\x88\x88" + bytes(8)) + 2
    content[time : time + 8] = (77).to_bytes(8, "little")
    tmp_path.joinpath("timed.sst").write_bytes(content)
    options = {"format": "leveldb_table", "verify_checksums": False}
    sawlog.repair(tmp_path / "timed.sst", tmp_path / "repaired.sst", **options)
    stored, repaired = (
        sawlog.read(tmp_path / f"{name}.sst", **options, keys="raw").column("value").to_pylist()
        for name in ("timed", "repaired")
    )
    assert b"\x88\x88" + (77).to_bytes(8, "little") in stored
    assert repaired == stored


def history(name: str, table: str = "default") -> list[dict[str, object]]:
    return sawlog.read(GOLDEN / name / "db", format="leveldb_database", view="all", table=table).to_pylist()


@pytest.mark.parametrize("name", ["rocksdb-11.8.1-writeprepared-open", "rocksdb-11.8.1-writeunprepared-open"])
def test_what_is_prepared_and_not_committed_is_shown_with_its_state(name: str) -> None:
    rows = history(name)
    open_rows = [row for row in rows if row["transaction"] is not None]
    assert {row["transaction"] for row in open_rows} == {"prepared"}
    assert not any(row["live"] for row in open_rows)
    assert {row["level"] for row in open_rows} == {0}, "they are in a table"


def test_a_log_that_is_older_than_the_tables_still_counts_for_its_transactions() -> None:
    late = [row for row in history("rocksdb-11.8.1-commit-with-timestamp", "zweite") if row["value"] == b"LATE"]
    assert [(row["key"], row["timestamp"], row["live"]) for row in late] == [(b"aaa", 16, True)]
    logs = ["000004.log", "000010.log"]
    report = sawlog.verify(GOLDEN / "rocksdb-11.8.1-commit-with-timestamp" / "db", format="leveldb_database")
    assert [Path(file.path).name for file in report.files if file.path.endswith(".log")] == logs


def open_transactions(path: Path) -> PendingOperations:
    """The operations of transactions that are still open."""
    contents = sawlog.open(path, format="leveldb_database").contents
    assert isinstance(contents, DatabaseContents)
    return contents.version.pending


def test_logs_without_transactions_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "db"
    shutil.copytree(GOLDEN / "cometbft-0.38.17" / "blockstore.db", path)
    monkeypatch.setattr(version, "has_marks", lambda batch: pytest.fail("the operations that are read show it"))
    assert sawlog.read(path, format="leveldb_database").num_rows


@pytest.mark.parametrize(
    ("remarks", "read"),
    [({}, 1), ({7: "false"}, 0), ({7: "false", 12: "false"}, 0), ({7: "true"}, 1), ({7: "false", 12: "true"}, 1)],
)
def test_logs_are_looked_into_where_there_may_be_transactions(
    remarks: dict[int, str], read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The OPTIONS files of a RocksDB say whether there are, all of them."""
    path = tmp_path / "db"
    shutil.copytree(GOLDEN / "rocksdb-11.8.1-writeprepared-log" / "db", path)
    for number, value in remarks.items():
        path.joinpath(f"OPTIONS-{number:06d}").write_text(f"[DBOptions]\n  allow_2pc={value}\n")
    looked = []
    monkeypatch.setattr(version, "has_marks", lambda batch: looked.append(batch.num_rows) or False)
    assert not open_transactions(path)
    assert bool(looked) == bool(read)
    path.joinpath("OPTIONS-000012").write_text("[DBOptions]\n")
    looked.clear()
    assert not open_transactions(path)
    assert looked, "an OPTIONS file that does not say it"
