"""Writing doubles as JSON text at unsigned positions of uint8 arrays, for use inside kernels.

Callers see to the room: 24 bytes. The text is Python's: the shortest that is read as the same double, and the nearest
of those. It is found as in "The Schubfach way to render doubles" by Raffaello Giulietti.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined
from sawlog.kernels.json_text import put_integer, put_unsigned
from sawlog.kernels.memory import count_low_zeros, high_product
from sawlog.kernels.numbers import _ONE, _TEN, _TWO, _ZERO

_FRACTION = np.uint64(52)
"""Bits of the fraction of a double, as are"""
_EXPONENT, _BIAS = np.uint64(0x7FF), 1023
_SINGLE_FRACTION, _SINGLE_EXPONENT, _SINGLE_BIAS = np.uint64(23), np.uint64(0xFF), 127
_SIGN = np.uint64(1 << 63)
_HIDDEN = np.uint64(1 << 52)
_LEAST_POWER, _MOST_POWER = -292, 324
"""Exponents of the powers of ten that doubles are multiplied with."""
# Logarithms, of numbers that double and lie in the range of doubles: floor(log10(2**n)), of 3/4 of that, log2(10**n).
_LOG10_2, _LOG10_QUARTERS, _LOG10_BITS = 1_262_611, 524_031, 22
_LOG2_10, _LOG2_BITS = 1_741_647, 19
_ROUNDED = b"".join(
    (-(-(10 ** max(power, 0) << max(shift, 0)) // (10 ** max(-power, 0) << max(-shift, 0)))).to_bytes(16, "little")
    for power in range(_LEAST_POWER, _MOST_POWER + 1)
    for shift in (127 - (power * _LOG2_10 >> _LOG2_BITS),)
)
_POWERS = np.frombuffer(_ROUNDED, np.uint64).reshape(-1, 2)
"""Low and high halves of these powers, each times one of two, so that they have 128 bits, rounded up."""
_BINARY_PLACES = 8
_SCALES = np.array([5**places * 10 ** (_BINARY_PLACES - places) for places in range(_BINARY_PLACES + 1)], np.uint64)
"""By binary places after the point: what a fraction of as many bits is multiplied with to have as many decimal ones."""
_BEFORE_FRACTION = np.uint64(10**_BINARY_PLACES)
_MOST_EXACT = np.uint64(1 << 31)
"""Numbers below, divided by as many powers of two, have 15 digits at most: then no shorter text is the same double."""
_MOST_PLACES, _LEAST_PLACES = 16, -3
"""Digits before the point of numbers that are written without an exponent; negative are zeros after it."""


@inlined
def widen_bits(bits: Any) -> Any:
    """Return the bits of a float32 as those of the same double; all ones for one that is not normal, but for zero."""
    sign = bits >> np.uint64(31) << np.uint64(63)
    exponent = bits >> _SINGLE_FRACTION & _SINGLE_EXPONENT
    fraction = bits & np.uint64((1 << 23) - 1)
    if exponent == _ZERO and fraction == _ZERO:
        return sign
    if exponent in (_ZERO, _SINGLE_EXPONENT):
        return ~_ZERO
    return sign | (exponent + np.uint64(_BIAS - _SINGLE_BIAS)) << _FRACTION | fraction << np.uint64(29)


@inlined
def _multiply_power(low: Any, high: Any, value: Any) -> Any:
    """Return the upper half of the product of a power and a number; its last bit is set if there is more of it."""
    middle = high * value
    total = middle + high_product(low, value)
    return high_product(high, value) + np.uint64(total < middle) | np.uint64(total > _ONE)


@inlined
def _find_shortest(bits: Any) -> Any:
    """Return digits, and the power of ten that they are multiplied with: of a positive double that is finite."""
    fraction = bits & _HIDDEN - _ONE
    biased = np.int64(bits >> _FRACTION & _EXPONENT)
    value = fraction | _HIDDEN if biased > 0 else fraction
    exponent = (biased if biased > 0 else np.int64(1)) - (_BIAS + 52)
    # The next lower double is nearer than the next higher one below powers of two.
    is_power = fraction == _ZERO and biased > 1
    power = exponent * _LOG10_2 - (_LOG10_QUARTERS if is_power else 0) >> _LOG10_BITS
    shift = np.uint64(exponent + (-power * _LOG2_10 >> _LOG2_BITS) + 1)
    low, high = _POWERS[-power - _LEAST_POWER, 0], _POWERS[-power - _LEAST_POWER, 1]
    is_odd = value & _ONE
    value <<= _TWO
    below = _multiply_power(low, high, value - (_ONE if is_power else _TWO) << shift) + is_odd
    scaled = _multiply_power(low, high, value << shift)
    above = _multiply_power(low, high, value + _TWO << shift) - is_odd
    quarter = scaled >> _TWO
    if quarter >= _TEN:
        shorter = quarter // _TEN
        is_down = below <= shorter * np.uint64(40)
        is_up = (shorter + _ONE) * np.uint64(40) <= above
        if is_down != is_up:
            return (shorter if is_down else shorter + _ONE), power + 1
    is_down = below <= quarter << _TWO
    is_up = quarter + _ONE << _TWO <= above
    if is_down != is_up:
        return (quarter if is_down else quarter + _ONE), power
    half = (quarter << _TWO) + _TWO
    is_up = scaled > half or (scaled == half and quarter & _ONE != _ZERO)
    return (quarter + _ONE if is_up else quarter), power


@inlined
def _put_float(out: Any, pos: Any, bits: Any) -> Any:
    """Write a finite double as Python does; return the position after it."""
    if bits & _SIGN != _ZERO:
        out[pos] = 45
        pos += _ONE
        bits &= ~_SIGN
    digits, power = _find_shortest(bits) if bits != _ZERO else (_ZERO, np.int64(0))
    while digits != _ZERO and digits % _TEN == _ZERO:
        digits //= _TEN
        power += 1
    # One place further on than they belong, to make room for the point.
    end = put_unsigned(out, pos + _ONE, digits)
    length = np.int64(end - pos) - 1
    places = length + power
    if _LEAST_PLACES <= places <= 0:
        end = put_unsigned(out, pos + np.uint64(2 - places), digits)
        out[pos] = 48
        out[pos + _ONE] = 46
        for i in range(-places):
            out[pos + np.uint64(2 + i)] = 48
        return end
    before = places if 0 < places <= _MOST_PLACES else 1
    for i in range(min(before, length)):
        out[pos + np.uint64(i)] = out[pos + np.uint64(i + 1)]
    point = pos + np.uint64(before)
    if before >= length:
        for i in range(length, before):
            out[pos + np.uint64(i)] = 48
        end = point
    if before == places:
        out[point] = 46
        if before >= length:
            out[point + _ONE] = 48
            end = point + _TWO
        return end
    if length > 1:
        out[point] = 46
    out[end] = 101
    out[end + _ONE] = 45 if places < 1 else 43
    magnitude = np.uint64(abs(places - 1))
    end += _TWO
    if magnitude < _TEN:
        out[end] = 48
        end += _ONE
    return put_unsigned(out, end, magnitude)


@inlined
def _put_exact(out: Any, state: Any, magnitude: Any, places: Any, is_negative: Any) -> None:
    """Write a number of few binary places after the point, all of its decimal ones."""
    pos = state.position
    if is_negative:
        out[pos] = 45
        pos += _ONE
    pos = put_unsigned(out, pos, magnitude >> places)
    fraction = magnitude & (_ONE << places) - _ONE
    put_unsigned(out, pos, _BEFORE_FRACTION + fraction * _SCALES[places])  # a digit, in the place of the point
    out[pos] = 46
    state.position = pos + _ONE + places


@inlined
def put_double(bits: Any, rendered: Any, state: Any) -> Any:
    """Write a double to `rendered.out` at `state.position`, as an integer where it is one of 53 bits at most.

    Returns:
        Whether JSON has it.
    """
    biased = bits >> _FRACTION & _EXPONENT
    if biased == _EXPONENT:
        return False
    exponent = np.int64(biased) - _BIAS
    magnitude = _HIDDEN | bits & _HIDDEN - _ONE
    zeros = count_low_zeros(magnitude)
    places = 52 - exponent - np.int64(zeros)
    if places <= 0 <= 52 - exponent:
        magnitude >>= np.uint64(52 - exponent)
        value = ~magnitude + _ONE if bits & _SIGN != _ZERO else magnitude
        state.position = put_integer(rendered.out, state.position, value)
        return True
    if 0 < places <= _BINARY_PLACES and magnitude >> zeros < _MOST_EXACT:
        magnitude >>= zeros
        _put_exact(rendered.out, state, magnitude, np.uint64(places), bits & _SIGN != _ZERO)
        return True
    if bits == _ZERO:
        rendered.out[state.position] = 48
        state.position += _ONE
        return True
    state.position = _put_float(rendered.out, state.position, bits)
    return True
