"""Times written and read back in sessions of other zones: instants stay instants, and what has no zone is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.types import TimestampType

import sawlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")

ZONE = "spark.sql.session.timeZone"
ZONES = ("America/New_York", "Asia/Kathmandu", "Pacific/Auckland")
MOMENTS = (1_705_320_000_123, 1_719_835_200_000, 0, 1_710_054_000_000, 1_730_611_800_000)
"""Milliseconds since 1970: winter, summer, the epoch, and around two changes of New York's clocks."""


@dataclass(frozen=True)
class Target:
    """How times are written in a format, and read back."""

    time: str = "at"
    extra_columns: Sequence[str] = ()
    writing: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    stored: str = ""

    @property
    def column(self) -> str:
        """The column that is read back."""
        return self.stored or self.time


TARGETS = {
    "deephaven_table": Target(),
    "deephaven_log": Target(reading={"timestamp_columns": "at=us"}),
    "filodb_record": Target(
        "timestamp", ["1.0D AS value", "'m' AS _metric_", "map('_ws_', 'w', '_ns_', 'n') AS tags"], {"table": "gauge"}
    ),
    "milvus_binlog": Target(extra_columns=["id"], writing={"primary_key": "id"}, stored="100"),
}
"""All formats that are written and hold times; those of LevelDB hold bytes."""


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = str(spark.conf.get(ZONE))
    spark.conf.set(ZONE, request.param)
    yield request.param
    spark.conf.set(ZONE, before)


def moments(spark: SparkSession, kind: str, unit: str = "millis") -> DataFrame:
    """The moments as instants, or as what clocks in the session's zone showed."""
    rows = ", ".join(f"({number}L, {moment}L)" for number, moment in enumerate(MOMENTS))
    return spark.sql(f"SELECT id, CAST(timestamp_{unit}(n) AS {kind}) AS at FROM VALUES {rows} AS t(id, n)")


def save_times(frame: DataFrame, path: Path, format: str, time: str = "at") -> None:
    target = TARGETS[format]
    sink = frame.selectExpr(f"{time} AS {target.time}", *target.extra_columns).coalesce(1).write.format("sawlog")
    sink.option("format", format).options(**target.writing).mode("append").save(str(path))


@pytest.mark.parametrize("format", TARGETS)
def test_instants_come_back_in_every_zone(spark: SparkSession, zone: str, format: str, tmp_path: Path) -> None:
    target = TARGETS[format]
    save_times(moments(spark, "TIMESTAMP"), tmp_path / "out", format)
    column = sawlog.read(tmp_path / "out", format=format, **target.reading).column(target.column)
    assert column.type.tz == "UTC"
    stored = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    assert sorted(stored) == sorted(1000 * moment for moment in MOMENTS)
    spark.conf.set(ZONE, ZONES[ZONES.index(zone) - 1])
    back = spark.read.format("sawlog").option("format", format).options(**target.reading).load(str(tmp_path / "out"))
    assert isinstance(back.schema[target.column].dataType, TimestampType)
    rows = back.selectExpr(f"unix_micros(`{target.column}`)").collect()
    assert sorted(row[0] for row in rows) == sorted(stored)


@pytest.mark.parametrize("format", TARGETS)
def test_times_without_a_zone_are_refused(spark: SparkSession, format: str, tmp_path: Path) -> None:
    local = moments(spark, "TIMESTAMP_NTZ")
    refused = (
        f"SchemaError: column '{TARGETS[format].time}' is .*timestamp_ntz.*, and {format} holds no times"
        " without a zone: CAST to TIMESTAMP, which takes them in the session's zone, or to STRING"
    )
    for time in ("at", "array(at)", "map('a', at)", "named_struct('a', at)")[: 4 if format == "deephaven_table" else 1]:
        with pytest.raises(AnalysisException, match=refused):
            save_times(local, tmp_path / "out", format, time)
    assert not (tmp_path / "out").exists()
    save_times(local, tmp_path / "out", format, "CAST(at AS TIMESTAMP)")
    target = TARGETS[format]
    back = spark.read.format("sawlog").option("format", format).options(**target.reading).load(str(tmp_path / "out"))
    rows = back.selectExpr(f"CAST(CAST(`{target.column}` AS TIMESTAMP_NTZ) AS STRING)").collect()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, local.selectExpr("CAST(at AS STRING)").collect()))


def test_instants_that_a_format_cannot_hold_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises((PythonException, AnalysisException), match="column 'timestamp', row 0: does not fit"):
        save_times(moments(spark, "TIMESTAMP", "micros").where("id = 0"), tmp_path / "out", "filodb_record")
    assert not (tmp_path / "out").exists()


def test_a_stream_refuses_times_without_a_zone(
    spark: SparkSession, pyspark_version: tuple[int, int], tmp_path: Path
) -> None:
    if pyspark_version < (4, 2):
        return  # streams need Arrow's own writers
    moments(spark, "TIMESTAMP_NTZ").write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("id long, at timestamp_ntz").parquet(str(tmp_path / "in"))
    sink = source.writeStream.format("sawlog").option("format", "deephaven_table").trigger(availableNow=True)
    sink = sink.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="column 'at' is timestamp_ntz, and deephaven_table holds no times"):
        sink.start().awaitTermination(60)
