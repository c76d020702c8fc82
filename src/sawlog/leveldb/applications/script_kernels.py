"""Rendering values of scripts as JSON straight from their bytes, for use inside kernels.

Whatever is out of the ordinary is left to `script_values`, which writes the same text of what is read here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.doubles import put_double
from sawlog.kernels.jit import inlined
from sawlog.kernels.json_text import (
    put_digits,
    put_integer,
    put_latin_1_string,
    put_plain_string,
    put_string,
    put_text,
    put_timestamp,
    put_utf_16_string,
)
from sawlog.kernels.memory import are_bytes_equal, load_u64
from sawlog.kernels.numbers import _EIGHT, _FIVE, _ONE, _THREE, _TWO, _U32, _ZERO
from sawlog.kernels.protobuf import read_varint
from sawlog.kernels.text import make_text
from sawlog.kernels.vector import copy_32
from sawlog.leveldb.applications import indexed_db_layout as layout

LEVEL = make_record_type("kind", "length", "remaining", "items", "names")
"""A list or object that is open: the tag that it began with, its length, how many items are to come, how many were
there, and where the names of an object begin among all."""
NAME = make_record_type("start", "length")
"""A name in an object that is open, in the text."""
MAX_LEVELS = 64
"""Lists and objects in each other; deeper ones are left to Python."""
MAX_NAMES = 1024
ROOM = 6
"""Bytes of text that there is room for, for each byte of a key or value."""


_LITERALS = {
    layout.TRUE_TAG: "true",
    layout.FALSE_TAG: "false",
    layout.NULL_TAG: "null",
    layout.UNDEFINED_TAG: '{"$undefined":true}',
}
_LITERAL_TEXTS = np.zeros(256 << 5, np.uint8)
_LITERAL_SIZES = np.zeros(256, np.uint64)
for _tag, _literal in _LITERALS.items():
    _LITERAL_SIZES[_tag] = len(_literal)
    _LITERAL_TEXTS[_tag << 5 : (_tag << 5) + len(_literal)] = list(_literal.encode())
NULL_TEXT = make_text(b"null")
_DATE_TEXT, BYTES_TEXT = map(make_text, (b'{"$date":', b'{"$bytes":'))
_SLACK = np.uint64(128)
"""More than the text of anything that is written at a time, but for strings and bytes."""
_ROOM = np.uint64(ROOM)
_TRAILER = np.uint64(layout.TRAILER_SIZE)
_FRACTION, _FRACTION_BITS = np.uint64(52), np.uint64((1 << 52) - 1)
_EXPONENT, _BIAS = np.uint64(0x7FF), 1023
_NAN_BITS = np.uint64(0x7FF8000000000000)


@inlined
def put_byte(texts: Any, state: Any, byte: Any) -> None:
    """Write a byte."""
    texts.out[state.position] = byte
    state.position += _ONE


@inlined
def has_room(texts: Any, state: Any, length: Any) -> Any:
    """Return whether there is room for the text of so many bytes."""
    return np.uint64(len(texts.out)) - state.position >= _ROOM * length + _SLACK


@inlined
def _read_varint_32(data: Any, pos: Any, end: Any) -> Any:
    """Return a varint of at most 32 bits at `pos`: the value and the position after it, which is 0 for none."""
    value, after = read_varint(data, pos, end)
    if after == _ZERO or after - pos > _FIVE or value > _U32:
        return _ZERO, _ZERO
    return value, after


@inlined
def put_date(bits: Any, texts: Any, state: Any) -> Any:
    """Write a Date of whole milliseconds, or one that is invalid. Returns whether it is such."""
    biased = bits >> _FRACTION & _EXPONENT
    exponent = np.int64(biased) - _BIAS
    milliseconds = np.int64(0)
    if 0 <= exponent <= 52:
        below = np.uint64(52 - exponent)
        magnitude = _ONE << _FRACTION | bits & _FRACTION_BITS
        if magnitude >> below << below != magnitude:
            return False
        milliseconds = np.int64(magnitude >> below)
        if bits >> np.uint64(63) != _ZERO:
            milliseconds = -milliseconds
    elif bits not in (_ZERO, _NAN_BITS):
        return False
    state.position = put_text(texts.out, state.position, _DATE_TEXT)
    if bits == _NAN_BITS:
        state.position = put_text(texts.out, state.position, NULL_TEXT)
        put_byte(texts, state, 125)
        return True
    seconds = milliseconds // 1000
    pos = put_timestamp(texts.out, state.position, seconds * 1_000_000)
    if pos == _ZERO:
        return False
    state.position = pos - _TWO  # before the letter Z and the quote
    put_byte(texts, state, 46)
    state.position = put_digits(texts.out, state.position, np.uint64(milliseconds - seconds * 1000), _THREE)
    put_byte(texts, state, 90)
    put_byte(texts, state, 34)
    put_byte(texts, state, 125)
    return True


@inlined
def _find_tag(data: Any, pos: Any, end: Any) -> Any:
    """Return the position of the next tag, after zeros."""
    while pos < end and data[pos] == 0:
        pos += _ONE
    return pos


@inlined
def _put_text(data: Any, pos: Any, end: Any, tag: Any, texts: Any, state: Any) -> Any:
    """Write a string. Returns the position after it, 0 for a doubtful one."""
    size, pos = _read_varint_32(data, pos, end)
    if pos == _ZERO or size > end - pos or not has_room(texts, state, size):
        return _ZERO
    out = texts.out
    text_end = put_plain_string(out, state.position, data, pos, pos + size) if tag != layout.UTF_16_TAG else _ZERO
    if text_end != _ZERO:
        state.position = text_end
    elif tag == layout.LATIN_1_TAG:
        state.position = put_latin_1_string(out, state.position, data, pos, pos + size)
    elif tag == layout.UTF_16_TAG:
        state.position = put_utf_16_string(out, state.position, data, pos, pos + size, False)
    else:
        state.position = put_string(out, state.position, data, pos, pos + size)
    return pos + size if state.position != _ZERO else _ZERO


@inlined
def _read_int32(data: Any, pos: Any, end: Any, tag: Any) -> Any:
    """Return an integer, signed after the tag I, as the bits of an int64, and the position after it, 0 for none."""
    value, pos = _read_varint_32(data, pos, end)
    if tag == layout.INT_TAG:
        value = value >> _ONE ^ (~(value & _ONE) + _ONE)
    return value, pos


@inlined
def _put_scalar(data: Any, pos: Any, end: Any, tag: Any, texts: Any, state: Any) -> Any:
    """Write a value that has no others in it. Returns the position after it, 0 for a doubtful one."""
    out = texts.out
    if tag in (layout.LATIN_1_TAG, layout.UTF_16_TAG, layout.UTF_8_TAG):
        return _put_text(data, pos, end, tag, texts, state)
    if tag in (layout.INT_TAG, layout.UNSIGNED_TAG):
        value, pos = _read_int32(data, pos, end, tag)
        if pos != _ZERO:
            state.position = put_integer(out, state.position, value)
        return pos
    if tag in (layout.DOUBLE_TAG, layout.DATE_TAG):
        if end - pos < _EIGHT:
            return _ZERO
        bits = load_u64(data, pos)
        is_plain = put_date(bits, texts, state) if tag == layout.DATE_TAG else put_double(bits, texts, state)
        return pos + _EIGHT if is_plain else _ZERO
    copy_32(out, state.position, _LITERAL_TEXTS, np.uint64(tag) << _FIVE)
    state.position += _LITERAL_SIZES[tag]
    return pos if _LITERAL_SIZES[tag] > _ZERO else _ZERO


@inlined
def _open(data: Any, pos: Any, end: Any, tag: Any, level: Any, texts: Any, state: Any) -> Any:
    """Begin a list or an object. Returns the position after what precedes its items, 0 for a doubtful one."""
    level.kind = tag
    level.items = 0
    level.names = state.names
    if tag == layout.OBJECT_TAG:
        put_byte(texts, state, 123)
        return pos
    length, pos = _read_varint_32(data, pos, end)
    level.length = np.int64(length)
    level.remaining = np.int64(length)
    put_byte(texts, state, 91)
    return pos if tag == layout.SPARSE_LIST_TAG or length <= end - pos else _ZERO


@inlined
def _is_new_name(start: Any, texts: Any, level: Any, scratch: Any, state: Any) -> Any:
    """Return whether the text ends with a name without dollar that no other property of an object has."""
    length = state.position - start
    count = state.names
    if texts.out[start + _ONE] == 36 or count == MAX_NAMES:
        return False
    for i in range(level.names, count):
        name = scratch.names[i]
        if name.length == np.int64(length) and are_bytes_equal(
            texts.out, np.uint64(name.start), texts.out, start, length
        ):
            return False
    scratch.names[count].start = np.int64(start)
    scratch.names[count].length = np.int64(length)
    state.names = count + 1
    return True


@inlined
def _put_name(data: Any, pos: Any, end: Any, level: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Write the name of a property and a colon. Returns the position after it, 0 for a doubtful one."""
    start = state.position
    tag = np.int64(data[pos])
    pos += _ONE
    if tag in (layout.LATIN_1_TAG, layout.UTF_16_TAG, layout.UTF_8_TAG):
        pos = _put_text(data, pos, end, tag, texts, state)
    elif tag in (layout.INT_TAG, layout.UNSIGNED_TAG):
        value, pos = _read_int32(data, pos, end, tag)
        put_byte(texts, state, 34)
        state.position = put_integer(texts.out, state.position, value)
        put_byte(texts, state, 34)
    else:
        return _ZERO
    if pos == _ZERO or not _is_new_name(start, texts, level, scratch, state):
        return _ZERO
    put_byte(texts, state, 58)
    return pos


