"""With the jar Spark takes columns; everything else is as without it."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f

import sawlog
import sawlog.spark
from sawlog.dataset import index
from sawlog.deephaven.log import Logger
from sawlog.storage import Storage
from tests.spark.conftest import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000
BY_KEY = "spark.sql.sources.v2.bucketing"


@pytest.fixture(scope="module")
def trades(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of Deephaven's with one column of each type, nulls included."""
    path = tmp_path_factory.mktemp("trades")
    n = np.arange(ROWS)
    mask = n % 7 == 3
    table = pa.table(
        {
            "n": pa.array(n, pa.int64()),
            "i": pa.array(n.astype(np.int32), mask=mask),
            "b": pa.array(n % 2 == 0),
            "d": pa.array(n / 4, mask=mask),
            "s": pa.array([f"s{x % 10}" for x in n], mask=mask),
            "t": pa.array(n * 1_000_003, pa.timestamp("ns", "UTC"), mask=mask),
        }
    )
    with Logger(path, table.schema, namespace="Market", table="Trades", internal_partition="a") as logger:
        for batch in table.to_batches(1000):
            logger.write(batch)
    return path


def read_both(spark: SparkSession, path: Path, **options: Any) -> tuple[DataFrame, DataFrame]:
    """The same by columns and by rows, which short names still are."""
    sawlog.spark.register(spark)
    reading = [spark.read.format(name).options(**options) for name in (COLUMNS, "deephaven_log")]
    columns, rows = (reader.load(str(path)) for reader in reading)
    return columns, rows


def plan(frame: DataFrame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def are_equal(first: DataFrame, second: DataFrame) -> bool:
    return first.toArrow().equals(second.toArrow())


def test_columns_arrive_as_columns(spark: SparkSession, trades: Path) -> None:
    columns, rows = read_both(spark, trades)
    assert columns.schema == rows.schema
    assert "ColumnarToRow" in plan(columns)
    assert "ColumnarToRow" not in plan(rows)
    assert columns.count() == ROWS
    assert are_equal(columns.sort("n"), rows.sort("n"))


def test_only_wanted_columns_are_read(spark: SparkSession, trades: Path) -> None:
    columns, rows = read_both(spark, trades)
    assert "ReadSchema: struct<i:int,s:string>\n" in plan(columns.groupBy("s").sum("i")).replace(
        " RuntimeFilters: []", ""
    )
    assert sorted(columns.groupBy("s").sum("i").collect(), key=str) == sorted(
        rows.groupBy("s").sum("i").collect(), key=str
    )


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("n >= 100 AND n < 200", r"GreaterThanOrEqual\(n,100\), LessThan\(n,200\)"),
        ("i = 77", r"EqualTo\(i,77\)"),
        ("i <=> 77", r"EqualNullSafe\(i,77\)"),
        ("NOT i = 77", r"Not\(EqualTo\(i,77\)\)"),
        ("s IN ('s1', 's2')", r"In\(s, \[s1,s2\]\)"),
        ("NOT s IN ('s1', 's2')", r"Not\(In\(s, \[s1,s2\]\)\)"),
        ("d > 17.25 AND b", r"GreaterThan\(d,17.25\), EqualTo\(b,true\)"),
        ("s LIKE '%9' OR n = 5", ""),
        ("n = 5 AND n = 6", r"EqualTo\(n,5\), EqualTo\(n,6\)"),
        ("s IS NULL", ""),
    ],
)
def test_filters_are_pushed_and_told(spark: SparkSession, trades: Path, condition: str, pushed: str) -> None:
    columns, rows = read_both(spark, trades)
    filtered = columns.where(condition)
    if condition != "n = 5 AND n = 6":
        assert re.search(rf"PushedFilters: \[{pushed}\]", plan(filtered))
    assert are_equal(filtered.sort("n"), rows.where(condition).sort("n"))


