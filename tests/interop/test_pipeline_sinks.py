"""Pipelines into what has to be fetched first: a Delta table, and a real Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sawlog.deephaven.log.logger import Logger
from tests.interop import delta
from tests.interop.kafka_server import connector_jars, kafka
from tools.jars import spark

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("n", pa.int64()), ("sym", pa.string()), ("price", pa.float64())])
STREAM = """\
mode = "stream"
checkpoint = "state-{name}"
trigger = "available-now"
"""
PIPELINE = """\
[pipeline]
{head}
[spark]
master = "local[2]"
ui.enabled = false
log.level = "ERROR"
jars = "{jars}"
{settings}

[sources.ticks]
path = "logs"
format = "deephaven_log"

{rest}
"""
TO_DELTA = """
[sinks.ticks]
from = "ticks"
format = "delta"
path = "table"
partition_by = ["sym"]
"""
FROM_DELTA = """
[sources.stored]
path = "table"
format = "delta"

[steps.recent]
sql = "SELECT t.n, t.price + 1 AS more FROM stored t WHERE t.n >= 100"

[sinks.recent]
from = "recent"
format = "parquet"
path = "recent"
"""
EVOLVING = """
[sinks.ticks]
from = "ticks"
format = "delta"
path = "table"
[sinks.ticks.options]
mergeSchema = true
"""
COMPACTING = {
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.autoCompact.minNumFiles": "2",
}
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SPARK_OF_ICEBERG = "4.1.1"
LAKE = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.table-default.write.spark.accept-any-schema": "true",
}
TO_ICEBERG = """
[steps.chosen]
sql = "SELECT {columns} FROM ticks{where}"

[sinks.ticks]
from = "chosen"
format = "iceberg"
table = "lake.market.ticks"
{mode}
[sinks.ticks.options]
mergeSchema = true
"""
COMPACT = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.jars", {jars!r})
for key, value in {settings!r}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sql("CALL lake.system.rewrite_data_files(table => 'market.ticks', options => map('min-input-files', '2'))")
(files,) = spark.sql("SELECT count(*) FROM lake.market.ticks.files").first()
rows = spark.table("lake.market.ticks").sort("n").toArrow()
print(files, rows["n"].to_pylist() == list(range(1500)), rows["price"].null_count)
"""
TO_KAFKA = """
[steps.messages]
sql = "SELECT sym AS key, to_json(struct(*)) AS value FROM ticks"

[sinks.kafka]
from = "messages"
format = "kafka"
[sinks.kafka.options]
"kafka.bootstrap.servers" = "${env:BROKER}"
topic = "ticks"
"""


