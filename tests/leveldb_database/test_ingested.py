"""Tables that a RocksDB took in have the sequence numbers that its MANIFEST, or the table itself, says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rocksdict import CompactOptions, Options, Rdict, SstFileWriter

import sawlog
from tests.leveldb_table.support import GOLDEN, GOLDEN_ROWS

FORMAT = "leveldb_database"


def options() -> Options:
    rocksdb_options = Options(raw_mode=True)
    rocksdb_options.set_disable_auto_compactions(True)
    return rocksdb_options


def live(path: Path) -> dict[bytes, bytes]:
    table = sawlog.read(path, format=FORMAT, view="live")
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_live_is_what_rocksdb_answers_after_ingests(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    keys = [b"key%03d" % number for number in range(120)]
    database = Rdict(str(tmp_path / "db"), options())
    for turn in range(12):
        picked_keys = sorted(dice.sample(keys, dice.randrange(1, 40)))
        match dice.randrange(5):
            case 0:
                database.flush()
            case 1 | 2:
                writer = SstFileWriter(options())
                path = str(tmp_path / f"{turn}.sst")
                writer.open(path)
                for key in picked_keys:
                    if dice.random() < 0.8:
                        writer[key] = b"ingested %d" % turn
                    else:
                        del writer[key]
                writer.finish()
                database.ingest_external_file([path])
            case 3:
                for key in picked_keys:
                    database[key] = b"put %d" % turn
            case _:
                database.delete_range(picked_keys[0], picked_keys[-1])
        if dice.random() < 0.1:
            database.compact_range(None, None, CompactOptions())
    state = dict(database.items())
    database.close()
    assert live(tmp_path / "db") == state
    report = sawlog.verify(tmp_path / "db", format=FORMAT)
    assert not report.damaged
    assert not report.incomplete


def test_the_number_that_the_manifest_gives_is_that_of_every_entry(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "db"), options())
    database[b"a"] = b"old"
    database.flush()
    writer = SstFileWriter(options())
    writer.open(str(tmp_path / "new.sst"))
    writer[b"a"] = b"new"
    writer[b"b"] = b"more"
    writer.finish()
    database.ingest_external_file([str(tmp_path / "new.sst")])
    number = database.latest_sequence_number()
    database.close()
    rows = sawlog.read(tmp_path / "db", format=FORMAT, view="all").to_pylist()
    assert [(row["key"], row["value"], row["sequence"]) for row in rows] == [
        (b"a", b"new", number),
        (b"a", b"old", 1),
        (b"b", b"more", number),
    ]


def test_a_number_that_was_put_into_the_table() -> None:
    """RocksDB 6.29: 60 rows, and later 21, of which 20 are new values."""
    rows = sorted(GOLDEN_ROWS.items())
    expected = dict(rows[:60]) | dict.fromkeys([key for key, _ in rows[:60:3]], b"ingested") | {rows[61][0]: b"more"}
    assert live(GOLDEN / "6-ingested") == expected
    assert not sawlog.verify(GOLDEN / "6-ingested", format=FORMAT).damaged


def test_a_number_that_only_the_manifest_has(tmp_path: Path) -> None:
    """The table has none itself, and is the one that the MANIFEST means all the same."""
    database = Rdict(str(tmp_path / "db"), options())
    database[b"a"] = b"put"
    writer = SstFileWriter(options())
    writer.open(str(tmp_path / "1.sst"))
    writer[b"a"] = b"ingested"
    writer.finish()
    database.ingest_external_file([str(tmp_path / "1.sst")])
    database.close()
    tables = sorted(tmp_path.glob("db/*.sst"))
    assert sawlog.read(tables[0])["sequence"].to_pylist() == [0]
    assert live(tmp_path / "db") == {b"a": b"ingested"}
    assert sawlog.read(tmp_path / "db", format=FORMAT, view="damage").num_rows == 0
    assert sawlog.verify(tmp_path / "db", format=FORMAT).verdict.name == "CLEAN"
