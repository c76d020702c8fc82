"""What is inside LevelDB logs, through Spark: an export into a table in one line, the state of a database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from google.appengine.datastore import entity_bytes_pb2 as pb

import sawlog

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def user(number: int) -> bytes:
    entity = pb.EntityProto()
    entity.key.app = "s~demo"
    entity.entity_group.SetInParent()
    step = entity.key.path.element.add()
    step.type, step.id = "users", number
    for name, kind, value in (("name", "stringValue", b"user %d" % number), ("score", "doubleValue", number / 4)):
        protobuf_property = entity.raw_property.add()
        protobuf_property.name, protobuf_property.multiple = name, False
        setattr(protobuf_property.value, kind, value)
    for tag in (b"a", b"b"):
        protobuf_property = entity.raw_property.add()
        protobuf_property.name, protobuf_property.multiple, protobuf_property.value.stringValue = "tags", True, tag
    return entity.SerializeToString()


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of 300 entities in three files."""
    directory = tmp_path_factory.mktemp("export") / "all_namespaces" / "kind_users"
    for number in range(3):
        records = [user(1 + number * 100 + i) for i in range(100)]
        table = pa.table({"record": pa.array(records, pa.binary())})
        sawlog.write(table, directory / f"output-{number}", format="leveldb_log")
    return directory.parent.parent


def test_an_export_becomes_a_table_in_one_line(
    spark: SparkSession, export: Path, pyspark_version: tuple[int, int]
) -> None:
    spark.read.format("sawlog").option("view", "entities").load(str(export)).write.saveAsTable("users_json")
    statement = """
        select kind, id, key, properties:name::string as name, properties:tags[1]::string as tag
        from (select * except (properties), parse_json(properties) as properties from users_json)
        where properties:score::double >= 74.5 order by id
    """
    if pyspark_version < (4, 1):  # has another way to say it only
        statement = re.sub(r"properties:([\w\[\]]+)::(\w+)", r"variant_get(properties, '$.\1', '\2')", statement)
    frame = spark.sql(statement)
    assert [tuple(row) for row in frame.collect()] == [
        ("users", 298, "users/298", "user 298", "b"),
        ("users", 299, "users/299", "user 299", "b"),
        ("users", 300, "users/300", "user 300", "b"),
    ]


def test_an_export_becomes_typed_columns_in_one_line(spark: SparkSession, export: Path) -> None:
    reader = spark.read.format("sawlog").option("view", "entities").option("properties", "infer")
    reader.load(str(export)).write.saveAsTable("users")
    table = spark.table("users")
    assert table.drop("__key__").schema.simpleString() == "struct<name:string,score:double,tags:array<string>>"
    assert table.selectExpr("count(*)", "sum(__key__.id)", "sum(score)").first()[:] == (300, 45150, 45150 / 4)


def test_the_state_of_a_database(spark: SparkSession, tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True, write_buffer_size=64 << 20) as db:
        for i in range(1000):
            db.put(b"key%d" % (i % 10), b"%d" % i)
        db.delete(b"key3")
    (log,) = (tmp_path / "db").glob("*.log")
    reader = spark.read.format("sawlog").option("view", "writes")
    assert reader.load(str(log)).count() == 1001
    latest = reader.option("latest", "true").load(str(log)).where("operation = 'put'")
    assert {bytes(row.key): bytes(row.value) for row in latest.collect()} == {
        b"key%d" % i: b"%d" % (990 + i) for i in range(10) if i != 3
    }
    with plyvel.DB(str(tmp_path / "db")) as db:
        db.compact_range()
    files = spark.read.format("sawlog").option("view", "files").load(str(tmp_path / "db")).collect()
    assert {row.file: row.size for row in files} == {
        int(path.stem): path.stat().st_size for path in (tmp_path / "db").glob("*.ldb")
    }
