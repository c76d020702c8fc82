"""What columns hold, found by kernels, is what Python finds."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest

from sawlog.map.content import ColumnStatistics, Distinct
from sawlog.map.kernels import find_bounds, move_new


@pytest.mark.parametrize("length", [0, 3, 8, 9, 21])
def test_bounds_are_the_least_and_the_greatest(length: int) -> None:
    dice = random.Random(length)
    for count in (1, 2, 60):
        values = [bytes(dice.choices(b"\x00a\xff", k=dice.randint(0, length))) for _ in range(count)]
        bounds = np.zeros(2, np.int64)
        find_bounds(
            np.array([*accumulate(map(len, values), initial=0)], np.int64),
            np.frombuffer(b"".join(values), np.uint8),
            bounds,
        )
        assert [values[index] for index in bounds.tolist()] == [min(values), max(values)]


def test_new_hashes_are_moved_to_the_front_once() -> None:
    hashes_seen = np.arange(8, dtype=np.uint64) ^ np.uint64(1)
    hashes = np.array([0, 0, 9, 1 << 63, 9, 2**64 - 1, 7, 0], np.uint64)
    assert hashes[: move_new(hashes, np.uint64(1 << 63), hashes_seen)].tolist() == [0, 9, 1 << 63, 7, 0]


@pytest.mark.parametrize("different", [1, 700, 3000])
def test_estimates_are_exact_for_few_and_close_for_many(different: int) -> None:
    estimate = Distinct()
    dice = np.random.default_rng(different)
    values = dice.integers(0, 2**64, different, np.uint64, endpoint=False)
    for _ in range(5):
        estimate.add(dice.permutation(values))
    assert estimate.count == (different if different < 1024 else pytest.approx(different, rel=0.15))


def test_only_values_of_a_dictionary_that_are_there_count() -> None:
    column = ColumnStatistics(pa.field("key", pa.dictionary(pa.int32(), pa.string())))
    column.add(pa.DictionaryArray.from_arrays(pa.array([1, None, 1, 2], pa.int32()), ["a", "b", "c", "d"]))
    assert (column.rows, column.nulls, column.distinct) == (4, 1, 2)
    assert [bound.as_py() for bound in column.bounds if bound is not None] == ["b", "c"]
