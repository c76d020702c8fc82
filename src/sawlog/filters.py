"""Filters as in `pyarrow.parquet.read_table`: `(column, op, value)` in lists, lists of such lists, and expressions."""

from __future__ import annotations

import functools
import itertools
import operator
import re
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
_PATTERNS = ("~", "!~")
OPERATORS = (*_COMPARISONS, "in", "not in", *_PATTERNS)
"""`~` and `!~` look for a regular expression in text, as RE2 has them."""
_ELEMENT = re.compile(r"""(?P<column>.+)\[(?P<quote>['"])(?P<key>.*)(?P=quote)\]""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on one column, or on one key of a column of maps. Rows where it is null do not meet it.

    Attributes:
        column: The column.
        op: One of `OPERATORS`.
        value: What it is compared with; a list for `in` and `not in`, a regular expression for `~` and `!~`.
        key: The key, of a column of maps; of repeated ones the last counts.
    """

    column: str
    op: str
    value: Any
    key: str | None = None

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Boolean array: which rows of the batch meet the condition."""
        column = batch.column(self.column)
        return self.met(column if self.key is None else _lookup(column, column.type, self.key))

    def met(self, column: pa.Array) -> pa.Array:
        """Boolean array: which values meet the condition."""
        import pyarrow.compute as pc

        if self.op in _PATTERNS:
            found = pc.match_substring_regex(column, self.value)
            return found if self.op == "~" else pc.invert(found)
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
        found = element_of(column, schema)
        if found is None:
            raise SchemaError(f"filter {given!r}: no column {column!r}; columns: {', '.join(schema.names)}")
        name, key, kind = found
        if op in _PATTERNS and not _is_text(kind):
            known = ", ".join(one for one in OPERATORS if one not in _PATTERNS)
            raise OptionError(
                f"filter {given!r}: unknown operator {op!r} for column {column!r}, {kind}; known: {known}"
            )
        try:
            _check_value(op, value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise SchemaError(f"filter {given!r}: column {column!r} is {kind}: {error}") from error
        parsed.append(Filter(name, op, list(value) if op.endswith("in") else value, key))
    return tuple(parsed)


def element_of(column: str, schema: pa.Schema) -> tuple[str, str | None, pa.DataType] | None:
    """What a filter names: a column, or a key of a column of maps, as in `tags['job']`.

    Returns:
        The column, the key if there is one, and the type of its values; None if the schema does not have it.
    """
    if column in schema.names:
        return column, None, schema.field(column).type
    match = _ELEMENT.fullmatch(column)
    if match is None or match["column"] not in schema.names:
        return None
    kind = schema.field(match["column"]).type
    if not pa.types.is_map(kind) or not _is_text(kind.key_type):
        return None
    return match["column"], match["key"], kind.item_type


def _check_value(op: str, value: Any, kind: pa.DataType) -> None:
    if op in _PATTERNS:
        import pyarrow.compute as pc

        pc.match_substring_regex(pa.array([""]), value)
    elif op.endswith("in"):
        pa.array(value, kind)
    else:
        pa.scalar(value, kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind))


def _lookup(column: Any, kind: pa.DataType, key: str) -> Any:
    """The values of a key of maps: an array, or an expression."""
    import pyarrow.compute as pc

    return pc.map_lookup(column, pa.scalar(key, kind.key_type), "last")


def apply_filters(batch: pa.RecordBatch, filters: Iterable[Filter]) -> pa.RecordBatch:
    """The rows of a batch that meet all filters."""
    for condition in filters:
        batch = batch.filter(condition.mask(batch))
    return batch


def split_filters(filters: Iterable[Any] | None) -> tuple[list[Any], list[list[Any]]]:
    """Conditions that must all hold, and groups of conditions of which one group must hold.

    Args:
        filters: A list of tuples, or a list of lists of tuples, as pyarrow takes them.
    """
    given = list(filters or ())
    groups = [group for group in given if isinstance(group, list) and all(isinstance(one, tuple) for one in group)]
    together = [one for one in given if one not in groups]
    return (together, groups) if len(groups) > 1 else ([*together, *itertools.chain(*groups)], [])


def any_of(groups: Iterable[Iterable[Any]], schema: pa.Schema) -> Any:
    """Groups of conditions as one expression, which holds where one of the groups does.

    Raises:
        SchemaError: For a column that does not exist or a value that its type cannot hold.
        OptionError: For anything that is not a `(column, op, value)` with a known operator.
    """
    expressions = [all_of(parse_filters(group, schema), schema) for group in groups]
    return functools.reduce(operator.or_, expressions)


def all_of(filters: Iterable[Filter], schema: pa.Schema) -> Any:
    """Conditions as one expression, which holds where all of them do."""
    import pyarrow.compute as pc

    return functools.reduce(operator.and_, (_expression(one, schema) for one in filters), pc.scalar(True))


def _expression(condition: Filter, schema: pa.Schema) -> Any:
    import pyarrow.compute as pc

    column = pc.field(condition.column)
    kind = schema.field(condition.column).type
    if condition.key is not None:
        column, kind = _lookup(column, kind, condition.key), kind.item_type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if condition.op in _PATTERNS:
        found = pc.match_substring_regex(column, condition.value)
        return found if condition.op == "~" else ~found
    if condition.op in _COMPARISONS:
        return getattr(pc, _COMPARISONS[condition.op])(column, pa.scalar(condition.value, kind))
    zeros = [0.0, -0.0] if pa.types.is_floating(kind) and 0.0 in condition.value else []
    inside = column.isin(pa.array([*condition.value, *zeros], kind))
    return inside if condition.op == "in" else ~inside & column.is_valid()


def written_in(expression: Any, schema: pa.Schema) -> set[str]:
    """The columns whose names are written in an expression, among them all that it needs."""
    text = str(expression)
    return {name for name in schema.names if name in text}
