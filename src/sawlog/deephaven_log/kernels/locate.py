"""Locating the fields of rows that follow each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.deephaven_log.kernels.chain import MAX_ENTRY, ORIGIN, STRICT, SUMMED, TRAILER, VERIFY
from sawlog.deephaven_log.kernels.gather import ABSENT, BYTE, CHUNK, MASK, OFFSET, PRESENT, SEGMENT, WIDTH
from sawlog.kernels.adler32 import adler32
from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_big_u32, prefetch

_ZERO = np.uint64(0)
_AHEAD = np.uint64(1024)
_SIZE = np.uint64(layout.SIZE_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_BODY = np.uint64(layout.SIZE_SIZE + layout.FLAGS_SIZE)
_LENGTH = np.uint64(layout.COUNT_SIZE)
_SINGLE = np.uint64(layout.SINGLE)
_RECORD = np.uint64(layout.Flag.RECORD)


@inlined
def _prepare(window: Any, body: Any, cols: Any, fixed: Any) -> Any:
    """Lay out rows with the same columns as the one whose presence map is at `body`. Returns their lengths' number."""
    segments = 0
    offset = np.int64(0)
    for column in range(len(cols)):
        here = window[body + np.uint64(cols[column, BYTE])] & cols[column, MASK] != 0
        cols[column, PRESENT] = 1 if here else 0
        if here:
            cols[column, SEGMENT] = segments
            cols[column, OFFSET] = offset
            offset += cols[column, WIDTH]
            if cols[column, WIDTH] == 0:
                fixed[segments] = offset
                segments += 1
                offset = np.int64(0)
    fixed[segments] = offset
    return segments


@inlined
def _same_presence(window: Any, body: Any, first: Any, count: Any) -> Any:
    same = True
    for i in range(count):
        same &= window[body + np.uint64(i)] == window[first + np.uint64(i)]
    return same


@inlined
def run(
    window: Any,
    base: Any,
    pos: Any,
    stop: Any,
    most: Any,
    presence: Any,
    trusted: Any,
    state: Any,
    cols: Any,
    fixed: Any,
    places: Any,
    row: Any,
    starts: Any,
) -> Any:
    """The common case, alone in a tight loop: intact committed rows that all have the same columns.

    Returns:
        Position and number of rows at the first entry that is anything else.
    """
    trailer = np.uint64(state[TRAILER])
    frame = _SIZE + trailer
    longest = np.uint64(state[MAX_ENTRY])
    verify = state[VERIFY] != 0 and not trusted
    if verify and state[ORIGIN] >= 0:
        longest = min(longest, SUMMED)
    strict = state[STRICT] != 0
    head = _BODY + np.uint64(presence)
    first = pos + _BODY
    if pos + head + _DIGEST > stop:
        return pos, 0
    segments = _prepare(window, first, cols, fixed)
    tail = np.uint64(fixed[segments])
    keep = len(starts) > 0
    count = 0
    while count < most and pos + head + _DIGEST <= stop:
        prefetch(window, pos + _AHEAD)
        length = load_big_u32(window, pos)
        if length > longest or length + frame > stop - pos or length + frame < head + _DIGEST:
            break
        flags = np.uint64(window[pos + _SIZE])
        if flags != _SINGLE and (not trusted or flags & _RECORD):
            break
        finish = pos + length + frame - _DIGEST
        if presence > 0 and window[pos + _BODY] != window[first]:
            break
        if presence > 1 and not _same_presence(window, pos + _BODY, first, presence):
            break
        at = pos + head
        places[count] = at
        place = count
        fits = True
        for segment in range(segments):
            at += np.uint64(fixed[segment]) + _LENGTH
            if at > finish:
                fits = False
                break
            at += load_big_u32(window, at - _LENGTH)
            place += CHUNK
            places[place] = at
        at += tail
        if not fits or at > finish or (strict and at != finish):
            break
        if verify and load_big_u32(window, finish) != adler32(window, pos, finish - pos):
            break
        if keep:
            starts[row + count] = base + pos
        pos += length + frame
        count += 1
    return pos, count


@inlined
def row_end(window: Any, body: Any, finish: Any, presence: Any, cols: Any, places: Any, index: Any) -> Any:
    """Find every field of one row, for rows of any columns.

    Returns:
        Where the last field ends; behind `finish` if the columns do not fit. Places go to `places[column * CHUNK +
        index]`, ABSENT for columns that are null.
    """
    at = body + np.uint64(presence)
    if at > finish:
        return at
    for column in range(len(cols)):
        place = column * CHUNK + index
        if window[body + np.uint64(cols[column, BYTE])] & cols[column, MASK] == 0:
            places[place] = ABSENT
            continue
        places[place] = at
        width = np.uint64(cols[column, WIDTH])
        if width == _ZERO:
            if at + _LENGTH > finish:
                return at + _LENGTH
            at += load_big_u32(window, at) + _LENGTH
        else:
            at += width
        if at > finish:
            return at
    return at


@inlined
def mixed_run(
    window: Any,
    base: Any,
    pos: Any,
    stop: Any,
    most: Any,
    presence: Any,
    trusted: Any,
    state: Any,
    cols: Any,
    places: Any,
    row: Any,
    starts: Any,
) -> Any:
    """As `run`, for rows that differ in which columns they have."""
    trailer = np.uint64(state[TRAILER])
    frame = _SIZE + trailer
    longest = np.uint64(state[MAX_ENTRY])
    verify = state[VERIFY] != 0 and not trusted
    if verify and state[ORIGIN] >= 0:
        longest = min(longest, SUMMED)
    strict = state[STRICT] != 0
    least = _BODY + np.uint64(presence) + _DIGEST
    keep = len(starts) > 0
    count = 0
    while count < most and pos + least <= stop:
        prefetch(window, pos + _AHEAD)
        length = load_big_u32(window, pos)
        if length > longest or length + frame > stop - pos or length + frame < least:
            break
        flags = np.uint64(window[pos + _SIZE])
        if flags != _SINGLE and (not trusted or flags & _RECORD):
            break
        finish = pos + length + frame - _DIGEST
        at = row_end(window, pos + _BODY, finish, presence, cols, places, count)
        if at > finish or (strict and at != finish):
            break
        if verify and load_big_u32(window, finish) != adler32(window, pos, finish - pos):
            break
        if keep:
            starts[row + count] = base + pos
        pos += length + frame
        count += 1
    return pos, count
