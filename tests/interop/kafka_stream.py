"""What a user would run: a stream out of Kafka, containers to rows, rows to a table.

Arguments: address of the broker, jars of the connector, directory for the result.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from sawlog.spark import from_filodb_record

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

stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", address)
    .option("subscribe", "timeseries")
    .option("startingOffsets", "earliest")
    .load()
)
rows = stream.select("partition", from_filodb_record("value", "gauge", extras="hash").alias("rows"))
samples = rows.selectExpr("partition", "inline(rows)")
query = (
    samples.writeStream.format("parquet")
    .option("path", f"{place}/samples")
    .option("checkpointLocation", f"{place}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
