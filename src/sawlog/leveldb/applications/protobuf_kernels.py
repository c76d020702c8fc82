"""Rendering messages of protobuf as JSON straight from their bytes, and reading keys of several parts.

Whatever is out of the ordinary is left to Python, which writes the same text of what is read here, and says what is
wrong with the rest: fields that do not ascend or come twice, broken ones, text that is not UTF-8, numbers that JSON
does not have.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.doubles import put_double, widen_bits
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.json_text import (
    is_json,
    put_base64,
    put_integer,
    put_plain_string,
    put_string,
    put_text,
    put_unsigned,
    put_utf_16_string,
)
from sawlog.kernels.memory import are_bytes_equal, copy_bytes, count_low_zeros, load_u32, load_u64, store_u64
from sawlog.kernels.numbers import (
    _EIGHT,
    _FIVE,
    _FOUR,
    _HALF,
    _LOW7,
    _ONE,
    _SEVEN,
    _SIX,
    _SIXTEEN,
    _TEN,
    _THREE,
    _TWO,
    _U32,
    _ZERO,
)
from sawlog.kernels.protobuf import read_varint
from sawlog.kernels.signature import Array, Bytes, Int64, Int64s, OutBytes, OutInt32s, OutInt64s, UInt64s
from sawlog.kernels.text import HIGH_BITS, find_utf8_end, make_text, put_latin_1, put_utf_16
from sawlog.kernels.vector import copy_16, copy_32, copy_short
from sawlog.leveldb.applications.script_kernels import LEVEL, MAX_LEVELS, MAX_NAMES, NAME, put_script
from sawlog.leveldb.records.kernels import Strings

KINDS = {
    "int": 0,
    "uint": 0,
    "bool": 0,
    "text": 2,
    "bytes": 2,
    "float": 5,
    "double": 1,
    "fixed": 5,
    "enum": 0,
    "message": 2,
    "script": 2,
    "path": 2,
    "other": 7,
}
"""Kinds of fields, and the wire types of these; that of `fixed` is 1 as well. A `script` is a value of a script, a
`path` is a text of a `base::Pickle`, and `other` ones are left to Python."""
_INT, _UINT, _BOOL, _TEXT, _BYTES, _FLOAT, _DOUBLE, _FIXED, _ENUM, _MESSAGE, _SCRIPT, _PATH, _OTHER = range(len(KINDS))
QUICK_TAGS, QUICK_VALUES, QUICK_BITS, WHOLE = 256, 4, (24, 8, 8, 8, 16), len(KINDS)
"""Tags and values of fields that are found by them, and how what is found is packed; see `Declared.quick`."""
NOTHING, PLAIN_TEXT, QUOTED_TEXT, JSON_TEXT, UTF_16_TEXT, MARKED_TEXT, DECIMAL, EMPTY, UNREAD = range(-1, -10, -1)
"""In place of a message, in this order: nothing is shown; text in UTF-8 as it is; the same as JSON, with other bytes in
an object; text that is JSON; text in UTF-16; text in UTF-16 or Latin-1 after the byte 0 or 1; an integer in digits,
which is captured as number 0; no byte at all; a value that is left to Python."""

_COLUMNS = "tag", "kind", "is_repeated", "target", "name", "name_end", "capture"
FIELD = make_record_type(*((name, np.uint64) for name in _COLUMNS))
"""A declared field. Its values begin with `tag`; `target` is the node of a message or the first value of an enum. From
`name` to `name_end` there are a comma, its name in JSON and a colon. `capture` is one more than the number that its
value is noted down as, or 0. The fields of a message end with a tag that is larger than any."""
NODE = make_record_type(("first", np.uint64), ("captures", np.uint64))
"""A message: its first field by number, and a bit for each number that is noted down in it or in messages in it."""
_LEVEL = make_record_type(*((name, np.uint64) for name in ("node", "field", "number", "items", "end")))
"""An open message around another: its number, its next field, the number of the field that was read last, how many
values that has so far plus one if it is a list, otherwise 0, and where the message ends."""
_MAX_DEPTH = 32
"""Messages in messages; declarations have fewer."""
_STATE = make_record_type("is_full", ("position", np.uint64), "names")
"""Whether there was no room for a value, and how far the texts and the names in values of scripts are."""
MAX_ROOM, MAX_ROW_ROOM = 16, 512
"""Bytes of text that there is room for at most, for each byte of all values, and for each value besides: short fields
have long names."""
SLACK = 256
_SLACK = np.uint64(SLACK)
"""More than the name of a field, and the text of a number with its brackets and commas."""


class Declared(NamedTuple):
    """Declarations of messages.

    Attributes:
        nodes: `NODE`, by number of a message.
        fields: `FIELD`, those of a message one after the other, by number.
        names: uint8, names in JSON, and `SLACK` bytes.
        values: uint64, value i of all enums is `texts[values[i] : values[i + 1]]` in JSON.
        last_values: uint64, by first value of an enum: the one after its last.
        texts: uint8, names of values; empty for those that have none.
        quick: uint64, by number of a message, and tag, the lower ones, times `QUICK_VALUES`, plus the value, or the
            length of a text; all large ones are the last. 0 if the field is no single number or text. Otherwise, from
            the lowest bits on, as many as `QUICK_BITS` says for each: where its name begins and how long it is, its
            `capture`, its kind, or `WHOLE` if its value follows its name in `names`, and its place in `fields`.
    """

    nodes: Annotated[Any, Array(NODE)]
    fields: Annotated[Any, Array(FIELD)]
    names: Bytes
    values: UInt64s
    last_values: UInt64s
    texts: Bytes
    quick: Annotated[Any, Array(np.uint64, 2)]


class Spans(NamedTuple):
    """Values in bytes: value i is `data[starts[i] : ends[i]]`, uint8 and int64."""

    data: Bytes
    starts: Int64s
    ends: Int64s


class Texts(NamedTuple):
    """Texts in bytes: text i is `data[starts[i] : starts[i] + lengths[i]]`; negative lengths are of none."""

    data: Bytes
    starts: Int64s
    lengths: Int64s


class Captures(NamedTuple):
    """Numbers and texts that were noted down.

    Attributes:
        words: int64, by number of the capture and row: the number, or where the text begins; 0 where there is none.
        lengths: int64, likewise: bytes of the text, 0 of a number; -1 where there is none.
    """

    words: Annotated[Any, Array(np.int64, 2, writable=True)]
    lengths: Annotated[Any, Array(np.int64, 2, writable=True)]


class Rendered(NamedTuple):
    """Texts of values.

    Attributes:
        is_plain: uint8, by row: whether the value was rendered; the text of others is empty.
        out: uint8, the texts.
        ends: int32, `ends[i + 1]` is the end of text i; `ends[0]` is 0.
        captures: `Captures`.
    """

    is_plain: OutBytes
    out: OutBytes
    ends: OutInt32s
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


def make_scratch() -> Scratch:
    """Return working memory with room for whatever is rendered."""
    messages, stack = np.empty(_MAX_DEPTH + 1, _LEVEL), np.empty(MAX_LEVELS, LEVEL)
    return Scratch(messages, stack, np.empty(MAX_NAMES, NAME), np.zeros(1, _STATE))


_LONGEST_TAG, _LONGEST = np.uint64(5), _TEN
_MORE = np.uint64(128)
_SEVENS, _FOURTEENS, _TWENTY_EIGHT = (
    np.uint64(number) for number in (0x007F007F007F007F, 0x00003FFF00003FFF, 0x0FFFFFFF)
)
"""Bits of parts of a varint: of every other byte, of pairs, and of four."""
_SINGLE = np.uint64(1)
"""All of the last byte of a varint of 64 bits that has ten."""
_BYTES_TEXT = make_text(b'{"$bytes":')
_TRUE_TEXT, _FALSE_TEXT = (np.uint64(int.from_bytes(name, "little")) for name in (b"true", b"false"))
_DIGIT = np.uint64(48)
_VALUES, _LOW8, _LOW16, _NAME_MASK = (
    np.uint64(number) for number in (QUICK_VALUES, 0xFF, 0xFFFF, (1 << QUICK_BITS[0]) - 1)
)
_WHOLE = np.uint64(WHOLE << QUICK_BITS[2])
"""Its kind, and no capture."""
_LENGTH_SHIFT, _CAPTURE_SHIFT, _KIND_SHIFT, _PLACE_SHIFT = np.cumsum(QUICK_BITS[:-1]).astype(np.uint64)
_MOST_DIGITS = np.uint64(18)


@inlined
def _read_strict_varint(data: Any, pos: Any, end: Any) -> Any:
    """Return a varint of 64 bits at `pos`: the value and the position after it, which is 0 for none."""
    if np.uint64(len(data)) - pos >= _EIGHT:
        word = load_u64(data, pos)
        stops = ~word & HIGH_BITS
        if stops != _ZERO:
            after = pos + (count_low_zeros(stops) >> _THREE) + _ONE
            word &= (stops ^ (stops - _ONE)) & ~HIGH_BITS
            word = word & _SEVENS | word >> _ONE & _SEVENS << _SEVEN
            word = word & _FOURTEENS | word >> _TWO & _FOURTEENS << np.uint64(14)
            word = word & _TWENTY_EIGHT | word >> _FOUR & _TWENTY_EIGHT << np.uint64(28)
            return (word, after) if after <= end else (_ZERO, _ZERO)
    value, after = read_varint(data, pos, end)
    if after - pos == _LONGEST and data[after - _ONE] > _SINGLE:
        return _ZERO, _ZERO
    return value, after


@inlined
def _read_long_field(data: Any, pos: Any, end: Any) -> Any:
    """Return a field as `_read_field` returns it."""
    tag, start = read_varint(data, pos, end)
    if start == _ZERO or start - pos > _LONGEST_TAG or tag < _EIGHT or tag > _U32:
        return _ZERO, _ZERO, _ZERO
    wire = tag & _SEVEN
    size = _ZERO
    if wire == _ZERO:
        value, start = _read_strict_varint(data, start, end)
        return tag, value, start
    if wire == _TWO:
        size, start = _read_strict_varint(data, start, end)
    elif wire == _ONE:
        size = _EIGHT
    elif wire == _FIVE:
        size = _FOUR
    else:
        start = _ZERO
    if start == _ZERO or end - start < size:
        return _ZERO, _ZERO, _ZERO
    return tag, start, start + size


@always_inlined
def _read_field(data: Any, pos: Any, end: Any) -> Any:
    """Return a field of a message that ends at `end`: neither a group, nor with more bytes or bits than it needs.

    Returns:
        Its tag; where its bytes begin, or the number that it is; and the position after it, which is 0 for none.
    """
    if end - pos >= _TWO and data[pos] < 128 and data[pos + _ONE] < 128:
        tag, value = np.uint64(data[pos]), np.uint64(data[pos + _ONE])
        pos += _TWO
        if tag >= _EIGHT and tag & _SEVEN == _ZERO:
            return tag, value, pos
        if tag >= _EIGHT and tag & _SEVEN == _TWO and value <= end - pos:
            return tag, pos, pos + value
        pos -= _TWO
    return _read_long_field(data, pos, end)


@always_inlined
def _has_room(out: Any, pos: Any, length: Any, state: Any) -> Any:
    """Return whether there is room for so many bytes, and `_SLACK`."""
    has_room = np.uint64(len(out)) - pos >= length + _SLACK
    if not has_room:
        state.is_full = 1
    return has_room


@inlined
def _put_escaped(data: Any, start: Any, end: Any, out: Any, pos: Any, state: Any) -> Any:
    """Write a string of JSON; return the position after it, which is 0 for a doubtful one."""
    length = end - start
    if np.uint64(len(out)) - pos < _SIX * length + _SLACK:
        for i in range(start, end):
            byte = data[i]
            if byte < 32:
                length += _FIVE
            elif byte in (34, 92):
                length += _ONE
        if not _has_room(out, pos, length, state):
            return _ZERO
    return put_string(out, pos, data, start, end)


@always_inlined
def _put_text(data: Any, start: Any, end: Any, out: Any, pos: Any, state: Any) -> Any:
    """Write a string as `_put_escaped` does; most texts have only characters that JSON has as they are."""
    text_end = _ZERO
    if np.uint64(len(out)) - pos >= end - start + _SLACK:
        text_end = put_plain_string(out, pos, data, start, end)
    return text_end if text_end != _ZERO else _put_escaped(data, start, end, out, pos, state)


@inlined
def _put_bytes(data: Any, start: Any, end: Any, out: Any, pos: Any, state: Any) -> Any:
    """Write bytes as JSON shows them; return the position after them, which is 0 if there was no room."""
    if not _has_room(out, pos, _TWO * (end - start), state):
        return _ZERO
    pos = put_base64(out, put_text(out, pos, _BYTES_TEXT), data, start, end)
    out[pos] = 125
    return pos + _ONE


@always_inlined
def _put_long_number(declared: Any, field: Any, value: Any, out: Any, pos: Any) -> Any:
    """Write a value that was a varint; return what `_put_number` returns."""
    kind = field.kind
    first = field.target
    if kind == _ENUM and value < declared.last_values[first] - first:
        start = declared.values[first + value]
        length = declared.values[first + value + _ONE] - start
        if length > _ZERO:
            copy_short(out, pos, declared.texts, start, length)
            return pos + length
    return put_unsigned(out, pos, value) if kind == _UINT else put_integer(out, pos, value)


@always_inlined
def _put_number(declared: Any, field: Any, value: Any, out: Any, pos: Any) -> Any:
    """Write a value that was a varint: a number, a name for it, or its truth; return the position after it."""
    kind = field.kind
    if value < _TEN and kind <= _UINT:
        out[pos] = _DIGIT + value
        return pos + _ONE
    if kind == _BOOL:
        store_u64(out, pos, _TRUE_TEXT if value != _ZERO else _FALSE_TEXT)
        return pos + (_FOUR if value != _ZERO else _FIVE)
    return _put_long_number(declared, field, value, out, pos)


@inlined
def _read_pickled(data: Any, pos: Any, end: Any, width: Any) -> Any:
    """Return a text of a `base::Pickle`, whose length counts units of `width` bytes.

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
def _put_path(data: Any, start: Any, end: Any, out: Any, pos: Any, state: Any) -> Any:
    """Write the text of a `base::Pickle`, in UTF-8 or UTF-16; return the position after it, 0 for a doubtful one."""
    if end - start < _EIGHT:
        return _ZERO
    payload_size = load_u32(data, start)
    units = load_u32(data, start + _FOUR)
    is_wide = payload_size != (units + _SEVEN) & ~_THREE
    text_start, text_end, after = _read_pickled(data, start + _FOUR, end, _TWO if is_wide else _ONE)
    if after == _ZERO or not _has_room(out, pos, _SIX * (text_end - text_start), state):
        return _ZERO
    if is_wide:
        return put_utf_16_string(out, pos, data, text_start, text_end, False)
    return put_string(out, pos, data, text_start, text_end)


