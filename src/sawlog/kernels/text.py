"""UTF-8 and ASCII, what other encodings are in it, and hexadecimal digits, for use inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_big_u16, load_u16, load_u64, store_u16, store_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _ONE, _SIX, _THREE, _TWO, _ZERO

HIGH_BITS = np.uint64(0x8080808080808080)
_CONTINUED, _LOW6 = np.uint64(0x80), np.uint64(0x3F)
_SURROGATE, _LOW_SURROGATE, _LOW10 = np.uint64(0xD800), np.uint64(0xDC00), np.uint64(0x3FF)
_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.dtype("<u2")).astype(np.uint64)
"""The two digits of each byte, as a number of 16 bits."""


def make_text(text: bytes) -> NDArray[np.uint8]:
    """Return a text as a constant of kernels."""
    return np.frombuffer(text, np.uint8).copy()


@inlined
def measure_utf8(data: Any, pos: Any, end: Any) -> Any:
    """Return the number of bytes of the character at `pos`, which is not ASCII; 0 where it is not UTF-8."""
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
def find_utf8_end(data: Any, start: Any, end: Any) -> Any:
    """Return the first position in `data[start:end]` at which it is not UTF-8; `end` where all of it is."""
    length = _ONE
    while start < end and length != _ZERO:
        while end - start >= _EIGHT and load_u64(data, start) & HIGH_BITS == _ZERO:
            start += _EIGHT
        if start == end:
            break
        length = _ONE if data[start] < 128 else measure_utf8(data, start, end)
        start += length
    return start


@inlined
def exceeds_ascii(data: Any, start: Any, end: Any) -> Any:
    """Return whether any byte of `data[start:end]` is above 127."""
    bits = _ZERO
    while end - start >= _EIGHT:
        bits |= load_u64(data, start)
        start += _EIGHT
    while start < end:
        bits |= np.uint64(data[start])
        start += _ONE
    return bits & HIGH_BITS != _ZERO


@inlined
def put_latin_1(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write Latin-1 as UTF-8, which has twice as many bytes at most; return the position after it."""
    while start < end:
        if end - start >= _EIGHT:
            word = load_u64(data, start)
            if word & HIGH_BITS == _ZERO:
                store_u64(out, pos, word)
                start += _EIGHT
                pos += _EIGHT
                continue
        byte = np.uint64(data[start])
        start += _ONE
        if byte < _CONTINUED:
            out[pos] = byte
            pos += _ONE
        else:
            pos = _put_two(out, pos, byte)
    return pos


@inlined
def _put_two(out: Any, pos: Any, character: Any) -> Any:
    out[pos] = np.uint64(0xC0) | character >> _SIX
    out[pos + _ONE] = _CONTINUED | character & _LOW6
    return pos + _TWO


@inlined
def read_utf_16(data: Any, start: Any, end: Any, is_big: Any) -> Any:
    """Return the character of UTF-16 at `start`, and the position after it, which is 0 where there is none."""
    if end - start < _TWO:
        return _ZERO, _ZERO
    character = load_big_u16(data, start) if is_big else load_u16(data, start)
    start += _TWO
    if character & np.uint64(0xF800) != _SURROGATE:
        return character, start
    if character >= _LOW_SURROGATE or end - start < _TWO:
        return _ZERO, _ZERO
    low = load_big_u16(data, start) if is_big else load_u16(data, start)
    if low & np.uint64(0xFC00) != _LOW_SURROGATE:
        return _ZERO, _ZERO
    return np.uint64(0x10000) + ((character & _LOW10) << np.uint64(10) | low & _LOW10), start + _TWO


@inlined
def put_beyond_ascii(out: Any, pos: Any, character: Any) -> Any:
    """Write a character that is not ASCII as UTF-8; return the position after it."""
    if character < np.uint64(0x800):
        return _put_two(out, pos, character)
    if character < np.uint64(0x10000):
        out[pos] = np.uint64(0xE0) | character >> np.uint64(12)
        return _put_rest(out, pos + _ONE, character, _TWO)
    out[pos] = np.uint64(0xF0) | character >> np.uint64(18)
    return _put_rest(out, pos + _ONE, character, _THREE)


@inlined
def put_utf_16(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write UTF-16, little endian, as UTF-8, which has 1.5 times as many bytes at most.

    Returns:
        The position after it, and whether it is UTF-16.
    """
    while start < end:
        character, start = read_utf_16(data, start, end, False)
        if start == _ZERO:
            return pos, False
        if character < _CONTINUED:
            out[pos] = character
            pos += _ONE
        else:
            pos = put_beyond_ascii(out, pos, character)
    return pos, True


@inlined
def _put_rest(out: Any, pos: Any, character: Any, count: Any) -> Any:
    """Write the last bytes of a character, of six bits each."""
    while count > _ZERO:
        count -= _ONE
        out[pos] = _CONTINUED | character >> _SIX * count & _LOW6
        pos += _ONE
    return pos


@inlined
def put_hex(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write the bytes `data[start:end]` as digits at `out[pos]`; return the position after them."""
    while start < end:
        store_u16(out, pos, _DIGITS[data[start]])
        start += _ONE
        pos += _TWO
    return pos


@inlined
def put_reversed_hex(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write bytes as `put_hex` does, the last byte first."""
    while end > start:
        end -= _ONE
        store_u16(out, pos, _DIGITS[data[end]])
        pos += _TWO
    return pos
