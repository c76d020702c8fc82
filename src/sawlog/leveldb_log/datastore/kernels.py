"""Rendering plain entities as JSON straight from their bytes.

Entities are protobuf messages, and the protobuf library decodes them; but it makes a Python object of every property,
which is most of the time. What is here reads those entities that hold nothing out of the ordinary, writes the text that
`values` and orjson would write, and leaves every other entity to the library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.json_text import put_base64, put_integer, put_string, put_text, put_timestamp
from sawlog.kernels.memory import copy_bytes, load_u64
from sawlog.kernels.protobuf import delimited, skip_field, varint
from sawlog.leveldb_log.datastore import layout
from sawlog.leveldb_log.datastore.keys import has_steps, read_key
from sawlog.leveldb_log.datastore.layout import wire_tag

STACK = record_type(
    "position",
    "end",
    "form",
    "array",  # start of the name of the array that is open; -1 for none
    "array_length",
    "names",  # where its names begin among all names
    "raw",
    "shaped",  # the shape of the value before: elements of an array that are alike count once
)
"""A row of the stack: one per entity that is open, the outermost first."""
NAME = record_type("start", "length")
"""A name of a property, in `data`."""
MAX_NAMES = 1024


class Rendered(NamedTuple):
    """Where texts go.

    Attributes:
        out: uint8, the texts.
        ends: int64, `ends[i + 1]` is the end of text i in `out`; `ends[0]` is 0.
        slots: int64, where in `out` doubles belong.
        doubles: uint64, their bits.
        plain: uint8, 1 for each entity that was rendered; the text of the others is empty.
        signatures: uint64, a hash of the kind, of the names of all properties and of the types of their values.
    """

    out: Any
    ends: Any
    slots: Any
    doubles: Any
    plain: Any
    signatures: Any


class Scratch(NamedTuple):
    """Working memory: `STACK`, and `NAME`s of the properties of all entities that are open."""

    stack: Any
    names: Any


_NOTHING = 0
_OBJECT = 1
_VECTOR = 2


_ENTITY_KEY = np.uint64(wire_tag("EntityProto", "key"))
_ENTITY_PROPERTY = np.uint64(wire_tag("EntityProto", "property"))
_ENTITY_RAW = np.uint64(wire_tag("EntityProto", "raw_property"))
_MEANING = np.uint64(wire_tag("Property", "meaning"))
_PROPERTY_NAME = np.uint64(wire_tag("Property", "name"))
_MULTIPLE = np.uint64(wire_tag("Property", "multiple"))
_VALUE = np.uint64(wire_tag("Property", "value"))
_INT64 = np.uint64(wire_tag("PropertyValue", "int64"))
_BOOLEAN = np.uint64(wire_tag("PropertyValue", "boolean"))
_STRING = np.uint64(wire_tag("PropertyValue", "string"))
_DOUBLE = np.uint64(wire_tag("PropertyValue", "double"))
_POINT = np.uint64(wire_tag("PropertyValue", "pointvalue"))
_POINT_END = np.uint64(_POINT + layout.GROUP_END)
_X = np.uint64(wire_tag("PointValue", "x"))
_Y = np.uint64(wire_tag("PointValue", "y"))

_M_TIMESTAMP = np.uint64(layout.MEANING_TIMESTAMP)
_M_BLOB = np.uint64(layout.MEANING_BLOB)
_M_BYTES = np.uint64(layout.MEANING_BYTESTRING)
_M_ENTITY = np.uint64(layout.MEANING_ENTITY)
_M_EMPTY = np.uint64(layout.MEANING_EMPTY_LIST)

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_EIGHT = np.uint64(8)
_NINE = np.uint64(9)
_LOW8 = np.uint64(255)
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
_EMPTY_TEXT = _text("[]")
_LATITUDE = _text('{"latitude":')
_LONGITUDE = _text(',"longitude":')
_VECTOR_NAME = _text(layout.VECTOR_PROPERTY)


_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(32)
_EXACT = np.int64(layout.EXACT_INTEGER)
_ENTITY_END = np.uint64(1)
"""Among the shapes of values, which are tags and meanings."""


@inlined
def _mix(signature: Any, value: Any) -> Any:
    signature = (signature ^ value) * _PRIME
    return signature ^ signature >> _FOLD


@inlined
def _mix_text(signature: Any, data: Any, start: Any, end: Any) -> Any:
    signature = _mix(signature, end - start)
    for i in range(start, end):
        signature = _mix(signature, np.uint64(data[i]))
    return signature


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
def _enter(stack: Any, depth: Any, start: Any, end: Any, names: Any) -> None:
    """An entity begins, `data[start:end]`; its names begin behind `names` others."""
    stack[depth].position = start
    stack[depth].end = end
    stack[depth].form = _NOTHING
    stack[depth].array = -1
    stack[depth].names = names
    stack[depth].raw = 0


@inlined
def _leave(out: Any, pos: Any, stack: Any, depth: Any) -> Any:
    """Close what is open of an entity: its last array, and the object unless it is a vector. Returns the position."""
    if stack[depth].array >= 0:
        out[pos] = 93
        pos += _ONE
    if stack[depth].form == _NOTHING:
        out[pos] = 123
        pos += _ONE
    if stack[depth].form != _VECTOR:
        out[pos] = 125
        pos += _ONE
    return pos


@always_inlined
def _take_key(data: Any, start: Any, end: Any, tables: Any, row: Any, step: Any, signature: Any) -> Any:
    """Write an entity's key down. Returns how many steps there are now, -1 for a bad key; and the signature."""
    step = read_key(data, start, end, tables, row, step)
    if step >= 0 and step > tables.keys[row].first_step:
        last = tables.steps[step - 1]
        kind = np.uint64(last.kind)
        signature = _mix_text(signature, data, kind, kind + np.uint64(last.kind_length))
    return step, signature


