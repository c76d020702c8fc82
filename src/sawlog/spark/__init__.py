"""Sawlog's data sources for Spark.

`spark.read.format("sawlog")` works wherever the package is installed. `register` adds one short name per format. What
belongs to one format (`from_filodb_record`, `import_logs`, `compact`, ...) is found through entry points, and is loaded
when it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sawlog.format.lazy import find_entry_points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_sawlog import DefaultSource
    from sawlog.dataset.index import Indexed

__all__ = ["data_source", "index", "register", "session", "spark_jar"]

_HELPERS_GROUP = "sawlog.spark"
"""Entry points of functions and classes that belong to one format; they become attributes of this package."""


def __getattr__(name: str) -> Any:
    """Import a Spark helper of a format, such as `merge`, by its entry point."""
    if name in (helpers := find_entry_points(_HELPERS_GROUP)):
        return helpers[name].load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return names, those of formats included."""
    return sorted({*globals(), *find_entry_points(_HELPERS_GROUP)})


def session(name: str = "sawlog", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session in which sawlog is as fast as it can be; see `sawlog.spark.sessions.start_session`."""
    from sawlog.spark import sessions

    return sessions.start_session(name, settings)


def spark_jar() -> str:
    """Return the path of the jar by which Spark takes Arrow batches as columns; see `sawlog.spark.jar.locate_jar`."""
    from sawlog.spark import jar

    return jar.locate_jar()


def index(spark: SparkSession, path: str, **settings: Any) -> Indexed:
    """Build an index as `sawlog.index` does, with files read by Spark's tasks: for millions of remote files.

    Args:
        spark: The session.
        path: The directory, which executors see as the driver does.
        **settings: Of `sawlog.index`.
    """
    from sawlog.dataset import index
    from sawlog.spark import tasks

    return index.index(path, run=tasks.make_task_runner(spark), **settings)


def register(spark: SparkSession) -> list[str]:
    """Make every format known to a Spark session by its short name, formats of third-party packages included.

    Afterwards `spark.read.format("leveldb_log")` and, in SQL, `USING leveldb_log` work. `sawlog` itself is registered
    too, for sessions where Spark's own discovery fails.

    Returns:
        The short names of the formats.
    """
    from pyspark.errors import AnalysisException

    from pyspark_sawlog import DefaultSource
    from sawlog.api import formats

    with contextlib.suppress(AnalysisException):  # Spark 4.0 refuses what it has discovered by itself
        spark.dataSource.register(DefaultSource)
    names = list(formats())
    for name in names:
        spark.dataSource.register(data_source(name))
    return names


def data_source(format: str) -> type[DefaultSource]:
    """Return the data source class of one format, for `spark.dataSource.register`.

    Raises:
        OptionError: For an unknown format.
    """
    from pyspark_sawlog import DefaultSource
    from sawlog.format.recognition import get_format

    get_format(format)
    return type(f"{format}_source", (DefaultSource,), {"format_name": format, "__doc__": f"The format {format}."})
