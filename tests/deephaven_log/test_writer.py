"""Writing: whole logs, loggers, appending after a crash, and readers at work meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import struct
import warnings
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log import DELETE_PARTITION, Logger, read_bin, read_bin_dir
from sawlog.errors import DamageError, OptionError, SchemaError

from .reference import Col, header, row
from .support import COLS, make, read_numbers

SCHEMA = pa.schema([pa.field("N", pa.int32()), pa.field("S", pa.string())])


def make_table(*numbers: int) -> pa.Table:
    return pa.table({"N": pa.array(numbers, pa.int32()), "S": [f"s{n}" for n in numbers]}, SCHEMA)


def kinds(path) -> list[str]:
    return sawlog.read(path, view="frames").column("kind").to_pylist()


def test_rows_sets_and_commands_are_written(tmp_path: Path):
    path = tmp_path / "log.bin"
    with Logger(path, SCHEMA) as log:
        log.write(make_table(1).to_batches()[0])
        log.transaction(pa.concat_tables([make_table(2), make_table(3, 4), make_table(), make_table(5)]))
        log.transaction(make_table(6))
        log.transaction(make_table())
        log.command(77, b"data")
        log.write(make_table(7, 8))
    assert read_numbers(path) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert kinds(path) == ["single", "first", "row", "row", "last", "single", "record", "single", "single"]
    (command,) = sawlog.read(path, view="commands").to_pylist()
    assert (command["command_id"], command["data"]) == (77, b"data")


def test_deleting_a_partition_is_written_and_read(tmp_path: Path):
    path = tmp_path / "log.bin"
    with Logger(path, SCHEMA) as log:
        log.write(make_table(1))
        log.delete_partition()
        log.write(make_table(2))
    assert read_numbers(path) == [2]
    sawlog.repair(path, tmp_path / "fixed.bin")
    assert (tmp_path / "fixed.bin").read_bytes() == path.read_bytes()


def test_names_and_rolling(tmp_path: Path):
    now = [datetime(2024, 5, 6, 23, 59, 58, 500_000, UTC).timestamp()]
    arguments = {"namespace": "Ns", "table": "T", "internal_partition": "host_1", "clock": lambda: now[0]}
    with Logger(tmp_path, SCHEMA, roll_seconds=2, **arguments) as log:
        log.write(make_table(1, 2))
        now[0] += 1
        log.transaction(make_table(3, 4))
        now[0] += 1.25
        log.transaction(make_table(5, 6))
        log.write(make_table(7))
    names = sorted(os.listdir(tmp_path))
    assert names == [
        "Ns.T.System.host_1.2024-05-06.bin.2024-05-06.235958.500+0000",
        "Ns.T.System.host_1.2024-05-07.bin.2024-05-07.000000.750+0000",
    ]
    assert [read_numbers(tmp_path / name) for name in names] == [[1, 2, 3, 4], [5, 6, 7]]
    assert read_bin_dir(str(tmp_path)).column("Date").to_pylist() == ["2024-05-06"] * 4 + ["2024-05-07"] * 3
    assert read_bin(str(tmp_path / names[0]), columns=["N"]).num_rows == 4


def test_rolling_by_size_never_tears_a_set(tmp_path: Path):
    with Logger(tmp_path, SCHEMA, namespace="Ns", table="T", roll_bytes=1000) as log:
        for start in range(0, 200, 10):
            log.transaction(make_table(*range(start, start + 10)))
    assert len(log.files) > 3
    assert all(os.path.getsize(path) <= 1400 for path in log.files)
    assert read_numbers(tmp_path) == list(range(200))
    assert all(not sawlog.verify(path).damaged for path in log.files)


def test_constants_and_enums_are_written(tmp_path: Path):
    schema = pa.schema(
        [
            pa.field("Host", pa.string()),
            pa.field("Side", pa.dictionary(pa.int8(), pa.string())),
            pa.field("Id", pa.int64()),
            pa.field("At", pa.timestamp("us", "UTC")),
        ]
    )
    path = tmp_path / "log.bin"
    data = pa.table({"Side": pa.array(["Buy", None, "Sell"]).dictionary_encode(), "At": [0, 1_000, None]})
    data = data.cast(pa.schema([pa.field("Side", schema.field("Side").type), schema.field("At")]))
    with Logger(path, schema, constants={"Host": "vm1", "Id": 7}, application_version=3, timestamp_unit="ms") as log:
        log.write(data)
        with pytest.raises(SchemaError, match="row 3: 'Hold' is not in the Enum's table"):
            log.write(
                data.slice(0, 1).set_column(
                    0, "Side", pa.array(["Hold"]).dictionary_encode().cast(schema.field("Side").type)
                )
            )
        with pytest.raises(SchemaError, match="not a whole number of ms"):
            log.write(data.set_column(1, "At", pa.array([0, 1, 2], pa.timestamp("us", "UTC"))))
    table = sawlog.read(path, timestamp_columns={"At": "ms"})
    assert table.schema.metadata == {b"sawlog.application_version": b"3"}
    assert table.drop_columns(["At"]).to_pylist() == [
        {"Host": "vm1", "Side": side, "Id": 7} for side in ("Buy", None, "Sell")
    ]
    assert table.column("At").cast(pa.int64()).to_pylist() == [0, 1, None]
    assert b"".join(path.read_bytes().partition(b"vm1")[1:2]) == b"vm1"


def test_generic_writing_of_constants_and_sets(tmp_path: Path):
    path = tmp_path / "log.bin"
    data = pa.table({"K": ["k"] * 4, "N": pa.array([1, 2, 3, 4], pa.int32())})
    sawlog.write(data, path, format="deephaven_log", constants=["K"], transactions="batch", application_version=9)
    assert kinds(path) == ["first", "row", "row", "last"]
    assert sawlog.read(path).equals(data)
    bad = pa.table({"K": ["k", "k", "x"], "N": [1, 2, 3]})
    with pytest.raises(SchemaError, match="'K', row 2: x in a constant column whose value is k"):
        sawlog.write(bad, tmp_path / "bad.bin", format="deephaven_log", constants=["K"])
    assert os.listdir(tmp_path) == ["log.bin"]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (pa.table({"A": pa.array([1], pa.uint32())}), {}, "'A' is uint32"),
        (pa.table({"A": [{"x": 1}]}), {}, "'A' is struct"),
        (pa.table({"A": ["ok", "日"]}), {"charset": "ISO-8859-1"}, "'A', row 1: '日' cannot be written in ISO-8859-1"),
        (pa.table({"A": [b"x" * (1 << 20)]}), {}, "row 0: its entry is longer than 1048576 bytes"),
        (
            pa.table({"A": ["x", "ab"]}, pa.schema([pa.field("A", pa.string(), metadata={"sawlog.type": "Char"})])),
            {},
            "'A', row 1: 'ab' is not one UTF-16 unit",
        ),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["A", "A"]), {}, "different names"),
    ],
)
def test_what_a_log_cannot_hold(tmp_path: Path, data, options, message):
    with pytest.raises(SchemaError, match=message):
        sawlog.write(data, tmp_path / "bad.bin", format="deephaven_log", **options)
    assert os.listdir(tmp_path) == []


def test_a_partitioning_column_stays_in_the_name(tmp_path: Path):
    name = "Ns.T.System.h.2024-01-01.bin.2024-01-01.000000.000+0000"
    (tmp_path / name).write_bytes(header(COLS) + row(COLS, {"N": 1}))
    data = sawlog.read(tmp_path / name)
    assert data.schema.names == ["N", "S", "Date"]
    (tmp_path / "to").mkdir()
    sawlog.write(data, tmp_path / "to" / name, format="deephaven_log")
    assert (tmp_path / "to" / name).read_bytes() == (tmp_path / name).read_bytes()
    with pytest.raises(SchemaError, match="'Date', row 0"):
        sawlog.write(data, tmp_path / "to" / name.replace("2024-01-01.bin", "2024-01-02.bin"), format="deephaven_log")
    sawlog.write(data, tmp_path / "plain.bin", format="deephaven_log")
    assert sawlog.read(tmp_path / "plain.bin").column("Date").to_pylist() == ["2024-01-01"]


@pytest.mark.parametrize("torn", [b"", b"\0", b"\0\0\0\x10\x03\x01", bytes(64), row(COLS, {"N": 9}, 1)])
def test_appending_goes_on_after_a_crash(tmp_path: Path, torn):
    path = tmp_path / "log.bin"
    with Logger(path, SCHEMA) as log:
        log.write(make_table(1, 2))
    path.write_bytes(path.read_bytes() + torn)
    with pytest.raises(OptionError, match="exists; append=True"):
        Logger(path, SCHEMA)
    with Logger(path, SCHEMA, append=True) as log:
        log.write(make_table(3))
    assert read_numbers(path) == [1, 2, 3]
    sawlog.write(make_table(4), path, format="deephaven_log", append=True)
    assert read_numbers(path) == [1, 2, 3, 4]
    assert sawlog.verify(path).files[0].tail.status == "clean"


def test_appending_needs_the_same_header_and_an_intact_log(tmp_path: Path):
    path = tmp_path / "log.bin"
    sawlog.write(make_table(1, 2, 3), path, format="deephaven_log")
    with pytest.raises(OptionError, match="another header"):
        sawlog.write(pa.table({"X": [1]}), path, format="deephaven_log", append=True)
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError):
        Logger(path, SCHEMA, append=True)
    assert path.read_bytes() == data


def test_one_writer_at_a_time_has_a_log(tmp_path: Path):
    path = tmp_path / "log.bin"
    with Logger(path, SCHEMA) as log:
        log.write(make_table(1))
        with pytest.raises(OptionError, match="another process"):
            Logger(path, SCHEMA, append=True)
        log.write(make_table(2))
    assert read_numbers(path) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"roll_bytes": 5}, "several files"),
        ({"namespace": "Ns"}, "go together"),
        ({"namespace": "Ns", "table": "T", "append": True}, "every start begins a new one"),
        ({"namespace": "N.s", "table": "T"}, "cannot be told apart"),
        ({"charset": "EBCDIC"}, "charset='EBCDIC'"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(tmp_path: Path, arguments, message):
    with pytest.raises(OptionError, match=message):
        Logger(tmp_path / "x", SCHEMA, **arguments)
    with pytest.raises(OptionError, match="append"):
        Logger("memory://x.bin", SCHEMA)


def test_buffered_entries_wait(tmp_path: Path):
    path = tmp_path / "log.bin"
    with Logger(path, SCHEMA, flush="buffer", fsync="never") as log:
        size = path.stat().st_size
        log.write(make_table(1))
        assert path.stat().st_size == size
        log.flush()
        assert read_numbers(path) == [1]
    with Logger(tmp_path / "b.bin", SCHEMA, fsync="write") as log:
        log.write(make_table(1))
        assert read_numbers(tmp_path / "b.bin") == [1]


def _log_on(path: str, started, sets: int) -> None:
    with Logger(path, SCHEMA) as log:
        started.set()
        for start in range(0, sets * 50, 50):
            log.transaction(make_table(*range(start, start + 50)))


def test_a_reader_at_work_sees_whole_sets_only(tmp_path: Path):
    path = str(tmp_path / "log.bin")
    context = multiprocessing.get_context("fork")
    started = context.Event()
    writer = context.Process(target=_log_on, args=(path, started, 400))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        writer.start()
    try:
        assert started.wait(60)
        row_count = 0
        positions: dict = {}
        followed: list[int] = []
        while row_count < 400 * 50:
            numbers = read_numbers(path)
            assert len(numbers) % 50 == 0
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= row_count
            row_count = len(numbers)
            watch = sawlog.open(path).watch(positions)
            followed += [n for batch in watch.look() for n in batch.column("N").to_pylist()]
            positions = watch.positions
            assert followed == list(range(len(followed)))
    finally:
        writer.join(60)
    watch = sawlog.open(path).watch(positions)
    followed += [n for batch in watch.look() for n in batch.column("N").to_pylist()]
    assert followed == list(range(400 * 50))
    assert [offset for offset, _, _ in watch.positions["files"].values()] == [os.path.getsize(path)]


def test_repair_carries_commands_over(tmp_path: Path):
    data = bytearray(make([3, 5, 1, 5, 0, 5, 2, 3, 1, 5]))
    path = tmp_path / "log.bin"
    path.write_bytes(data)
    entries = sawlog.read(path, view="frames").to_pylist()
    data[entries[4]["offset"] + 7] ^= 1
    path.write_bytes(data)
    report = sawlog.repair(path, tmp_path / "fixed.bin").files[0]
    expected_entries = [entries[i] for i in (0, 1, 3, 5, 7, 9)]
    original = make([3, 5, 1, 5, 0, 5, 2, 3, 1, 5])
    expected = b"".join(original[e["offset"] : e["offset"] + e["size"]] for e in expected_entries)
    assert (tmp_path / "fixed.bin").read_bytes() == original[: entries[0]["offset"]] + expected
    assert report.account.total == len(data)
    assert DELETE_PARTITION == 10000
    assert zlib.adler32(struct.pack(">i", 1)) == 0x00050002


def test_an_empty_table_is_a_header(tmp_path: Path):
    sawlog.write(make_table(), tmp_path / "empty.bin", format="deephaven_log")
    assert (tmp_path / "empty.bin").read_bytes() == header([Col("N", "Int"), Col("S", "EnhancedString")])
    with Logger(tmp_path / "logged.bin", SCHEMA):
        pass
    assert (tmp_path / "logged.bin").read_bytes() == (tmp_path / "empty.bin").read_bytes()


@pytest.mark.parametrize(
    ("kind", "smallest"),
    [
        (pa.int8(), -(2**7)),
        (pa.int16(), -(2**15)),
        (pa.int32(), -(2**31)),
        (pa.int64(), -(2**63)),
        (pa.timestamp("ns", "UTC"), -(2**63)),
        (pa.float32(), -3.4028234663852886e38),
        (pa.float64(), -1.7976931348623157e308),
        (pa.uint16(), 0xFFFE),
        (pa.uint16(), 0xFFFF),
    ],
)
def test_what_stands_for_null_is_refused(tmp_path: Path, kind: pa.DataType, smallest: float) -> None:
    """Column files refuse it, too: it would be read back as null."""
    table = pa.table({"x": pa.array([1, None, smallest], kind)})
    with pytest.raises(SchemaError, match=r"column 'x', row 2: .* stands for null"):
        sawlog.write(table, tmp_path / "a.bin", format="deephaven_log")
    assert not (tmp_path / "a.bin").exists()
    sawlog.write(table.slice(0, 2), tmp_path / "a.bin", format="deephaven_log")
    assert sawlog.read(tmp_path / "a.bin")["x"].cast(kind).equals(table["x"].slice(0, 2))
