from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.errors import OptionError, SchemaError
from sawlog.format.query import bind_query, can_match, filter_batch, find_interval

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batch(values: list[int | None]) -> pa.RecordBatch:
    words = [None if value is None else str(value) for value in values]
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64()), pa.array(words, pa.string())], schema=SCHEMA)


def filter_rows(rows: pa.RecordBatch, filters: Sequence[Any]) -> pa.RecordBatch:
    return filter_batch(bind_query(filters, None, rows.schema, rows.schema), rows)


OPERATIONS = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@given(
    st.lists(st.none() | st.integers(-3, 3)),
    st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(-3, 3)), max_size=3),
)
def test_comparisons_are_those_of_python_and_null_never_holds(
    values: list[int | None], conditions: list[tuple[str, int]]
) -> None:
    filters = [("n", op, value) for op, value in conditions]
    expected = [v for v in values if all(v is not None and OPERATIONS[op](v, x) for op, x in conditions)]
    if not conditions:
        expected = values
    assert filter_rows(batch(values), filters).column("n").to_pylist() == expected


def test_membership_filters_choose_rows() -> None:
    values = batch([1, 2, None, 3])
    assert filter_rows(values, [("n", "in", [1, 3])]).column("n").to_pylist() == [1, 3]
    assert filter_rows(values, [("n", "not in", {1, 3})]).column("n").to_pylist() == [2]
    assert filter_rows(values, [("s", "in", ("2",))]).column("s").to_pylist() == ["2"]


@pytest.mark.parametrize(
    ("condition", "error", "message"),
    [
        (("x", "=", 1), SchemaError, "no column 'x'; columns: n, s"),
        (("n", "~", 1), OptionError, "unknown operator '~'"),
        (("n", "=", "one"), SchemaError, "column 'n' is int64"),
        (("n", "in", 1), SchemaError, "column 'n' is int64"),
        ("n = 1", OptionError, "expected \\(column, op, value\\)"),
        (("n", "="), OptionError, "expected \\(column, op, value\\)"),
    ],
)
def test_mistakes_are_named(condition: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bind_query([condition], None, SCHEMA, SCHEMA)  # the wrong type is the point


def test_dictionaries_are_looked_through() -> None:
    column = pa.array(["a", "b", None, "a"]).dictionary_encode()
    values = pa.RecordBatch.from_arrays([column], names=["s"])
    for condition, expected in (
        (("s", "=", "a"), ["a", "a"]),
        (("s", "in", ["a", "c"]), ["a", "a"]),
        (("s", "not in", ["a"]), ["b"]),
        (("s", ">", "a"), ["b"]),
    ):
        assert filter_rows(values, [condition]).column("s").to_pylist() == expected


CONDITIONS = st.lists(
    st.tuples(st.sampled_from(["n", "s"]), st.sampled_from([*OPERATIONS, "in", "not in"]), st.integers(-3, 3)),
    max_size=3,
)


def condition(column: str, op: str, number: int) -> tuple[str, str, Any]:
    value = str(number) if column == "s" else number
    return column, op, [value, value] if op.endswith("in") else value


@given(st.lists(st.none() | st.integers(-3, 3)), st.lists(CONDITIONS, max_size=3), CONDITIONS)
def test_what_is_pruned_holds_no_wanted_row(
    values: list[int | None], groups: list[list[tuple[str, str, int]]], together: list[tuple[str, str, int]]
) -> None:
    rows = batch(values)
    filters = [
        *(condition(*arguments) for arguments in together),
        *([condition(*arguments) for arguments in group] for group in groups),
    ]
    query = bind_query(filters, None, SCHEMA, SCHEMA)
    matches = filter_batch(query, rows)
    for name in SCHEMA.names:
        first, end = find_interval(query, name)
        inside = [value for value in matches[name].to_pylist() if value is not None]
        assert all((first is None or value >= first) and (end is None or value < end) for value in inside)
        for i in range(rows.num_rows):
            is_match = filter_batch(query, rows.slice(i, 1)).num_rows > 0
            assert can_match(query, rows.slice(i, 1)) == is_match
            assert can_match(query, rows.slice(i, 1).select([name])) or not is_match


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("n", "=", 5)], (5, 6)),
        ([("n", ">", 5), ("n", "<", 9)], (6, 9)),
        ([("n", ">=", 5), ("n", "<=", 9), ("n", "!=", 7)], (5, 10)),
        ([("n", "in", [7, 2]), ("n", ">", 2)], (3, 8)),
        ([[("n", "=", 1)], [("n", "in", [4, 5])]], (1, 6)),
        ([[("n", "=", 1)], [("s", "=", "a")]], (None, None)),
        ([[("n", ">", 1)], [("n", "<", 0)]], (None, None)),
        ([("n", "in", [1, None])], (None, None)),
        ([("n", "=", None)], (None, None)),
        ([("n", "is null", None)], (None, None)),
    ],
)
def test_intervals_follow_from_filters(filters: list[Any], expected: tuple[Any, Any]) -> None:
    assert find_interval(bind_query(filters, None, SCHEMA, SCHEMA), "n") == expected


def test_intervals_of_texts() -> None:
    for op, expected in ((">", ("a\0", None)), ("<", (None, "a")), ("<=", (None, "a\0")), ("=", ("a", "a\0"))):
        assert find_interval(bind_query([("s", op, "a")], None, SCHEMA, SCHEMA), "s") == expected


def test_patterns_and_nulls_choose_rows() -> None:
    rows = batch([1, 12, None, 2])
    for pattern_filter, expected in (
        (("s", "like", "1%"), ["1", "12"]),
        (("s", "not like", "1%"), ["2"]),
        (("s", "~", "2$"), ["12", "2"]),
        (("s", "!~", "2$"), ["1"]),
        (("s", "is null", None), [None]),
        (("n", "is not null", None), ["1", "12", "2"]),
    ):
        assert filter_rows(rows, [pattern_filter])["s"].to_pylist() == expected
