"""What Deephaven's data import server keeps: logs to locations of an intraday tree, and how far each log was taken.

The jobs themselves run on Spark: see `sawlog.deephaven.ingest.spark`.
"""
