"""Helpers that tests of pipeline share."""

from __future__ import annotations

STREAM = """\
[pipeline]
mode = "stream"
checkpoint = "state"
[sources.log]
path = "db"
[sinks.rows]
from = "log"
format = "parquet"
path = "out"
"""
