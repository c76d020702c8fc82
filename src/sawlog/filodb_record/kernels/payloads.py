"""Encoding strings and maps as payloads. Sections 1 and 2 of the format.

Payloads go to one buffer, each behind its length as it will stand in the record; positions are those of the bytes
behind the length. What repeats is encoded once: rows share positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.gather import SLACK, copy_short
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import load_u64, same_bytes, store_u16
from sawlog.kernels.xxh32 import xxh32

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

HEADS = 256
"""Places of the index of predefined keys."""
PROBES = 4
"""Places at which a map is looked for among those of the batch."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_EIGHT = np.uint64(8)
_SLACK = np.uint64(SLACK)
_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_LONGEST = np.uint64(layout.MAX_PAYLOAD)
_LONGEST_KEY = np.uint64(layout.MAX_KEY)
_FLAG = np.uint64(layout.PREDEFINED_FLAG)
_SEED = np.uint64(layout.HASH_SEED)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_U32 = np.uint64(0xFFFFFFFF)
_MIX = np.uint64(0x9E3779B1)
_HALF = np.uint64(32)


@kernel
def valid_ends(ends: Any, limit: Any) -> Any:
    """Whether the ends of an Arrow array ascend and stay within its data."""
    descents = 0
    for i in range(len(ends) - 1):
        descents += ends[i] > ends[i + 1]
    return descents == 0 and ends[0] >= 0 and ends[len(ends) - 1] <= limit


@kernel
def combine_hashes(which: Any, places: Any, scratch: Any, hashes: Any) -> None:
    """Make partition hashes from those of payloads.

    Args:
        which: uint8 per row, number of its layout.
        places: int64[layouts, columns], where the hashes of each hashed column stand in the scratch; -1: no more.
        scratch: uint32, hashes of payloads.
        hashes: uint64 per row, updated.
    """
    for row in range(len(which)):
        number = which[row]
        total = hashes[row]
        for i in range(places.shape[1]):
            if places[number, i] >= 0:
                total = (_FACTOR * total + np.uint64(scratch[places[number, i] + row])) & _U32
        hashes[row] = total


@kernel
def encode_strings(
    data: Any,
    ends: Any,
    wanted: Any,
    longest: Any,
    hashed: Any,
    positions: Any,
    lengths: Any,
    hashes: Any,
    out: Any,
    state: Any,
) -> Any:
    """Copy strings to the buffer.

    Args:
        data: uint8.
        ends: int32, string i is `data[ends[i] : ends[i + 1]]`.
        wanted: uint8 per row: 0 for rows without a value, which get position and length 0.
        longest: uint64, bytes that a string can have.
        hashed: Whether hashes are wanted.
        positions: uint64 per row.
        lengths: uint32 per row.
        hashes: uint32 per row.
        out: uint8.
        state: int64[ENCODER_STATE_SIZE]: goes on at ROW and USED.

    Returns:
        0, or what is wrong with the value at ROW.
    """
    limit = np.uint64(len(data))
    used = np.uint64(state[USED])
    last: Any = np.int64(-1)
    for row in range(state[ROW], len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if wanted[row] == 0:
            continue
        start = np.uint64(ends[row])
        length = np.uint64(ends[row + 1]) - start
        if last >= 0 and np.uint64(lengths[last]) == length and same_bytes(data, start, out, positions[last], length):
            positions[row] = positions[last]
            lengths[row] = lengths[last]
            hashes[row] = hashes[last]
            continue
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
        if hashed:
            hashes[row] = xxh32(out, used, length, _SEED)
        used += length
        last = row
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


@always_inlined
def _same_texts(keys: Any, key_ends: Any, a: Any, b: Any, count: Any) -> Any:
    """Whether two maps of `count` entries have the same keys, or values, in the same order."""
    start = np.uint64(key_ends[a])
    other = np.uint64(key_ends[b])
    differs = 0
    for i in range(1, count + 1):
        differs |= (key_ends[a + i] - key_ends[a]) ^ (key_ends[b + i] - key_ends[b])
    return differs == 0 and same_bytes(keys, start, keys, other, np.uint64(key_ends[a + count]) - start)


@inlined
def sort_keys(keys: Any, key_ends: Any, first: Any, count: Any, order: Any) -> None:
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


@inlined
def _mix_of(values: Any, start: Any, length: Any, count: Any) -> Any:
    """A number by which to look for a map: of its values, as keys repeat."""
    total = np.uint64(count)
    factor = _MIX
    done = _ZERO
    while length - done >= _EIGHT:
        word = load_u64(values, start + done)
        total ^= ((word ^ word >> _HALF) & _U32) * factor
        factor = (factor + _MIX + _MIX) & _U32
        done += _EIGHT
    while done < length:
        total ^= np.uint64(values[start + done]) * factor
        factor = (factor + _MIX + _MIX) & _U32
        done += _ONE
    total ^= total >> _HALF
    return ((total & _U32) * _MIX) >> _HALF


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
    seen: Any,
    hashed: Any,
    positions: Any,
    lengths: Any,
    hashes: Any,
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
        seen: int32, a power of two, all 0 to begin with: rows whose maps have been encoded, plus one.
        hashed: Whether hashes are wanted.
        positions: uint64 per row.
        lengths: uint32 per row.
        hashes: uint32 per row.
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
    mask = np.uint64(len(seen) - 1)
    for row in range(state[ROW], len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if wanted[row] == 0:
            continue
        state[ROW] = row
        state[USED] = used
        first = np.int64(map_ends[row])
        count = np.int64(map_ends[row + 1]) - first
        value_start = np.uint64(value_ends[first])
        place = _mix_of(values, value_start, np.uint64(value_ends[first + count]) - value_start, count) & mask
        probe = 0
        same = np.int64(-1)
        while seen[place] != 0 and probe < PROBES:
            other = np.int64(seen[place]) - 1
            begin = np.int64(map_ends[other])
            if (
                np.int64(map_ends[other + 1]) - begin == count
                and _same_texts(values, value_ends, begin, first, count)
                and _same_texts(keys, key_ends, begin, first, count)
            ):
                same = other
                break
            place = (place + _ONE) & mask
            probe += 1
        if same >= 0:
            positions[row] = positions[same]
            lengths[row] = lengths[same]
            hashes[row] = hashes[same]
            continue
        # Series have the same keys for long: what was found out of them holds until they change.
        if template < 0 or count != known or not _same_texts(keys, key_ends, template, first, count):
            sort_keys(keys, key_ends, first, count, order)
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
        if hashed:
            # Of maps the length in front enters, too.
            hashes[row] = xxh32(out, begun, total + _PREFIX, _SEED)
        if probe < PROBES:
            seen[place] = row + 1
    state[ROW] = len(positions)
    state[USED] = used
    return 0
