"""Powers with whole exponents, correctly rounded, so that a bucket's top is the same number wherever it is computed.

Java's `Math.pow` may be one unit in the last place off, and is not the same on every machine; its results are the
correctly rounded ones but for about one in two thousand.
"""

from __future__ import annotations

import math
from typing import Any

from sawlog.kernels.jit import PLAIN, cgutils, inlined, intrinsic, ir, kernel, types
from sawlog.kernels.signature import Float64, OutFloat64s

_SPLITTER = 134217729.0
"""2**27 + 1: cuts a double into two halves of 26 bits."""
_MOST = 1024
_LEAST = -1200
"""Exponents beyond which a double is infinite, or zero."""


@intrinsic
def _call_frexp(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double, step = ir.DoubleType(), cgutils.alloca_once(builder, ir.IntType(32))
        kind = ir.FunctionType(double, [double, step.type])
        function = cgutils.get_or_insert_function(builder.module, kind, "frexp")
        mantissa = builder.call(function, [arguments[0], step])
        return context.make_tuple(
            builder, signature.return_type, [mantissa, builder.sext(builder.load(step), ir.IntType(64))]
        )

    return types.Tuple([types.float64, types.int64])(types.float64), generate


@intrinsic
def _call_ldexp(typing_context: Any, value: Any, step: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double, half = ir.DoubleType(), ir.IntType(32)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(double, [double, half]), "ldexp")
        return builder.call(function, [arguments[0], builder.trunc(arguments[1], half)])

    return types.float64(types.float64, types.int64), generate


# Numba's own call functions of Numba's.
_frexp: Any = math.frexp if PLAIN else _call_frexp
_ldexp: Any = math.ldexp if PLAIN else _call_ldexp


@inlined
def _multiply_exactly(a: Any, b: Any) -> Any:
    """Return a product, and its rounding error, exactly."""
    product = a * b
    split = _SPLITTER * a
    a_high = split - (split - a)
    a_low = a - a_high
    split = _SPLITTER * b
    b_high = split - (split - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


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
    mantissa, step = _frexp(base)
    # The power is (high + low) * 2**exponent, with twice the digits of a double.
    high, low, exponent = 1.0, 0.0, 0
    for i in range(1, count):
        product, error = _multiply_exactly(high, mantissa)
        error += low * mantissa
        high = product + error
        low = error - (high - product)
        exponent += step
        if abs(high) < 0.5:
            high *= 2.0
            low *= 2.0
            exponent -= 1
        if exponent > _MOST or (exponent == _MOST and abs(high) >= 1.0) or exponent < _LEAST:
            out[first + i] = math.copysign(math.inf if exponent > 0 else 0.0, high)
        else:
            out[first + i] = _ldexp(high, exponent)


@kernel
def compute_powers(base: Float64, out: OutFloat64s) -> None:
    """Write `base**i` for i from 0 to all of `out`, float64."""
    fill_powers(base, out, 0, len(out))
