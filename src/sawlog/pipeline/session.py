"""The Spark session of a pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sawlog.errors import OptionError, PipelineError, SawlogError
from sawlog.spark.sessions import hold_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sawlog.pipeline.settings import Pipeline

_STREAMS_SINCE = (4, 2)


@contextlib.contextmanager
def open_session(pipeline: Pipeline, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Return a session with the pipeline's settings, as `sawlog.spark.session` makes it.

    Args:
        pipeline: What is to be run.
        settings: Settings that go before those of the file.

    Yields:
        The session.

    Raises:
        OptionError: When PySpark is missing, or too old for a sink of a stream.
        PipelineError: When Spark does not start, or cannot be reached.
    """
    _check_version(pipeline)
    with contextlib.ExitStack() as stack:
        try:
            spark = stack.enter_context(hold_session(pipeline.name, {**pipeline.spark, **settings}))
        except OptionError:
            raise
        except SawlogError as error:
            message = pipeline.document.secrets.redact(str(error))
            raise PipelineError(f"{pipeline.document.describe_place(('spark',))}: {message}") from error
        yield spark


def _check_version(pipeline: Pipeline) -> None:
    """Before 4.2, streams have sources of sawlog where Spark has the jar, and no sinks of sawlog at all."""
    try:
        from pyspark import __version__ as version
    except ImportError:
        return
    major, minor = version.split(".")[:2]
    if pipeline.mode != "stream" or (int(major), int(minor)) >= _STREAMS_SINCE:
        return
    required_version = ".".join(map(str, _STREAMS_SINCE))
    for sink in filter(None, [*pipeline.sinks, pipeline.quarantine]):
        if sink.is_sawlog:
            message = f"a stream into {sink.format} needs PySpark {required_version} or newer; found {version}"
            raise pipeline.document.make_error((*sink.key, "format"), message)
