from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.types import BinaryType, StructType

import sawlog
import sawlog.spark
from sawlog.spark import writer as module
from sawlog.spark.writer import SawlogWriter, make_writer
from sawlog.storage import Storage
from sawlog.storage.commit_log import CommitLog, LogRecord
from tests.support import ABSENT_PROCESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeSink = Callable[..., SawlogWriter]
RECORDS = StructType().add("record", BinaryType())


def save_log(frame: DataFrame, target: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("sawlog").options(**{"format": "leveldb_log", **options}).mode(mode).save(str(target))


def make_records(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("CAST(CAST(id AS string) AS binary) AS record")


def content(target: Path) -> list[bytes]:
    return sorted(sawlog.read(target)["record"].to_pylist())


def decimal(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


def listing(target: Path) -> list[str]:
    return sorted(os.listdir(target)) if target.exists() else []


def test_a_log_comes_back_byte_for_byte(spark: SparkSession, database: Path, tmp_path: Path) -> None:
    frame = spark.read.format("sawlog").load(str(database))
    save_log(frame.coalesce(1), tmp_path / "out")
    (written,) = (tmp_path / "out").iterdir()
    assert written.read_bytes() == (database / "000003.log").read_bytes()


@pytest.mark.nightly
def test_a_table_survives_a_way_through_parquet(spark: SparkSession, database: Path, tmp_path: Path) -> None:
    frame = spark.read.format("sawlog").load(str(database))
    frame.write.parquet(str(tmp_path / "parquet"))
    save_log(spark.read.parquet(str(tmp_path / "parquet")), tmp_path / "out")
    assert content(tmp_path / "out") == content(database)


def test_one_file_per_task_with_rows(spark: SparkSession, tmp_path: Path) -> None:
    save_log(make_records(spark, 30, 4).where("record < '2'"), tmp_path)
    names = listing(tmp_path)
    assert [name.split("-")[1] for name in names] == ["00000", "00001", "00002"]
    assert len({name.split("-")[2] for name in names}) == 1
    assert all(name.endswith(".log") for name in names)
    assert len(content(tmp_path)) == 12


def test_append_and_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    save_log(make_records(spark, 10, 2), tmp_path)
    save_log(make_records(spark, 10, 2), tmp_path)
    assert content(tmp_path) == sorted(2 * decimal(10))
    (tmp_path / "README.txt").write_text("not a log")
    save_log(make_records(spark, 5, 1), tmp_path, "overwrite")
    assert content(tmp_path) == decimal(5)
    assert "README.txt" in listing(tmp_path)


def test_overwriting_what_is_being_read(spark: SparkSession, tmp_path: Path) -> None:
    save_log(make_records(spark, 10, 2), tmp_path)
    save_log(spark.read.format("sawlog").load(str(tmp_path)).where("record >= '5'"), tmp_path, "overwrite")
    assert content(tmp_path) == [b"5", b"6", b"7", b"8", b"9"]


def test_no_rows_leave_an_empty_result(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    save_log(make_records(spark, 0, 2), target)
    assert len(listing(target)) == 1
    assert spark.read.format("sawlog").load(str(target)).count() == 0
    save_log(make_records(spark, 3, 1), target)
    save_log(make_records(spark, 0, 1), target)
    assert len(listing(target)) == 2
    save_log(make_records(spark, 0, 1), target, "overwrite")
    assert len(listing(target)) == 1
    assert content(target) == []


@pytest.mark.spread(2)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    save_log(make_records(spark, 10, 2), tmp_path)
    before = listing(tmp_path)
    broken = spark.range(0, 4000, 1, 4).selectExpr("IF(id = 3999, NULL, CAST(CAST(id AS string) AS binary)) AS record")
    with pytest.raises(PythonException, match="SchemaError: column 'record', row 999: a log cannot hold null"):
        save_log(broken, tmp_path, mode)
    assert listing(tmp_path) == before
    assert content(tmp_path) == decimal(10)


@pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
def test_what_a_dead_job_left_is_not_in_the_way(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks that would write next to segments see those that count, and not those of a commit that was cut off."""
    rows = spark.range(3).selectExpr("id AS pk", "7L AS _segment")
    options = {"format": "milvus_binlog", "primary_key": "pk"}
    save_log(rows, tmp_path / "out", **options)
    files_left = [file.path.removeprefix(f"{tmp_path}/out/") for file in Storage().find(str(tmp_path / "out"))]
    log = CommitLog(Storage().directories, str(tmp_path / "out"))
    number = (log.read_last() or LogRecord()).number + 1
    assert log.append(LogRecord(number, state="publishing", job="dead", owner=ABSENT_PROCESS, new=tuple(files_left)))
    save_log(rows, tmp_path / "out", **options)
    assert sawlog.open(tmp_path / "out").count_rows() == 3
    with pytest.raises(PythonException, match="exists; write with another"):
        save_log(rows, tmp_path / "out", **options)


def test_options_reach_the_format(spark: SparkSession, tmp_path: Path) -> None:
    sawlog.spark.register(spark)
    writing = (
        make_records(spark, 10, 1).write.format("leveldb_log").option("dialect", "rocksdb").option("log_number", 7)
    )
    writing.mode("append").save(str(tmp_path))
    (path,) = tmp_path.iterdir()
    assert sawlog.open(path).info()["dialect"] == "rocksdb"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"format": "leveldb_log", "dialekt": "x"},
            "OptionError: writing leveldb_log: unknown option 'dialekt'; did you mean 'dialect'",
        ),
        ({"format": "leveldb_log", "dialect": "x"}, "OptionError: .*dialect='x': expected one of leveldb, rocksdb"),
        ({"format": "nonsense"}, "OptionError: unknown format 'nonsense'"),
        ({}, "OptionError: writing with Spark: option 'format' is required"),
    ],
)
def test_mistakes_get_one_clear_message(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        make_records(spark, 1, 1).write.format("sawlog").options(**options).mode("append").save(str(tmp_path))
    assert listing(tmp_path) == []


def test_columns_are_refused_before_any_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="SchemaError: a leveldb_log holds one column, 'record'; found: id"):
        save_log(spark.range(10), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(AnalysisException, match=r"OptionError: .*/out: is a file; a Spark job writes a directory"):
        save_log(make_records(spark, 1, 1), tmp_path / "out")


def test_other_save_modes_are_sparks_to_refuse(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        save_log(make_records(spark, 1, 1), tmp_path, "error")


@pytest.mark.nightly
def test_the_save_modes_that_spark_refuses_are_an_option(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for mode in ("errorifexists", "ignore"):
        save_log(make_records(spark, 3, 2), target / mode, saveMode=mode)
        assert content(target / mode) == decimal(3)
    save_log(make_records(spark, 5, 1), target / "ignore", saveMode="ignore")
    assert content(target / "ignore") == decimal(3)
    with pytest.raises(AnalysisException, match=r"OptionError: .*there are files already, .* 'errorifexists'"):
        save_log(make_records(spark, 5, 1), target / "errorifexists", saveMode="ErrorIfExists")
    with pytest.raises(AnalysisException, match="OptionError: option saveMode='ignore' goes with mode 'append'"):
        save_log(make_records(spark, 5, 1), target / "ignore", "overwrite", saveMode="ignore")
    assert content(target / "ignore") == content(target / "errorifexists") == decimal(3)
    assert listing(target) == ["errorifexists", "ignore"]


def test_files_that_came_while_a_job_ran_stay(tmp_path: Path, sinks: MakeSink) -> None:
    for mode in ("errorifexists", "ignore"):
        sink, other_sink = sinks(savemode=mode), sinks()
        message = sink.write(iter([batch(b"late")]))
        other_sink.commit([other_sink.write(iter([batch(b"first")]))])
        if mode == "ignore":
            sink.commit([message])
        else:
            with pytest.raises(sawlog.OptionError, match="there are files already"):
                sink.commit([message])
            sink.abort([message])
        assert content(tmp_path / "out") == [b"first"]
        assert listing(tmp_path) == ["out"]
        shutil.rmtree(tmp_path / "out")


@pytest.mark.nightly
def test_directories_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark's own sink writes with `partitionBy`, names of directories included."""
    values = ["(1, 'a', DATE '2024-01-02', 'r1')", "(1, 'b/=%', NULL, 'r2')", "(2, '', DATE '2024-01-03', 'r3')"]
    rows = spark.sql(f"SELECT * FROM VALUES {', '.join(values)}, (NULL, 'é [x]', NULL, 'r4') AS t(n, s, d, record)")
    rows = rows.withColumn("record", rows["record"].cast("binary"))
    save_log(rows, tmp_path / "ours", partitionBy="n,s,d")
    rows.write.partitionBy("n", "s", "d").parquet(str(tmp_path / "theirs"))
    ours, theirs = (
        {path.parent.relative_to(root).as_posix() for path in root.rglob("*/*/*/part-*")}
        for root in (tmp_path / "ours", tmp_path / "theirs")
    )
    assert ours == theirs
    frame = spark.read.format("sawlog").load(str(tmp_path / "ours")).select("n", "s", "d", "record")
    expected = spark.read.parquet(str(tmp_path / "theirs")).select("n", "s", "d", "record")
    assert [field.dataType for field in frame.schema] == [field.dataType for field in expected.schema]
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, expected.collect()))
    first_rows = rows.where("n = 1")
    save_log(first_rows, tmp_path / "ours", "overwrite", partitionBy="n,s,d", partitionOverwriteMode="dynamic")
    assert len(content(tmp_path / "ours")) == 4
    save_log(first_rows, tmp_path / "ours", "overwrite", partitionBy="n,s,d")
    assert content(tmp_path / "ours") == [b"r1", b"r2"]
    for options, message in (
        ({"partitionBy": "m"}, "OptionError: option partitionBy: no column 'm'"),
        ({"partitionBy": "n,n"}, "OptionError: option partitionBy: expected different columns"),
        ({"partitionBy": "record"}, "SchemaError: option partitionBy: column 'record' is binary; cast it"),
        ({"partitionBy": "n", "format": "milvus_binlog"}, "milvus_binlog has partitions of its own"),
    ):
        with pytest.raises(AnalysisException, match=message):
            save_log(rows, tmp_path / "no", **options)
    assert listing(tmp_path) == ["ours", "theirs"]


@pytest.mark.nightly
def test_on_an_object_store(spark: SparkSession, s3: dict[str, Any]) -> None:
    kwargs = str(s3["client_kwargs"]).replace("'", '"')
    options = {"storage.key": "k", "storage.secret": "s", "storage.client_kwargs": kwargs}
    target = "s3://logs/spark/write"
    for count in (10, 4):
        writing = (
            make_records(spark, count, 2).write.format("sawlog").option("format", "leveldb_log").options(**options)
        )
        writing.mode("overwrite").save(target)
        table = sawlog.read(target, storage_options=s3)
        assert sorted(table["record"].to_pylist()) == decimal(count)
    assert Storage(s3).directories.find_staged_paths(target, "") == []


class Task:
    """What a task of Spark says of itself."""

    @classmethod
    def get(cls) -> Task:
        return cls()

    def partitionId(self) -> int:
        return 3


@pytest.fixture
def sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSink:
    monkeypatch.setattr("sawlog.spark.tasks.TaskContext", Task)
    monkeypatch.setattr(module, "LINGER_SECONDS", 0)
    return lambda **options: make_writer(
        {"path": str(tmp_path / "out"), **options}, "leveldb_log", RECORDS, overwrite=False
    )


@pytest.fixture
def sink(sinks: MakeSink) -> SawlogWriter:
    return sinks()


def batch(*records: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(records, pa.binary())], ["record"])


def test_nothing_is_visible_before_commit(sink: SawlogWriter, tmp_path: Path) -> None:
    message = sink.write(iter([batch(b"a")]))
    assert listing(tmp_path / "out") == []
    assert all(name.startswith(".out.") for name in listing(tmp_path))
    sink.commit([message])
    assert [name[:11] for name in listing(tmp_path / "out")] == ["part-00003-"]
    assert listing(tmp_path) == ["out"]


def test_abort_finds_what_killed_tasks_left(sink: SawlogWriter, tmp_path: Path) -> None:
    message = sink.write(iter([batch(b"a")]))
    killed = sink.begin(sink.job, 4)
    killed.write(batch(b"b"))
    killed.finish()
    assert len(listing(Path(sink.job.staging))) == 2
    sink.abort([message, None])
    assert listing(tmp_path) == []


def test_commit_takes_one_attempt_per_task(sink: SawlogWriter, tmp_path: Path) -> None:
    first, second = sink.write(iter([batch(b"a")])), sink.write(iter([batch(b"a")]))
    assert first.staged[0].final == second.staged[0].final
    sink.commit([second])
    assert len(listing(tmp_path / "out")) == 1
    assert content(tmp_path / "out") == [b"a"]


def test_a_failing_task_discards_its_file(sink: SawlogWriter, tmp_path: Path) -> None:
    with pytest.raises(sawlog.SchemaError, match="row 1"):
        sink.write(iter([batch(b"a"), pa.record_batch([pa.array([None], pa.binary())], ["record"])]))
    assert listing(tmp_path / "out") == []