@always_inlined
def _put_scalar(data: Any, field: Any, start: Any, end: Any, pos: Any, rendered: Any, scratch: Any) -> Any:
    """Write a value that is no varint, message or text; return the position after it, which is 0 for a doubtful one."""
    kind, out, state = field.kind, rendered.out, scratch.state[0]
    if kind == _BYTES:
        return _put_bytes(data, start, end, out, pos, state)
    if kind == _PATH:
        return _put_path(data, start, end, out, pos, state)
    if kind == _FIXED:
        value = load_u32(data, start) if end - start == _FOUR else load_u64(data, start)
        return put_unsigned(out, pos, value)
    state.position = pos
    if kind == _SCRIPT:
        has_room = _has_room(out, pos, _SIX * (end - start), state)
        is_plain = has_room and put_script(data, start, end, rendered, scratch, state)
    else:
        bits = widen_bits(load_u32(data, start)) if kind == _FLOAT else load_u64(data, start)
        is_plain = put_double(bits, rendered, state)
    return state.position if is_plain else _ZERO


@always_inlined
def _put_packed(data: Any, declared: Any, field: Any, start: Any, end: Any, items: Any, out: Any, state: Any) -> Any:
    """Write varints one after another as items of a list that has some.

    The position after them, 0 in doubt, and `items`.
    """
    pos = state.position
    while start < end:
        value, start = _read_strict_varint(data, start, end)
        if start == _ZERO or not _has_room(out, pos, _ZERO, state):
            return _ZERO, items
        if items > _ONE:
            out[pos] = 44
            pos += _ONE
        items += _ONE
        pos = _put_number(declared, field, value, out, pos)
    return pos, items


