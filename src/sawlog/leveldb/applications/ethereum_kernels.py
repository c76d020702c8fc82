"""Rendering the values of go-ethereum's chain database as JSON straight from RLP.

Whatever is out of the ordinary is left to `ethereum`, which writes the same text of what is read here, and says what is
wrong with the rest.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import are_bytes_equal, load_big_u64, load_u64, store_u32, store_u64
from sawlog.kernels.numbers import _EIGHT, _ONE, _THREE, _TWO, _ZERO
from sawlog.kernels.signature import Array, Int64, OutBytes, OutInt32s, OutInt64s
from sawlog.kernels.text import make_text, put_hex
from sawlog.leveldb.applications import ethereum_layout as layout
from sawlog.leveldb.records.kernels import Strings

_READERS = ("stored", "rlp", "hash", "number", "lookup")
_STORED, _RLP, _HASH_VALUE, _NUMBER_VALUE, _LOOKUP = range(len(_READERS))
NUMBER, HASH, PATH, TIME, VALUE = 1, 2, 4, 8, 16
"""Bits of columns that a row has."""
_NOT_TIME = 255 - TIME
_BLOCK_COLUMNS = NUMBER | HASH
_KINDS = {
    "": (_STORED, 0),
    "header": (_RLP, _BLOCK_COLUMNS),
    "body": (_RLP, _BLOCK_COLUMNS),
    "receipts": (_RLP, _BLOCK_COLUMNS),
    "access_list": (_RLP, _BLOCK_COLUMNS),
    "total_difficulty": (_RLP, _BLOCK_COLUMNS),
    "canonical_hash": (_HASH_VALUE, NUMBER),
    "skeleton_header": (_RLP, NUMBER),
    "header_number": (_NUMBER_VALUE, HASH),
    "transaction": (_LOOKUP, HASH),
    "account": (_RLP, HASH),
    "code": (_STORED, HASH),
    "state_id": (_NUMBER_VALUE, HASH),
    "preimage": (_STORED, HASH),
    "storage": (_RLP, HASH | PATH),
    "storage_node": (_STORED, HASH | PATH),
    "account_node": (_STORED, PATH),
    "trie_node": (_STORED, HASH),
    "index": (_STORED, 0),
    "bloom_bits": (_STORED, HASH),
}
"""How values are read, and the columns that keys give."""
KINDS = tuple(_KINDS)
"""By number; 0 is for what is not decoded."""
DOUBTFUL = 0
_READER_OF = np.array([reader for reader, _ in _KINDS.values()], np.uint8)
_COLUMNS_OF = np.array([columns for _, columns in _KINDS.values()], np.uint8)
_NUMBER_OF = {name: number for number, name in enumerate(KINDS)}
_HEADER, _SKELETON, _DIFFICULTY, _CANONICAL = (
    _NUMBER_OF[name] for name in ("header", "skeleton_header", "total_difficulty", "canonical_hash")
)
_PREIMAGE, _STORAGE, _STORAGE_NODE, _ACCOUNT_NODE, _TRIE_NODE, _INDEX, _BLOOM = (
    _NUMBER_OF[name]
    for name in ("preimage", "storage", "storage_node", "account_node", "trie_node", "index", "bloom_bits")
)


def _index_kinds(kinds: dict[bytes, str]) -> Any:
    table = np.zeros(256, np.uint8)
    for first, name in kinds.items():
        table[first[0]] = _NUMBER_OF[name]
    return table


_OF_BLOCK = _index_kinds(
    {layout.HEADER: "header", layout.BODY: "body", layout.RECEIPTS: "receipts", layout.ACCESS_LIST: "access_list"}
)
_OF_HASH = _index_kinds(
    {
        layout.HEADER_NUMBER: "header_number",
        layout.TRANSACTION: "transaction",
        layout.ACCOUNT: "account",
        layout.CODE: "code",
        layout.STATE_ID: "state_id",
    }
)
"""By the first byte of a key: the kind of what it has of a block, or of a hash."""

_TEXT = 32
"""Bytes that a field's name has in the table of their texts; one of them is there to be copied besides."""
_DATA, _QUANTITY, _STAMP, _ACCOUNT, _STATUS, _TRANSFER, _RECEIPT, _FIELDS, _EVERY = range(9)
"""Shapes of items: the first seven have their own numbers; of objects and lists of one shape there are more."""
_shapes = [(shape, 0, 0) for shape in range(_FIELDS)]
_field_shapes: list[int] = []
_field_names: list[bytes] = []


