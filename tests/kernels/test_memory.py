from __future__ import annotations

import numpy as np
import pytest

from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import (
    copy_bytes,
    count_low_zeros,
    high_product,
    load_u16,
    load_u32,
    load_u64,
    prefetch,
    store_u16,
    store_u32,
)
from sawlog.kernels.signature import Bytes, Int64, OutBytes, UInt64

BYTES = bytes(range(200, 256)) + bytes(range(40))


@kernel
def _load(array: Bytes, position: UInt64, width: Int64) -> UInt64:
    if width == 2:
        return load_u16(array, position)
    if width == 4:
        return load_u32(array, position)
    return load_u64(array, position)


@kernel
def _store(array: OutBytes, position: UInt64, value: UInt64, width: Int64) -> None:
    if width == 2:
        store_u16(array, position, value)
    else:
        store_u32(array, position, value)


@kernel
def _copy(target: OutBytes, offset: UInt64, source: Bytes, start: UInt64, length: UInt64) -> None:
    copy_bytes(target, offset, source, start, length)


@kernel
def _prefetch(array: Bytes, position: UInt64) -> None:
    prefetch(array, position)


@kernel
def _high(a: UInt64, b: UInt64) -> UInt64:
    return high_product(a, b)


@kernel
def _zeros(value: UInt64) -> UInt64:
    return count_low_zeros(value)


@pytest.mark.parametrize("bit", range(64))
def test_zeros_below_the_lowest_bit(bit: int) -> None:
    assert _zeros(np.uint64(1 << bit)) == bit
    assert _zeros(np.uint64(1 << 63 | 1 << bit)) == bit


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_the_upper_half_of_a_product() -> None:
    words = [0, 1, 2, 3, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 0x9E3779B97F4A7C15, 1 << 63, (1 << 64) - 1]
    for a in words:
        for b in words:
            assert _high(a, b) == a * b >> 64, (a, b)


@pytest.mark.parametrize("width", [2, 4, 8])
def test_loads_are_little_endian_at_every_position(width: int) -> None:
    array = np.frombuffer(BYTES, np.uint8)
    for position in range(len(BYTES) - width + 1):
        expected = int.from_bytes(BYTES[position : position + width], "little")
        assert int(_load(array, np.uint64(position), width)) == expected


@pytest.mark.parametrize("width", [2, 4])
def test_stores_keep_the_low_bytes_and_touch_nothing_else(width: int) -> None:
    for position in range(16 - width + 1):
        array = np.full(16, 0xEE, np.uint8)
        _store(array, np.uint64(position), np.uint64(0x1122334455667788), width)
        expected = bytearray(b"\xee" * 16)
        expected[position : position + width] = bytes.fromhex("8877665544332211")[:width]
        assert array.tobytes() == bytes(expected)


@pytest.mark.parametrize(("offset", "start", "length"), [(0, 0, 0), (96, 96, 0), (0, 0, 96), (3, 7, 5), (95, 0, 1)])
def test_bytes_are_copied_between_any_positions(offset: int, start: int, length: int) -> None:
    target = np.zeros(96, np.uint8)
    _copy(target, np.uint64(offset), np.frombuffer(BYTES, np.uint8), np.uint64(start), np.uint64(length))
    expected = bytearray(96)
    expected[offset : offset + length] = BYTES[start : start + length]
    assert target.tobytes() == bytes(expected)


def test_prefetching_outside_the_array_does_no_harm() -> None:
    _prefetch(np.zeros(1, np.uint8), np.uint64(1 << 40))
