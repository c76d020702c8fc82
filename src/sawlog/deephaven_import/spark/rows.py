"""The rows of locations as a data frame that loses nothing of them: times to the nanosecond, and each row's place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array
from sawlog.spark.cast import cast_batch
from sawlog.spark.schema import arrow_schema, has_integers, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sawlog.format import Dataset, Fragment

FRAGMENT, ROW = "place:fragment", "place:row"
"""Where a row stood: number of the fragment, and number in it. No column of Deephaven can be called like this."""
PLACE = (pa.field(FRAGMENT, pa.int64(), nullable=False), pa.field(ROW, pa.int64(), nullable=False))


def placed_rows(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The rows of a dataset, with `FRAGMENT` and `ROW`; times are integers in the unit of their column."""
    schema = spark_schema(pa.schema([*(transported(field) for field in dataset.schema), *PLACE]))
    number = itertools.count()
    tasks = [[(next(number), fragment) for fragment in task] for task in dataset.tasks()]
    return spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(_Reader(tasks, schema), schema)


def values(rows: DataFrame) -> DataFrame:
    """The rows without their places."""
    return rows.drop(FRAGMENT, ROW)


def transported(field: pa.Field) -> pa.Field:
    """The field as which a column goes through Spark, which has no nanoseconds."""
    return pa.field(field.name, _transported(field.type), field.nullable)


def _transported(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([transported(kind.field(i)) for i in range(kind.num_fields)])
    return pa.int64() if has_integers(kind) else kind


class _Reader:
    """Reads fragments by the numbers of their tasks. Picklable."""

    def __init__(self, tasks: Sequence[Sequence[tuple[int, Fragment]]], schema: StructType) -> None:
        self._tasks = tasks
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the tasks that are asked for."""
        target = arrow_schema(self._schema)
        for asked in batches:
            for task in asked.column("id").to_pylist():
                for number, fragment in self._tasks[task]:
                    row = 0
                    for batch in fragment.to_batches():
                        yield cast_batch(_placed(batch, number, row), target)
                        row += batch.num_rows


def _placed(batch: pa.RecordBatch, number: int, row: int) -> pa.RecordBatch:
    """A batch with the places of its rows, of which the first has the number `row` in its fragment."""
    rows = np.arange(row, row + batch.num_rows, dtype=np.int64)
    columns = (np.full(batch.num_rows, number, np.int64), rows)
    for field, column in zip(PLACE, columns, strict=True):
        batch = batch.append_column(field, fixed_array(pa.int64(), column))
    return batch
