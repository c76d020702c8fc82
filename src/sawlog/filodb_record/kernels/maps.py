"""Walking and gathering maps. Section 2 of the format.

Series are few beside their samples: a map that was met before is copied from where it was decoded, and only new ones
are walked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.gather import SLACK, copy_short, mix
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import load_u16, prefetch, same_bytes

ROOM = record_type("entries", "key_bytes", "value_bytes", "walked")
"""How much of the targets is used; and how many maps were walked, and not copied."""

FULL = 1
"""The targets have no room: give more, and start again."""
END = 2

SEEN = 1 << 13
"""Places of the index of maps that were met: a power of two."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_VALUE_LENGTH = np.uint64(layout.MAP_VALUE_LENGTH_SIZE)
_SLACK = np.uint64(SLACK)
_FLAG = layout.PREDEFINED_FLAG
_BAD_MAP = int(Kind.BAD_MAP)
_UNKNOWN_KEY = int(Kind.UNKNOWN_PREDEFINED_KEY)
_AHEAD = 8
"""Rows ahead of the present one that are asked into the cache."""
_TRIAL = 1024
"""After so many rows it shows whether maps repeat: else nothing is looked for any more."""


class Maps(NamedTuple):
    """Where maps are gathered to, as Arrow has them.

    Attributes:
        labels: `Labels`; all first ends are 0, and there is room for SLACK behind keys and values.
        seen: int32[SEEN], all 0: rows whose maps were met, plus one.
    """

    labels: Any
    seen: Any


@always_inlined
def _repeat(texts: Any, first: Any, count: Any, entries: Any, used: Any) -> Any:
    """Put down texts that stand further in front once more; how many bytes are used then."""
    ends = texts.ends
    begin = np.int64(ends[first])
    shift = np.int64(used) - begin
    for i in range(1, count + 1):
        ends[entries + i] = np.int64(ends[first + i]) + shift
    length = np.uint64(np.int64(ends[first + count]) - begin)
    copy_short(texts.data, used, texts.data, np.uint64(begin), length, np.uint64(len(texts.data)))
    return used + length


@inlined
def _walk(payloads: Any, row: Any, names: Any, maps: Any, room: Any, bad: Any) -> Any:
    """Copy the entries of one map; whether there was room for them. One that is damaged comes out empty."""
    window = payloads.data
    keys, values = maps.labels.keys, maps.labels.values
    limit = np.uint64(len(window))
    names_limit = np.uint64(len(names.data))
    known = len(names.ends) - 1
    key_room = np.uint64(len(keys.data))
    value_room = np.uint64(len(values.data))
    max_entries = min(len(keys.ends), len(values.ends)) - 1
    entries = room.entries
    key_used, value_used = np.uint64(room.key_bytes), np.uint64(room.value_bytes)
    at = payloads.positions[row]
    end = at + np.uint64(payloads.lengths[row])
    begun = at
    kind = 0
    place: Any = 0
    while at < end:
        entry = at
        code = np.int64(window[at])
        at += _ONE
        if entries == max_entries:
            return False
        if code >= _FLAG:
            index = code - _FLAG
            if index >= known:
                kind, place = _UNKNOWN_KEY, index
                break
            start = np.uint64(names.ends[index])
            length = np.uint64(names.ends[index + 1]) - start
            if key_room - key_used < length + _SLACK:
                return False
            copy_short(keys.data, key_used, names.data, start, length, names_limit)
        else:
            length = np.uint64(code)
            if end - at < length:
                kind, place = _BAD_MAP, np.int64(entry - begun)
                break
            if key_room - key_used < length + _SLACK:
                return False
            copy_short(keys.data, key_used, window, at, length, limit)
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
            return False
        copy_short(values.data, value_used, window, at, length, limit)
        at += length
        value_used += length
        entries += 1
        keys.ends[entries] = key_used
        values.ends[entries] = value_used
    if kind != 0:
        bad.kinds[row] = kind
        bad.where[row] = place
    else:
        room.entries = entries
        room.key_bytes = key_used
        room.value_bytes = value_used
    return True


@always_inlined
def _has_room(labels: Any, room: Any, first: Any, count: Any) -> Any:
    """Whether the entries from `first` on find room once more."""
    keys, values = labels.keys, labels.values
    key_bytes = np.int64(keys.ends[first + count]) - np.int64(keys.ends[first])
    value_bytes = np.int64(values.ends[first + count]) - np.int64(values.ends[first])
    return (
        min(len(keys.ends), len(values.ends)) - 1 - room.entries >= count
        and len(keys.data) - room.key_bytes >= key_bytes + SLACK
        and len(values.data) - room.value_bytes >= value_bytes + SLACK
    )


@kernel
def gather_maps(payloads: Any, names: Any, maps: Any, room: Any, bad: Any) -> Any:
    """Copy the entries of maps to the buffers of an Arrow map.

    Args:
        payloads: `Payloads`, the entries of each row's map.
        names: `Texts`, the predefined keys, and SLACK.
        maps: `Maps`.
        room: `ROOM`, all 0 to begin with.
        bad: `Bad`: what explains it is the entry's position in the map, or the number of the predefined key.

    Returns:
        END, or FULL.
    """
    window, positions, lengths = payloads.data, payloads.positions, payloads.lengths
    labels, seen = maps.labels, maps.seen
    ends = labels.ends
    mask = np.uint64(len(seen) - 1)
    rows = len(positions)
    looks = True
    for row in range(rows):
        if row + _AHEAD < rows:
            prefetch(window, positions[row + _AHEAD])
            prefetch(window, positions[row + _AHEAD] + np.uint64(64))
        if row == _TRIAL:
            looks = room.walked < _TRIAL // 2
        at, length = positions[row], np.uint64(lengths[row])
        other = np.int64(-1)
        place = _ZERO
        if looks:
            place = mix(window, at, length, length) & mask
            other = np.int64(seen[place]) - 1
        if other >= 0 and lengths[other] == lengths[row] and same_bytes(window, at, window, positions[other], length):
            first = np.int64(ends[other])
            count = np.int64(ends[other + 1]) - first
            if not _has_room(labels, room, first, count):
                return FULL
            key_bytes = _repeat(labels.keys, first, count, room.entries, np.uint64(room.key_bytes))
            value_bytes = _repeat(labels.values, first, count, room.entries, np.uint64(room.value_bytes))
            room.entries += count
            room.key_bytes = key_bytes
            room.value_bytes = value_bytes
        else:
            if not _walk(payloads, row, names, maps, room, bad):
                return FULL
            room.walked += 1
            if looks and bad.kinds[row] == 0:
                seen[place] = row + 1
        ends[row + 1] = room.entries
    return END
