"""What happens to followed directories in ordinary life, while a query starts again from its checkpoint.

With the jar on every version of Spark, without it where Python sources can be streams.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.stream_logs import log_other, write_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SHOP = Path(__file__).parents[2] / "examples" / "data" / "shop"


def another_table(root: Path, number: int) -> None:
    log_other(root / "logs", f"w{number}")


def a_table_that_vanishes(root: Path, number: int) -> None:
    for path in (root / "logs").glob("*.Other.*"):
        path.unlink()
    log_other(root / "logs", f"w{number}", "Other" if number % 2 else "Third")


def another_format(root: Path, number: int) -> None:
    for path in SHOP.iterdir():
        shutil.copy(path, root / "logs" / path.name)


def other_partitions(root: Path, number: int) -> None:
    write_log(root / "logs", 100 * number, 100 * number + 3, f"v{number}", f"2026-01-{number + 1:02}")


@pytest.mark.spread(5)
@pytest.mark.parametrize(
    "happens",
    [another_table, a_table_that_vanishes, another_format, other_partitions],
    ids=lambda function: function.__name__,
)
def test_a_query_goes_on(
    happens: Callable[[Path, int], None],
    spark: SparkSession,
    pyspark_version: tuple[int, int],
    with_jar: bool,
    tmp_path: Path,
) -> None:
    if pyspark_version < (4, 2) and not with_jar:
        pytest.skip("streams need PySpark 4.2, or the jar")
    counts = []
    for number in range(3):
        write_log(tmp_path / "logs", number * 10, number * 10 + 10, f"w{number}")
        rows = spark.readStream.format("sawlog").schema("n long").load(str(tmp_path / "logs"))
        writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.format("parquet").start(str(tmp_path / "out"))
        query.awaitTermination()
        counts += [progress.numInputRows for progress in query.recentProgress]
        happens(tmp_path, number)
    also = [0, 1, 2, 100, 101, 102] if happens is other_partitions else []
    assert counts == ([10, 13, 13] if also else [10, 10, 10])
    values = spark.read.parquet(str(tmp_path / "out")).toArrow().column("n").to_pylist()
    assert sorted(values) == sorted([*range(30), *also])
