"""Rendering the values of Minecraft Bedrock's worlds as JSON straight from their bytes.

Whatever is out of the ordinary is left to `bedrock`, which writes the same text of what is read here, and says what is
wrong with the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.doubles import put_double, widen_bits
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import put_integer, put_string, put_text
from sawlog.kernels.memory import are_bytes_equal, load_u16, load_u32, load_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _ONE, _THREE, _TWO, _ZERO
from sawlog.kernels.signature import Array, Int64, OutBytes, OutInt32s, OutInt64s
from sawlog.kernels.text import find_utf8_end, make_text, put_hex
from sawlog.leveldb.applications import bedrock_layout as layout
from sawlog.leveldb.applications.script_values import MAX_DEPTH
from sawlog.leveldb.records.kernels import Strings

KINDS = ("", *(name for name, _ in layout.TAGS.values()), "actor", "actors", "named")
"""Names of the kinds of entries, by number; 0 is for what is not decoded."""
_DOUBTFUL = 0
_ACTOR, _ACTORS, _NAMED = (KINDS.index(name) for name in ("actor", "actors", "named"))
_READERS = ("", "number", "roots", "subchunk")
_OTHER = -1
_UNDECODED, _NUMBER, _ROOTS, _SUBCHUNK = range(len(_READERS))
UNDECODED = np.array([False, *(not reader for _, reader in layout.TAGS.values()), False, False, False])
"""By kind, whether values are not decoded."""

_KIND_OF = np.zeros(256, np.uint8)
_READER_OF = np.zeros(256, np.uint8)
for _number, (_tag, (_, _reader)) in enumerate(layout.TAGS.items(), 1):
    _KIND_OF[_tag] = _number
    _READER_OF[_tag] = _READERS.index(_reader)
"""By the tag of a chunk's key: the kind, and how the value is read; 0 for a tag that is not known."""

LEVEL = make_record_type("inner", "remaining", "names", "items")
"""A list or compound that is open: the tag of a list's elements and how many of them are to come, or -1 for a compound,
where its names begin among all, and how many items it has so far."""
NAME = make_record_type("start", "length")
"""A name in a compound that is open, in the values."""
_STATE = make_record_type("is_full", ("position", np.uint64), "names")
"""Whether there was no room for a text, and how far the texts and the names are."""
MAX_NAMES = 1024
ROOM = 6
"""Bytes of text that a byte of a value makes at the most, but for the frame of a subchunk."""
ROW_ROOM = 64
"""Bytes of text that a row has besides."""


class Rendered(NamedTuple):
    """Columns of entries.

    Attributes:
        kinds: uint8, numbers of `KINDS`.
        places: int32, rows for x, z, dimension and subchunk.
        names: uint8, names of actors and others, one after the other.
        name_ends: int32, `name_ends[i + 1]` is the end of name i; `name_ends[0]` is 0.
        out: uint8, the texts.
        ends: int32, as `name_ends`.
    """

    kinds: OutBytes
    places: Annotated[Any, Array(np.int32, 2, writable=True)]
    names: OutBytes
    name_ends: OutInt32s
    out: OutBytes
    ends: OutInt32s


class Scratch(NamedTuple):
    """Working memory: `LEVEL` and `NAME` of what is open, one `_STATE`, and how often each block is in a layer."""

    stack: Annotated[Any, Array(LEVEL, writable=True)]
    names: Annotated[Any, Array(NAME, writable=True)]
    state: Annotated[Any, Array(_STATE, writable=True)]
    counts: OutInt64s


def make_scratch() -> Scratch:
    """Return working memory with room for whatever is rendered."""
    counts = np.zeros(1 << max(layout.BLOCK_BITS), np.int64)
    return Scratch(np.empty(MAX_DEPTH + 1, LEVEL), np.empty(MAX_NAMES, NAME), np.zeros(1, _STATE), counts)


_SLACK = np.uint64(ROW_ROOM)
_ROOM = np.uint64(ROOM)
_SIZE_OF = np.array([0, 1, 2, 4, 8, 4, 8, 1, 0, 0, 0, 4, 8], np.uint64)
"""Bytes of a number, or of an item of an array, by its tag."""
_TEXT, _LIST, _COMPOUND = layout.TEXT, layout.LIST, layout.COMPOUND
_LAST_TAG = max(layout.ARRAYS)
_FLOAT, _DOUBLE = 5, 6
_NEGATIVE = np.uint64(1 << 31)


