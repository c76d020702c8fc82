"""A dataset for whoever takes datasets of pyarrow only, and pushes columns and filters into them: DuckDB, Polars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from sawlog.errors import OptionError
from sawlog.format import Dataset
from sawlog.scanner import Scanner, narrowed


class ArrowDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """A dataset of sawlog that is one of pyarrow, as far as reading goes.

    Args:
        dataset: What is read.
    """

    def __init__(self, dataset: Dataset) -> None:
        if isinstance(dataset.scan.columns, dict):
            raise OptionError("a dataset whose columns are computed: let the query compute them")
        self._dataset = dataset

    @property
    def schema(self) -> pa.Schema:
        """Columns of the dataset."""
        return self._dataset.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, batch_size: int | None = None, **_: Any
    ) -> Scanner:
        """The rows that meet an expression, with some of the columns; pyarrow's other settings mean nothing."""
        if columns is None:
            columns = None if filter is None else self.schema.names
        return Scanner(narrowed(self._dataset, columns, filter), batch_size)

    def to_batches(self, *args: Any, **settings: Any) -> Iterator[pa.RecordBatch]:
        """See `scanner`."""
        return self.scanner(*args, **settings).to_batches()

    def to_table(self, *args: Any, **settings: Any) -> pa.Table:
        """See `scanner`."""
        return self.scanner(*args, **settings).to_table()

    def head(self, num_rows: int, *args: Any, **settings: Any) -> pa.Table:
        """See `scanner`."""
        return self.scanner(*args, **settings).head(num_rows)

    def count_rows(self, filter: Any = None, **_: Any) -> int:
        """How many rows there are that meet an expression."""
        return narrowed(self._dataset, None, filter).count_rows()

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArrowDataset, (self._dataset,))
