"""Queries: which rows are wanted, as a tree of conditions bound to a schema, whatever their dialect.

Tuples as in `pyarrow.parquet.read_table` are conditions, lists of lists of them alternatives. The texts of the command
line, Spark's filters and its options in JSON are put as such tuples. Arrow's expressions, which DuckDB writes, become
the same tree as far as it has words for them. Rows are chosen by it, and formats prune by it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import pyarrow as pa

from sawlog.arrow import (
    combine_column,
    evaluate_expressions,
    fill_null,
    find_value_type,
    list_schema_metadata,
    make_array,
    make_constant,
    make_scalar,
)
from sawlog.errors import OptionError, SchemaError, suggest_name

_COMPARISONS = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_PATTERN_FUNCTIONS = {
    "~": "match_substring_regex",
    "!~": "match_substring_regex",
    "like": "match_like",
    "not like": "match_like",
}
_NULLS = {"is null": "is_null", "is not null": "is_valid"}
OPERATORS = (*_COMPARISONS, "in", "not in", *_PATTERN_FUNCTIONS, *_NULLS)
"""`~` and `!~` look for a regular expression in text, as RE2 has them; those of nulls have no use for their value."""
_ELEMENT = re.compile(r"""(?P<column>.+)\[(?P<quote>['"])(?P<key>.*)(?P=quote)\]""", re.DOTALL)
_LISTING = ("=", "==", "in")
_SETS = ("in", "not in")
_CALLED = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_MIRRORED_OPERATORS = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column, or on one key of a column of maps. Rows where it is null do not meet it.

    Attributes:
        column: The column.
        op: One of `OPERATORS`.
        value: What it is compared with; a list for `in` and `not in`, a pattern for `~`, `like` and their opposites.
        key: The key, of a column of maps; of repeated ones the last counts.
    """

    column: str
    op: str
    value: Any
    key: str | None = None

    @property
    def values(self) -> Sequence[Any]:
        """The values that the column may have, if the condition lists them."""
        if self.op == "in":
            return list(self.value)
        return [self.value] if self.op in ("=", "==") else []

    def mask_values(self, column: pa.Array) -> pa.Array:
        """Return a boolean array: which values meet the condition; null where that is unknown."""
        import pyarrow.compute as pc

        if self.op in _NULLS:
            return pc.call_function(_NULLS[self.op], [column])
        if self.op in _PATTERN_FUNCTIONS:
            matches = getattr(pc, _PATTERN_FUNCTIONS[self.op])(column, self.value)
            return pc.invert(matches) if self.op in ("!~", "not like") else matches
        if self.op in _COMPARISONS:
            return pc.call_function(_COMPARISONS[self.op], [column, make_scalar(self.value, column.type)])
        kind = find_value_type(column.type)
        # To Arrow's sets 0.0 and -0.0 are two values, to every comparison one.
        zeros = [0.0, -0.0] if pa.types.is_floating(kind) and 0.0 in self.value else []
        inside = pc.is_in(column, value_set=make_array([*self.value, *zeros], kind))
        return inside if self.op == "in" else pc.and_(pc.invert(inside), pc.is_valid(column))


@dataclass(frozen=True, slots=True)
class And:
    """Query that holds where all of its parts do."""

    parts: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Or:
    """Query that holds where one of its parts does."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Query that holds where its part does not."""

    part: Query


@dataclass(frozen=True, slots=True)
class Computed:
    """The result of an expression of Arrow's on some columns."""

    expression: Any
    columns: frozenset[str]


Query: TypeAlias = Condition | And | Or | Not | Computed
"""What holds for a row, does not hold, or is unknown for want of a value; rows for which it holds are wanted."""

EVERY_ROW = And()


def list_columns(query: Query) -> frozenset[str]:
    """Return the columns that a query needs."""
    match query:
        case Condition():
            return frozenset((query.column,))
        case Not():
            return list_columns(query.part)
        case Computed():
            return query.columns
    return frozenset().union(*map(list_columns, query.parts))


def mask(query: Query, batch: pa.RecordBatch) -> pa.Array:
    """Return a boolean array: for which rows a query holds; null where that is unknown.

    Raises:
        SchemaError: When an expression cannot be computed.
    """
    import pyarrow.compute as pc

    match query:
        case Condition():
            column = batch.column(query.column)
            if query.key is not None:
                column = pc.map_lookup(column, make_scalar(query.key, column.type.key_type), "last")
            return query.mask_values(column)
        case Not():
            return pc.invert(mask(query.part, batch))
        case Computed():
            context = f"filter {query.expression}"
            return combine_column(
                evaluate_expressions(pa.Table.from_batches([batch]), {"": query.expression}, context).column(0)
            )
    is_conjunction = isinstance(query, And)
    masks = (mask(part, batch) for part in query.parts)
    return functools.reduce(
        pc.and_kleene if is_conjunction else pc.or_kleene,
        masks,
        make_constant(is_conjunction, pa.bool_(), batch.num_rows),
    )


def filter_batch(query: And, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch for which a query holds; each part sees those for which the parts before it do."""
    for part in query.parts:
        batch = batch.filter(mask(part, batch))
    return batch


def can_match(query: Query, values: pa.RecordBatch) -> bool:
    """Return whether a query may hold for rows that all have the values of `values`, a row of some columns."""
    match query:
        case And():
            return all(can_match(part, values) for part in query.parts)
        case Or():
            return any(can_match(part, values) for part in query.parts)
        case Computed():
            return True
    return not list_columns(query) <= set(values.schema.names) or bool(mask(query, values)[0].as_py())


def can_match_within(query: Query, low: pa.RecordBatch, high: pa.RecordBatch) -> pa.Array:
    """Return a boolean array: whether a query may hold for rows within limits; true where these say nothing of it.

    Args:
        query: The query.
        low: What no value of some columns is less than, a row for each set of rows; null where that is unknown.
        high: Likewise, what none is greater than.
    """
    import pyarrow.compute as pc

    match query:
        case And() | Or():
            is_conjunction = isinstance(query, And)
            parts = (can_match_within(part, low, high) for part in query.parts)
            return functools.reduce(
                pc.and_ if is_conjunction else pc.or_, parts, make_constant(is_conjunction, pa.bool_(), low.num_rows)
            )
        case Condition() if query.key is None and query.column in low.schema.names:
            return fill_null(_can_meet(query, low.column(query.column), high.column(query.column)), True)
    return make_constant(True, pa.bool_(), low.num_rows)


def _can_meet(condition: Condition, low: pa.Array, high: pa.Array) -> pa.Array:
    """Return whether a value between others may meet a condition; null or true where that is unknown."""
    import pyarrow.compute as pc

    if condition.op in ("<", "<="):
        return condition.mask_values(low)
    if condition.op in (">", ">="):
        return condition.mask_values(high)
    if condition.op not in _LISTING:
        return make_constant(True, pa.bool_(), len(low))
    around = [
        pc.and_kleene(Condition("", "<=", value).mask_values(low), Condition("", ">=", value).mask_values(high))
        for value in condition.values
    ]
    return functools.reduce(pc.or_kleene, around, make_constant(False, pa.bool_(), len(low)))


def find_interval(query: Query, column: str) -> tuple[Any, Any]:
    """Return where the integers, texts or bytes of a column are if a query holds.

    Returns:
        The least of them, and the first after them; None where there is no such bound.
    """
    match query:
        case Condition():
            return _find_interval(query) if query.column == column and query.key is None else (None, None)
        case And():
            intervals = [find_interval(part, column) for part in query.parts]
            firsts, ends = ([limits[side] for limits in intervals if limits[side] is not None] for side in (0, 1))
            return max(firsts, default=None), min(ends, default=None)
        case Or():
            first, end = zip(*(find_interval(part, column) for part in query.parts), strict=True)
            return None if None in first else min(first), None if None in end else max(end)
    return None, None


def _find_interval(condition: Condition) -> tuple[Any, Any]:
    op, values = condition.op, condition.values or [condition.value]
    for kind, step in ((Integral, 1), (str, "\0"), (bytes, b"\0")):
        if all(isinstance(value, kind) for value in values):
            low, high = min(values), max(values)
            first, end = low + step if op == ">" else low, high if op == "<" else high + step
            return first if op in (*_LISTING, ">", ">=") else None, end if op in (*_LISTING, "<", "<=") else None
    return None, None


def iterate_conditions(query: Query) -> Iterator[Condition]:
    """Yield conditions on single columns that hold wherever a query does."""
    if isinstance(query, Condition):
        yield query
    elif isinstance(query, And):
        yield from itertools.chain.from_iterable(map(iterate_conditions, query.parts))


def bind_query(filters: Iterable[Any], expression: Any, schema: pa.Schema, viewed: pa.Schema) -> And:
    """Return what is wanted, as one tree.

    Args:
        filters: Tuples that must all hold, or lists of tuples of which one list must, as pyarrow takes them.
        expression: A `pyarrow.compute.Expression` that must hold, too, or None.
        schema: The columns that have names.
        viewed: Those of the view, which have positions, too.

    Raises:
        SchemaError: For a column that does not exist, a value that its type cannot hold, or an expression that does not
            fit the columns.
        OptionError: For anything that is not a `(column, op, value)` with a known operator.
    """
    plain: list[Query] = []
    groups: list[And] = []
    for group in filters:
        if isinstance(group, list) and all(isinstance(condition, tuple) for condition in group):
            groups.append(And(tuple(parse(condition, schema) for condition in group)))
        else:
            plain.append(parse(group, schema))
    parts = [*plain, *(groups[0].parts if len(groups) == 1 else [Or(tuple(groups))] if groups else ())]
    if expression is not None:
        kind, columns = resolve_expression(expression, schema, viewed, f"filter {expression}")
        if not pa.types.is_boolean(kind):
            raise SchemaError(f"filter {expression}: expected a condition, and it is {kind}")
        arrow_parts = _Parts.of(expression)
        query = None if arrow_parts is None else arrow_parts.take(schema)
        translation, exact = query if isinstance(query, tuple) else _UNKNOWN
        parts += translation.parts if isinstance(translation, And) else [translation]
        if not exact:
            parts.append(Computed(expression, columns))
    return And(tuple(parts))


def parse(triple: tuple[str, str, Any], schema: pa.Schema, context: str = "") -> Condition:
    """Return a condition, bound to a schema.

    Raises:
        SchemaError: For a column that does not exist or a value that its type cannot hold.
        OptionError: For anything that is not a `(column, op, value)` with a known operator.
    """
    context = context or f"filter {triple!r}"
    if not isinstance(triple, Sequence) or isinstance(triple, str) or len(triple) != 3:
        raise OptionError(f"{context}: expected (column, op, value)")
    column, op, value = triple
    if op not in OPERATORS:
        raise OptionError(f"{context}: unknown operator {op!r}; known: {', '.join(OPERATORS)}")
    name, key, kind = find_element(column, schema, context)
    if op in _PATTERN_FUNCTIONS and not _is_text(kind):
        raise OptionError(
            f"{context}: unknown operator {op!r} for column {column!r}, {kind}: {op} is for text and bytes"
        )
    condition = Condition(name, op, list(value) if op in _SETS and isinstance(value, Iterable) else value, key)
    try:
        condition.mask_values(pa.nulls(1, kind))
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(f"{context}: column {column!r} is {kind}: {str(error).splitlines()[0]}") from error
    return condition


def find_element(column: str, schema: pa.Schema, context: str) -> tuple[str, str | None, pa.DataType]:
    """Return what a condition names: a column, or a key of a column of maps, as in `tags['job']`.

    Returns:
        The column, the key if there is one, and the type of its values.

    Raises:
        SchemaError: When the schema does not have it.
    """
    if column in schema.names:
        return column, None, schema.field(column).type
    match = _ELEMENT.fullmatch(column)
    if match is not None and match["column"] in schema.names:
        kind = schema.field(match["column"]).type
        if pa.types.is_map(kind) and _is_text(kind.key_type):
            return match["column"], match["key"], kind.item_type
    raise SchemaError(
        f"{context}: no column {column!r}{suggest_name(column, schema.names)}; columns: {', '.join(schema.names)}"
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind))


def resolve_expression(
    expression: Any, schema: pa.Schema, viewed: pa.Schema, context: str
) -> tuple[pa.DataType, frozenset[str]]:
    """Return the type that an expression computes, and the columns that it needs.

    Other arguments are those of `bind_query`.

    Raises:
        SchemaError: When it does not fit the columns.
    """
    names = find_named_columns(expression)
    bound_schema = viewed if names is None else schema
    try:
        (field,) = evaluate_expressions(pa.Table.from_batches([], bound_schema), {"": expression}, context).schema
    except SchemaError as error:
        raise SchemaError(f"{error}; columns: {', '.join(bound_schema.names)}") from error
    return field.type, frozenset(viewed.names) if names is None else names


def find_named_columns(expression: Any) -> frozenset[str] | None:
    """Return columns that an expression of Arrow's names; None if it has positions for some, nested ones included."""
    parts = _Parts.of(expression)
    if parts is None:
        return None
    parts.take(pa.schema([]))
    return frozenset(parts.columns)


_UNKNOWN = EVERY_ROW, False
"""A query that holds wherever an expression of Arrow's does, and whether the two are equivalent."""


class _Parts:
    """The parts of an expression of Arrow's, which has no way to look into one from Python.

    It pickles an expression as a schema whose metadata are its parts in reading order. For positions of columns there
    is no such form: what they mean is known to a whole row only.
    """

    def __init__(self, pickled: pa.Buffer) -> None:
        file = pa.ipc.open_file(pickled)
        self._remaining = list_schema_metadata(file.schema)[::-1]
        self._values = file.get_batch(0).columns
        self.columns: set[str] = set()

    @classmethod
    def of(cls, expression: Any) -> _Parts | None:
        """Return the parts of an expression; None if it has positions."""
        try:
            _, (pickled,) = expression.__reduce__()
        except pa.ArrowNotImplementedError:
            return None
        return cls(pickled)

    def take(self, schema: pa.Schema) -> Any:
        """Return the next part with all that belongs to it: a name, a scalar, a `_translate_call`, or None."""
        part, value = self._remaining.pop()
        if part == "literal":
            return self._values[int(value)][0]
        if part == "field_ref":
            self.columns.add(value)
            return value
        if part == "nested_field_ref":
            self.columns.add(self._remaining[-1][1])
            del self._remaining[-int(value) :]
            return None
        operands, options = [], None
        while self._remaining[-1][0] not in ("options", "end"):
            operands.append(self.take(schema))
        if self._remaining[-1][0] == "options":
            options = self._values[int(self._remaining.pop()[1])][0]
        self._remaining.pop()
        return _translate_call(value, operands, options, schema)


def _translate_call(function: str, operands: list[Any], options: Any, schema: pa.Schema) -> tuple[Query, bool]:
    """Return a call of one of Arrow's functions as a query; see `_UNKNOWN`."""
    known_parts = [operand if isinstance(operand, tuple) else _UNKNOWN for operand in operands]
    exact = all(part_exact for _, part_exact in known_parts)
    match function:
        case "and" | "and_kleene":
            parts = [
                part
                for known_part, _ in known_parts
                for part in (known_part.parts if isinstance(known_part, And) else [known_part])
            ]
            return And(tuple(parts)), exact and function == "and_kleene"
        case "or" | "or_kleene" if _UNKNOWN not in known_parts:
            return Or(tuple(known_part for known_part, _ in known_parts)), exact and function == "or_kleene"
        case "invert" if exact:
            return Not(known_parts[0][0]), True
    if len(operands) == 2 and function in _CALLED:
        op = _CALLED[function]
        if isinstance(operands[0], pa.Scalar):
            operands, op = operands[::-1], _MIRRORED_OPERATORS[op]
    elif function == "is_in" and options["null_matching_behavior"].as_py() == 0:
        op, operands = "in", [*operands, options["value_set"].values]
    elif function == "is_valid" or (function == "is_null" and not options["nan_is_null"].as_py()):
        op, operands = "is null" if function == "is_null" else "is not null", [*operands, None]
    else:
        return _UNKNOWN
    column, literal = operands
    if not isinstance(column, str) or column not in schema.names:
        return _UNKNOWN
    value = _fit_literal(literal, schema.field(column).type)
    return _UNKNOWN if value is NotImplemented else (Condition(column, op, value), True)


def _fit_literal(literal: Any, kind: pa.DataType) -> Any:
    """Return a literal of an expression as the value of a condition.

    NotImplemented where Arrow would compare another type.
    """
    if literal is None:
        return None
    if not isinstance(literal, (pa.Scalar, pa.Array)):
        return NotImplemented
    of = find_value_type(kind)
    among = isinstance(literal, pa.Array)
    alike = literal.type == of or (
        pa.types.is_integer(literal.type) and (pa.types.is_integer(of) or pa.types.is_float64(of))
    )
    if not alike or (among and pa.types.is_floating(of)) or (of != kind and not _is_text(of)):
        return NotImplemented
    try:
        value = literal.cast(of)
    except pa.ArrowInvalid:
        return NotImplemented
    if pa.types.is_temporal(of) and not pa.types.is_date(of):
        value = value.cast(pa.int64() if of.bit_width == 64 else pa.int32())  # Python has no nanoseconds
    return value.to_pylist() if among else value.as_py()
