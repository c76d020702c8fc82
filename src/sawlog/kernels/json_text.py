"""Writing JSON text at unsigned positions of uint8 arrays, for use inside kernels.

Callers see to the room. What is written is what orjson would write.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.arrow import Column
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import copy_bytes, count_low_zeros, load_u64, store_u16, store_u32, store_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _ONE, _SIX, _SIXTEEN, _TEN, _THREE, _TWO, _ZERO
from sawlog.kernels.signature import Bytes, Int64s, OutBytes, OutInt32s
from sawlog.kernels.text import HIGH_BITS, make_text, measure_utf8, put_beyond_ascii, read_utf_16
from sawlog.kernels.vector import copy_plain_16

_IS_ESCAPED = np.zeros(256, np.uint8)
_IS_ESCAPED[list(b'"\\/bfnrt')] = 1
_HEX_DIGITS = np.zeros(256, np.uint8)
_HEX_DIGITS[list(b"0123456789abcdefABCDEF")] = 1
_TRUE_NAME, _FALSE_NAME, _NULL_NAME = map(make_text, (b"true", b"false", b"null"))
_DAY = 86_400_000_000
_FIRST_DAY = -719_162
_LAST_DAY = 2_932_896
"""Days from 1970 to the years 1 and 9999."""

_HUNDRED, _TEN_THOUSAND = np.uint64(100), np.uint64(10_000)
_EIGHT_DIGITS = np.uint64(10**8)
_DIGITS = np.uint64(int.from_bytes(b"0" * 8, "little"))
_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), "<u2").astype(np.uint64)
"""The two digits of each number, as a number of 16 bits."""

_HEX = make_text(b"0123456789abcdef")
_BASE64 = make_text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")

_BASE64_PAIRS = (
    _BASE64[np.arange(4096) >> 6] | _BASE64[np.arange(4096) & 63].astype(np.uint64) << np.uint64(8)
).astype(np.uint64)
"""The two digits of 12 bits, as a number of 16 bits."""
_TWELVE, _LOW12 = np.uint64(12), np.uint64(0xFFF)
_BYTES_OF_ONE = np.uint64(0x0101010101010101)
_BYTES_OF_SPACE = np.uint64(0x2020202020202020)
_BYTES_OF_QUOTE = np.uint64(0x2222222222222222)
_BYTES_OF_BACKSLASH = np.uint64(0x5C5C5C5C5C5C5C5C)

_ESCAPES = np.zeros(256, np.uint8)
"""Per byte: 0 as it is, 1 escaped as \\u00xx, another one as a backslash and that."""
_ESCAPES[:32] = 1
for _plain, _escaped in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _ESCAPES[_plain] = _escaped


@inlined
def put_text(out: Any, pos: Any, text: Any) -> Any:
    """Write a text as it is, of uint8."""
    for i in range(len(text)):
        out[pos + np.uint64(i)] = text[i]
    return pos + np.uint64(len(text))


@inlined
def put_digits(out: Any, pos: Any, value: Any, width: Any) -> Any:
    """Write exactly `width` decimal digits."""
    cursor = pos + width
    while cursor > pos:
        cursor -= _ONE
        out[cursor] = np.uint64(48) + value % _TEN
        value //= _TEN
    return pos + width


@inlined
def _join_digits(value: Any) -> Any:
    """Return the eight digits of a number below 10**8, as a number of 64 bits."""
    high = value // _TEN_THOUSAND
    low = value - high * _TEN_THOUSAND
    first, third = high // _HUNDRED, low // _HUNDRED
    four = _PAIRS[first] | _PAIRS[high - first * _HUNDRED] << _SIXTEEN
    return four | (_PAIRS[third] | _PAIRS[low - third * _HUNDRED] << _SIXTEEN) << _HALF


@inlined
def _drop_zeros(word: Any) -> Any:
    """Return eight digits without the zeros before others, and how many are left: one at least."""
    zeros = count_low_zeros(word ^ _DIGITS | _ONE << np.uint64(56)) >> _THREE
    return word >> (zeros << _THREE), _EIGHT - zeros


@inlined
def _put_pair(out: Any, pos: Any, value: Any) -> Any:
    """Write two digits; return the position after them."""
    store_u16(out, pos, _PAIRS[value])
    return pos + _TWO


@inlined
def put_unsigned(out: Any, pos: Any, value: Any) -> Any:
    """Write a uint64 in decimal, eight digits at a time; return the position after it."""
    if value < _EIGHT_DIGITS:
        word, width = _drop_zeros(_join_digits(value))
        if width >= _FOUR:
            store_u32(out, pos, word)
            store_u32(out, pos + width - _FOUR, word >> (width - _FOUR << _THREE))
        else:
            out[pos] = word & np.uint64(255)
            if width > _ONE:
                store_u16(out, pos + width - _TWO, word >> (width - _TWO << _THREE))
        return pos + width
    high = value // _EIGHT_DIGITS
    top = high // _EIGHT_DIGITS
    if _ZERO < top < _TEN:  # as in times in microseconds since 1601
        out[pos] = np.uint64(48) + top
        pos += _ONE
    else:
        word, width = _drop_zeros(_join_digits(top if top > _ZERO else high))
        store_u64(out, pos, word)  # the digits after it overwrite what is too much
        pos += width
    if top > _ZERO:
        store_u64(out, pos, _join_digits(high - top * _EIGHT_DIGITS))
        pos += _EIGHT
    store_u64(out, pos, _join_digits(value - high * _EIGHT_DIGITS))
    return pos + _EIGHT


@inlined
def put_integer(out: Any, pos: Any, value: Any) -> Any:
    """Write a uint64 that holds an int64, in decimal."""
    if np.int64(value) < 0:
        out[pos] = 45
        pos += _ONE
        value = ~value + _ONE
    return put_unsigned(out, pos, value)


@inlined
def _are_plain(word: Any) -> Any:
    """Return whether eight bytes are characters of ASCII that JSON has as they are."""
    quotes = word ^ _BYTES_OF_QUOTE
    backslashes = word ^ _BYTES_OF_BACKSLASH
    below = (word - _BYTES_OF_SPACE) & ~word
    equal = (quotes - _BYTES_OF_ONE) & ~quotes | (backslashes - _BYTES_OF_ONE) & ~backslashes
    return (word | below | equal) & HIGH_BITS == _ZERO


@inlined
def _put_ascii(out: Any, pos: Any, byte: Any) -> Any:
    """Write a character of ASCII in a JSON string; return the position after it."""
    escape = _ESCAPES[byte]
    if escape == 0:
        out[pos] = byte
        return pos + _ONE
    out[pos] = 92
    if escape > 1:
        out[pos + _ONE] = escape
        return pos + _TWO
    out[pos + _ONE] = 117
    out[pos + _TWO] = 48
    out[pos + _THREE] = 48
    out[pos + _FOUR] = _HEX[byte >> 4]
    out[pos + np.uint64(5)] = _HEX[byte & 15]
    return pos + _SIX


_ROOM = np.uint64(32)
"""What `put_plain_string` needs besides the text: it writes 16 bytes at a time, and two quotes."""


@always_inlined
def put_plain_string(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write a JSON string of ASCII that is as JSON has it; return the position after it.

    It is 0 for other texts, and near the ends of the arrays.
    """
    length = end - start
    if np.uint64(len(data)) - end < _SIXTEEN or np.uint64(len(out)) - pos < length + _ROOM:
        return _ZERO
    out[pos] = 34
    pos += _ONE
    done = _ZERO
    while done < length:
        marks = copy_plain_16(out, pos + done, data, start + done)
        if length - done < _SIXTEEN:
            marks &= (_ONE << length - done) - _ONE
        if marks != _ZERO:
            return _ZERO
        done += _SIXTEEN
    out[pos + length] = 34
    return pos + length + _ONE


