"""Writing JSON text at unsigned positions of uint8 arrays, for use inside kernels.

Callers see to the room. What is written is what orjson would write.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.arrow import Column
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.numbers import _EIGHT, _FOUR, _ONE, _SIX, _TEN, _THREE, _TWO, _ZERO
from sawlog.kernels.signature import Bytes, Int64s, OutBytes, OutInt32s
from sawlog.kernels.text import utf8_length

_DAY = 86_400_000_000
_FIRST_DAY = -719_162
_LAST_DAY = 2_932_896
"""Days from 1970 to the years 1 and 9999."""

_FRACTION = np.uint64(52)
"""Bits of the fraction of a double, as are"""
_EXPONENT, _BIAS = np.uint64(0x7FF), 1023
_SINGLE_FRACTION, _SINGLE_EXPONENT, _SINGLE_BIAS = np.uint64(23), np.uint64(0xFF), 127
_SIGN = np.uint64(1 << 63)

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()

_ESCAPES = np.zeros(256, np.uint8)
"""Per byte: 0 as it is, 1 escaped as \\u00xx, another one as a backslash and that."""
_ESCAPES[:32] = 1
for _plain, _escaped in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _ESCAPES[_plain] = _escaped


@inlined
def put_text(out: Any, pos: Any, text: Any) -> Any:
    """A text as it is, of uint8."""
    for i in range(len(text)):
        out[pos + np.uint64(i)] = text[i]
    return pos + np.uint64(len(text))


@inlined
def put_digits(out: Any, pos: Any, value: Any, width: Any) -> Any:
    """Exactly `width` decimal digits."""
    cursor = pos + width
    while cursor > pos:
        cursor -= _ONE
        out[cursor] = np.uint64(48) + value % _TEN
        value //= _TEN
    return pos + width


@inlined
def put_unsigned(out: Any, pos: Any, value: Any) -> Any:
    """A uint64 in decimal."""
    width = _ONE
    quotient = value // _TEN
    while quotient > 0:
        quotient //= _TEN
        width += _ONE
    return put_digits(out, pos, value, width)


@inlined
def put_integer(out: Any, pos: Any, value: Any) -> Any:
    """A uint64 that holds an int64, in decimal."""
    if np.int64(value) < 0:
        out[pos] = 45
        pos += _ONE
        value = ~value + _ONE
    return put_unsigned(out, pos, value)


@inlined
def widened_bits(bits: Any) -> Any:
    """The bits of a float32 as those of the same double; all ones for one that is not normal, but for zero."""
    sign = bits >> np.uint64(31) << np.uint64(63)
    exponent = bits >> _SINGLE_FRACTION & _SINGLE_EXPONENT
    fraction = bits & np.uint64((1 << 23) - 1)
    if exponent == _ZERO and fraction == _ZERO:
        return sign
    if exponent in (_ZERO, _SINGLE_EXPONENT):
        return ~_ZERO
    return sign | (exponent + np.uint64(_BIAS - _SINGLE_BIAS)) << _FRACTION | fraction << np.uint64(29)


@inlined
def put_double(bits: Any, rendered: Any, state: Any) -> Any:
    """Write a double as an integer where it is one, or down that it belongs here. Returns whether JSON has it.

    It goes to `rendered.out` at `state.position`, or to `rendered.slots` and `rendered.doubles` at `state.slots`.
    """
    biased = bits >> _FRACTION & _EXPONENT
    if biased == _EXPONENT or state.slots >= len(rendered.slots):
        return False
    if bits == _ZERO:
        rendered.out[state.position] = 48
        state.position += _ONE
        return True
    exponent = np.int64(biased) - _BIAS
    if 0 <= exponent <= 52:
        below = np.uint64(52 - exponent)
        magnitude = _ONE << _FRACTION | bits & np.uint64((1 << 52) - 1)
        if magnitude >> below << below == magnitude:
            magnitude >>= below
            value = ~magnitude + _ONE if bits & _SIGN != _ZERO else magnitude
            state.position = put_integer(rendered.out, state.position, value)
            return True
    rendered.doubles[state.slots] = bits
    rendered.slots[state.slots] = state.position
    state.slots += 1
    return True


@inlined
def put_string(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """A JSON string; the position after it, which is 0 where the bytes are no UTF-8."""
    out[pos] = 34
    pos += _ONE
    cursor = start
    while cursor < end:
        byte = data[cursor]
        escape = _ESCAPES[byte]
        if byte >= 128:
            length = utf8_length(data, cursor, end)
            if length == _ZERO:
                return _ZERO
            for _ in range(length):
                out[pos] = data[cursor]
                pos += _ONE
                cursor += _ONE
            continue
        if escape == 0:
            out[pos] = byte
            pos += _ONE
        elif escape == 1:
            out[pos] = 92
            out[pos + _ONE] = 117
            out[pos + _TWO] = 48
            out[pos + _THREE] = 48
            out[pos + _FOUR] = _HEX[byte >> 4]
            out[pos + np.uint64(5)] = _HEX[byte & 15]
            pos += _SIX
        else:
            out[pos] = 92
            out[pos + _ONE] = escape
            pos += _TWO
        cursor += _ONE
    out[pos] = 34
    return pos + _ONE


@inlined
def put_base64(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """A JSON string that holds bytes in base64."""
    out[pos] = 34
    pos += _ONE
    cursor = start
    while cursor < end:
        group_length = min(end - cursor, _THREE)
        word = np.uint64(data[cursor]) << np.uint64(16)
        if group_length > 1:
            word |= np.uint64(data[cursor + _ONE]) << _EIGHT
        if group_length > 2:
            word |= np.uint64(data[cursor + _TWO])
        for i in range(4):
            digit = _BASE64[word >> np.uint64(18 - 6 * i) & np.uint64(63)]
            out[pos] = digit if np.uint64(i) <= group_length else 61
            pos += _ONE
        cursor += group_length
    out[pos] = 34
    return pos + _ONE


@inlined
def put_timestamp(out: Any, pos: Any, micros: Any) -> Any:
    """Microseconds since 1970 as RFC 3339; the position after it, which is 0 outside the years 1 to 9999."""
    days = micros // _DAY
    if days < _FIRST_DAY or days > _LAST_DAY:
        return _ZERO
    day_micros = np.uint64(micros - days * _DAY)
    # Days to a date, counted in eras of 400 years that begin in March.
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    part = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * part + 2) // 5 + 1
    month = part + 3 if part < 10 else part - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    seconds = day_micros // np.uint64(1_000_000)
    fraction = day_micros % np.uint64(1_000_000)
    out[pos] = 34
    pos = put_digits(out, pos + _ONE, np.uint64(year), _FOUR)
    out[pos] = 45
    pos = put_digits(out, pos + _ONE, np.uint64(month), _TWO)
    out[pos] = 45
    pos = put_digits(out, pos + _ONE, np.uint64(day), _TWO)
    out[pos] = 84
    pos = put_digits(out, pos + _ONE, seconds // np.uint64(3600), _TWO)
    out[pos] = 58
    pos = put_digits(out, pos + _ONE, seconds // np.uint64(60) % np.uint64(60), _TWO)
    out[pos] = 58
    pos = put_digits(out, pos + _ONE, seconds % np.uint64(60), _TWO)
    if fraction > 0:
        out[pos] = 46
        pos = put_digits(out, pos + _ONE, fraction, _SIX)
    out[pos] = 90
    out[pos + _ONE] = 34
    return pos + _TWO


@kernel
def fill_slots(
    text: Bytes, ends: Int64s, slots: Int64s, numbers: Bytes, number_ends: Int64s, out: OutBytes, out_ends: OutInt32s
) -> None:
    """Put the texts of doubles where they belong.

    Args:
        text: uint8, texts without doubles.
        ends: int64, text i is `text[ends[i] : ends[i + 1]]`.
        slots: int64, ascending: where in `text` doubles belong.
        numbers: uint8, the texts of the doubles, each followed by one byte more.
        number_ends: int64, number i is `numbers[number_ends[i] + 1 : number_ends[i + 1]]`.
        out: uint8, with room for all.
        out_ends: int32, as `ends`.
    """
    pos = _ZERO
    text_pos = _ZERO
    slot = 0
    for row in range(len(ends) - 1):
        end = np.uint64(ends[row + 1])
        while slot < len(slots) and np.uint64(slots[slot]) < end:
            length = np.uint64(slots[slot]) - text_pos
            copy_bytes(out, pos, text, text_pos, length)
            pos += length
            text_pos += length
            start = np.uint64(number_ends[slot]) + _ONE
            length = np.uint64(number_ends[slot + 1]) - start
            copy_bytes(out, pos, numbers, start, length)
            pos += length
            slot += 1
        copy_bytes(out, pos, text, text_pos, end - text_pos)
        pos += end - text_pos
        text_pos = end
        out_ends[row + 1] = pos


def fill_numbers(
    text: NDArray[np.uint8], ends: NDArray[np.int64], slots: NDArray[np.int64], numbers: bytes
) -> tuple[Column, NDArray[np.int32]]:
    """Return texts with the numbers of a list in JSON in their slots, and where each text ends."""
    listed = np.frombuffer(numbers, np.uint8)
    # Each text is between two of the brackets and commas.
    bounds = np.flatnonzero((listed == ord(",")) | (listed == ord("[")) | (listed == ord("]")))
    out, out_ends = Column(np.uint8, int(ends[-1]) + len(listed)), np.zeros(len(ends), np.int32)
    fill_slots(text, ends, slots, listed, bounds, out.values, out_ends)
    return out, out_ends