def ticks(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    columns = {"n": list(numbers), "sym": [f"S{n % 3}" for n in numbers], "price": [n / 4 for n in numbers]}
    return pa.table(columns, schema=SCHEMA)


def run(
    place: Path, name: str, jars: str, rest_text: str, settings: dict[str, str], mode: str = "stream", **variables: str
) -> list[dict[str, Any]]:
    """Run a pipeline in a process of its own; what it printed."""
    path = place / f"{name}.toml"
    lines = "\n".join(f'"{key}" = "{value}"' for key, value in settings.items())
    text = PIPELINE.replace("{head}", STREAM if mode == "stream" else f'mode = "{mode}"\n')
    text = text.replace("{rest}", rest_text).replace("{name}", name).replace("{jars}", jars)
    path.write_text(text.replace("{settings}", lines))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **variables}
    command = [sys.executable, "-m", "sawlog", "run", str(path), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    assert not any(value in done.stdout + done.stderr for value in variables.values())
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_into_a_delta_table_and_out_of_it(tmp_path: Path) -> None:
    jars = delta.jars()
    with Logger(tmp_path / "logs", SCHEMA, namespace="Market", table="Ticks") as log:
        log.write(ticks(0, 1000))
        log.flush()
        *_, end = run(tmp_path, "into", jars, TO_DELTA, delta.SETTINGS)
        assert end["rows"] == {"ticks": 1000}
        log.write(ticks(1000, 500))
        log.flush()
        *_, end = run(tmp_path, "into", jars, TO_DELTA, delta.SETTINGS)
        assert end["rows"] == {"ticks": 500}
    entries = [
        json.loads(line)
        for file in sorted((tmp_path / "table/_delta_log").glob("*.json"))
        for line in file.read_text().splitlines()
    ]
    added = [entry["add"] for entry in entries if "add" in entry]
    assert sum(json.loads(row["stats"])["numRecords"] for row in added) == 1500
    assert {row["partitionValues"]["sym"] for row in added} == {"S0", "S1", "S2"}
    *_, end = run(tmp_path, "out", jars, FROM_DELTA, delta.SETTINGS)
    assert end["rows"] == {"recent": 1500}
    parts = [pq.read_table(part) for part in (tmp_path / "recent").glob("*.parquet")]
    table = pa.concat_tables(parts).sort_by("n")
    assert table["n"].to_pylist() == list(range(100, 1500))
    assert table["more"].to_pylist() == [n / 4 + 1 for n in range(100, 1500)]


def test_a_delta_table_takes_a_new_column_and_is_compacted(tmp_path: Path) -> None:
    """The column appears in the logs; a run of the changed schema goes on from the same checkpoint."""
    jars, settings = delta.jars(), {**delta.SETTINGS, **COMPACTING}
    narrow = EVOLVING.replace('"ticks"\n', '"narrow"\n', 1)
    narrow += '\n[steps.narrow]\nsql = "SELECT n, sym FROM ticks"\n'
    with Logger(tmp_path / "logs", SCHEMA, namespace="Market", table="Ticks") as log:
        for start, count, sink in ((0, 1000, narrow), (1000, 500, EVOLVING)):
            log.write(ticks(start, count))
            log.flush()
            *_, end = run(tmp_path, "into", jars, sink, settings)
            assert end["rows"] == {"ticks": count}
    entries = [
        json.loads(line)
        for file in sorted((tmp_path / "table/_delta_log").glob("*.json"))
        for line in file.read_text().splitlines()
    ]
    assert "OPTIMIZE" in {entry["commitInfo"]["operation"] for entry in entries if "commitInfo" in entry}
    assert sum("txn" in entry for entry in entries) == 2, "by its number a micro-batch is written once"
    removed = {entry["remove"]["path"] for entry in entries if "remove" in entry}
    added = {entry["add"]["path"] for entry in entries if "add" in entry}
    parts = [pq.read_table(tmp_path / "table" / name) for name in added - removed]
    table = pa.concat_tables(parts, promote_options="default").sort_by("n")
    assert table["n"].to_pylist() == list(range(1500))
    assert table["price"].to_pylist() == [None] * 1000 + [n / 4 for n in range(1000, 1500)]


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_an_iceberg_table_takes_a_new_column_and_is_compacted(tmp_path: Path, mode: str) -> None:
    """With Spark 4.1, the newest that Iceberg has a runtime for; streams of sawlog have the jar there."""
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={ICEBERG}"]
    subprocess.run([*command, f"-DoutputDirectory={delta.CACHE.parent / 'iceberg-1.12.0'}"], check=True)
    jars = ",".join(map(str, (delta.CACHE.parent / "iceberg-1.12.0").glob("*.jar")))
    settings = {**LAKE, "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake")}
    home = spark(SPARK_OF_ICEBERG)
    variables = {"PYTHONPATH": str(home.parent), "SPARK_HOME": str(home)}
    with Logger(tmp_path / "logs", SCHEMA, namespace="Market", table="Ticks") as log:
        for start, count, columns in ((0, 1000, "n, sym"), (1000, 500, "n, sym, price")):
            log.write(ticks(start, count))
            log.flush()
            condition, mode_line = (f" WHERE n >= {start}", 'mode = "append"') if mode == "batch" else ("", "")
            sink = TO_ICEBERG.format(columns=columns, where=condition, mode=mode_line)
            *_, end = run(tmp_path, "into", jars, sink, settings, mode, **variables)
            assert end["rows"] == {"ticks": count}
    script = COMPACT.format(jars=jars, settings=settings)
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["1", "True", "1000"], done.stderr[-3000:]


def test_rows_are_written_into_a_real_kafka(tmp_path: Path) -> None:
    from confluent_kafka import Consumer

    with Logger(tmp_path / "logs", SCHEMA, namespace="Market", table="Ticks") as log:
        log.write(ticks(0, 1000))
    with kafka(tmp_path) as broker:
        *_, end = run(tmp_path, "kafka", connector_jars(), TO_KAFKA, {}, BROKER=broker)
        assert end["rows"] == {"kafka": 1000}
        settings = {"bootstrap.servers": broker, "group.id": "test", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["ticks"])
        messages = {}
        while len(messages) < 1000:
            message = consumer.poll(60)
            assert message is not None, f"{len(messages)} messages, and no more"
            assert message.error() is None
            row = json.loads(message.value())
            assert message.key().decode() == row["sym"]
            messages[row["n"]] = row["price"]
        consumer.close()
    assert messages == {n: n / 4 for n in range(1000)}
