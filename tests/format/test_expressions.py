"""Expressions choose and compute what pyarrow does of a whole read, however they name their columns."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sawlog.errors import SchemaError
from sawlog.format.scan import OFFSET_COLUMN, PROVENANCE, Projection, Scan

STRUCT = pa.struct([("x", pa.int64()), ("deep", pa.struct([("z", pa.string()), ("n", pa.int64())]))])
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("st", STRUCT),
        ('q"uo\\te\n', pa.int64()),
        ("s", pa.string()),
        ("FieldPath(0)", pa.int64()),
        ("nul\0x", pa.int64()),
        ("f", pa.float64()),
        ("nested.x", pa.string()),
    ]
)
NUMBERS: list[tuple[str | int, ...]] = [
    *((i,) for i, field in enumerate(SCHEMA) if field.type == pa.int64()),
    *((field.name,) for field in SCHEMA if field.type == pa.int64()),
    *itertools.product(("st", 2), ("x", 0)),
    *itertools.product(("st", 2), ("deep", 1), ("n", 1)),
]
TEXTS: list[tuple[str | int, ...]] = [("s",), (4,), ("nested.x",), (8,), *itertools.product(("st", 2), (1,), ("z", 0))]
COMPARE: list[Callable[[Any, Any], Any]] = [pc.equal, pc.not_equal, pc.less, pc.greater_equal]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.none() | st.integers(-2, 2),
    "string": st.none() | st.sampled_from(["", "a", "FieldPath(1)", "b"]),
    "double": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
}


def value(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: value(field.type) for field in kind})
    return VALUES[str(kind)]


BATCHES = st.lists(st.fixed_dictionaries({field.name: value(field.type) for field in SCHEMA}), max_size=6).map(
    lambda rows: pa.RecordBatch.from_pylist(rows, SCHEMA)
)
NUMBER = st.sampled_from(NUMBERS).map(lambda names: pc.field(*names))
TEXT = st.sampled_from(TEXTS).map(lambda names: pc.field(*names))
NUMERIC = st.recursive(
    NUMBER | st.integers(-2, 2).map(pc.scalar), lambda inner: st.builds(lambda a, b: a + b, inner, inner), max_leaves=3
)
CONDITION = st.one_of(
    st.builds(lambda compare, a, b: compare(a, b), st.sampled_from(COMPARE), NUMERIC, NUMERIC),
    st.builds(lambda a, values: a.isin(values), NUMBER, st.lists(st.none() | st.integers(-2, 2), max_size=3)),
    st.builds(lambda a: a.cast(pa.float64()) > 0.5, NUMBER),
    st.builds(lambda a: a < 0.5, NUMBER),
    st.builds(lambda a: pc.match_like(a, "%a%"), TEXT),
    st.builds(lambda a: a == "FieldPath(1)", TEXT),
    st.builds(lambda a: a.is_null(), NUMBER | TEXT | st.sampled_from([pc.field(2), pc.field("st"), pc.field(7)])),
    st.builds(lambda a: a.is_valid(), NUMBER | TEXT),
    st.sampled_from([pc.field(7).is_null(nan_is_null=True), pc.field("f") == 0.0, pc.is_nan(pc.field(7))]),
)
EXPRESSION = st.recursive(
    CONDITION,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
        st.builds(pc.if_else, inner, inner, inner),
    ),
    max_leaves=4,
)
CHOICES = st.none() | st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True).map(tuple)


def delivered(batch: pa.RecordBatch, scan: Scan) -> pa.RecordBatch:
    """What a scan delivers of rows whose columns were decoded, and no others."""
    projection = Projection.of(batch.schema, scan, ())
    return projection.apply(batch.select(projection.decoded.names))


@given(BATCHES, EXPRESSION, CHOICES)
@example(pa.RecordBatch.from_pylist([{"a": 1, "b": 3}, {"a": 3, "b": 1}], SCHEMA), pc.field(1) > pc.field(0), None)
@example(pa.RecordBatch.from_pylist([{"a": 1, "b": 3}], SCHEMA), pc.field(0) == 1, ("s",))
def test_rows_are_those_of_a_whole_read(batch: pa.RecordBatch, expression: Any, columns: Sequence[str] | None) -> None:
    whole_table = pa.Table.from_batches([batch]).filter(expression)
    expected = whole_table if columns is None else whole_table.select(columns)
    rows = delivered(batch, Scan(columns=columns, expression=expression))  # type: ignore[arg-type]
    assert rows.schema == expected.schema
    assert str(rows.to_pylist()) == str(expected.to_pylist())  # NaN equals nothing


@given(BATCHES, NUMERIC, EXPRESSION, EXPRESSION)
def test_columns_are_computed_as_of_a_whole_read(
    batch: pa.RecordBatch, number: Any, computation: Any, filter: Any
) -> None:
    whole_table = pa.Table.from_batches([batch]).filter(filter)
    expected = [
        pa.table({"x": _computed(whole_table, expression)})["x"].to_pylist() for expression in (number, computation)
    ]
    table = delivered(batch, Scan(columns={"n": number, "made": computation}, expression=filter))
    assert [table.column(name).to_pylist() for name in ("n", "made")] == expected


def _computed(table: pa.Table, expression: Any) -> pa.ChunkedArray:
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    declaration = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["x"]), inputs=[rows])
    return declaration.to_table(use_threads=False)["x"]


@pytest.mark.parametrize(
    ("expression", "decoded_names"),
    [
        (pc.field("a") == 1, ["a"]),
        (pc.field("st", "x") == 1, ["st"]),
        (pc.field("nul\0x") == 1, ["nul\0x"]),
        (pc.field('q"uo\\te\n') == 1, ['q"uo\\te\n']),
        (pc.field("FieldPath(0)") == 1, ["FieldPath(0)"]),
        (pc.field("s") == "FieldPath(0)", ["s"]),
        (pc.match_like(pc.field("s"), "st.x"), ["s"]),
        ((pc.field("a") == 1) & pc.field("b").isin([1]), ["a", "b"]),
        (pc.scalar(True), []),
    ],
)
def test_no_more_is_decoded_than_an_expression_names(expression: Any, decoded_names: list[str]) -> None:
    projection = Projection.of(SCHEMA, Scan(columns=("f",), expression=expression))
    assert projection.decoded.names == [name for name in SCHEMA.names if name in {*decoded_names, "f"}]


@pytest.mark.parametrize(
    "expression",
    [
        pc.field(len(SCHEMA)) == 1,
        pc.field(-1) == 1,
        pc.field("st", 7) == 1,
        pc.field(2, "y") == 1,
        pc.field("c") == 1,
        pc.field(len(SCHEMA)).is_valid(),
    ],
)
def test_what_the_view_does_not_have_is_refused(expression: Any) -> None:
    message = "No match for FieldRef.*columns: a, b, st"
    with pytest.raises(SchemaError, match=message):
        Projection.of(SCHEMA, Scan(expression=expression), PROVENANCE)
    with pytest.raises(SchemaError, match=message):
        Projection.of(SCHEMA, Scan(columns={"x": expression}), PROVENANCE)


def test_extra_columns_have_names_and_no_positions() -> None:
    projection = Projection.of(SCHEMA, Scan(columns=("a",), expression=pc.field(OFFSET_COLUMN) > 5))
    assert projection.decoded.names == ["a", OFFSET_COLUMN]


@pytest.mark.parametrize("arguments", [{"expression": pc.field(0) == 1}, {"columns": {"x": pc.field("st", 0)}}])
def test_positions_cannot_be_pickled(arguments: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"FieldPath\(0\).*by position cannot be pickled; name its columns"):
        pickle.dumps(Scan(**arguments))


def test_names_can_be_pickled() -> None:
    scan = Scan(columns={"x": pc.field("st", "x")}, expression=pc.field("a") == 1)
    copy = pickle.loads(pickle.dumps(scan))
    assert copy.expression.equals(scan.expression)
    assert copy.columns["x"].equals(pc.field("st", "x"))
