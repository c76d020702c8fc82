"""Kernels of deletes, dictionaries and cells against plain Python. Run again where every memory access is checked."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawlog.errors import FormatError
from sawlog.guard import Undecodable
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import UInt64
from sawlog.milvus import kernels
from sawlog.milvus.deletes import kernels as delete_kernels
from sawlog.milvus.deletes.index import DeleteIndex
from sawlog.milvus.deletes.log import Deletes, parse_cell, parse_text_deletes
from sawlog.milvus.layout import DataType
from sawlog.milvus.stats import BloomFilter

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.integers(0, (1 << 63) - 1)
STRANGE_CELLS = [
    '{"pk":1,"ts":2,"pkType":5} ',
    '{"pk":01,"ts":2,"pkType":5}',
    '{"pk":1,"ts":-2,"pkType":5}',
    "1,2",
    "",
    "{",
    "null",
]
STRANGE_CELLS += [
    '{"ts":2,"pk":1,"pkType":5}',
    '{"pk":9223372036854775808,"ts":2,"pkType":5}',
    '{"pk":"\\u00e9","ts":2,"pkType":21}',
]
STRANGE_CELLS += [
    '{"pk":"a","ts":2,"pkType":5}',
    '{"pk":1,"ts":2,"pkType":21}',
    '{"pk":-,"ts":2,"pkType":5}',
    '{"pk":"a',
    '{"pk":"a"',
]


@kernel
def _compute_remainder(value: UInt64, divisor: UInt64) -> UInt64:
    return kernels.compute_remainder(value, divisor, np.uint64(0xFFFFFFFFFFFFFFFF) // divisor)


@given(st.integers(0, (1 << 64) - 1), st.integers(1, (1 << 64) - 1) | st.integers(1, 9))
def test_a_remainder_without_a_division(value: int, divisor: int) -> None:
    for number in {value, value - value % divisor, max(value - value % divisor - 1, 0), (1 << 64) - 1}:
        assert _compute_remainder(number, divisor) == number % divisor


def test_a_filter_of_no_bits_is_none() -> None:
    """It was asked for a bit of its first word, which it does not have."""
    with pytest.raises(FormatError, match="0 bits"):
        BloomFilter.of_json({"m": 0, "k": 3, "b": base64.b64encode(bytes(8)).decode()})


def cell(key: int | str, time: int) -> str:
    kind = DataType.Int64 if isinstance(key, int) else DataType.VarChar
    return json.dumps({"pk": key, "ts": time, "pkType": int(kind)}, ensure_ascii=False, separators=(",", ":"))


def parse_cells(cells: list[str]) -> tuple[list[tuple[Any, int]], list[int]]:
    bad: list[tuple[int, str]] = []
    pairs = [
        pair
        for delete in parse_text_deletes(pa.array(cells, pa.string()), 0, bad)
        for pair in zip(*delete, strict=True)
    ]
    return [(key.as_py(), time.as_py()) for key, time in pairs], [row for row, _ in bad]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.builds(cell, st.one_of(INT64, st.text(max_size=6)), TIMES), st.sampled_from(STRANGE_CELLS)))
)
def test_cells_are_read_as_json_is(cells: list[str]) -> None:
    expected, wrong = [], []
    for row, text in enumerate(cells):
        parsed = parse_cell(text)
        if isinstance(parsed, Undecodable):
            wrong.append(row)
        else:
            expected.append(parsed[:2])
    parsed_rows, bad = parse_cells(cells)
    assert bad == wrong
    assert sorted(parsed_rows, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("keys", [[5, -5, 0, (1 << 63) - 1, 1 - (1 << 63)], ["", "a", "héllo", "x" * 40]])
def test_usual_cells_take_no_detour(keys: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.milvus.deletes.log.parse_cell", None)
    assert parse_cells([cell(key, 7) for key in keys]) == ([(key, 7) for key in keys], [])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 5)), max_size=60),
    st.lists(st.tuples(st.integers(-25, 25), st.integers(0, 5)), max_size=60),
    st.booleans(),
)
def test_rows_survive_what_is_no_younger(
    deletes: list[tuple[int, int]], rows: list[tuple[int, int]], text: bool
) -> None:
    def keys(pairs: list[tuple[int, int]]) -> pa.Array:
        numbers = [key << 40 for key, _ in pairs]
        return pa.array([f"key {number}" for number in numbers], pa.string()) if text else pa.array(numbers, pa.int64())

    half = len(deletes) // 2
    pieces = [
        Deletes(keys(pairs), pa.array([t for _, t in pairs], pa.int64()), 0)
        for pairs in (deletes[:half], deletes[half:])
    ]
    index = DeleteIndex(pieces, None)
    times = np.array([time for _, time in rows], np.int64)
    keep = index.mark_survivors(keys(rows), times)
    latest: dict[int, int] = {}
    for key, time in deletes:
        latest[key] = max(latest.get(key, 0), time)
    expected = [time >= latest.get(key, 0) for key, time in rows]
    assert (keep is None and all(expected)) or (keep is not None and keep.tolist() == expected)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 9))
def test_slots_are_moved_together(keep: list[bool], width: int) -> None:
    slots = np.arange(len(keep) * width).astype(np.uint8)
    expected_bytes = slots.reshape(-1, width)[np.array(keep, bool)].tobytes()
    delete_kernels.keep_slots(slots, np.array(keep, np.uint8), np.uint64(width))
    assert slots[: len(expected_bytes)].tobytes() == expected_bytes


@given(st.lists(st.binary(max_size=20)), st.binary(max_size=6))
def test_the_longest_value_of_a_dictionary(values: list[bytes], tail: bytes) -> None:
    page = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    longest = max(map(len, values), default=0)
    assert kernels.find_longest_value(np.frombuffer(page, np.uint8)) == longest
    cut = page + b"\xff\xff\xff\x7f" + tail
    assert kernels.find_longest_value(np.frombuffer(cut, np.uint8)) == -1
