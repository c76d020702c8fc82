"""Rows: which of them are committed, and decoding those."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.deephaven_log.kernels import chain
from sawlog.deephaven_log.kernels.chain import (
    BAD_AT,
    BAD_KIND,
    BAD_ONE,
    BAD_TWO,
    DAMAGE,
    DAMAGE_END,
    DAMAGE_START,
    END,
    EVENTS,
    FINISHED,
    FULL,
    OK,
    POSITION,
    ROWS,
    SIZE,
    STRICT,
    TAIL,
    TORN,
    ZEROS,
    is_delete,
    note,
    step,
)
from sawlog.deephaven_log.kernels.gather import CHUNK, gather, room
from sawlog.deephaven_log.kernels.locate import mixed_run, row_end, run
from sawlog.deephaven_log.layout import Kind
from sawlog.kernels.jit import inlined, kernel

# Further fields of the state.
LIVE_FROM = chain.CHAIN_FIELDS
"""Rows before this byte were deleted by a later DELETE_PARTITION."""
TRUSTED = chain.CHAIN_FIELDS + 1
"""Entries before this byte were walked before: they are intact, and their rows are to be delivered."""
DOOMED = chain.CHAIN_FIELDS + 2
"""Likewise, but their rows belong to a set that damage has broken."""
SET_START = chain.CHAIN_FIELDS + 3
"""Start of the set that is being walked, to see how it ends; -1 when there is none."""
SET_ROWS = chain.CHAIN_FIELDS + 4
LOST = chain.CHAIN_FIELDS + 5
"""1 behind damage, until a set begins: what follows may lack its start."""
INCOMPLETE = chain.CHAIN_FIELDS + 6
"""What becomes of sets that lack a member: `DROP`, `EMIT` or `REPORT`."""
APPLY_DELETES = chain.CHAIN_FIELDS + 7
RECORD_BYTES = chain.CHAIN_FIELDS + 8
ORPHANS = chain.CHAIN_FIELDS + 9
ABORTED = chain.CHAIN_FIELDS + 10
DELETED = chain.CHAIN_FIELDS + 11
UNFINISHED = chain.CHAIN_FIELDS + 12
"""Rows of the set that the file ends in."""
GENERAL = chain.CHAIN_FIELDS + 13
"""1 while rows differ too often in which columns they have."""
NOTE_ABORTED = chain.CHAIN_FIELDS + 14
"""Whether aborted sets are written down one by one."""
LOST_FROM = chain.CHAIN_FIELDS + 15
"""While LOST: the start of that damage, or of the set that it broke."""
STATE_SIZE = chain.CHAIN_FIELDS + 16

DROP = 0
EMIT = 1
REPORT = 2

SALVAGED = -1
"""Not damage: rows that were delivered although their set lacks a member."""
GIVEN_UP = -2
"""Not damage: rows of a set that was aborted."""

_SHORT_RUN = 64
"""After a run of rows with the same columns shorter than this, the next `CHUNK` are located one field at a time."""

_ZERO = np.uint64(0)
_SIZE = np.uint64(layout.SIZE_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_BODY = np.uint64(layout.SIZE_SIZE + layout.FLAGS_SIZE)
_SINGLE = np.uint64(layout.SINGLE)
_RECORD = np.uint64(layout.Flag.RECORD)
_KNOWN_FLAGS = np.uint64(layout.KNOWN_FLAGS)
_START = np.uint64(layout.Flag.START)

_BAD_ROW = int(Kind.BAD_ROW)
_BROKEN_SET = int(Kind.BROKEN_SET)
_LOST_START = int(Kind.LOST_START)
_ORPHAN = int(Kind.ORPHAN_ROW)
_INCOMPLETE = int(Kind.INCOMPLETE_SET)


@inlined
def _note_rows(events: Any, state: Any, kind: Any, at: Any, total: Any) -> None:
    """Write down a row that is lost or salvaged; neighbours become one event, with the number of rows."""
    last = state[EVENTS] - 1
    if last >= 0 and events[last, 0] == kind and events[last, 1] + events[last, 2] == np.int64(at):
        events[last, 2] += np.int64(total)
        events[last, 3] += 1
    else:
        note(events, state, kind, at, total, 1, 0)


@inlined
def _give_up_set(state: Any, at: Any, events: Any) -> None:
    """The set that is being walked was aborted by what stands at `at`: another set, or a DELETE_PARTITION."""
    if state[NOTE_ABORTED] != 0:
        note(events, state, GIVEN_UP, state[SET_START], np.int64(at) - state[SET_START], state[SET_ROWS], 0)
    state[ABORTED] += state[SET_ROWS]
    state[RECORD_BYTES] += np.int64(at) - state[SET_START]
    state[SET_START] = -1


@inlined
def _break_set(state: Any, at: Any, events: Any) -> Any:
    """The set that is being walked lacks a member at `at`: settle what becomes of its rows. Returns its start."""
    start = state[SET_START]
    if state[INCOMPLETE] == EMIT:
        state[TRUSTED] = at
        note(events, state, SALVAGED, start, at - start, state[SET_ROWS], 0)
    else:
        state[DOOMED] = at
    state[SET_START] = -1
    return np.uint64(start)


@inlined
def _take_row(window: Any, base: Any, pos: Any, total: Any, flags: Any, state: Any, events: Any) -> Any:
    """The state machine of sets, for an intact row that is not simply delivered.

    Returns:
        FULL when the row found no room before, else OK; and the file offset to go on from.
    """
    at = base + pos
    following = at + total
    if state[SET_START] >= 0:
        if flags & _START:
            _give_up_set(state, at, events)
            return OK, at
        state[SET_ROWS] += 1
        if flags:
            state[TRUSTED] = following
            start = np.uint64(state[SET_START])
            state[SET_START] = -1
            return OK, start
        return OK, following
    if at < np.uint64(state[DOOMED]):
        _note_rows(events, state, _BROKEN_SET, at, total)
        return OK, following
    if at < np.uint64(state[TRUSTED]):
        return FULL, at
    if flags == _SINGLE:
        state[TRUSTED] = following
        state[LOST] = 0
        return OK, at
    if flags == _START:
        state[SET_START] = at
        state[SET_ROWS] = 1
        state[LOST] = 0
        return OK, following
    if state[LOST] != 0:
        state[LOST] = 0 if flags else 1
        if state[INCOMPLETE] != EMIT:
            _note_rows(events, state, _LOST_START, at, total)
            return OK, following
        _note_rows(events, state, SALVAGED, at, total)
    elif state[STRICT] != 0:
        note(events, state, _ORPHAN, at, total, flags, 0)
        return OK, following
    else:
        state[ORPHANS] += 1
    state[TRUSTED] = following
    return OK, at


@inlined
def _close(base: Any, pos: Any, state: Any, events: Any) -> Any:
    """The end was reached while a set was being walked. Returns whether to go on, and from which file offset."""
    at = base + pos
    if state[END] != state[SIZE]:
        _give_up_set(state, at, events)
        return False, at
    stop = np.int64(at)
    if state[TORN] != 0:
        stop = state[TAIL]
    elif state[ZEROS] >= 0:
        stop = state[ZEROS]
    if state[INCOMPLETE] == EMIT:
        state[TORN] = 0
        state[ZEROS] = -1
        return True, _break_set(state, stop, events)
    if state[INCOMPLETE] == REPORT:
        note(events, state, _INCOMPLETE, state[SET_START], stop - state[SET_START], state[SET_ROWS], 0)
        state[SET_START] = -1
    else:
        state[UNFINISHED] = state[SET_ROWS]
    return False, at


@kernel
def decode_rows(
    window: Any,
    state: Any,
    presence: Any,
    max_rows: Any,
    cols: Any,
    fixed: Any,
    places: Any,
    arena: Any,
    scratch: Any,
    starts: Any,
    events: Any,
    totals: Any,
    weights: Any,
) -> Any:
    """Decode committed rows.

    A set is walked to its end first; when it is complete, it is walked again and delivered.

    Args:
        window: uint8, the file from `state[POSITION]`.
        state: int64[STATE_SIZE], updated.
        presence: int64, bytes of a presence map.
        max_rows: int64, room for rows.
        cols: int64[:, COLUMN_FIELDS], the stored columns; see `gather`.
        fixed: int64, one more than columns: scratch.
        places: uint32, CHUNK times one more than columns: scratch.
        arena: uint8, gathered values.
        scratch: uint8, gathered Booleans and validity.
        starts: int64, file offsets of rows, or empty.
        events: int64[:, EVENT_FIELDS], damage and salvage.
        totals: uint64, room for running sums; one item as long as there are none.
        weights: uint64, likewise.

    Returns:
        MORE, TABLE, FULL or FINISHED.
    """
    base = np.uint64(state[POSITION])
    limit = np.uint64(len(window))
    end = np.uint64(state[END])
    live_from = np.uint64(state[LIVE_FROM])
    pos = _ZERO
    outcome = FULL
    while state[ROWS] < max_rows and state[EVENTS] < len(events):
        at = base + pos
        idle = state[SET_START] < 0 and state[BAD_AT] < 0 and state[ZEROS] < 0
        if idle and at < end and at >= np.uint64(state[DOOMED]):
            live = at >= live_from
            bound = end if live else min(end, live_from)
            trusted = at < np.uint64(state[TRUSTED])
            if trusted:
                bound = min(bound, np.uint64(state[TRUSTED]))
            stop = min(limit, bound - base)
            if live:
                stop = min(stop, pos + room(cols))
            row = state[ROWS]
            most = min(np.int64(CHUNK), max_rows - row)
            uneven = state[GENERAL] != 0
            first = pos
            if uneven:
                pos, count = mixed_run(
                    window, base, pos, stop, most, presence, trusted, state, cols, places, row, starts
                )
            else:
                pos, count = run(
                    window, base, pos, stop, most, presence, trusted, state, cols, fixed, places, row, starts
                )
            state[GENERAL] = 1 if not uneven and count < _SHORT_RUN else 0
            if count > 0:
                state[RECORD_BYTES] += np.int64(pos - first)
                if not trusted:
                    state[LOST] = 0
                if live:
                    gather(window, cols, uneven, places, count, row, arena, scratch)
                    state[ROWS] = row + count
                else:
                    state[DELETED] += count
                continue
        outcome, pos, total = step(window, base, pos, state, totals, weights)
        at = base + pos
        onward = at + total
        if outcome == OK:
            flags = np.uint64(window[pos + _SIZE]) & _KNOWN_FLAGS
            if flags & _RECORD:
                if state[APPLY_DELETES] != 0 and state[SET_START] >= 0 and is_delete(window, pos, total):
                    _give_up_set(state, at, events)
                if state[SET_START] < 0:
                    state[RECORD_BYTES] += np.int64(total)
            else:
                finish = pos + total - _DIGEST
                stop = row_end(window, pos + _BODY, finish, presence, cols, places, 0)
                if stop > finish or (state[STRICT] != 0 and stop != finish):
                    state[BAD_KIND] = _BAD_ROW
                    state[BAD_ONE] = total
                    state[BAD_TWO] = stop - pos
                    state[DAMAGE_START] = at
                    state[DAMAGE_END] = onward
                    outcome = DAMAGE
                else:
                    outcome, onward = _take_row(window, base, pos, total, flags, state, events)
                    if outcome == FULL:
                        break
        if outcome == DAMAGE:
            onward = np.uint64(state[DAMAGE_END])
            if state[SET_START] >= 0:
                state[LOST_FROM] = state[SET_START]
                onward = _break_set(state, state[DAMAGE_START], events)
            else:
                start = state[DAMAGE_START]
                if state[LOST] == 0 and start != state[DOOMED]:
                    state[LOST_FROM] = start
                length = state[DAMAGE_END] - start
                note(events, state, state[BAD_KIND], start, length, state[BAD_ONE], state[BAD_TWO])
                state[LOST] = 1
        elif outcome == FINISHED and state[SET_START] >= 0:
            resumed, onward = _close(base, pos, state, events)
            if not resumed:
                break
        elif outcome != OK:
            break
        if onward < base:
            state[POSITION] = onward
            return chain.MORE
        pos = onward - base
        if pos > limit:
            outcome = chain.MORE
            break
        outcome = FULL
    state[POSITION] = base + pos
    return outcome
