"""Searching columns for sentinels, the one pass over fixed-width values that delivering them takes; symbol tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.kernels.jit import inlined, kernel, wide_kernel
from sawlog.kernels.memory import copy_bytes, prefetch, same_bytes
from sawlog.kernels.signature import (
    Bool,
    Bytes,
    Int64,
    Int64s,
    OutBytes,
    OutInt32s,
    OutInt64s,
    OutUInt64s,
    UInt16s,
    UInt32s,
    UInt64,
    UInt64s,
)
from sawlog.kernels.xxh64 import xxh64

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_AHEAD = 16
"""Strings whose slots are asked for in advance."""


@inlined
def _holds(values: Any, pattern: Any) -> Any:
    found = False
    for i in range(len(values)):
        found |= values[i] == pattern
    return found


@kernel
def holds_1(values: Bytes, pattern: UInt64) -> Bool:
    """Whether a bit pattern occurs among values of one byte."""
    return _holds(values, np.uint8(pattern))


@kernel
def holds_2(values: UInt16s, pattern: UInt64) -> Bool:
    """As `holds_1`, of two bytes."""
    return _holds(values, np.uint16(pattern))


@kernel
def holds_4(values: UInt32s, pattern: UInt64) -> Bool:
    """As `holds_1`, of four bytes."""
    return _holds(values, np.uint32(pattern))


@kernel
def holds_8(values: UInt64s, pattern: UInt64) -> Bool:
    """As `holds_1`, of eight bytes."""
    return _holds(values, pattern)


def holds(values: NDArray[Any], pattern: int) -> bool:
    """Whether a bit pattern occurs among unsigned integers."""
    return bool((holds_1, holds_2, holds_4, holds_8)[values.itemsize.bit_length() - 1](values, pattern))


@wide_kernel
def reaches(values: UInt32s, limit: UInt64) -> Bool:
    """Whether a value is as large as a limit, or larger.

    Args:
        values: uint32, read-only.
        limit: uint32.
    """
    largest = np.uint32(0)
    for i in range(len(values)):
        largest = max(largest, values[i])
    return len(values) != 0 and largest >= limit


@kernel
def hash_bytes(data: Bytes, ends: Int64s, hashes: OutUInt64s) -> None:
    """A hash of each binary value.

    Args:
        data: uint8, read-only.
        ends: int64, read-only: value i is `data[ends[i] : ends[i + 1]]`.
        hashes: uint64, to write into.
    """
    for i in range(len(hashes)):
        hashes[i] = xxh64(data, np.uint64(ends[i]), np.uint64(ends[i + 1] - ends[i]))


class Known(NamedTuple):
    """The strings of a symbol table.

    Attributes:
        hashes: uint64: of each.
        ends: int64: string i is `data[ends[i] : ends[i + 1]]`.
        data: uint8.
    """

    hashes: OutUInt64s
    ends: OutInt64s
    data: OutBytes


class Texts(NamedTuple):
    """Strings to be looked up.

    Attributes:
        valid: 0 for null.
        hashes: As those of `Known`, like the others.
    """

    valid: Bytes
    hashes: UInt64s
    ends: Int64s
    data: Bytes


@kernel
def enter(texts: Texts, slots: OutUInt64s, known: Known, count: Int64, numbers: OutInt32s, rows: OutInt64s) -> Int64:
    """Look strings up, and enter those that are new; how many there are then.

    Args:
        texts: The strings.
        slots: uint64, a power of two of them and twice the strings at least: the high half of a hash, and below it the
            string's number plus one; 0 for free.
        known: The table, with room for all of them.
        count: int64: how many strings it has.
        numbers: int32, to write into: the number of each string; those of nulls stay.
        rows: int64, to write into: which of the strings the new ones were.
    """
    there, hashes, ends, data = texts
    mask = np.uint64(len(slots) - 1)
    first = count
    for i in range(len(numbers)):
        if i + _AHEAD < len(numbers):
            prefetch(slots, hashes[i + _AHEAD] & mask)
        if not there[i]:
            continue
        value = hashes[i]
        start, length = np.uint64(ends[i]), np.uint64(ends[i + 1] - ends[i])
        at = value & mask
        number = np.int64(-1)
        while slots[at] != _ZERO:
            if slots[at] >> _HALF == value >> _HALF:
                one = np.int64(slots[at] & _LOW) - 1
                begin = np.uint64(known.ends[one])
                same = np.uint64(known.ends[one + 1]) - begin == length
                if same and same_bytes(known.data, begin, data, start, length):
                    number = one
                    break
            at = (at + _ONE) & mask
        if number < 0:
            number = count
            slots[at] = value >> _HALF << _HALF | np.uint64(number + 1)
            known.hashes[number] = value
            begin = np.uint64(known.ends[number])
            copy_bytes(known.data, begin, data, start, length)
            known.ends[number + 1] = np.int64(begin + length)
            rows[number - first] = i
            count += 1
        numbers[i] = number
    return count


@kernel
def spread(hashes: UInt64s, slots: OutUInt64s) -> None:
    """Fill the slots of a larger table; see `enter`.

    Args:
        hashes: uint64, of all its strings, which are different ones.
        slots: uint64 zeros.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        if i + _AHEAD < len(hashes):
            prefetch(slots, hashes[i + _AHEAD] & mask)
        at = hashes[i] & mask
        while slots[at] != _ZERO:
            at = (at + _ONE) & mask
        slots[at] = hashes[i] >> _HALF << _HALF | np.uint64(i + 1)