@inlined
def _put_undeclared(data: Any, tag: Any, start: Any, end: Any, out: Any, pos: Any, state: Any) -> Any:
    """Write a field by its number; return the position after it, which is 0 if there was no room."""
    out[pos] = 34
    pos = put_unsigned(out, pos + _ONE, tag >> _THREE)
    out[pos] = 34
    out[pos + _ONE] = 58
    pos += _TWO
    if tag & _SEVEN == _ZERO:
        return put_unsigned(out, pos, start)
    return _put_bytes(data, start, end, out, pos, state)


@inlined
def _capture(field: Any, start: Any, end: Any, row: Any, captures: Any) -> Any:
    """Note a number or a text down. Returns whether there is room for it."""
    slot = field.capture - _ONE
    captures.words[slot, row] = np.int64(start)
    if field.kind == _TEXT:
        captures.lengths[slot, row] = np.int64(end - start)
        return True
    captures.lengths[slot, row] = 0
    return field.kind == _INT or np.int64(start) >= 0


@always_inlined
def _clear_captures(row: Any, captures: Any) -> None:
    """Set nothing noted down of a row."""
    for slot in range(len(captures.lengths)):
        captures.words[slot, row] = 0
        captures.lengths[slot, row] = -1


@inlined
def _forget(marks: Any, row: Any, captures: Any) -> None:
    """Forget what was noted down of a message before one in a list."""
    slot = _ZERO
    while marks != _ZERO:
        if marks & _ONE != _ZERO:
            captures.lengths[slot, row] = -1
        marks >>= _ONE
        slot += _ONE