@cache
def _make_fields_shape(declared: str) -> int:
    """Return the number of the shape of an object with these fields."""
    names = declared.split()
    shapes = [_find_shape(name) for name in names]
    _shapes.append((_FIELDS, len(_field_names), len(names)))
    _field_shapes.extend(shapes)
    _field_names.extend(f',"{name.removesuffix("#")}":'.encode() for name in names)
    return len(_shapes) - 1


@cache
def _make_list_shape(item: int) -> int:
    """Return the number of the shape of a list of items of one shape."""
    _shapes.append((_EVERY, item, 0))
    return len(_shapes) - 1


def _find_shape(name: str) -> int:
    """Return the number of the shape of a field."""
    if name.endswith("#"):
        return _STAMP if name == "timestamp#" else _QUANTITY
    if name in layout.LISTS:
        return _make_list_shape(_make_fields_shape(layout.LISTS[name]))
    scalars = {"to": _ACCOUNT, "status": _STATUS, "transactions": _make_list_shape(_TRANSFER)}
    return scalars.get(name, _DATA)


_OLDEST = _make_fields_shape(layout.LEGACY)
_TYPED = np.zeros(256, np.int64)
for _type, _declared in layout.TYPED.items():
    _TYPED[_type] = _make_fields_shape(_declared)
_LAST_TYPE = max(layout.TYPED)
assert _LAST_TYPE < 10  # its digit is written
_MOST_FIELDS = max(layout.OLD_RECEIPTS)
_RECEIPTS = np.full(_MOST_FIELDS + 1, _make_fields_shape(layout.RECEIPT), np.int64)
for _count, _declared in layout.OLD_RECEIPTS.items():
    _RECEIPTS[_count] = _make_fields_shape(_declared)
_ROOTS = {
    "header": _make_fields_shape(layout.HEADER_FIELDS),
    "skeleton_header": _make_fields_shape(layout.HEADER_FIELDS),
    "body": _make_fields_shape(layout.BODY_FIELDS),
    "receipts": _make_list_shape(_RECEIPT),
    "transaction": _make_fields_shape(layout.LOOKUP_FIELDS),
    "account": _make_fields_shape(layout.ACCOUNT_FIELDS),
    "total_difficulty": _QUANTITY,
}
_SHAPE_OF = np.array([_ROOTS.get(name, _DATA) for name in KINDS], np.int64)
"""By the kind of a row: the shape of its value."""
_SHAPE_KINDS, _SHAPE_FIRST, _SHAPE_COUNT = (np.array(column, np.int64) for column in zip(*_shapes, strict=True))
_FIELD_SHAPES = np.array(_field_shapes, np.int64)
_FIELD_LENGTHS = np.array([len(name) for name in _field_names], np.uint64)
_FIELD_TEXTS = make_text(b"".join(name.ljust(_TEXT, b"\0") for name in _field_names) + bytes(8))


def _pad_text(text: bytes) -> Any:
    return make_text(text.ljust(16, b"\0"))


_TYPE_TEXT, _NULL_TEXT = _pad_text(b'{"type":"0x0"'), _pad_text(b"null")
_TYPE_LENGTH, _TYPE_DIGIT = np.uint64(13), np.uint64(11)
_QUOTED_HEX = np.uint64(int.from_bytes(b'"0x', "little"))
_SLACK = np.uint64(2 * _TEXT + 32)
"""Bytes of text that an item makes beyond two for each of its bytes, at most: a name, brackets, a type."""
_STRING, _LIST, _INLINE = np.uint64(layout.STRING), np.uint64(layout.LIST), np.uint64(layout.INLINE)
_MOST_NESTED = layout.MOST_NESTED
_LATEST, _MICROSECONDS = np.uint64(layout.LATEST), np.uint64(1_000_000)
_HASH, _NUMBER = np.uint64(layout.HASH_SIZE), np.uint64(layout.NUMBER_SIZE)
_BLOCK, _BLOOM_KEY = np.uint64(layout.BLOCK_SIZE), np.uint64(layout.BLOOM_SIZE)
HASH_TEXT = 2 + 2 * layout.HASH_SIZE
"""Bytes of the text of a hash."""

