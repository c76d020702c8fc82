"""Locating the fields of rows that follow each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.deephaven_log.kernels.chain import MAX_ENTRY, ORIGIN, STRICT, SUMMED, VERIFY
from sawlog.deephaven_log.kernels.gather import ABSENT, BYTE, CHUNK, MASK, OFFSET, PRESENT, SEGMENT, WIDTH
from sawlog.kernels.adler32 import BRIEF, LEAD, adler32_before
from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_big_u32, load_u64, prefetch

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_AHEAD = np.uint64(4096)
"""Bytes: the next page is asked for in time, for what the CPU fetches by itself stops where a page ends."""
_SIZE = np.uint64(layout.SIZE_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_BODY = np.uint64(layout.SIZE_SIZE + layout.FLAGS_SIZE)
_LENGTH = np.uint64(layout.COUNT_SIZE)
_SINGLE = np.uint64(layout.SINGLE)
_RECORD = np.uint64(layout.Flag.RECORD)
_CHUNK = np.uint64(CHUNK)
_LONGEST = np.uint64(BRIEF - layout.SIZE_SIZE)
"""Longer entries are verified on their own."""
_LEAD = np.uint64(LEAD)
_AFTER_SIZE = np.uint64(8 * layout.SIZE_SIZE)
_FLAG_BITS = np.uint64(0xFF << 8 * layout.SIZE_SIZE)
_WITH_SIZE = 3
"""Bytes of a presence map that one load takes in together with size and flags."""


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
def _likeness(presence: Any, trusted: Any) -> Any:
    """Which bits of an entry's first 8 bytes must be the same in all rows of a run."""
    seen = _RECORD << _AFTER_SIZE if trusted else _FLAG_BITS
    for i in range(min(presence, _WITH_SIZE)):
        seen |= _FLAG_BITS << np.uint64(8 + 8 * i)
    return seen


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
    longest = np.uint64(state[MAX_ENTRY])
    verify = state[VERIFY] != 0 and not trusted
    if verify:
        longest = min(longest, SUMMED if state[ORIGIN] >= 0 else _LONGEST)
    strict = state[STRICT] != 0
    head = _BODY + np.uint64(presence)
    first = pos + _BODY
    if pos + head + _DIGEST > stop:
        return pos, 0
    segments = np.uint64(_prepare(window, first, cols, fixed))
    tail = np.uint64(fixed[segments])
    keep = len(starts) > 0
    # Flags and the first bytes of the presence map are compared at once, with what they must be.
    seen = _likeness(presence, trusted)
    like = load_u64(window, pos) & seen & ~_FLAG_BITS | (_ZERO if trusted else _SINGLE << _AFTER_SIZE)
    last = stop - head - _DIGEST
    room = np.uint64(most)
    count = _ZERO
    while count < room and pos <= last:
        prefetch(window, pos + _AHEAD)
        total = load_big_u32(window, pos) + _SIZE
        if load_u64(window, pos) & seen != like or total > longest + _SIZE or total > stop - pos:
            break
        same = _WITH_SIZE
        while same < presence and window[pos + _BODY + np.uint64(same)] == window[first + np.uint64(same)]:
            same += 1
        if same < presence:
            break
        finish = pos + total - _DIGEST
        at = pos + head
        places[count] = at
        place = count
        # A length at the very end is read from the digest, and leads behind the end like any that is too large.
        for segment in range(segments):
            at += np.uint64(fixed[segment])
            if at > finish:
                break
            at += load_big_u32(window, at) + _LENGTH
            place += _CHUNK
            places[place] = at
        at += tail
        if at > finish or (strict and at != finish):
            break
        if verify and (pos < _LEAD or load_big_u32(window, finish) != adler32_before(window, finish, finish - pos)):
            break
        if keep:
            starts[row + np.int64(count)] = base + pos
        pos += total
        count += _ONE
    return pos, np.int64(count)


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
    longest = np.uint64(state[MAX_ENTRY])
    verify = state[VERIFY] != 0 and not trusted
    if verify:
        longest = min(longest, SUMMED if state[ORIGIN] >= 0 else _LONGEST)
    strict = state[STRICT] != 0
    least = _BODY + np.uint64(presence) + _DIGEST
    keep = len(starts) > 0
    count = 0
    while count < most and pos + least <= stop:
        prefetch(window, pos + _AHEAD)
        length = load_big_u32(window, pos)
        if length > longest or length + _SIZE > stop - pos or length + _SIZE < least:
            break
        flags = np.uint64(window[pos + _SIZE])
        if flags != _SINGLE and (not trusted or flags & _RECORD):
            break
        finish = pos + length + _SIZE - _DIGEST
        at = row_end(window, pos + _BODY, finish, presence, cols, places, count)
        if at > finish or (strict and at != finish):
            break
        if verify and (pos < _LEAD or load_big_u32(window, finish) != adler32_before(window, finish, finish - pos)):
            break
        if keep:
            starts[row + count] = base + pos
        pos += length + _SIZE
        count += 1
    return pos, count