@always_inlined
def _put_byte(out: Any, pos: Any, byte: Any) -> Any:
    """Return the position after a byte that is written."""
    out[pos] = byte
    return pos + _ONE


@always_inlined
def _put_name(declared: Any, field: Any, has_comma: Any, out: Any, pos: Any) -> Any:
    """Return the position after the name of a field, which begins with a comma where another one is before it."""
    name = field.name if has_comma else field.name + _ONE
    length = field.name_end - name
    copy_16(out, pos, declared.names, name)
    copy_16(out, pos + _SIXTEEN, declared.names, name + _SIXTEEN)
    if length > _TWO * _SIXTEEN:
        copy_short(out, pos, declared.names, name, length)
    return pos + length


@always_inlined
def _put_quick_name(names: Any, entry: Any, out: Any, pos: Any) -> Any:
    """Return the position after the name of a field that is found by its tag, and after its value, if that follows."""
    name, length = entry & _NAME_MASK, entry >> _LENGTH_SHIFT & _LOW8
    copy_32(out, pos, names, name)
    if length > _HALF:
        copy_short(out, pos, names, name, length)
    return pos + length


@always_inlined
def _put_quick_fields(
    data: Any, pos: Any, end: Any, numbers: Any, row: Any, declared: Any, rendered: Any, state: Any
) -> Any:
    """Write fields of a message as far as they are numbers and short texts that are declared and come once.

    Returns:
        The position after them, the number of the last one, and the position after their text, which is 0 in doubt.
    """
    out, names, quick, out_pos = rendered.out, declared.names, declared.quick, state.position
    captures = rendered.captures
    node, number = numbers  # of the message, and of the field before
    before = last_tag = number << _THREE | _SEVEN
    first = out_pos - _ONE
    if number == _ZERO:  # the name of the first field begins with a comma, in the place of a brace
        out_pos = first
    while end - pos >= _TWO and np.uint64(len(out)) - out_pos >= _SLACK:
        tag, value, after = np.uint64(data[pos]), np.uint64(data[pos + _ONE]), pos + _TWO
        if tag >= _MORE:
            if end == after:
                break
            tag = tag & _LOW7 | value << _SEVEN
            value, after = np.uint64(data[pos + _TWO]), pos + _THREE
            if tag >= QUICK_TAGS:
                break
        entry = quick[node, tag * _VALUES + min(value, _VALUES - _ONE)]
        if entry == _ZERO or tag <= last_tag:
            break
        if entry >> _CAPTURE_SHIFT & _LOW16 == _WHOLE:
            out_pos = _put_quick_name(names, entry, out, out_pos)
            last_tag, pos = tag, after
            continue
        kind, slot = entry >> _KIND_SHIFT & _LOW8, entry >> _CAPTURE_SHIFT & _LOW8
        is_text = tag & _SEVEN != _ZERO
        if kind != WHOLE:
            if value >= _MORE:
                if is_text:
                    break
                value, after = _read_strict_varint(data, after - _ONE, end)
                if after == _ZERO:
                    break
            if is_text and value > end - after:
                break
        if slot > _ZERO:
            captures.words[slot - _ONE, row] = np.int64(after if is_text else value)
            captures.lengths[slot - _ONE, row] = np.int64(value if is_text else _ZERO)
            if kind == _UINT and np.int64(value) < 0:
                break
        out_pos = _put_quick_name(names, entry, out, out_pos)
        last_tag, pos = tag, after
        if kind == WHOLE:
            continue
        if is_text:
            out_pos = _put_text(data, pos, pos + value, out, out_pos, state)
            if out_pos == _ZERO:
                break
            pos += value
        else:
            out_pos = _put_number(declared, declared.fields[entry >> _PLACE_SHIFT], value, out, out_pos)
    if number == _ZERO:
        out[first] = 123
        out_pos = out_pos + _ONE if last_tag == before else out_pos
    return pos, last_tag >> _THREE, out_pos


