"""How the rows of a date are arranged: sorted, spread over internal partitions, and written by Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as altered
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer

from sawlog.deephaven_import.history import PARTS_NAME, HistoricalTable, MergeRecord
from sawlog.deephaven_import.parts import PartsWriter
from sawlog.deephaven_import.records import RECORD_NAME
from sawlog.deephaven_import.spark.rows import FRAGMENT, PART, ROW, Placed, named
from sawlog.deephaven_table.encode import values_of
from sawlog.deephaven_table.options import WriteOptions
from sawlog.deephaven_table.writer import LocationWriter
from sawlog.errors import OptionError
from sawlog.spark.cast import cast_batch
from sawlog.spark.digest import column
from sawlog.storage import Staged, Storage

if TYPE_CHECKING:
    from pyspark.sql import Column

MERGED_BYTES = 1 << 30
"""Bytes of column files per historical location, about."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the rows of a date are arranged.

    Attributes:
        group: Columns that they are sorted by, and spread by the first of; None: those that the schema says.
        sort: Columns that they are sorted by further.
        internal_partitions: How many locations they are spread over; None: by size.
    """

    group: tuple[str, ...] | None = None
    sort: tuple[str, ...] = ()
    internal_partitions: int | None = None

    def __post_init__(self) -> None:
        if self.internal_partitions is not None and self.internal_partitions <= 0:
            raise OptionError(f"internal_partitions={self.internal_partitions}: expected 1 or more")


def arrange(
    rows: Placed, groups: Sequence[str], arrangement: Arrangement, writer: LocationsWriter
) -> dict[str, Sequence[Staged]]:
    """Have every task write one internal partition; what is staged, by internal partition."""
    tasks = arrangement.internal_partitions or max(1, -(-rows.size // MERGED_BYTES))
    keys = [key for name in (*groups, *arrangement.sort) for key in _keys(rows, name)]
    order = [*keys, FRAGMENT, ROW]
    if groups:
        spread = rows.frame.repartition(tasks, rows.column(groups[0]))
    else:
        spread = rows.frame.repartitionByRange(tasks, *_columns(order))
    sorted_rows = spread.sortWithinPartitions(*_columns(order))
    written = sorted_rows.mapInArrow(writer, "internal int, staged binary").collect()
    pickled = CPickleSerializer()
    return {str(row["internal"]): pickled.loads(bytes(row["staged"])) for row in sorted(written)}


def contiguous(rows: Placed, groups: Sequence[str]) -> tuple[str, ...]:
    """Grouping columns whose rows follow one another when sorted: values come under one of the columns before."""
    from pyspark.sql import functions as f

    found = list(groups[:1])
    for index, name in enumerate(groups[1:], 1):
        before = [key for other in groups[:index] for key in _keys(rows, other)]
        keys = _keys(rows, name)
        pairs = rows.frame.select(f.struct(*before).alias("before"), f.struct(*keys).alias("value")).distinct()
        if pairs.groupBy("value").count().where(f.col("count") > 1).isEmpty():
            found.append(name)
    return tuple(found)


def _keys(rows: Placed, name: str) -> list[Column]:
    """What tells the values of a column apart as Java does: to Spark 0.0 and -0.0 are one."""
    value = rows.column(name)
    if not pa.types.is_floating(rows.schema.field(name).type):
        return [value]
    from pyspark.sql import functions as f

    return [value, f.when(value == 0, value.cast("string"))]


def _columns(keys: Sequence[Column | str]) -> list[Column]:
    return [column(key) if isinstance(key, str) else key for key in keys]


@dataclass(frozen=True)
class LocationsWriter:
    """Writes the internal partition of the task that it runs in. Picklable."""

    history: HistoricalTable
    date: str
    first: int
    schema: pa.Schema
    options: WriteOptions
    record: MergeRecord

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage a location, if there is a row."""
        internal = self.first + TaskContext.get().partitionId()
        writer: LocationWriter | None = None
        parts = PartsWriter()
        rows = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    writer = writer or self._begin(str(internal))
                    writer.write(cast_batch(named(batch, self.schema), self.schema))
                    parts.add(values_of(batch.column(PART), "<i8"))
                    rows += batch.num_rows
            if writer is not None:
                writer.add_file(RECORD_NAME, altered(self.record, rows=rows).to_json())
                if len(self.record.parts or ()) > 1:
                    writer.add_file(PARTS_NAME, parts.finish())
                staged = CPickleSerializer().dumps(writer.finish())
                yield pa.record_batch({"internal": pa.array([internal], pa.int32()), "staged": [staged]})
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def _begin(self, internal: str) -> LocationWriter:
        return LocationWriter(
            self.history.path(internal, self.date), self.schema, self.options, Storage(), marker=f"{self.record.job}."
        )