@always_inlined
def _read_property(data: Any, at: Any, stop: Any) -> Any:
    """The fields of a property.

    Returns:
        Meaning; multiple; start and end of the name and of the value: ends are 0 in a malformed one.
    """
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
    if at == _ZERO:
        name_end = _ZERO
    return meaning, multiple, name, name_end, value, value_end


@always_inlined
def _known(data: Any, names: Any, first: Any, count: Any, name: Any, length: Any) -> Any:
    """Whether an entity has had a property of this name."""
    for i in range(first, count):
        if names[i].length == np.int64(length) and _same(data, np.uint64(names[i].start), name, length):
            return True
    return False


@always_inlined
def _put_name(data: Any, name: Any, length: Any, out: Any, pos: Any, stack: Any, depth: Any) -> Any:
    """Begin a property: close the array before it, open the object where it is the first, write its name.

    Returns:
        The position; 0 for a name that is no text.
    """
    if stack[depth].array >= 0:
        out[pos] = 93
        pos += _ONE
        stack[depth].array = -1
    if depth > 0 and stack[depth].form == _NOTHING and _is_vector_name(data, name, length):
        stack[depth].form = _VECTOR
        return pos
    out[pos] = 123 if stack[depth].form == _NOTHING else 44
    stack[depth].form = _OBJECT
    pos = put_string(out, pos + _ONE, data, name, name + length)
    if pos == _ZERO:
        return pos
    out[pos] = 58
    return pos + _ONE


@always_inlined
def _shape_of(data: Any, tag: Any, at: Any, end: Any, meaning: Any) -> Any:
    """What the type of a value shows by: tag, meaning, and whether an integer is beyond those that doubles can be."""
    shape = np.int64(tag << _NINE | min(meaning, _LOW8) << _ONE)
    if tag == _INT64:
        number, _ = varint(data, at, end)
        if not -_EXACT <= np.int64(number) <= _EXACT:
            shape |= 1
    return shape


@always_inlined
def _put_double(data: Any, at: Any, pos: Any, slots: Any, doubles: Any, slot: Any) -> Any:
    """Write down that a double belongs at `pos`. Returns whether JSON has it."""
    doubles[slot] = load_u64(data, at)
    slots[slot] = pos
    return _finite(doubles[slot])


@always_inlined
def _put_value(data: Any, tag: Any, at: Any, end: Any, meaning: Any, rendered: Any, pos: Any, slot: Any) -> Any:
    """Write a value that is no entity.

    Returns:
        The position, 0 for a value that is out of the ordinary; and the slots in use.
    """
    out, slots, doubles = rendered.out, rendered.slots, rendered.doubles
    if tag == _STRING:
        start, at = delimited(data, at, end)
        if at != end:
            return _ZERO, slot
        if meaning in (_M_BLOB, _M_BYTES):
            return put_base64(out, pos, data, start, at), slot
        return put_string(out, pos, data, start, at), slot
    if tag == _INT64:
        number, at = varint(data, at, end)
        if at != end:
            return _ZERO, slot
        if meaning == _M_TIMESTAMP:
            return put_timestamp(out, pos, np.int64(number)), slot
        return put_integer(out, pos, number), slot
    if tag == _BOOLEAN:
        number, at = varint(data, at, end)
        if at != end:
            return _ZERO, slot
        return put_text(out, pos, _TRUE_TEXT if number != _ZERO else _FALSE_TEXT), slot
    if tag == _DOUBLE and end - at == _EIGHT and slot < len(slots):
        return (pos if _put_double(data, at, pos, slots, doubles, slot) else _ZERO), slot + 1
    if tag == _POINT and end - at == _POINT_SIZE - _ONE and slot + 2 <= len(slots):
        # Both doubles with their tags, and the end of the group.
        good = data[at] == _X and data[at + np.uint64(9)] == _Y and data[at + np.uint64(18)] == _POINT_END
        pos = put_text(out, pos, _LATITUDE)
        good = _put_double(data, at + _ONE, pos, slots, doubles, slot) and good
        pos = put_text(out, pos, _LONGITUDE)
        good = _put_double(data, at + _TEN, pos, slots, doubles, slot + 1) and good
        out[pos] = 125
        return (pos + _ONE if good else _ZERO), slot + 2
    return _ZERO, slot


