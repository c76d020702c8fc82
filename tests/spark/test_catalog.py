"""Collections of Milvus as a catalog of Spark's: names, aliases, earlier times; nothing can be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from sawlog.milvus import layout
from tests.milvus_binlog.support import GOLDEN, truth, with_etcd
from tests.support import write_records

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CATALOG = "org.apache.spark.sql.execution.python.sawlog.SawlogCatalog"


@pytest.fixture(scope="module")
def catalog(spark: SparkSession) -> SparkSession:
    root = GOLDEN / "2.3.5"
    settings = {"": CATALOG, ".path": str(root), ".format": "milvus_binlog", ".metadata": str(root / "etcd.json")}
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.milvus{key}", value)
    return spark


@pytest.mark.nightly
def test_collections_are_tables(catalog: SparkSession) -> None:
    names = {row["tableName"] for row in catalog.sql("SHOW TABLES IN milvus.default").collect()}
    assert names >= {"alltypes", "strpk", "autoid"}
    assert [row[0] for row in catalog.sql("SHOW NAMESPACES IN milvus").collect()] == ["default"]
    expected = with_etcd("2.3.5", "strpk").to_table()
    rows = catalog.sql("SELECT name, n FROM milvus.default.strpk WHERE n < 50")
    expected_counts = {(row["name"], row["n"]) for row in expected.to_pylist() if row["n"] < 50}
    assert {tuple(row) for row in rows.collect()} == expected_counts
    assert catalog.table("milvus.default.strpk").count() == expected.num_rows
    with pytest.raises(AnalysisException, match="cannot be found"):
        catalog.sql("SELECT * FROM milvus.default.nothing").collect()
    with pytest.raises(AnalysisException):
        catalog.sql("SHOW TABLES IN milvus.nowhere").collect()


@pytest.mark.nightly
def test_earlier_times_are_versions_and_timestamps(catalog: SparkSession) -> None:
    times = [
        operation["timestamp"]
        for operation in truth("2.3.5")["log"]
        if operation["collection"] == "strpk" and operation.get("timestamp")
    ]
    counts = set()
    for time in times:
        count = with_etcd("2.3.5", "strpk", as_of=time).count_rows()
        counts.add(count)
        assert catalog.sql(f"SELECT count(*) FROM milvus.default.strpk VERSION AS OF '{time}'").head()[0] == count
    assert len(counts) > 1
    moment = layout.decode_tso(times[-1])
    query = f"SELECT count(*) FROM milvus.default.strpk TIMESTAMP AS OF '{moment.isoformat()}'"
    assert catalog.sql(query).head()[0] == with_etcd("2.3.5", "strpk", as_of=moment).count_rows()


def test_nothing_can_be_changed(catalog: SparkSession) -> None:
    for statement in (
        "DROP TABLE milvus.default.strpk",
        "CREATE TABLE milvus.default.fresh (a INT)",
        "INSERT INTO milvus.default.strpk VALUES ('x', 1, NULL)",
        "CREATE NAMESPACE milvus.other",
    ):
        with pytest.raises(Exception, match=r"can only be read|does not support|not support"):
            catalog.sql(statement)


def test_formats_without_tables_say_so(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "000001.log", [b"x"])
    spark.conf.set("spark.sql.catalog.logs", CATALOG)
    spark.conf.set("spark.sql.catalog.logs.path", str(tmp_path))
    with pytest.raises(Exception, match="leveldb_log has no tables that a catalog could list"):
        spark.sql("SHOW TABLES IN logs.default").collect()
