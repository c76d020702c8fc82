"""Rendering the entries of IndexedDB as JSON straight from their bytes.

Whatever is out of the ordinary is left to `indexed_db` and `script_values`, which write the same text of what is read
here, and say what is wrong with the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import (
    put_base64,
    put_digits,
    put_double,
    put_integer,
    put_latin_1_string,
    put_string,
    put_text,
    put_timestamp,
    put_utf_16_string,
)
from sawlog.kernels.memory import load_u64, same_bytes
from sawlog.kernels.numbers import _EIGHT, _FIVE, _NINE, _ONE, _THREE, _TWO, _U32, _ZERO
from sawlog.kernels.protobuf import varint
from sawlog.kernels.signature import Array, OutBytes, OutInt64s, OutUInt64s
from sawlog.leveldb.applications import indexed_db_layout as layout
from sawlog.leveldb.records.kernels import Strings

KINDS = ("", "record", "exists", "index_entry")
"""Names of the kinds of entries, by number; 0 is for what is left to Python."""
_DOUBTFUL, _RECORD, _EXISTS, _INDEX_ENTRY = range(len(KINDS))
DATABASE, STORE, INDEX, VERSION = range(4)
"""Rows of `Rendered.numbers`."""

LEVEL = record_type("kind", "length", "remaining", "items", "names")
"""A list or object that is open: the tag that it began with, its length, how many items are to come, how many were
there, and where the names of an object begin among all."""
NAME = record_type("start", "length")
"""A name in an object that is open, in the text."""
STATE = record_type(("position", np.uint64), "slots", "names")
"""How far the texts, the slots and the names are."""
MAX_LEVELS = 64
"""Lists and objects in each other; deeper ones are left to Python."""
MAX_NAMES = 1024
ROOM = 6
"""Bytes of text that there is room for, for each byte of a key or value."""
ROW_ROOM = 256
"""Bytes that there is room for besides, for each."""


class Texts(NamedTuple):
    """Texts of JSON.

    Attributes:
        out: uint8, the texts without doubles.
        ends: int64, `ends[i + 1]` is the end of text i; `ends[0]` is 0.
        slots: int64, where in `out` doubles belong.
        doubles: uint64, their bits.
    """

    out: OutBytes
    ends: OutInt64s
    slots: OutInt64s
    doubles: OutUInt64s


class Rendered(NamedTuple):
    """Columns of entries.

    Attributes:
        kinds: uint8, numbers of `KINDS`.
        numbers: int64, rows for the IDs of database, object store and index, and for the version.
        keys: Keys as scripts know them.
        values: Values; empty where there is none.
    """

    kinds: OutBytes
    numbers: Annotated[Any, Array(np.int64, 2, writable=True)]
    keys: Texts
    values: Texts


class Scratch(NamedTuple):
    """Working memory: `LEVEL` and `NAME` of what is open, and two `STATE`, of keys and of values."""

    stack: Annotated[Any, Array(LEVEL, writable=True)]
    names: Annotated[Any, Array(NAME, writable=True)]
    state: Annotated[Any, Array(STATE, writable=True)]


def new_scratch() -> Scratch:
    """Room for what is rendered at all."""
    return Scratch(np.empty(MAX_LEVELS, LEVEL), np.empty(MAX_NAMES, NAME), np.zeros(2, STATE))


def _text(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8).copy()


_TRUE, _FALSE, _NULL, _UNDEFINED = map(_text, ("true", "false", "null", '{"$undefined":true}'))
_DATE_TEXT, _BYTES_TEXT = map(_text, ('{"$date":', '{"$bytes":'))
_SLACK = np.uint64(ROW_ROOM // 2)
"""More than the text of anything that is written at a time, but for strings and bytes."""
_ROOM = np.uint64(ROOM)
_TRAILER = np.uint64(layout.TRAILER_SIZE)
_FRACTION, _FRACTION_BITS = np.uint64(52), np.uint64((1 << 52) - 1)
_EXPONENT, _BIAS = np.uint64(0x7FF), 1023
_NAN_BITS = np.uint64(0x7FF8000000000000)
_OBJECT, _DENSE, _SPARSE = ord("o"), ord("A"), ord("a")
_FIRST_INDEX = np.int64(layout.FIRST_INDEX)


@inlined
def _put(texts: Any, state: Any, byte: Any) -> None:
    texts.out[state.position] = byte
    state.position += _ONE


@inlined
def _has_room(texts: Any, state: Any, length: Any) -> Any:
    """Whether there is room for the text of so many bytes."""
    return np.uint64(len(texts.out)) - state.position >= _ROOM * length + _SLACK


@inlined
def _varint(data: Any, pos: Any, end: Any) -> Any:
    """A varint of at most 63 bits at `pos`: the value and the position after it, which is 0 for none."""
    value, after = varint(data, pos, end)
    if after == _ZERO or after - pos > _NINE:
        return _ZERO, _ZERO
    return value, after


@inlined
def _varint_32(data: Any, pos: Any, end: Any) -> Any:
    """A varint of at most 32 bits, likewise."""
    value, after = varint(data, pos, end)
    if after == _ZERO or after - pos > _FIVE or value > _U32:
        return _ZERO, _ZERO
    return value, after


@inlined
def _little(data: Any, pos: Any, size: Any) -> Any:
    """An unsigned integer of up to eight bytes, little endian."""
    value = _ZERO
    while size > _ZERO:
        size -= _ONE
        value = value << _EIGHT | np.uint64(data[pos + size])
    return value


@inlined
def _read_place(data: Any, pos: Any, end: Any) -> Any:
    """The prefix of a key: IDs of database, object store and index, and the position after it, which is 0 for none."""
    if pos >= end:
        return _ZERO, _ZERO, _ZERO, _ZERO
    lengths = np.uint64(data[pos])
    pos += _ONE
    first = (lengths >> _FIVE) + _ONE
    second = (lengths >> _TWO & np.uint64(7)) + _ONE
    third = (lengths & _THREE) + _ONE
    if end - pos < first + second + third:
        return _ZERO, _ZERO, _ZERO, _ZERO
    database = _little(data, pos, first)
    store = _little(data, pos + first, second)
    index = _little(data, pos + first + second, third)
    return database, store, index, pos + first + second + third


@inlined
def _put_date(bits: Any, texts: Any, state: Any) -> Any:
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
        state.position = put_text(texts.out, state.position, _NULL)
        _put(texts, state, 125)
        return True
    seconds = milliseconds // 1000
    pos = put_timestamp(texts.out, state.position, seconds * 1_000_000)
    if pos == _ZERO:
        return False
    state.position = pos - _TWO  # before the letter Z and the quote
    _put(texts, state, 46)
    state.position = put_digits(texts.out, state.position, np.uint64(milliseconds - seconds * 1000), _THREE)
    _put(texts, state, 90)
    _put(texts, state, 34)
    _put(texts, state, 125)
    return True


@inlined
def _put_simple_key(data: Any, pos: Any, end: Any, kind: Any, texts: Any, state: Any) -> Any:
    """Write a key that is no list. Returns the position after it, 0 for a doubtful one."""
    if kind == layout.NO_KEY:
        state.position = put_text(texts.out, state.position, _NULL)
        return pos
    if kind in (layout.DATE, layout.NUMBER):
        if end - pos < _EIGHT:
            return _ZERO
        bits = load_u64(data, pos)
        is_plain = _put_date(bits, texts, state) if kind == layout.DATE else put_double(bits, texts, state)
        return pos + _EIGHT if is_plain else _ZERO
    if kind not in (layout.STRING, layout.BINARY):
        return _ZERO
    size, pos = _varint(data, pos, end)
    if pos == _ZERO or size > end - pos:
        return _ZERO
    if kind == layout.BINARY:
        if not _has_room(texts, state, size):
            return _ZERO
        state.position = put_text(texts.out, state.position, _BYTES_TEXT)
        state.position = put_base64(texts.out, state.position, data, pos, pos + size)
        _put(texts, state, 125)
        return pos + size
    size *= _TWO
    if size > end - pos or not _has_room(texts, state, size):
        return _ZERO
    state.position = put_utf_16_string(texts.out, state.position, data, pos, pos + size, True)
    return pos + size if state.position != _ZERO else _ZERO


@inlined
def _put_key(data: Any, pos: Any, end: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Write a key as scripts know it. Returns the position after it, 0 for a doubtful one."""
    depth = 0
    while True:
        if pos >= end or not _has_room(texts, state, _ZERO):
            return _ZERO
        kind = np.int64(data[pos])
        pos += _ONE
        if kind == layout.ARRAY:
            count, pos = _varint(data, pos, end)
            if pos == _ZERO or count > end - pos or depth == MAX_LEVELS:
                return _ZERO
            scratch.stack[depth].remaining = np.int64(count)
            scratch.stack[depth].items = 0
            depth += 1
            _put(texts, state, 91)
        else:
            pos = _put_simple_key(data, pos, end, kind, texts, state)
            if pos == _ZERO:
                return _ZERO
        while depth > 0 and scratch.stack[depth - 1].remaining == 0:
            depth -= 1
            _put(texts, state, 93)
        if depth == 0:
            return pos
        level = scratch.stack[depth - 1]
        if level.items > 0:
            _put(texts, state, 44)
        level.items += 1
        level.remaining -= 1


