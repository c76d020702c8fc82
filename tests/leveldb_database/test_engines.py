"""Small databases that releases of Pebble have left, each with what it answered before.

The drivers of `tests/interop/engines` have written them, from the workload that is next to each: the first was closed,
the others were killed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sawlog
from sawlog.leveldb.table.layout import RANGE_DELETES_NAMES
from sawlog.testing import check
from sawlog.testing.fuzz.inputs import FuzzInputs
from tests.leveldb_database.engines import GOLDEN, NAMES, Engines, make_samples
from tests.leveldb_database.support import read_pebble_answers, read_pebble_live
from tests.leveldb_log.fragments import write
from tests.leveldb_log.support import batch, length_prefixed, put

DATABASES = ("pebble-1.0.0-formats-of-others", "pebble-1.1.5-ranges-alone", "pebble-2.1.7-minlz")


@pytest.mark.parametrize("name", DATABASES)
def test_what_pebble_answered(name: str) -> None:
    expected = read_pebble_answers(GOLDEN / name / "answers.jsonl")
    assert len(expected) > 5
    assert read_pebble_live(GOLDEN / name / "db") == expected
    report = sawlog.verify(GOLDEN / name / "db", format="leveldb_database")
    assert not report.damaged
    assert not any(file.account.unsupported for file in report.files)


def blocks(name: str) -> dict[str, list[dict[str, object]]]:
    """The blocks of each table of a database."""
    tables = sorted(GOLDEN.joinpath(name, "db").glob("*.sst"))
    return {path.name: sawlog.read(path, view="frames").to_pylist() for path in tables}


def read_state(name: str) -> list[dict[str, object]]:
    """The operations of a database's logs that take in tables, or excise."""
    logs = sorted(GOLDEN.joinpath(name, "db").glob("*.log"))
    rows = [row for path in logs for row in sawlog.read(path, view="writes").to_pylist()]
    return [row for row in rows if row["operation"] in ("ingest_sst", "excise")]


def test_the_databases_hold_what_they_are_kept_for() -> None:
    """Codecs, tables without a point key, one block of two names, and logs that take in tables."""
    names = {block["name"] for entries in blocks(DATABASES[0]).values() for block in entries}
    assert names & {name.decode() for name in RANGE_DELETES_NAMES}
    codecs = {block["compression"] for entries in blocks(DATABASES[2]).values() for block in entries}
    assert "minlz" in codecs
    for name in DATABASES[1:]:
        rows = [sawlog.open(path).count_rows() for path in GOLDEN.joinpath(name, "db").glob("*.sst")]
        assert min(rows) == 0
    assert {row["operation"] for row in read_state(DATABASES[1])} == {"ingest_sst"}
    assert {row["operation"] for row in read_state(DATABASES[2])} == {"ingest_sst", "excise"}


def test_a_table_that_a_log_takes_in_is_missed(tmp_path: Path) -> None:
    """It is named as missing, as one of the MANIFEST's is."""
    ((number,),) = {row["key"] for row in read_state(DATABASES[1])}
    shutil.copytree(GOLDEN / DATABASES[1] / "db", tmp_path / "db")
    tmp_path.joinpath("db", f"{number:06d}.sst").unlink()
    with pytest.raises(sawlog.IncompleteError, match=f"{number:06d}: missing_file"):
        read_pebble_live(tmp_path / "db")


def test_values_of_entities_that_are_in_blob_files() -> None:
    database = GOLDEN / "rocksdb-11.8.1-entities" / "db"
    values = sawlog.read(database, format="leveldb_database", view="live").to_pylist()
    banana = b"\1\3\0\x8c\1\6length\3\5price\x3c" + b"yellow " * 20 + b"180" + b"9" * 60
    assert [(row["key"], row["operation"], row["value"]) for row in values] == [
        (b"apple", "put_blob_index", b"1" * 120),
        (b"banana", "put_entity", banana),
        (b"cherry", "put_entity", b"\1\2\0\3\6length\2red20"),
    ]
    assert not sawlog.verify(database, format="leveldb_database").damaged


