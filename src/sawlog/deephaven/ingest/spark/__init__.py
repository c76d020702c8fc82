"""Deephaven's import and merge on Spark: binary logs to an intraday tree, an intraday date to history."""

from __future__ import annotations

from sawlog.deephaven.ingest.publication import Import
from sawlog.deephaven.ingest.spark.follow import LogPoll, follow_logs
from sawlog.deephaven.ingest.spark.load import import_logs
from sawlog.deephaven.ingest.spark.merge import Merge, merge
from sawlog.deephaven.ingest.spark.nightly import MergedDate, Nightly, nightly

__all__ = ["Import", "LogPoll", "Merge", "MergedDate", "Nightly", "follow_logs", "import_logs", "merge", "nightly"]
