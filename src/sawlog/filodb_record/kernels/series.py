"""Telling series apart by the bytes of their partition columns, before anything of them is decoded."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, store_u32
from sawlog.kernels.xxh32 import xxh32

# Fields of the state, an int64 array.
ROW = 0
"""The next row."""
SERIES = 1
"""Series in the table."""
USED = 2
"""Bytes of their keys."""
FRESH = 3
"""Rows of this batch whose series is new."""
STATE_SIZE = 4

FULL = 1
"""The table needs more room."""
END = 2

PROBES = 16
"""Places that are tried where the stored hash leads; who stores equal hashes for all is led on by a secret one."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_MIX = np.uint64(0x9E3779B1)
_U32 = np.uint64(0xFFFFFFFF)


@inlined
def _same(a: Any, at: Any, b: Any, start: Any, length: Any) -> Any:
    """Whether `length` bytes are the same."""
    done = _ZERO
    while length - done >= _EIGHT:
        if load_u64(a, at + done) != load_u64(b, start + done):
            return False
        done += _EIGHT
    while done < length:
        if a[at + done] != b[start + done]:
            return False
        done += _ONE
    return True


@inlined
def _matches(
    window: Any, row: Any, layout: Any, arena: Any, fixed: Any, scratch: Any, payloads: Any, keys: Any, at: Any
) -> Any:
    """Whether the key at `at` is that of the row."""
    if keys[at] != layout:
        return False
    at += _ONE
    for i in range(len(fixed)):
        width = np.uint64(fixed[i, 1])
        if not _same(keys, at, arena, np.uint64(fixed[i, 0]) + row * width, width):
            return False
        at += width
    for i in range(len(payloads)):
        length = load_u32(scratch, np.uint64(payloads[i, 1]) + row * _FOUR)
        if load_u32(keys, at) != length:
            return False
        at += _FOUR
        if not _same(keys, at, window, load_u64(scratch, np.uint64(payloads[i, 0]) + row * _EIGHT), length):
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
    return np.int64((hash32 * _MIX & _U32) >> np.uint64(7) & mask)


@kernel
def distinct_series(
    window: Any,
    count: Any,
    which: Any,
    hashes: Any,
    arena: Any,
    fixed: Any,
    scratch: Any,
    payloads: Any,
    secret: Any,
    slots: Any,
    slot_hashes: Any,
    key_starts: Any,
    keys: Any,
    state: Any,
    fresh: Any,
) -> Any:
    """Find the rows of a batch whose series is met for the first time.

    Args:
        window: uint8.
        count: Number of rows.
        which: uint8 per row, number of its layout.
        hashes: uint32 per row, the stored partition hash.
        arena: uint8, fixed-width columns.
        fixed: int64[:, 2], the fixed-width partition columns: place in the arena, and width.
        scratch: uint8, positions and lengths of payloads.
        payloads: int64[:, 2], the payload partition columns: places of positions and of lengths.
        secret: uint64, seed of the second hash.
        slots: int64, a power of two: number of a series plus one, or 0.
        slot_hashes: uint32 per slot.
        key_starts: int64 per series.
        keys: uint8, keys of the series back to back.
        state: int64[STATE_SIZE], updated.
        fresh: int64, the rows.

    Returns:
        END, or FULL when the table has no room for the row at ROW.
    """
    mask = np.uint64(len(slots) - 1)
    row = state[ROW]
    while row < count:
        hash32 = np.uint64(hashes[row])
        r = np.uint64(row)
        layout = which[row]
        place = _place(hash32, mask)
        probe = 0
        known = False
        while slots[place] != 0:
            if slot_hashes[place] == hash32 and _matches(
                window, r, layout, arena, fixed, scratch, payloads, keys, np.uint64(key_starts[slots[place] - 1])
            ):
                known = True
                break
            probe += 1
            if probe == PROBES:
                second = secret
                for i in range(len(payloads)):
                    start = load_u64(scratch, np.uint64(payloads[i, 0]) + r * _EIGHT)
                    length = load_u32(scratch, np.uint64(payloads[i, 1]) + r * _FOUR)
                    second = xxh32(window, start, length, second)
                for i in range(len(fixed)):
                    width = np.uint64(fixed[i, 1])
                    second = xxh32(arena, np.uint64(fixed[i, 0]) + r * width, width, second)
                place = _place(second, mask)
            else:
                place = np.int64(np.uint64(place + 1) & mask)
        if not known:
            series = state[SERIES]
            if series >= len(key_starts) or 2 * series >= len(slots):
                state[ROW] = row
                return FULL
            end = _store(window, r, layout, arena, fixed, scratch, payloads, keys, np.uint64(state[USED]))
            if end < 0:
                state[ROW] = row
                return FULL
            key_starts[series] = state[USED]
            state[USED] = end
            state[SERIES] = series + 1
            slots[place] = series + 1
            slot_hashes[place] = hash32
            fresh[state[FRESH]] = row
            state[FRESH] += 1
        row += 1
    state[ROW] = row
    return END


@kernel
def rebuild(
    fixed: Any,
    payloads: Any,
    secret: Any,
    old_slots: Any,
    old_hashes: Any,
    slots: Any,
    slot_hashes: Any,
    key_starts: Any,
    keys: Any,
) -> None:
    """Put all series of one table into a larger one. Arguments as those of `distinct_series`."""
    mask = np.uint64(len(slots) - 1)
    for old in range(len(old_slots)):
        if old_slots[old] == 0:
            continue
        hash32 = np.uint64(old_hashes[old])
        place = _place(hash32, mask)
        probe = 0
        while slots[place] != 0:
            probe += 1
            if probe == PROBES:
                second = secret
                start = np.uint64(key_starts[old_slots[old] - 1]) + _ONE
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
                place = np.int64(np.uint64(place + 1) & mask)
        slots[place] = old_slots[old]
        slot_hashes[place] = hash32
