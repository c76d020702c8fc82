"""Logs by the package's own logger, named as the vendor names them, and the truth about what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.ingest.plan import PartitionPlan, Planner, Split
from sawlog.deephaven.ingest.records import Partition, Progress
from sawlog.deephaven.log.logger import Logger
from sawlog.deephaven.log.options import ReadOptions
from sawlog.format.contract import Scan
from sawlog.format.damage import OnDamage
from sawlog.format.planning import bind_scan
from sawlog.format.recognition import get_format
from sawlog.storage import Storage

SCHEMA = pa.schema([("N", pa.int64()), ("Sym", pa.string()), ("Px", pa.float64())])
DATE = "2024-01-01"


def batch(start: int, stop: int) -> pa.RecordBatch:
    """Rows that hold their number."""
    numbers = range(start, stop)
    names = [None if n % 11 == 0 else f"s{n % 5}é" for n in numbers]
    return pa.record_batch({"N": numbers, "Sym": names, "Px": [n / 4 for n in numbers]}, SCHEMA)


class Logs:
    """A directory of logs, each begun a second after the one before it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seconds = 1_700_000_000

    @contextmanager
    def begin(self, internal: str = "vm1", column: str = DATE, table: str = "T") -> Iterator[Logger]:
        self.seconds += 1
        named = {"namespace": "Ns", "table": table, "internal_partition": internal, "column_partition": column}
        with Logger(self.directory, SCHEMA, clock=lambda: self.seconds, **named) as logger:
            yield logger

    def write(self, start: int, stop: int, **settings: str) -> Path:
        with self.begin(**settings) as logger:
            logger.write(batch(start, stop))
        return Path(logger.files[0])


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "logs")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "db"


def intraday(db: Path, table: str = "T") -> pa.Table:
    return sawlog.read(db / "Intraday" / "Ns" / table, format="deephaven_table")


def history(db: Path, **options: Any) -> pa.Table:
    return sawlog.read(db / "Systems" / "Ns" / "Partitions", format="deephaven_table", **options)


def numbers(table: pa.Table) -> list[int]:
    """The rows, by the numbers that `batch` gave them."""
    return table.column("N").to_pylist()


def plan(
    logs: Logs, progress: Progress, location_bytes: int = 1 << 30, on_damage: OnDamage = "fail", **options: object
) -> PartitionPlan:
    """Plan the only partition there is."""
    format = get_format("deephaven_log")
    files = format.select(Storage().find(logs.directory), "rows")
    scan = Scan(options=ReadOptions(partition_column="", **options), on_damage=on_damage)
    dataset = format.open(files, scan)
    projection = bind_scan(dataset, scan).projection
    planner = Planner(dataset.scan, {log.file.path: projection for log in dataset.logs}, location_bytes)
    return planner((Partition("Ns", "T", "vm1", DATE), dataset.logs, progress))


def read_numbers(split: Split) -> list[int]:
    """The numbers of a split's rows."""
    batches = (batch for fragment in split.fragments for batch in fragment.to_batches())
    return [number for batch in batches for number in batch.column("N").to_pylist()]