@always_inlined
def _put_message(data: Any, pos: Any, end: Any, node: Any, row: Any, declared: Any, rendered: Any, scratch: Any) -> Any:
    """Write a message as an object of JSON; return the position after it, which is 0 for a doubtful one."""
    state, out, fields = scratch.state[0], rendered.out, declared.fields
    depth, number, items = _ZERO, _ZERO, _ZERO
    field_index = declared.nodes[node].first
    out_pos = _put_byte(out, state.position, 123)
    while True:
        if out_pos != _ZERO and items == _ZERO:
            state.position = out_pos
            pos, number, out_pos = _put_quick_fields(data, pos, end, (node, number), row, declared, rendered, state)
        if out_pos == _ZERO or not _has_room(out, out_pos, _ZERO, state):
            return _ZERO
        if pos >= end:
            if items > _ZERO:
                out_pos = _put_byte(out, out_pos, 93)
            out_pos = _put_byte(out, out_pos, 125)
            if depth == _ZERO:
                return out_pos
            depth -= _ONE
            level = scratch.messages[depth]
            node, field_index, number, items, end = level.node, level.field, level.number, level.items, level.end
            continue
        tag, start, pos = _read_field(data, pos, end)
        if pos == _ZERO or tag >> _THREE < number:
            return _ZERO
        is_again, has_comma, number = tag >> _THREE == number, number > _ZERO, tag >> _THREE
        first_tag = tag & ~_SEVEN
        while fields[field_index].tag < first_tag:
            field_index += _ONE
        field = fields[field_index]
        kind, expected = field.kind, field.tag
        is_declared = expected & ~_SEVEN == first_tag
        is_list = is_declared and field.is_repeated != _ZERO
        is_packed = is_list and tag & _SEVEN == _TWO and expected & _SEVEN == _ZERO
        if items > _ZERO and not is_again:
            out_pos = _put_byte(out, out_pos, 93)
            items = _ZERO
        if tag != expected and not is_packed and not (is_declared and kind == _FIXED and tag & _SEVEN == _ONE):
            if is_again or (is_declared and kind == _OTHER):
                return _ZERO
            if has_comma:
                out_pos = _put_byte(out, out_pos, 44)
            out_pos = _put_undeclared(data, tag, start, pos, out, out_pos, state)
            continue
        if not is_again:
            out_pos = _put_name(declared, field, has_comma, out, out_pos)
            if is_list:
                out_pos = _put_byte(out, out_pos, 91)
                items = _ONE
        elif items == _ZERO or not is_list:
            return _ZERO
        if is_packed:
            state.position = out_pos
            out_pos, items = _put_packed(data, declared, field, start, pos, items, out, state)
            continue
        if items > _ONE:
            out_pos = _put_byte(out, out_pos, 44)
        if is_list:
            items += _ONE
        if field.capture > _ZERO and not _capture(field, start, pos, row, rendered.captures):
            return _ZERO
        if kind == _MESSAGE:
            if depth + _ONE >= np.uint64(len(scratch.messages)):
                return _ZERO
            level = scratch.messages[depth]
            level.node, level.field, level.number, level.items, level.end = node, field_index, number, items, end
            depth += _ONE
            pos, end = start, pos
            number, items, node = _ZERO, _ZERO, field.target
            field_index = declared.nodes[node].first
            out_pos = _put_byte(out, out_pos, 123)
            if is_again:
                _forget(declared.nodes[node].captures, row, rendered.captures)
            continue
        if tag & _SEVEN == _ZERO:
            out_pos = _put_number(declared, field, start, out, out_pos)
        elif kind == _TEXT:
            out_pos = _put_text(data, start, pos, out, out_pos, state)
        else:
            out_pos = _put_scalar(data, field, start, pos, out_pos, rendered, scratch)


