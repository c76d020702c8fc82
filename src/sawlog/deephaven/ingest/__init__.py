"""Deephaven's data import server: logs to locations of an intraday tree, and the progress of each log.

The jobs themselves run on Spark: see `sawlog.deephaven.ingest.spark`.
"""