@inlined
def _close(data: Any, pos: Any, end: Any, level: Any, texts: Any, state: Any) -> Any:
    """End a list or an object after its last tag. Returns the position after it, 0 for a doubtful one."""
    count, pos = _read_varint_32(data, pos, end)
    if level.kind == layout.OBJECT_TAG:
        put_byte(texts, state, 125)
        state.names = level.names
        return pos if np.int64(count) == level.items else _ZERO
    if pos == _ZERO:
        return _ZERO
    length, pos = _read_varint_32(data, pos, end)
    put_byte(texts, state, 93)
    # A dense list has no properties; a sparse one has no holes.
    expected = 0 if level.kind == layout.DENSE_LIST_TAG else level.length
    is_plain = np.int64(count) == expected and np.int64(length) == level.length and level.items == level.length
    return pos if is_plain else _ZERO


@inlined
def _advance(data: Any, pos: Any, end: Any, level: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Go on with what is open. Returns whether it ends, and the position after that or of a value; 0 in doubt."""
    pos = _find_tag(data, pos, end)
    if pos >= end or not has_room(texts, state, _ZERO):
        return True, _ZERO
    tag = np.int64(data[pos])
    kind = level.kind
    is_end = (
        level.remaining == 0
        if kind == layout.DENSE_LIST_TAG
        else tag == (layout.OBJECT_END_TAG if kind == layout.OBJECT_TAG else layout.SPARSE_LIST_END_TAG)
    )
    if is_end:
        if kind == layout.DENSE_LIST_TAG and tag != layout.DENSE_LIST_END_TAG:
            return True, _ZERO
        return True, _close(data, pos + _ONE, end, level, texts, state)
    if level.items > 0:
        put_byte(texts, state, 44)
    if kind == layout.OBJECT_TAG:
        pos = _put_name(data, pos, end, level, texts, scratch, state)
    elif kind == layout.SPARSE_LIST_TAG:
        place, pos = _read_int32(data, pos + _ONE, end, tag)
        if tag not in (layout.INT_TAG, layout.UNSIGNED_TAG) or np.int64(place) != level.items:
            return True, _ZERO
    level.items += 1
    level.remaining -= 1
    return False, pos


@inlined
def _put_value(data: Any, pos: Any, end: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Write a value of V8's. Returns the position after it, 0 for a doubtful one."""
    depth = 0
    state.names = 0
    while True:
        pos = _find_tag(data, pos, end)
        if pos >= end or not has_room(texts, state, _ZERO):
            return _ZERO
        tag = np.int64(data[pos])
        pos += _ONE
        if tag in (layout.OBJECT_TAG, layout.DENSE_LIST_TAG, layout.SPARSE_LIST_TAG):
            if depth == MAX_LEVELS:
                return _ZERO
            pos = _open(data, pos, end, tag, scratch.stack[depth], texts, state)
            depth += 1
        else:
            pos = _put_scalar(data, pos, end, tag, texts, state)
        is_closed = True
        while is_closed:
            if pos == _ZERO or depth == 0:
                return pos
            is_closed, pos = _advance(data, pos, end, scratch.stack[depth - 1], texts, scratch, state)
            if is_closed:
                depth -= 1
        if pos == _ZERO:
            return _ZERO


@inlined
def _begin_value(data: Any, pos: Any, end: Any) -> Any:
    """Read the versions of Blink and V8. Returns the position after them, 0 for those that are left to Python."""
    if end - pos < _THREE or data[pos] != layout.VERSION_TAG:
        return _ZERO
    if data[pos + _ONE] == layout.WRAPPED and data[pos + _TWO] != layout.VERSION_TAG:
        return _ZERO
    version, pos = _read_varint_32(data, pos + _ONE, end)
    if version >= layout.SEPARATE_ENVELOPE:
        if pos < end and data[pos] == layout.TRAILER_TAG:
            if end - pos <= _TRAILER or load_u64(data, pos + _ONE) != _ZERO:
                return _ZERO
            pos += _ONE + _TRAILER
        if pos >= end or data[pos] != layout.VERSION_TAG:
            return _ZERO
        version, pos = _read_varint_32(data, pos + _ONE, end)
    return pos if layout.TAGGED_HOLES <= version < layout.UNKNOWN_SINCE else _ZERO


@inlined
def put_script(data: Any, pos: Any, end: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Write a value of a script after its versions. Returns whether it is a plain one."""
    pos = _begin_value(data, pos, end)
    if pos == _ZERO:
        return False
    pos = _put_value(data, pos, end, texts, scratch, state)
    return pos != _ZERO and _find_tag(data, pos, end) == end
