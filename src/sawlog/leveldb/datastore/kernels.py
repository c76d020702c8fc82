"""Rendering plain entities as JSON straight from their bytes.

Entities are protobuf messages, and the protobuf library decodes them; but it makes a Python object of every property,
which is most of the time. What is here reads those entities that hold nothing out of the ordinary, writes the text that
`values` and orjson would write, and leaves every other entity to the library.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.json_text import put_base64, put_integer, put_string, put_text, put_timestamp
from sawlog.kernels.memory import load_u64
from sawlog.kernels.numbers import _NINE, _ONE, _SIX, _TEN, _TWO, _ZERO
from sawlog.kernels.protobuf import of_group, read_field
from sawlog.kernels.signature import Array, Int64, OutBytes, OutInt64s, OutUInt64s
from sawlog.kernels.text import make_text
from sawlog.leveldb.datastore import layout
from sawlog.leveldb.datastore.keys import Keys, has_steps, read_key
from sawlog.leveldb.datastore.layout import find_wire_tag
from sawlog.leveldb.records.kernels import Strings

STACK = make_record_type(
    "position",
    "end",
    "form",
    "array",  # the name of the array that is open, among all names; -1 for none
    "names",  # where its names begin among all names
    "raw",
    "shaped",  # the shape of the value before: elements of an array that are alike count once
)
"""A row of the stack: one per entity that is open, the outermost first."""
NAME = make_record_type("start", "length")
"""A name of a property, in `data`."""
MAX_NAMES = 1024
STATE = make_record_type(
    ("position", np.uint64),  # in the texts
    "slots",  # in use, as are
    "steps",
    "names",
    "depth",  # the row of the stack
    ("signature", np.uint64),
)
"""How far the rendering is."""


class Rendered(NamedTuple):
    """Buffers that texts are written to.

    Attributes:
        out: uint8, the texts.
        ends: int64, `ends[i + 1]` is the end of text i in `out`; `ends[0]` is 0.
        slots: int64, where in `out` doubles belong.
        doubles: uint64, their bits.
        plain: uint8, 1 for each entity that was rendered; the text of the others is empty.
        signatures: uint64, a hash of the kind, of the names of all properties and of the types of their values.
    """

    out: OutBytes
    ends: OutInt64s
    slots: OutInt64s
    doubles: OutUInt64s
    plain: OutBytes
    signatures: OutUInt64s


class Scratch(NamedTuple):
    """Working memory: `STACK`, the `NAME`s of the properties of all entities that are open, and one `STATE`."""

    stack: Annotated[Any, Array(STACK, writable=True)]
    names: Annotated[Any, Array(NAME, writable=True)]
    state: Annotated[Any, Array(STATE, writable=True)]


def make_scratch() -> Scratch:
    """Return working memory with room for whatever is rendered."""
    return Scratch(np.empty(layout.MAX_DEPTH + 1, STACK), np.empty(MAX_NAMES, NAME), np.empty(1, STATE))


_NOTHING = 0
_OBJECT = 1
_VECTOR = 2


_ENTITY_KEY = np.uint64(find_wire_tag("EntityProto", "key"))
_ENTITY_PROPERTY = np.uint64(find_wire_tag("EntityProto", "property"))
_ENTITY_RAW = np.uint64(find_wire_tag("EntityProto", "raw_property"))
_MEANING = np.uint64(find_wire_tag("Property", "meaning"))
_PROPERTY_NAME = np.uint64(find_wire_tag("Property", "name"))
_MULTIPLE = np.uint64(find_wire_tag("Property", "multiple"))
_VALUE = np.uint64(find_wire_tag("Property", "value"))
_INT64 = np.uint64(find_wire_tag("PropertyValue", "int64"))
_BOOLEAN = np.uint64(find_wire_tag("PropertyValue", "boolean"))
_STRING = np.uint64(find_wire_tag("PropertyValue", "string"))
_DOUBLE = np.uint64(find_wire_tag("PropertyValue", "double"))
_POINT = np.uint64(find_wire_tag("PropertyValue", "pointvalue"))
_POINT_END = np.uint64(_POINT + layout.GROUP_END)
_X = np.uint64(find_wire_tag("PointValue", "x"))
_Y = np.uint64(find_wire_tag("PointValue", "y"))

_M_TIMESTAMP = np.uint64(layout.MEANING_TIMESTAMP)
_M_BLOB = np.uint64(layout.MEANING_BLOB)
_M_BYTES = np.uint64(layout.MEANING_BYTESTRING)
_M_ENTITY = np.uint64(layout.MEANING_ENTITY)
_M_EMPTY = np.uint64(layout.MEANING_EMPTY_LIST)

_LOW8 = np.uint64(255)
_POINT_SIZE = np.uint64(20)
"""Two doubles with their tags, between the tags of the group."""
_SLACK = np.uint64(128)
"""More than the text of any value that is no string, with its punctuation."""


_NULL_TEXT = make_text(b"null")
_TRUE_TEXT = make_text(b"true")
_FALSE_TEXT = make_text(b"false")
_EMPTY_TEXT = make_text(b"[]")
_LATITUDE = make_text(b'{"latitude":')
_LONGITUDE = make_text(b',"longitude":')
_VECTOR_NAME = make_text(layout.VECTOR_PROPERTY.encode())


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
def _is_finite(bits: Any) -> Any:
    return bits >> np.uint64(52) & np.uint64(0x7FF) != np.uint64(0x7FF)


@inlined
def _is_name(data: Any, span: Any, name: Any, length: Any) -> Any:
    if span.length != np.int64(length):
        return False
    start = np.uint64(span.start)
    for i in range(length):
        if data[start + np.uint64(i)] != data[name + np.uint64(i)]:
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
def _enter(stack: Any, start: Any, end: Any, state: Any) -> None:
    """Enter an entity that begins, `data[start:end]`, inside of the one that is open."""
    state.depth += 1
    level = stack[state.depth]
    level.position = start
    level.end = end
    level.form = _NOTHING
    level.array = -1
    level.names = state.names
    level.raw = 0


@inlined
def _leave(out: Any, level: Any, state: Any) -> None:
    """Close what is open of an entity: its last array, and the object unless it is a vector."""
    pos = state.position
    if level.array >= 0:
        out[pos] = 93
        pos += _ONE
    if level.form == _NOTHING:
        out[pos] = 123
        pos += _ONE
    if level.form != _VECTOR:
        out[pos] = 125
        pos += _ONE
    state.position = pos
    state.names = level.names
    state.signature = _mix(state.signature, _ENTITY_END)
    state.depth -= 1


@always_inlined
def _take_key(data: Any, start: Any, end: Any, tables: Any, row: Any, state: Any) -> Any:
    """Write an entity's key down. Returns whether it is in order."""
    first = state.steps
    state.steps = read_key(data, start, end, tables, row, first)
    if state.steps > first:
        last = tables.steps[state.steps - 1]
        kind = np.uint64(last.kind)
        state.signature = _mix_text(state.signature, data, kind, kind + np.uint64(last.kind_length))
    return state.steps > first


