"""Deephaven's import and merge on Spark: binary logs to an intraday tree, an intraday date to history."""

from __future__ import annotations

from sawlog.deephaven_import.spark.load import Import, import_logs
from sawlog.deephaven_import.spark.merge import Merge, merge

__all__ = ["Import", "Merge", "import_logs", "merge"]
