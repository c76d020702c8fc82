"""A Spark session for one command."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sawlog.errors import OptionError, SawlogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@contextmanager
def session(name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session that is there, `spark-submit`'s, or one on `local[*]`, which is stopped with the block.

    Args:
        name: What Spark calls the application.
        settings: Spark's settings.

    Yields:
        The session.

    Raises:
        OptionError: When PySpark is missing.
        SawlogError: When Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OptionError(f"{name} runs on PySpark, which is missing: pip install 'sawlog[spark]' ({error})") from None
    chosen = {**_QUIET, **settings}
    if "PYSPARK_GATEWAY_PORT" not in os.environ and chosen.get("spark.master", "local").startswith("local"):
        # Spark would take the python3 that is first on PATH, which need not have sawlog.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    found = SparkSession.getActiveSession()
    try:
        builder = SparkSession.builder.appName(name)
        for key, value in chosen.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        raise SawlogError(
            f"Spark does not start: {line or type(error).__name__}; Java 17 or newer is needed"
        ) from error
    try:
        yield spark
    finally:
        if found is None:
            spark.stop()
