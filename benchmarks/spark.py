"""One local Spark session for all benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa


def session(place: Path) -> Any:
    """Spark as it comes, but for its chatter and its web page."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("sawlog benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "spark"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def session_with_jar(place: Path, settings: Mapping[str, str] | None = None) -> Any:
    """The same with the jar, which `format("sawlog")` uses, and short names of formats do not."""
    import sawlog.spark

    jar_settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "spark"),
        **(settings or {}),
    }
    spark = sawlog.spark.session("sawlog benchmarks", jar_settings)
    sawlog.spark.register(spark)
    return spark


def noop(frame: Any) -> None:
    """Compute every row and every column, and throw them away."""
    frame.write.format("noop").mode("overwrite").save()


def register_premade(spark: Any, name: str, batches: Iterable[pa.RecordBatch], schema: Any, file: Path) -> None:
    """A source that hands over batches made before, and does nothing else: no Python source can be faster."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import to_arrow_schema

    needed_schema = to_arrow_schema(schema)
    with pa.ipc.new_file(str(file), needed_schema) as writer:
        for batch in batches:
            writer.write_batch(batch.cast(needed_schema))
    path = str(file)

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(core) for core in range(2)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as batch_file:
                for number in range(partition.value, batch_file.num_record_batches, 2):
                    yield batch_file.get_batch(number)

    class PremadeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(PremadeSource)