@inlined
def _put_characters(out: Any, pos: Any, data: Any, cursor: Any, end: Any, is_latin_1: Any) -> Any:
    out[pos] = 34
    pos += _ONE
    while cursor < end:
        if min(np.uint64(len(data)) - cursor, np.uint64(len(out)) - pos) >= _SIXTEEN:
            marks = copy_plain_16(out, pos, data, cursor)
            plain = count_low_zeros(marks | _ONE << min(end - cursor, _SIXTEEN))
            pos += plain
            cursor += plain
            if plain == _SIXTEEN or cursor == end:
                continue
        byte = data[cursor]
        if byte < 128:
            pos = _put_ascii(out, pos, byte)
            cursor += _ONE
        elif is_latin_1:
            pos = put_beyond_ascii(out, pos, np.uint64(byte))
            cursor += _ONE
        else:
            length = measure_utf8(data, cursor, end)
            if length == _ZERO:
                return _ZERO
            for _ in range(length):
                out[pos] = data[cursor]
                pos += _ONE
                cursor += _ONE
    out[pos] = 34
    return pos + _ONE


@inlined
def put_string(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write a JSON string; return the position after it, which is 0 where the bytes are no UTF-8.

    Of `out`, 16 bytes after it may be overwritten.
    """
    return _put_characters(out, pos, data, start, end, False)


@inlined
def put_latin_1_string(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write a JSON string of Latin-1; return the position after it."""
    return _put_characters(out, pos, data, start, end, True)


@inlined
def put_utf_16_string(out: Any, pos: Any, data: Any, start: Any, end: Any, is_big: Any) -> Any:
    """Write a JSON string of UTF-16, of either byte order; return the position after it, 0 where it is none."""
    out[pos] = 34
    pos += _ONE
    while start < end:
        character, start = read_utf_16(data, start, end, is_big)
        if start == _ZERO:
            return _ZERO
        pos = _put_ascii(out, pos, character) if character < 128 else put_beyond_ascii(out, pos, character)
    out[pos] = 34
    return pos + _ONE


@inlined
def put_base64(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    """Write a JSON string that holds bytes in base64."""
    out[pos] = 34
    pos += _ONE
    cursor = start
    while end - cursor >= _THREE:
        word = np.uint64(data[cursor]) << np.uint64(16) | np.uint64(data[cursor + _ONE]) << _EIGHT
        word |= np.uint64(data[cursor + _TWO])
        store_u32(out, pos, _BASE64_PAIRS[word >> _TWELVE] | _BASE64_PAIRS[word & _LOW12] << np.uint64(16))
        pos += _FOUR
        cursor += _THREE
    while cursor < end:
        group_length = min(end - cursor, _THREE)
        word = np.uint64(data[cursor]) << np.uint64(16)
        if group_length > 1:
            word |= np.uint64(data[cursor + _ONE]) << _EIGHT
        for i in range(4):
            digit = _BASE64[word >> np.uint64(18 - 6 * i) & np.uint64(63)]
            out[pos] = digit if np.uint64(i) <= group_length else 61
            pos += _ONE
        cursor += group_length
    out[pos] = 34
    return pos + _ONE


@inlined
def put_timestamp(out: Any, pos: Any, micros: Any) -> Any:
    """Write microseconds since 1970 as RFC 3339; return the position after it, 0 outside the years 1 to 9999."""
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
    pos = _put_pair(out, pos + _ONE, np.uint64(year) // _HUNDRED)
    pos = _put_pair(out, pos, np.uint64(year) % _HUNDRED)
    out[pos] = 45
    pos = _put_pair(out, pos + _ONE, np.uint64(month))
    out[pos] = 45
    pos = _put_pair(out, pos + _ONE, np.uint64(day))
    out[pos] = 84
    pos = _put_pair(out, pos + _ONE, seconds // np.uint64(3600))
    out[pos] = 58
    pos = _put_pair(out, pos + _ONE, seconds // np.uint64(60) % np.uint64(60))
    out[pos] = 58
    pos = _put_pair(out, pos + _ONE, seconds % np.uint64(60))
    if fraction > 0:
        out[pos] = 46
        pos = put_digits(out, pos + _ONE, fraction, _SIX)
    out[pos] = 90
    out[pos + _ONE] = 34
    return pos + _TWO


_MOST_DEPTH = 63
"""Lists and objects in each other, at most, of texts that `is_json` takes."""
_MOST_DIGITS = np.uint64(300)


@inlined
def _skip_space(data: Any, pos: Any, end: Any) -> Any:
    while pos < end and (data[pos] == 32 or 9 <= data[pos] <= 10 or data[pos] == 13):
        pos += _ONE
    return pos


@inlined
def _find_string_end(data: Any, pos: Any, end: Any) -> Any:
    """Return the position after a string of JSON at `pos`, without halves of surrogate pairs; 0 for none."""
    pos += _ONE
    while pos < end:
        if end - pos >= _EIGHT and _are_plain(load_u64(data, pos)):
            pos += _EIGHT
            continue
        byte = data[pos]
        pos += _ONE
        if byte == 34:
            return pos
        if byte < 32 or (byte == 92 and pos == end):
            return _ZERO
        if byte == 92:
            byte = data[pos]
            pos += _ONE
            if byte == 117:
                if end - pos < _FOUR:
                    return _ZERO
                for i in range(4):
                    if _HEX_DIGITS[data[pos + np.uint64(i)]] == 0:
                        return _ZERO
                if data[pos] | 32 == 100 and data[pos + _ONE] >= 56:
                    return _ZERO
                pos += _FOUR
            elif _IS_ESCAPED[byte] == 0:
                return _ZERO
    return _ZERO


@inlined
def _find_digits_end(data: Any, pos: Any, end: Any) -> Any:
    """Return the position after digits at `pos`; 0 for none."""
    start = pos
    while pos < end and 48 <= data[pos] <= 57:
        pos += _ONE
    return pos if pos > start else _ZERO


@inlined
def _find_number_end(data: Any, pos: Any, end: Any) -> Any:
    """Return the position after a number of JSON at `pos`; 0 for none, and for very long ones."""
    start = pos
    if data[pos] == 45:
        pos += _ONE
    first = pos
    pos = _find_digits_end(data, pos, end)
    if pos == _ZERO or (data[first] == 48 and pos - first > _ONE):
        return _ZERO
    if pos < end and data[pos] == 46:
        pos = _find_digits_end(data, pos + _ONE, end)
    if pos != _ZERO and pos < end and data[pos] | 32 == 101:
        pos += _ONE
        if pos < end and (data[pos] == 43 or data[pos] == 45):
            pos += _ONE
        pos = _find_digits_end(data, pos, end)
    return pos if pos - start <= _MOST_DIGITS else _ZERO


@inlined
def _find_scalar_end(data: Any, pos: Any, end: Any) -> Any:
    """Return the position after a string, number or name of JSON at `pos`; 0 for none."""
    byte = data[pos]
    if byte == 34:
        return _find_string_end(data, pos, end)
    if byte == 45 or 48 <= byte <= 57:
        return _find_number_end(data, pos, end)
    text = _FALSE_NAME if byte == 102 else (_TRUE_NAME if byte == 116 else _NULL_NAME)
    length = np.uint64(len(text))
    if end - pos < length:
        return _ZERO
    for i in range(length):
        if data[pos + i] != text[i]:
            return _ZERO
    return pos + length


@inlined
def _find_name_end(data: Any, pos: Any, end: Any) -> Any:
    """Return the position after a name in an object and its colon; 0 for none."""
    pos = _skip_space(data, pos, end)
    if pos >= end or data[pos] != 34:
        return _ZERO
    pos = _find_string_end(data, pos, end)
    if pos == _ZERO:
        return _ZERO
    pos = _skip_space(data, pos, end)
    return pos + _ONE if pos < end and data[pos] == 58 else _ZERO


@inlined
def is_json(data: Any, pos: Any, end: Any) -> Any:
    """Return whether a text in UTF-8 is a document of JSON.

    Deep ones, and halves of surrogate pairs, are left to Python.
    """
    depth = 0
    objects = _ZERO  # a bit for each level: whether it is an object
    while True:
        pos = _skip_space(data, pos, end)
        if pos >= end:
            return False
        byte = data[pos]
        is_empty = False
        is_open = byte in (123, 91)
        if is_open:
            if depth == _MOST_DEPTH:
                return False
            depth += 1
            objects = objects << _ONE | (_ONE if byte == 123 else _ZERO)
            pos = _skip_space(data, pos + _ONE, end)
            if pos >= end:
                return False
            is_empty = data[pos] == (125 if byte == 123 else 93)
        else:
            pos = _find_scalar_end(data, pos, end)
            if pos == _ZERO:
                return False
        is_next = is_open and not is_empty
        while depth > 0 and not is_next:
            pos = _skip_space(data, pos, end)
            if pos >= end:
                return False
            byte = data[pos]
            pos += _ONE
            if byte == 44 and not is_empty:
                is_next = True
            elif byte == (125 if objects & _ONE != _ZERO else 93):
                depth -= 1
                objects >>= _ONE
                is_empty = False
            else:
                return False
        if not is_next:
            return _skip_space(data, pos, end) == end
        if objects & _ONE != _ZERO:
            pos = _find_name_end(data, pos, end)
            if pos == _ZERO:
                return False


@kernel
def _fill_slots(
    text: Bytes, ends: Int64s, slots: Int64s, numbers: Bytes, number_ends: Int64s, out: OutBytes, out_ends: OutInt32s
) -> None:
    """Put the texts of doubles where they belong.

    Args:
        text: uint8, texts with a byte in the place of each double.
        ends: int64, text i is `text[ends[i] : ends[i + 1]]`.
        slots: int64, ascending: where in `text` these bytes are.
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
            text_pos += length + _ONE
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
    _fill_slots(text, ends, slots, listed, bounds, out.values, out_ends)
    return out, out_ends
