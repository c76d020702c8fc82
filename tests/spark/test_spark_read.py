from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import sawlog
import sawlog.spark
from sawlog.errors import OptionError
from sawlog.spark import reader as module
from sawlog.spark.reader import make_reader, read_schema
from sawlog.storage import Storage
from tests.support import write_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def collect(frame: DataFrame) -> pa.Table:
    return frame.toArrow().combine_chunks().replace_schema_metadata(None)


def read_expected(*args: Any, **kwargs: Any) -> pa.Table:
    return sawlog.read(*args, **kwargs).combine_chunks()


def write_logs(directory: Path, count: int) -> None:
    directory.mkdir()
    for number in range(count):
        records = [b"%d-%d" % (number, i) for i in range(number % 4)]
        write_records(directory / f"{number:06}.log", records)


def test_nothing_has_to_be_registered(spark: SparkSession, database: Path) -> None:
    frame = spark.read.format("sawlog").load(str(database))
    assert frame.schema.simpleString() == "struct<record:binary>"
    assert not frame.schema["record"].nullable
    assert collect(frame).equals(read_expected(database))


def test_short_name_in_sql(spark: SparkSession, database: Path) -> None:
    assert "leveldb_log" in sawlog.spark.register(spark)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING leveldb_log OPTIONS (path '{database}', provenance 'true')")
    table = read_expected(database, provenance=True)
    assert collect(spark.sql("SELECT record, _file, _offset FROM v")).equals(table)


def test_a_table_is_refused_with_the_way_out(spark: SparkSession, database: Path) -> None:
    sawlog.spark.register(spark)
    with pytest.raises(AnalysisException, match=r"OptionError: .* use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused USING leveldb_log OPTIONS (path '{database}')")


@pytest.mark.usefixtures("plugins")
def test_a_third_party_format_has_a_short_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.lines"
    path.write_bytes(b"#lines\none\ntwo\n")
    assert "lines" in sawlog.spark.register(spark)
    frame = spark.read.format("lines").option("upper", "true").load(str(path))
    assert collect(frame).to_pydict() == {"line": ["ONE", "TWO"]}
    recognised = spark.read.format("sawlog").load(str(path))
    assert collect(recognised).to_pydict() == {"line": ["one", "two"]}
    target = tmp_path / "out"
    frame.write.format("lines").mode("append").save(str(target))
    assert collect(spark.read.format("lines").load(str(target))).to_pydict() == {"line": ["ONE", "TWO"]}


