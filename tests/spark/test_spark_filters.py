from __future__ import annotations

import datetime as dt
import re
import sys
import types
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sawlog.errors import OptionError
from sawlog.format.query import bind_query, filter_batch
from sawlog.spark.filters import PUSHDOWN_MODULE, is_pushing_down, read_filters, translate_filters
from sawlog.spark.schema import make_spark_schema

UTC = dt.UTC
NAN = float("nan")


@dataclass(frozen=True)
class Binary:
    attribute: tuple[str, ...]
    value: Any


# As in pyspark.sql.datasource, which has them since 4.1; they are known by their names.
EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In, StringContains = (
    type(name, (Binary,), {})
    for name in (
        "EqualTo",
        "EqualNullSafe",
        "GreaterThan",
        "GreaterThanOrEqual",
        "LessThan",
        "LessThanOrEqual",
        "In",
        "StringContains",
    )
)


@dataclass(frozen=True)
class IsNotNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    child: Any


def make_time(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=microseconds)


def translate(filter_: Any, kind: pa.DataType) -> list[tuple[str, Any]]:
    schema = pa.schema([pa.field("x", kind)])
    return [(op, value) for _, op, value in translate_filters([filter_], schema, make_spark_schema(schema))]


@pytest.mark.parametrize(
    ("spark_filter", "kind", "expected"),
    [
        (EqualTo(("x",), 5), pa.int64(), [("=", 5)]),
        (EqualNullSafe(("x",), 5), pa.int64(), [("=", 5)]),
        (GreaterThan(("x",), 5), pa.uint32(), [(">", 5)]),
        (LessThanOrEqual(("x",), "b"), pa.string(), [("<=", "b")]),
        (GreaterThanOrEqual(("x",), bytearray(b"b")), pa.binary(), [(">=", b"b")]),
        (In(("x",), [1, None, 2]), pa.int8(), [("in", [1, 2])]),
        (Not(EqualTo(("x",), True)), pa.bool_(), [("!=", True)]),
        (Not(In(("x",), [1, 2])), pa.int8(), [("not in", [1, 2])]),
        (EqualTo(("x",), Decimal(2**64 - 1)), pa.uint64(), [("=", 2**64 - 1)]),
        (LessThan(("x",), dt.date(2026, 1, 1)), pa.date32(), [("<", dt.date(2026, 1, 1))]),
        (LessThan(("x",), 1.5), pa.float64(), [("<", 1.5)]),
        (EqualTo(("x",), make_time(5)), pa.timestamp("ns", "UTC"), [(">=", make_time(5)), ("<", make_time(6))]),
        (LessThanOrEqual(("x",), make_time(5)), pa.timestamp("ns", "UTC"), [("<", make_time(6))]),
        (GreaterThan(("x",), make_time(5)), pa.timestamp("us", "Asia/Tokyo"), [(">=", make_time(6))]),
        # What sawlog has no word for, or Spark means otherwise, is left to Spark.
        (GreaterThan(("x",), 1.5), pa.float64(), []),
        (EqualTo(("x",), NAN), pa.float64(), []),
        (EqualTo(("x",), Decimal("0.5")), pa.uint64(), []),
        (Not(In(("x",), [1, None])), pa.int8(), []),
        (Not(EqualNullSafe(("x",), 1)), pa.int8(), []),
        (Not(LessThan(("x",), 1)), pa.int8(), []),
        (In(("x",), [make_time(5)]), pa.timestamp("ns", "UTC"), []),
        (EqualTo(("x",), make_time(5)), pa.timestamp("ns"), []),
        (LessThan(("x",), dt.datetime(9999, 1, 1, tzinfo=UTC)), pa.timestamp("ns", "UTC"), []),
        (EqualTo(("x",), "a"), pa.dictionary(pa.int32(), pa.string()), []),
        (EqualTo(("x", "y"), 1), pa.struct([("y", pa.int8())]), []),
        (EqualTo(("y",), 1), pa.int8(), []),
        (EqualTo(("x",), 1000), pa.int8(), []),
        (IsNotNull(("x",)), pa.int8(), []),
        (StringContains(("x",), "a"), pa.string(), []),
    ],
)
def test_filters_of_spark_become_conditions(
    spark_filter: Any, kind: pa.DataType, expected: list[tuple[str, Any]]
) -> None:
    assert translate(spark_filter, kind) == expected


@pytest.mark.parametrize("bound", [-1, 0, 1])
@pytest.mark.parametrize(
    ("make", "holds"),
    [
        (EqualTo, lambda x, bound: x == bound),
        (LessThan, lambda x, bound: x < bound),
        (LessThanOrEqual, lambda x, bound: x <= bound),
        (GreaterThan, lambda x, bound: x > bound),
        (GreaterThanOrEqual, lambda x, bound: x >= bound),
    ],
)
def test_nanoseconds_are_compared_as_spark_sees_them(bound: int, make: Any, holds: Any) -> None:
    nanoseconds = list(range(-2500, 2501, 250))
    schema = pa.schema([pa.field("x", pa.timestamp("ns", "UTC"))])
    batch = pa.record_batch([pa.array(nanoseconds, schema.field(0).type)], schema=schema)
    conditions = translate_filters([make(("x",), make_time(bound))], schema, make_spark_schema(schema))
    values = filter_batch(bind_query(conditions, None, schema, schema), batch).column(0).cast(pa.int64()).to_pylist()
    assert values == [value for value in nanoseconds if holds(value // 1000, bound)]


def test_a_column_taken_as_integer_is_not_compared_as_time() -> None:
    schema = pa.schema([pa.field("x", pa.timestamp("ns"))])
    spark_schema = make_spark_schema(pa.schema([pa.field("x", pa.int64())]))
    assert translate_filters([EqualTo(("x",), 5)], schema, spark_schema) == ()


def test_filters_from_json() -> None:
    schema = pa.schema([("t", pa.timestamp("ns", "UTC")), ("d", pa.date32()), ("n", pa.int64()), ("s", pa.string())])
    text = (
        '[["t", ">=", "1970-01-01T00:00:00.000005Z"], ["d", "in", ["2026-01-01"]], ["n", "=", 5], ["s", "!=", "2026"]]'
    )
    expected = (("t", ">=", make_time(5)), ("d", "in", [dt.date(2026, 1, 1)]), ("n", "=", 5), ("s", "!=", "2026"))
    assert read_filters(text, schema) == expected
    assert len(bind_query(expected, None, schema, schema).parts) == 4
    assert read_filters(None, schema) == ()


@pytest.mark.parametrize("text", ["x", "{}", "[1]", '[["a", "="]]'])
def test_filters_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"option filters={text!r}: expected a JSON list of [column")):
        read_filters(text, pa.schema([]))


def test_filters_with_a_bad_time() -> None:
    with pytest.raises(OptionError, match=r"option filters: column 't' is timestamp\[ns\]: Invalid isoformat"):
        read_filters('[["t", "=", "soon"]]', pa.schema([("t", pa.timestamp("ns"))]))


def test_the_process_tells_whether_spark_pushes_down(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_pushing_down()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["daemon.py", PUSHDOWN_MODULE])
        assert is_pushing_down()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, PUSHDOWN_MODULE, types.ModuleType("pushdown"))
        assert is_pushing_down()


def test_spark_still_has_the_module() -> None:
    import importlib.util

    import pyspark

    if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1):
        assert importlib.util.find_spec(PUSHDOWN_MODULE) is not None