_PREIMAGE_TEXT = make_text(layout.PREIMAGE)
_INDEX_TEXT = make_text(b"".join(layout.INDEXES))
_INDEX_ENDS = np.cumsum([0, *map(len, layout.INDEXES)]).astype(np.uint64)
_PREIMAGE_LENGTH = np.uint64(len(layout.PREIMAGE))
_HEADER_KEY, _SKELETON_KEY = layout.HEADER[0], layout.SKELETON[0]
_DIFFICULTY_END, _CANONICAL_END = layout.DIFFICULTY[0], layout.CANONICAL[0]
_STORAGE_KEY, _STORAGE_NODE_KEY = layout.STORAGE[0], layout.STORAGE_NODE[0]
_ACCOUNT_NODE_KEY, _BLOOM_FIRST = layout.ACCOUNT_NODE[0], layout.BLOOM_BITS[0]
_NIBBLE = layout.NIBBLE
_DIGITS = make_text(b"0123456789abcdef")

LEVEL = make_record_type(("limit", np.uint64), "field", "last", "inner")
"""A list that is open: where it ends; which field is next, and after which there is none; or the shape of its items, -1
for an object."""
_PLAIN, _DOUBT, _FULL = range(3)
"""What became of a value: written; left to Python; has no room."""


class Rendered(NamedTuple):
    """Columns of a chain's database.

    Attributes:
        kinds: uint8, numbers of `KINDS`.
        present: uint8, which columns each row has.
        numbers: int64, numbers of blocks.
        times: int64, microseconds since 1970.
        hashes: uint8, hashes, one after the other.
        hash_ends: int32, `hash_ends[i + 1]` is the end of hash i; `hash_ends[0]` is 0.
        paths: uint8, paths.
        path_ends: int32, as `hash_ends`.
        values: uint8, JSON.
        value_ends: int32, as `hash_ends`.
        stack: `LEVEL`, working memory: lists that are open.
    """

    kinds: OutBytes
    present: OutBytes
    numbers: OutInt64s
    times: OutInt64s
    hashes: OutBytes
    hash_ends: OutInt32s
    paths: OutBytes
    path_ends: OutInt32s
    values: OutBytes
    value_ends: OutInt32s
    stack: Annotated[Any, Array(LEVEL, writable=True)]


@inlined
def _find_item_bounds(data: Any, pos: Any, limit: Any) -> Any:
    """Return the bounds of the bytes of an item, 0 where it does not end up to `limit`, and whether it is a list."""
    if pos >= limit:
        return _ZERO, _ZERO, False
    first = np.uint64(data[pos])
    if first < _STRING:
        return pos, pos + _ONE, False
    is_list = first >= _LIST
    size = first - (_LIST if is_list else _STRING)
    pos += _ONE
    if size > _INLINE:
        count = size - _INLINE
        if limit - pos < count:
            return _ZERO, _ZERO, False
        size = _ZERO
        for i in range(count):
            size = size << _EIGHT | np.uint64(data[pos + np.uint64(i)])
        pos += count
    if limit - pos < size:
        return _ZERO, _ZERO, False
    return pos, pos + size, is_list


@inlined
def _count_items(data: Any, pos: Any, limit: Any) -> Any:
    """Return the number of items, at most one more than fields of receipts; -1 where one does not end up to `limit`."""
    count = 0
    while pos < limit and count <= _MOST_FIELDS:
        _, pos, _ = _find_item_bounds(data, pos, limit)
        if pos == _ZERO:
            return -1
        count += 1
    return count


@inlined
def _put_data(out: Any, used: Any, data: Any, start: Any, end: Any) -> Any:
    store_u32(out, used, _QUOTED_HEX)
    used = put_hex(out, used + _THREE, data, start, end)
    out[used] = 34
    return used + _ONE


