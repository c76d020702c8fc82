"""Telling series apart by the bytes of their partition columns, before anything of them is decoded.

Records are read as `read_records` reads them; only rows of series that are new are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record.kernels import records
from sawlog.filodb_record.kernels.records import read_records
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, prefetch, same_bytes, store_u32, store_u64
from sawlog.kernels.xxh32 import xxh32

# Fields of the state of a table, an int64 array.
ROW = 0
"""The next row to be looked up; the rows that are kept stand in front of it."""
KEPT = 1
SERIES = 2
"""Series in the table."""
USED = 3
"""Bytes of their keys."""
STATUS = 4
"""What the last reading of records ended with."""
STATE_SIZE = 5

NEEDS_ROOM = 3
"""The table must grow; beside what `read_records` returns."""

CHUNK = 1024
"""Rows that are read before they are looked up: their bytes are still in the cache."""
SLOT_SIZE = 8
"""Bytes of a place in the table: number of the series plus one, or 0; and behind it the stored hash."""

PROBES = 16
"""Places that are tried where the stored hash leads; who stores equal hashes for all is led on by a secret one."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_MIX = np.uint64(0x9E3779B1)
_U32 = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_AHEAD = 8
"""Rows ahead of the present one whose place is asked into the cache."""


@always_inlined
def _matches(
    window: Any, row: Any, layout: Any, arena: Any, fixed: Any, scratch: Any, payloads: Any, keys: Any, at: Any
) -> Any:
    """Whether the key at `at` is that of the row."""
    if keys[at] != layout:
        return False
    at += _ONE
    for i in range(len(fixed)):
        width = np.uint64(fixed[i, 1])
        if not same_bytes(keys, at, arena, np.uint64(fixed[i, 0]) + row * width, width):
            return False
        at += width
    for i in range(len(payloads)):
        length = load_u32(scratch, np.uint64(payloads[i, 1]) + row * _FOUR)
        if load_u32(keys, at) != length:
            return False
        at += _FOUR
        if not same_bytes(keys, at, window, load_u64(scratch, np.uint64(payloads[i, 0]) + row * _EIGHT), length):
            return False
        at += length
    return True


@inlined
def _store(
    window: Any, row: Any, layout: Any, arena: Any, fixed: Any, scratch: Any, payloads: Any, keys: Any, at: Any
) -> Any:
    """Write the key of a row down; the position behind it, or -1 when there is no room."""
    need = _ONE
    for i in range(len(fixed)):
        need += np.uint64(fixed[i, 1])
    for i in range(len(payloads)):
        need += _FOUR + load_u32(scratch, np.uint64(payloads[i, 1]) + row * _FOUR)
    if np.uint64(len(keys)) - at < need:
        return -1
    keys[at] = layout
    at += _ONE
    for i in range(len(fixed)):
        width = np.uint64(fixed[i, 1])
        copy_bytes(keys, at, arena, np.uint64(fixed[i, 0]) + row * width, width)
        at += width
    for i in range(len(payloads)):
        length = load_u32(scratch, np.uint64(payloads[i, 1]) + row * _FOUR)
        store_u32(keys, at, length)
        at += _FOUR
        copy_bytes(keys, at, window, load_u64(scratch, np.uint64(payloads[i, 0]) + row * _EIGHT), length)
        at += length
    return np.int64(at)


@inlined
def _place(hash32: Any, mask: Any) -> Any:
    return (hash32 * _MIX & _U32) >> np.uint64(7) & mask