@inlined
def _next_tag(data: Any, pos: Any, end: Any) -> Any:
    """The position of the next tag, after zeros."""
    while pos < end and data[pos] == 0:
        pos += _ONE
    return pos


@inlined
def _put_text(data: Any, pos: Any, end: Any, tag: Any, texts: Any, state: Any) -> Any:
    """Write a string. Returns the position after it, 0 for a doubtful one."""
    size, pos = _varint_32(data, pos, end)
    if pos == _ZERO or size > end - pos or not _has_room(texts, state, size):
        return _ZERO
    out = texts.out
    if tag == 34:  # Latin-1
        state.position = put_latin_1_string(out, state.position, data, pos, pos + size)
    elif tag == 99:  # c: UTF-16
        state.position = put_utf_16_string(out, state.position, data, pos, pos + size, False)
    else:
        state.position = put_string(out, state.position, data, pos, pos + size)
    return pos + size if state.position != _ZERO else _ZERO


@inlined
def _read_int32(data: Any, pos: Any, end: Any, tag: Any) -> Any:
    """An integer, signed after the tag I: the bits of an int64, and the position after it, which is 0 for none."""
    value, pos = _varint_32(data, pos, end)
    if tag == 73:
        value = value >> _ONE ^ (~(value & _ONE) + _ONE)
    return value, pos