def test_a_frame_filtered_in_two_ways(spark: SparkSession, trades: Path) -> None:
    frame, _ = read_both(spark, trades)
    head, tail = frame.where("n < 500"), frame.where("n >= 500")
    assert (head.count(), tail.count(), frame.count()) == (500, ROWS - 500, ROWS)
    assert head.union(tail).count() == ROWS
    assert head.join(tail.select("s").distinct(), "s").count() == head.where("s IS NOT NULL").count()


def test_count_reads_no_column(spark: SparkSession, trades: Path) -> None:
    columns, _ = read_both(spark, trades)
    assert "ReadSchema: struct<>" in plan(columns.groupBy().count())
    assert columns.count() == ROWS
    assert columns.selectExpr("1").count() == ROWS
    with_option = spark.read.format(COLUMNS).option("filters", '[["n", "<", 10]]').load(str(trades))
    assert with_option.count() == 10
    assert spark.read.format(COLUMNS).option("view", "damage").load(str(trades)).count() == 0


METRICS = ("damaged ranges", "damaged bytes", "rows left out besides", "requests to the store")


def test_input_is_seen_in_sparks_stages(spark: SparkSession, trades: Path) -> None:
    context: Any = spark.sparkContext
    context.setJobGroup("input", "input")
    frame = spark.read.format(COLUMNS).load(str(trades))
    frame.selectExpr("sum(n)").collect()
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = map(context.statusTracker().getJobInfo, context.statusTracker().getJobIdsForGroup("input"))
    stages = sorted({stage for job in jobs for stage in job.stageIds})
    attempts = [context._jsc.sc().statusStore().lastStageAttempt(stage) for stage in stages]
    assert sum(stage.inputRecords() for stage in attempts) == ROWS
    size = sum(path.stat().st_size for path in trades.rglob("*.bin.*"))
    assert 0.99 * size < sum(stage.inputBytes() for stage in attempts) <= size, "headers are read by what plans"


def test_metrics_of_a_scan_are_those_of_verify(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"record": pa.array([b"%0200d" % row for row in range(3_000)], pa.binary())})
    sawlog.write(table, tmp_path / "000003.log", format="leveldb_log")
    data = bytearray((tmp_path / "000003.log").read_bytes())
    for place in (70_000, 200_000, 430_000):
        data[place] ^= 1
    (tmp_path / "000003.log").write_bytes(data)
    report = sawlog.verify(tmp_path)
    reading = spark.read.format(COLUMNS).option("mode", "DROPMALFORMED").option("task_bytes", 100_000)
    assert reading.load(str(tmp_path)).selectExpr("count(record)").collect()[0][0] == report.rows
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    store: Any = spark._jsparkSession.sharedState().statusStore()  # type: ignore[attr-defined]
    last = max(execution.executionId() for execution in _items(store.executionsList()))
    values = store.executionMetrics(last)
    metrics = {
        metric.name(): values.get(metric.accumulatorId()) for metric in _items(store.execution(last).get().metrics())
    }
    numbers = {name: int(value.get().replace(",", "")) for name, value in metrics.items() if name in METRICS}
    damaged_bytes = sum(file.account.damage for file in report.files)
    damaged_ranges = sum(len(file.damages) for file in report.files)
    assert numbers == dict(zip(METRICS, (damaged_ranges, damaged_bytes, 0, 0), strict=True))
    assert damaged_bytes > 0


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.length())]


def test_limits_are_pushed(spark: SparkSession, tmp_path: Path) -> None:
    records = [b"%0200d" % row for row in range(30_000)]
    for number in range(3, 9):
        table = pa.table({"record": pa.array(records, pa.binary())})
        sawlog.write(table, tmp_path / f"{number:06}.log", format="leveldb_log")
    frame = spark.read.format(COLUMNS).load(str(tmp_path))
    assert "PushedLimit: 3, " in plan(frame.limit(3))
    assert "PushedLimit" not in plan(frame.where("length(record) > 1").limit(3))
    assert len(frame.limit(3).collect()) == 3
    assert not frame.isEmpty()
    assert frame.limit(7).count() == 7
    assert frame.limit(7 * len(records)).count() == 6 * len(records)
    assert frame.limit(3).union(frame).count() == 6 * len(records) + 3
    assert frame.limit(0).collect() == []


