"""Trees of Deephaven's locations through Spark: partitions, groups, symbols, and one huge location for many tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import sawlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATES = ("2024-05-06", "2024-05-07")
ROWS = 300_000


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("db")
    for date in DATES:
        for internal in ("0", "1"):
            count = ROWS if (date, internal) == (DATES[0], "0") else 10
            ids = np.arange(count)
            symbols = pa.array((ids >= count // 2).astype(np.int32))
            table = pa.table(
                {
                    "Sym": pa.DictionaryArray.from_arrays(symbols, pa.array(["A", f"B{internal}"])),
                    "Id": ids,
                    "Px": pa.array(ids / 2, mask=ids == 0),
                }
            )
            leaf = root / "Systems" / "Ns" / "Partitions" / internal / date / "Trades"
            sawlog.write(table, leaf, format="deephaven_table", group=("Sym",))
    return root


def test_partitions_and_symbols_are_read(spark: SparkSession, tree: Path) -> None:
    frame = spark.read.format("sawlog").load(str(tree))
    assert [field.simpleString() for field in frame.schema] == ["Sym:string", "Id:bigint", "Px:double", "Date:string"]
    rows = frame.where(f"Date = '{DATES[1]}'").groupBy("Sym").count().orderBy("Sym").collect()
    assert [tuple(row) for row in rows] == [("A", 10), ("B0", 5), ("B1", 5)]
    assert frame.selectExpr("count(*)", "count(Px)").first() == (ROWS + 30, ROWS + 26)


@pytest.mark.nightly
def test_one_location_feeds_many_tasks(spark: SparkSession, tree: Path) -> None:
    leaf = str(tree / "Systems" / "Ns" / "Partitions" / "0" / DATES[0] / "Trades")
    frame = spark.read.format("sawlog").option("task_bytes", 2_000_000).load(leaf)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.selectExpr("count(*)", "sum(Id)", "count(DISTINCT Id)").first() == (ROWS, ROWS * (ROWS - 1) // 2, ROWS)


def test_filters_of_the_option_leave_groups_unread(spark: SparkSession, tree: Path) -> None:
    filters = json.dumps([["Sym", "=", "B1"]])
    frame = spark.read.format("sawlog").option("filters", filters).load(str(tree))
    assert [row.Date for row in frame.collect()] == [DATES[0]] * 5 + [DATES[1]] * 5
