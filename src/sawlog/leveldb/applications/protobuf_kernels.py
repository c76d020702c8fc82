"""Rendering messages of protobuf as JSON straight from their bytes, and reading keys of several parts.

Whatever is out of the ordinary is left to Python, which writes the same text of what is read here, and says what is
wrong with the rest: fields that do not ascend or come twice, broken ones, text that is not UTF-8, numbers that JSON
does not have.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.json_text import (
    is_json,
    put_base64,
    put_double,
    put_integer,
    put_string,
    put_text,
    put_unsigned,
    put_utf_16_string,
    widened_bits,
)
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, same_bytes
from sawlog.kernels.numbers import _EIGHT, _FIVE, _FOUR, _ONE, _SEVEN, _SIX, _TEN, _THREE, _TWO, _ZERO
from sawlog.kernels.protobuf import of_group, read_field, varint
from sawlog.kernels.signature import Array, Bytes, Int64, Int64s, OutBytes, OutInt64s, OutUInt64s
from sawlog.kernels.text import put_latin_1, put_utf_16, utf8_end
from sawlog.leveldb.applications.script_kernels import LEVEL, MAX_LEVELS, MAX_NAMES, NAME, put_script
from sawlog.leveldb.records.kernels import Strings

KINDS = (
    "int",
    "uint",
    "bool",
    "text",
    "bytes",
    "float",
    "double",
    "fixed",
    "enum",
    "message",
    "script",
    "path",
    "other",
)
"""Kinds of fields; a `script` is a value of a script, a `path` is a text of a `base::Pickle`, and `other` ones are left
to Python."""
_INT, _UINT, _BOOL, _TEXT, _BYTES, _FLOAT, _DOUBLE, _FIXED, _ENUM, _MESSAGE, _SCRIPT, _PATH, _OTHER = range(len(KINDS))
NOTHING, PLAIN_TEXT, QUOTED_TEXT, JSON_TEXT, UTF_16_TEXT, MARKED_TEXT, DECIMAL, EMPTY, UNREAD = range(-1, -10, -1)
"""In place of a message: no value is shown; text in UTF-8 as it is, or as JSON, with other bytes in an object; a text
that is JSON; text in UTF-16, or in that or Latin-1 after the byte 0 or 1; an integer in digits, which is captured as
number 0; no byte at all; or the value is left to Python."""

FIELD = record_type("number", "kind", "is_repeated", "target", "name", "name_end", "capture")
"""A declared field: `target` is the node of a message or the first value of an enum, `name` to `name_end` is its name
in JSON with the colon, and `capture` the number that its value is noted down as, or -1."""
NODE = record_type("first", "last", ("captures", np.uint64))
"""A message: its fields, by number, and a bit for each number that is noted down in it or in messages in it."""
_LEVEL = record_type("node", "field", "number", "items", ("end", np.uint64))
"""A message that is open: the next field of its node, the number of the last field that was read, how many values that
has so far if it is a list and otherwise -1, and where the message ends."""
_MAX_DEPTH = 32
"""Messages in messages; declarations have fewer."""
_STATE = record_type(("position", np.uint64), "slots", "names", "is_full")
"""How far the texts, the slots and the names in values of scripts are, and whether there was no room for a value."""
ROOMS = (2, 16)
"""Bytes of text that there is room for, for each byte of all values, at first and if it was not enough: short fields
have long names."""
ROW_ROOM = 512
"""Bytes that there is room for besides, for each value."""
_SLACK = np.uint64(256)
"""More than the name of a field, and the text of a number with its brackets and commas."""


class Declared(NamedTuple):
    """Declarations of messages.

    Attributes:
        nodes: `NODE`, by number of a message.
        fields: `FIELD`, those of a message one after the other, by number.
        names: uint8, names in JSON.
        values: int64, value i of all enums is `texts[values[i] : values[i + 1]]` in JSON.
        last_values: int64, by first value of an enum: the one after its last.
        texts: uint8, names of values; empty for those that have none.
    """

    nodes: Annotated[Any, Array(NODE)]
    fields: Annotated[Any, Array(FIELD)]
    names: Bytes
    values: Int64s
    last_values: Int64s
    texts: Bytes


class Spans(NamedTuple):
    """Values in bytes: value i is `data[starts[i] : ends[i]]`, uint8 and int64."""

    data: Bytes
    starts: Int64s
    ends: Int64s


class Captures(NamedTuple):
    """Numbers and texts that were noted down.

    Attributes:
        words: int64, by number of the capture and row: the number, or where the text begins.
        lengths: int64, likewise: bytes of the text; -1 where there is none.
    """

    words: Annotated[Any, Array(np.int64, 2, writable=True)]
    lengths: Annotated[Any, Array(np.int64, 2, writable=True)]


class Rendered(NamedTuple):
    """Texts of values.

    Attributes:
        is_plain: uint8, by row: whether the value was rendered; the text of others is empty.
        out: uint8, the texts.
        ends: int64, `ends[i + 1]` is the end of text i; `ends[0]` is 0.
        slots: int64, where in `out` doubles belong.
        doubles: uint64, their bits.
        captures: `Captures`; lengths are -1 before.
    """

    is_plain: OutBytes
    out: OutBytes
    ends: OutInt64s
    slots: OutInt64s
    doubles: OutUInt64s
    captures: Captures


class Scratch(NamedTuple):
    """Working memory.

    Attributes:
        messages: `_LEVEL` of messages that are open.
        stack: `LEVEL` of what is open in a value of a script.
        names: `NAME` of properties in that.
        state: One `_STATE`.
    """

    messages: Annotated[Any, Array(_LEVEL, writable=True)]
    stack: Annotated[Any, Array(LEVEL, writable=True)]
    names: Annotated[Any, Array(NAME, writable=True)]
    state: Annotated[Any, Array(_STATE, writable=True)]


def new_scratch() -> Scratch:
    """Room for what is rendered at all."""
    messages, stack = np.empty(_MAX_DEPTH + 1, _LEVEL), np.empty(MAX_LEVELS, LEVEL)
    return Scratch(messages, stack, np.empty(MAX_NAMES, NAME), np.empty(1, _STATE))


_WIRES = np.array([0, 0, 0, 2, 2, 5, 1, 5, 0, 2, 2, 2, -1], np.int64)
"""By kind: the wire type of its fields. That of `fixed` is 1 as well."""
_LONGEST_TAG, _LONGEST = np.uint64(5), _TEN
_SINGLE = np.uint64(1)
"""All of the last byte of a varint of 64 bits that has ten."""
_BYTES_TEXT = np.frombuffer(b'{"$bytes":', np.uint8).copy()
_TRUE_TEXT, _FALSE_TEXT = (np.frombuffer(name, np.uint8).copy() for name in (b"true", b"false"))
_MOST_DIGITS = np.uint64(18)


@inlined
def _strict_varint(data: Any, pos: Any, end: Any) -> Any:
    """A varint of 64 bits at `pos`: the value and the position after it, which is 0 for none."""
    value, after = varint(data, pos, end)
    if after - pos == _LONGEST and data[after - _ONE] > _SINGLE:
        return _ZERO, _ZERO
    return value, after


@always_inlined
def _read_field(data: Any, pos: Any, end: Any) -> Any:
    """As `read_field`; groups, tags of more bytes than one has, and numbers of more than 64 bits are none."""
    tag, start, after = read_field(data, pos, end)
    if after == _ZERO or of_group(tag):
        return _ZERO, _ZERO, _ZERO
    _, tag_end = varint(data, pos, end)
    number_end = after if tag & _SEVEN == _ZERO else start
    if tag_end - pos > _LONGEST_TAG or (number_end - tag_end == _LONGEST and data[number_end - _ONE] > _SINGLE):
        return _ZERO, _ZERO, _ZERO
    return tag, start, after


@inlined
def _has_room(out: Any, state: Any, length: Any) -> Any:
    """Whether there is room for so many bytes."""
    has_room = np.uint64(len(out)) - state.position >= length + _SLACK
    if not has_room:
        state.is_full = 1
    return has_room


@inlined
def _has_room_for_text(data: Any, start: Any, end: Any, out: Any, state: Any) -> Any:
    """Whether there is room for a text as a string of JSON."""
    if np.uint64(len(out)) - state.position >= _SIX * (end - start) + _SLACK:
        return True
    length = end - start
    for i in range(start, end):
        byte = data[i]
        if byte < 32:
            length += _FIVE
        elif byte in (34, 92):
            length += _ONE
    return _has_room(out, state, length)


@inlined
def _put(out: Any, state: Any, byte: Any) -> None:
    out[state.position] = byte
    state.position += _ONE


@inlined
def _put_bytes(data: Any, start: Any, end: Any, out: Any, state: Any) -> Any:
    """Write bytes as JSON shows them. Returns whether there was room."""
    if not _has_room(out, state, _TWO * (end - start)):
        return False
    pos = put_base64(out, put_text(out, state.position, _BYTES_TEXT), data, start, end)
    out[pos] = 125
    state.position = pos + _ONE
    return True


@inlined
def _put_enum(declared: Any, first: Any, value: Any, out: Any, state: Any) -> None:
    """Write the name of a value of an enum; its number, where it has none."""
    count = np.uint64(declared.last_values[first] - first)
    if value < count:
        place = first + np.int64(value)
        start = np.uint64(declared.values[place])
        length = np.uint64(declared.values[place + 1]) - start
        if length > _ZERO:
            copy_bytes(out, state.position, declared.texts, start, length)
            state.position += length
            return
    state.position = put_integer(out, state.position, value)


@inlined
def _put_number(declared: Any, field: Any, value: Any, out: Any, state: Any) -> None:
    """Write a value that was a varint."""
    kind = field.kind
    if kind == _INT:
        state.position = put_integer(out, state.position, value)
    elif kind == _UINT:
        state.position = put_unsigned(out, state.position, value)
    elif kind == _BOOL:
        state.position = put_text(out, state.position, _TRUE_TEXT if value != _ZERO else _FALSE_TEXT)
    else:
        _put_enum(declared, field.target, value, out, state)


@inlined
def _read_pickled(data: Any, pos: Any, end: Any, width: Any) -> Any:
    """A text of a `base::Pickle`, whose length counts units of `width` bytes.

    Returns:
        Where it begins and ends, and the position after its padding, which is 0 for none.
    """
    if end - pos < _FOUR:
        return _ZERO, _ZERO, _ZERO
    length = load_u32(data, pos) * width
    pos += _FOUR
    padded_length = (length + _THREE) & ~_THREE
    if padded_length > end - pos:
        return _ZERO, _ZERO, _ZERO
    return pos, pos + length, pos + padded_length


@inlined
def _put_path(data: Any, pos: Any, end: Any, out: Any, state: Any) -> Any:
    """Write the text that a `base::Pickle` holds, in UTF-8 or UTF-16. Returns whether it is a plain one."""
    if end - pos < _EIGHT:
        return False
    payload_size = load_u32(data, pos)
    units = load_u32(data, pos + _FOUR)
    is_wide = payload_size != (units + _SEVEN) & ~_THREE
    start, stop, after = _read_pickled(data, pos + _FOUR, end, _TWO if is_wide else _ONE)
    if after == _ZERO or not _has_room(out, state, _SIX * (stop - start)):
        return False
    if is_wide:
        state.position = put_utf_16_string(out, state.position, data, start, stop, False)
    else:
        state.position = put_string(out, state.position, data, start, stop)
    return state.position != _ZERO


@inlined
def _put_scalar(data: Any, declared: Any, field: Any, start: Any, end: Any, rendered: Any, scratch: Any) -> Any:
    """Write a value that is neither a varint nor a message. Returns whether it is a plain one."""
    kind, out, state = field.kind, rendered.out, scratch.state[0]
    if kind == _SCRIPT:
        has_room = _has_room(out, state, _SIX * (end - start))
        return has_room and put_script(data, start, end, rendered, scratch, state)
    if kind == _TEXT:
        if not _has_room_for_text(data, start, end, out, state):
            return False
        state.position = put_string(out, state.position, data, start, end)
        return state.position != _ZERO
    if kind == _BYTES:
        return _put_bytes(data, start, end, out, state)
    if kind == _PATH:
        return _put_path(data, start, end, out, state)
    if kind == _FLOAT:
        return put_double(widened_bits(load_u32(data, start)), rendered, state)
    if kind == _DOUBLE:
        return put_double(load_u64(data, start), rendered, state)
    value = load_u32(data, start) if end - start == _FOUR else load_u64(data, start)
    state.position = put_unsigned(out, state.position, value)
    return True


@inlined
def _put_packed(
    data: Any, declared: Any, field: Any, start: Any, end: Any, level: Any, rendered: Any, state: Any
) -> Any:
    """Write varints one after another as items of a list. Returns whether all are plain."""
    while start < end:
        value, start = _strict_varint(data, start, end)
        if start == _ZERO or not _has_room(rendered.out, state, _ZERO):
            return False
        if level.items > 0:
            _put(rendered.out, state, 44)
        level.items += 1
        _put_number(declared, field, value, rendered.out, state)
    return True


@inlined
def _put_undeclared(data: Any, tag: Any, start: Any, end: Any, out: Any, state: Any) -> Any:
    """Write a field by its number. Returns whether there was room."""
    _put(out, state, 34)
    state.position = put_unsigned(out, state.position, tag >> _THREE)
    _put(out, state, 34)
    _put(out, state, 58)
    if tag & _SEVEN == _ZERO:
        state.position = put_unsigned(out, state.position, start)
        return True
    return _put_bytes(data, start, end, out, state)


@inlined
def _capture(field: Any, start: Any, end: Any, row: Any, captures: Any) -> Any:
    """Note a number or a text down. Returns whether there is room for it."""
    slot = field.capture
    captures.words[slot, row] = np.int64(start)
    if field.kind == _TEXT:
        captures.lengths[slot, row] = np.int64(end - start)
        return True
    captures.lengths[slot, row] = 0
    return field.kind == _INT or np.int64(start) >= 0


@inlined
def _enter(declared: Any, node: Any, end: Any, depth: Any, row: Any, captures: Any, scratch: Any) -> None:
    """Open a message; what was noted down of one before it in a list is forgotten."""
    level = scratch.messages[depth]
    level.node = node
    level.end = end
    level.field = declared.nodes[node].first
    level.number = 0
    level.items = -1
    marks = declared.nodes[node].captures
    slot = 0
    while marks != _ZERO:
        if marks & _ONE != _ZERO:
            captures.lengths[slot, row] = -1
        marks >>= _ONE
        slot += 1


@inlined
def _find_field(declared: Any, level: Any, number: Any) -> Any:
    """Go on to the declaration of a number. Returns whether there is one."""
    last = declared.nodes[level.node].last
    while level.field < last and declared.fields[level.field].number < number:
        level.field += 1
    return level.field < last and declared.fields[level.field].number == number


@inlined
def _begin_field(declared: Any, field: Any, number: Any, is_list: Any, level: Any, out: Any, state: Any) -> Any:
    """Write what precedes the value of a declared field. Returns whether it is in its place."""
    if number == level.number:
        if level.items < 0 or not is_list:
            return False
    else:
        start = np.uint64(field.name)
        length = np.uint64(field.name_end) - start
        copy_bytes(out, state.position, declared.names, start, length)
        state.position += length
        level.number = number
        level.items = -1
        if is_list:
            _put(out, state, 91)
            level.items = 0
    return True


@inlined
def _put_message(data: Any, pos: Any, end: Any, node: Any, row: Any, declared: Any, rendered: Any, scratch: Any) -> Any:
    """Write a message as an object of JSON. Returns whether it is a plain one."""
    state, out = scratch.state[0], rendered.out
    depth = 0
    _enter(declared, node, end, depth, row, rendered.captures, scratch)
    _put(out, state, 123)
    while True:
        level = scratch.messages[depth]
        if not _has_room(out, state, _ZERO):
            return False
        if pos >= level.end:
            if level.items >= 0:
                _put(out, state, 93)
            _put(out, state, 125)
            depth -= 1
            if depth < 0:
                return True
            continue
        tag, start, pos = _read_field(data, pos, level.end)
        if pos == _ZERO:
            return False
        number, wire = np.int64(tag >> _THREE), np.int64(tag & _SEVEN)
        if number < level.number:
            return False
        if number > level.number:
            if level.items >= 0:
                _put(out, state, 93)
            if level.number > 0:
                _put(out, state, 44)
        is_declared = _find_field(declared, level, number)
        field = declared.fields[level.field if is_declared else 0]
        kind = field.kind
        if is_declared and kind == _OTHER:
            return False
        is_list = is_declared and field.is_repeated != 0
        expected = _WIRES[kind]
        is_packed = is_list and wire == 2 and expected == 0
        if is_declared and (wire == expected or is_packed or (kind == _FIXED and wire == 1)):
            if not _begin_field(declared, field, number, is_list, level, out, state):
                return False
            if is_packed:
                if not _put_packed(data, declared, field, start, pos, level, rendered, state):
                    return False
                continue
            if level.items > 0:
                _put(out, state, 44)
            if is_list:
                level.items += 1
            if field.capture >= 0 and not _capture(field, start, pos, row, rendered.captures):
                return False
            if kind == _MESSAGE:
                if depth + 1 >= len(scratch.messages):
                    return False
                depth += 1
                _enter(declared, field.target, pos, depth, row, rendered.captures, scratch)
                _put(out, state, 123)
                pos = start
            elif wire == 0:
                _put_number(declared, field, start, out, state)
            elif not _put_scalar(data, declared, field, start, pos, rendered, scratch):
                return False
        elif number == level.number or not _put_undeclared(data, tag, start, pos, out, state):
            return False
        else:
            level.number = number
            level.items = -1


@inlined
def _decimal(data: Any, pos: Any, end: Any) -> Any:
    """An integer in digits as JSON writes it, and whether it is one."""
    is_negative = pos < end and data[pos] == 45
    if is_negative:
        pos += _ONE
    length = end - pos
    if length == _ZERO or length > _MOST_DIGITS or (data[pos] == 48 and (length > _ONE or is_negative)):
        return _ZERO, False
    value = _ZERO
    while pos < end:
        digit = np.uint64(data[pos]) - np.uint64(48)
        if digit > np.uint64(9):
            return _ZERO, False
        value = value * _TEN + digit
        pos += _ONE
    return ~value + _ONE if is_negative else value, True


@inlined
def _put_value(data: Any, pos: Any, end: Any, root: Any, row: Any, declared: Any, rendered: Any, scratch: Any) -> Any:
    """Write a value. Returns whether it is a plain one."""
    state, out = scratch.state[0], rendered.out
    if root < 0 and not _has_room(out, state, _TWO * (end - pos)):
        return False
    if root >= 0:
        return _put_message(data, pos, end, root, row, declared, rendered, scratch)
    if root == EMPTY:
        return pos == end
    if root == DECIMAL:
        value, is_decimal = _decimal(data, pos, end)
        rendered.captures.words[0, row] = np.int64(value)
        rendered.captures.lengths[0, row] = 0
        return is_decimal
    if root == QUOTED_TEXT:
        if not _has_room_for_text(data, pos, end, out, state):
            return False
        text_end = put_string(out, state.position, data, pos, end)
        if text_end == _ZERO:
            return _put_bytes(data, pos, end, out, state)
        state.position = text_end
        return True
    if root == UTF_16_TEXT or (root == MARKED_TEXT and pos < end and data[pos] == 0):
        state.position, is_text = put_utf_16(out, state.position, data, pos if root == UTF_16_TEXT else pos + _ONE, end)
        return is_text
    if root == MARKED_TEXT:
        if pos == end or data[pos] != 1:
            return False
        state.position = put_latin_1(out, state.position, data, pos + _ONE, end)
        return True
    if root in (PLAIN_TEXT, JSON_TEXT):
        if utf8_end(data, pos, end) != end or (root == JSON_TEXT and not is_json(data, pos, end)):
            return False
        copy_bytes(out, state.position, data, pos, end - pos)
        state.position += end - pos
        return True
    return root == NOTHING


@kernel
def render_values(values: Spans, roots: Int64s, declared: Declared, rendered: Rendered, scratch: Scratch) -> Int64:
    """Render values; doubles are left out of texts: their places and bits are written down.

    Args:
        values: `Spans`.
        roots: int64, by row: the node of a message, or one of `NOTHING` to `UNREAD`.
        declared: `Declared`.
        rendered: `Rendered`.
        scratch: `Scratch`.

    Returns:
        How many slots were written.
    """
    state = scratch.state[0]
    state.position = 0
    state.slots = state.is_full = 0
    for row in range(len(roots)):
        position, slots = state.position, state.slots
        start, end = np.uint64(values.starts[row]), np.uint64(values.ends[row])
        is_plain = _put_value(values.data, start, end, roots[row], row, declared, rendered, scratch)
        if not is_plain:
            state.position, state.slots = position, slots
        rendered.is_plain[row] = 1 if is_plain else 0
        rendered.ends[row + 1] = state.position
    return state.slots


@kernel
def find_integers(values: Strings, tags: Int64s, integers: OutInt64s) -> None:
    """Read the last integer in messages in messages.

    Args:
        values: `Strings`.
        tags: int64, tags of the fields that lead to it.
        integers: int64, by row; -1 where it is not found.
    """
    data = values.data
    for row in range(len(integers)):
        pos, end = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1])
        integers[row] = -1
        for i in range(len(tags)):
            value, value_end = _ZERO, _ZERO
            while pos < end:
                tag, start, pos = _read_field(data, pos, end)
                if pos == _ZERO:
                    break
                if np.int64(tag) == tags[i]:
                    value, value_end = start, pos
            if value_end == _ZERO:
                break
            if i == len(tags) - 1:
                integers[row] = np.int64(value)
            pos, end = value, value_end


PART = record_type("kind", "separator", "capture")
"""A part of a key: one of the kinds below, the byte after it or -1 for the last part, and its number among captures."""
PATTERN = record_type("prefix", "prefix_end", "first", "last", "group")
"""Keys that begin alike: with which bytes, their parts, and to which group they belong. A key without parts is nothing
but these bytes."""
PART_KINDS = ("text", "int", "bytes", "ascii", "digits", "hex", "name", "token", "size", "pickled", "int32", "int64")
"""The last ones are parts of a `base::Pickle`: the bytes that follow at least, a text, and numbers."""
_PART_TEXT, _PART_INT = 0, 1
_PART_SIZE, _PART_PICKLED, _PART_INT32 = 8, 9, 10
_IS_OF = np.zeros((len(PART_KINDS), 256), np.uint8)
_IS_OF[2] = 1
_IS_OF[3, :128] = 1
_IS_OF[4, list(b"0123456789")] = 1
_IS_OF[5, list(b"0123456789abcdef")] = 1
_IS_OF[6, list(b"0123456789_abcdefghijklmnopqrstuvwxyz")] = 1
_IS_OF[7, list(set(range(128)) - set(b"#,=|"))] = 1
"""By kind and byte, whether it may be in a part."""
_INT32_SIGN = np.int64(1 << 31)


class Patterns(NamedTuple):
    """Patterns of keys.

    Attributes:
        patterns: `PATTERN`; the first that a key begins with counts, or a later one with the same prefix that fits.
        parts: `PART`.
        prefixes: uint8.
    """

    patterns: Annotated[Any, Array(PATTERN)]
    parts: Annotated[Any, Array(PART)]
    prefixes: Bytes


@inlined
def _read_pickled_part(data: Any, pos: Any, end: Any, part: Any, row: Any, captures: Any) -> Any:
    """Note a part of a `base::Pickle` down. Returns the position after it, 0 for a doubtful one."""
    slot = part.capture
    if part.kind == _PART_PICKLED:
        start, stop, after = _read_pickled(data, pos, end, _ONE)
        if after == _ZERO or utf8_end(data, start, stop) != stop:
            return _ZERO
        captures.words[slot, row] = np.int64(start)
        captures.lengths[slot, row] = np.int64(stop - start)
        return after
    size = _FOUR if part.kind in (_PART_SIZE, _PART_INT32) else _EIGHT
    if end - pos < size:
        return _ZERO
    number = np.int64(load_u32(data, pos) if size == _FOUR else load_u64(data, pos))
    pos += size
    if part.kind == _PART_SIZE and np.uint64(number) > end - pos:
        return _ZERO
    if part.kind == _PART_INT32:
        number = (number ^ _INT32_SIGN) - _INT32_SIGN
    captures.words[slot, row] = number
    captures.lengths[slot, row] = 0
    return pos


@inlined
def _read_part(data: Any, pos: Any, end: Any, part: Any, row: Any, captures: Any) -> Any:
    """Note a part of a key down. Returns the position after it and its separator, 0 for a doubtful one."""
    if part.kind >= _PART_SIZE:
        return _read_pickled_part(data, pos, end, part, row, captures)
    stop = end
    if part.separator >= 0:
        stop = pos
        while stop < end and data[stop] != part.separator:
            stop += _ONE
        if stop == end:
            return _ZERO
    slot = part.capture
    if part.kind == _PART_INT:
        value, is_decimal = _decimal(data, pos, stop)
        captures.words[slot, row] = np.int64(value)
        captures.lengths[slot, row] = 0
        if not is_decimal:
            return _ZERO
    else:
        if part.kind == _PART_TEXT:
            if utf8_end(data, pos, stop) != stop:
                return _ZERO
        else:
            for i in range(pos, stop):
                if _IS_OF[part.kind, data[i]] == 0:
                    return _ZERO
        captures.words[slot, row] = np.int64(pos)
        captures.lengths[slot, row] = np.int64(stop - pos)
    return stop + (_ONE if part.separator >= 0 else _ZERO)


@inlined
def _read_parts(data: Any, pos: Any, end: Any, pattern: Any, parts: Any, row: Any, captures: Any) -> Any:
    """Note the parts of a key down. Returns whether all of it is what the pattern says; otherwise nothing is noted."""
    for place in range(pattern.first, pattern.last):
        pos = _read_part(data, pos, end, parts[place], row, captures)
        if pos == _ZERO:
            break
    if pos == end and pos != _ZERO:
        return True
    for place in range(pattern.first, pattern.last):
        captures.lengths[parts[place].capture, row] = -1
    return False


@kernel
def read_keys(keys: Spans, groups: Bytes, patterns: Patterns, kinds: OutBytes, captures: Captures) -> None:
    """Read keys by the first pattern that they begin with, or a later one with the same prefix that fits.

    Args:
        keys: `Spans`.
        groups: uint8, by row: the group of patterns that count.
        patterns: `Patterns`.
        kinds: uint8, by row: the number of the pattern plus one; 0 for keys that are left to Python.
        captures: `Captures`; lengths are -1.
    """
    data = keys.data
    for row in range(len(kinds)):
        start, end = np.uint64(keys.starts[row]), np.uint64(keys.ends[row])
        kinds[row] = 0
        is_tried, tried_length = False, _ZERO
        for i in range(len(patterns.patterns)):
            pattern = patterns.patterns[i]
            prefix = np.uint64(pattern.prefix)
            length = np.uint64(pattern.prefix_end) - prefix
            is_single = pattern.first == pattern.last
            if pattern.group != groups[row] or end - start < length or (is_single and end - start != length):
                continue
            if not same_bytes(data, start, patterns.prefixes, prefix, length):
                continue
            if is_tried and length != tried_length:
                break
            if _read_parts(data, start + length, end, pattern, patterns.parts, row, captures):
                kinds[row] = i + 1
                break
            is_tried, tried_length = True, length
