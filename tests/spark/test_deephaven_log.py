"""Deephaven's binary logs through Spark: types, splits, damage, views, and back into a log."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import sawlog
import sawlog.spark
from tests.deephaven_log.reference import DELETE, Col, entry, header, row, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLS = [
    Col("Time", "Long"),
    Col("Sym", "EnhancedString", charset="ISO-8859-1"),
    Col("Px", "Double"),
    Col("Side", "Enum", table=("Buy", "Sell")),
    Col("Code", "Char"),
    Col("Ok", "Boolean"),
    Col("Host", "EnhancedString", constant=text("vm1")),
]
COUNT = 2000
FLAGS = [3, 3, 1, 0, 2]


def make_rows(count: int) -> list[bytes]:
    """Rows that hold their number, some in sets of three."""
    rows = []
    for i in range(count):
        values = {"Time": i, "Sym": f"é{i % 7}", "Px": i / 4, "Side": i % 2, "Code": 65 + i % 3, "Ok": i % 2 == 0}
        rows.append(row(COLS, {**values, "Px": None} if i % 5 == 0 else values, FLAGS[i % 5]))
    return rows


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of two logs of one partition; the second one begins by deleting what was before it."""
    directory = tmp_path_factory.mktemp("binlogs")
    name = "Ns.Trades.System.vm1.2024-05-06.bin.2024-05-06.{}0000.000+0000"
    (directory / name.format("09")).write_bytes(header(COLS) + b"".join(make_rows(50)))
    (directory / name.format("10")).write_bytes(header(COLS) + entry(4, DELETE) + b"".join(make_rows(COUNT)))
    return directory


@pytest.mark.nightly
def test_rows_of_a_log_that_many_tasks_read(registered: SparkSession, place: Path) -> None:
    frame = (
        registered.read.format("deephaven_log")
        .option("timestamp_columns", "Time=ms")
        .option("task_bytes", 20_000)
        .load(str(place))
    )
    assert frame.rdd.getNumPartitions() > 3
    assert frame.schema.simpleString() == (
        "struct<Time:timestamp,Sym:string,Px:double,Side:string,Code:int,Ok:boolean,Host:string,Date:string>"
    )
    values = frame.toArrow().to_pylist()
    assert [row["Px"] for row in values] == [None if i % 5 == 0 else i / 4 for i in range(COUNT)]
    assert {row["Host"] for row in values} == {"vm1"}
    assert {row["Date"] for row in values} == {"2024-05-06"}
    last = values[-1]
    last_time = dt.datetime.fromtimestamp((COUNT - 1) / 1000, dt.UTC)
    assert (last["Time"], last["Sym"], last["Side"], last["Code"]) == (last_time, "é4", "Sell", 66)
    assert frame.where("Side = 'Buy' and Px is null").count() == COUNT // 10


def test_logs_are_split_by_resynchronisation(registered: SparkSession, place: Path) -> None:
    options = {"split": "resync", "deletes": "ignore", "task_bytes": "20000"}
    frame = registered.read.format("deephaven_log").options(**options).load(str(place))
    assert frame.rdd.getNumPartitions() > 3
    assert [row.Time for row in frame.select("Time").collect()] == [*range(50), *range(COUNT)]


def test_partitions_and_commands_are_read(registered: SparkSession, place: Path) -> None:
    frame = registered.read.format("deephaven_log").load(str(place))
    assert frame.where("Date = '2024-05-07'").count() == 0
    commands = registered.read.format("deephaven_log").option("view", "commands").load(str(place)).collect()
    assert [(command.record_type, command.command_id) for command in commands] == [(20000, 10000)]


def test_columns_that_are_said_to_hold_no_nulls(registered: SparkSession, place: Path) -> None:
    reader = registered.read.format("deephaven_log")
    frame = reader.schema("Time bigint NOT NULL, Sym string NOT NULL, Px double").load(str(place))
    assert [field.nullable for field in frame.schema] == [False, False, True]
    assert [row.Time for row in frame.select("Time").collect()] == list(range(COUNT))
    with pytest.raises(Exception, match=r"Ns\.Trades.*: column 'Px' holds nulls; its schema says NOT NULL"):
        reader.schema("Px double NOT NULL").load(str(place)).collect()


def test_damage_is_left_out_where_that_is_wanted(registered: SparkSession, tmp_path: Path) -> None:
    rows = make_rows(500)
    broken = bytearray(rows[100])
    broken[-1] ^= 1
    path = tmp_path / "t.bin"
    path.write_bytes(header(COLS) + b"".join(rows[:100]) + bytes(broken) + b"".join(rows[101:]))
    reader = registered.read.format("deephaven_log").option("task_bytes", 5000)
    with pytest.raises(Exception, match="checksum_mismatch"):
        reader.load(str(path)).count()
    frame = reader.option("mode", "DROPMALFORMED").load(str(path))
    assert [row.Time for row in frame.select("Time").collect()] == [i for i in range(500) if i != 100]
    damage = reader.option("view", "damage").load(str(path)).collect()
    assert [damage_entry.kind for damage_entry in damage] == ["checksum_mismatch"]


def test_what_spark_writes_is_a_log(registered: SparkSession, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = registered.read.format("deephaven_log").load(str(place)).drop("Host", "Date")
    frame.coalesce(1).write.format("deephaven_log").mode("append").save(str(out))
    table = sawlog.read(out)
    assert table.column("Px").to_pylist() == [None if i % 5 == 0 else i / 4 for i in range(COUNT)]
    assert table.schema.field("Code").type == pa.uint16()
    assert table.schema.field("Sym").metadata[b"sawlog.charset"] == b"ISO-8859-1"