def test_tasks_that_end_early_keep_their_workers(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"record": pa.array([b"%0200d" % row for row in range(400_000)], pa.binary())})
    sawlog.write(table, tmp_path / "000003.log", format="leveldb_log")
    frame = spark.read.format(COLUMNS).load(str(tmp_path))
    java: Any = spark._jvm
    processes = java.java.lang.ProcessHandle.current()

    def children() -> dict[int, Any]:
        return {process.pid(): process for process in processes.children().toArray()}

    children_before = children()
    setting = "spark.sql.execution.pyspark.udf.faulthandler.enabled"  # another process forks those without it
    spark.conf.set(setting, value=False)
    try:
        assert frame.count() == table.num_rows
        # Spark ends those of other tests once they were idle for a minute.
        (daemon,) = (child for pid, child in children().items() if pid not in children_before)

        def workers() -> set[int]:
            return {process.pid() for process in daemon.descendants().toArray()}

        before = workers()
        assert before
        assert len(frame.take(3)) == 3
        assert len(frame.where("length(record) > 1").take(3)) == 3
        assert len(frame.where("length(record) > 1").limit(2).collect()) == 2
        time.sleep(1)  # those that Spark ends take a moment
        assert workers() >= before
    finally:
        spark.conf.set(setting, value=True)


def test_one_process_loads_what_planning_and_reading_need(spark: SparkSession, trades: Path) -> None:
    """All that plan and read are forked from it."""
    java: Any = spark._jvm
    processes = java.java.lang.ProcessHandle.current()
    before = processes.children().count()
    setting = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"  # a process forks those that have its settings
    spark.conf.set(setting, value=True)
    try:
        assert spark.read.format(COLUMNS).load(str(trades)).count() == ROWS
    finally:
        spark.conf.unset(setting)
    assert processes.children().count() == before + 1


SMALL: dict[str, tuple[Any, ...]] = {
    "count": ("SELECT count(*), sum(n) FROM few", 0),
    "group": ("SELECT s, sum(n), count(DISTINCT i) FROM few GROUP BY s", 0, 2),
    "distinct": ("SELECT DISTINCT s, b FROM few", 0, 1),
    "window": ("SELECT n, sum(n) OVER (PARTITION BY s ORDER BY n) FROM few", 0),
    "none": ("SELECT count(*), max(n) FROM few WHERE n < 0", 0),
    "cut": ("SELECT s, count(*), count(DISTINCT i) FROM cut GROUP BY s", 2),
    "sort": ("SELECT n FROM few ORDER BY d DESC, n", 1),
    "self": ("SELECT f.n, g.s FROM few f JOIN few g ON f.n = g.n WHERE g.i > 7", 2),
    "outer": ("SELECT f.n, g.i FROM few f FULL JOIN (SELECT * FROM few WHERE n < 9) g ON f.n = g.n", 2),
    "grouped": ("SELECT n, total FROM few JOIN (SELECT s, sum(n) AS total FROM few GROUP BY s) USING (s)", 2),
    "with cut": ("SELECT f.n, c.s FROM few f LEFT JOIN cut c ON f.n = c.n", 2),
    "range": ("SELECT id, s FROM range(30000) LEFT JOIN few ON id = n", 2),
    "missing": ("SELECT id FROM range(30000) ANTI JOIN few ON id = n", 2),
    "union": ("SELECT s, count(*) FROM (SELECT * FROM few UNION ALL SELECT * FROM cut) GROUP BY s", 1),
    "itself": ("SELECT s, count(*) FROM (SELECT * FROM few UNION ALL SELECT * FROM few) GROUP BY s", 1),
    "subquery": ("SELECT s FROM few WHERE n > (SELECT avg(n) FROM few) AND s IN (SELECT s FROM cut)", 2),
}
"""Queries of a log that is one task, and of the same cut into several; how often each shuffles, and on Spark 4.3."""


