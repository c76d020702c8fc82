"""The Spark session of a pipeline: one of its own, `spark-submit`'s, or a server's."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sawlog.errors import OptionError
from sawlog.pipeline.errors import PipelineError, explain, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sawlog.pipeline.settings import Pipeline

_STREAMS_SINCE = (4, 2)


@contextlib.contextmanager
def session(pipeline: Pipeline, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with the pipeline's settings; it is stopped with the block, unless it was there before.

    Without a master it is what Spark's own configuration says, or `local[*]`. Under `spark-submit` it is the job's, and
    with `spark.remote`, or `SPARK_REMOTE` in the environment, that of a Spark Connect server.

    Args:
        pipeline: What is to be run.
        settings: Settings that go before those of the file.

    Yields:
        The session.

    Raises:
        OptionError: When PySpark is missing, or too old for streams.
        PipelineError: When Spark does not start, or cannot be reached.
    """
    chosen = {**pipeline.spark, **settings}
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OptionError(
            f"pipelines run on PySpark, which is missing: pip install 'sawlog[spark]' ({error})"
        ) from None
    _check_version(pipeline, pyspark.__version__)
    if _local(chosen):
        # Spark would take the python3 that is first on PATH, which need not have sawlog.
        os.environ.setdefault("PYSPARK_PYTHON", chosen.get("spark.pyspark.python", sys.executable))
        chosen.setdefault("spark.ui.showConsoleProgress", "false")
    # Both say again, in JSON or of pandas, which no pipeline uses, what nobody can act on.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    try:
        found = SparkSession.getActiveSession()
        builder = SparkSession.builder.appName(pipeline.name)
        for name, value in chosen.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        _ = spark.version  # reaches the server, where there is one
    except Exception as error:
        message = pipeline.document.secrets.redact(explain(error))
        raise PipelineError(f"{pipeline.document.where(('spark',))}: Spark does not start: {message}") from error
    try:
        yield spark
    finally:
        if found is None:
            with contextlib.suppress(*spark_errors()):  # SIGTERM may have reached Spark itself as well
                spark.stop()


def _local(settings: Mapping[str, str]) -> bool:
    """Whether Spark is started here, for this pipeline alone."""
    elsewhere = "spark.remote" in settings or any(
        name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
    )
    return not elsewhere and settings.get("spark.master", "local").startswith("local")


def _check_version(pipeline: Pipeline, version: str) -> None:
    major, minor = version.split(".")[:2]
    if pipeline.mode == "stream" and (int(major), int(minor)) < _STREAMS_SINCE:
        needed = ".".join(map(str, _STREAMS_SINCE))
        raise OptionError(f"streams need PySpark {needed} or newer; found {version}")
