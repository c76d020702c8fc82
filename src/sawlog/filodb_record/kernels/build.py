"""Encoding columns as payloads, and laying records out in containers. Sections 1, 2, 4 and 8 of the format.

Payloads go to one buffer, each behind its length as it will stand in the record; positions are those of the bytes
behind the length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.gather import SLACK, copy_short
from sawlog.filodb_record.kernels.histograms import _EXPONENTIAL_XOR, _buckets, _tops
from sawlog.filodb_record.kernels.nibblepack import FAILED, pack_values, pack_xor
from sawlog.filodb_record.layout import HistogramFormat
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, store_u16, store_u32, store_u64

# What is wrong with a value.
TOO_LONG = 1
KEY_TOO_LONG = 2
NOT_WHOLE = 3
DECREASING = 4
WRONG_COUNT = 5
BAD_BUCKETS = 6
OTHER_TOPS = 7
NO_ROOM = 8
"""Nothing is: the buffer must grow."""

# Fields of the state of an encoder, an int64 array.
ROW = 0
USED = 1
WRONG = 2
ENCODER_STATE_SIZE = 3

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SLACK = np.uint64(SLACK)
_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_LONGEST = np.uint64(layout.MAX_PAYLOAD)
_LONGEST_KEY = np.uint64(layout.MAX_KEY)
_FLAG = np.uint64(layout.PREDEFINED_FLAG)
_HISTOGRAM_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_EMPTY_HISTOGRAM = int(HistogramFormat.EMPTY)
_XOR = (int(HistogramFormat.GEOMETRIC_XOR), int(HistogramFormat.CUSTOM_XOR), _EXPONENTIAL_XOR)
_MOST_VALUE = 9.2e18
HEADS = 256
"""Places of the index of predefined keys."""


@kernel
def encode_strings(
    data: Any, ends: Any, wanted: Any, longest: Any, positions: Any, lengths: Any, out: Any, state: Any
) -> Any:
    """Copy strings to the buffer.

    Args:
        data: uint8.
        ends: int32, string i is `data[ends[i] : ends[i + 1]]`.
        wanted: uint8 per row: 0 for rows without a value, which get position and length 0.
        longest: uint64, bytes that a string can have.
        positions: uint64 per row.
        lengths: uint32 per row.
        out: uint8.
        state: int64[ENCODER_STATE_SIZE]: goes on at ROW and USED.

    Returns:
        0, or what is wrong with the value at ROW.
    """
    limit = np.uint64(len(data))
    used = np.uint64(state[USED])
    for row in range(state[ROW], len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if wanted[row] == 0:
            continue
        start = np.uint64(ends[row])
        length = np.uint64(ends[row + 1]) - start
        state[ROW] = row
        state[USED] = used
        if length > longest:
            state[WRONG] = length
            return TOO_LONG
        if np.uint64(len(out)) - used < length + _PREFIX + _SLACK:
            return NO_ROOM
        store_u16(out, used, length)
        used += _PREFIX
        copy_short(out, used, data, start, length, limit)
        positions[row] = used
        lengths[row] = length
        used += length
    state[ROW] = len(positions)
    state[USED] = used
    return 0


@inlined
def _after(data: Any, a: Any, a_length: Any, b: Any, b_length: Any) -> Any:
    """Whether the key at `a` comes after the key at `b`."""
    shorter = min(a_length, b_length)
    done = _ZERO
    while shorter - done >= _EIGHT and load_u64(data, a + done) == load_u64(data, b + done):
        done += _EIGHT
    while done < shorter:
        x = data[a + done]
        y = data[b + done]
        if x != y:
            return x > y
        done += _ONE
    return a_length > b_length


@inlined
def _index_place(first: Any, length: Any) -> Any:
    return np.int64((np.uint64(first) + np.uint64(31) * length) & np.uint64(HEADS - 1))


@kernel
def valid_ends(ends: Any, limit: Any) -> Any:
    """Whether the ends of an Arrow array ascend and stay within its data."""
    good = ends[0] >= 0 and ends[len(ends) - 1] <= limit
    for i in range(len(ends) - 1):
        good = good and ends[i] <= ends[i + 1]
    return good


@kernel
def index_names(names: Any, name_ends: Any, heads: Any, following: Any) -> None:
    """Index predefined keys by first byte and length; of equal ones the first counts."""
    for i in range(HEADS):
        heads[i] = -1
    for back in range(len(following)):
        i = len(following) - 1 - back
        length = np.uint64(name_ends[i + 1] - name_ends[i])
        first = names[name_ends[i]] if length > _ZERO else np.uint8(0)
        place = _index_place(first, length)
        following[i] = heads[place]
        heads[place] = i


@inlined
def _same_keys(keys: Any, key_ends: Any, a: Any, b: Any, count: Any) -> Any:
    """Whether two maps of `count` entries have the same keys in the same order."""
    start = np.uint64(key_ends[a])
    other = np.uint64(key_ends[b])
    length = np.uint64(key_ends[a + count]) - start
    for i in range(1, count + 1):
        if np.uint64(key_ends[a + i]) - start != np.uint64(key_ends[b + i]) - other:
            return False
    done = _ZERO
    while length - done >= _EIGHT:
        if load_u64(keys, start + done) != load_u64(keys, other + done):
            return False
        done += _EIGHT
    while done < length:
        if keys[start + done] != keys[other + done]:
            return False
        done += _ONE
    return True


@inlined
def _sort_keys(keys: Any, key_ends: Any, first: Any, count: Any, order: Any) -> None:
    """Put the entries of a map in the order of their keys: `order[i]` counts from its first entry."""
    for i in range(count):
        start = np.uint64(key_ends[first + i])
        length = np.uint64(key_ends[first + i + 1]) - start
        at = i
        while at > 0:
            other = np.int64(order[at - 1])
            begin = np.uint64(key_ends[first + other])
            if not _after(keys, begin, np.uint64(key_ends[first + other + 1]) - begin, start, length):
                break
            order[at] = other
            at -= 1
        order[at] = i


@inlined
def _find_name(keys: Any, start: Any, length: Any, names: Any, name_ends: Any, heads: Any, following: Any) -> Any:
    """The number of a predefined key, or -1."""
    number = np.int64(heads[_index_place(keys[start] if length > _ZERO else np.uint8(0), length)])
    while number >= 0:
        name = np.uint64(name_ends[number])
        same = np.uint64(name_ends[number + 1]) - name == length
        k = _ZERO
        while same and k < length:
            same = keys[start + k] == names[name + k]
            k += _ONE
        if same:
            break
        number = np.int64(following[number])
    return number


@kernel
def encode_maps(
    map_ends: Any,
    keys: Any,
    key_ends: Any,
    values: Any,
    value_ends: Any,
    wanted: Any,
    names: Any,
    name_ends: Any,
    heads: Any,
    following: Any,
    order: Any,
    numbers: Any,
    positions: Any,
    lengths: Any,
    out: Any,
    state: Any,
) -> Any:
    """Encode maps, their keys in the order of their bytes, equal ones in the order given.

    Args:
        map_ends: int32, row i has the entries `map_ends[i]` to `map_ends[i + 1]`.
        keys: uint8.
        key_ends: int32.
        values: uint8.
        value_ends: int32.
        wanted: uint8 per row.
        names: uint8, the predefined keys.
        name_ends: int64.
        heads: int16[HEADS], from `index_names`.
        following: int16 per predefined key.
        order: int32, as many as the largest map has entries.
        numbers: int16, as many.
        positions: uint64 per row.
        lengths: uint32 per row.
        out: uint8.
        state: int64[ENCODER_STATE_SIZE].

    Returns:
        0, or what is wrong with the map at ROW.
    """
    key_limit = np.uint64(len(keys))
    value_limit = np.uint64(len(values))
    room = np.uint64(len(out))
    used = np.uint64(state[USED])
    template = np.int64(-1)
    known = np.int64(0)
    for row in range(state[ROW], len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if wanted[row] == 0:
            continue
        state[ROW] = row
        state[USED] = used
        first = np.int64(map_ends[row])
        count = np.int64(map_ends[row + 1]) - first
        # Series have the same keys for long: what was found out of them holds until they change.
        if template < 0 or count != known or not _same_keys(keys, key_ends, template, first, count):
            _sort_keys(keys, key_ends, first, count, order)
            for i in range(count):
                start = np.uint64(key_ends[first + i])
                length = np.uint64(key_ends[first + i + 1]) - start
                numbers[i] = _find_name(keys, start, length, names, name_ends, heads, following)
            known = count
        template = first
        begun = used
        if room - used < _PREFIX:
            return NO_ROOM
        used += _PREFIX
        for i in range(count):
            entry = first + np.int64(order[i])
            start = np.uint64(key_ends[entry])
            length = np.uint64(key_ends[entry + 1]) - start
            if length > _LONGEST_KEY:
                state[WRONG] = length
                return KEY_TOO_LONG
            value_start = np.uint64(value_ends[entry])
            value_length = np.uint64(value_ends[entry + 1]) - value_start
            if value_length > _LONGEST:
                state[WRONG] = value_length
                return TOO_LONG
            if room - used < length + value_length + np.uint64(3) + _SLACK:
                return NO_ROOM
            number = np.int64(numbers[order[i]])
            if number >= 0:
                out[used] = _FLAG | np.uint64(number)
                used += _ONE
            else:
                out[used] = length
                used += _ONE
                copy_short(out, used, keys, start, length, key_limit)
                used += length
            store_u16(out, used, value_length)
            used += _TWO
            copy_short(out, used, values, value_start, value_length, value_limit)
            used += value_length
        total = used - begun - _PREFIX
        if total > _LONGEST:
            state[WRONG] = total
            return TOO_LONG
        store_u16(out, begun, total)
        positions[row] = begun + _PREFIX
        lengths[row] = total
    state[ROW] = len(positions)
    state[USED] = used
    return 0


@inlined
def _pack(
    code: Any, values: Any, bits: Any, first: Any, count: Any, steps: Any, scratch: Any, out: Any, pos: Any
) -> Any:
    """Pack the values of a histogram; the position behind them, or what is wrong, negative."""
    if code in _XOR:
        end = pack_xor(bits, first, count, out, pos, scratch)
        return -NO_ROOM if end == FAILED else np.int64(end)
    last = 0.0
    for i in range(count):
        value = values[first + i]
        if not (value >= 0.0 and value <= _MOST_VALUE) or value != np.floor(value):
            return -NOT_WHOLE
        if value < last:
            return -DECREASING
        steps[i] = np.uint64(np.int64(value) - np.int64(last))
        last = value
    end = pack_values(steps, 0, count, out, pos)
    return -NO_ROOM if end == FAILED else np.int64(end)


@kernel
def encode_histograms(
    definitions: Any,
    definition_ends: Any,
    value_ends: Any,
    values: Any,
    bits: Any,
    tops: Any,
    top_ends: Any,
    wanted: Any,
    computed: Any,
    computed_bits: Any,
    steps: Any,
    scratch: Any,
    positions: Any,
    lengths: Any,
    out: Any,
    state: Any,
) -> Any:
    """Encode histograms.

    Args:
        definitions: uint8, per row a format code and a bucket definition.
        definition_ends: int32.
        value_ends: int32.
        values: float64, cumulative.
        bits: The same memory as uint64.
        tops: float64, checked against the definitions.
        top_ends: int32.
        wanted: uint8 per row.
        computed: float64[MAX_BUCKETS], for the tops that definitions say.
        computed_bits: The same memory as uint64.
        steps: uint64[MAX_BUCKETS].
        scratch: uint64[NIBBLE_GROUP].
        positions: uint64 per row.
        lengths: uint32 per row.
        out: uint8.
        state: int64[ENCODER_STATE_SIZE].

    Returns:
        0, or what is wrong with the histogram at ROW.
    """
    used = np.uint64(state[USED])
    for row in range(state[ROW], len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if wanted[row] == 0:
            continue
        state[ROW] = row
        state[USED] = used
        size = np.uint64(definition_ends[row + 1] - definition_ends[row])
        first = np.int64(value_ends[row])
        count = np.int64(value_ends[row + 1]) - first
        if np.uint64(len(out)) - used < size + np.uint64(32):
            return NO_ROOM
        begin = used + _PREFIX
        if count == 0:
            out[begin] = _EMPTY_HISTOGRAM
            end = np.int64(begin + _ONE)
        else:
            if size < _TWO or size > _LONGEST:
                return BAD_BUCKETS
            start = np.uint64(definition_ends[row])
            code = np.int64(definitions[start])
            out[begin] = code
            store_u16(out, begin + _ONE, size - _ONE)
            copy_bytes(out, begin + _HISTOGRAM_HEAD, definitions, start + _ONE, size - _ONE)
            buckets, _ = _buckets(out, begin, size - _ONE + _HISTOGRAM_HEAD)
            if buckets <= 0 or code == _EMPTY_HISTOGRAM:
                return BAD_BUCKETS
            if buckets != count or top_ends[row + 1] - top_ends[row] != count:
                state[WRONG] = buckets
                return WRONG_COUNT
            if not _tops(out, begin, size - _ONE, code, computed, computed_bits, 0, count):
                return BAD_BUCKETS
            given = np.int64(top_ends[row])
            for i in range(count):
                a, b = computed[i], tops[given + i]
                if a != b and not (np.isnan(a) and np.isnan(b)):
                    state[WRONG] = i
                    return OTHER_TOPS
            end = _pack(code, values, bits, first, count, steps, scratch, out, begin + _HISTOGRAM_HEAD + size - _ONE)
            if end < 0:
                return -end
        length = np.uint64(end) - begin
        if length > _LONGEST:
            state[WRONG] = length
            return TOO_LONG
        store_u16(out, used, length)
        positions[row] = begin
        lengths[row] = length
        used = np.uint64(end)
    state[ROW] = len(positions)
    state[USED] = used
    return 0


# Fields of the state of the container writer, an int64 array.
RECORD = 0
"""The next row."""
START = 1
"""Start of the current container in `out`; -1 when there is none."""
END = 2
"""Where the next record goes."""
TIME = 3
"""Timestamp of the current container."""
LAYER_STATE_SIZE = 4

# What to put where: rows of (code, offset in the record, place in the arena or the scratch, second place).
PUT_8 = 1
PUT_4 = 2
PUT_PAYLOAD = 3
PUT_FIELDS = 4

# What a call ended with.
DONE = 0
FLUSH = 1
"""`out` must be emptied of complete containers."""
RECORD_TOO_LONG = 2
BAD_RECORD = 3

# Fields of a layout, a row of int64.
VARIABLE_START = 0
SCHEMA_ID = 1
"""-1 for records without."""
HASH_OFFSET = 2
LAYOUT_FIELDS = 3

_HEADER = layout.CONTAINER_HEADER_SIZE
_VERSION_WORD = np.uint64(layout.VERSION << layout.VERSION_SHIFT)
_ALIGN = layout.ALIGNMENT


@inlined
def _close(out: Any, state: Any, size: Any, whole: Any) -> None:
    """Complete the current container, in its full size if `whole`."""
    start = state[START]
    store_u32(out, np.uint64(start), np.uint64(state[END] - start - layout.LENGTH_SIZE))
    if whole:
        for i in range(state[END], start + size):
            out[i] = 0
        state[END] = start + size
    state[START] = -1


@kernel
def close_container(out: Any, state: Any, size: Any, whole: Any) -> None:
    """Complete the current container, if there is one."""
    if state[START] >= 0:
        _close(out, state, size, whole)


@kernel
def lay_records(
    which: Any,
    layouts: Any,
    ops: Any,
    arena: Any,
    payloads: Any,
    scratch: Any,
    hashes: Any,
    times: Any,
    raw: Any,
    size: Any,
    whole: Any,
    state: Any,
    out: Any,
) -> Any:
    """Lay records out in containers.

    Args:
        which: uint8 per row, number of its layout.
        layouts: int64[:, LAYOUT_FIELDS].
        ops: int64[layouts, columns, PUT_FIELDS].
        arena: uint8, values of fixed-width columns.
        payloads: uint8, payloads, each behind its length.
        scratch: uint8, positions (u64) and lengths (u32) of payloads.
        hashes: uint64 per row, partition hashes.
        times: int64 per row, timestamp of the container it goes to; another one begins another container.
        raw: Whether the first payload of each row is its whole record.
        size: int64, bytes of a container.
        whole: Whether full containers are written in their full size.
        state: int64[LAYER_STATE_SIZE], updated.
        out: uint8, room for at least two containers.

    Returns:
        DONE, FLUSH, RECORD_TOO_LONG or BAD_RECORD.
    """
    for row in range(state[RECORD], len(which)):
        state[RECORD] = row
        r = np.uint64(row)
        number = which[row]
        start_of_payloads = layouts[number, VARIABLE_START]
        if raw:
            total = np.int64(load_u32(scratch, np.uint64(ops[0, 0, 3]) + r * _FOUR))
            source = load_u64(scratch, np.uint64(ops[0, 0, 2]) + r * _EIGHT)
            if total < layout.LENGTH_SIZE or load_u32(payloads, source) + _FOUR != np.uint64(total):
                return BAD_RECORD
        else:
            total = start_of_payloads
            for i in range(len(ops[number])):
                if ops[number, i, 0] == PUT_PAYLOAD:
                    total += np.int64(load_u32(scratch, np.uint64(ops[number, i, 3]) + r * _FOUR)) + 2
        if total > size - _HEADER:
            return RECORD_TOO_LONG
        if state[START] >= 0 and (state[END] + total > state[START] + size or state[TIME] != times[row]):
            _close(out, state, size, whole)
        if state[START] < 0:
            start = state[END]
            if len(out) - start < size + SLACK:
                return FLUSH
            state[START] = start
            state[TIME] = times[row]
            at = np.uint64(start)
            store_u32(out, at, np.uint64(layout.EMPTY_CONTAINER))
            store_u32(out, at + np.uint64(layout.VERSION_OFFSET), _VERSION_WORD)
            store_u64(out, at + np.uint64(layout.TIMESTAMP_OFFSET), np.uint64(times[row]))
            state[END] = start + _HEADER
        begin = np.uint64(state[END])
        if raw:
            copy_bytes(out, begin, payloads, source, np.uint64(total))
        else:
            store_u32(out, begin, np.uint64(total - layout.LENGTH_SIZE))
            if layouts[number, SCHEMA_ID] >= 0:
                store_u16(out, begin + np.uint64(layout.SCHEMA_ID_OFFSET), np.uint64(layouts[number, SCHEMA_ID]))
                store_u32(out, begin + np.uint64(layouts[number, HASH_OFFSET]), hashes[row])
            pointer = np.uint64(start_of_payloads)
            for i in range(len(ops[number])):
                code = ops[number, i, 0]
                slot = begin + np.uint64(ops[number, i, 1])
                place = np.uint64(ops[number, i, 2])
                if code == PUT_8:
                    store_u64(out, slot, load_u64(arena, place + r * _EIGHT))
                elif code == PUT_4:
                    store_u32(out, slot, load_u32(arena, place + r * _FOUR))
                elif code == PUT_PAYLOAD:
                    source = load_u64(scratch, place + r * _EIGHT) - _PREFIX
                    length = np.uint64(load_u32(scratch, np.uint64(ops[number, i, 3]) + r * _FOUR)) + _PREFIX
                    store_u32(out, slot, pointer)
                    if len(out) - np.int64(begin + pointer + length) >= SLACK:
                        copy_short(out, begin + pointer, payloads, source, length, np.uint64(len(payloads)))
                    else:
                        copy_bytes(out, begin + pointer, payloads, source, length)
                    pointer += length
        end = state[END] + total
        aligned = (end + _ALIGN - 1) // _ALIGN * _ALIGN
        for i in range(end, aligned):
            out[i] = 0
        state[END] = aligned
    state[RECORD] = len(which)
    return DONE
