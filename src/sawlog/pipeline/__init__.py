"""Pipelines: sources, SQL steps and sinks in one TOML file, run on Spark in batches or as streams.

Only what runs a pipeline imports PySpark; reading and checking its file does not.
"""

from __future__ import annotations

from sawlog.pipeline.settings import Pipeline, load

__all__ = ["Pipeline", "load"]
