"""What a user would run where values may be corrupt: rows to one table, and to another what is damaged, by its place.

Arguments: address of the broker, jars of the connector, directory for the result.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from sawlog.spark import filodb_records

address, jars, place = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
spark.conf.set("spark.sql.shuffle.partitions", "2")

stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", address)
    .option("subscribe", "poisoned")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 8)
    .load()
)
records = filodb_records(stream.select("topic", "partition", "offset", "value"), "value", "gauge")


def store(batch: DataFrame, number: int) -> None:
    """Rows to one table, damage to another."""
    batch.persist()
    batch.selectExpr("inline(rows)").write.mode("append").parquet(f"{place}/samples")
    damaged = batch.where("NOT ok").select("topic", "partition", "offset", "damage")
    damaged.write.mode("append").parquet(f"{place}/quarantine")
    batch.unpersist()


query = (
    records.writeStream.foreachBatch(store)
    .option("checkpointLocation", f"{place}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
