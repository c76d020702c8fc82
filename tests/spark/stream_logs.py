"""Logs that streams follow, and offsets of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.deephaven.log import Logger

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def write_log(directory: Path, first: int, last: int, name: str, day: str | None = None) -> None:
    numbers = list(range(first, last))
    options = {} if day is None else {"column_partition": day}
    with Logger(directory, SCHEMA, namespace="Market", table="Trades", internal_partition=name, **options) as logger:
        logger.write(pa.record_batch([pa.array(numbers), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA))


def log_other(directory: Path, name: str = "w", table: str = "Other") -> None:
    schema = pa.schema([("price", pa.float64()), ("n", pa.string())])
    with Logger(directory, schema, namespace="Market", table=table, internal_partition=name) as logger:
        logger.write(pa.record_batch([pa.array([1.5]), pa.array(["x"])], schema=schema))
