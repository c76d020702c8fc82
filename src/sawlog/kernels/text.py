"""Tests for UTF-8 and ASCII, and hexadecimal digits, for use inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_u64, store_u16
from sawlog.kernels.numbers import _EIGHT, _FOUR, _ONE, _THREE, _TWO, _ZERO

_HIGH_BITS = np.uint64(0x8080808080808080)
_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.dtype("<u2")).astype(np.uint64)
"""The two digits of each byte, as a number of 16 bits."""


@inlined
def utf8_length(data: Any, pos: Any, end: Any) -> Any:
    """Bytes of the character at `pos`, which is not ASCII; 0 where it is not UTF-8."""
    first = data[pos]
    if first < 0xC2 or first > 0xF4:
        return _ZERO
    length = _TWO if first < 0xE0 else (_THREE if first < 0xF0 else _FOUR)
    if end - pos < length:
        return _ZERO
    second = data[pos + _ONE]
    low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
    high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
    if second < low or second > high:
        return _ZERO
    for i in range(2, length):
        if data[pos + np.uint64(i)] & 0xC0 != 0x80:
            return _ZERO
    return length


@inlined
def utf8_end(data: Any, start: Any, end: Any) -> Any:
    """The first position in `data[start:end]` at which it is not UTF-8; `end` where all of it is."""
    length = _ONE
    while start < end and length != _ZERO:
        length = _ONE if data[start] < 128 else utf8_length(data, start, end)
        start += length
    return start


@inlined
def beyond_ascii(data: Any, start: Any, end: Any) -> Any:
    """Whether any byte of `data[start:end]` is above 127."""
    bits = _ZERO
    while end - start >= _EIGHT:
        bits |= load_u64(data, start)
        start += _EIGHT
    while start < end:
        bits |= np.uint64(data[start])
        start += _ONE
    return bits & _HIGH_BITS != _ZERO


@inlined
def put_hex(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write the bytes `data[start:end]` as digits at `out[pos]`; the position after them."""
    while start < end:
        store_u16(out, pos, _DIGITS[data[start]])
        start += _ONE
        pos += _TWO
    return pos


@inlined
def put_reversed_hex(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """`put_hex`, the last byte first."""
    while end > start:
        end -= _ONE
        store_u16(out, pos, _DIGITS[data[end]])
        pos += _TWO
    return pos
