"""Searching columns for sentinels: the one pass over fixed-width values that delivering them takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.kernels.jit import inlined, kernel, wide_kernel
from sawlog.kernels.signature import Bool, Bytes, UInt16s, UInt32s, UInt64, UInt64s

_FEW = 512
"""Values that NumPy looks at before a kernel is called."""


@inlined
def _holds(values: Any, pattern: Any) -> Any:
    is_held = False
    for i in range(len(values)):
        is_held |= values[i] == pattern
    return is_held


@kernel
def holds_1(values: Bytes, pattern: UInt64) -> Bool:
    """Return whether a bit pattern occurs among values of one byte."""
    return _holds(values, np.uint8(pattern))


@kernel
def holds_2(values: UInt16s, pattern: UInt64) -> Bool:
    """Return what `holds_1` does, for values of two bytes."""
    return _holds(values, np.uint16(pattern))


@kernel
def holds_4(values: UInt32s, pattern: UInt64) -> Bool:
    """Return what `holds_1` does, for values of four bytes."""
    return _holds(values, np.uint32(pattern))


@kernel
def holds_8(values: UInt64s, pattern: UInt64) -> Bool:
    """Return what `holds_1` does, for values of eight bytes."""
    return _holds(values, pattern)


def holds(values: NDArray[Any], pattern: int) -> bool:
    """Return whether a bit pattern occurs among unsigned integers."""
    if len(values) <= _FEW:
        return bool((values == pattern).any())
    return bool((holds_1, holds_2, holds_4, holds_8)[values.itemsize.bit_length() - 1](values, pattern))


@wide_kernel
def reaches(values: UInt32s, limit: UInt64) -> Bool:
    """Return whether a value is as large as a limit, or larger.

    Args:
        values: uint32, read-only.
        limit: uint32.
    """
    largest = np.uint32(0)
    for i in range(len(values)):
        largest = max(largest, values[i])
    return len(values) != 0 and largest >= limit