@inlined
def _put_scalar(data: Any, pos: Any, end: Any, tag: Any, texts: Any, state: Any) -> Any:
    """Write a value that has no others in it. Returns the position after it, 0 for a doubtful one."""
    out = texts.out
    if tag in (34, 99, 83):  # ", c, S
        return _put_text(data, pos, end, tag, texts, state)
    if tag in (73, 85):  # I, U
        value, pos = _read_int32(data, pos, end, tag)
        if pos != _ZERO:
            state.position = put_integer(out, state.position, value)
        return pos
    if tag in (78, 68):  # N, D
        if end - pos < _EIGHT:
            return _ZERO
        bits = load_u64(data, pos)
        is_plain = _put_date(bits, texts, state) if tag == 68 else put_double(bits, texts, state)
        return pos + _EIGHT if is_plain else _ZERO
    if tag == 84:
        state.position = put_text(out, state.position, _TRUE)
        return pos
    if tag == 70:
        state.position = put_text(out, state.position, _FALSE)
        return pos
    if tag == 48:
        state.position = put_text(out, state.position, _NULL)
        return pos
    if tag == 95:
        state.position = put_text(out, state.position, _UNDEFINED)
        return pos
    return _ZERO


@inlined
def _open(data: Any, pos: Any, end: Any, tag: Any, level: Any, texts: Any, state: Any) -> Any:
    """Begin a list or an object. Returns the position after what precedes its items, 0 for a doubtful one."""
    level.kind = tag
    level.items = 0
    level.names = state.names
    if tag == _OBJECT:
        _put(texts, state, 123)
        return pos
    length, pos = _varint_32(data, pos, end)
    level.length = np.int64(length)
    level.remaining = np.int64(length)
    _put(texts, state, 91)
    return pos if tag == _SPARSE or length <= end - pos else _ZERO


