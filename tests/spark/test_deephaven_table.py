"""Locations written by Spark: one per task, all of them or none, and read back with their types."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException

import sawlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def make_trades(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr(
        "id AS Id",
        "concat('S', CAST(id % 3 AS string)) AS Sym",
        "IF(id % 5 = 0, NULL, id / 4) AS Px",
        "timestamp_micros(id * 1000) AS At",
        "CAST(id AS decimal(10,2)) AS Fee",
        "id % 2 = 0 AS Even",
        "array(CAST(id AS int), 1) AS Sizes",
        "DATE '2024-05-06' AS Day",
    )


def append_to_tree(frame: DataFrame, target: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("sawlog").option("format", "deephaven_table").options(**options).mode(mode).save(str(target))


def ids(target: Path) -> list[int]:
    return sorted(sawlog.read(target, columns=["Id"]).column("Id").to_pylist())


def test_one_location_is_written_per_task(
    spark: SparkSession, tmp_path: Path, pyspark_version: tuple[int, int], with_jar: bool
) -> None:
    frame = make_trades(spark, 50, 3)
    append_to_tree(frame, tmp_path / "t", compact_header="true")
    assert len(os.listdir(tmp_path / "t")) == 3
    table = sawlog.read(tmp_path / "t").sort_by("Id")
    assert table.schema.names == frame.columns
    assert table.schema.types == [
        pa.int64(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.float64(),
        pa.timestamp("ns", "UTC"),
        pa.decimal128(10, 2),
        pa.bool_(),
        pa.list_(pa.int32()),
        pa.date32(),
    ]
    assert table.column("Px").to_pylist() == [None if i % 5 == 0 else i / 4 for i in range(50)]
    assert table.column("At").cast(pa.int64()).to_pylist() == [i * 1_000_000 for i in range(50)]
    back = spark.read.format("sawlog").load(str(tmp_path / "t"))
    assert sorted(back.collect()) == sorted(frame.collect())
    append_to_tree(frame, tmp_path / "t")
    assert ids(tmp_path / "t") == sorted([*range(50)] * 2)
    append_to_tree(back, tmp_path / "copy", column_version="2")
    times = 1 if pyspark_version >= (4, 1) and not with_jar else 2  # what was there when it was loaded, or is there now
    assert ids(tmp_path / "copy") == sorted([*range(50)] * times)


def test_overwriting_deletes_whole_locations(spark: SparkSession, tmp_path: Path) -> None:
    append_to_tree(make_trades(spark, 50, 3), tmp_path / "t")
    append_to_tree(make_trades(spark, 7, 2), tmp_path / "t", "overwrite")
    assert ids(tmp_path / "t") == list(range(7))
    assert len(os.listdir(tmp_path / "t")) == 2
    append_to_tree(make_trades(spark, 0, 2), tmp_path / "t", "overwrite")
    assert ids(tmp_path / "t") == []
    assert sawlog.read(tmp_path / "t").schema.names == make_trades(spark, 0, 1).columns


def test_a_location_gives_way_to_a_directory_of_them(spark: SparkSession, tmp_path: Path) -> None:
    sawlog.write(pa.table({"Id": [99]}), tmp_path / "t", format="deephaven_table")
    append_to_tree(make_trades(spark, 7, 2).select("Id"), tmp_path / "t", "overwrite")
    assert ids(tmp_path / "t") == list(range(7))


@pytest.mark.nightly
def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    append_to_tree(make_trades(spark, 5, 1), tmp_path / "t")
    before = os.listdir(tmp_path / "t")
    bad = make_trades(spark, 50, 3).selectExpr("IF(Id = 49, -9223372036854775808L, Id) AS Id")
    with pytest.raises((PythonException, AnalysisException), match="stands for null in a long column"):
        append_to_tree(bad, tmp_path / "t")
    assert os.listdir(tmp_path / "t") == before


@pytest.mark.nightly
def test_groups_and_types_are_written(spark: SparkSession, tmp_path: Path) -> None:
    frame = make_trades(spark, 30, 2).select("Sym", "Id").coalesce(1).sortWithinPartitions("Sym")
    append_to_tree(frame, tmp_path / "t", group="Sym", types="Sym=String(None,UTF-8)")
    groups: list[dict[str, Any]] = sawlog.read(tmp_path / "t", view="groups").to_pylist()
    assert len(groups) == 3
    with pytest.raises((PythonException, AnalysisException), match="must follow one another"):
        append_to_tree(make_trades(spark, 30, 1), tmp_path / "scattered", group="Sym")


@pytest.mark.nightly
def test_a_stream_of_locations(spark: SparkSession, pyspark_version: tuple[int, int], tmp_path: Path) -> None:
    if pyspark_version < (4, 2):
        return  # streams need Arrow's own writers
    for number in range(2):
        make_trades(spark, 10, 1).selectExpr(f"Id + {10 * number} AS Id", "Sym").write.mode("append").parquet(
            str(tmp_path / "in")
        )
        query = (
            spark.readStream.schema("Id long, Sym string")
            .parquet(str(tmp_path / "in"))
            .writeStream.format("sawlog")
            .option("format", "deephaven_table")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert ids(tmp_path / "out") == list(range(10 * number + 10))
