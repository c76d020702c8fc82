"""Points of secp256k1, for use inside kernels: the other coordinate of a public key.

Numbers of 256 bits are tuples of four words, the low one first. Those that are computed with may be larger than the
prime, by which all of this is modulo.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import high_product, load_big_u64, store_big_u64
from sawlog.kernels.numbers import _EIGHT, _ONE, _SIXTEEN, _ZERO
from sawlog.leveldb.applications import bitcoin_layout as layout

_EXCESS = np.uint64(2**256 - layout.FIELD)
"""2**256, modulo the prime."""
_CURVE = np.uint64(layout.CURVE)
_LAST = np.uint64(24)
"""Where the low word of a number is, which is stored with the high one first."""


@inlined
def _multiply_add(a: Any, b: Any, addend: Any, carry: Any) -> Any:
    """Return the two words of `a * b + addend + carry`, the low word first."""
    low = a * b
    high = high_product(a, b)
    low += addend
    if low < addend:
        high += _ONE
    low += carry
    if low < carry:
        high += _ONE
    return low, high


@inlined
def _add_row(word: Any, number: Any, total: Any) -> Any:
    """Return the low word of `word * number + total`, and the four words above it."""
    lowest, carry = _multiply_add(word, number[0], total[0], _ZERO)
    low, carry = _multiply_add(word, number[1], total[1], carry)
    middle, carry = _multiply_add(word, number[2], total[2], carry)
    high, carry = _multiply_add(word, number[3], total[3], carry)
    return lowest, (low, middle, high, carry)


@inlined
def _sum(number: Any, low: Any, high: Any) -> Any:
    """Return the sum of a number and another of two words, the high one small, and whether there is one bit more."""
    a = number[0] + low
    high += _ONE if a < low else _ZERO
    b = number[1] + high
    carry = _ONE if b < high else _ZERO
    c = number[2] + carry
    carry = _ONE if c < carry else _ZERO
    d = number[3] + carry
    return (a, b, c, d), d < carry


@inlined
def _multiply(a: Any, b: Any) -> Any:
    """Return the product of two numbers."""
    first, total = _add_row(a[0], b, (_ZERO, _ZERO, _ZERO, _ZERO))
    second, total = _add_row(a[1], b, total)
    third, total = _add_row(a[2], b, total)
    fourth, total = _add_row(a[3], b, total)
    lowest, upper = _add_row(_EXCESS, total, (first, second, third, fourth))
    low, high = _multiply_add(upper[3], _EXCESS, _ZERO, _ZERO)
    number, is_larger = _sum((lowest, upper[0], upper[1], upper[2]), low, high)
    return _sum(number, _EXCESS, _ZERO)[0] if is_larger else number


@inlined
def _square(number: Any, times: Any) -> Any:
    """Return a number, squared so many times."""
    for _ in range(times):
        number = _multiply(number, number)
    return number


@inlined
def _compute_root(number: Any) -> Any:
    """Return the number to the power of a quarter of the prime and one: its root, where it has one.

    The bits of that power are 223 ones, a zero, 22 ones, four zeros, two ones and two zeros.
    """
    two = _multiply(_square(number, 1), number)
    three = _multiply(_square(two, 1), number)
    six = _multiply(_square(three, 3), three)
    nine = _multiply(_square(six, 3), three)
    eleven = _multiply(_square(nine, 2), two)
    twenty_two = _multiply(_square(eleven, 11), eleven)
    forty_four = _multiply(_square(twenty_two, 22), twenty_two)
    eighty_eight = _multiply(_square(forty_four, 44), forty_four)
    power = _multiply(_square(eighty_eight, 88), eighty_eight)
    power = _multiply(_square(power, 44), forty_four)
    power = _multiply(_square(power, 3), three)
    power = _multiply(_square(power, 23), twenty_two)
    return _square(_multiply(_square(power, 6), two), 2)


@inlined
def _reduce(number: Any) -> Any:
    """Return the least number that is the same modulo the prime."""
    less, is_larger = _sum(number, _EXCESS, _ZERO)
    return less if is_larger else number


@inlined
def _are_different(a: Any, b: Any) -> Any:
    return a[0] != b[0] or a[1] != b[1] or a[2] != b[2] or a[3] != b[3]


@inlined
def _negate(number: Any) -> Any:
    """Return the prime less a number, which is smaller: all ones less the number and what the prime lacks to them."""
    total, _ = _sum(number, _EXCESS - _ONE, _ZERO)
    return ~total[0], ~total[1], ~total[2], ~total[3]


@inlined
def put_other_coordinate(out: Any, pos: Any, data: Any, start: Any, odd: Any) -> Any:
    """Write the coordinate y, odd or even, of the point whose x is at `data[start]`. Returns whether there is one."""
    x = (
        load_big_u64(data, start + _LAST),
        load_big_u64(data, start + _SIXTEEN),
        load_big_u64(data, start + _EIGHT),
        load_big_u64(data, start),
    )
    square, is_larger = _sum(_multiply(_multiply(x, x), x), _CURVE, _ZERO)
    if is_larger:
        square, _ = _sum(square, _EXCESS, _ZERO)
    y = _reduce(_compute_root(square))
    if _are_different(_reduce(x), x) or _are_different(_reduce(_multiply(y, y)), _reduce(square)):
        return False
    if y[0] & _ONE != odd:
        y = _negate(y)
    store_big_u64(out, pos + _LAST, y[0])
    store_big_u64(out, pos + _SIXTEEN, y[1])
    store_big_u64(out, pos + _EIGHT, y[2])
    store_big_u64(out, pos, y[3])
    return True
