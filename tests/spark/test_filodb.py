"""FiloDB's containers through Spark: files, binary columns, hashes and shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import sawlog
import sawlog.spark
from sawlog.filodb import Buckets, Histogram
from sawlog.filodb.spark import filodb_partition_hash, filodb_shard, from_filodb_record, to_filodb_record
from tests.filodb_record import golden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def values(registered: SparkSession) -> DataFrame:
    rows = [(i, golden.data(f"gauge_100_small_{i:02}")) for i in range(8)]
    return registered.createDataFrame([*rows, (8, None)], "id int, value binary")


def test_containers_are_read_in_tasks_and_filtered(registered: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    for number in range(3):
        data = b"".join(golden.data(f"gauge_100_small_{i:02}") for i in range(8))
        (place / f"{number}.container").write_bytes(data)
    frame = registered.read.format("filodb_record").option("task_bytes", 5000).load(str(place))
    assert frame.rdd.getNumPartitions() > 3
    assert frame.count() == 300
    assert frame.filter("tags['city'] = 'München' and value > 0").count() > 0
    filtered = registered.read.format("filodb_record").option("filters", '[["tags[\'instance\']", "~", "^host-1"]]')
    assert filtered.load(str(place)).count() == frame.filter("tags['instance'] like 'host-1%'").count() > 0
    series = registered.read.format("filodb_record").option("view", "partkeys").load(str(place))
    assert series.count() == 100
    # Where one task is not enough, Spark unites, as the documentation has it.
    key = F.expr("array_sort(map_entries(tags))")
    united = frame.select("_metric_", "tags").withColumn("key", key).dropDuplicates(["_metric_", "key"]).drop("key")
    assert sorted(map(str, united.collect())) == sorted(map(str, series.select("_metric_", "tags").collect()))
    out = tmp_path / "out"
    frame.write.format("filodb_record").mode("append").save(str(out))
    again = sawlog.read(out, columns=["timestamp", "_metric_", "value"]).sort_by("timestamp")
    assert again.num_rows == 300
    assert pc.sum(again["timestamp"].cast(pa.int64())).as_py() == 3 * sum(
        record["timestamp"] for record in golden.facts("gauge_100")["records"]
    )


def test_several_records_out_of_one_value(values: DataFrame) -> None:
    rows = values.select("id", F.inline(from_filodb_record("value", "gauge", extras="hash,container_timestamp")))
    result_rows = rows.orderBy("timestamp").collect()
    expected = sorted(golden.facts("gauge_100")["records"], key=lambda record: record["timestamp"])
    assert [row["_hash"] for row in result_rows] == [row["partition_hash"] for row in expected]
    assert [row["tags"] for row in result_rows] == [dict(row["tags_in_insertion_order"]) for row in expected]
    counts = values.select("id", F.size(from_filodb_record("value")).alias("n")).orderBy("id").collect()
    assert [row["n"] for row in counts[:8]] == [13] * 7 + [9]


def test_damaged_values_fail_or_are_skipped(registered: SparkSession) -> None:
    frame = registered.createDataFrame([(bytearray(golden.data("gauge_100")[:200]),)], "value binary")
    with pytest.raises(Exception, match="the value ends at byte 200"):
        frame.select(from_filodb_record("value", "gauge")).collect()
    skipping_frame = frame.select(F.inline(from_filodb_record("value", "gauge", on_damage="skip")))
    assert skipping_frame.count() == 1


def test_poison_is_told_and_never_stops_anything(registered: SparkSession) -> None:
    good = golden.data("gauge_100_small_00")
    late = bytearray(good)
    late[22:30] = (1 << 62).to_bytes(8, "little")
    short = bytearray(good)
    short[0:4] = (4).to_bytes(4, "little")
    poison = [bytes(late), bytes(short), b"garbage" * 40, good[:100], b"", b"\0" * 300, None]
    frame = registered.createDataFrame(
        [
            (number, bytearray(payload) if payload is not None else None)
            for number, payload in enumerate([good, *poison, good])
        ],
        "offset int, value binary",
    )
    for result_frame in (
        frame.select("offset", from_filodb_record("value", "gauge", on_damage="collect").alias("r")).select(
            "offset", "r.*"
        ),
        sawlog.spark.filodb_records(frame, "value", "gauge"),
    ):
        rows = {row["offset"]: row for row in result_frame.collect()}
        assert [len(rows[n]["rows"]) for n in (0, 1, 2, 3, 4, 5, 6, 8)] == [13, 12, 0, 0, 0, 0, 0, 13]
        assert {n for n, row in rows.items() if row["ok"]} == {0, 5, 8}
        kinds = {n: [damage["kind"] for damage in row["damage"]] for n, row in rows.items() if row["damage"]}
        assert kinds[1] == ["bad_timestamp"]
        assert kinds[2] == ["bad_header"]
        assert rows[1]["damage"][0]["offset"] == 16
    with pytest.raises(Exception, match=r"value 1 of the batch.*byte 16"):
        frame.coalesce(1).select(from_filodb_record("value", "gauge")).collect()


def test_rows_to_containers(values: DataFrame) -> None:
    rows = values.where("value is not null").select("id", F.inline(from_filodb_record("value", "gauge")))
    packed = (
        rows.coalesce(1)
        .groupBy("id")
        .agg(F.collect_list(F.struct("timestamp", "value", "_metric_", "tags")).alias("r"))
    )
    if not hasattr(F, "arrow_udf"):
        with pytest.raises(sawlog.OptionError, match=r"needs PySpark 4\.1"):
            to_filodb_record("r", "gauge")
        return
    packed_frame = packed.select(
        "id", to_filodb_record("r", "gauge", container_timestamp=golden.TIMESTAMP).alias("value")
    )
    sizes = [container["num_bytes_header"] + 4 for container in golden.facts("gauge_100_small")["containers"]]
    for row in packed_frame.collect():
        assert bytes(row["value"]) == golden.data(f"gauge_100_small_{row['id']:02}")[: sizes[row["id"]]]


def test_hashes_and_shards_are_those_of_filodb(registered: SparkSession) -> None:
    records = golden.facts("gauge_100")["records"]
    rows = [
        (record["_metric_"], dict(record["tags_in_insertion_order"]), record["partition_hash"]) for record in records
    ]
    frame = registered.createDataFrame(rows, "_metric_ string, tags map<string, string>, expected int")
    wrong = frame.where(filodb_partition_hash("_metric_", "tags") != F.col("expected"))
    assert wrong.count() == 0
    examples = golden.facts("hashes")["shard_examples_default_partition_schema"]
    rows = [(example["metric"], dict(example["tags"]), example["shards"][4]["ingestion_shard"]) for example in examples]
    frame = registered.createDataFrame(rows, "metric string, tags map<string, string>, expected int")
    result_rows = frame.select(filodb_shard("metric", "tags", 32, spread=1).alias("shard"), "expected").collect()
    assert [row["shard"] for row in result_rows] == [row["expected"] for row in result_rows]
    with pytest.raises(sawlog.OptionError, match="power of two"):
        filodb_shard("metric", "tags", 48)


def test_functions_of_histograms_agree_with_python(registered: SparkSession, tmp_path: Path) -> None:
    rows = [Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(range(n, n + 8))) for n in range(4)]
    tops = list(rows[0].buckets.tops)
    frame = registered.createDataFrame(
        [(n % 2, (tops, [float(v) for v in row.values], None), 0.0, 100.0) for n, row in enumerate(rows)],
        "id int, h struct<tops: array<double>, values: array<double>, buckets: binary>, low double, high double",
    )
    result_rows = frame.select(
        sawlog.spark.histogram_quantile("h", 0.5).alias("q"),
        sawlog.spark.histogram_quantile("h", 0.5, "low", "high").alias("narrow"),
        sawlog.spark.histogram_fraction("h", 0.0, 4.0).alias("f"),
        sawlog.spark.histogram_add("h", "h").alias("twice"),
    ).collect()
    assert sorted(row["q"] for row in result_rows) == sorted(row.quantile(0.5) for row in rows)
    assert sorted(row["f"] for row in result_rows) == sorted(row.fraction(0.0, 4.0) for row in rows)
    assert sorted(row["twice"]["values"][-1] for row in result_rows) == [2.0 * row.count for row in rows]
    if not hasattr(F, "arrow_udf"):
        return
    merged = frame.groupBy("id").agg(sawlog.spark.histogram_merge("h").alias("h")).orderBy("id").collect()
    assert [row["h"]["values"][-1] for row in merged] == [7.0 + 9.0, 8.0 + 10.0]
