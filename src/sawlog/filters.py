"""Filters as in `pyarrow.parquet.read_table`: `(column, op, value)`, all of which must hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.errors import OptionError, SchemaError

_COMPARISONS = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
OPERATORS = (*_COMPARISONS, "in", "not in")


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on one column. Rows where the column is null do not meet it."""

    column: str
    op: str
    value: Any

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Boolean array: which rows of the batch meet the condition."""
        import pyarrow.compute as pc

        column = batch.column(self.column)
        if self.op in _COMPARISONS:
            return pc.call_function(_COMPARISONS[self.op], [column, pa.scalar(self.value, column.type)])
        # Dictionaries are looked through: their values are compared.
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        # To Arrow's sets 0.0 and -0.0 are two values, to every comparison one.
        zeros = [0.0, -0.0] if pa.types.is_floating(kind) and 0.0 in self.value else []
        inside = pc.is_in(column, value_set=pa.array([*self.value, *zeros], kind))
        return inside if self.op == "in" else pc.and_(pc.invert(inside), pc.is_valid(column))


def parse_filters(filters: Iterable[tuple[str, str, Any]] | None, schema: pa.Schema) -> tuple[Filter, ...]:
    """Validate filters against a schema.

    Raises:
        SchemaError: For a column that does not exist or a value that its type cannot hold.
        OptionError: For anything that is not a `(column, op, value)` with a known operator.
    """
    parsed = []
    for given in filters or ():
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
            raise OptionError(f"filter {given!r}: expected (column, op, value)")
        column, op, value = given
        if op not in OPERATORS:
            raise OptionError(f"filter {given!r}: unknown operator {op!r}; known: {', '.join(OPERATORS)}")
        if column not in schema.names:
            raise SchemaError(f"filter {given!r}: no column {column!r}; columns: {', '.join(schema.names)}")
        kind = schema.field(column).type
        try:
            pa.array(value, kind) if op.endswith("in") else pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise SchemaError(f"filter {given!r}: column {column!r} is {kind}: {error}") from error
        parsed.append(Filter(column, op, list(value) if op.endswith("in") else value))
    return tuple(parsed)


def apply_filters(batch: pa.RecordBatch, filters: Iterable[Filter]) -> pa.RecordBatch:
    """The rows of a batch that meet all filters."""
    for condition in filters:
        batch = batch.filter(condition.mask(batch))
    return batch