@inlined
def _read_decimal(data: Any, pos: Any, end: Any) -> Any:
    """Return an integer in digits as JSON writes it, and whether it is one."""
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


@always_inlined
def _put_plain_value(data: Any, start: Any, end: Any, root: Any, row: Any, rendered: Any, state: Any) -> Any:
    """Write a value that is no message; return what `_put_value` returns."""
    out, pos = rendered.out, state.position
    if root == NOTHING:
        return pos, True
    if root == EMPTY:
        return pos, start == end
    if root == DECIMAL:
        value, is_decimal = _read_decimal(data, start, end)
        rendered.captures.words[0, row] = np.int64(value)
        rendered.captures.lengths[0, row] = 0
        return pos, is_decimal
    if not _has_room(out, pos, _TWO * (end - start), state):
        return pos, False
    if root == QUOTED_TEXT:
        text_end = _put_text(data, start, end, out, pos, state)
        if text_end == _ZERO and state.is_full == 0:
            text_end = _put_bytes(data, start, end, out, pos, state)
        return text_end, text_end != _ZERO
    if root == UTF_16_TEXT:
        return put_utf_16(out, pos, data, start, end)
    if root == MARKED_TEXT and start < end and data[start] == 0:
        return put_utf_16(out, pos, data, start + _ONE, end)
    if root == MARKED_TEXT and start < end and data[start] == 1:
        return put_latin_1(out, pos, data, start + _ONE, end), True
    if root in (PLAIN_TEXT, JSON_TEXT) and find_utf8_end(data, start, end) == end:
        copy_short(out, pos, data, start, end - start)
        return pos + (end - start), root == PLAIN_TEXT or is_json(data, start, end)
    return pos, False


