"""Walking and gathering maps. Section 2 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.gather import SLACK, copy_short
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import load_u16, prefetch, same_bytes

ROOM = record_type("entries", "key_bytes", "value_bytes")
"""How much of the targets is used."""

FULL = 1
"""The targets have no room: give more, and start again."""
END = 2

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_VALUE_LENGTH = np.uint64(layout.MAP_VALUE_LENGTH_SIZE)
_SLACK = np.uint64(SLACK)
_FLAG = layout.PREDEFINED_FLAG
_BAD_MAP = int(Kind.BAD_MAP)
_UNKNOWN_KEY = int(Kind.UNKNOWN_PREDEFINED_KEY)
_AHEAD = 8
"""Rows ahead of the present one that are asked into the cache."""


@kernel
def gather_maps(payloads: Any, names: Any, maps: Any, room: Any, bad: Any) -> Any:
    """Copy the entries of maps to the buffers of an Arrow map.

    Args:
        payloads: `Payloads`, the entries of each row's map.
        names: `Texts`, the predefined keys, and SLACK.
        maps: `Labels`; all first ends are 0, and there is room for SLACK behind keys and values.
        room: `ROOM`, set.
        bad: `Bad`: what explains it is the entry's position in the map, or the number of the predefined key. Maps that
            are damaged come out empty.

    Returns:
        END, or FULL.
    """
    window, positions, lengths = payloads.data, payloads.positions, payloads.lengths
    keys, key_ends, values, value_ends = maps.keys.data, maps.keys.ends, maps.values.data, maps.values.ends
    limit = np.uint64(len(window))
    names_limit = np.uint64(len(names.data))
    known = len(names.ends) - 1
    key_room = np.uint64(len(keys))
    value_room = np.uint64(len(values))
    max_entries = min(len(key_ends), len(value_ends)) - 1
    entries = 0
    key_used = _ZERO
    value_used = _ZERO
    rows = len(positions)
    for row in range(rows):
        if row + _AHEAD < rows:
            prefetch(window, positions[row + _AHEAD])
            prefetch(window, positions[row + _AHEAD] + np.uint64(64))
        at = positions[row]
        end = at + np.uint64(lengths[row])
        begun = at
        first_entry, first_key, first_value = entries, key_used, value_used
        kind = 0
        place: Any = 0
        while at < end:
            entry = at
            code = np.int64(window[at])
            at += _ONE
            if entries == max_entries:
                return FULL
            if code >= _FLAG:
                index = code - _FLAG
                if index >= known:
                    kind, place = _UNKNOWN_KEY, index
                    break
                start = np.uint64(names.ends[index])
                length = np.uint64(names.ends[index + 1]) - start
                if key_room - key_used < length + _SLACK:
                    return FULL
                copy_short(keys, key_used, names.data, start, length, names_limit)
            else:
                length = np.uint64(code)
                if end - at < length:
                    kind, place = _BAD_MAP, np.int64(entry - begun)
                    break
                if key_room - key_used < length + _SLACK:
                    return FULL
                copy_short(keys, key_used, window, at, length, limit)
                at += length
            key_used += length
            if end - at < _VALUE_LENGTH:
                kind, place = _BAD_MAP, np.int64(entry - begun)
                break
            length = load_u16(window, at)
            at += _VALUE_LENGTH
            if end - at < length:
                kind, place = _BAD_MAP, np.int64(entry - begun)
                break
            if value_room - value_used < length + _SLACK:
                return FULL
            copy_short(values, value_used, window, at, length, limit)
            at += length
            value_used += length
            entries += 1
            key_ends[entries] = key_used
            value_ends[entries] = value_used
        if kind != 0:
            bad.kinds[row] = kind
            bad.where[row] = place
            entries, key_used, value_used = first_entry, first_key, first_value
        maps.ends[row + 1] = entries
    room.entries = entries
    room.key_bytes = key_used
    room.value_bytes = value_used
    return END


# What `find_labels` says of a row.
ABSENT = 0
PRESENT = 1
UNSURE = 2
"""The map is damaged."""


@kernel
def find_labels(payloads: Any, key: Any, numbers: Any, found: Any, state: Any) -> None:
    """Find the values of one key, by the bytes of the maps; of repeated keys the last one counts.

    Args:
        payloads: `Payloads`, the entries of each row's map.
        key: uint8.
        numbers: uint8 per predefined key: whether it is that key.
        found: `Payloads`, set: where the values are, of length 0 where there is none.
        state: uint8 per row, set: ABSENT, PRESENT or UNSURE.
    """
    window = payloads.data
    size = np.uint64(len(key))
    for row in range(len(payloads.positions)):
        at = payloads.positions[row]
        end = at + np.uint64(payloads.lengths[row])
        found.positions[row] = at
        found.lengths[row] = 0
        state[row] = ABSENT
        while at < end:
            code = np.int64(window[at])
            at += _ONE
            same = False
            if code >= _FLAG:
                if code - _FLAG >= len(numbers):
                    state[row] = UNSURE
                    break
                same = numbers[code - _FLAG] != 0
            else:
                length = np.uint64(code)
                if end - at < length:
                    state[row] = UNSURE
                    break
                same = length == size and same_bytes(window, at, key, _ZERO, size)
                at += length
            length = load_u16(window, at) if end - at >= _VALUE_LENGTH else end
            if end - at < _VALUE_LENGTH or end - at - _VALUE_LENGTH < length:
                state[row] = UNSURE
                break
            at += _VALUE_LENGTH
            if same:
                state[row] = PRESENT
                found.positions[row] = at
                found.lengths[row] = length
            at += length
