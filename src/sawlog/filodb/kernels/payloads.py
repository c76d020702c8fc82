"""Encoding strings and maps as payloads. Sections 1 and 2 of the format.

Payloads go to one buffer, each after its length as it will be in the record; positions are those of the bytes
after the length. What repeats is encoded once: rows share positions.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.filodb import layout
from sawlog.filodb.kernels.gather import Labels, Texts
from sawlog.kernels.columns import make_put_slice
from sawlog.kernels.intern import enter, find, hash_string
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import are_bytes_equal, load_u64, store_u16
from sawlog.kernels.numbers import _EIGHT, _ONE, _U32, _ZERO
from sawlog.kernels.signature import (
    Array,
    Bool,
    Bytes,
    Int64,
    OutBytes,
    OutInt16s,
    OutInt32s,
    OutUInt32s,
    OutUInt64s,
    Record,
    UInt32s,
    UInt64,
)
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

PROGRESS = make_record_type(
    "row",  # the next one, or the one that something is wrong with
    "used",  # bytes of the buffer
    "wrong",  # what explains it
)
"""How far an encoder has come."""


class Names(NamedTuple):
    """Predefined keys, and an index of them.

    Attributes:
        texts: `Texts`.
        heads: int16[HEADS], per first byte and length the first key of such, or -1.
        following: int16 per key, the next such key, or -1.
    """

    texts: Texts
    heads: OutInt16s
    following: OutInt16s


class Encoded(NamedTuple):
    """Arrays that the payloads of a column are put down in.

    Attributes:
        wanted: uint8 per row: 0 for rows without a value, which get position and length 0.
        hashed: Whether hashes are wanted.
        positions: uint64 per row.
        lengths: uint32 per row.
        hashes: uint32 per row.
    """

    wanted: Bytes
    hashed: Bool
    positions: OutUInt64s
    lengths: OutUInt32s
    hashes: OutUInt32s


HEADS = 256
"""Places of the index of predefined keys."""
PROBES = 4
"""Slots at which a map is looked for among those of the batch: by their values, which other maps may share."""

_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_LONGEST = np.uint64(layout.MAX_PAYLOAD)
_LONGEST_KEY = np.uint64(layout.MAX_KEY)
_FLAG = np.uint64(layout.PREDEFINED_FLAG)
_SEED = np.uint64(layout.HASH_SEED)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_put_key, _put_payload = make_put_slice(layout.MAP_KEY), make_put_slice(layout.PAYLOAD)


@kernel
def combine_hashes(
    layout_numbers: Bytes, places: Annotated[Any, Array(np.int64, 2)], scratch: UInt32s, hashes: OutUInt64s
) -> None:
    """Make partition hashes from those of payloads.

    Args:
        layout_numbers: uint8 per row, number of its layout.
        places: int64[layouts, columns], where the hashes of each hashed column are in the scratch; -1: no more.
        scratch: uint32, hashes of payloads.
        hashes: uint64 per row, updated.
    """
    for row in range(len(layout_numbers)):
        number = layout_numbers[row]
        total = hashes[row]
        for i in range(places.shape[1]):
            if places[number, i] >= 0:
                total = (_FACTOR * total + np.uint64(scratch[places[number, i] + row])) & _U32
        hashes[row] = total


@kernel
def encode_strings(
    texts: Texts, longest: UInt64, into: Encoded, out: OutBytes, progress: Annotated[Any, Record(PROGRESS)]
) -> Int64:
    """Copy strings to the buffer.

    Returns:
        0, or what is wrong with the value of a row.
    """
    data, ends = texts.data, texts.ends
    positions, lengths, hashes = into.positions, into.lengths, into.hashes
    used = np.uint64(progress.used)
    last: Any = np.int64(-1)
    for row in range(progress.row, len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if into.wanted[row] == 0:
            continue
        start = np.uint64(ends[row])
        length = np.uint64(ends[row + 1]) - start
        if (
            last >= 0
            and np.uint64(lengths[last]) == length
            and are_bytes_equal(data, start, out, positions[last], length)
        ):
            positions[row] = positions[last]
            lengths[row] = lengths[last]
            hashes[row] = hashes[last]
            continue
        progress.row = row
        progress.used = used
        if length > longest:
            progress.wrong = length
            return TOO_LONG
        if np.uint64(len(out)) - used < length + _PREFIX:
            return NO_ROOM
        used = _put_payload(out, used, data, start, length)
        positions[row] = used - length
        lengths[row] = length
        if into.hashed:
            hashes[row] = xxh32(out, used - length, length, _SEED)
        last = row
    progress.row = len(positions)
    progress.used = used
    return 0


@inlined
def _comes_after(data: Any, a: Any, a_length: Any, b: Any, b_length: Any) -> Any:
    """Return whether the key at `a` comes after the key at `b`."""
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
def _compute_head(first: Any, length: Any) -> Any:
    return np.int64((np.uint64(first) + np.uint64(31) * length) & np.uint64(HEADS - 1))


@kernel
def index_names(predefined: Names) -> None:
    """Index predefined keys by first byte and length; of equal ones the first counts."""
    names, name_ends = predefined.texts.data, predefined.texts.ends
    heads, following = predefined.heads, predefined.following
    for i in range(HEADS):
        heads[i] = -1
    for back in range(len(following)):
        i = len(following) - 1 - back
        length = np.uint64(name_ends[i + 1] - name_ends[i])
        first = names[name_ends[i]] if length > _ZERO else np.uint8(0)
        place = _compute_head(first, length)
        following[i] = heads[place]
        heads[place] = i


@always_inlined
def _has_same_texts(texts: Any, a: Any, b: Any, count: Any) -> Any:
    """Return whether two maps of `count` entries have the same keys, or values, in the same order."""
    data, ends = texts.data, texts.ends
    start = np.uint64(ends[a])
    shift = ends[a] - ends[b]
    differs = 0
    for i in range(1, count + 1):
        differs |= (ends[a + i] - ends[b + i]) ^ shift
    return differs == 0 and are_bytes_equal(data, start, data, np.uint64(ends[b]), np.uint64(ends[a + count]) - start)


@always_inlined
def _is_same_map(maps: Any, a: Any, b: Any) -> Any:
    """Return whether the maps of two rows have the same entries in the same order."""
    first = np.int64(maps.ends[a])
    start_b = np.int64(maps.ends[b])
    count = np.int64(maps.ends[a + 1]) - first
    return (
        np.int64(maps.ends[b + 1]) - start_b == count
        and _has_same_texts(maps.values, first, start_b, count)
        and _has_same_texts(maps.keys, first, start_b, count)
    )


@inlined
def sort_keys(texts: Any, first: Any, count: Any, order: Any) -> None:
    """Put the entries of a map in the order of their keys: `order[i]` counts from its first entry."""
    keys, key_ends = texts.data, texts.ends
    for i in range(count):
        start = np.uint64(key_ends[first + i])
        length = np.uint64(key_ends[first + i + 1]) - start
        slot = i
        while slot > 0:
            previous = np.int64(order[slot - 1])
            begin = np.uint64(key_ends[first + previous])
            if not _comes_after(keys, begin, np.uint64(key_ends[first + previous + 1]) - begin, start, length):
                break
            order[slot] = previous
            slot -= 1
        order[slot] = i


@inlined
def _find_name(keys: Any, start: Any, length: Any, predefined: Any) -> Any:
    """Return the number of a predefined key, or -1."""
    names, name_ends = predefined.texts.data, predefined.texts.ends
    number = np.int64(predefined.heads[_compute_head(keys[start] if length > _ZERO else np.uint8(0), length)])
    while number >= 0:
        name = np.uint64(name_ends[number])
        if np.uint64(name_ends[number + 1]) - name == length and are_bytes_equal(keys, start, names, name, length):
            break
        number = np.int64(predefined.following[number])
    return number


class Work(NamedTuple):
    """Working memory of `encode_maps`.

    Attributes:
        order: int32, as many as the largest map has entries.
        numbers: int16, as many.
        seen: uint64, all 0 to begin with, slots as in `sawlog.kernels.intern`: rows whose maps have been encoded.
        seed: uint64, of their hashes.
        following: int32 per row, all 0 to begin with: of those rows, which of them came next the last time, plus one.
    """

    order: OutInt32s
    numbers: OutInt16s
    seen: OutUInt64s
    seed: UInt64
    following: OutInt32s


@always_inlined
def _find_same(maps: Any, row: Any, last: Any, work: Any) -> Any:
    """Return the row that has the same map, or -1; then the slot of `work.seen` that this one takes, and its hash."""
    # Series mostly come in the same order again.
    same_row = np.int64(work.following[last]) - 1 if last >= 0 else np.int64(-1)
    if same_row >= 0 and _is_same_map(maps, row, same_row):
        return same_row, _ZERO, _ZERO
    first, end = np.int64(maps.ends[row]), np.int64(maps.ends[row + 1])
    values, value_ends = maps.values.data, maps.values.ends
    start = np.uint64(value_ends[first])
    hashed = hash_string(values, start, np.uint64(value_ends[end]) - start, work.seed)
    same_row, place = find(_is_same_map, maps, row, work.seen, hashed, PROBES)
    return same_row, place, hashed


@always_inlined
def _number_keys(keys: Any, first: Any, count: Any, names: Any, work: Any) -> None:
    """Put the keys of a map in order, and find those that are predefined."""
    sort_keys(keys, first, count, work.order)
    for i in range(count):
        start = np.uint64(keys.ends[first + i])
        work.numbers[i] = _find_name(keys.data, start, np.uint64(keys.ends[first + i + 1]) - start, names)


@always_inlined
def _put_map(maps: Any, first: Any, count: Any, work: Any, out: Any, used: Any, progress: Any) -> Any:
    """Write the entries of a map at `used`: 0, or what is wrong, and the position after them."""
    keys, key_ends = maps.keys.data, maps.keys.ends
    values, value_ends = maps.values.data, maps.values.ends
    room = np.uint64(len(out))
    for i in range(count):
        entry = first + np.int64(work.order[i])
        start = np.uint64(key_ends[entry])
        length = np.uint64(key_ends[entry + 1]) - start
        if length > _LONGEST_KEY:
            progress.wrong = length
            return KEY_TOO_LONG, used
        value_start = np.uint64(value_ends[entry])
        value_length = np.uint64(value_ends[entry + 1]) - value_start
        if value_length > _LONGEST:
            progress.wrong = value_length
            return TOO_LONG, used
        if room - used < length + value_length + np.uint64(3):
            return NO_ROOM, used
        number = np.int64(work.numbers[work.order[i]])
        if number >= 0:
            out[used] = _FLAG | np.uint64(number)
            used += _ONE
        else:
            used = _put_key(out, used, keys, start, length)
        used = _put_payload(out, used, values, value_start, value_length)
    return 0, used


@kernel
def encode_maps(
    maps: Labels, names: Names, work: Work, into: Encoded, out: OutBytes, progress: Annotated[Any, Record(PROGRESS)]
) -> Int64:
    """Encode maps, their keys in the order of their bytes, equal ones in the order given.

    Returns:
        0, or what is wrong with the map of a row.
    """
    following = work.following
    positions, lengths, hashes = into.positions, into.lengths, into.hashes
    used = np.uint64(progress.used)
    template = np.int64(-1)
    name_count = np.int64(0)
    last = np.int64(-1)
    for row in range(progress.row, len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if into.wanted[row] == 0:
            continue
        progress.row = row
        progress.used = used
        same_row, place, hashed = _find_same(maps, row, last, work)
        if last >= 0:
            following[last] = (same_row if same_row >= 0 else row) + 1
        last = same_row if same_row >= 0 else np.int64(row)
        if same_row >= 0:
            positions[row] = positions[same_row]
            lengths[row] = lengths[same_row]
            hashes[row] = hashes[same_row]
            continue
        first = np.int64(maps.ends[row])
        count = np.int64(maps.ends[row + 1]) - first
        # Series have the same keys for long: what was found out of them holds until they change.
        if template < 0 or count != name_count or not _has_same_texts(maps.keys, template, first, count):
            _number_keys(maps.keys, first, count, names, work)
            name_count = count
        template = first
        payload_start = used + _PREFIX
        if np.uint64(len(out)) - used < _PREFIX:
            return NO_ROOM
        wrong, end = _put_map(maps, first, count, work, out, payload_start, progress)
        if wrong != 0:
            return wrong
        total = end - payload_start
        if total > _LONGEST:
            progress.wrong = total
            return TOO_LONG
        store_u16(out, used, total)
        positions[row] = payload_start
        lengths[row] = total
        if into.hashed:
            # Of maps the length in front enters, too.
            hashes[row] = xxh32(out, used, total + _PREFIX, _SEED)
        enter(work.seen, place, hashed, row)
        used = end
    progress.row = len(positions)
    progress.used = used
    return 0