@always_inlined
def _put_value(data: Any, pos: Any, end: Any, root: Any, row: Any, declared: Any, rendered: Any, scratch: Any) -> Any:
    """Write a value; return the position after it, and whether it is a plain one."""
    if root >= 0:
        message_end = _put_message(data, pos, end, np.uint64(root), row, declared, rendered, scratch)
        return message_end, message_end != _ZERO
    return _put_plain_value(data, pos, end, root, row, rendered, scratch.state[0])


@kernel
def render_values(
    values: Spans, roots: Int64s, first: Int64, declared: Declared, rendered: Rendered, scratch: Scratch
) -> Int64:
    """Render values.

    Args:
        values: `Spans`.
        roots: int64, by row: the node of a message, or one of `NOTHING` to `UNREAD`.
        first: The row to begin with.
        declared: `Declared`.
        rendered: `Rendered`.
        scratch: `Scratch`.

    Returns:
        The row for which there was no room; after the last where there was enough.
    """
    state = scratch.state[0]
    state.is_full = 0
    for row in range(first, len(roots)):
        position = state.position
        _clear_captures(row, rendered.captures)
        start, end = np.uint64(values.starts[row]), np.uint64(values.ends[row])
        text_end, is_plain = _put_value(values.data, start, end, roots[row], row, declared, rendered, scratch)
        state.position = text_end if is_plain else position
        if not is_plain and state.is_full != 0:
            return row
        rendered.is_plain[row] = 1 if is_plain else 0
        rendered.ends[row + 1] = state.position
    return len(roots)


ROOT, NOWHERE = -1, -2
"""Instead of the directory that one is in: none, since its path begins there; or none that is listed."""
_NO_PATH, _UNKNOWN, _OPEN = -1, -2, -3
"""Instead of the length of a path: there is none, it is to be measured, or those before it are being measured."""


