"""The format of examples/tfrecord on Spark: read in tasks, followed, written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import sawlog.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RECORDS = [b"record %d" % n * 10 for n in range(500)]


@pytest.mark.usefixtures("plugins")
@pytest.mark.nightly
def test_written_read_and_followed(spark: SparkSession, tmp_path: Path, pyspark_version: tuple[int, int]) -> None:
    assert "tfrecord" in sawlog.spark.register(spark)
    frame = spark.createDataFrame([(record,) for record in RECORDS], "record binary").repartition(3)
    frame.write.format("tfrecord").mode("append").save(str(tmp_path / "table"))
    with pytest.raises(
        AnalysisException, match="'record' is timestamp_ntz, and tfrecord holds no times without a zone"
    ):
        spark.sql("SELECT TIMESTAMP_NTZ '2026-01-01 00:00:00' AS record").write.format("tfrecord").mode("append").save(
            str(tmp_path / "refused")
        )
    reading = spark.read.format("tfrecord").option("task_bytes", 5000)
    back = reading.load(str(tmp_path / "table"))
    assert back.rdd.getNumPartitions() > 6
    assert sorted(bytes(row.record) for row in back.collect()) == sorted(RECORDS)
    recognised = spark.read.format("sawlog").load(str(tmp_path / "table"))
    assert recognised.filter("record > X'7265636F72642034'").count() == sum(record > b"record 4" for record in RECORDS)
    if pyspark_version < (4, 2):
        return  # streams are newer
    query = (
        spark.readStream.format("sawlog")
        .option("format", "tfrecord")
        .load(str(tmp_path / "table"))
        .writeStream.format("memory")
        .queryName("followed_records")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    followed = spark.sql("SELECT record FROM followed_records").collect()
    assert sorted(bytes(row.record) for row in followed) == sorted(RECORDS)
