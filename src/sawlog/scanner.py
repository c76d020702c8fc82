"""A dataset's rows under one more choice of columns and rows, as pyarrow's datasets have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.computed import Columns, parse_columns, parse_filter
from sawlog.errors import SchemaError

if TYPE_CHECKING:
    from sawlog.format import Dataset


class Scanner:
    """Rows of a dataset.

    Args:
        dataset: What is read.
        batch_size: Rows per batch, at most; as they come if not given.
    """

    def __init__(self, dataset: Dataset, batch_size: int | None = None) -> None:
        self.dataset = dataset
        self._batch_size = batch_size

    @property
    def schema(self) -> pa.Schema:
        """Schema of the delivered batches."""
        return self.dataset.schema

    projected_schema = schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as record batches, in order."""
        for batch in self.dataset.to_batches():
            for start in range(0, batch.num_rows, self._batch_size or batch.num_rows):
                yield batch.slice(start, self._batch_size)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """The rows as a table in memory."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def count_rows(self) -> int:
        """How many rows there are."""
        return self.dataset.count_rows()

    def head(self, n: int = 10) -> pa.Table:
        """The first `n` rows; nothing behind them is read."""
        return self.dataset.head(n)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream."""
        return exported(self.to_reader(), requested_schema)


def exported(reader: pa.RecordBatchReader, requested: object = None) -> object:
    """A reader as an Arrow C stream.

    Raises:
        SchemaError: For columns that the C stream would call otherwise: its names end at a NUL.
    """
    broken = [name for name in reader.schema.names if "\0" in name]
    if broken:
        raise SchemaError(f"the column {broken[0]!r} has a NUL in its name, with which no other library can take it")
    return reader.__arrow_c_stream__(requested)


def narrowed(dataset: Dataset, columns: Columns | None = None, filter: Any = None) -> Dataset:
    """The same dataset with fewer columns or rows.

    Args:
        dataset: What to choose from.
        columns: Names to deliver, in order, or names and expressions; those of the dataset if not given.
        filter: A `pyarrow.compute.Expression` that holds for every delivered row, besides what the dataset's own does.

    Raises:
        SchemaError: For a column that the view does not have.
    """
    if columns is None and filter is None:
        return dataset
    scan = dataset.scan
    chosen = parse_columns(columns)
    if isinstance(scan.columns, dict) and isinstance(chosen, tuple) and scan.columns.keys() >= set(chosen):
        chosen = {name: scan.columns[name] for name in chosen}
    filter = parse_filter(filter)
    if filter is not None and scan.expression is not None:
        filter = scan.expression & filter
    expression = scan.expression if filter is None else filter
    return dataset.rescan(replace(scan, columns=scan.columns if chosen is None else chosen, expression=expression))
