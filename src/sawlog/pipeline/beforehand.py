"""Checks of a pipeline before Spark is started, which takes long."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sawlog.errors import OptionError, SawlogError, suggest_name
from sawlog.format.recognition import load_formats
from sawlog.pipeline.document import Path
from sawlog.pipeline.settings import SAWLOG, Pipeline, Source

if TYPE_CHECKING:
    from sawlog.spark.options import SparkRequest

_SPARK_FORMATS = (
    *("avro", "binaryfile", "console", "csv", "foreach", "foreachbatch", "hive", "image", "jdbc", "json", "kafka"),
    *("libsvm", "memory", "noop", "orc", "parquet", "protobuf", "rate", "rate-micro-batch", "socket", "statestore"),
    *("state-metadata", "text", "xml", "delta", "iceberg", "hudi"),
)
"""Formats that Spark has, or has with a well-known jar."""
_FORMAT_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CLASSPATH")
"""Variables by which Spark may know more formats."""
_FORMAT_SETTING_PARTS = ("jars", "ClassPath", "remote", "packages", "plugins")
"""Parts of the names of settings by which it may."""


def check(pipeline: Pipeline, settings: Mapping[str, str]) -> None:
    """Look at paths, names of options and formats of sinks.

    Args:
        pipeline: What is to be run.
        settings: Settings of Spark that go before those of the file.

    Raises:
        OptionError: For the first mistake; names line and key.
    """
    for source in pipeline.sources.values():
        if source.is_sawlog and source.table is None:
            _check_source(pipeline, source)
    sinks = [*pipeline.sinks, *([pipeline.quarantine] if pipeline.quarantine is not None else [])]
    plain = (
        not any(word in key for key in {**pipeline.spark, **settings} for word in _FORMAT_SETTING_PARTS)
        and not _has_other_providers()
    )
    for sink in sinks:
        with _locate_errors(pipeline, (*sink.key, "format")):
            if not sink.is_sawlog and plain and "." not in sink.format and sink.format.lower() not in _SPARK_FORMATS:
                near = suggest_name(sink.format, [*load_formats(), *_SPARK_FORMATS])
                raise OptionError(
                    f"neither sawlog nor Spark has a format {sink.format!r}{near}; if it is one, its jar is missing:"
                    f" jars.packages in [spark]. Formats of sawlog: {', '.join(load_formats())}"
                )
        if sink.is_sawlog:
            from sawlog.spark.options import make_write_request

            with _locate_errors(pipeline, (*sink.key, "options")):
                options = {name.lower(): value for name, value in sink.options.items()}
                make_write_request({**options, "path": str(sink.path)}, sink.format)


def _check_source(pipeline: Pipeline, source: Source) -> None:
    from sawlog.spark.options import ReadOptions as Known
    from sawlog.spark.options import check_known, make_read_request

    options = {name.lower(): value for name, value in source.options.items()}
    format = None if source.format == SAWLOG else source.format
    for path in source.paths:
        with _locate_errors(pipeline, (*source.key, "options")):
            request: SparkRequest = make_read_request({**options, "path": path}, format)
            if format is not None:
                check_known(request.format_options, Known, load_formats()[format].read_options, f"reading {format}")
        if not (source.stream and source.ddl is not None):  # such a directory may come later
            with _locate_errors(pipeline, (*source.key, "path")):
                request.storage.find(request.paths)


def _has_other_providers() -> bool:
    """Return whether something else than the settings may bring formats: a Spark of its own, or Python modules."""
    modules = {module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")}
    return any(name in os.environ for name in _FORMAT_VARIABLES) or bool(modules - {"pyspark_sawlog"})


@contextmanager
def _locate_errors(pipeline: Pipeline, key: Path) -> Iterator[None]:
    """Name file, line and key of what is wrong, in the block."""
    try:
        yield
    except (SawlogError, FileNotFoundError) as error:
        raise pipeline.document.make_error(key, pipeline.document.secrets.redact(str(error))) from error