_KEYS = sorted(name.encode() for name in layout.NAMES if name != layout.DICTIONARY)
_NAMES = [*_KEYS, *(name.encode() for name in (layout.DICTIONARY, *layout.PREFIXES))]
"""All names, that of the dictionary, which is left to Python, and how other names begin."""
_NAME_TEXT = make_text(b"".join(_NAMES))
_NAME_ENDS = np.cumsum([0, *map(len, _NAMES)]).astype(np.int64)
_WHOLE_NAMES = len(_KEYS)
_FIRST_BYTES = np.zeros(256, np.uint8)
for _first in _NAME_TEXT[_NAME_ENDS[:-1]]:
    _FIRST_BYTES[_first] = 1
_ACTOR_TEXT, _DIGEST_TEXT = map(make_text, (layout.ACTOR, layout.DIGEST))
_ACTOR_LENGTH, _DIGEST_LENGTH = np.uint64(len(layout.ACTOR)), np.uint64(len(layout.DIGEST))
_ACTOR_SIZE = np.uint64(layout.ACTOR_SIZE)
_PLACE = np.uint64(layout.PLACE_SIZE)
_DIMENSION = np.uint64(layout.DIMENSION_SIZE)
_SHORTEST, _LONGEST = np.uint64(min(layout.CHUNK_SIZES)), np.uint64(max(layout.CHUNK_SIZES))
_BLOCKS = layout.BLOCKS
_IS_WIDTH = np.zeros(128, np.uint8)
_IS_WIDTH[list(layout.BLOCK_BITS)] = 1
_PAIRED_BITS, _SPREAD_BITS = 4, 8
"""Up to so many bits for each block, its words have even numbers of blocks, and few pairs are different; and up to so
many, every fourth word is counted in a table of its own: to add to a count takes longest right after it was added to.
"""


_VERSION_TEXT = make_text(b'{"version":')
_HEIGHT_TEXT = make_text(b',"y":')
_LAYERS_TEXT = make_text(b',"layers":[')
_BLOCK_TEXT = make_text(b'{"block":')
_COUNT_TEXT = make_text(b',"count":')


@inlined
def _put_byte(rendered: Any, state: Any, byte: Any) -> None:
    rendered.out[state.position] = byte
    state.position += _ONE


@inlined
def _has_room(rendered: Any, state: Any, length: Any) -> Any:
    """Return whether there is room for the text of so many bytes of a value."""
    has_room = np.uint64(len(rendered.out)) - state.position >= _ROOM * length + _SLACK
    if not has_room:
        state.is_full = 1
    return has_room


@inlined
def _load_signed(data: Any, pos: Any, size: Any) -> Any:
    """Return a signed integer, as the bits of an int64."""
    if size == _ONE:
        return np.uint64(np.int8(data[pos]))
    if size == _TWO:
        return np.uint64(np.int16(load_u16(data, pos)))
    if size == _FOUR:
        return np.uint64(np.int32(load_u32(data, pos)))
    return load_u64(data, pos)


@inlined
def _put_scalar(data: Any, pos: Any, end: Any, tag: Any, rendered: Any, state: Any) -> Any:
    """Write a number, an array or a text at `pos`. Returns the position after it, 0 for a doubtful one."""
    out = rendered.out
    size = _SIZE_OF[tag]
    if tag <= _DOUBLE:
        if end - pos < size or size == _ZERO:
            return _ZERO
        if tag == _DOUBLE:
            is_plain = put_double(load_u64(data, pos), rendered, state)
        elif tag == _FLOAT:
            is_plain = put_double(widen_bits(load_u32(data, pos)), rendered, state)
        else:
            state.position = put_integer(out, state.position, _load_signed(data, pos, size))
            is_plain = True
        return pos + size if is_plain else _ZERO
    if tag == _TEXT:
        if end - pos < _TWO:
            return _ZERO
        length = load_u16(data, pos)
        pos += _TWO
        if end - pos < length or not _has_room(rendered, state, length):
            return _ZERO
        state.position = put_string(out, state.position, data, pos, pos + length)
        return pos + length if state.position != _ZERO else _ZERO
    if end - pos < _FOUR:
        return _ZERO
    count = load_u32(data, pos)
    pos += _FOUR
    if count >= _NEGATIVE or (end - pos) // size < count or not _has_room(rendered, state, count * size):
        return _ZERO
    _put_byte(rendered, state, 91)
    for i in range(count):
        if i > 0:
            _put_byte(rendered, state, 44)
        state.position = put_integer(out, state.position, _load_signed(data, pos, size))
        pos += size
    _put_byte(rendered, state, 93)
    return pos


