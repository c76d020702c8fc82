"""What is wanted, as the scanners of pyarrow's datasets take it: columns that expressions make, and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from sawlog.arrow import executed, one_batch
from sawlog.errors import OptionError, SchemaError
from sawlog.filters import written_in

Columns: TypeAlias = Sequence[str] | Mapping[str, Any]
"""Names of columns, or names and the `pyarrow.compute.Expression` that makes each."""


def parse_columns(given: Columns | None) -> tuple[str, ...] | dict[str, Any] | None:
    """What was given as `columns=`, if it is that.

    Raises:
        OptionError: When it is something else.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        import pyarrow.compute as pc

        for name, made in given.items():
            if not isinstance(name, str) or not isinstance(made, pc.Expression):
                wanted = "a name and a pyarrow.compute.Expression, such as pc.field('key')"
                raise OptionError(f"columns={{{name!r}: {made!r}}}: expected {wanted}")
        return dict(given)
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise OptionError(f"columns={given!r}: expected a list of names, or a dict of names and expressions")
    return tuple(given)


def parse_filter(given: Any) -> Any:
    """What was given as `filter=`, if it is that.

    Raises:
        OptionError: When it is something else.
    """
    if given is not None:
        import pyarrow.compute as pc

        if not isinstance(given, pc.Expression):
            kind = type(given).__name__
            raise OptionError(f"filter is {kind}: expected a pyarrow.compute.Expression; filters= takes tuples")
    return given


def sources_of(expressions: Mapping[str, Any], schema: pa.Schema) -> tuple[pa.Schema, set[str]]:
    """The schema of computed columns, and the columns that they are computed of.

    Raises:
        SchemaError: When an expression does not fit the columns of `schema`.
    """
    nothing = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    fields: list[pa.Field] = []
    needed: set[str] = set()
    for name, made in expressions.items():
        try:
            fields.append(_table(nothing, {name: made}).schema.field(0))
        except SchemaError as error:
            raise SchemaError(f"{error}; columns: {', '.join(schema.names)}") from error
        needed |= written_in(made, schema)
    return pa.schema(fields), needed


def filter_rows(batch: pa.RecordBatch, expression: Any) -> pa.RecordBatch:
    """The rows of a batch for which an expression is true.

    Raises:
        SchemaError: When it cannot be computed.
    """
    return one_batch(_filtered(pa.Table.from_batches([batch]), expression))


def named_in(expression: Any, schema: pa.Schema) -> set[str]:
    """The columns that an expression may need: Arrow does not tell them, but writes them out.

    Raises:
        SchemaError: When the expression does not fit the columns.
    """
    try:
        _filtered(schema.empty_table(), expression)
    except SchemaError as error:
        raise SchemaError(f"{error}; columns: {', '.join(schema.names)}") from error
    return written_in(expression, schema)


def _filtered(table: pa.Table, expression: Any) -> pa.Table:
    from pyarrow.acero import FilterNodeOptions

    try:
        return executed(table, "filter", FilterNodeOptions(expression))
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(f"filter {expression}: {str(error).splitlines()[0]}") from error


def compute(batch: pa.RecordBatch, expressions: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """The computed columns of a batch.

    Raises:
        SchemaError: When a value cannot be computed.
    """
    return one_batch(_table(batch, expressions)) if batch.num_rows else pa.RecordBatch.from_pylist([], schema)


def _table(batch: pa.RecordBatch, expressions: Mapping[str, Any]) -> pa.Table:
    from pyarrow.acero import ProjectNodeOptions

    made = ProjectNodeOptions(list(expressions.values()), list(expressions))
    try:
        return executed(pa.Table.from_batches([batch]), "project", made)
    except (pa.ArrowException, TypeError) as error:
        told = ", ".join(f"{name!r}: {one}" for name, one in expressions.items())
        raise SchemaError(f"columns={{{told}}}: {str(error).splitlines()[0]}") from error