@inlined
def _is_new_name(start: Any, texts: Any, level: Any, scratch: Any, state: Any) -> Any:
    """Whether an object has no other property of the name that the text ends with, and the name has no dollar."""
    length = state.position - start
    count = state.names
    if texts.out[start + _ONE] == 36 or count == MAX_NAMES:
        return False
    for i in range(level.names, count):
        name = scratch.names[i]
        if name.length == np.int64(length) and same_bytes(texts.out, np.uint64(name.start), texts.out, start, length):
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
    if tag in (34, 99, 83):
        pos = _put_text(data, pos, end, tag, texts, state)
    elif tag in (73, 85):
        value, pos = _read_int32(data, pos, end, tag)
        _put(texts, state, 34)
        state.position = put_integer(texts.out, state.position, value)
        _put(texts, state, 34)
    else:
        return _ZERO
    if pos == _ZERO or not _is_new_name(start, texts, level, scratch, state):
        return _ZERO
    _put(texts, state, 58)
    return pos


@inlined
def _close(data: Any, pos: Any, end: Any, level: Any, texts: Any, state: Any) -> Any:
    """End a list or an object after its last tag. Returns the position after it, 0 for a doubtful one."""
    count, pos = _varint_32(data, pos, end)
    if level.kind == _OBJECT:
        _put(texts, state, 125)
        state.names = level.names
        return pos if np.int64(count) == level.items else _ZERO
    if pos == _ZERO:
        return _ZERO
    length, pos = _varint_32(data, pos, end)
    _put(texts, state, 93)
    # A dense list has no properties; a sparse one has no holes.
    expected = 0 if level.kind == _DENSE else level.length
    is_plain = np.int64(count) == expected and np.int64(length) == level.length and level.items == level.length
    return pos if is_plain else _ZERO


