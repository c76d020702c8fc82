"""What is wanted, as the scanners of pyarrow's datasets take it: columns that expressions make, and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from sawlog.arrow import computed, one_batch
from sawlog.errors import OptionError
from sawlog.query import fit

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


def sources_of(expressions: Mapping[str, Any], schema: pa.Schema, viewed: pa.Schema) -> tuple[pa.Schema, set[str]]:
    """The schema of computed columns, and the columns that they are computed of.

    Args:
        expressions: What makes each column.
        schema: The columns that have names.
        viewed: Those of the view, which have positions, too.

    Raises:
        SchemaError: When an expression does not fit the columns.
    """
    found = {name: fit(made, schema, viewed, _said({name: made})) for name, made in expressions.items()}
    needed = frozenset().union(*(columns for _, columns in found.values()))
    return pa.schema([(name, kind) for name, (kind, _) in found.items()]), set(needed)


def compute(batch: pa.RecordBatch, expressions: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """The computed columns of a batch.

    Raises:
        SchemaError: When a value cannot be computed.
    """
    if not batch.num_rows:
        return pa.RecordBatch.from_pylist([], schema)
    return one_batch(computed(pa.Table.from_batches([batch]), expressions, _said(expressions)))


def _said(expressions: Mapping[str, Any]) -> str:
    return f"columns={{{', '.join(f'{name!r}: {one}' for name, one in expressions.items())}}}"