@always_inlined
def _look_up(
    window: Any,
    row: Any,
    layout: Any,
    hash32: Any,
    arena: Any,
    fixed: Any,
    scratch: Any,
    payloads: Any,
    secret: Any,
    slots: Any,
    key_starts: Any,
    keys: Any,
) -> Any:
    """Whether the series of a row is in the table, and the place where it is, or belongs."""
    mask = np.uint64(len(slots) // SLOT_SIZE - 1)
    place = _place(hash32, mask)
    probe = 0
    while True:
        slot = load_u64(slots, place * _EIGHT)
        if slot == _ZERO:
            return False, place
        if slot >> _HALF == hash32:
            key = np.uint64(key_starts[np.int64(slot & _U32) - 1])
            if _matches(window, row, layout, arena, fixed, scratch, payloads, keys, key):
                return True, place
        probe += 1
        if probe == PROBES:
            second = secret
            for i in range(len(payloads)):
                start = load_u64(scratch, np.uint64(payloads[i, 0]) + row * _EIGHT)
                length = load_u32(scratch, np.uint64(payloads[i, 1]) + row * _FOUR)
                second = xxh32(window, start, length, second)
            for i in range(len(fixed)):
                width = np.uint64(fixed[i, 1])
                second = xxh32(arena, np.uint64(fixed[i, 0]) + row * width, width, second)
            place = _place(second, mask)
        else:
            place = (place + _ONE) & mask


@inlined
def _move(
    row: Any, to: Any, starts: Any, which: Any, arena: Any, all_fixed: Any, scratch: Any, all_payloads: Any, state: Any
) -> None:
    """Move all that was gathered of a row to another one, and count its payload bytes."""
    starts[to] = starts[row]
    which[to] = which[row]
    for i in range(len(all_fixed)):
        place = np.uint64(all_fixed[i, 0])
        if all_fixed[i, 1] == 8:
            store_u64(arena, place + np.uint64(to) * _EIGHT, load_u64(arena, place + np.uint64(row) * _EIGHT))
        else:
            store_u32(arena, place + np.uint64(to) * _FOUR, load_u32(arena, place + np.uint64(row) * _FOUR))
    for i in range(len(all_payloads)):
        place = np.uint64(all_payloads[i, 0])
        store_u64(scratch, place + np.uint64(to) * _EIGHT, load_u64(scratch, place + np.uint64(row) * _EIGHT))
        place = np.uint64(all_payloads[i, 1])
        length = load_u32(scratch, place + np.uint64(row) * _FOUR)
        store_u32(scratch, place + np.uint64(to) * _FOUR, length)
        state[records.BYTES] += np.int64(length)


@kernel
def read_series(
    window: Any,
    base: Any,
    frames: Any,
    plain: Any,
    meanings: Any,
    schemas: Any,
    ops: Any,
    max_bytes: Any,
    max_buckets: Any,
    state: Any,
    starts: Any,
    which: Any,
    arena: Any,
    scratch: Any,
    events: Any,
    failed: Any,
    picked: Any,
    hashes: Any,
    fixed: Any,
    payloads: Any,
    all_fixed: Any,
    all_payloads: Any,
    secret: Any,
    slots: Any,
    key_starts: Any,
    keys: Any,
    table: Any,
) -> Any:
    """Read records, and keep those rows whose series is met for the first time.

    Arguments up to `picked`, and what is returned, are as for `read_records`; NEEDS_ROOM asks to be called again, with
    larger `slots`, `key_starts` and `keys`. The others:

    - hashes: uint64, place of the stored partition hashes in the arena.
    - fixed: int64[:, 2], the fixed-width partition columns: place in the arena, and width.
    - payloads: int64[:, 2], the payload partition columns: places of positions and of lengths.
    - all_fixed, all_payloads: the same for all columns that are gathered.
    - secret: uint64, seed of the second hash.
    - slots: uint8, as many places of SLOT_SIZE as a power of two.
    - key_starts: int64 per series.
    - keys: uint8, keys of the series back to back.
    - table: int64[STATE_SIZE], updated.
    """
    mask = np.uint64(len(slots) // SLOT_SIZE - 1)
    while True:
        if table[ROW] == state[records.ROWS]:
            first = state[records.ROWS]
            before = state[records.BYTES]
            table[STATUS] = read_records(
                window,
                base,
                frames,
                plain,
                meanings,
                schemas,
                ops,
                max_bytes,
                max_buckets,
                state,
                starts[: min(first + CHUNK, len(starts))],
                which,
                arena,
                scratch,
                events,
                failed,
                picked,
            )
            table[ROW] = table[KEPT] = first
            state[records.BYTES] = before
        count = state[records.ROWS]
        nothing = table[ROW] == count
        for row in range(table[ROW], min(table[ROW] + _AHEAD, count)):
            prefetch(slots, _place(load_u32(arena, hashes + np.uint64(row) * _FOUR), mask) * _EIGHT)
        for row in range(table[ROW], count):
            r = np.uint64(row)
            if row + _AHEAD < count:
                prefetch(slots, _place(load_u32(arena, hashes + (r + np.uint64(_AHEAD)) * _FOUR), mask) * _EIGHT)
            hash32 = load_u32(arena, hashes + r * _FOUR)
            known, place = _look_up(
                window, r, which[row], hash32, arena, fixed, scratch, payloads, secret, slots, key_starts, keys
            )
            if known:
                continue
            series = table[SERIES]
            end = np.int64(-1)
            if series < len(key_starts) and 2 * SLOT_SIZE * series < len(slots):
                end = _store(window, r, which[row], arena, fixed, scratch, payloads, keys, np.uint64(table[USED]))
            if end < 0:
                table[ROW] = row
                return NEEDS_ROOM
            key_starts[series] = table[USED]
            table[USED] = end
            table[SERIES] = series + 1
            store_u64(slots, place * _EIGHT, hash32 << _HALF | np.uint64(series + 1))
            _move(row, table[KEPT], starts, which, arena, all_fixed, scratch, all_payloads, state)
            table[KEPT] += 1
        table[ROW] = state[records.ROWS] = table[KEPT]
        if nothing or table[STATUS] != records.FULL or state[records.EVENTS] > 0 or state[records.ROWS] == len(starts):
            return table[STATUS]


@kernel
def rebuild(fixed: Any, payloads: Any, secret: Any, old_slots: Any, slots: Any, key_starts: Any, keys: Any) -> None:
    """Put all series of one table into a larger one. Arguments as those of `read_series`."""
    mask = np.uint64(len(slots) // SLOT_SIZE - 1)
    for old in range(len(old_slots) // SLOT_SIZE):
        slot = load_u64(old_slots, np.uint64(old) * _EIGHT)
        if slot == _ZERO:
            continue
        place = _place(slot >> _HALF, mask)
        probe = 0
        while load_u64(slots, place * _EIGHT) != _ZERO:
            probe += 1
            if probe == PROBES:
                second = secret
                start = np.uint64(key_starts[np.int64(slot & _U32) - 1]) + _ONE
                at = start
                for i in range(len(fixed)):
                    at += np.uint64(fixed[i, 1])
                for _ in range(len(payloads)):
                    length = load_u32(keys, at)
                    second = xxh32(keys, at + _FOUR, length, second)
                    at += _FOUR + length
                at = start
                for i in range(len(fixed)):
                    width = np.uint64(fixed[i, 1])
                    second = xxh32(keys, at, width, second)
                    at += width
                place = _place(second, mask)
            else:
                place = (place + _ONE) & mask
        store_u64(slots, place * _EIGHT, slot)