@pytest.fixture(params=["none", BY_KEY, f"{BY_KEY}.shuffle", f"{BY_KEY}.pushPartValues", "spark.sql.adaptive"])
def by_key(request: pytest.FixtureRequest, spark: SparkSession, pyspark_version: tuple[int, int]) -> Iterator[bool]:
    """Whether Spark regards keys of partitions, with nothing else changed. Joins are of rows in order throughout."""
    changed = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    if request.param != "none":
        name = f"{request.param}.enabled"
        changed[name] = str(spark.conf.get(name) != "true").lower()
    for name, value in changed.items():
        spark.conf.set(name, value)
    regarded = pyspark_version >= (4, 2) and spark.conf.get(f"{BY_KEY}.enabled") == "true"
    yield regarded and request.param in {"none", BY_KEY}
    for name in changed:
        spark.conf.unset(name)


@pytest.mark.spread(9)
@pytest.mark.parametrize("query", SMALL)
def test_rows_of_the_only_task_are_not_shuffled(
    query: str, spark: SparkSession, pyspark_version: tuple[int, int], by_key: bool, trades: Path
) -> None:
    """They have one key, the empty one, which Spark must not take for that of other rows."""
    limit_of_tasks, *shuffles = SMALL[query]
    sawlog.spark.register(spark)
    results = []
    for source in (COLUMNS, "deephaven_log"):
        reading = spark.read.format(source)
        reading.load(str(trades)).createOrReplaceTempView("few")
        reading.option("task_bytes", 300_000).load(str(trades)).createOrReplaceTempView("cut")
        frame = spark.sql(limit_of_tasks)
        if by_key and source == COLUMNS:
            assert plan(frame).count("Exchange ") == shuffles[-1 if pyspark_version > (4, 2) else 0]
        results.append(frame.collect() if query == "sort" else sorted(frame.collect(), key=str))
    assert results[0]
    assert results[0] == results[1]


def test_sizes_are_known(spark: SparkSession, trades: Path) -> None:
    columns, _ = read_both(spark, trades)
    size = columns._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert int(str(size)) == sum(path.stat().st_size for path in trades.rglob("*.bin.*"))
    assert "BroadcastHashJoin" in plan(spark.range(10_000_000).join(columns.select("n"), f.col("id") == f.col("n")))


def test_an_index_counts_rows(
    spark: SparkSession, trades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "STABLE_SECONDS", -60)
    sawlog.index(trades, to=tmp_path / "index", statistics=True)
    columns = spark.read.format(COLUMNS).option("index", str(tmp_path / "index")).load(str(trades))
    spark.conf.set("spark.sql.cbo.planStats.enabled", "true")  # else Spark 4.3 takes only the size
    try:
        assert int(str(columns._jdf.queryExecution().optimizedPlan().stats().rowCount().get())) == ROWS
    finally:
        spark.conf.unset("spark.sql.cbo.planStats.enabled")


