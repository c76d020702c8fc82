"""The driver process: one query per sink, until it is killed or told to finish.

`python -m tests.exactly_once.run_queries ROOT TRIGGER SINK...`, where the trigger is an interval. When the file
`ROOT/finish` is there, all that the logs hold is read, the keys in the Parquet sink are written to
`ROOT/parquet.arrow`, and the process ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.spark import spark_jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SINKS: dict[str, tuple[list[str], dict[str, str]]] = {
    "parquet": (["k", "s"], {}),
    "deephaven_log": (["k", "s"], {}),
    "leveldb_log": (["CAST(CAST(k AS STRING) AS BINARY) AS record"], {}),
    "deephaven_table": (["k", "s"], {}),
    "milvus_binlog": (["k", "s"], {"primary_key": "k"}),
    "filodb_record": (
        ["timestamp_millis(k) AS timestamp", "1D AS value", "s AS _metric_", "map('_ws_', 'a', '_ns_', 'b') AS tags"],
        {"table": "gauge"},
    ),
}
"""Columns and options of each sink."""
ATTEMPTS = 20
"""How often starting a query may fail."""
LOCAL = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts faster
}


def session(master: str = "local[2,100]", settings: Mapping[str, str] = LOCAL) -> SparkSession:
    """A session of this process, with the jar where `SAWLOG_TEST_JAR` says so."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    shared = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.jars": spark_jar() if os.environ.get("SAWLOG_TEST_JAR") == "1" else "",
    }
    return SparkSession.builder.master(master).config(map={**shared, **settings}).getOrCreate()


def start(spark: SparkSession, root: str, sink: str, limit: str, task: str, **trigger: Any) -> StreamingQuery:
    print("starts query", sink, flush=True)
    columns, options = SINKS[sink]
    reading = spark.readStream.format("sawlog").option("task_bytes", task).option("maxBytesPerTrigger", limit)
    rows: DataFrame = reading.option("format", "deephaven_log").load(f"{root}/logs").select("k", "s")
    recycled = reading.option("format", "leveldb_log").schema("record binary").load(f"{root}/wal")
    key = "CAST(CAST(record AS STRING) AS BIGINT)"
    rows = rows.union(recycled.selectExpr(f"{key} AS k", f"concat('row ', {key}) AS s")).selectExpr(*columns)
    writer = rows.writeStream.option("checkpointLocation", f"{root}/checkpoints/{sink}").trigger(**trigger)
    if sink == "parquet":
        return writer.format("parquet").start(f"{root}/sinks/{sink}")
    return writer.format("sawlog").option("format", sink).options(**options).start(f"{root}/sinks/{sink}")


def finish(spark: SparkSession, root: str, sink: str) -> None:
    """Read all that is left; what busy machines do to Spark's processes counts as one more kill."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for attempt in range(ATTEMPTS):
        try:
            start(spark, root, sink, "100m", "1000000", availableNow=True).awaitTermination()
        except (PySparkException, Py4JError) as error:
            print(str(error)[:1000], flush=True)
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def main(root: str, interval: str, sinks: list[str]) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException

    spark = session()
    queries: dict[str, StreamingQuery] = {}
    failures = 0
    while not os.path.exists(f"{root}/finish"):
        for sink in sinks:
            if sink not in queries or not queries[sink].isActive:
                if sink in queries:
                    print(str(queries[sink].exception())[:1000], flush=True)
                try:
                    queries[sink] = start(spark, root, sink, "200k", "50000", processingTime=interval)
                except (AnalysisException, Py4JError) as error:  # the process that looks the source up was killed
                    failures += 1
                    if failures == ATTEMPTS:
                        raise
                    print(str(error)[:1000], flush=True)
        time.sleep(0.1)
    for query in queries.values():
        query.stop()
    for sink in sinks:
        finish(spark, root, sink)
    if "parquet" in sinks:
        table = spark.read.parquet(f"{root}/sinks/parquet").select("k").toArrow()
        with pa.OSFile(f"{root}/parquet.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