@kernel
def measure_paths(
    names: Strings, parents: Int64s, longest: Int64, order: OutInt64s, starts: OutInt64s, lengths: OutInt64s
) -> Int64:
    """Measure the paths of directories: `/` and the name of each one on the way.

    Args:
        names: `Strings`.
        parents: int64, by directory: the one that it is in, `ROOT` or `NOWHERE`.
        longest: The most bytes that a path has; longer ones, and those of directories that are in themselves, are none.
        order: int64, directories that have a path, each after the one that it is in.
        starts: int64, by directory: where its path begins, if they follow each other in this order.
        lengths: int64, by directory: bytes of its path, or a negative number.

    Returns:
        How many have a path.
    """
    lengths[:] = _UNKNOWN
    count, used = 0, np.int64(0)
    for row in range(len(parents)):
        depth, place = 0, np.int64(row)
        while place >= 0 and lengths[place] == _UNKNOWN:
            lengths[place] = _OPEN
            order[count + depth] = place  # of the last one first, until its path is known
            depth += 1
            place = parents[place]
        length = lengths[place] if place >= 0 else np.int64(0 if place == ROOT else _NO_PATH)
        if length >= 0:
            for i in range(depth // 2):
                last = count + depth - 1 - i
                order[count + i], order[last] = order[last], order[count + i]
        for i in range(depth):
            place = order[count + i]
            if length >= 0:
                length += 1 + names.offsets[place + 1] - names.offsets[place]
                length = length if length <= longest else np.int64(_NO_PATH)
            lengths[place], starts[place] = length, used
            used += max(length, 0)
        while depth > 0 and lengths[order[count]] >= 0:
            count += 1
            depth -= 1
    return count


@kernel
def join_paths(names: Strings, parents: Int64s, order: Int64s, starts: Int64s, lengths: Int64s, out: OutBytes) -> None:
    """Write paths that were measured; see `measure_paths`.

    Args:
        names: `Strings`.
        parents: int64.
        order: int64.
        starts: int64.
        lengths: int64.
        out: uint8, with room for all.
    """
    for place in order:
        name, parent = names.offsets[place], parents[place]
        length, pos = np.uint64(names.offsets[place + 1] - name), np.uint64(starts[place])
        if parent >= 0:
            copy_bytes(out, pos, out, np.uint64(starts[parent]), np.uint64(lengths[parent]))
        pos = np.uint64(starts[place] + lengths[place]) - length
        out[pos - _ONE] = 47
        copy_bytes(out, pos, names.data, np.uint64(name), length)


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


PART = make_record_type("kind", "separator", ("capture", np.uint64))
"""A part of a key: one of the kinds below, the byte after it or -1 for the last part, and its number among captures."""
PATTERN = make_record_type(
    *((name, np.uint64) for name in ("prefix", "prefix_end", "word", "mask", "first", "last", "group"))
)
"""Keys that begin alike: with which bytes, the first eight of them as a number and a mask of that, their parts, and to
which group they belong. A key without parts is nothing but these bytes."""
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
_BYTES_OF_ONE = np.uint64(0x0101010101010101)
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
def _is_utf8(data: Any, pos: Any, end: Any) -> Any:
    """Return whether bytes are a text in UTF-8, eight of ASCII at a time."""
    start = pos
    while end - pos >= _EIGHT and load_u64(data, pos) & HIGH_BITS == _ZERO:
        pos += _EIGHT
    length = end - pos
    if length < _EIGHT and np.uint64(len(data)) - pos >= _EIGHT:
        is_ascii = load_u64(data, pos) & HIGH_BITS & (_ONE << length * _EIGHT) - _ONE == _ZERO
        if is_ascii:
            return True
    return find_utf8_end(data, start, end) == end


@inlined
def _read_pickled_part(data: Any, pos: Any, end: Any, part: Any, row: Any, captures: Any) -> Any:
    """Note a part of a `base::Pickle` down. Returns the position after it, 0 for a doubtful one."""
    slot = part.capture
    if part.kind == _PART_PICKLED:
        start, stop, after = _read_pickled(data, pos, end, _ONE)
        if after == _ZERO or not _is_utf8(data, start, stop):
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
def _find_byte(data: Any, pos: Any, end: Any, byte: Any) -> Any:
    """Return the position of the first such byte, or `end`."""
    pattern = np.uint64(byte) * _BYTES_OF_ONE
    while pos < end:
        if np.uint64(len(data)) - pos >= _EIGHT:
            difference = load_u64(data, pos) ^ pattern
            matches = (difference - _BYTES_OF_ONE) & ~difference & HIGH_BITS
            if matches != _ZERO:
                return min(pos + (count_low_zeros(matches) >> _THREE), end)
            pos += _EIGHT
        elif data[pos] == byte:
            return pos
        else:
            pos += _ONE
    return end


@inlined
def _read_part(data: Any, pos: Any, end: Any, part: Any, row: Any, captures: Any) -> Any:
    """Note a part of a key down. Returns the position after it and its separator, 0 for a doubtful one."""
    if part.kind >= _PART_SIZE:
        return _read_pickled_part(data, pos, end, part, row, captures)
    stop = end
    if part.separator >= 0:
        stop = _find_byte(data, pos, end, part.separator)
        if stop == end:
            return _ZERO
    slot = part.capture
    if part.kind == _PART_INT:
        value, is_decimal = _read_decimal(data, pos, stop)
        captures.words[slot, row] = np.int64(value)
        captures.lengths[slot, row] = 0
        if not is_decimal:
            return _ZERO
    else:
        if part.kind == _PART_TEXT:
            if not _is_utf8(data, pos, stop):
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
        keys: `Spans`; those that end before they begin are none.
        groups: uint8, by row: the group of patterns that count.
        patterns: `Patterns`.
        kinds: uint8, by row: the number of the pattern plus one; 0 for keys that are left to Python.
        captures: `Captures`.
    """
    data = keys.data
    for row in range(len(kinds)):
        start, end = np.uint64(keys.starts[row]), np.uint64(keys.ends[row])
        kinds[row] = 0
        _clear_captures(row, captures)
        if keys.ends[row] < keys.starts[row]:
            continue
        is_tried, tried_length = False, _ZERO
        word = _ZERO
        if np.uint64(len(data)) - start >= _EIGHT:
            word = load_u64(data, start)
        else:
            for i in range(end - start):
                word |= np.uint64(data[start + i]) << i * _EIGHT
        for i in range(np.uint64(len(patterns.patterns))):
            pattern = patterns.patterns[i]
            if word & pattern.mask != pattern.word or pattern.group != groups[row]:
                continue
            length = pattern.prefix_end - pattern.prefix
            is_single = pattern.first == pattern.last
            if end - start < length or (is_single and end - start != length):
                continue
            if length > _EIGHT and not are_bytes_equal(data, start, patterns.prefixes, pattern.prefix, length):
                continue
            if is_tried and length != tried_length:
                break
            if _read_parts(data, start + length, end, pattern, patterns.parts, row, captures):
                kinds[row] = i + 1
                break
            is_tried, tried_length = True, length
