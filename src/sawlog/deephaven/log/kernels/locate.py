"""Locating the fields of rows that follow each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven.log import layout
from sawlog.deephaven.log.kernels.digest import SUMMED
from sawlog.deephaven.log.kernels.gather import ABSENT, CHUNK
from sawlog.kernels.adler32 import BRIEF, LEAD, adler32_before
from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_big_u32, load_u64, prefetch
from sawlog.kernels.numbers import _ONE, _ZERO

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
def _prepare(data: Any, body: Any, rules: Any, fixed: Any) -> Any:
    """Lay out rows with the columns of the row whose presence map is at `body`. Returns how many lengths a row has."""
    segments = 0
    offset = np.int64(0)
    for place in range(len(rules.columns)):
        column = rules.columns[place]
        is_present = data[body + np.uint64(column.byte)] & column.mask != 0
        column.present = 1 if is_present else 0
        if is_present:
            column.segment = segments
            column.offset = offset
            offset += column.width
            if column.width == 0:
                fixed[segments] = offset
                segments += 1
                offset = np.int64(0)
    fixed[segments] = offset
    return segments


@inlined
def _make_mask(presence: Any, trusted: Any) -> Any:
    """Return a mask of those bits of an entry's first 8 bytes that must be the same in all rows of a run."""
    bits = _RECORD << _AFTER_SIZE if trusted else _FLAG_BITS
    for i in range(min(presence, _WITH_SIZE)):
        bits |= _FLAG_BITS << np.uint64(8 + 8 * i)
    return bits


@inlined
def _verifies(trusted: Any, state: Any, rules: Any) -> Any:
    """Return whether digests are verified, and the longest entry that is looked at here."""
    longest = rules.longest
    verify = rules.verify and not trusted
    if verify:
        longest = min(longest, SUMMED if state.origin >= 0 else _LONGEST)
    return verify, longest


@inlined
def run(window: Any, pos: Any, stop: Any, trusted: Any, state: Any, out: Any, rules: Any) -> Any:
    """Pass over intact committed rows that all have the same columns: the common case, in a tight loop of its own.

    Args:
        window: See `sawlog.chain`.
        pos: Where the first one begins.
        stop: Where the last one ends at the latest.
        trusted: Whether all of them were judged before.
        state: See `sawlog.chain`; where rows begin goes to `out.starts`, from `state.rows` on.
        out: See `sawlog.deephaven.log.kernels.rows`.
        rules: See `sawlog.deephaven.log.kernels.judge`.

    Returns:
        Position and number of rows at the first entry that is anything else.
    """
    data = window.data
    base = window.base
    places = rules.places
    starts = out.starts
    fixed = out.fixed
    presence = rules.presence
    row = state.rows
    verify, longest = _verifies(trusted, state, rules)
    strict = rules.strict
    head = _BODY + np.uint64(presence)
    first = pos + _BODY
    if pos + head + _DIGEST > stop:
        return pos, 0
    segments = np.uint64(_prepare(data, first, rules, fixed))
    tail = np.uint64(fixed[segments])
    # Flags and the first bytes of the presence map are compared at once, with what they must be.
    bits = _make_mask(presence, trusted)
    like = load_u64(data, pos) & bits & ~_FLAG_BITS | (_ZERO if trusted else _SINGLE << _AFTER_SIZE)
    last = stop - head - _DIGEST
    room = np.uint64(min(np.int64(CHUNK), state.max_rows - row))
    count = _ZERO
    while count < room and pos <= last:
        prefetch(data, pos + _AHEAD)
        total = load_big_u32(data, pos) + _SIZE
        if load_u64(data, pos) & bits != like or total > longest + _SIZE or total > stop - pos:
            break
        equal_bytes = _WITH_SIZE
        while (
            equal_bytes < presence
            and data[pos + _BODY + np.uint64(equal_bytes)] == data[first + np.uint64(equal_bytes)]
        ):
            equal_bytes += 1
        if equal_bytes < presence:
            break
        finish = pos + total - _DIGEST
        position = pos + head
        places[count] = position
        place = count
        # A length at the very end is read from the digest, and leads past the end like any that is too large.
        for segment in range(segments):
            position += np.uint64(fixed[segment])
            if position > finish:
                break
            position += load_big_u32(data, position) + _LENGTH
            place += _CHUNK
            places[place] = position
        position += tail
        if position > finish or (strict and position != finish):
            break
        if verify and (pos < _LEAD or load_big_u32(data, finish) != adler32_before(data, finish, finish - pos)):
            break
        starts[row + np.int64(count)] = base + pos
        pos += total
        count += _ONE
    return pos, np.int64(count)


@inlined
def find_row_end(data: Any, body: Any, finish: Any, rules: Any, index: Any) -> Any:
    """Find every field of one row, for rows of any columns.

    Args:
        data: uint8, the rows.
        body: Where its presence map begins.
        finish: Where its digest begins.
        rules: See `sawlog.deephaven.log.kernels.judge`.
        index: Places go to `rules.places[column * CHUNK + index]`, ABSENT for columns that are null.

    Returns:
        Where the last field ends; past `finish` if the columns do not fit.
    """
    places = rules.places
    position = body + np.uint64(rules.presence)
    if position > finish:
        return position
    for number in range(len(rules.columns)):
        column = rules.columns[number]
        place = number * CHUNK + index
        if data[body + np.uint64(column.byte)] & column.mask == 0:
            places[place] = ABSENT
            continue
        places[place] = position
        width = np.uint64(column.width)
        if width == _ZERO:
            if position + _LENGTH > finish:
                return position + _LENGTH
            position += load_big_u32(data, position) + _LENGTH
        else:
            position += width
        if position > finish:
            return position
    return position


@inlined
def run_mixed(window: Any, pos: Any, stop: Any, trusted: Any, state: Any, out: Any, rules: Any) -> Any:
    """Do what `run` does, for rows that differ in which columns they have."""
    data = window.data
    base = window.base
    starts = out.starts
    row = state.rows
    verify, longest = _verifies(trusted, state, rules)
    strict = rules.strict
    least = _BODY + np.uint64(rules.presence) + _DIGEST
    row_limit = min(np.int64(CHUNK), state.max_rows - row)
    count = np.int64(0)
    while count < row_limit and pos + least <= stop:
        prefetch(data, pos + _AHEAD)
        length = load_big_u32(data, pos)
        if length > longest or length + _SIZE > stop - pos or length + _SIZE < least:
            break
        flags = np.uint64(data[pos + _SIZE])
        if flags != _SINGLE and (not trusted or flags & _RECORD):
            break
        finish = pos + length + _SIZE - _DIGEST
        row_finish = find_row_end(data, pos + _BODY, finish, rules, count)
        if row_finish > finish or (strict and row_finish != finish):
            break
        if verify and (pos < _LEAD or load_big_u32(data, finish) != adler32_before(data, finish, finish - pos)):
            break
        starts[row + count] = base + pos
        pos += length + _SIZE
        count += 1
    return pos, count
