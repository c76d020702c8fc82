"""Deephaven's import and merge on Spark: binary logs to an intraday tree, an intraday date to history."""

from __future__ import annotations

from sawlog.spark.deephaven.load import Import, import_logs
from sawlog.spark.deephaven.merge import Merge, merge

__all__ = ["Import", "Merge", "import_logs", "merge"]
