"""One local Spark session for all benchmarks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def session(place: Path, cores: int = 2) -> Any:
    """Spark as it comes, but for its chatter and its web page."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
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


def noop(frame: Any) -> None:
    """Compute every row and every column, and throw them away."""
    frame.write.format("noop").mode("overwrite").save()