@always_inlined
def _read_property(data: Any, pos: Any, stop: Any) -> Any:
    """Return the fields of a property.

    Returns:
        Meaning; multiple; start and end of the name and of the value: ends are 0 in a malformed one.
    """
    meaning = multiple = _ZERO
    name = name_end = value = value_end = _ZERO
    while pos < stop:
        tag, start, pos = read_field(data, pos, stop)
        if pos == _ZERO or of_group(tag) or (tag == _VALUE and value_end != _ZERO):
            return meaning, multiple, name, _ZERO, value, value_end
        if tag == _MEANING:
            meaning = start
        elif tag == _MULTIPLE:
            multiple = start
        elif tag == _PROPERTY_NAME:
            name, name_end = start, pos
        elif tag == _VALUE:
            value, value_end = start, pos
    return meaning, multiple, name, name_end, value, value_end


@always_inlined
def _begin_property(data: Any, name: Any, end: Any, out: Any, scratch: Any, state: Any) -> Any:
    """Begin a property: close the array before it, open the object where it is the first, write its name.

    Returns:
        Whether that was possible: not for a name that is no text, or was there before.
    """
    level = scratch.stack[state.depth]
    names, count = scratch.names, state.names
    length = end - name
    for i in range(level.names, count):
        if _is_name(data, names[i], name, length):
            return False
    if count >= len(names) or level.form == _VECTOR:
        return False
    names[count].start = name
    names[count].length = length
    state.names = count + 1
    state.signature = _mix_text(state.signature, data, name, end)
    level.shaped = 0
    pos = state.position
    if level.array >= 0:
        out[pos] = 93
        pos += _ONE
        level.array = -1
    if state.depth > 0 and level.form == _NOTHING and _is_vector_name(data, name, length):
        level.form = _VECTOR
        state.position = pos
        return True
    out[pos] = 123 if level.form == _NOTHING else 44
    level.form = _OBJECT
    pos = put_string(out, pos + _ONE, data, name, end)
    if pos == _ZERO:
        return False
    out[pos] = 58
    state.position = pos + _ONE
    return True


@always_inlined
def _put_double(data: Any, source: Any, pos: Any, rendered: Any, state: Any) -> Any:
    """Write down that a double belongs in place of the byte at `pos`. Returns whether JSON has it."""
    bits = load_u64(data, source)
    rendered.out[pos] = 48
    rendered.doubles[state.slots] = bits
    rendered.slots[state.slots] = pos
    state.slots += 1
    return _is_finite(bits)