def test_an_entity_whose_value_is_lost_is_lost(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "rocksdb-11.8.1-entities" / "db", tmp_path / "db")
    blobs = next(tmp_path.glob("db/*.blob"))
    blobs.write_bytes(blobs.read_bytes().replace(b"9" * 60, b"8" * 60))
    with pytest.warns(sawlog.DamageWarning):
        table = sawlog.read(tmp_path / "db", format="leveldb_database", view="live", on_damage="skip")
    assert table["key"].to_pylist() == [b"apple", b"cherry"]
    kinds = [kind for file in sawlog.verify(tmp_path / "db", format="leveldb_database").files for kind in file.kinds]
    assert sorted(kinds) == ["bad_blob", "bad_blob_part"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_agree_about_what_engines_have_left(name: str) -> None:
    """As it is, and with changes in several files: what few databases use was in no sample of the laws."""
    for sample in make_samples(name):
        assert check(sample, laws=()).refused is None
        for number in range(2):
            _, mutation, _ = FuzzInputs(Engines, [sample], "1").make(number)
            check(sample, mutation.files, laws=())


@pytest.mark.parametrize("name", ["commit-with-timestamp", "writeprepared-open", "writeunprepared-open"])
def test_an_older_log_of_prepared_transactions_may_end_within_a_record(name: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / f"rocksdb-11.8.1-{name}" / "db", tmp_path / "db")
    expected = sawlog.read(tmp_path / "db", format="leveldb_database").num_rows
    log = min((tmp_path / "db").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3])
    with pytest.warns(sawlog.DamageWarning, match="torn tail .* 000004.log"):
        assert sawlog.read(tmp_path / "db", format="leveldb_database").num_rows == expected
    tails = {Path(file.path).name: file.tail.unfinished for file in sawlog.verify(tmp_path / "db").files}
    assert tails[log.name]


@pytest.mark.parametrize("key", [b"short", b"", b"7 bytes"])
def test_keys_of_a_log_without_the_timestamp_that_they_should_have_cost_themselves(key: bytes, tmp_path: Path) -> None:
    """One such operation, of which nothing else is wrong, was reason to refuse the database."""
    shutil.copytree(GOLDEN / "rocksdb-11.8.1-udt-ranges" / "db", tmp_path / "db")
    expected = sawlog.read(tmp_path / "db", format="leveldb_database").to_pylist()
    log = max((tmp_path / "db").glob("*.log"))
    log.write_bytes(log.read_bytes() + write(batch(1 << 40, 1, put(key, b"value")), log=int(log.stem)))
    with pytest.warns(sawlog.DamageWarning, match="does not support"):
        rows = sawlog.read(tmp_path / "db", format="leveldb_database", on_damage="skip").to_pylist()
    assert rows == expected
    with pytest.raises(sawlog.UnsupportedError, match="without a timestamp"):
        sawlog.read(tmp_path / "db", format="leveldb_database")
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert [damage.kind for file in report.files for damage in file.damages] == ["unsupported"]


@pytest.mark.parametrize(
    ("operation", "key", "stamp", "value"),
    [
        (put(b"short", b"value"), b"short", None, b"value"),
        (put(bytes(8), b"value"), b"", 0, b"value"),
        (b"\x0f" + length_prefixed(bytes(9)) + length_prefixed(b"end"), b"\0", 0, b"end"),
    ],
)
def test_a_log_with_keys_that_are_shorter_than_their_timestamps_is_read(
    operation: bytes, key: bytes, stamp: int | None, value: bytes, tmp_path: Path
) -> None:
    log = GOLDEN / "rocksdb-11.8.1-udt-ranges" / "db" / "000008.log"
    copy = tmp_path / log.name
    copy.write_bytes(log.read_bytes() + write(batch(1 << 40, 1, operation), log=8))
    rows = sawlog.read(copy, view="writes", keys="stamped").to_pylist()
    assert rows[:-1] == sawlog.read(log, view="writes", keys="stamped").to_pylist()
    assert (rows[-1]["key"], rows[-1]["timestamp"], rows[-1]["value"]) == (key, stamp, value)


@pytest.mark.parametrize("name", ["pebble-2.1.7-wal-dir", "pebble-2.1.7-failover"])
def test_a_directory_that_is_missing_is_named_once(name: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / name / "db", tmp_path / "db")
    (options,) = (tmp_path / "db").glob("OPTIONS-*")
    options.write_bytes(2 * options.read_bytes())
    with pytest.warns(sawlog.DamageWarning, match="1 missing_file"):
        sawlog.read(tmp_path / "db", format="leveldb_database", on_damage="skip")