@inlined
def _put_name(data: Any, pos: Any, end: Any, level: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write the name of a tag in a compound. Returns the position after it, 0 for one that was there before."""
    if end - pos < _TWO:
        return _ZERO
    length = load_u16(data, pos)
    pos += _TWO
    count = state.names
    if end - pos < length or count >= len(scratch.names) or not _has_room(rendered, state, length):
        return _ZERO
    for i in range(level.names, count):
        name = scratch.names[i]
        if name.length == np.int64(length) and are_bytes_equal(data, np.uint64(name.start), data, pos, length):
            return _ZERO
    scratch.names[count].start = pos
    scratch.names[count].length = length
    state.names = count + 1
    state.position = put_string(rendered.out, state.position, data, pos, pos + length)
    if state.position == _ZERO:
        return _ZERO
    _put_byte(rendered, state, 58)
    return pos + length


@inlined
def _open(data: Any, pos: Any, end: Any, tag: Any, level: Any, rendered: Any, state: Any) -> Any:
    """Begin a list or a compound. Returns the position after what precedes its items, 0 for a doubtful one."""
    level.inner = _COMPOUND
    level.remaining = -1
    level.items = 0
    level.names = state.names
    if tag == _COMPOUND:
        _put_byte(rendered, state, 123)
        return pos
    if end - pos < _FOUR + _ONE:
        return _ZERO
    level.inner = data[pos]
    count = load_u32(data, pos + _ONE)
    pos += _FOUR + _ONE
    level.remaining = count
    _put_byte(rendered, state, 91)
    return pos if count <= end - pos and count < _NEGATIVE else _ZERO


@inlined
def _advance(data: Any, pos: Any, end: Any, level: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Go on with what is open. Returns the tag that follows, 0 at its end, and the position after; 0 in doubt."""
    if level.remaining >= 0:
        if level.remaining == 0:
            _put_byte(rendered, state, 93)
            return 0, pos
        level.remaining -= 1
        tag = np.int64(level.inner)
    else:
        if pos >= end:
            return 0, _ZERO
        tag = np.int64(data[pos])
        pos += _ONE
        if tag == 0:
            _put_byte(rendered, state, 125)
            state.names = level.names
            return 0, pos
    if level.items > 0:
        _put_byte(rendered, state, 44)
    level.items += 1
    if level.remaining < 0:
        pos = _put_name(data, pos, end, level, rendered, scratch, state)
    return tag, pos if tag != 0 else _ZERO


@inlined
def _put_tag(data: Any, pos: Any, end: Any, tag: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write the payload of a tag at `pos`. Returns the position after it, 0 for a doubtful one."""
    depth = 0
    while True:
        if depth > MAX_DEPTH or tag > _LAST_TAG or not _has_room(rendered, state, _ZERO):
            return _ZERO
        if tag in (_LIST, _COMPOUND):
            pos = _open(data, pos, end, tag, scratch.stack[depth], rendered, state)
            depth += 1
        else:
            pos = _put_scalar(data, pos, end, tag, rendered, state)
        tag = 0
        while tag == 0:
            if pos == _ZERO or depth == 0:
                return pos
            if not _has_room(rendered, state, _ZERO):
                return _ZERO
            tag, pos = _advance(data, pos, end, scratch.stack[depth - 1], rendered, scratch, state)
            if tag == 0:
                depth -= 1


@inlined
def _put_root(data: Any, pos: Any, end: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write a tag that has a name, without it. Returns the position after it, 0 for a doubtful one."""
    if end - pos < _TWO + _ONE:
        return _ZERO
    tag = np.int64(data[pos])
    length = load_u16(data, pos + _ONE)
    pos += _TWO + _ONE
    if end - pos < length or find_utf8_end(data, pos, pos + length) != pos + length or tag == 0:
        return _ZERO
    return _put_tag(data, pos + length, end, tag, rendered, scratch, state)


@inlined
def _put_roots(data: Any, pos: Any, end: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write tags with names as a list. Returns whether they all are plain."""
    start = pos
    _put_byte(rendered, state, 91)
    while pos != end:
        if pos != start:
            _put_byte(rendered, state, 44)
        pos = _put_root(data, pos, end, rendered, scratch, state)
        if pos == _ZERO or not _has_room(rendered, state, _ZERO):
            return False
    _put_byte(rendered, state, 93)
    return True


@inlined
def _count_blocks(data: Any, pos: Any, bits: Any, counts: Any) -> Any:
    """Count how often each number is among the indices of blocks, or each pair; return the highest that is."""
    each = layout.WORD_BITS // bits
    paired = np.int64(1 if bits <= _PAIRED_BITS else 0)
    step = np.uint64(bits << paired)
    size, numbers = _ONE << step, _ONE << np.uint64(bits)
    mask = size - _ONE
    second = size if bits <= _SPREAD_BITS else _ZERO
    third, fourth = _TWO * second, _THREE * second
    for i in range(size + fourth):
        counts[i] = 0
    remaining = _BLOCKS
    while remaining > 0:
        word = load_u32(data, pos)
        pos += _FOUR
        weight = 1
        while remaining >= 2 * each and load_u32(data, pos) == word:  # mostly, blocks are like those next to them
            pos += _FOUR
            remaining -= each
            weight += 1
        if weight == 1 and remaining >= 4 * each:
            a, b, c = load_u32(data, pos), load_u32(data, pos + _FOUR), load_u32(data, pos + _EIGHT)
            pos += _EIGHT + _FOUR
            remaining -= 4 * each
            for _ in range(each >> paired):
                counts[word & mask] += 1
                counts[second + (a & mask)] += 1
                counts[third + (b & mask)] += 1
                counts[fourth + (c & mask)] += 1
                word >>= step
                a >>= step
                b >>= step
                c >>= step
            continue
        many = min(each, remaining)
        remaining -= many
        for _ in range(many >> paired):
            counts[word & mask] += weight
            word >>= step
    if second > _ZERO:
        for i in range(size):
            counts[i] += counts[second + i] + counts[third + i] + counts[fourth + i]
    if paired:
        for i in range(size, size + numbers):
            counts[i] = 0
        for i in range(size):
            counts[size + (i & (numbers - _ONE))] += counts[i]
            counts[size + (i >> np.uint64(bits))] += counts[i]
        for i in range(numbers):
            counts[i] = counts[size + i]
    highest = numbers - _ONE
    while counts[highest] == 0:
        highest -= _ONE
    return highest


@inlined
def _put_layer(data: Any, pos: Any, end: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write the kinds of blocks of a layer, and how many there are. Returns the position after it, 0 in doubt."""
    if pos >= end:
        return _ZERO
    bits = np.int64(data[pos] >> 1)
    pos += _ONE
    if _IS_WIDTH[bits] == 0:
        return _ZERO
    highest, size = _ZERO, _ONE
    scratch.counts[0] = _BLOCKS
    if bits > 0:
        each = layout.WORD_BITS // bits
        length = np.uint64((_BLOCKS + each - 1) // each * 4)
        if end - pos < length + _FOUR:
            return _ZERO
        highest = _count_blocks(data, pos, bits, scratch.counts)
        pos += length
        size = load_u32(data, pos)
        pos += _FOUR
    if highest >= size or size > end - pos or not _has_room(rendered, state, _ZERO):
        return _ZERO
    _put_byte(rendered, state, 91)
    for i in range(size):
        if i > 0:
            _put_byte(rendered, state, 44)
        state.position = put_text(rendered.out, state.position, _BLOCK_TEXT)
        pos = _put_root(data, pos, end, rendered, scratch, state)
        if pos == _ZERO or not _has_room(rendered, state, _ZERO):
            return _ZERO
        state.position = put_text(rendered.out, state.position, _COUNT_TEXT)
        count = np.uint64(scratch.counts[i]) if i <= highest else _ZERO
        state.position = put_integer(rendered.out, state.position, count)
        _put_byte(rendered, state, 125)
    _put_byte(rendered, state, 93)
    return pos


@inlined
def _put_subchunk(data: Any, pos: Any, end: Any, rendered: Any, scratch: Any, state: Any) -> Any:
    """Write the layers of a subchunk. Returns whether it is a plain one."""
    if end - pos < _FOUR:
        return False
    version = np.int64(data[pos])
    layers = np.int64(1)
    pos += _ONE
    if version not in layout.VERSIONS:
        return False
    state.position = put_text(rendered.out, state.position, _VERSION_TEXT)
    state.position = put_integer(rendered.out, state.position, np.uint64(version))
    if version != 1:
        layers = np.int64(data[pos])
        pos += _ONE
    if version == 9:
        state.position = put_text(rendered.out, state.position, _HEIGHT_TEXT)
        state.position = put_integer(rendered.out, state.position, _load_signed(data, pos, _ONE))
        pos += _ONE
    state.position = put_text(rendered.out, state.position, _LAYERS_TEXT)
    for layer in range(layers):
        if layer > 0:
            _put_byte(rendered, state, 44)
        pos = _put_layer(data, pos, end, rendered, scratch, state)
        if pos == _ZERO or not _has_room(rendered, state, _ZERO):
            return False
    _put_byte(rendered, state, 93)
    _put_byte(rendered, state, 125)
    return pos == end


@inlined
def _put_number(data: Any, pos: Any, end: Any, rendered: Any, state: Any) -> Any:
    """Write an unsigned integer of all bytes. Returns whether it has 63 bits."""
    if end == pos or end - pos > _EIGHT or (end - pos == _EIGHT and data[end - _ONE] > 127):
        return False
    value = _ZERO
    while end > pos:
        end -= _ONE
        value = value << _EIGHT | np.uint64(data[end])
    state.position = put_integer(rendered.out, state.position, value)
    return True


@inlined
def _put_actors(data: Any, pos: Any, end: Any, rendered: Any, state: Any) -> Any:
    """Write the numbers of actors as a list of texts. Returns whether there are only such."""
    length = end - pos
    if length % _ACTOR_SIZE != _ZERO or not _has_room(rendered, state, length):
        return False
    start = pos
    _put_byte(rendered, state, 91)
    while pos < end:
        if pos != start:
            _put_byte(rendered, state, 44)
        _put_byte(rendered, state, 34)
        state.position = put_hex(rendered.out, state.position, data, pos, pos + _ACTOR_SIZE)
        _put_byte(rendered, state, 34)
        pos += _ACTOR_SIZE
    _put_byte(rendered, state, 93)
    return True


@inlined
def _begins(keys: Any, start: Any, length: Any, text: Any, first: Any, last: Any) -> Any:
    """Return whether a key begins with `text[first:last]`."""
    size = np.uint64(last - first)
    return length >= size and are_bytes_equal(keys, start, text, np.uint64(first), size)


@inlined
def _is_named(keys: Any, start: Any, length: Any) -> Any:
    """Return whether a key is a name: 1, or -1 for one whose value is left to Python; 0 for other keys."""
    if length == _ZERO or _FIRST_BYTES[keys[start]] == 0:
        return 0
    for i in range(len(_NAME_ENDS) - 1):
        first, last = _NAME_ENDS[i], _NAME_ENDS[i + 1]
        is_name = i > _WHOLE_NAMES or length == np.uint64(last - first)
        if is_name and _begins(keys, start, length, _NAME_TEXT, first, last):
            return -1 if i == _WHOLE_NAMES or find_utf8_end(keys, start, start + length) != start + length else 1
    return 0


@inlined
def _put_place(keys: Any, pos: Any, has_dimension: Any, rendered: Any, row: Any) -> None:
    """Write x, z and dimension of a row, which begin at `pos` of the keys."""
    rendered.places[0, row] = np.int32(load_u32(keys, pos))
    rendered.places[1, row] = np.int32(load_u32(keys, pos + _FOUR))
    rendered.places[2, row] = np.int32(load_u32(keys, pos + _PLACE)) if has_dimension else 0


@inlined
def _classify_key(keys: Any, start: Any, end: Any, rendered: Any, row: Any) -> Any:
    """Read a key. Returns its kind, 0 for one that is left to Python, and how the value is read."""
    length = end - start
    actor, place = start + _ACTOR_LENGTH, start + _DIGEST_LENGTH
    if length == _ACTOR_LENGTH + _ACTOR_SIZE and _begins(keys, start, length, _ACTOR_TEXT, 0, len(_ACTOR_TEXT)):
        used = np.uint64(rendered.name_ends[row])
        rendered.name_ends[row + 1] = put_hex(rendered.names, used, keys, actor, end)
        return _ACTOR, _OTHER
    has_dimension = length == _DIGEST_LENGTH + _PLACE + _DIMENSION
    is_list = has_dimension or length == _DIGEST_LENGTH + _PLACE
    if is_list and _begins(keys, start, length, _DIGEST_TEXT, 0, len(_DIGEST_TEXT)):
        _put_place(keys, place, has_dimension, rendered, row)
        return _ACTORS, _OTHER
    named = _is_named(keys, start, length)
    if named != 0:
        used = np.uint64(rendered.name_ends[row])
        if named > 0:
            for i in range(length):
                rendered.names[used + i] = keys[start + i]
            rendered.name_ends[row + 1] = used + length
        return _NAMED if named > 0 else _DOUBTFUL, _OTHER
    if length < _SHORTEST or length > _LONGEST:
        return _DOUBTFUL, _OTHER
    has_dimension = length >= _SHORTEST + _DIMENSION
    tag_place = start + _PLACE + (_DIMENSION if has_dimension else _ZERO)
    if end - tag_place > _TWO:  # neither with a dimension nor without
        return _DOUBTFUL, _OTHER
    tag = np.int64(keys[tag_place])
    is_subchunk = end - tag_place == _TWO
    if is_subchunk != (tag == layout.SUBCHUNK):
        return _DOUBTFUL, _OTHER
    _put_place(keys, start, has_dimension, rendered, row)
    rendered.places[3, row] = np.int8(keys[end - _ONE]) if is_subchunk else 0
    return np.int64(_KIND_OF[tag]), np.int64(_READER_OF[tag])


@kernel
def render_world(keys: Strings, values: Strings, first: Int64, rendered: Rendered, scratch: Scratch) -> Int64:
    """Decode entries of a world.

    Args:
        keys: `Strings`.
        values: `Strings`.
        first: The row to begin with.
        rendered: `Rendered`.
        scratch: `Scratch`.

    Returns:
        The row for which there was no room; after the last where there was enough.
    """
    state = scratch.state[0]
    state.is_full = 0
    data = values.data
    for row in range(first, len(rendered.kinds)):
        position = state.position
        state.names = 0
        rendered.name_ends[row + 1] = rendered.name_ends[row]
        pos, end = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1])
        kind, reader = _classify_key(
            keys.data, np.uint64(keys.offsets[row]), np.uint64(keys.offsets[row + 1]), rendered, row
        )
        is_plain = False
        if not _has_room(rendered, state, _ZERO):
            kind, reader = _DOUBTFUL, _OTHER
        if reader == _NUMBER:
            is_plain = _put_number(data, pos, end, rendered, state)
        elif reader == _ROOTS:
            is_plain = _put_roots(data, pos, end, rendered, scratch, state)
        elif reader == _SUBCHUNK:
            is_plain = _put_subchunk(data, pos, end, rendered, scratch, state)
        elif reader == _UNDECODED:
            is_plain = kind != _DOUBTFUL
        elif kind == _ACTORS:
            is_plain = _put_actors(data, pos, end, rendered, state)
        elif kind in (_ACTOR, _NAMED):  # one tag; several, or none, are left to Python
            is_plain = _put_root(data, pos, end, rendered, scratch, state) == end and end != _ZERO
        if not is_plain:
            kind = _DOUBTFUL
            state.position = position
            rendered.name_ends[row + 1] = rendered.name_ends[row]
            if state.is_full != 0:
                return row
        rendered.kinds[row] = kind
        rendered.ends[row + 1] = state.position
    return len(rendered.kinds)
