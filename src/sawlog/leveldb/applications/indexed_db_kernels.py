"""Rendering the entries of IndexedDB as JSON straight from their bytes.

Whatever is out of the ordinary is left to `indexed_db` and `script_values`, which write the same text of what is read
here, and say what is wrong with the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.doubles import put_double
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import put_base64, put_text, put_utf_16_string
from sawlog.kernels.memory import load_u64
from sawlog.kernels.numbers import _EIGHT, _FIVE, _NINE, _ONE, _THREE, _TWO, _ZERO
from sawlog.kernels.protobuf import read_varint
from sawlog.kernels.signature import Array, OutBytes, OutInt32s
from sawlog.leveldb.applications import indexed_db_layout as layout
from sawlog.leveldb.applications.script_kernels import (
    BYTES_TEXT,
    LEVEL,
    MAX_LEVELS,
    MAX_NAMES,
    NAME,
    NULL_TEXT,
    has_room,
    put_byte,
    put_date,
    put_script,
)
from sawlog.leveldb.records.kernels import Strings

KINDS = ("", "record", "exists", "index_entry")
"""Names of the kinds of entries, by number; 0 is for what is left to Python."""
_DOUBTFUL, _RECORD, _EXISTS, _INDEX_ENTRY = range(len(KINDS))
DATABASE, STORE, INDEX, VERSION = range(4)
"""Rows of `Rendered.numbers`."""

_STATE = make_record_type("names", ("position", np.uint64))
"""How far the names and the texts are."""
ROW_ROOM = 256
"""Bytes that there is room for besides, for each."""


class Texts(NamedTuple):
    """Texts of JSON.

    Attributes:
        out: uint8, the texts.
        ends: int32, `ends[i + 1]` is the end of text i; `ends[0]` is 0.
    """

    out: OutBytes
    ends: OutInt32s


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
    """Working memory: `LEVEL` and `NAME` of what is open, and two `_STATE`, of keys and of values."""

    stack: Annotated[Any, Array(LEVEL, writable=True)]
    names: Annotated[Any, Array(NAME, writable=True)]
    state: Annotated[Any, Array(_STATE, writable=True)]


def make_scratch() -> Scratch:
    """Return working memory with room for whatever is rendered."""
    return Scratch(np.empty(MAX_LEVELS, LEVEL), np.empty(MAX_NAMES, NAME), np.zeros(2, _STATE))


_FIRST_INDEX = np.int64(layout.FIRST_INDEX)


@inlined
def _read_varint(data: Any, pos: Any, end: Any) -> Any:
    """Return a varint of at most 63 bits at `pos`: the value and the position after it, which is 0 for none."""
    value, after = read_varint(data, pos, end)
    if after == _ZERO or after - pos > _NINE:
        return _ZERO, _ZERO
    return value, after


@inlined
def _load_integer(data: Any, pos: Any, size: Any) -> Any:
    """Return an unsigned integer of up to eight bytes, little endian."""
    value = _ZERO
    while size > _ZERO:
        size -= _ONE
        value = value << _EIGHT | np.uint64(data[pos + size])
    return value


@inlined
def _read_place(data: Any, pos: Any, end: Any) -> Any:
    """Return the prefix of a key: IDs of database, object store and index, and the position after it, 0 for none."""
    if pos >= end:
        return _ZERO, _ZERO, _ZERO, _ZERO
    lengths = np.uint64(data[pos])
    pos += _ONE
    first = (lengths >> _FIVE) + _ONE
    second = (lengths >> _TWO & np.uint64(7)) + _ONE
    third = (lengths & _THREE) + _ONE
    if end - pos < first + second + third:
        return _ZERO, _ZERO, _ZERO, _ZERO
    database = _load_integer(data, pos, first)
    store = _load_integer(data, pos + first, second)
    index = _load_integer(data, pos + first + second, third)
    return database, store, index, pos + first + second + third


@inlined
def _put_simple_key(data: Any, pos: Any, end: Any, kind: Any, texts: Any, state: Any) -> Any:
    """Write a key that is no list. Returns the position after it, 0 for a doubtful one."""
    if kind == layout.NO_KEY:
        state.position = put_text(texts.out, state.position, NULL_TEXT)
        return pos
    if kind in (layout.DATE, layout.NUMBER):
        if end - pos < _EIGHT:
            return _ZERO
        bits = load_u64(data, pos)
        is_plain = put_date(bits, texts, state) if kind == layout.DATE else put_double(bits, texts, state)
        return pos + _EIGHT if is_plain else _ZERO
    if kind not in (layout.STRING, layout.BINARY):
        return _ZERO
    size, pos = _read_varint(data, pos, end)
    if pos == _ZERO or size > end - pos:
        return _ZERO
    if kind == layout.BINARY:
        if not has_room(texts, state, size):
            return _ZERO
        state.position = put_text(texts.out, state.position, BYTES_TEXT)
        state.position = put_base64(texts.out, state.position, data, pos, pos + size)
        put_byte(texts, state, 125)
        return pos + size
    size *= _TWO
    if size > end - pos or not has_room(texts, state, size):
        return _ZERO
    state.position = put_utf_16_string(texts.out, state.position, data, pos, pos + size, True)
    return pos + size if state.position != _ZERO else _ZERO


@inlined
def _put_key(data: Any, pos: Any, end: Any, texts: Any, scratch: Any, state: Any) -> Any:
    """Write a key as scripts know it. Returns the position after it, 0 for a doubtful one."""
    depth = 0
    while True:
        if pos >= end or not has_room(texts, state, _ZERO):
            return _ZERO
        kind = np.int64(data[pos])
        pos += _ONE
        if kind == layout.ARRAY:
            count, pos = _read_varint(data, pos, end)
            if pos == _ZERO or count > end - pos or depth == MAX_LEVELS:
                return _ZERO
            scratch.stack[depth].remaining = np.int64(count)
            scratch.stack[depth].items = 0
            depth += 1
            put_byte(texts, state, 91)
        else:
            pos = _put_simple_key(data, pos, end, kind, texts, state)
            if pos == _ZERO:
                return _ZERO
        while depth > 0 and scratch.stack[depth - 1].remaining == 0:
            depth -= 1
            put_byte(texts, state, 93)
        if depth == 0:
            return pos
        level = scratch.stack[depth - 1]
        if level.items > 0:
            put_byte(texts, state, 44)
        level.items += 1
        level.remaining -= 1


@inlined
def _put_record(data: Any, pos: Any, end: Any, row: Any, rendered: Any, scratch: Any) -> Any:
    """Write the value of a record. Returns whether it is a plain one."""
    version, pos = _read_varint(data, pos, end)
    if pos == _ZERO:
        return False
    rendered.numbers[VERSION, row] = np.int64(version)
    return put_script(data, pos, end, rendered.values, scratch, scratch.state[1])


@inlined
def _put_indexed(keys: Any, key_pos: Any, values: Any, row: Any, rendered: Any, scratch: Any) -> Any:
    """Write what an entry of an index leads to; its key goes on at `key_pos`. Returns whether it is a plain one."""
    data, key_end = values.data, np.uint64(keys.offsets[row + 1])
    pos, end = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1])
    state = scratch.state[1]
    texts = rendered.values
    position = state.position
    if key_pos < key_end:
        _, key_pos = _read_varint(keys.data, key_pos, key_end)
        if key_pos == _ZERO:
            return False
    if key_pos < key_end and _put_key(keys.data, key_pos, key_end, texts, scratch, state) != key_end:
        return False
    state.position = position  # the value has the key as well
    version, pos = _read_varint(data, pos, end)
    rendered.numbers[VERSION, row] = np.int64(version)
    return pos != _ZERO and _put_key(data, pos, end, texts, scratch, state) == end


@inlined
def _read_exists(data: Any, pos: Any, end: Any, row: Any, rendered: Any) -> Any:
    """Read the version of a record. Returns whether it is a plain one."""
    if pos >= end or end - pos > _EIGHT:
        return False
    version = np.int64(_load_integer(data, pos, end - pos))
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
    """Decode entries.

    Args:
        keys: `Strings`.
        values: `Strings`.
        rendered: `Rendered`.
        scratch: `Scratch`.
    """
    key_state = scratch.state[0]
    state = scratch.state[1]
    for row in range(len(rendered.kinds)):
        key_position, position = key_state.position, state.position
        kind = _put_entry(keys, values, row, rendered, scratch)
        if kind == _DOUBTFUL:
            key_state.position, state.position = key_position, position
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
