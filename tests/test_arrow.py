"""Arrow arrays made without pandas, next to those that Arrow makes with it."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.arrow import (
    Column,
    Reel,
    combine_column,
    fill_null,
    find_index,
    group_rows,
    make_array,
    make_scalar,
    view_values,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(
    *map(dt.datetime.fromisoformat, ("1800-01-01", "2200-01-01")), timezones=st.none() | st.timezones()
)
VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): LONGS,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(allow_nan=False),
    pa.float64(): st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    pa.bool_(): st.booleans(),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.binary(),
    pa.large_binary(): st.binary(),
    pa.dictionary(pa.int32(), pa.string()): TEXTS,
    pa.duration("ms"): LONGS,
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.list_(pa.int64()): st.lists(st.none() | LONGS),
    pa.struct([("a", pa.string()), ("b", pa.float64())]): st.fixed_dictionaries({"a": st.none() | TEXTS}),
    pa.map_(pa.string(), pa.int64()): st.lists(st.tuples(TEXTS, LONGS)),
    pa.decimal128(20, 3): st.decimals(-(10**12), 10**12, places=3),
}
VALUES |= {pa.timestamp(unit, zone): TIMES | LONGS for unit in ("s", "ms", "us") for zone in (None, "UTC")}
VALUES |= {pa.timestamp("ns", "Europe/Berlin"): TIMES}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_values_of_python_become_what_arrow_makes_of_them(kind: pa.DataType) -> None:
    @given(st.lists(st.none() | VALUES[kind], max_size=8))
    def check(values: list[object]) -> None:
        array = make_array(values, kind)
        array.validate(full=True)
        assert array.equals(pa.array(values, kind))

    check()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([300], pa.int8()),
        ([True], pa.int64()),
        (["1"], pa.int64()),
        ([1], pa.string()),
        ([{"a": 1}], pa.list_(pa.int64())),
        ([["x"]], pa.list_(pa.int64())),
        ([dt.datetime(2500, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ns")),
        (["\ud800"], pa.string()),
    ],
)
def test_what_arrow_refuses_is_refused_likewise(values: list[object], kind: pa.DataType) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever Arrow raises
        pa.array(values, kind)
    with pytest.raises(expected.type) as error:
        make_array(values, kind)
    assert str(error.value) == str(expected.value)


def test_scalars_of_arrow_become_an_array() -> None:
    assert make_array([pa.scalar(1), None, pa.scalar(3)], pa.int64()).to_pylist() == [1, None, 3]
    assert make_scalar(pa.scalar("a"), pa.string()).as_py() == "a"


def test_nulls_are_filled_and_values_found() -> None:
    texts = pa.array(["a", None, "b"])
    assert fill_null(texts, "c").to_pylist() == ["a", "c", "b"]
    assert fill_null(pa.chunked_array([texts, texts]), "c").to_pylist() == ["a", "c", "b"] * 2
    assert [find_index(texts, value) for value in ("b", "c")] == [2, -1]
    assert combine_column(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))
    assert combine_column(pa.chunked_array([texts, texts])).to_pylist() == ["a", None, "b"] * 2


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | st.integers(0, 3), st.integers(0, 2)), max_size=50))
def test_groups_are_those_of_arrow(rows: list[tuple[str | None, int | None, int]]) -> None:
    batch = pa.RecordBatch.from_pylist(
        [dict(zip("abc", row, strict=True)) for row in rows],
        pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.int64())]),
    )
    batch = batch.set_column(0, "a", batch["a"].dictionary_encode())
    firsts, group_numbers = group_rows(batch)
    assert (np.sort(firsts) == firsts).all()
    group_rows_found = [
        (*row.values(), count)
        for row, count in zip(batch.take(firsts).to_pylist(), np.bincount(group_numbers), strict=True)
    ]
    expected = pa.Table.from_batches([batch]).group_by(["a", "b", "c"]).aggregate([([], "count_all")]).to_pylist()
    assert sorted(group_rows_found, key=repr) == sorted((tuple(row.values()) for row in expected), key=repr)
    assert batch.take(firsts).take(group_numbers).equals(batch)


def test_rows_without_columns_are_one_group() -> None:
    firsts, group_numbers = group_rows(pa.record_batch({"a": [1, 2]}).select([]))
    assert (firsts.tolist(), group_numbers.tolist()) == ([0], [0, 0])


def test_what_float32_cannot_hold_is_infinite_as_to_arrow() -> None:
    assert make_array([1e300], pa.float32()).to_pylist() == [math.inf] == pa.array([1e300], pa.float32()).to_pylist()


def test_an_array_without_values_may_have_a_buffer_of_any_length() -> None:
    empty = pa.Array.from_buffers(pa.int64(), 0, [None, pa.py_buffer(b"\0")])
    assert view_values(empty, np.int64).tolist() == []


def test_columns_of_a_reel_use_what_others_leave() -> None:
    """The memory of a column that is half full is not copied, and what is left of it is not lost."""
    reel, rows = Reel(), 20_000
    before = pa.total_allocated_bytes()
    buffers = []
    for number in range(9):
        column = Column(np.int64, rows, reel)
        column.values[:] = number  # kernels may write all of it
        buffers.append(column.take(rows // 3))
    assert pa.total_allocated_bytes() - before <= 6 * rows * 8
    for number, buffer in enumerate(buffers):
        assert buffer.size == rows // 3 * 8
        assert buffer.address % 64 == 0
        assert (np.frombuffer(buffer, np.int64) == number).all()


def test_a_column_that_is_not_taken_leaves_its_room_to_the_next() -> None:
    reel = Reel()
    Column(np.int64, 20_000, reel)
    first = Column(np.int64, 20_000, reel).take(20_000)
    assert Column(np.int64, 20_000, reel).take(1).address != first.address
