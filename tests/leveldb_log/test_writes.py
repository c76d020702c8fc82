"""Write batches: every operation, damage, splits, building them; against LevelDB and RocksDB."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict, WriteBatch

import sawlog
from sawlog.errors import DamageError, OptionError, SchemaError, UnsupportedError
from sawlog.format.damage import DamageWarning, Findings
from tests.leveldb_log.support import MANIFEST, batch, length_prefixed, put

from .fragments import offsets, write
from .support import DAMAGED, TAGS, as_table, delete, save

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")


def read_writes(path: Path | str, **arguments: Any) -> list[tuple]:
    table = sawlog.read(path, format="leveldb_log", view="writes", **arguments)
    return [tuple(row.values()) for row in table.to_pylist()]


def database(directory: Path) -> Path:
    """What LevelDB needs besides a log to open a database."""
    directory.mkdir()
    (directory / "MANIFEST-000001").write_bytes(write(MANIFEST))
    (directory / "CURRENT").write_text("MANIFEST-000001\n")
    return directory


@pytest.mark.parametrize(("tag", "name", "family", "key", "value", "counted"), TAGS)
def test_operations_of_every_tag_are_read(
    tmp_path: Path, tag: bytes, name: str, family: int, key: bytes | None, value: bytes | None, counted: int
) -> None:
    record = batch(100, counted + 1, tag, put(b"after", b""))
    assert read_writes(save(tmp_path, record)) == [
        (100, name, family, key, value),
        (100 + counted, "put", 0, b"after", b""),
    ]
    copy = tmp_path / "copy.log"
    table = sawlog.read(tmp_path / "000003.log", view="writes", provenance=True)
    sawlog.write(table, copy, format="leveldb_log", view="writes")
    assert copy.read_bytes() == write(record)


def test_the_vector_of_the_documents_is_read_and_written(tmp_path: Path) -> None:
    log = bytes.fromhex("f7bee5b8170001 0100000000000000 02000000 01016b0176 0004676f6e65")
    (tmp_path / "000001.log").write_bytes(log)
    assert read_writes(tmp_path) == [(1, "put", 0, b"k", b"v"), (2, "delete", 0, b"gone", None)]
    operations = as_table([("put", b"k", b"v"), ("delete", b"gone", None)])
    sawlog.write(operations, tmp_path / "w.log", format="leveldb_log", view="writes", operations_per_batch=2)
    assert (tmp_path / "w.log").read_bytes() == log


def test_overlong_varints_are_read_as_leveldb_reads_them(tmp_path: Path) -> None:
    record = batch(1, 1, b"\x01" + b"\x81\x80\x00" + b"k" + b"\x82\x80\x80\x80\x70" + b"vv")
    assert read_writes(save(tmp_path, record)) == [(1, "put", 0, b"k", b"vv")]
    copy = database(tmp_path / "db")
    save(copy, record)
    with plyvel.DB(str(copy), paranoid_checks=True) as db:
        assert dict(db.iterator()) == {b"k": b"vv"}


@pytest.mark.parametrize(("record", "kind", "detail", "kept_rows", "dropped"), DAMAGED)
def test_damage_inside_a_batch_costs_its_operations(
    tmp_path: Path, record: bytes, kind: str, detail: str, kept_rows: list[tuple], dropped: int | None
) -> None:
    records = (batch(1, 1, put(b"one", b"1")), record, batch(9, 1, put(b"two", b"2")))
    path = save(tmp_path, *records)
    newer = kind == "unsupported"
    with pytest.warns(DamageWarning, match="does not support" if newer else kind):
        rows = read_writes(path, columns=["sequence", "key"], on_damage="skip")
    assert rows == [(1, b"one"), *kept_rows, (9, b"two")]

    (report,) = sawlog.verify(path, view="writes").files
    (damage,) = report.damages
    start, end = offsets(*records)[1:3]
    assert (damage.kind, damage.offset, damage.length, damage.dropped) == (kind, start, end - start, dropped)
    assert detail in damage.detail
    assert report.account.total == report.size
    assert (report.unsupported, report.damaged) == (newer, not newer)
    assert (report.account.unsupported if newer else report.account.damage) == end - start

    before: list[bytes] = []
    with pytest.raises(UnsupportedError if newer else DamageError, match=kind):
        before.extend(b for part in sawlog.open(path, view="writes").to_batches() for b in part["key"].to_pylist())
    assert before == [b"one", *(key for _, key in kept_rows)]
    assert not sawlog.verify(path).damaged, "the log itself is intact"


def test_damage_is_what_leveldb_makes_of_it(tmp_path: Path) -> None:
    records = [record for record, *_ in DAMAGED if b"\x14" not in record]
    records = [batch(1, 1, put(b"first", b"1")), *records, batch(90, 1, put(b"last", b"2"))]
    db = database(tmp_path / "db")
    path = save(db, *records)
    with pytest.warns(DamageWarning):
        states = sawlog.read(path, view="writes", latest=True, on_damage="skip").to_pylist()
    (report,) = sawlog.verify(path, view="writes").files
    with plyvel.DB(str(db)) as opened:
        state = dict(opened.iterator())
    assert {row["key"]: row["value"] for row in states} == state
    drops = [int(size) for size in re.findall(r"dropping (\d+) bytes", (db / "LOG").read_text())]
    assert [damage.dropped for damage in report.damages if damage.dropped is not None] == drops


def test_hostile_damage_is_counted_and_not_listed(tmp_path: Path) -> None:
    path = save(tmp_path, *[b"short"] * 5000)
    (report,) = sawlog.verify(path, view="writes").files
    assert report.kinds == {"batch_too_small": 5000}
    assert len(report.damages) <= 2000
    assert report.account.damage == report.size


def test_a_batch_of_more_rows_than_fit(tmp_path: Path) -> None:
    count = 200_000
    record = batch(7, count, *(put(b"%d" % i, b"v") for i in range(count)), b"\x03" + length_prefixed(b"end"))
    path = save(tmp_path, record, batch(1 << 40, 1, delete(b"k")))
    dataset = sawlog.open(path, view="writes", provenance=True)
    batches = list(dataset.to_batches())
    assert max(part.num_rows for part in batches) <= 65536
    table = pa.Table.from_batches(batches)
    assert table["sequence"].to_pylist() == [*range(7, 7 + count + 1), 1 << 40]
    assert table["key"].to_pylist()[:-2] == [b"%d" % i for i in range(count)]
    assert table["_offset"].to_pylist()[-3:] == [0, 0, offsets(record, b"")[1]]
    assert dataset.count_rows() == count + 2
    sawlog.write(table, tmp_path / "copy", format="leveldb_log", view="writes")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


keys = st.binary(max_size=12)
operation = st.one_of(
    st.tuples(st.just("put"), keys, st.binary(max_size=300)), st.tuples(st.just("delete"), keys, st.none())
)


@given(
    st.lists(operation, max_size=200), st.integers(1, 9), st.integers(0, 1 << 40), st.sampled_from([1, 40_000, None])
)
@settings(max_examples=40)
def test_batches_come_back_however_a_log_is_split(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple], group: int, first: int, task_bytes: int | None
) -> None:
    path = tmp_path_factory.mktemp("writes") / "000001.log"
    operations = [*operations, ("put", b"large", bytes(70_000))]
    sawlog.write(
        as_table(operations),
        path,
        format="leveldb_log",
        view="writes",
        operations_per_batch=group,
        first_sequence=first,
    )
    fragments = sawlog.open(path, view="writes").fragments(task_bytes)
    rows = [row for fragment in fragments for part in fragment.to_batches(Findings()) for row in part.to_pylist()]
    assert [(row["operation"], row["key"], row["value"]) for row in rows] == operations
    assert [row["sequence"] for row in rows] == list(range(first, first + len(operations)))
    assert len(sawlog.read(path)) == -(-len(operations) // group)


def test_a_key_like_the_magic_number_of_another_format(tmp_path: Path) -> None:
    path = save(tmp_path, batch(1, 1, put(b"\xbc\xfa\xff\x00", b"1")))
    assert sawlog.read(path).num_rows == 1


def test_columns_filters_and_head_choose_what_is_read(tmp_path: Path) -> None:
    path = save(tmp_path, batch(1, 3, put(b"a", b"1"), delete(b"a"), put(b"b", b"2")))
    dataset = sawlog.open(path, view="writes", columns=["value"], filters=[("operation", "=", "put")])
    assert dataset.to_table().to_pylist() == [{"value": b"1"}, {"value": b"2"}]
    assert dataset.head(1).to_pylist() == [{"value": b"1"}]
    assert sawlog.open(path, view="writes").count_rows() == 3


def test_sequences_with_gaps_make_batches_of_their_own(tmp_path: Path) -> None:
    names = ("operation", "key", "value", "sequence")
    operations = [("put", b"a", b"", 5), ("put", b"b", b"", 6), ("put", b"c", b"", 9), ("delete", b"d", None, 10)]
    path = tmp_path / "w.log"
    sawlog.write(as_table(operations, names), path, format="leveldb_log", view="writes", operations_per_batch=100)
    assert path.read_bytes() == write(
        batch(5, 2, put(b"a", b""), put(b"b", b"")), batch(9, 2, put(b"c", b""), delete(b"d"))
    )


REFUSED = [
    ([("put", b"a", None)], ("operation", "key", "value"), r"column 'value', row 0: 'put' needs one"),
    ([("put", b"a", b""), ("delete", b"b", b"x")], ("operation", "key", "value"), r"'value', row 1: 'delete' has none"),
    ([("put", b"a", b""), ("upsert", b"b", b"x")], ("operation", "key", "value"), r"'operation', row 1: 'upsert' is"),
    ([("put", b"a", b"", -1)], ("operation", "key", "value", "sequence"), r"'sequence', row 0: -1 is not between"),
    ([("put", b"a", b"", 1 << 32)], ("operation", "key", "value", "column_family"), r"'column_family', row 0"),
    ([("log_data", None, b"", 1)], ("operation", "key", "value", "column_family"), r"belongs to no column family"),
    ([("put", b"a", b"", 1)], ("operation", "key", "value", "more"), r"no column 'more'"),
    ([("put", b"a")], ("operation", "key"), r"'value' is missing"),
]


@pytest.mark.parametrize(("operations", "names", "message"), REFUSED)
def test_what_no_batch_can_hold(tmp_path: Path, operations: list[tuple], names: tuple[str, ...], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        sawlog.write(as_table(operations, names), tmp_path / "w.log", format="leveldb_log", view="writes")
    assert list(tmp_path.iterdir()) == []


def test_options_for_other_views_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, batch(1, 1, put(b"a", b"1")))
    with pytest.raises(OptionError, match="latest=true is for the view 'writes'"):
        sawlog.open(path, latest=True)
    with pytest.raises(OptionError, match="view 'entities'"):
        sawlog.open(path, view="writes", table="users")
    with pytest.raises(OptionError, match="cannot be followed"):
        sawlog.open(path, view="writes", latest=True).watch().look()


def test_a_watch_follows_operations_of_a_growing_log(tmp_path: Path) -> None:
    records = [batch(i, 1, put(b"%d" % i, b"")) for i in range(4)]
    path = tmp_path / "000001.log"
    path.write_bytes(write(*records[:2]) + write(records[2], start=len(write(*records[:2])))[:-1])
    watch = sawlog.open(tmp_path, view="writes").watch()
    assert [row["key"] for batch in watch.look() for row in batch.to_pylist()] == [b"0", b"1"]
    path.write_bytes(write(*records))
    again = sawlog.open(tmp_path, view="writes").watch(watch.positions)
    assert [row["key"] for batch in again.look() for row in batch.to_pylist()] == [b"2", b"3"]


def test_the_latest_view_has_the_last_write_of_each_key(tmp_path: Path) -> None:
    save(tmp_path, batch(10, 3, put(b"a", b"new"), delete(b"b"), put(b"c", b"3")), name="000009.log")
    save(tmp_path, batch(1, 4, put(b"a", b"old"), put(b"b", b"x"), put(b"d", b"4"), put(b"e", b"5")), name="000010.log")
    save(
        tmp_path,
        batch(
            20,
            3,
            b"\x0f" + length_prefixed(b"d") + length_prefixed(b"e"),
            put(b"f", b"6"),
            b"\x05\x02" + length_prefixed(b"d") + length_prefixed(b"other family"),
        ),
        name="000011.log",
    )
    columns = ["sequence", "operation", "column_family", "key", "value"]
    assert read_writes(tmp_path, latest="true", columns=columns) == [
        (4, "put", 0, b"e", b"5"),
        (10, "put", 0, b"a", b"new"),
        (11, "delete", 0, b"b", None),
        (12, "put", 0, b"c", b"3"),
        (20, "delete", 0, b"d", None),
        (21, "put", 0, b"f", b"6"),
        (22, "put", 2, b"d", b"other family"),
    ]
    dataset = sawlog.open(tmp_path, view="writes", latest=True)
    assert len(dataset.fragments(1)) == 1
    assert dataset.count_rows() == 7
    assert sawlog.verify(tmp_path, view="writes", latest=True).rows == 10
    table = sawlog.read(tmp_path, view="writes", latest=True, columns=["key", "_offset", "_file"])
    assert table.to_pylist()[0] == {"key": b"e", "_offset": 0, "_file": str(tmp_path / "000010.log")}


def test_latest_knows_prepared_transactions(tmp_path: Path) -> None:
    begin, end, commit, rollback = b"\x09", b"\x0a", b"\x0b", b"\x0c"
    save(
        tmp_path,
        batch(1, 1, put(b"a", b"0")),
        batch(2, 1, begin, put(b"a", b"1"), end + length_prefixed(b"t1")),
        batch(3, 1, begin, put(b"b", b"1"), end + length_prefixed(b"t2")),
        batch(4, 1, begin, put(b"c", b"1"), end + length_prefixed(b"t3")),
        batch(5, 1, put(b"a", b"between")),
        batch(6, 0, commit + length_prefixed(b"t1")),
        batch(7, 0, rollback + length_prefixed(b"t2")),
    )
    assert [row[1:] for row in read_writes(tmp_path, latest=True)] == [("put", 0, b"a", b"1")]


def test_latest_folds_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawlog.leveldb.records import history

    operations = [("put", b"%d" % (i * 7919 % 500), b"%d" % i) for i in range(20_000)]
    path = tmp_path / "000001.log"
    sawlog.write(as_table(operations), path, format="leveldb_log", view="writes", operations_per_batch=50)
    truth = {key: value for _, key, value in operations}
    monkeypatch.setattr(history, "ROWS_PER_FOLD", 1000)
    table = sawlog.read(path, view="writes", latest=True)
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == truth
    assert table["sequence"].to_pylist() == sorted(table["sequence"].to_pylist())


def test_operations_are_those_that_leveldb_logged(tmp_path: Path) -> None:
    db = plyvel.DB(str(tmp_path / "db"), create_if_missing=True, write_buffer_size=64 << 20)
    done: list[tuple] = []
    for i in range(3000):
        done.append(("put", b"key%d" % (i % 700), b"value %d" % i))
        db.put(*done[-1][1:])
    done.append(("put", b"large", bytes(100_000)))
    db.put(b"large", bytes(100_000))
    with db.write_batch() as together:
        for i in range(100):
            done.append(("delete", b"key%d" % i, None))
            together.delete(b"key%d" % i)
    copy = shutil.copytree(tmp_path / "db", tmp_path / "copy")
    truth = dict(db.iterator())
    db.close()

    table = sawlog.read(copy, view="writes", provenance=True)
    assert [(row["operation"], row["key"], row["value"]) for row in table.to_pylist()] == done
    assert table["sequence"].to_pylist() == list(range(1, len(done) + 1))
    states = sawlog.read(copy, view="writes", latest=True, filters=[("operation", "=", "put")]).to_pylist()
    assert {row["key"]: row["value"] for row in states} == truth

    ours = database(tmp_path / "ours")
    sawlog.write(table, ours / "000003.log", format="leveldb_log", view="writes")
    (log,) = copy.glob("*.log")
    assert (ours / "000003.log").read_bytes() == log.read_bytes()
    with plyvel.DB(str(ours), create_if_missing=False, paranoid_checks=True) as opened:
        assert dict(opened.iterator()) == truth


def test_operations_are_those_that_rocksdb_logged(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    other_family = db.create_column_family("other", Options(raw_mode=True))
    for i in range(2000):
        db[b"key%03d" % (i % 300)] = b"value %d" % i
    other_family[b"x"] = b"y"
    db.delete_range(b"key100", b"key200")
    together = WriteBatch(raw_mode=True)
    together.put(b"a", b"1")
    together.delete(b"key000")
    db.write(together)
    db.flush_wal(sync=True)
    copy = shutil.copytree(tmp_path / "db", tmp_path / "copy")
    truth = dict(db.items())
    db.close()

    table = sawlog.read(copy, view="writes", provenance=True)
    assert table.num_rows == 2004
    assert table.slice(2000).drop(["_file", "_offset"]).to_pylist() == [
        {"sequence": 2001, "operation": "put", "column_family": 1, "key": b"x", "value": b"y"},
        {"sequence": 2002, "operation": "delete_range", "column_family": 0, "key": b"key100", "value": b"key200"},
        {"sequence": 2003, "operation": "put", "column_family": 0, "key": b"a", "value": b"1"},
        {"sequence": 2004, "operation": "delete", "column_family": 0, "key": b"key000", "value": None},
    ]
    states = sawlog.read(copy, view="writes", latest=True).to_pylist()
    live = {row["key"]: row["value"] for row in states if row["operation"] == "put" and not row["column_family"]}
    assert live == truth

    # The log that sawlog builds, in the place of RocksDB's own.
    (log,) = (path for path in copy.glob("*.log") if path.stat().st_size)
    sawlog.write(table, log, format="leveldb_log", view="writes")
    with_other = {"other": Options(raw_mode=True), "default": Options(raw_mode=True)}
    recovered = Rdict(str(copy), Options(raw_mode=True), column_families=with_other)
    assert dict(recovered.items()) == truth
    assert recovered.get_column_family("other")[b"x"] == b"y"
    recovered.close()


TRANSACTIONS = Path(__file__).parents[1] / "golden" / "leveldb_log" / "transactions"


@pytest.mark.parametrize("policy", ["write_committed", "write_prepared", "write_unprepared"])
def test_latest_is_what_rocksdb_holds_under_every_policy_for_transactions(policy: str) -> None:
    """With write-prepared transactions, each batch counts one number: they do not give the order of operations."""
    lines = (TRANSACTIONS / f"{policy}.tsv").read_text().splitlines()
    truth = dict(line.encode().split(b"\t") for line in lines)
    states = sawlog.read(TRANSACTIONS / policy, view="writes", latest=True).to_pylist()
    assert {row["key"]: row["value"] for row in states if row["operation"] == "put"} == truth


def test_latest_looks_each_range_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawlog.leveldb.records import history

    rng = random.Random(5)
    done, truth = [], {}
    for i in range(4000):
        if i % 3:
            key = b"%04d" % rng.randrange(3000)
            done.append(("put", key, b"%d" % i))
            truth[key] = b"%d" % i
        else:
            low = rng.randrange(3000)
            first, last = b"%04d" % low, b"%04d" % (low + rng.randrange(12))
            done.append(("delete_range", first, last))
            truth = {key: value for key, value in truth.items() if not first <= key < last}
    path = tmp_path / "000001.log"
    sawlog.write(as_table(done), path, format="leveldb_log", view="writes", operations_per_batch=7)
    lookups = []
    count_below = history.count_below
    monkeypatch.setattr(history, "count_below", lambda keys, key: lookups.append(key) or count_below(keys, key))
    states = sawlog.read(path, view="writes", latest=True).to_pylist()
    assert {row["key"]: row["value"] for row in states if row["operation"] == "put"} == truth
    ranges = sum(operation == "delete_range" for operation, _, _ in done)
    assert len(lookups) == len(set(lookups)) <= 2 * ranges
