"""Powers with whole exponents, correctly rounded, so that a bucket's top is the same number wherever it is computed.

Java's `Math.pow` may be one unit in the last place off, and is not the same on every machine; its results are the
correctly rounded ones but for about one in two thousand.
"""

from __future__ import annotations

import math
from typing import Any

from sawlog.kernels.jit import inlined, kernel

_SPLITTER = 134217729.0
"""2**27 + 1: cuts a double into two halves of 26 bits."""
_MOST = 1024
_LEAST = -1200
"""Exponents beyond which a double is infinite, or zero."""


@inlined
def _product(a: Any, b: Any) -> Any:
    """A product, and its rounding error, exactly."""
    whole = a * b
    split = _SPLITTER * a
    a_high = split - (split - a)
    a_low = a - a_high
    split = _SPLITTER * b
    b_high = split - (split - b)
    b_low = b - b_high
    return whole, ((a_high * b_high - whole) + a_high * b_low + a_low * b_high) + a_low * b_low


@inlined
def fill_powers(base: Any, out: Any, first: Any, count: Any) -> None:
    """Write `base**i` for i from 0 to `out[first : first + count]`, float64."""
    if count > 0:
        out[first] = 1.0
    if base == 0.0 or not -math.inf < base < math.inf:
        value = 1.0
        for i in range(1, count):
            value *= base
            out[first + i] = value
        return
    mantissa, step = math.frexp(base)
    # The power is (high + low) * 2**exponent, with twice the digits of a double.
    high, low, exponent = 1.0, 0.0, 0
    for i in range(1, count):
        whole, error = _product(high, mantissa)
        error += low * mantissa
        high = whole + error
        low = error - (high - whole)
        exponent += step
        if abs(high) < 0.5:
            high *= 2.0
            low *= 2.0
            exponent -= 1
        if exponent > _MOST or (exponent == _MOST and abs(high) >= 1.0) or exponent < _LEAST:
            out[first + i] = math.copysign(math.inf if exponent > 0 else 0.0, high)
        else:
            out[first + i] = math.ldexp(high, exponent)


@kernel
def powers(base: Any, out: Any) -> None:
    """Write `base**i` for i from 0 to all of `out`, float64."""
    fill_powers(base, out, 0, len(out))
