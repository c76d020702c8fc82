"""Lost shards from the others: the code of Reed and Solomon over bytes, with Vandermonde's matrix, as MinIO has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sawlog.storage.sources import Bytes

Matrix = NDArray[np.uint8]

_POLYNOMIAL = 0x11D
"""Of the field of 256 elements, which the powers of 2 run through."""
_ORDER = 255


@cache
def _make_products() -> Matrix:
    """Return all products of two bytes."""
    powers = np.zeros(2 * _ORDER, np.uint8)
    logs = np.zeros(_ORDER + 1, np.int64)
    value = 1
    for power in range(_ORDER):
        powers[power] = powers[power + _ORDER] = value
        logs[value] = power
        value = value << 1 ^ (_POLYNOMIAL if value & 0x80 else 0)
    products: Matrix = powers[logs[:, None] + logs[None, :]]
    products[0, :] = products[:, 0] = 0
    return products


def _multiply(rows: Matrix, columns: Matrix) -> Matrix:
    """Return the product of two matrices."""
    product: Matrix = np.bitwise_xor.reduce(_make_products()[rows[:, :, None], columns[None, :, :]], axis=1)
    return product


def _invert(matrix: Matrix) -> Matrix:
    """Return the inverse of a matrix that has one: every one of as many rows of `_make_matrix` as it has columns."""
    size = len(matrix)
    products = _make_products()
    work = np.concatenate([matrix, np.eye(size, dtype=np.uint8)], axis=1)
    for column in range(size):
        pivot = column + int(np.flatnonzero(work[column:, column])[0])
        work[[column, pivot]] = work[[pivot, column]]
        reciprocal = int(np.flatnonzero(products[work[column, column]] == 1)[0])
        work[column] = products[reciprocal, work[column]]
        for row in range(size):
            if row != column:
                work[row] ^= products[work[row, column], work[column]]
    return work[:, size:]


@cache
def _make_matrix(data: int, total: int) -> Matrix:
    """Return rows of which each makes a shard of the shards of data, whose own rows are those of the identity."""
    products = _make_products()
    powers = np.ones((total, data), np.uint8)
    for column in range(1, data):
        powers[:, column] = products[powers[:, column - 1], np.arange(total, dtype=np.uint8)]
    return _multiply(powers, _invert(powers[:data]))


def restore_data_shards(data: int, total: int, shards: Mapping[int, Bytes]) -> Sequence[Bytes]:
    """Return the shards of data of a block.

    Args:
        data: How many there are.
        total: How many there are with those of parity.
        shards: As many as there are of data, by number from 0, each as long as the others.
    """
    numbers = sorted(shards)
    if numbers == list(range(data)):
        return [shards[number] for number in numbers]
    factors = _invert(_make_matrix(data, total)[numbers])
    products = _make_products()
    restored: list[Bytes] = []
    for number in range(data):
        if number in shards:
            restored.append(shards[number])
            continue
        shard = np.zeros_like(shards[numbers[0]])
        for factor, row in zip(factors[number], numbers, strict=True):
            shard ^= products[factor][shards[row]]
        restored.append(shard)
    return restored