@inlined
def _put_quantity(out: Any, used: Any, data: Any, start: Any, end: Any) -> Any:
    """Write a number that has no zeros before it, but for 0 itself."""
    store_u32(out, used, _QUOTED_HEX)
    used += _THREE
    if start == end:
        out[used] = 48
        used += _ONE
    elif data[start] < _NIBBLE:
        out[used] = _DIGITS[data[start]]
        used += _ONE
        start += _ONE
    used = put_hex(out, used, data, start, end)
    out[used] = 34
    return used + _ONE


@inlined
def _note_time(data: Any, start: Any, end: Any, rendered: Any, row: Any) -> None:
    """Note the time of a header, where it is one."""
    if end - start <= _NUMBER:
        seconds = _ZERO
        while start < end:
            seconds = seconds << _EIGHT | np.uint64(data[start])
            start += _ONE
        if seconds < _LATEST:
            rendered.times[row] = seconds * _MICROSECONDS
            rendered.present[row] |= TIME


@inlined
def _put_bytes(rendered: Any, row: Any, used: Any, data: Any, start: Any, end: Any, shape: Any) -> Any:
    """Write an item that is no list. Returns where its text ends."""
    out = rendered.values
    if shape == _ACCOUNT and start == end:
        store_u32(out, used, load_u64(_NULL_TEXT, _ZERO))
        return used + np.uint64(4)
    if shape in (_QUANTITY, _STAMP) or (shape == _STATUS and end - start != _HASH):
        while start < end and data[start] == 0:
            start += _ONE
        if shape == _STAMP:
            _note_time(data, start, end, rendered, row)
        return _put_quantity(out, used, data, start, end)
    return _put_data(out, used, data, start, end)


@always_inlined
def _put_type(out: Any, used: Any, number: Any) -> Any:
    """Begin a transaction of a type."""
    store_u64(out, used, load_u64(_TYPE_TEXT, _ZERO))
    store_u64(out, used + _EIGHT, load_u64(_TYPE_TEXT, _EIGHT))
    out[used + _TYPE_DIGIT] = 48 + number
    return used + _TYPE_LENGTH