def test_small_sources_are_broadcast_and_large_ones_are_not(
    spark: SparkSession, trades: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = read_both(spark, trades)
    large = spark.range(10_000_000)
    spark.conf.set("spark.sql.cbo.planStats.enabled", "true")  # else Spark 4.3 takes only the size
    try:
        stats = columns._jdf.queryExecution().optimizedPlan().stats()
        assert ROWS / 3 < int(str(stats.rowCount().get())) < ROWS * 3
        spark.read.format(COLUMNS).load(str(trades)).explain("cost")
    finally:
        spark.conf.unset("spark.sql.cbo.planStats.enabled")
    assert re.search(r"Statistics\(sizeInBytes=[\d.]+ [KM]iB, rowCount=[\d.E+]+\)", capsys.readouterr().out)
    assert "BroadcastHashJoin" in plan(large.join(columns, f.col("id") == f.col("n")))
    assert "SortMergeJoin" in plan(large.join(rows, f.col("id") == f.col("n")))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", 1000)
    try:
        assert "SortMergeJoin" in plan(large.join(columns, f.col("id") == f.col("n")))
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_both_sides_of_a_join_see_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    """A file that comes between their planning is seen by neither, and by the next query."""
    records = pa.table({"record": pa.array([b"one", b"two"], pa.binary())})
    sawlog.write(records, tmp_path / "000003.log", format="leveldb_log")
    frame = spark.read.format(COLUMNS).option("provenance", "true").load(str(tmp_path))
    other_frame = frame.where("_offset > 0").select("record", "_file")

    def sides() -> list[Any]:
        leaves: Any = (
            frame.select("record").join(other_frame, "record")._jdf.queryExecution().optimizedPlan().collectLeaves()
        )
        return [leaves.apply(index).scan() for index in range(2)]

    def files(side: Any) -> list[str]:
        planned = b"".join(bytes(partition.pickedPartition()) for partition in side.planInputPartitions())
        return [name for name in ("000003.log", "000004.log") if name.encode() in planned]

    first, second = sides()
    files_read = [files(first)]
    sawlog.write(records, tmp_path / "000004.log", format="leveldb_log")
    files_read += [files(side) for side in (second, *sides())]
    assert [len(file_set) for file_set in files_read] == [1, 1, 2, 2]


@pytest.mark.parametrize("name", [COLUMNS, "deephaven_log"], ids=["tasks", "the planner"])
@pytest.mark.nightly
def test_a_long_remote_log_is_cut(name: str, spark: SparkSession, s3: dict[str, Any], trades: Path) -> None:
    sawlog.spark.register(spark)
    place = f"s3://logs/spark/long/{name}.bin.1"
    (log,) = trades.glob("*.bin.*")
    file = Storage(s3).stage(place)
    file.write(log.read_bytes())
    Storage(s3).publish([file.finish()])
    kwargs = str(s3["client_kwargs"]).replace("'", '"')
    reading = spark.read.format(name).option("storage.key", s3["key"]).option("storage.secret", s3["secret"])
    reading = reading.option("storage.client_kwargs", kwargs).option("task_bytes", 300_000)
    columns = reading.load(place)
    assert columns.rdd.getNumPartitions() == -(-log.stat().st_size // 300_000)
    assert [row.n for row in columns.select("n").collect()] == list(range(ROWS))


def test_the_hidden_column_metadata_is_read(spark: SparkSession, trades: Path) -> None:
    columns, _ = read_both(spark, trades)
    (path,) = trades.rglob("*.bin.*")
    assert "_metadata" not in columns.columns
    (row,) = columns.select("_metadata").distinct().collect()
    assert row._metadata.file_path == f"file://{path}"
    assert row._metadata.file_size == path.stat().st_size
    assert row._metadata.file_modification_time.timestamp() == pytest.approx(path.stat().st_mtime, abs=1e-5)
    named = columns.where("_metadata.file_name LIKE '%.bin.%'").groupBy("_metadata.file_name").agg(f.sum("n"))
    assert named.collect() == [(path.name, ROWS * (ROWS - 1) // 2)]
    assert "ReadSchema: struct<n:bigint,_metadata:struct<file_name:string>>" in plan(named)


def test_directories_make_columns(spark: SparkSession, trades: Path, tmp_path: Path) -> None:
    (path,) = trades.rglob("*.bin.*")
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / path.name).write_bytes(path.read_bytes())
    frame = spark.read.format(COLUMNS).load(str(tmp_path))
    day_frame = frame.where("day = date'2026-01-02' AND n < 3").select("day", "n", "_metadata.file_path")
    assert [(str(row.day), row.n, Path(row.file_path).parent.name) for row in day_frame.collect()] == [
        ("2026-01-02", n, "day=2026-01-02") for n in range(3)
    ]
    assert "EqualTo(day," in plan(day_frame)
    none = frame.where("day = date'2026-01-03'")
    assert none.agg(f.count("n"), f.max("n")).collect() == [(0, None)], "of no task"
    assert none.groupBy("day").count().collect() == []
    assert frame.groupBy("day").count().orderBy("day").collect()[1]["count"] == ROWS


def test_damage_fails_or_is_dropped_by_mode(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PythonException, match=r"000003\.log: checksum_mismatch at byte 7\d{4} .*expected .*, found "):
        spark.read.format(COLUMNS).load(str(damaged)).count()
    with pytest.warns(sawlog.DamageWarning):
        intact = sawlog.read(damaged, on_damage="skip").num_rows
    assert spark.read.format(COLUMNS).option("mode", "DROPMALFORMED").load(str(damaged)).count() == intact


def test_nulls_where_the_schema_has_none(spark: SparkSession, trades: Path) -> None:
    reading = spark.read.format(COLUMNS).schema("n bigint NOT NULL, i int NOT NULL")
    assert reading.load(str(trades)).agg(f.sum("n")).collect() == [(ROWS * (ROWS - 1) // 2,)]
    with pytest.raises(PythonException, match="column 'i' holds nulls; its schema says NOT NULL"):
        reading.load(str(trades)).agg(f.sum("i")).collect()


@pytest.mark.usefixtures("plugins")
def test_nested_values_and_decimals(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("l", pa.list_(pa.list_(pa.int32()))),
            ("m", pa.map_(pa.string(), pa.float64())),
            ("s", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
            ("d", pa.decimal128(38, 10)),
            ("e", pa.decimal128(9, 2)),
            ("t", pa.timestamp("us")),
            ("z", pa.timestamp("us", "UTC")),
            ("y", pa.date32()),
            ("x", pa.binary()),
            ("f", pa.float32()),
            ("o", pa.int8()),
            ("h", pa.int16()),
        ]
    )
    when = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    full = {
        "l": [[1, None], None, []],
        "m": {"a": 1.5, "b": None},
        "s": {"a": 1, "b": {"c": "x"}},
        "d": Decimal("-12345678901234567890.0123456789"),
        "e": Decimal("1234567.89"),
        "t": when.replace(tzinfo=None),
        "z": when,
        "y": when.date(),
        "x": b"\0\xff",
        "f": 0.5,
        "o": -1,
        "h": 300,
    }
    rows = [full, dict.fromkeys(full), {**full, "l": [], "m": {}, "s": {"a": None, "b": None}}]
    path = tmp_path / "a.arrow"
    table = pa.Table.from_pylist(rows, schema)
    with pa.ipc.new_file(path, schema) as file:
        file.write_table(table, max_chunksize=1)
    sawlog.spark.register(spark)
    by_columns = spark.read.format(COLUMNS).option("format", "boxes").load(str(path))
    by_rows = spark.read.format("boxes").load(str(path))
    assert by_columns.schema == by_rows.schema
    assert by_columns.collect() == by_rows.collect()
    assert by_columns.select("s.b.c", "d").collect() == by_rows.select("s.b.c", "d").collect()
    assert "ReadSchema: struct<s:struct<a:bigint,b:struct<c:string>>>" in plan(by_columns.select("s.b.c"))
    assert by_columns.where("d < 0 AND y = date'2026-01-02'").count() == 2
    times = "z > timestamp'2026-01-02 03:04:05.678900Z' AND t <= timestamp_ntz'2026-01-02 03:04:05.678901'"
    assert by_columns.where(times).count() == 2
    assert by_columns.where(f"NOT ({times})").count() == 0


def test_a_table_in_the_catalog_is_columnar(spark: SparkSession, trades: Path) -> None:
    spark.sql(f"CREATE TABLE logged USING {COLUMNS} OPTIONS (path '{trades}', format 'deephaven_log') COMMENT 'all'")
    spark.sql(f"CREATE TABLE few (n bigint, s string) USING {COLUMNS} LOCATION '{trades}'")
    try:
        assert spark.sql("SELECT count(*), sum(n) FROM logged").collect() == [(ROWS, ROWS * (ROWS - 1) // 2)]
        assert spark.table("few").where("n < 3").select("s").collect() == [("s0",), ("s1",), ("s2",)]
        assert spark.table("logged").columns == [*"nibdst", "Date"]
    finally:
        spark.sql("DROP TABLE logged")
        spark.sql("DROP TABLE few")
    assert list(trades.rglob("*.bin.*")), "the logs are the table's no more than a Parquet file's are"


@pytest.mark.nightly
def test_what_spark_writes(spark: SparkSession, trades: Path, tmp_path: Path) -> None:
    columns, _ = read_both(spark, trades)
    written = columns.select("n").coalesce(1).write.format(COLUMNS).option("format", "deephaven_log").mode("append")
    written.save(str(tmp_path / "out"))
    frame = spark.read.format(COLUMNS).load(str(tmp_path / "out"))
    assert frame.agg(f.sum("n")).collect() == [(ROWS * (ROWS - 1) // 2,)]


@pytest.fixture
def stream(spark: SparkSession, trades: Path) -> DataFrame:
    return spark.readStream.format(COLUMNS).option("maxRowsPerTrigger", 8000).load(str(trades))


def test_a_stream_is_columnar(stream: DataFrame, spark: SparkSession, trades: Path, tmp_path: Path) -> None:
    writing = stream.writeStream.format("parquet").trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    query.awaitTermination()
    assert "ColumnarToRow" in query._jsq.explainInternal(False)
    assert [progress.numInputRows for progress in query.recentProgress] == [8000, 8000, 4000]
    assert {progress.sources[0].description for progress in query.recentProgress} == {f"sawlog deephaven_log {trades}"}
    result_frame = spark.read.parquet(str(tmp_path / "out"))
    assert result_frame.agg(f.sum("n"), f.count("i")).collect() == [(ROWS * (ROWS - 1) // 2, ROWS - (ROWS + 3) // 7)]


@pytest.mark.nightly
def test_a_query_goes_on_with_the_jar_and_without(
    spark: SparkSession, pyspark_version: tuple[int, int], tmp_path: Path
) -> None:
    """Offsets are the same: a checkpoint is one of either source."""
    if pyspark_version < (4, 2):
        pytest.skip("streams without the jar need PySpark 4.2")
    sawlog.spark.register(spark)
    schema = pa.schema([("n", pa.int64())])
    progress = []
    for number, source in enumerate(("deephaven_log", COLUMNS, "deephaven_log", COLUMNS)):
        with Logger(tmp_path / "logs", schema, namespace="M", table="T", internal_partition=f"p{number}") as logger:
            logger.write(pa.record_batch([pa.array(range(number * 100, number * 100 + 100))], schema=schema))
        rows = spark.readStream.format(source).option("format", "deephaven_log").load(str(tmp_path / "logs"))
        writing = rows.select("n").writeStream.trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
        running = query.start(str(tmp_path / "out"))
        running.awaitTermination()
        progress += [progress_entry.sources[0] for progress_entry in running.recentProgress]
        assert [progress_entry.numInputRows for progress_entry in running.recentProgress] == [100]
    values = spark.read.parquet(str(tmp_path / "out")).toArrow().column("n").to_pylist()
    assert sorted(values) == list(range(400))
    assert progress[1].metrics == {"bytesBehind": "0", "filesBehind": "0"}
    assert [source_progress.latestOffset for source_progress in progress] == [progress[0].latestOffset] * 4
    offset_lines = [
        (tmp_path / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[-1] for batch in range(4)
    ]
    assert [sorted(json.loads(offset_line)) for offset_line in offset_lines] == [
        sorted(json.loads(offset_lines[0]))
    ] * 4


def test_a_file_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="FileNotFoundError: /nowhere: no such file, directory or glob match"):
        spark.read.format(COLUMNS).load("/nowhere")