@always_inlined
def _put_value(data: Any, tag: Any, start: Any, end: Any, meaning: Any, rendered: Any, state: Any) -> Any:
    """Write a value that is not an entity, as `read_field` gives it. Returns the position after it, 0 for none."""
    out, pos = rendered.out, state.position
    if tag == _STRING:
        if meaning in (_M_BLOB, _M_BYTES):
            return put_base64(out, pos, data, start, end)
        return put_string(out, pos, data, start, end)
    if tag == _INT64:
        return put_timestamp(out, pos, np.int64(start)) if meaning == _M_TIMESTAMP else put_integer(out, pos, start)
    if tag == _BOOLEAN:
        return put_text(out, pos, _TRUE_TEXT if start != _ZERO else _FALSE_TEXT)
    if state.slots + 2 > len(rendered.slots):
        return _ZERO
    if tag == _DOUBLE:
        return pos + _ONE if _put_double(data, start, pos, rendered, state) else _ZERO
    if tag != _POINT or end - start != _POINT_SIZE - _ONE:
        return _ZERO
    # Both doubles with their tags, and the end of the group.
    good = data[start] == _X and data[start + _NINE] == _Y and data[start + np.uint64(18)] == _POINT_END
    pos = put_text(out, pos, _LATITUDE)
    good = _put_double(data, start + _ONE, pos, rendered, state) and good
    pos = put_text(out, pos + _ONE, _LONGITUDE)
    good = _put_double(data, start + _TEN, pos, rendered, state) and good
    out[pos + _ONE] = 125
    return pos + _TWO if good else _ZERO


@always_inlined
def _render_property(data: Any, start: Any, stop: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write a property, but for what is inside of an entity. Returns whether it is a plain one."""
    out, level = rendered.out, scratch.stack[state.depth]
    meaning, multiple, name, name_end, value, value_end = _read_property(data, start, stop)
    if _ZERO in (name_end, value_end):
        return False
    many = multiple != _ZERO
    tag = start = end = _ZERO
    if value != value_end:
        tag, start, end = read_field(data, value, value_end)
        if end == _ZERO or (end != value_end and tag != _POINT):
            return False
    empty_list = tag == _ZERO and meaning == _M_EMPTY
    again = level.array >= 0 and many and _is_name(data, scratch.names[level.array], name, name_end - name)
    if again:
        out[state.position] = 44
        state.position += _ONE
    elif not _begin_property(data, name, name_end, out, scratch, state):
        return False
    elif many and not empty_list:
        out[state.position] = 91
        state.position += _ONE
        level.array = state.names - 1
    if (empty_list and again) or (level.form == _VECTOR and (empty_list or not many)):
        return False

    # What the type of a value shows by: tag, meaning, and whether an integer is beyond those that doubles can be.
    shape = np.int64(tag << _NINE | min(meaning, _LOW8) << _ONE)
    if tag == _INT64 and not -_EXACT <= np.int64(start) <= _EXACT:
        shape |= 1
    if shape != level.shaped or meaning == _M_ENTITY or not again:
        state.signature = _mix(state.signature, np.uint64(shape | np.int64(many) << 62))
        level.shaped = shape
    if tag == _ZERO:
        state.position = put_text(out, state.position, _EMPTY_TEXT if empty_list else _NULL_TEXT)
    elif tag == _STRING and meaning == _M_ENTITY:
        if state.depth + 1 >= len(scratch.stack):
            return False
        _enter(scratch.stack, start, end, state)
    else:
        state.position = _put_value(data, tag, start, value_end, meaning, rendered, state)
    return state.position != _ZERO


@always_inlined
def _render_entity(data: Any, tables: Any, row: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write the entity that is open, and those nested in it. Returns whether they all are plain."""
    has_key = False
    while state.depth >= 0:
        level = scratch.stack[state.depth]
        end = np.uint64(level.end)
        room = np.uint64(len(rendered.out)) - state.position
        if room < _SLACK:
            return False
        if np.uint64(level.position) >= end:
            _leave(rendered.out, level, state)
            continue
        tag, start, field_end = read_field(data, np.uint64(level.position), end)
        level.position = field_end
        if field_end == _ZERO or of_group(tag):
            return False
        if tag == _ENTITY_KEY:
            if state.depth > 0:
                if has_steps(data, start, field_end):
                    return False
            elif has_key or not _take_key(data, start, field_end, tables, row, state):
                return False
            else:
                has_key = True
        elif tag in (_ENTITY_PROPERTY, _ENTITY_RAW):
            if tag == _ENTITY_RAW:
                level.raw = 1
            elif level.raw != 0:
                return False
            if room < _SIX * (field_end - start) + _SLACK or not _render_property(
                data, start, field_end, rendered, scratch, state
            ):
                return False
    return has_key


@kernel
def render_entities(entities: Strings, rendered: Rendered, tables: Keys, scratch: Scratch) -> tuple[Int64, Int64]:
    """Render entities as JSON objects. Doubles are left out: their places and bits are written down.

    Returns:
        How many slots and steps were written.
    """
    data, offsets, state = entities.data, entities.offsets, scratch.state[0]
    state.position = 0
    state.slots = state.steps = 0
    for row in range(len(rendered.plain)):
        position, slots, steps = state.position, state.slots, state.steps
        state.depth = -1
        state.names = 0
        state.signature = _SEED
        good = False
        if 0 <= offsets[row] <= offsets[row + 1] <= len(data):
            _enter(scratch.stack, offsets[row], offsets[row + 1], state)
            good = _render_entity(data, tables, row, rendered, scratch, state)
        rendered.plain[row] = 1 if good else 0
        rendered.signatures[row] = state.signature
        if not good:
            state.position, state.slots, state.steps = position, slots, steps
        rendered.ends[row + 1] = state.position
    return state.slots, state.steps
