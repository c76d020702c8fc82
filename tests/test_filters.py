from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.errors import OptionError, SchemaError
from sawlog.filters import apply_filters, parse_filters

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batch(values: list[int | None]) -> pa.RecordBatch:
    words = [None if value is None else str(value) for value in values]
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64()), pa.array(words, pa.string())], schema=SCHEMA)


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
    filters = parse_filters([("n", op, value) for op, value in conditions], SCHEMA)
    expected = [v for v in values if all(v is not None and OPERATIONS[op](v, x) for op, x in conditions)]
    if not conditions:
        expected = values
    assert apply_filters(batch(values), filters).column("n").to_pylist() == expected


def test_membership() -> None:
    values = batch([1, 2, None, 3])
    assert apply_filters(values, parse_filters([("n", "in", [1, 3])], SCHEMA)).column("n").to_pylist() == [1, 3]
    assert apply_filters(values, parse_filters([("n", "not in", {1, 3})], SCHEMA)).column("n").to_pylist() == [2]
    assert apply_filters(values, parse_filters([("s", "in", ("2",))], SCHEMA)).column("s").to_pylist() == ["2"]


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
        parse_filters([condition], SCHEMA)  # the wrong type is the point


def test_dictionaries_are_looked_through() -> None:
    column = pa.array(["a", "b", None, "a"]).dictionary_encode()
    values = pa.RecordBatch.from_arrays([column], names=["s"])
    for condition, kept in (
        (("s", "=", "a"), ["a", "a"]),
        (("s", "in", ["a", "c"]), ["a", "a"]),
        (("s", "not in", ["a"]), ["b"]),
        (("s", ">", "a"), ["b"]),
    ):
        assert apply_filters(values, parse_filters([condition], values.schema)).column("s").to_pylist() == kept