@kernel
def render_entities(entities: Any, rendered: Any, tables: Any, scratch: Any) -> Any:
    """Render entities as JSON objects. Doubles are left out: their places and bits are written down.

    Args:
        entities: `Strings`.
        rendered: `Rendered`.
        tables: `Keys`.
        scratch: `Scratch`.

    Returns:
        How many slots and steps were written.
    """
    data, offsets = entities.data, entities.offsets
    out, plain = rendered.out, rendered.plain
    stack, names = scratch.stack, scratch.names
    room = np.uint64(len(out))
    pos = _ZERO
    slot = 0
    step = 0
    for row in range(len(plain)):
        first, first_slot, first_step = pos, slot, step
        depth = -1
        has_key = False
        signature = _SEED
        name_count = 0
        if 0 <= offsets[row] <= offsets[row + 1] <= len(data):
            depth = 0
            _enter(stack, depth, offsets[row], offsets[row + 1], 0)
        good = depth == 0
        while good and depth >= 0:
            at = np.uint64(stack[depth].position)
            end = np.uint64(stack[depth].end)
            good = False
            if room - pos < _SLACK:
                break
            if at >= end:
                pos = _leave(out, pos, stack, depth)
                name_count = stack[depth].names
                signature = _mix(signature, _ENTITY_END)
                depth -= 1
                good = True
                continue
            tag, at = varint(data, at, end)
            if at == _ZERO:
                break
            if tag == _ENTITY_KEY:
                start, at = delimited(data, at, end)
                if at == _ZERO or (depth == 0 and has_key):
                    break
                if depth > 0:
                    good = not has_steps(data, start, at)
                else:
                    step, signature = _take_key(data, start, at, tables, row, step, signature)
                    good = has_key = step >= 0
                stack[depth].position = at
                continue
            if tag not in (_ENTITY_PROPERTY, _ENTITY_RAW):
                at = skip_field(data, tag, at, end)
                good = at != _ZERO
                stack[depth].position = at
                continue
            if tag == _ENTITY_RAW:
                stack[depth].raw = 1
            elif stack[depth].raw != 0:
                break

            at, stop = delimited(data, at, end)
            if stop == _ZERO or room - pos < _SIX * (stop - at) + _SLACK:
                break
            stack[depth].position = stop
            meaning, multiple, name, name_end, value, value_end = _read_property(data, at, stop)
            if _ZERO in (name_end, value_end):
                break
            length = name_end - name
            empty_list = value == value_end and meaning == _M_EMPTY
            array = stack[depth].array
            again = (
                array >= 0
                and multiple != _ZERO
                and np.int64(length) == stack[depth].array_length
                and _same(data, np.uint64(array), name, length)
            )
            if again:
                out[pos] = 44
                pos += _ONE
            else:
                known = _known(data, names, stack[depth].names, name_count, name, length)
                if known or name_count >= len(names) or stack[depth].form == _VECTOR:
                    break
                signature = _mix_text(signature, data, name, name_end)
                stack[depth].shaped = 0
                names[name_count].start = name
                names[name_count].length = length
                name_count += 1
                pos = _put_name(data, name, length, out, pos, stack, depth)
                vector = stack[depth].form == _VECTOR
                if pos == _ZERO or (vector and (multiple == _ZERO or empty_list)):
                    break
                if multiple != _ZERO and not empty_list:
                    out[pos] = 91
                    pos += _ONE
                    stack[depth].array = name
                    stack[depth].array_length = length

            tag, at = _ZERO, value
            if value != value_end:
                tag, at = varint(data, value, value_end)
            shape = _shape_of(data, tag, at, value_end, meaning)
            if shape != stack[depth].shaped or meaning == _M_ENTITY or not again:
                signature = _mix(signature, np.uint64(shape | np.int64(multiple != _ZERO) << 62))
                stack[depth].shaped = shape
            if at == _ZERO or (empty_list and again):
                break
            if value == value_end:
                pos = put_text(out, pos, _EMPTY_TEXT if empty_list else _NULL_TEXT)
            elif tag == _STRING and meaning == _M_ENTITY:
                start, at = delimited(data, at, value_end)
                if at != value_end or depth + 1 >= len(stack):
                    break
                depth += 1
                _enter(stack, depth, start, at, name_count)
            else:
                pos, slot = _put_value(data, tag, at, value_end, meaning, rendered, pos, slot)
            good = pos != _ZERO
        good = good and has_key and tables.keys[row].steps > 0
        plain[row] = 1 if good else 0
        rendered.signatures[row] = signature
        if not good:
            pos, slot, step = first, first_slot, first_step
        rendered.ends[row + 1] = pos
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