@pytest.mark.parametrize("task_bytes", [1, 40_000, 100_000])
def test_a_file_is_split_over_tasks(spark: SparkSession, database: Path, task_bytes: int) -> None:
    reading = spark.read.format("sawlog").option("provenance", "true").option("task_bytes", task_bytes)
    frame = reading.load(str(database))
    blocks = -(-(database / "000003.log").stat().st_size // 32768)
    per_task = -(-task_bytes // 32768)
    assert frame.rdd.getNumPartitions() == -(-blocks // per_task)
    assert collect(frame).equals(read_expected(database, provenance=True))


def test_small_files_share_a_task(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_logs(logs, 50)
    frame = spark.read.format("sawlog").load(str(logs))
    assert frame.rdd.getNumPartitions() == 1
    assert collect(frame).equals(read_expected(logs))


def test_globs_and_lists_of_paths(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs, all"
    write_logs(logs, 12)
    reading = spark.read.format("sawlog")
    assert collect(reading.load(f"{logs}/00000[2-5].log")).equals(read_expected(f"{logs}/00000[2-5].log"))
    pair = [f"{logs}/000007.log", f"file:{logs}/000003.log"]
    assert collect(reading.load(pair)).equals(read_expected(pair))


def test_a_relative_path_means_the_drivers_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_logs(tmp_path / "logs", 2)
    monkeypatch.chdir(tmp_path)
    (partition,) = make_reader({"path": "logs"}, None, read_schema({"path": "logs"}, None)).partitions()
    assert [fragment.path for fragment in partition.value.iterate_fragments()] == [
        f"{tmp_path}/logs/00000{n}.log" for n in (0, 1)
    ]


def test_an_empty_log_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "000001.log").touch()
    frame = spark.read.format("sawlog").load(str(tmp_path))
    assert frame.count() == 0
    assert frame.columns == ["record"]


def test_sparks_stand_in_for_no_partitions_has_no_rows(database: Path) -> None:
    options = {"path": str(database)}
    assert list(make_reader(options, None, read_schema(options, None)).read(InputPartition(None))) == []


def test_damage_fails_unless_told_otherwise(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PythonException, match=r"000003\.log: checksum_mismatch at byte 7\d{4} .*expected .*, found "):
        spark.read.format("sawlog").load(str(damaged)).count()
    with pytest.warns(sawlog.DamageWarning):
        table = read_expected(damaged, on_damage="skip")
    assert 0 < table.num_rows < 3000
    for task_bytes in (1, 1 << 20):
        reading = spark.read.format("sawlog").option("mode", "dropMalformed").option("task_bytes", task_bytes)
        assert collect(reading.load(str(damaged))).equals(table)


def test_damage_is_a_view(spark: SparkSession, damaged: Path) -> None:
    frame = spark.read.format("sawlog").option("view", "damage").load(str(damaged))
    table = read_expected(damaged, view="damage")
    assert "checksum_mismatch" in table["kind"].to_pylist()
    assert collect(frame).equals(table)


@pytest.mark.parametrize("task_bytes", [40_000, 1 << 27])
def test_damaged_ranges_have_rows_where_the_mode_is_permissive(damaged: Path, task_bytes: int) -> None:
    options = {"path": str(damaged), "mode": "permissive", "task_bytes": str(task_bytes)}
    schema = read_schema(options, None)
    assert [(field.name, field.nullable) for field in schema] == [("record", True), ("_corrupt_record", True)]

    def read(schema_read: Any, **settings: str) -> pa.Table:
        reader = make_reader({**options, **settings}, None, schema_read)
        return pa.Table.from_batches(batch for partition in reader.partitions() for batch in reader.read(partition))

    table = read(schema)
    rescued = table.filter(pc.is_valid(table["_corrupt_record"]))
    assert rescued.num_rows > 0
    assert rescued["record"].null_count == rescued.num_rows
    data = damaged.read_bytes()
    damage = sawlog.read(damaged, view="damage").drop_columns(["dropped"]).to_pylist()
    texts = [data[row["offset"] : row["offset"] + row["length"]] for row in damage]
    assert rescued["_corrupt_record"].to_pylist() == [
        {**damage_entry, "bytes": text} for damage_entry, text in zip(damage, texts, strict=True)
    ]
    with pytest.warns(sawlog.DamageWarning):
        intact = sawlog.read(damaged, on_damage="skip")["record"]
    assert table.filter(pc.is_null(table["_corrupt_record"]))["record"].equals(intact)

    assert read(StructType([schema["_corrupt_record"]])).num_rows == table.num_rows
    assert read(StructType([schema["record"]]))["record"].equals(intact), "without the column, they are left out"
    named = read_schema({**options, "columnNameOfCorruptRecord".lower(): "bad"}, None)
    assert named.names == ["record", "bad"]
    with pytest.raises(OptionError, match=r"columnNameOfCorruptRecord='record': the data has such a column"):
        read(schema, columnnameofcorruptrecord="record")


def test_rescued_rows_on_spark(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    place = tmp_path / "in" / "day=3"
    place.mkdir(parents=True)
    shutil.copy(damaged, place)
    frame = spark.read.format("sawlog").option("mode", "PERMISSIVE").load(str(tmp_path / "in"))
    count = sawlog.read(damaged, view="damage").num_rows
    with pytest.warns(sawlog.DamageWarning):
        intact = sawlog.read(damaged, on_damage="skip").num_rows
    assert frame.columns == ["record", "day", "_corrupt_record"]
    assert frame.count() == len(frame.collect()) == intact + count
    bad = frame.where("_corrupt_record IS NOT NULL")
    assert bad.count() == count
    kinds = bad.selectExpr("_corrupt_record.kind", "length(_corrupt_record.bytes) > 0", "record IS NULL", "day")
    expected_kinds = ("checksum_mismatch", "missing_start")
    assert {tuple(row) for row in kinds.collect()} == {(kind, True, True, 3) for kind in expected_kinds}
    assert frame.where("record IS NOT NULL").count() == intact
    assert frame.where("day = 3").count() == intact + count


def test_what_was_left_out_is_logged_by_the_worker(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    damaged.write_bytes(damaged.read_bytes()[:-3])
    options = {"path": str(damaged), "mode": "DROPMALFORMED"}
    reader = make_reader(options, None, read_schema(options, None))
    with caplog.at_level(logging.WARNING, logger="sawlog"):
        for partition in reader.partitions():
            list(reader.read(partition))
    assert "skipped" in caplog.text
    assert "torn tail" in caplog.text


def test_garbage_collection_forgets_the_kernels_once(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(module.gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(module.gc, "freeze", lambda: calls.append("freeze"))
    module.freeze_loaded.cache_clear()
    reader = make_reader({"path": str(database), "task_bytes": "1"}, None, read_schema({"path": str(database)}, None))
    for partition in reader.partitions():
        list(reader.read(partition))
    assert calls == ["collect", "freeze"]


def test_columns_are_chosen_by_schema(spark: SparkSession, database: Path) -> None:
    reading = spark.read.format("sawlog").schema("_offset bigint, record binary")
    assert collect(reading.load(str(database))).equals(
        read_expected(database, columns=["_offset", "record"]).cast(
            pa.schema([("_offset", pa.int64()), ("record", pa.binary())])
        )
    )


def test_columns_are_chosen_by_option(spark: SparkSession, database: Path) -> None:
    reading = spark.read.format("sawlog").option("columns", "_offset, _file")
    assert collect(reading.load(str(database))).equals(read_expected(database, columns=["_offset", "_file"]))
    reading_schema = reading.schema("_offset bigint, _file string")
    assert reading_schema.load(str(database)).columns == ["_offset", "_file"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "payload binary",
            "view 'rows' of leveldb_log: no column 'payload'; columns: record binary, _file string, _offset bigint",
        ),
        ("Record binary", "no column 'Record'; did you mean 'record'"),
        ("record string", "column 'record' is binary; the schema given to Spark says string"),
    ],
)
def test_a_schema_that_does_not_fit(spark: SparkSession, database: Path, schema: str, message: str) -> None:
    with pytest.raises(AnalysisException, match=f"SchemaError: .*{message}"):
        spark.read.format("sawlog").schema(schema).load(str(database)).count()


def test_schema_and_columns_must_agree(spark: SparkSession, database: Path) -> None:
    reading = spark.read.format("sawlog").schema("record binary").option("columns", "_offset")
    with pytest.raises(AnalysisException, match=r"OptionError: option columns='_offset'.* give one of the two"):
        reading.load(str(database)).count()


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("sawlog", {"path": "/nowhere"}, "FileNotFoundError: /nowhere: no such file, directory or glob match"),
        ("sawlog", {"format": "nonsense"}, "OptionError: unknown format 'nonsense'; known formats: .*leveldb_log"),
        ("sawlog", {"viev": "rows"}, "OptionError: reading leveldb_log: unknown option 'viev'; .*view"),
        (
            "leveldb_log",
            {"viev": "rows"},
            "OptionError: reading leveldb_log: unknown option 'viev'; .*task_bytes, .*dialect",
        ),
        ("leveldb_log", {"view": "none"}, "OptionError: leveldb_log has no view 'none'; views: rows"),
        ("leveldb_log", {"format": "lines"}, "OptionError: .*format='lines' contradicts the source 'leveldb_log'"),
        ("leveldb_log", {"verify_checksums": "maybe"}, "OptionError: .*verify_checksums='maybe': expected bool"),
    ],
)
def test_mistakes_get_one_clear_message(
    spark: SparkSession, database: Path, format: str, options: dict[str, str], message: str
) -> None:
    sawlog.spark.register(spark)
    with pytest.raises(AnalysisException, match=message):
        spark.read.format(format).options(**{"path": str(database), **options}).load()


def test_a_file_of_no_format(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"nothing")
    with pytest.raises(AnalysisException, match=r"FormatError: .*a\.txt: not recognised \(first bytes: 6e 6f"):
        spark.read.format("sawlog").load(str(path))


@pytest.mark.nightly
def test_storage_options_reach_the_executors(spark: SparkSession, s3: dict[str, Any], database: Path) -> None:
    place = "s3://logs/spark/read/000003.log"
    file = Storage(s3).stage(place)
    file.write((database / "000003.log").read_bytes())
    Storage(s3).publish([file.finish()])
    reading = (
        spark.read.format("sawlog")
        .option("storage.key", s3["key"])
        .option("storage.secret", s3["secret"])
        .option("storage.client_kwargs", str(s3["client_kwargs"]).replace("'", '"'))
        .option("task_bytes", 200_000)
    )
    assert collect(reading.load(place.replace("s3:", "s3a:"))).equals(read_expected(database))


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=["true", "false"])
def allowed(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Both settings of Spark's own switch; whether pushing down is allowed."""
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.unset(PUSHDOWN)


@pytest.mark.nightly
def test_pushdown_reads_less(
    spark: SparkSession, pyspark_version: tuple[int, int], database: Path, allowed: bool, with_jar: bool
) -> None:
    reading = spark.read.format("sawlog").options(provenance="true", pushdown="true", task_bytes="32768")
    filtered = reading.load(str(database)).where("_offset >= 70000 AND _offset < 90000 AND record IS NOT NULL")
    filters = [("_offset", ">=", 70_000), ("_offset", "<", 90_000)]
    assert collect(filtered).equals(read_expected(database, provenance=True, filters=filters))
    frame = reading.load(str(database))
    assert frame.count() == 3000
    pruned = with_jar or (allowed and pyspark_version >= (4, 1))
    assert (filtered.rdd.getNumPartitions() < frame.rdd.getNumPartitions()) == pruned


@pytest.mark.nightly
def test_a_data_frame_can_be_filtered_in_two_ways(spark: SparkSession, database: Path, allowed: bool) -> None:
    frame = spark.read.format("sawlog").options(provenance="true", task_bytes="131072").load(str(database))
    head, tail = frame.where("_offset < 50000"), frame.where("_offset >= 50000")
    assert head.count() + tail.count() == 3000
    assert head.union(tail).count() == 3000
    assert frame.count() == 3000


def test_filters_are_taken_by_option(spark: SparkSession, database: Path) -> None:
    reading = spark.read.format("sawlog").option("task_bytes", 32768)
    reading = reading.option("columns", "record")
    frame = reading.option("filters", '[["_offset", ">=", 70000], ["_offset", "<", 90000]]').load(str(database))
    assert collect(frame).equals(read_expected(database, filters=[("_offset", ">=", 70_000), ("_offset", "<", 90_000)]))
    assert frame.rdd.getNumPartitions() < reading.option("filters", "[]").load(str(database)).rdd.getNumPartitions()


def test_the_discovered_module_is_light() -> None:
    script = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_sawlog;"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pyspark_sawlog']"


def test_the_discovered_module_never_fails() -> None:
    script = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_sawlog"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_lost_file_is_named(spark: SparkSession, database: Path, tmp_path: Path) -> None:
    path = tmp_path / "000003.log"
    shutil.copy(database / "000003.log", path)
    frame = spark.read.format("sawlog").load(str(path))
    path.unlink()
    with pytest.raises(AnalysisException, match=r"FileNotFoundError: .*000003\.log: no such file"):
        frame.count()


def test_streams_are_refused_where_pyspark_is_too_old(monkeypatch: pytest.MonkeyPatch, database: Path) -> None:
    import pyspark_sawlog
    import sawlog.spark.stream_reader

    # It is imported once more, and what other tests have of it stays: among the modules, and in the package.
    monkeypatch.setattr(sawlog.spark, "stream_reader", sawlog.spark.stream_reader)
    monkeypatch.delitem(sys.modules, "sawlog.spark.stream_reader")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    source = pyspark_sawlog.DefaultSource({"path": str(database)})
    reader = source.streamReader(read_schema({"path": str(database)}, None))
    with pytest.raises(OptionError, match=r"streams need PySpark 4\.2 or later, or the jar; found "):
        reader.initialOffset()
    with pytest.raises(OptionError, match=r"streams need PySpark 4\.2 or later, or the jar; found "):
        reader.latestOffset()  # which 4.0 asks for first
    import pyspark.sql.datasource

    monkeypatch.delattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter", raising=False)
    with pytest.raises(OptionError, match=r"streams into sawlog need PySpark 4\.2 or later; found .* foreachBatch"):
        source.streamWriter(StructType().add("record", "binary"), overwrite=False)


@pytest.mark.nightly
def test_both_sides_of_a_join_see_the_same_files(
    spark: SparkSession, tmp_path: Path, pyspark_version: tuple[int, int], with_jar: bool
) -> None:
    """While files come all the time: Spark has the sides planned at the same time."""
    if pyspark_version < (4, 1) and not with_jar:
        pytest.skip("Spark 4.0 plans Python sources again wherever a query reads them")
    write_logs(tmp_path / "logs", 3)
    data = (tmp_path / "logs" / "000002.log").read_bytes()
    ended = threading.Event()

    def keep_coming() -> None:
        for number in range(3, 1000):
            (tmp_path / "staged").write_bytes(data)
            (tmp_path / "staged").rename(tmp_path / "logs" / f"{number:06}.log")
            if ended.wait(0.02):
                return

    row_counts = []
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(keep_coming)
        try:
            for _ in range(2):
                frame = spark.read.format("sawlog").option("provenance", "true").load(str(tmp_path / "logs"))
                all_counts, later_counts = (
                    frame.groupBy("_file").count(),
                    frame.where("_offset > 0").groupBy("_file").count(),
                )
                table = all_counts.join(later_counts.withColumnRenamed("count", "others"), "_file", "full").toArrow()
                assert table["others"].null_count == 1, "the file of one record"
                assert table["count"].null_count == 0
                row_counts.append(table.num_rows)
        finally:
            ended.set()
        coming.result()
    assert row_counts == sorted(row_counts), "each query sees what has come"


def test_what_a_frame_reads_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whichever of Spark's processes is the first that is asked."""
    monkeypatch.setattr(module, "KEEPS_PLANS", True)
    write_logs(tmp_path / "logs", 3)
    options = {"path": str(tmp_path / "logs")}
    schema = read_schema(options, None)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},elsewhere")

    def files(loaded: str) -> int:
        planned = make_reader(options, None, schema, loaded).partitions()
        return len({fragment.path for partition in planned for fragment in partition.value.iterate_fragments()})

    assert files("a") == 3
    shutil.copy(tmp_path / "logs" / "000002.log", tmp_path / "logs" / "000003.log")
    assert (files("a"), files("b"), files("")) == (3, 4, 4)
    assert len(list(tmp_path.glob("sawlog-plan-*"))) == 2
    monkeypatch.setattr(module, "SAME_QUERY_SECONDS", -1.0)
    assert files("c") == 4
    assert [path.name for path in tmp_path.glob("sawlog-plan-*")] == ["sawlog-plan-c"], "they do not pile up"
