"""Rendering plain entities as JSON straight from their bytes.

Entities are protobuf messages, and the protobuf library decodes them; but it makes a Python object of every property,
which is most of the time. What is here reads those entities that hold nothing out of the ordinary, writes the text that
`values` and orjson would write, and leaves every other entity to the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import is_utf8, put_base64, put_integer, put_string, put_text, put_timestamp
from sawlog.kernels.memory import copy_bytes, load_u64
from sawlog.kernels.protobuf import delimited, skip_field, varint
from sawlog.leveldb_log.datastore import layout

# Columns of the table of keys, an int64 array: per record, starts and lengths in `data`.
PROJECT = 0
DATABASE = 2
NAMESPACE = 4
FIRST_STEP = 6
"""Where the steps of the path begin in the table of steps."""
STEPS = 7
KEY_FIELDS = 8

# Columns of the table of steps.
KIND = 0
NAME = 2
ID = 4
HAS_ID = 5
STEP_FIELDS = 6

# Columns of the stack: one row per entity that is open, the outermost first.
_POSITION = 0
_END = 1
_SHAPE = 2
_ARRAY = 3
"""Start of the name of the array that is open; -1 for none."""
_ARRAY_LENGTH = 4
_NAMES = 5
"""Where its names begin among all names."""
_RAW = 6
STACK_FIELDS = 7
MAX_NAMES = 1024

_NOTHING = 0
_OBJECT = 1
_VECTOR = 2


def _tag(message: str, name: str) -> np.uint64:
    """What stands before a field on the wire."""
    field = layout.MESSAGES[message][name]
    return np.uint64(field.number << 3 | layout.WIRE_TYPES[field.kind])


_ENTITY_KEY = _tag("EntityProto", "key")
_ENTITY_PROPERTY = _tag("EntityProto", "property")
_ENTITY_RAW = _tag("EntityProto", "raw_property")
_APP = _tag("Reference", "app")
_NAME_SPACE = _tag("Reference", "name_space")
_DATABASE_ID = _tag("Reference", "database_id")
_PATH = _tag("Reference", "path")
_ELEMENT = _tag("Path", "element")
_ELEMENT_END = np.uint64(_ELEMENT + layout.GROUP_END)
_TYPE = _tag("Element", "type")
_STEP_ID = _tag("Element", "id")
_STEP_NAME = _tag("Element", "name")
_MEANING = _tag("Property", "meaning")
_PROPERTY_NAME = _tag("Property", "name")
_MULTIPLE = _tag("Property", "multiple")
_VALUE = _tag("Property", "value")
_INT64 = _tag("PropertyValue", "int64")
_BOOLEAN = _tag("PropertyValue", "boolean")
_STRING = _tag("PropertyValue", "string")
_DOUBLE = _tag("PropertyValue", "double")
_POINT = _tag("PropertyValue", "pointvalue")
_POINT_END = np.uint64(_POINT + layout.GROUP_END)
_X = _tag("PointValue", "x")
_Y = _tag("PointValue", "y")

_M_TIMESTAMP = np.uint64(layout.MEANING_TIMESTAMP)
_M_BLOB = np.uint64(layout.MEANING_BLOB)
_M_BYTES = np.uint64(layout.MEANING_BYTESTRING)
_M_ENTITY = np.uint64(layout.MEANING_ENTITY)
_M_EMPTY = np.uint64(layout.MEANING_EMPTY_LIST)

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_SIX = np.uint64(6)
_SEVEN = np.uint64(7)
_EIGHT = np.uint64(8)
_TEN = np.uint64(10)
_POINT_SIZE = np.uint64(20)
"""Two doubles with their tags, between the tags of the group."""
_SLACK = np.uint64(128)
"""More than the text of any value that is no string, with its punctuation."""


def _text(text: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(text.encode(), np.uint8).copy()


_NULL_TEXT = _text("null")
_TRUE_TEXT = _text("true")
_FALSE_TEXT = _text("false")
_LATITUDE = _text('{"latitude":')
_LONGITUDE = _text(',"longitude":')
_VECTOR_NAME = _text(layout.VECTOR_PROPERTY)


@inlined
def _finite(bits: Any) -> Any:
    return bits >> np.uint64(52) & np.uint64(0x7FF) != np.uint64(0x7FF)


@inlined
def _same(data: Any, one: Any, other: Any, length: Any) -> Any:
    for i in range(length):
        if data[one + np.uint64(i)] != data[other + np.uint64(i)]:
            return False
    return True


@inlined
def _is_vector_name(data: Any, start: Any, length: Any) -> Any:
    if length != len(_VECTOR_NAME):
        return False
    for i in range(length):
        if data[start + np.uint64(i)] != _VECTOR_NAME[i]:
            return False
    return True


@inlined
def _read_path(data: Any, pos: Any, end: Any, steps: Any, count: Any) -> Any:
    """The steps of a path, appended to the table: how many it has then; -1 for what is out of the ordinary."""
    while pos < end:
        tag, pos = varint(data, pos, end)
        if pos == _ZERO or tag != _ELEMENT or count >= len(steps):
            return -1
        for field in range(STEP_FIELDS):
            steps[count, field] = 0
        typed = False
        while True:
            tag, pos = varint(data, pos, end)
            if pos == _ZERO:
                return -1
            if tag == _ELEMENT_END:
                break
            if tag == _STEP_ID:
                value, pos = varint(data, pos, end)
                steps[count, ID] = np.int64(value)
                steps[count, HAS_ID] = 1
            elif tag in (_TYPE, _STEP_NAME):
                start, pos = delimited(data, pos, end)
                if pos == _ZERO or not is_utf8(data, start, pos):
                    return -1
                place = KIND if tag == _TYPE else NAME
                steps[count, place] = start
                steps[count, place + 1] = pos - start
                typed = typed or tag == _TYPE
            else:
                return -1
            if pos == _ZERO:
                return -1
        if not typed:
            return -1
        count += 1
    return count


@inlined
def _read_key(data: Any, pos: Any, end: Any, keys: Any, row: Any, steps: Any, count: Any) -> Any:
    """A key, into its row of the table: how many steps there are then; -1 for what is out of the ordinary."""
    for field in range(KEY_FIELDS):
        keys[row, field] = 0
    keys[row, FIRST_STEP] = count
    while pos < end:
        tag, pos = varint(data, pos, end)
        if pos == _ZERO or tag not in (_APP, _NAME_SPACE, _DATABASE_ID, _PATH):
            return -1
        start, pos = delimited(data, pos, end)
        if pos == _ZERO:
            return -1
        if tag == _PATH:
            if keys[row, STEPS] > 0:
                return -1
            count = _read_path(data, start, pos, steps, count)
            if count < 0:
                return -1
            keys[row, STEPS] = count - keys[row, FIRST_STEP]
            continue
        if not is_utf8(data, start, pos):
            return -1
        place = NAMESPACE if tag == _NAME_SPACE else (DATABASE if tag == _DATABASE_ID else PROJECT)
        if tag == _APP:
            # A project is named with the partition it lives in: `s~project`.
            for i in range(start, pos):
                if data[i] == 126:
                    start = np.uint64(i) + _ONE
        keys[row, place] = start
        keys[row, place + 1] = pos - start
    return count


@inlined
def _has_steps(data: Any, pos: Any, end: Any) -> Any:
    """Whether the key of a nested entity has a path, or is out of the ordinary."""
    while pos < end:
        tag, pos = varint(data, pos, end)
        if pos == _ZERO or tag & _SEVEN != 2:
            return True
        start, pos = delimited(data, pos, end)
        if pos == _ZERO or (tag == _PATH and pos > start):
            return True
    return False


@kernel
def render_entities(
    data: Any,
    offsets: Any,
    out: Any,
    ends: Any,
    slots: Any,
    doubles: Any,
    keys: Any,
    steps: Any,
    plain: Any,
    stack: Any,
    names: Any,
) -> Any:
    """Render entities as JSON objects. Doubles are left out: their places and bits are written down.

    Args:
        data: uint8, the entities.
        offsets: int32, entity i is `data[offsets[i] : offsets[i + 1]]`.
        out: uint8, the texts.
        ends: int64, `ends[i + 1]` is the end of text i in `out`; `ends[0]` is 0.
        slots: int64, where in `out` doubles belong.
        doubles: uint64, their bits.
        keys: int64[:, KEY_FIELDS].
        steps: int64[:, STEP_FIELDS].
        plain: uint8, 1 for each entity that was rendered; the text of the others is empty.
        stack: int64[:, STACK_FIELDS], scratch.
        names: int64[MAX_NAMES, 2], scratch.

    Returns:
        How many slots and steps were written.
    """
    room = np.uint64(len(out))
    pos = _ZERO
    slot = 0
    step = 0
    for row in range(len(plain)):
        first, first_slot, first_step = pos, slot, step
        good = 0 <= offsets[row] <= offsets[row + 1] <= len(data)
        depth = 0
        has_key = False
        if good:
            stack[0, _POSITION] = offsets[row]
            stack[0, _END] = offsets[row + 1]
            stack[0, _SHAPE] = _NOTHING
            stack[0, _ARRAY] = -1
            stack[0, _NAMES] = 0
            stack[0, _RAW] = 0
        name_count = 0
        while good and depth >= 0:
            at = np.uint64(stack[depth, _POSITION])
            end = np.uint64(stack[depth, _END])
            if room - pos < _SLACK:
                good = False
                break
            if at >= end:
                shape = stack[depth, _SHAPE]
                if stack[depth, _ARRAY] >= 0:
                    out[pos] = 93
                    pos += _ONE
                if shape == _NOTHING:
                    out[pos] = 123
                    pos += _ONE
                if shape != _VECTOR:
                    out[pos] = 125
                    pos += _ONE
                name_count = stack[depth, _NAMES]
                depth -= 1
                continue
            tag, at = varint(data, at, end)
            if at == _ZERO:
                good = False
                break
            if tag == _ENTITY_KEY:
                start, at = delimited(data, at, end)
                if at == _ZERO:
                    good = False
                elif depth > 0:
                    good = not _has_steps(data, start, at)
                elif has_key:
                    good = False
                else:
                    step = _read_key(data, start, at, keys, row, steps, step)
                    good = step >= 0
                    has_key = True
                stack[depth, _POSITION] = at
                continue
            if tag not in (_ENTITY_PROPERTY, _ENTITY_RAW):
                at = skip_field(data, tag, at, end)
                good = at != _ZERO
                stack[depth, _POSITION] = at
                continue
            if tag == _ENTITY_RAW:
                stack[depth, _RAW] = 1
            elif stack[depth, _RAW] != 0:
                good = False
                break

            # One property.
            at, stop = delimited(data, at, end)
            if stop == _ZERO or room - pos < _SIX * (stop - at) + _SLACK:
                good = False
                break
            stack[depth, _POSITION] = stop
            meaning = multiple = _ZERO
            name = name_end = value = value_end = _ZERO
            while at < stop:
                tag, at = varint(data, at, stop)
                if at == _ZERO:
                    break
                if tag == _MEANING:
                    meaning, at = varint(data, at, stop)
                elif tag == _MULTIPLE:
                    multiple, at = varint(data, at, stop)
                elif tag == _PROPERTY_NAME:
                    name, at = delimited(data, at, stop)
                    name_end = at
                elif tag == _VALUE:
                    if value_end != _ZERO:
                        at = _ZERO
                        break
                    value, at = delimited(data, at, stop)
                    value_end = at
                else:
                    at = skip_field(data, tag, at, stop)
                if at == _ZERO:
                    break
            if _ZERO in (at, name_end, value_end):
                good = False
                break
            length = name_end - name

            # Its name, unless it goes on an array.
            array = stack[depth, _ARRAY]
            vector = False
            again = (
                array >= 0
                and multiple != _ZERO
                and np.int64(length) == stack[depth, _ARRAY_LENGTH]
                and _same(data, np.uint64(array), name, length)
            )
            if again:
                out[pos] = 44
                pos += _ONE
            else:
                for i in range(stack[depth, _NAMES], name_count):
                    if names[i, 1] == np.int64(length) and _same(data, np.uint64(names[i, 0]), name, length):
                        good = False
                        break
                if not good or name_count >= len(names) or stack[depth, _SHAPE] == _VECTOR:
                    good = False
                    break
                names[name_count, 0] = name
                names[name_count, 1] = length
                name_count += 1
                if array >= 0:
                    out[pos] = 93
                    pos += _ONE
                    stack[depth, _ARRAY] = -1
                vector = depth > 0 and stack[depth, _SHAPE] == _NOTHING and _is_vector_name(data, name, length)
                if vector:
                    stack[depth, _SHAPE] = _VECTOR
                    good = multiple != _ZERO
                else:
                    out[pos] = 123 if stack[depth, _SHAPE] == _NOTHING else 44
                    stack[depth, _SHAPE] = _OBJECT
                    pos = put_string(out, pos + _ONE, data, name, name_end)
                    if pos == _ZERO:
                        good = False
                        break
                    out[pos] = 58
                    pos += _ONE
                if multiple != _ZERO and not (value == value_end and meaning == _M_EMPTY):
                    out[pos] = 91
                    pos += _ONE
                    stack[depth, _ARRAY] = name
                    stack[depth, _ARRAY_LENGTH] = length

            # Its value.
            if value == value_end:
                if meaning == _M_EMPTY:
                    if again or vector:
                        good = False
                        break
                    out[pos] = 91
                    out[pos + _ONE] = 93
                    pos += _TWO
                else:
                    pos = put_text(out, pos, _NULL_TEXT)
                continue
            tag, at = varint(data, value, value_end)
            if at == _ZERO:
                good = False
            elif tag == _STRING:
                start, at = delimited(data, at, value_end)
                if at != value_end:
                    good = False
                elif meaning == _M_ENTITY:
                    depth += 1
                    if depth >= len(stack):
                        good = False
                        break
                    stack[depth, _POSITION] = start
                    stack[depth, _END] = at
                    stack[depth, _SHAPE] = _NOTHING
                    stack[depth, _ARRAY] = -1
                    stack[depth, _NAMES] = name_count
                    stack[depth, _RAW] = 0
                elif meaning in (_M_BLOB, _M_BYTES):
                    pos = put_base64(out, pos, data, start, at)
                else:
                    pos = put_string(out, pos, data, start, at)
                    good = pos != _ZERO
            elif tag == _INT64:
                number, at = varint(data, at, value_end)
                if at != value_end:
                    good = False
                elif meaning == _M_TIMESTAMP:
                    pos = put_timestamp(out, pos, np.int64(number))
                    good = pos != _ZERO
                else:
                    pos = put_integer(out, pos, number)
            elif tag == _BOOLEAN:
                number, at = varint(data, at, value_end)
                good = at == value_end
                pos = put_text(out, pos, _TRUE_TEXT if number != _ZERO else _FALSE_TEXT)
            elif tag == _DOUBLE and value_end - at == _EIGHT and slot < len(slots):
                doubles[slot] = load_u64(data, at)
                slots[slot] = pos
                good = _finite(doubles[slot])
                slot += 1
            elif tag == _POINT and value_end - at == _POINT_SIZE - _ONE and slot + 2 <= len(slots):
                # Both doubles with their tags, and the end of the group.
                good = data[at] == _X and data[at + np.uint64(9)] == _Y and data[at + np.uint64(18)] == _POINT_END
                pos = put_text(out, pos, _LATITUDE)
                doubles[slot] = load_u64(data, at + _ONE)
                slots[slot] = pos
                pos = put_text(out, pos, _LONGITUDE)
                doubles[slot + 1] = load_u64(data, at + _TEN)
                slots[slot + 1] = pos
                out[pos] = 125
                pos += _ONE
                good = good and _finite(doubles[slot]) and _finite(doubles[slot + 1])
                slot += 2
            else:
                good = False
        good = good and has_key and keys[row, STEPS] > 0
        plain[row] = 1 if good else 0
        if not good:
            pos, slot, step = first, first_slot, first_step
        ends[row + 1] = pos
    return slot, step


@kernel
def fill_slots(text: Any, ends: Any, slots: Any, numbers: Any, number_ends: Any, out: Any, out_ends: Any) -> Any:
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
    at = _ZERO
    slot = 0
    for row in range(len(ends) - 1):
        end = np.uint64(ends[row + 1])
        while slot < len(slots) and np.uint64(slots[slot]) < end:
            length = np.uint64(slots[slot]) - at
            copy_bytes(out, pos, text, at, length)
            pos += length
            at += length
            start = np.uint64(number_ends[slot]) + _ONE
            length = np.uint64(number_ends[slot + 1]) - start
            copy_bytes(out, pos, numbers, start, length)
            pos += length
            slot += 1
        copy_bytes(out, pos, text, at, end - at)
        pos += end - at
        at = end
        out_ends[row + 1] = pos


@kernel
def join_paths(data: Any, keys: Any, steps: Any, out: Any, ends: Any) -> None:
    """Kinds and names or ids of each key, joined by slashes.

    Args:
        data: uint8, the entities.
        keys: int64[:, KEY_FIELDS].
        steps: int64[:, STEP_FIELDS].
        out: uint8, with room for all kinds and names, and `STEP_ROOM` more per step.
        ends: int32, as in Arrow.
    """
    pos = _ZERO
    for row in range(len(keys)):
        for i in range(keys[row, STEPS]):
            step = keys[row, FIRST_STEP] + i
            if i > 0:
                out[pos] = 47
                pos += _ONE
            length = np.uint64(steps[step, KIND + 1])
            copy_bytes(out, pos, data, np.uint64(steps[step, KIND]), length)
            pos += length
            out[pos] = 47
            pos += _ONE
            length = np.uint64(steps[step, NAME + 1])
            if length > 0:
                copy_bytes(out, pos, data, np.uint64(steps[step, NAME]), length)
                pos += length
            else:
                pos = put_integer(out, pos, np.uint64(steps[step, ID]))
        ends[row + 1] = pos


STEP_ROOM = 2 + 20
"""Two slashes and the longest id."""
