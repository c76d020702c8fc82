"""Walking and gathering maps. Section 2 of the format.

Series are few compared to samples, and mostly come in the same order again: a map seen before is put down as
it was decoded then, and only new ones are walked.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.arrow import Column
from sawlog.chain.kernels import make_record_type
from sawlog.filodb import layout
from sawlog.filodb.kernels.gather import LabelRoom, PayloadErrors, Payloads, Texts
from sawlog.filodb.layout import ContainerDamageKind
from sawlog.kernels.columns import append
from sawlog.kernels.intern import enter, find, hash_string, make_seed
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.layout import make_load
from sawlog.kernels.memory import are_bytes_equal, copy_bytes, load_u32, load_u64, prefetch, store_u32, store_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _ONE, _SEVEN, _ZERO
from sawlog.kernels.signature import Bool, Bytes, Int64, OutBytes, OutUInt64s, Record, UInt64
from sawlog.kernels.text import exceeds_ascii, find_utf8_end
from sawlog.kernels.vector import copy_short

ROOM = make_record_type(
    "entries",
    "key_bytes",
    "value_bytes",
    "high",  # whether the map that was walked last has text beyond ASCII
    "beyond_ascii",  # whether any has
)
"""How much of the targets is used, and what it is used for."""
KNOWN = make_record_type(
    "used",  # bytes of the data
    "count",  # of maps
    "last",  # place of the map that was found last
    "met",
    "new",
)
"""The state of a `Memo`."""

FULL = 1
"""The targets have no room: give more, and start again."""
END = 2

SLOTS = 1 << 15
"""Places of the index of a `Memo`."""
MEMO_BYTES = 4 << 20
"""Room for the maps of a `Memo`."""

_HEAD = np.uint64(24)
"""In front of each map: its length, entries, bytes of keys and of values, the place of the map that followed it last,
and whether it has text beyond ASCII; 4 bytes each. A head without a map comes first."""
_VALUE_LENGTH = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_load_size = make_load(layout.PAYLOAD.length)
_FLAG = layout.PREDEFINED_FLAG
_BAD_MAP = int(ContainerDamageKind.BAD_MAP)
_UNKNOWN_KEY = int(ContainerDamageKind.UNKNOWN_PREDEFINED_KEY)
_INVALID_UTF8 = int(ContainerDamageKind.INVALID_UTF8)
_AHEAD = 8
"""Rows ahead of the present one that are asked into the cache."""


class Memo(NamedTuple):
    """Maps seen so far, as they were in their records and as they were decoded; kept from batch to batch.

    Attributes:
        data: uint8[MEMO_BYTES]; a head without a map, then maps back to back: a head, the bytes of the map, the ends
            of its keys and of its values (int32), its keys and its values; each part filled up to eight bytes.
        slots: uint64[SLOTS], 0 to begin with, as in `sawlog.kernels.intern`: the number of a map is an eighth of its
            place.
        seed: uint64, of its hashes.
        known: `KNOWN`.
    """

    data: OutBytes
    slots: OutUInt64s
    seed: UInt64
    known: Annotated[Any, Record(KNOWN)]


def make_memo() -> Memo:
    """Return a memo without any map."""
    state = np.zeros(1, KNOWN)[0]
    state.used = _HEAD
    data = Column(np.uint8, MEMO_BYTES).values
    data[: int(_HEAD)] = 0
    return Memo(data, np.zeros(SLOTS, np.uint64), make_seed(), state)


@always_inlined
def _pad_length(length: Any) -> Any:
    return (length + _SEVEN) & ~_SEVEN


@always_inlined
def _is(data: Any, place: Any, window: Any, pos: Any, length: Any) -> Any:
    """Return whether the map at a place of a memo is that of the window."""
    return load_u32(data, place) == length and are_bytes_equal(window, pos, data, place + _HEAD, length)


@always_inlined
def _is_same_map(data: Any, sought: Any, number: Any) -> Any:
    """Return whether that is the number of a map of the window, for `find`."""
    window, pos, length = sought
    return _is(data, np.uint64(number) * _EIGHT, window, pos, length)


@always_inlined
def _copy_ends(ends: Any, first: Any, source: Any, start: Any, count: Any, shift: Any) -> Any:
    """Write the ends of `count` texts after end number `first`, two at a time; return the position after the source."""
    cursor = (first + _ONE) * _FOUR
    end = start + count * _FOUR
    word = shift << _HALF | shift
    while start < end:
        store_u64(ends, cursor, load_u64(source, start) + word)
        cursor += _EIGHT
        start += _EIGHT
    return start


@always_inlined
def _repeat(memo: Any, place: Any, maps: Any, room: Any) -> Any:
    """Put a map down as it was decoded before; return whether there was room."""
    data, keys, values = memo.data, maps.keys, maps.values
    count, key_bytes = load_u32(data, place + _FOUR), load_u32(data, place + _EIGHT)
    value_bytes = load_u32(data, place + _EIGHT + _FOUR)
    entries, key_used, value_used = np.uint64(room.entries), np.uint64(room.key_bytes), np.uint64(room.value_bytes)
    if (
        np.uint64(len(keys.ends)) < (entries + count + _ONE + _ONE) * _FOUR
        or np.uint64(len(keys.data)) - key_used < key_bytes
        or np.uint64(len(values.data)) - value_used < value_bytes
    ):
        return False
    cursor = place + _HEAD + _pad_length(load_u32(data, place))
    cursor = _copy_ends(keys.ends, entries, data, cursor, count, key_used)
    cursor = _copy_ends(values.ends, entries, data, cursor, count, value_used)
    copy_short(keys.data, key_used, data, cursor, key_bytes)
    copy_short(values.data, value_used, data, cursor + _pad_length(key_bytes), value_bytes)
    room.entries = entries + count
    room.key_bytes = key_used + key_bytes
    room.value_bytes = value_used + value_bytes
    room.beyond_ascii |= np.int64(load_u32(data, place + _HEAD - _FOUR))
    return True


@always_inlined
def _learn_ends(data: Any, cursor: Any, ends: Any, first: Any, count: Any, start: Any) -> None:
    """Keep the ends of `count` texts after end number `first`, counted from `start`."""
    for i in range(count):
        end = load_u32(ends, (first + np.uint64(i) + _ONE) * _FOUR)
        store_u32(data, cursor + np.uint64(i) * _FOUR, end - start)


@always_inlined
def _recall(memo: Any, window: Any, pos: Any, length: Any) -> Any:
    """Return the place of a map in a memo, 0 if it is not there; then the slot for it, and its hash."""
    data, state = memo.data, memo.known
    place = np.uint64(load_u32(data, np.uint64(state.last) + _EIGHT + _EIGHT))
    slot, hashed = _ZERO, _ZERO
    if place == _ZERO or not _is(data, place, window, pos, length):
        hashed = hash_string(window, pos, length, memo.seed)
        number, slot = find(_is_same_map, data, (window, pos, length), memo.slots, hashed, SLOTS)
        place = np.uint64(max(number, 0)) * _EIGHT
    return place, slot, hashed


@always_inlined
def _note_map(memo: Any, place: Any) -> None:
    """Note that the map at a place has followed the last one."""
    store_u32(memo.data, np.uint64(memo.known.last) + _EIGHT + _EIGHT, place)
    memo.known.last = place
    memo.known.met += 1


@always_inlined
def _enter(memo: Any, slot: Any, hashed: Any, sought: Any, decoded: Any, high: Any) -> Any:
    """Take a map into a memo as it is in its record, with room for what was `decoded` of it.

    Returns:
        Where that begins; 0 if there is no room.
    """
    data, state = memo.data, memo.known
    window, pos, length = sought
    count, key_bytes, value_bytes = decoded
    place = np.uint64(state.used)
    need = (
        _HEAD
        + _pad_length(length)
        + (count + count + _ONE + _ONE) * _FOUR
        + _pad_length(key_bytes)
        + _pad_length(value_bytes)
    )
    if 2 * state.count >= len(memo.slots) or np.uint64(len(data)) - place < need:
        return _ZERO
    store_u32(data, place, length)
    store_u32(data, place + _FOUR, count)
    store_u32(data, place + _EIGHT, key_bytes)
    store_u32(data, place + _EIGHT + _FOUR, value_bytes)
    store_u64(data, place + _EIGHT + _EIGHT, np.uint64(high) << _HALF)
    copy_bytes(data, place + _HEAD, window, pos, length)
    enter(memo.slots, slot, hashed, np.int64(place // _EIGHT))
    store_u32(data, np.uint64(state.last) + _EIGHT + _EIGHT, place)
    state.last = place
    state.used = place + need
    state.count += 1
    return place + _HEAD + _pad_length(length)


@inlined
def _learn(memo: Any, slot: Any, hashed: Any, sought: Any, maps: Any, first: Any, room: Any) -> None:
    """Take the map into a memo that was put down last, after `first`, the `room` that was used before."""
    data = memo.data
    entries, key_start, value_start = first
    count = np.uint64(room.entries) - entries
    key_bytes, value_bytes = np.uint64(room.key_bytes) - key_start, np.uint64(room.value_bytes) - value_start
    to = _enter(memo, slot, hashed, sought, (count, key_bytes, value_bytes), room.high)
    if to == _ZERO:
        return
    _learn_ends(data, to, maps.keys.ends, entries, count, key_start)
    to += _pad_length(count * _FOUR)
    _learn_ends(data, to, maps.values.ends, entries, count, value_start)
    to += _pad_length(count * _FOUR)
    copy_bytes(data, to, maps.keys.data, key_start, key_bytes)
    copy_bytes(data, to + _pad_length(key_bytes), maps.values.data, value_start, value_bytes)


@inlined
def _walk(payloads: Any, row: Any, names: Any, maps: Any, room: Any, bad: Any) -> Any:
    """Copy the entries of one map; return whether there was room for them. One that is damaged comes out empty."""
    window, keys, values = payloads.data, maps.keys, maps.values
    name_count = len(names.ends) - 1
    key_room, value_room = np.uint64(len(keys.data)), np.uint64(len(values.data))
    max_entries = np.uint64(len(keys.ends)) // _FOUR - _ONE
    entries, key_used, value_used = np.uint64(room.entries), np.uint64(room.key_bytes), np.uint64(room.value_bytes)
    pos = payloads.positions[row]
    end = pos + np.uint64(payloads.lengths[row])
    map_start = pos
    kind, place = 0, np.int64(0)
    while pos < end:
        entry = pos
        code = np.int64(window[pos])
        pos += _ONE
        if entries == max_entries:
            return False
        item = (entries + _ONE) * _FOUR
        kind, place = _BAD_MAP, np.int64(entry - map_start)
        if code >= _FLAG:
            index = code - _FLAG
            if index >= name_count:
                kind, place = _UNKNOWN_KEY, index
                break
            start = np.uint64(names.ends[index])
            length = np.uint64(names.ends[index + 1]) - start
            if key_room - key_used < length:
                return False
            key_used = append(keys.data, _ZERO, key_used, keys.ends, item, names.data, start, length)
        else:
            length = np.uint64(code)
            if end - pos < length:
                break
            if key_room - key_used < length:
                return False
            key_used = append(keys.data, _ZERO, key_used, keys.ends, item, window, pos, length)
            pos += length
        length = _load_size(window, pos) if end - pos >= _VALUE_LENGTH else end
        if end - pos < _VALUE_LENGTH or end - pos - _VALUE_LENGTH < length:
            break
        pos += _VALUE_LENGTH
        if value_room - value_used < length:
            return False
        value_used = append(values.data, _ZERO, value_used, values.ends, item, window, pos, length)
        pos += length
        entries += _ONE
        kind = 0
    if kind != 0:
        bad.kinds[row], bad.where[row] = kind, place
        return True
    first_key, first_value = np.uint64(room.key_bytes), np.uint64(room.value_bytes)
    high = exceeds_ascii(keys.data, first_key, key_used) or exceeds_ascii(values.data, first_value, value_used)
    room.high = high
    room.beyond_ascii |= np.int64(high)
    room.entries = entries
    room.key_bytes = key_used
    room.value_bytes = value_used
    return True


@kernel
def gather_maps(
    payloads: Payloads,
    names: Texts,
    memo: Memo,
    maps: LabelRoom,
    room: Annotated[Any, Record(ROOM)],
    bad: PayloadErrors,
) -> Int64:
    """Copy the entries of maps to the buffers of an Arrow map.

    Args:
        payloads: `Payloads`, the entries of each row's map.
        names: `Texts`, the predefined keys.
        memo: `Memo`.
        maps: `Labels`; those of keys and values are int32 as uint8, as many of both; all first ends are 0.
        room: `ROOM`, all 0 to begin with.
        bad: `PayloadErrors`: what explains it is the entry's position in the map, or the number of the predefined key.
            Maps that are damaged come out empty.

    Returns:
        END, or FULL.
    """
    window, positions, lengths = payloads.data, payloads.positions, payloads.lengths
    data, state = memo.data, memo.known
    rows = len(positions)
    looks = state.met >= state.new or state.used < len(data) // 2
    for row in range(rows):
        if row + _AHEAD < rows:
            prefetch(window, positions[row + _AHEAD])
            prefetch(window, positions[row + _AHEAD] + np.uint64(64))
        pos, length = positions[row], np.uint64(lengths[row])
        place, slot, hashed = _ZERO, _ZERO, _ZERO
        if looks:
            place, slot, hashed = _recall(memo, window, pos, length)
        if place != _ZERO:
            if not _repeat(memo, place, maps, room):
                return FULL
            _note_map(memo, place)
        else:
            first = np.uint64(room.entries), np.uint64(room.key_bytes), np.uint64(room.value_bytes)
            if not _walk(payloads, row, names, maps, room, bad):
                return FULL
            if looks and bad.kinds[row] == 0:
                _learn(memo, slot, hashed, (window, pos, length), maps, first, room)
            state.new += 1
        maps.ends[row + 1] = room.entries
    return END


@inlined
def _judge_entries(window: Any, start: Any, end: Any, name_count: Any) -> Any:
    """Return the kind of damage in the entries of a map, or 0, and the number that explains it."""
    pos = start
    while pos < end:
        place = np.int64(pos - start)
        code = np.int64(window[pos])
        pos += _ONE
        if code >= _FLAG + name_count:
            return _UNKNOWN_KEY, code - _FLAG
        if code < _FLAG:
            if end - pos < np.uint64(code):
                return _BAD_MAP, place
            pos += np.uint64(code)
        if end - pos < _VALUE_LENGTH:
            return _BAD_MAP, place
        length = _load_size(window, pos)
        pos += _VALUE_LENGTH
        if end - pos < length:
            return _BAD_MAP, place
        pos += length
    return 0, np.int64(0)


@inlined
def _judge_text(window: Any, first_pos: Any, end: Any) -> Any:
    """Return the position in the first text of a sound map at which it is not UTF-8, or -1; keys come before values."""
    for values in (False, True):
        pos = first_pos
        while pos < end:
            code = np.int64(window[pos])
            pos += _ONE
            key_end = pos + np.uint64(code if code < _FLAG else 0)
            start = key_end + _VALUE_LENGTH
            value_end = start + _load_size(window, key_end)
            first, last = (start, value_end) if values else (pos, key_end)
            valid = find_utf8_end(window, first, last)
            if valid < last:
                return np.int64(valid - first)
            pos = value_end
    return np.int64(-1)


@kernel
def judge_maps(payloads: Payloads, names: Int64, text: Bool, memo: Memo, bad: PayloadErrors) -> None:
    """Mark the rows whose map `gather_maps` and the check of its text would mark, and copy nothing.

    Args:
        payloads: `Payloads`, the entries of each row's map.
        names: How many predefined keys there are.
        text: Whether keys and values are to be UTF-8.
        memo: `Memo` of maps that were sound; of its own, for what they were decoded to is not in it.
        bad: `PayloadErrors`, as of `gather_maps`; of text that is not UTF-8 the position within it.
    """
    window, positions, lengths = payloads.data, payloads.positions, payloads.lengths
    state = memo.known
    rows = len(positions)
    looks = state.met >= state.new or state.used < len(memo.data) // 2
    for row in range(rows):
        if row + _AHEAD < rows:
            prefetch(window, positions[row + _AHEAD])
            prefetch(window, positions[row + _AHEAD] + np.uint64(64))
        start, length = positions[row], np.uint64(lengths[row])
        place, slot, hashed = _ZERO, _ZERO, _ZERO
        if looks:
            place, slot, hashed = _recall(memo, window, start, length)
        if place != _ZERO:
            _note_map(memo, place)
            continue
        end = start + length
        kind, bad_pos = _judge_entries(window, start, end, names)
        if kind == 0 and text and exceeds_ascii(window, start, end):
            bad_pos = _judge_text(window, start, end)
            kind = _INVALID_UTF8 if bad_pos >= 0 else 0
        if kind != 0:
            bad.kinds[row], bad.where[row] = kind, bad_pos
        elif looks:
            _enter(memo, slot, hashed, (window, start, length), (_ZERO, _ZERO, _ZERO), False)
        state.new += 1


# What `find_labels` says of a row.
ABSENT = 0
PRESENT = 1
UNSURE = 2
"""The map is damaged."""


@kernel
def find_labels(payloads: Payloads, key: Bytes, numbers: Bytes, out: Payloads, state: OutBytes) -> None:
    """Find the values of one key, by the bytes of the maps; of repeated keys the last one counts.

    Args:
        payloads: `Payloads`, the entries of each row's map.
        key: uint8.
        numbers: uint8 per predefined key: whether it is that key.
        out: `Payloads`, set: where the values are, of length 0 where there is none.
        state: uint8 per row, set: ABSENT, PRESENT or UNSURE.
    """
    window = payloads.data
    size = np.uint64(len(key))
    for row in range(len(payloads.positions)):
        pos = payloads.positions[row]
        end = pos + np.uint64(payloads.lengths[row])
        out.positions[row] = pos
        out.lengths[row] = 0
        state[row] = ABSENT
        while pos < end:
            code = np.int64(window[pos])
            pos += _ONE
            is_same = False
            if code >= _FLAG:
                if code - _FLAG >= len(numbers):
                    state[row] = UNSURE
                    break
                is_same = numbers[code - _FLAG] != 0
            else:
                length = np.uint64(code)
                if end - pos < length:
                    state[row] = UNSURE
                    break
                is_same = length == size and are_bytes_equal(window, pos, key, _ZERO, size)
                pos += length
            length = _load_size(window, pos) if end - pos >= _VALUE_LENGTH else end
            if end - pos < _VALUE_LENGTH or end - pos - _VALUE_LENGTH < length:
                state[row] = UNSURE
                break
            pos += _VALUE_LENGTH
            if is_same:
                state[row] = PRESENT
                out.positions[row] = pos
                out.lengths[row] = length
            pos += length
