"""Tables in Spark's catalog: made, filled and changed with the jar; without it, refused in one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import functions as f

import sawlog
import sawlog.spark
from sawlog.spark.errors import list_spark_errors
from tests.spark.conftest import COLUMNS
from tests.support import write_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


@dataclass(frozen=True)
class Kind:
    """A table of one format: its columns, its options, and expressions of a row, which has the number `id`."""

    columns: str
    row: str
    options: dict[str, str] = field(default_factory=dict)

    def clause(self, format: str) -> str:
        """What CREATE TABLE says of it."""
        options = {"format": format, **self.options}
        return f"USING {COLUMNS} OPTIONS ({', '.join(f'{name} {value!r}' for name, value in options.items())})"


KINDS = {
    "leveldb_log": Kind("record BINARY", "CAST(CAST(id AS STRING) AS BINARY)", {"verify_checksums": "true"}),
    "leveldb_table": Kind(
        "key BINARY, value BINARY, sequence BIGINT, operation STRING",
        "CAST(CAST(100 + id AS STRING) AS BINARY), X'01', 100 - id, 'put'",
        {"restart_interval": "4"},
    ),
    "deephaven_log": Kind(
        "at TIMESTAMP, n INT", "timestamp_millis(id), CAST(id AS INT)", {"timestamp_columns": "at=us"}
    ),
    "deephaven_table": Kind("n BIGINT, s STRING", "id, CAST(id AS STRING)", {"compact_header": "true"}),
    "filodb_record": Kind(
        "timestamp TIMESTAMP, value DOUBLE, _metric_ STRING, tags MAP<STRING, STRING>",
        "timestamp_millis(id), 1.0D * id, 'm', map('_ws_', 'w', '_ns_', 'n')",
        {"table": "gauge"},
    ),
    "milvus_binlog": Kind("`100` BIGINT, `101` DOUBLE", "id, 2.0D * id", {"primary_key": "100"}),
}
"""All formats that are written. Some options are for reading only, some for writing only."""


@pytest.fixture(autouse=True)
def no_tables(spark: SparkSession) -> Iterator[None]:
    yield
    for row in spark.sql("SHOW TABLES").collect():
        spark.sql(f"DROP {'VIEW' if row['isTemporary'] else 'TABLE'} IF EXISTS {row['tableName']}")
    warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    shutil.rmtree(warehouse, ignore_errors=True)


def count(spark: SparkSession, table: str) -> int:
    return spark.table(table).count()


@pytest.mark.parametrize("format", KINDS)
def test_tables_of_every_format_are_filled_and_overwritten(spark: SparkSession, format: str, tmp_path: Path) -> None:
    kind = KINDS[format]

    def rows(first: int, end: int) -> str:
        return f"SELECT {kind.row} FROM range({first}, {end}, 1, 1)"

    spark.sql(f"CREATE TABLE t ({kind.columns}) {kind.clause(format)} LOCATION '{tmp_path / 't'}'")
    assert spark.sql("SELECT * FROM t CROSS JOIN t AS other").collect() == []
    spark.sql(f"INSERT INTO t {rows(0, 3)}")
    filled = sorted(map(str, spark.table("t").collect()))
    assert filled == sorted(map(str, spark.sql(rows(0, 3)).toDF(*spark.table("t").columns).collect()))
    spark.sql(f"INSERT OVERWRITE t {rows(3, 5)}")
    overwritten = sorted(map(str, spark.table("t").collect()))
    assert overwritten == sorted(map(str, spark.sql(rows(3, 5)).toDF(*spark.table("t").columns).collect()))


def frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).selectExpr("id AS n", "CAST(id AS STRING) AS s")


def test_every_way_into_a_table_writes_rows(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE t {KINDS['deephaven_table'].clause('deephaven_table')} AS SELECT 7L AS n, 'x' AS s")
    assert spark.table("t").collect() == [(7, "x")]
    frame(spark, 2).write.insertInto("t")
    frame(spark, 3).writeTo("t").append()
    frame(spark, 4).select("s", "n").write.format(COLUMNS).mode("append").saveAsTable("t")
    assert spark.table("t").agg(f.count("*"), f.sum("n")).collect() == [(10, 17)]
    frame(spark, 5).write.insertInto("t", overwrite=True)
    assert count(spark, "t") == 5
    frame(spark, 6).writeTo("t").overwrite(f.lit(True))
    assert count(spark, "t") == 6
    spark.sql("INSERT OVERWRITE t SELECT n + 1, s FROM t")
    assert spark.table("t").agg(f.sum("n")).collect() == [(21,)]
    saving = frame(spark, 4).write.format(COLUMNS).option("format", "deephaven_table")
    saving.saveAsTable("saved")
    saving.mode("append").saveAsTable("saved")
    assert count(spark, "saved") == 8
    for _ in range(2):
        saving.mode("overwrite").option("path", str(tmp_path / "saved")).saveAsTable("saved")
        assert count(spark, "saved") == 4
    assert sawlog.read(tmp_path / "saved").num_rows == 4
    frame(spark, 3).writeTo("made").using(COLUMNS).option("format", "deephaven_table").createOrReplace()
    spark.sql("INSERT INTO made VALUES (1, 'y')")  # of the format that its files have
    assert count(spark, "made") == 4


def test_a_table_of_files_that_are_there(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write_records(tmp_path / "logs" / "000003.log", [b"a"])
    spark.sql(f"CREATE TABLE t USING {COLUMNS} LOCATION '{tmp_path / 'logs'}'")
    spark.sql("INSERT INTO t VALUES (X'62')")
    assert sorted(spark.table("t").collect()) == [(b"a",), (b"b",)]
    spark.sql("CREATE VIEW v AS SELECT count(*) AS rows FROM t")
    spark.sql("CACHE TABLE t")
    spark.sql("INSERT INTO t VALUES (X'63')")
    assert spark.table("v").collect() == [(3,)]
    spark.sql("UNCACHE TABLE t")
    spark.sql("DROP VIEW v")
    spark.sql("DROP TABLE t")
    assert sawlog.read(tmp_path / "logs").num_rows == 3


def test_tables_of_directories(spark: SparkSession, tmp_path: Path) -> None:
    table = f"CREATE TABLE t (record BINARY, n INT) {KINDS['leveldb_log'].clause('leveldb_log')}"
    spark.sql(f"{table} PARTITIONED BY (n) LOCATION '{tmp_path / 't'}'")
    spark.sql("INSERT INTO t VALUES (X'01', 1), (X'02', 2)")
    spark.sql("INSERT INTO t PARTITION (n = 3) VALUES (X'03')")
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["n=1", "n=2", "n=3"]
    assert sorted(spark.table("t").collect()) == [(b"\1", 1), (b"\2", 2), (b"\3", 3)]
    assert spark.table("t").where("n = 2").collect() == [(b"\2", 2)]
    options = f"OPTIONS (format 'leveldb_log', partitionOverwriteMode 'dynamic') LOCATION '{tmp_path / 't'}'"
    spark.sql(f"CREATE TABLE d (record BINARY, n INT) USING {COLUMNS} {options} PARTITIONED BY (n)")
    spark.sql("INSERT OVERWRITE d VALUES (X'07', 2)")
    assert sorted(spark.table("d").collect()) == [(b"\1", 1), (b"\3", 3), (b"\7", 2)]
    with pytest.raises(Exception, match="a table of sawlog is partitioned by columns, not by bucket"):
        spark.sql(f"{table.replace('TABLE t', 'TABLE u')} CLUSTERED BY (n) INTO 2 BUCKETS")


def test_columns_are_added_and_dropped(spark: SparkSession) -> None:
    kind = KINDS["deephaven_table"]
    spark.sql(f"CREATE TABLE t ({kind.columns}) {kind.clause('deephaven_table')}")
    spark.sql("INSERT INTO t VALUES (1, 'a')")
    spark.sql("ALTER TABLE t ADD COLUMN z ARRAY<INT>")
    assert spark.table("t").collect() == [(1, "a", None)]
    spark.sql("INSERT INTO t VALUES (2, 'b', array(7))")
    assert sorted(spark.table("t").collect()) == [(1, "a", None), (2, "b", [7])]
    assert spark.sql("SELECT n FROM t WHERE z IS NULL").collect() == [(1,)]
    spark.sql("ALTER TABLE t DROP COLUMN z")
    assert sorted(spark.table("t").collect()) == [(1, "a"), (2, "b")]
    spark.sql("ALTER TABLE t RENAME COLUMN s TO r")
    with pytest.raises(AnalysisException, match="SchemaError: view 'rows' of deephaven_table: no column 'r'"):
        spark.table("t").collect()
    statement = spark.sql("SHOW CREATE TABLE t").collect()[0][0]
    assert "'compact_header' = 'true'" in statement
    assert "'path'" not in statement


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("a INT", "format 'leveldb_log'", "SchemaError: a leveldb_log holds one column, 'record'; found: a"),
        ("a TIMESTAMP_NTZ", "format 'deephaven_table'", "SchemaError: column 'a' is timestamp_ntz"),
        ("a INT", "format 'deephaven_table', compct 'true'", "OptionError: .*unknown option 'compct'; did you mean"),
        ("a INT", "format 'leveldb_database'", "OptionError: .*databases are not written"),
        (
            "at TIMESTAMP",
            "format 'deephaven_log'",
            "SchemaError: .*column 'at' is bigint; the schema .* says timestamp",
        ),
        ("", "format 'leveldb_log', path '/nowhere'", "/nowhere: no files, whose columns a table could"),
    ],
)
def test_tables_that_could_not_be_read_are_not_made(
    spark: SparkSession, columns: str, options: str, message: str
) -> None:
    with pytest.raises((AnalysisException, IllegalArgumentException), match=message):
        spark.sql(f"CREATE TABLE t {f'({columns})' if columns else ''} USING {COLUMNS} OPTIONS ({options})")
    assert spark.sql("SHOW TABLES").collect() == []


def test_columns_are_those_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write_records(tmp_path / "logs" / "000003.log", [b"a"])
    with pytest.raises(AnalysisException, match="SchemaError: view 'rows' of leveldb_log: no column 'a'"):
        spark.sql(f"CREATE TABLE t (a INT) USING {COLUMNS} LOCATION '{tmp_path / 'logs'}'")


def test_without_the_jar_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    sawlog.spark.register(spark)
    spark.sql(f"CREATE TABLE t (record BINARY) USING leveldb_log LOCATION '{tmp_path / 't'}'")  # which asks no source
    spark.sql("CREATE TABLE a (record BINARY) USING leveldb_log")
    spark.sql("ALTER TABLE a ADD COLUMN b INT")  # nor does this
    location = f"LOCATION '{tmp_path / 't'}'"
    for statement in (
        "SELECT * FROM t",
        "SELECT * FROM a",
        "INSERT INTO t VALUES (X'01')",
        "INSERT OVERWRITE t VALUES (X'01')",
        f"CREATE TABLE u USING leveldb_log {location}",
        f"CREATE TABLE u USING leveldb_log {location} AS SELECT X'01' AS record",
    ):
        with pytest.raises(
            AnalysisException,
            match=r"OptionError: .*Spark gives a Python source neither path nor options of a table: tables need the jar"
            r" .* and USING sawlog; without it use CREATE TEMPORARY VIEW ... USING ... OPTIONS \(path '...'\)",
        ):
            spark.sql(statement).collect()
    spark.sql(f"CREATE TEMPORARY VIEW v (record BINARY) USING leveldb_log OPTIONS (path '{tmp_path / 't'}')")
    spark.sql("INSERT INTO v VALUES (X'01')")
    assert spark.table("v").collect() == [(b"\1",)]


@pytest.mark.parametrize("source", ["leveldb_log", COLUMNS])
def test_spark_overwrites_no_directory_by_name(spark: SparkSession, tmp_path: Path, source: str) -> None:
    """It takes only sources of its own kind there, and asks no other: the page says what to write in its place."""
    sawlog.spark.register(spark)
    statement = f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'out'}' USING {source} OPTIONS (format 'leveldb_log')"
    with pytest.raises(list_spark_errors(), match="Only Data Sources providing FileFormat are supported"):
        spark.sql(f"{statement} SELECT X'01' AS record")
    assert not (tmp_path / "out").exists()


CLIENT = """
import sys
from pyspark.sql import SparkSession
url, source, path = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.sql(f"CREATE TABLE t (record BINARY) USING {source} OPTIONS (format 'leveldb_log') LOCATION '{path}'").collect()
spark.sql("INSERT INTO t VALUES (X'01')").collect()
spark.table("t").writeTo("t").append()
spark.table("t").write.insertInto("t")
frame = spark.sql("SELECT X'02' AS record")
frame.write.format(source).option("format", "leveldb_log").saveAsTable("u")
print("rows", spark.table("t").count(), spark.table("u").count())
spark.sql("DROP TABLE t").collect(), spark.sql("DROP TABLE u").collect()
"""


def test_tables_through_connect(spark: SparkSession, connect_port: int, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, f"sc://127.0.0.1:{connect_port}", COLUMNS]
    done = subprocess.run([*command, str(tmp_path / "t")], capture_output=True, text=True, timeout=300, check=False)
    assert "rows 4 1" in done.stdout, done.stdout + done.stderr[-3000:]