@always_inlined
def _put_name(out: Any, used: Any, field: Any, skipped: Any) -> Any:
    """Write the name of a field, after a comma unless that is skipped."""
    source = np.uint64(field * _TEXT) + skipped
    for i in range(_TEXT // 8):
        place = np.uint64(8 * i)
        store_u64(out, used + place, load_u64(_FIELD_TEXTS, source + place))
    return used + _FIELD_LENGTHS[field] - skipped


@inlined
def _put_rlp(data: Any, pos: Any, end: Any, shape: Any, rendered: Any, row: Any, used: Any) -> Any:
    """Write a value as JSON. Returns what became of it, and where the text ends."""
    out, stack = rendered.values, rendered.stack
    room = np.uint64(len(out))
    depth = 0
    limit = end
    field = last = 0
    item = _DATA
    typed_end = _ZERO  # of the bytes in which there is the list of a transaction that has a type
    while True:
        start, stop, is_list = _find_item_bounds(data, pos, limit)
        if stop == _ZERO:
            return _DOUBT, used
        if room - used < _TWO * (stop - start) + _SLACK:
            return _FULL, used
        is_first = False
        if not is_list and shape == _TRANSFER:
            if start == stop or _TYPED[data[start]] == 0:
                return _DOUBT, used
            used = _put_type(out, used, data[start])
            shape = _TYPED[data[start]]
            pos = start + _ONE
            typed_end = stop
            continue
        if typed_end != _ZERO and (not is_list or stop != typed_end):
            return _DOUBT, used
        if not is_list or (shape == _ACCOUNT and start == stop):
            used = _put_bytes(rendered, row, used, data, start, stop, shape)
            pos = stop
        else:
            if depth == _MOST_NESTED:
                return _DOUBT, used
            level = stack[depth]
            level.limit, level.field, level.last, level.inner = limit, field, last, item
            depth += 1
            is_first = typed_end == _ZERO
            if shape == _TRANSFER:
                used = _put_type(out, used, 0)
                shape = _OLDEST
                is_first = False
            elif shape == _RECEIPT:
                count = _count_items(data, start, stop)
                if count < 0:
                    return _DOUBT, used
                shape = _RECEIPTS[count if count <= _MOST_FIELDS else 0]
            field = _SHAPE_FIRST[shape]
            last = field + _SHAPE_COUNT[shape]
            item = -1
            if _SHAPE_KINDS[shape] != _FIELDS:
                item = field if _SHAPE_KINDS[shape] == _EVERY else _DATA
            if is_first:
                out[used] = 123 if item < 0 else 91
                used += _ONE
            typed_end = _ZERO
            limit = stop
            pos = start
        while depth > 0 and pos == limit:
            out[used] = 125 if item < 0 else 93
            used += _ONE
            depth -= 1
            level = stack[depth]
            limit, field, last, item = level.limit, level.field, level.last, level.inner
            is_first = False
        if depth == 0:
            return _PLAIN if pos == end else _DOUBT, used
        shape = item
        if item < 0:
            if field == last:
                return _DOUBT, used
            used = _put_name(out, used, field, _ONE if is_first else _ZERO)
            shape = _FIELD_SHAPES[field]
            field += 1
        elif not is_first:
            out[used] = 44
            used += _ONE


@inlined
def _are_nibbles(data: Any, start: Any, end: Any) -> Any:
    while start < end and data[start] < _NIBBLE:
        start += _ONE
    return start == end


@inlined
def _is_index(keys: Any, start: Any, length: Any) -> Any:
    """Return whether a key begins like those of indexes."""
    for i in range(len(_INDEX_ENDS) - 1):
        first, size = _INDEX_ENDS[i], _INDEX_ENDS[i + 1] - _INDEX_ENDS[i]
        if length >= size and are_bytes_equal(keys, start, _INDEX_TEXT, first, size):
            return True
    return False


@inlined
def _classify_state_key(keys: Any, start: Any, end: Any) -> Any:
    """Return the kind of a key of state or of an index, and where its hash is."""
    length, first = end - start, keys[start]
    if first == _STORAGE_KEY and length == _ONE + _HASH + _HASH:
        return _STORAGE, start + _ONE
    if first == _STORAGE_NODE_KEY and length >= _ONE + _HASH and _are_nibbles(keys, start + _ONE + _HASH, end):
        return _STORAGE_NODE, start + _ONE
    if first == _ACCOUNT_NODE_KEY and _are_nibbles(keys, start + _ONE, end):
        return _ACCOUNT_NODE, start
    if length == _HASH:
        return _TRIE_NODE, start
    if _is_index(keys, start, length):
        return _INDEX, start
    if first == _BLOOM_FIRST and length == _BLOOM_KEY:
        return _BLOOM, end - _HASH
    return DOUBTFUL, start


@inlined
def _classify_key(keys: Any, start: Any, end: Any) -> Any:
    """Return the kind of a key, and where its hash is, if it has one."""
    length = end - start
    if length == _ZERO:
        return DOUBTFUL, start
    first, last = keys[start], keys[end - _ONE]
    of_block = np.int64(_OF_BLOCK[first])
    if (of_block != DOUBTFUL or first == _SKELETON_KEY) and length > _ONE and keys[start + _ONE] > 127:
        # The number would have 64 bits; where it is shorter, there is no kind that has one.
        return _classify_state_key(keys, start, end) if length > _NUMBER else (DOUBTFUL, start)
    if length == _BLOCK and of_block != DOUBTFUL:
        return of_block, start + _ONE + _NUMBER
    if length == _BLOCK + _ONE and first == _HEADER_KEY and last == _DIFFICULTY_END:
        return _DIFFICULTY, start + _ONE + _NUMBER
    if length == _NUMBER + _TWO and first == _HEADER_KEY and last == _CANONICAL_END:
        return _CANONICAL, start
    if length == _NUMBER + _ONE and first == _SKELETON_KEY:
        return _SKELETON, start
    if length == _HASH + _ONE and _OF_HASH[first] != DOUBTFUL:
        return np.int64(_OF_HASH[first]), start + _ONE
    if length == _PREIMAGE_LENGTH + _HASH and are_bytes_equal(keys, start, _PREIMAGE_TEXT, _ZERO, _PREIMAGE_LENGTH):
        return _PREIMAGE, end - _HASH
    return _classify_state_key(keys, start, end)


@inlined
def _read_number(data: Any, start: Any, end: Any, rendered: Any, row: Any) -> Any:
    """Read a number of 63 bits. Returns whether it is one."""
    if end - start > _NUMBER or (end - start == _NUMBER and data[start] > 127):
        return False
    number = _ZERO
    while start < end:
        number = number << _EIGHT | np.uint64(data[start])
        start += _ONE
    rendered.numbers[row] = number
    rendered.present[row] |= NUMBER
    return True


@inlined
def _put_hash(data: Any, start: Any, rendered: Any, row: Any) -> None:
    """Write the hash of a row."""
    used = np.uint64(rendered.hash_ends[row])
    rendered.hashes[used], rendered.hashes[used + _ONE] = 48, 120
    rendered.hash_ends[row + 1] = put_hex(rendered.hashes, used + _TWO, data, start, start + _HASH)


@inlined
def _put_path(keys: Any, start: Any, end: Any, kind: Any, rendered: Any, row: Any) -> None:
    """Write the path that ends a key: the hash of a slot, or steps in a trie."""
    used = np.uint64(rendered.path_ends[row])
    if kind == _STORAGE:
        rendered.paths[used], rendered.paths[used + _ONE] = 48, 120
        used = put_hex(rendered.paths, used + _TWO, keys, end - _HASH, end)
    else:
        pos = start + _ONE + (_HASH if kind == _STORAGE_NODE else _ZERO)
        while pos < end:
            rendered.paths[used] = _DIGITS[keys[pos]]
            used += _ONE
            pos += _ONE
    rendered.path_ends[row + 1] = used


@inlined
def _put_value(data: Any, start: Any, end: Any, kind: Any, rendered: Any, row: Any) -> Any:
    """Write what a value is. Returns what became of it."""
    reader = _READER_OF[kind]
    size = end - start
    if reader == _STORED or (reader == _LOOKUP and size == _HASH):
        return _PLAIN
    if reader == _HASH_VALUE:
        if size == _HASH:
            _put_hash(data, start, rendered, row)
            rendered.present[row] |= HASH
        return _PLAIN if size == _HASH else _DOUBT
    if reader == _NUMBER_VALUE or (reader == _LOOKUP and size < _HASH):
        return _PLAIN if _read_number(data, start, end, rendered, row) else _DOUBT
    used = np.uint64(rendered.value_ends[row])
    outcome, used = _put_rlp(data, start, end, _SHAPE_OF[kind], rendered, row, used)
    if outcome == _PLAIN:
        rendered.value_ends[row + 1] = used
        rendered.present[row] |= VALUE
        if kind not in (_HEADER, _SKELETON):  # those of uncles are not the row's
            rendered.present[row] &= _NOT_TIME
    return outcome


@kernel
def render_chain(keys: Strings, values: Strings, rendered: Rendered, row: Int64) -> Int64:
    """Decode entries of a chain's database.

    Args:
        keys: `Strings`.
        values: `Strings`.
        rendered: `Rendered`.
        row: The first entry to decode.

    Returns:
        The first entry for whose value there is no room; or how many there are.
    """
    while row < len(rendered.kinds):
        key, key_end = np.uint64(keys.offsets[row]), np.uint64(keys.offsets[row + 1])
        kind, hash_start = _classify_key(keys.data, key, key_end)
        columns = _COLUMNS_OF[kind]
        rendered.present[row] = columns
        rendered.hash_ends[row + 1] = rendered.hash_ends[row]
        rendered.path_ends[row + 1] = rendered.path_ends[row]
        rendered.value_ends[row + 1] = rendered.value_ends[row]
        start, end = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1])
        outcome = _put_value(values.data, start, end, kind, rendered, row)
        if outcome == _FULL:
            return row
        if outcome == _DOUBT:
            kind = columns = DOUBTFUL
        if columns & NUMBER:
            rendered.numbers[row] = load_big_u64(keys.data, key + _ONE)
        if columns & HASH:
            _put_hash(keys.data, hash_start, rendered, row)
        if columns & PATH:
            _put_path(keys.data, key, key_end, kind, rendered, row)
        rendered.kinds[row] = kind
        row += 1
    return row