@inlined
def _next(data: Any, pos: Any, end: Any, level: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Go on with what is open. Returns whether it ends, and the position after that or of a value; 0 in doubt."""
    pos = _next_tag(data, pos, end)
    if pos >= end or not _has_room(texts, state, _ZERO):
        return True, _ZERO
    tag = np.int64(data[pos])
    kind = level.kind
    is_end = level.remaining == 0 if kind == _DENSE else tag == (123 if kind == _OBJECT else 64)
    if is_end:
        if kind == _DENSE and tag != 36:
            return True, _ZERO
        return True, _close(data, pos + _ONE, end, level, texts, state)
    if level.items > 0:
        _put(texts, state, 44)
    if kind == _OBJECT:
        pos = _put_name(data, pos, end, level, texts, scratch, state)
    elif kind == _SPARSE:
        place, pos = _read_int32(data, pos + _ONE, end, tag)
        if tag not in (73, 85) or np.int64(place) != level.items:
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
        pos = _next_tag(data, pos, end)
        if pos >= end or not _has_room(texts, state, _ZERO):
            return _ZERO
        tag = np.int64(data[pos])
        pos += _ONE
        if tag in (_OBJECT, _DENSE, _SPARSE):
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
            is_closed, pos = _next(data, pos, end, scratch.stack[depth - 1], texts, scratch, state)
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
    version, pos = _varint_32(data, pos + _ONE, end)
    if version >= layout.SEPARATE_ENVELOPE:
        if pos < end and data[pos] == layout.TRAILER_TAG:
            if end - pos <= _TRAILER or load_u64(data, pos + _ONE) != _ZERO:
                return _ZERO
            pos += _ONE + _TRAILER
        if pos >= end or data[pos] != layout.VERSION_TAG:
            return _ZERO
        version, pos = _varint_32(data, pos + _ONE, end)
    return pos if layout.TAGGED_HOLES <= version < layout.UNKNOWN_SINCE else _ZERO


@inlined
def _put_record(data: Any, pos: Any, end: Any, row: Any, rendered: Any, scratch: Any) -> Any:
    """Write the value of a record. Returns whether it is a plain one."""
    version, pos = _varint(data, pos, end)
    if pos == _ZERO:
        return False
    rendered.numbers[VERSION, row] = np.int64(version)
    pos = _begin_value(data, pos, end)
    if pos == _ZERO:
        return False
    pos = _put_value(data, pos, end, rendered.values, scratch, scratch.state[1])
    return pos != _ZERO and _next_tag(data, pos, end) == end


@inlined
def _put_indexed(keys: Any, key_pos: Any, values: Any, row: Any, rendered: Any, scratch: Any) -> Any:
    """Write what an entry of an index leads to; its key goes on at `key_pos`. Returns whether it is a plain one."""
    data, key_end = values.data, np.uint64(keys.offsets[row + 1])
    pos, end = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1])
    state = scratch.state[1]
    texts = rendered.values
    position, slots = state.position, state.slots
    if key_pos < key_end:
        _, key_pos = _varint(keys.data, key_pos, key_end)
        if key_pos == _ZERO:
            return False
    if key_pos < key_end and _put_key(keys.data, key_pos, key_end, texts, scratch, state) != key_end:
        return False
    state.position, state.slots = position, slots  # the value has the key as well
    version, pos = _varint(data, pos, end)
    rendered.numbers[VERSION, row] = np.int64(version)
    return pos != _ZERO and _put_key(data, pos, end, texts, scratch, state) == end


@inlined
def _read_exists(data: Any, pos: Any, end: Any, row: Any, rendered: Any) -> Any:
    """Read the version of a record. Returns whether it is a plain one."""
    if pos >= end or end - pos > _EIGHT:
        return False
    version = np.int64(_little(data, pos, end - pos))
    rendered.numbers[VERSION, row] = version
    return version >= 0


@inlined
def _put_entry(keys: Any, values: Any, row: Any, rendered: Any, scratch: Any) -> Any:
    """Write the key and the value of an entry. Returns its kind, 0 for a doubtful one."""
    data, key_end = values.data, np.uint64(keys.offsets[row + 1])
    pos, end = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1])
    database, store, place, key_pos = _read_place(keys.data, np.uint64(keys.offsets[row]), key_end)
    rendered.numbers[DATABASE, row] = np.int64(database)
    rendered.numbers[STORE, row] = np.int64(store)
    rendered.numbers[INDEX, row] = np.int64(place)
    if key_pos == _ZERO or np.int64(database) <= 0 or np.int64(store) <= 0:
        return _DOUBTFUL
    index = np.int64(place)
    if index not in (layout.RECORD, layout.EXISTS) and index < _FIRST_INDEX:
        return _DOUBTFUL
    key_pos = _put_key(keys.data, key_pos, key_end, rendered.keys, scratch, scratch.state[0])
    if key_pos == _ZERO:
        return _DOUBTFUL
    if index >= _FIRST_INDEX:
        is_plain = _put_indexed(keys, key_pos, values, row, rendered, scratch)
        return _INDEX_ENTRY if is_plain else _DOUBTFUL
    if key_pos != key_end:
        return _DOUBTFUL
    if index == layout.EXISTS:
        return _EXISTS if _read_exists(data, pos, end, row, rendered) else _DOUBTFUL
    return _RECORD if _put_record(data, pos, end, row, rendered, scratch) else _DOUBTFUL


@kernel
def render_entries(keys: Strings, values: Strings, rendered: Rendered, scratch: Scratch) -> None:
    """Decode entries; doubles are left out of texts: their places and bits are written down.

    Args:
        keys: `Strings`.
        values: `Strings`.
        rendered: `Rendered`.
        scratch: `Scratch`; the states say how many slots were written.
    """
    key_state = scratch.state[0]
    state = scratch.state[1]
    for row in range(len(rendered.kinds)):
        key_position, key_slots = key_state.position, key_state.slots
        position, slots = state.position, state.slots
        kind = _put_entry(keys, values, row, rendered, scratch)
        if kind == _DOUBTFUL:
            key_state.position, key_state.slots = key_position, key_slots
            state.position, state.slots = position, slots
        rendered.kinds[row] = kind
        rendered.keys.ends[row + 1] = key_state.position
        rendered.values.ends[row + 1] = state.position


@kernel
def mark_names(keys: Strings, are_names: OutBytes) -> None:
    """Find entries that explain others: metadata, and lists of external objects.

    Args:
        keys: `Strings`.
        are_names: uint8, by row: whether it is such an entry.
    """
    for row in range(len(are_names)):
        _, store, index, pos = _read_place(keys.data, np.uint64(keys.offsets[row]), np.uint64(keys.offsets[row + 1]))
        are_names[row] = pos != _ZERO and (store == _ZERO or np.int64(index) == layout.EXTERNAL_OBJECTS)
