"""Which operations of transactional logs count: sections as RocksDB writes them, several in a record, in odd orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.leveldb.columns import TRANSACTION_SCHEMA
from sawlog.leveldb.records.transactions import UNWRITTEN, Numbering, Transactions
from sawlog.leveldb.records.writes import BATCH_ROWS
from tests.leveldb_log.fragments import write
from tests.leveldb_log.support import batch, length_prefixed

Row = tuple[str, bytes | None, bytes | None]


def make_writes(*records: tuple[int, list[Row]]) -> pa.RecordBatch:
    """The view `writes` of a log: of each record its sequence number and operations, counted one by one."""
    rows: list[dict[str, Any]] = []
    for offset, (first, operations) in enumerate(records):
        before = 0
        for name, key, value in operations:
            row = {"sequence": first + before, "operation": name, "column_family": 0, "key": key, "value": value}
            rows.append({**row, "_offset": offset})
            before += int(name in ("put", "delete"))
    return pa.RecordBatch.from_pylist(rows, schema=TRANSACTION_SCHEMA)


def make_put(key: bytes, value: bytes = b"") -> Row:
    return "put", key, value


def mark(name: str, key: bytes | None = None, value: bytes | None = None) -> Row:
    return name, key, value


def resolved(*logs: pa.RecordBatch) -> tuple[list[tuple[int, bytes]], Transactions]:
    """Sequence numbers and keys of all that takes effect, as of a database whose transactions are known."""
    numbering = Numbering()
    for log in logs:
        numbering.add(log)
    first = Transactions(numbering.shared)
    for number, log in enumerate(logs):
        first.resolve_rows(log, str(number))
    transactions = Transactions(numbering.shared, first.list_undecided())
    rows = [row for number, log in enumerate(logs) for row in transactions.resolve_rows(log, str(number)).to_pylist()]
    return [(row["sequence"], row["key"]) for row in rows], transactions


NOOP = mark("noop")
END = mark("end_prepare", b"x")


def test_a_batch_has_one_number_and_a_key_that_comes_again_the_next() -> None:
    batch = [NOOP, make_put(b"a"), make_put(b"b"), make_put(b"a"), make_put(b"a"), make_put(b"c"), NOOP]
    rows, _ = resolved(make_writes((1, batch), (4, [make_put(b"a"), NOOP])))
    assert rows == [(1, b"a"), (1, b"b"), (2, b"a"), (3, b"a"), (3, b"c"), (4, b"a")]


def test_several_batches_of_a_record() -> None:
    record = [
        NOOP,
        make_put(b"a"),
        make_put(b"b"),
        NOOP,
        make_put(b"a"),
        NOOP,
        NOOP,
        make_put(b"c"),
        make_put(b"d"),
        NOOP,
    ]
    assert resolved(make_writes((1, record), (4, [make_put(b"a"), NOOP])))[0][:-1] == [
        (1, b"a"),
        (1, b"b"),
        (2, b"a"),
        (3, b"c"),
        (3, b"d"),
    ]


def test_an_empty_transaction_at_the_end_of_a_group_is_no_sign_of_shared_numbers() -> None:
    rows, _ = resolved(make_writes((1, [NOOP, make_put(b"a"), make_put(b"b"), NOOP]), (3, [make_put(b"c")])))
    assert rows == [(1, b"a"), (2, b"b"), (3, b"c")]


@pytest.mark.parametrize("ending", [None, "commit", "rollback"])
def test_what_is_written_before_the_commit(ending: str | None) -> None:
    section = [mark("begin_persisted_prepare"), make_put(b"a"), make_put(b"b"), make_put(b"a"), END]
    records = [(7, section), (9, [make_put(b"c"), NOOP])]
    if ending:
        records.append((10, [mark(ending, b"x")]))
    rows, transactions = resolved(make_writes(*records))
    assert rows == [(7, b"a"), (7, b"b"), (8, b"a"), (9, b"c")]
    pending = transactions.list_undecided()
    assert (pending.starts, pending.ends, pending.states) == (((), (), ()) if ending else ((7,), (8,), ("prepared",)))


def test_what_is_written_and_not_prepared() -> None:
    sections = [
        (5, [mark("begin_unprepare"), make_put(b"a"), END]),
        (6, [mark("begin_unprepare"), make_put(b"b"), END]),
    ]
    _, transactions = resolved(make_writes(*sections))
    assert transactions.list_undecided().states == ("unprepared", "unprepared")
    last = make_writes((7, [mark("begin_persisted_prepare"), make_put(b"c"), END]))
    _, transactions = resolved(make_writes(*sections), last)
    assert transactions.list_undecided().states == ("prepared",) * 3
    _, transactions = resolved(make_writes(*sections), last, make_writes((8, [mark("commit", b"x")])))
    assert not transactions.list_undecided()


def test_what_waits_takes_its_numbers_where_it_is_committed() -> None:
    section = [mark("begin_prepare"), make_put(b"a"), make_put(b"b"), END]
    group = [make_put(b"c"), mark("commit", b"x"), NOOP, make_put(b"d")]
    rows, _ = resolved(make_writes((4, section)), make_writes((9, group)))
    assert sorted(rows) == [(9, b"c"), (10, b"a"), (11, b"b"), (12, b"d")]
    rows, _ = resolved(make_writes((4, section), (4, [mark("rollback", b"x")]), (4, [make_put(b"d")])))
    assert rows == [(4, b"d")]


def test_what_waits_for_ever_has_no_number() -> None:
    section = [mark("begin_prepare"), make_put(b"a"), make_put(b"b"), END]
    rows, transactions = resolved(make_writes((4, [*section, make_put(b"c")])), make_writes((5, [make_put(b"d")])))
    assert rows == [(4, b"c"), (UNWRITTEN, b"a"), (UNWRITTEN, b"b"), (5, b"d")]
    assert transactions.list_undecided().states == ("prepared",)


def test_the_name_of_a_committed_transaction_comes_again() -> None:
    section = [mark("begin_prepare"), make_put(b"a"), END]
    rows, transactions = resolved(make_writes((4, section), (4, [mark("commit", b"x")]), (5, section)))
    assert rows == [(4, b"a"), (UNWRITTEN, b"a")]
    assert len(transactions.list_undecided().places) == 1


def test_a_commit_puts_its_timestamp_into_the_keys() -> None:
    section = [mark("begin_prepare"), make_put(b"a" + bytes(8)), END]
    rows = make_writes((4, section), (4, [mark("commit_with_timestamp", b"x", b"\7" + bytes(7))]))
    stamped = Transactions(False).resolve_rows(rows, "", 0)
    assert stamped["key"].to_pylist() == [b"a\7" + bytes(7)]


def write_log(path: Path, *records: tuple[int, list[Row]]) -> Path:
    """The same as a log that RocksDB has written."""
    tags = {"put": 0x01, "begin_prepare": 0x09, "begin_persisted_prepare": 0x12, "begin_unprepare": 0x13, "noop": 0x0D}
    tags |= {"end_prepare": 0x0A, "commit": 0x0B, "rollback": 0x0C}
    batches = []
    for first, operations in records:
        body = b"".join(
            bytes([tags[name]])
            + (b"" if key is None else length_prefixed(key))
            + (b"" if value is None else length_prefixed(value))
            for name, key, value in operations
        )
        batches.append(batch(first, sum(name == "put" for name, _, _ in operations), body))
    path.write_bytes(write(*batches))
    return path


def read_sequences(path: Path, **options: Any) -> list[int]:
    table = sawlog.read(path, format="leveldb_log", view="writes", dialect="rocksdb", **options)
    return table["sequence"].to_pylist()


SHARED: list[tuple[int, list[Row]]] = [
    (1, [NOOP, make_put(b"a"), make_put(b"b"), make_put(b"a"), make_put(b"c"), NOOP]),
    (3, [mark("begin_persisted_prepare"), make_put(b"a"), make_put(b"b"), END]),
    (4, [mark("commit", b"x")]),
    (5, [make_put(b"d"), make_put(b"e"), NOOP, make_put(b"d"), NOOP]),
    (7, [make_put(b"f")]),
]
NUMBERS = [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5, 5, 6, 6, 7]


@pytest.mark.parametrize("columns", [None, ("sequence",), ("sequence", "value", "_offset")])
def test_the_view_numbers_as_the_database_does(columns: tuple[str, ...] | None, tmp_path: Path) -> None:
    """All operations of a batch have one number, in whichever columns; marks have that of their batch."""
    path = write_log(tmp_path / "7.log", *SHARED)
    assert read_sequences(path, columns=columns) == NUMBERS
    closed = [record for record in SHARED if record[0] != 3]
    assert read_sequences(write_log(tmp_path / "8.log", *closed)) == [*NUMBERS[:6], *NUMBERS[10:]]
    rows = sawlog.read(path, format="leveldb_log", view="writes", latest=True, dialect="rocksdb").to_pylist()
    assert {row["key"]: row["sequence"] for row in rows}[b"d"] == 6


def test_batches_that_share_numbers_are_written_again(tmp_path: Path) -> None:
    path = write_log(tmp_path / "7.log", *SHARED)
    table = sawlog.read(path, format="leveldb_log", view="writes", dialect="rocksdb", provenance=True)
    for rows in (table, table.drop_columns(["column_family"])):
        again = tmp_path / "8.log"
        sawlog.write(rows, again, format="leveldb_log", view="writes")
        assert again.read_bytes() == path.read_bytes()
    sawlog.write(table.drop_columns(["_offset"]), tmp_path / "9.log", format="leveldb_log", view="writes")
    assert read_sequences(tmp_path / "9.log") == NUMBERS


def test_numbers_that_are_not_shared_stay_so(tmp_path: Path) -> None:
    """A transaction of WriteCommitted, and an empty one at the end of a group."""
    group = [NOOP, make_put(b"a"), make_put(b"b"), NOOP]
    path = write_log(tmp_path / "7.log", (1, group), (3, [make_put(b"c"), make_put(b"d")]), (5, [make_put(b"e")]))
    assert read_sequences(path) == [1, 1, 2, 3, 3, 4, 5]


def test_a_batch_of_more_rows_than_are_delivered_at_once(tmp_path: Path) -> None:
    """The mark that says how it is numbered comes after the first of them."""
    many = [make_put(b"%d" % number) for number in range(3 * BATCH_ROWS // 2)]
    path = write_log(
        tmp_path / "7.log", (1, [make_put(b"x")]), (2, [*many, NOOP]), (3, [make_put(b"y"), make_put(b"z"), NOOP])
    )
    assert read_sequences(path) == [1, *([2] * (len(many) + 1)), 3, 3, 3]
    assert read_sequences(path, columns=("sequence",)) == read_sequences(path)


@pytest.mark.parametrize("policy", ["prepared", "committed"])
def test_a_log_goes_on_where_a_torn_one_ended(policy: str, tmp_path: Path) -> None:
    """Of what follows a torn log, RocksDB keeps the logs between which no number is missing."""
    if policy == "prepared":
        first: list[tuple[int, list[Row]]] = SHARED[:4]
        after = 7
    else:
        section = [mark("begin_prepare"), make_put(b"a"), make_put(b"b"), END]
        first, after = [(1, [make_put(b"q")]), (2, section), (2, [mark("commit", b"x")])], 4
    write_log(tmp_path / "000007.log", *first)
    data = tmp_path.joinpath("000007.log").read_bytes()
    for number, is_kept in ((after, True), (after + 1, False)):
        tmp_path.joinpath("000007.log").write_bytes(data + b"\x07" * 20)
        write_log(tmp_path / "000008.log", (number, [make_put(b"later")]))
        table = sawlog.read(
            tmp_path, format="leveldb_log", view="writes", recovery="point_in_time_recovery", dialect="rocksdb"
        )
        assert (b"later" in table["key"].to_pylist()) == is_kept


def test_marks_without_their_counterparts() -> None:
    records = [
        (1, [END]),
        (1, [mark("commit", b"y")]),
        (1, [mark("begin_prepare"), make_put(b"a")]),
        (2, [make_put(b"b")]),
    ]
    rows, _ = resolved(make_writes(*records))
    assert (2, b"b") in rows
