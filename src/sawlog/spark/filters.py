"""Filters: those of the option `filters`, and those that Spark pushes down, which it checks again.

Spark (4.1 to 4.3 at least) plans a loaded data frame only once. Filters that the first query pushes down then hold for
all other queries of the data frame, which lose rows; in a union or a join with itself the last filter wins. A source
cannot know. So filters are pushed down only where the user has set the option `pushdown`; the option `filters` prunes
without that danger.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as arrow

from sawlog.errors import OptionError, SawlogError
from sawlog.format.query import parse
from sawlog.guard import Undecodable, call_decoder, decode_json
from sawlog.spark.schema import make_spark_field

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Condition = tuple[str, str, Any]

PUSHDOWN_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark plans a read in this module when filters are pushed down, and in another one when they are not."""

_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
}
_NEGATED = {"EqualTo": "!=", "In": "not in"}
_EXACT = (
    arrow.is_boolean,
    arrow.is_integer,
    arrow.is_string,
    arrow.is_large_string,
    arrow.is_binary,
    arrow.is_large_binary,
    arrow.is_date32,
    arrow.is_decimal128,
)
"""Types whose values compare in Arrow as they do in Spark."""
_MICROSECOND = dt.timedelta(microseconds=1)


def is_pushing_down() -> bool:
    """Return whether this process plans a read with filters pushed down.

    A reader that has `pushFilters` is refused by Spark where `spark.sql.python.filterPushdown.enabled` is false, the
    default, and cannot ask for that setting. Should the module be renamed, filters are no longer pushed, and that is
    all.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHDOWN_MODULE in sys.modules or PUSHDOWN_MODULE in sys.argv or getattr(main, "name", "") == PUSHDOWN_MODULE


def read_filters(text: str | None, schema: pa.Schema) -> tuple[Condition, ...]:
    """Return the option `filters`: a JSON list of `[column, operator, value]`, times as ISO 8601 strings.

    Raises:
        OptionError: When it is something else. Columns, operators and values are for `sawlog.format.query` to check.
    """
    if text is None:
        return ()
    conditions = decode_json(text)
    if not isinstance(conditions, list) or not all(
        isinstance(condition, list) and len(condition) == 3 for condition in conditions
    ):
        raise OptionError(f"option filters={text!r}: expected a JSON list of [column, operator, value]")
    return tuple((column, op, _from_json(value, column, schema)) for column, op, value in conditions)


def _from_json(value: Any, column: str, schema: pa.Schema) -> Any:
    if isinstance(value, list):
        return [_from_json(element, column, schema) for element in value]
    if not isinstance(value, str) or column not in schema.names:
        return value
    kind = schema.field(column).type
    if not arrow.is_timestamp(kind) and not arrow.is_date(kind):
        return value
    parse = dt.datetime.fromisoformat if arrow.is_timestamp(kind) else dt.date.fromisoformat
    parsed = call_decoder(parse, value)
    if isinstance(parsed, Undecodable):
        raise OptionError(f"option filters: column {column!r} is {kind}: {parsed.detail}")
    return parsed


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a column with values, as Spark pushes it down.

    Attributes:
        name: Of Spark's filter, such as `EqualTo`.
        column: The column.
        values: What it is compared with: one value, or those of `In`.
        negated: Whether the opposite holds.
    """

    name: str
    column: str
    values: Sequence[Any]
    negated: bool = False

    @classmethod
    def of(cls, pushed: Any) -> Comparison | None:
        """Return an instance of `pyspark.sql.datasource.Filter`.

        `None` for one that is no comparison of a whole column.
        """
        negated = type(pushed).__name__ == "Not"
        comparison = pushed.child if negated else pushed
        name = type(comparison).__name__
        if name not in (_NEGATED if negated else _OPERATORS) or len(comparison.attribute) != 1:
            return None
        return cls(
            name, comparison.attribute[0], list(comparison.value) if name == "In" else [comparison.value], negated
        )


def translate_filters(filters: Iterable[Any], schema: pa.Schema, spark_schema: StructType) -> tuple[Condition, ...]:
    """Return Spark's filters as sawlog's, as far as they go. No row that Spark would keep is left out.

    Args:
        filters: `Comparison`, or instances of `pyspark.sql.datasource.Filter`.
        schema: The columns as the format delivers them.
        spark_schema: The columns as Spark sees them.
    """
    conditions = []
    for pushed in filters:
        comparison = pushed if isinstance(pushed, Comparison) else Comparison.of(pushed)
        for condition in _translate(comparison, schema, spark_schema) if comparison is not None else ():
            try:
                parse(condition, schema)
            except (SawlogError, pa.ArrowException, TypeError, ValueError, OverflowError):
                continue
            conditions.append(condition)
    return tuple(conditions)


def _translate(comparison: Comparison, schema: pa.Schema, spark_schema: StructType) -> Iterator[Condition]:
    op = (_NEGATED if comparison.negated else _OPERATORS)[comparison.name]
    column = comparison.column
    if column not in schema.names or column not in spark_schema.names:
        return
    kind = schema.field(column).type
    if spark_schema[column].dataType != make_spark_field(schema.field(column)).dataType:
        return
    values = [value for value in comparison.values if value is not None] if op == "in" else comparison.values
    values = [_convert_value(value, kind) for value in values]
    if any(value is None for value in values):
        return
    yield from _make_conditions(column, op, values, kind)


def _convert_value(value: Any, kind: pa.DataType) -> Any:
    """Return the value as Arrow takes it; `None` where the column cannot equal it."""
    if arrow.is_integer(kind) and isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else None
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _make_conditions(column: str, op: str, values: list[Any], kind: pa.DataType) -> Iterator[Condition]:
    value = values if op.endswith("in") else values[0]
    if any(test(kind) for test in _EXACT):
        yield column, op, value
    elif arrow.is_floating(kind):
        # To Spark NaN equals itself and is greater than any number; Arrow compares as IEEE 754 does.
        if op not in (">", ">=") and not any(isinstance(number, float) and math.isnan(number) for number in values):
            yield column, op, value
    elif arrow.is_timestamp(kind) and isinstance(value, dt.datetime) and (value.tzinfo is None) == (kind.tz is None):
        yield from _make_time_conditions(column, op, value)


def _make_time_conditions(column: str, op: str, value: dt.datetime) -> Iterator[Condition]:
    """Yield conditions whose bounds take in a whole microsecond, which is what Spark sees of an instant."""
    if op in ("=", ">="):
        yield column, ">=", value
    if op in ("=", "<="):
        yield column, "<", value + _MICROSECOND
    if op == ">":
        yield column, ">=", value + _MICROSECOND
    if op == "<":
        yield column, "<", value
