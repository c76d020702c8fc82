"""Spark finds the `sawlog` data source by this module's name."""
