"""The rows of locations as a data frame that loses nothing of them: times to the nanosecond, and each row's place.

Spark does not tell `px` from `Px`, so columns go through it by their numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array
from sawlog.deephaven_import.parts import read_parts
from sawlog.spark.cast import cast_array
from sawlog.spark.digest import column
from sawlog.spark.schema import arrow_schema, has_integers, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sawlog.format import Dataset, Fragment

FRAGMENT, ROW, PART = "place:fragment", "place:row", "place:part"
"""Where a row stood: number of the fragment, and number in it; and the part that it is of."""
PLACE = tuple(pa.field(name, pa.int64(), nullable=False) for name in (FRAGMENT, ROW, PART))


@dataclass(frozen=True, slots=True)
class Kept:
    """Which rows of a merged location are taken.

    Attributes:
        parts: The numbers that the parts to take have now, by those that they had when the location was made.
    """

    parts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment to read.

    Attributes:
        fragment: The fragment.
        part: The part that its rows are of, or which of its rows are taken.
    """

    fragment: Fragment
    part: int | Kept


class Placed:
    """Rows of locations, with their places.

    Args:
        spark: The session.
        tasks: Fragments by task, in order.
        schema: The columns, by name; locations that do not have one have nulls.

    Attributes:
        size: Bytes of the fragments.
        frame: The rows; see `names`.
    """

    def __init__(self, spark: SparkSession, tasks: Sequence[Sequence[Piece]], schema: pa.Schema) -> None:
        self.schema = schema
        fields = [pa.field(_number(i), _transported(field.type)) for i, field in enumerate(schema)]
        self._spark_schema = spark_schema(pa.schema([*fields, *PLACE]))
        count = itertools.count()
        numbered = [[(next(count), piece) for piece in task] for task in tasks]
        ids = spark.range(0, len(tasks), 1, max(len(tasks), 1))
        self.size = sum(piece.fragment.size for task in tasks for piece in task)
        self.frame: DataFrame = ids.mapInArrow(_Reader(numbered, schema, self._spark_schema), self._spark_schema)

    def column(self, name: str) -> Column:
        """A column by its name."""
        return column(_number(self.schema.names.index(name)))

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of the columns, by those that they have in the frame."""
        return {_number(i): name for i, name in enumerate(self.schema.names)}


def named(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of the frame with the names of the columns."""
    arrays = [batch.column(_number(i)) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def pieces(dataset: Dataset, parts: Mapping[str, int | Kept]) -> list[list[Piece]]:
    """The fragments of a dataset by task; which parts they are of is told by the paths of their locations."""
    return [[Piece(fragment, parts[fragment.path]) for fragment in task] for task in dataset.tasks()]


def united(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """All columns by name; of several types the first counts."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            fields.setdefault(field.name, field)
    return pa.schema(list(fields.values()))


def _number(index: int) -> str:
    return f"c{index}"


def _transported(kind: pa.DataType) -> pa.DataType:
    """The type as which a column goes through Spark, which has no nanoseconds."""
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_transported(one.type)) for one in kind])
    return pa.int64() if has_integers(kind) else kind


class _Reader:
    """Reads fragments by the numbers of their tasks. Picklable."""

    def __init__(
        self, tasks: Sequence[Sequence[tuple[int, Piece]]], schema: pa.Schema, spark_schema: StructType
    ) -> None:
        self._tasks = tasks
        self._schema = schema
        self._spark_schema = spark_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the tasks that are asked for."""
        target = arrow_schema(self._spark_schema)
        for asked in batches:
            for task in asked.column("id").to_pylist():
                for number, piece in self._tasks[task]:
                    yield from self._read(number, piece, target)

    def _read(self, number: int, piece: Piece, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        fragment: Any = piece.fragment
        parts = read_parts(fragment.path) if isinstance(piece.part, Kept) else None
        row = 0
        for whole in fragment.to_batches():
            batch, rows = whole, np.arange(row, row + whole.num_rows, dtype=np.int64)
            row += whole.num_rows
            if isinstance(piece.part, Kept):
                old = np.zeros(batch.num_rows, np.int64) if parts is None else parts.of(rows + fragment.start)
                numbers = [piece.part.parts.get(part, -1) for part in range(int(old.max(initial=0)) + 1)]
                part = np.array([*numbers, -1])[old]
                mask = part >= 0
                batch, rows, part = batch.filter(pa.array(mask)), rows[mask], part[mask]
            else:
                part = np.full(batch.num_rows, piece.part, np.int64)
            arrays = [self._column(batch, field, target.field(i)) for i, field in enumerate(self._schema)]
            places = (np.full(batch.num_rows, number, np.int64), rows, part)
            arrays += [fixed_array(pa.int64(), np.ascontiguousarray(place, np.int64)) for place in places]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)

    @staticmethod
    def _column(batch: pa.RecordBatch, field: pa.Field, target: pa.Field) -> pa.Array:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, target.type)
        return cast_array(batch.column(field.name), target.type)
