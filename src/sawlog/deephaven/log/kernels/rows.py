"""Rows: which of them are committed, and decoding those."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import BACK, EVENT, NO_ROOM, TAKEN, Window, note, walk_chain
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.kernels import gather as columns
from sawlog.deephaven.log.kernels.judge import STATE, Rules, has_digest, is_delete, judge, read_flags
from sawlog.deephaven.log.kernels.locate import run as even_run
from sawlog.deephaven.log.kernels.locate import run_mixed
from sawlog.deephaven.log.layout import BinaryLogDamageKind
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.signature import Array, Int64, OutBytes, OutInt64s, Record

SALVAGED = np.int64(-1)
"""An event that is no damage: rows that were delivered although their set lacks a member."""
GIVEN_UP = np.int64(-2)
"""An event that is no damage: rows of a set that was aborted."""

_SHORT_RUN = 64
"""After a run of rows with the same columns shorter than this, the next `CHUNK` are located one field at a time."""

_SINGLE = np.uint64(layout.SINGLE)
_RECORD = np.uint64(layout.Flag.RECORD)
_START = np.uint64(layout.Flag.START)

_NOUGHT = np.int64(0)
_ONE = np.int64(1)
_BROKEN_SET = np.int64(BinaryLogDamageKind.BROKEN_SET)
_LOST_START = np.int64(BinaryLogDamageKind.LOST_START)
_ORPHAN = np.int64(BinaryLogDamageKind.ORPHAN_ROW)


class Out(NamedTuple):
    """Arrays that rows and events are written to.

    Attributes:
        arena: uint8, gathered values.
        scratch: uint8, gathered Booleans and validity, a byte each.
        starts: int64, file offset of each row.
        fixed: int64, one more than columns: scratch.
        events: See `sawlog.chain.kernels.EVENT`.
    """

    arena: OutBytes
    scratch: OutBytes
    starts: OutInt64s
    fixed: OutInt64s
    events: Annotated[Any, Array(EVENT, writable=True)]


@inlined
def _note_rows(events: Any, state: Any, kind: Any, position: Any, total: Any) -> None:
    """Write down a row that is lost or salvaged; neighbours become one event, with the number of rows."""
    last = state.events - 1
    if last >= 0 and events[last].kind == kind and events[last].offset + events[last].length == position:
        events[last].length += total
        events[last].one += 1
    else:
        note(events, state, kind, position, total, _ONE, _NOUGHT)


@inlined
def _give_up_set(state: Any, position: Any, events: Any, rules: Any) -> None:
    """Give up the set being walked: what is at `position`, another set or a DELETE_PARTITION, aborted it."""
    length = position - state.set_start
    if rules.notes_aborted:
        note(events, state, GIVEN_UP, state.set_start, length, state.set_rows, _NOUGHT)
    state.aborted_rows += state.set_rows
    state.record_bytes += length
    state.set_start = -1


@inlined
def _break_set(state: Any, position: Any, events: Any, rules: Any) -> None:
    """Decide what becomes of the rows of the set being walked, which lacks a member at `position`; go back to it."""
    start = state.set_start
    if rules.emit:
        state.trusted = position
        note(events, state, SALVAGED, start, position - start, state.set_rows, _NOUGHT)
    else:
        state.doomed = position
    state.set_start = -1
    state.position = start


@inlined
def _take_row(position: Any, total: Any, flags: Any, state: Any, events: Any, rules: Any) -> Any:
    """Take an intact row that is not simply delivered, by the state machine of sets. Section 5."""
    following = position + total
    state.position = position
    if state.set_start >= 0:
        if flags & _START:
            _give_up_set(state, position, events, rules)
            return BACK
        state.set_rows += 1
        if flags:
            state.trusted = following
            state.position = state.set_start
            state.set_start = -1
            return BACK
        return TAKEN
    if position < state.doomed:
        _note_rows(events, state, _BROKEN_SET, position, total)
        return TAKEN
    if position < state.trusted:
        return NO_ROOM
    if flags == _SINGLE:
        state.orphaned = 0
    elif flags == _START:
        state.set_start = position
        state.set_rows = 1
        state.orphaned = 0
        return TAKEN
    elif state.orphaned != 0:
        state.orphaned = 0 if flags else 1
        if not rules.emit:
            _note_rows(events, state, _LOST_START, position, total)
            return TAKEN
        _note_rows(events, state, SALVAGED, position, total)
    elif rules.strict:
        note(events, state, _ORPHAN, position, total, np.int64(flags), _NOUGHT)
        return TAKEN
    else:
        state.orphan_rows += 1
    state.trusted = following
    return BACK


@inlined
def run(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take rows that are delivered, or deleted, some at a time. See `sawlog.chain`."""
    position = np.int64(window.base + pos)
    end = np.int64(window.end)
    if state.set_start >= 0 or state.lost >= 0 or position >= end or position < state.doomed:
        return pos
    live_from = np.int64(rules.live_from)
    live = position >= live_from
    bound = end if live else min(end, live_from)
    trusted = position < state.trusted
    if trusted:
        bound = min(bound, state.trusted)
    stop = min(np.uint64(len(window.data)), np.uint64(bound) - window.base)
    if live:
        stop = min(stop, pos + columns.measure_room(rules.columns))
    uneven = state.uneven != 0
    if uneven:
        following, count = run_mixed(window, pos, stop, trusted, state, out, rules)
    else:
        following, count = even_run(window, pos, stop, trusted, state, out, rules)
    state.uneven = 1 if not uneven and count < _SHORT_RUN else 0
    if count > 0:
        state.record_bytes += np.int64(following - pos)
        if not trusted:
            state.orphaned = 0
        if live:
            columns.gather(window.data, uneven, count, state.rows, out, rules)
            state.rows += count
        else:
            state.deleted_rows += count
    return following


@inlined
def gather(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take an intact entry that `run` has not taken. See `sawlog.chain`."""
    position = np.int64(window.base + pos)
    total = np.int64(size)
    flags = read_flags(window.data, pos)
    if flags & _RECORD:
        if is_delete(window.data, pos, size):
            state.last_delete = position + total
            if rules.applies_deletes and state.set_start >= 0:
                _give_up_set(state, position, out.events, rules)
        if state.set_start < 0:
            state.record_bytes += total
            if not has_digest(window.data, pos, size):
                state.undigested += 1
        return TAKEN
    return _take_row(position, total, flags, state, out.events, rules)


@inlined
def on_damage(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take in damage, which breaks the set that contains it. See `sawlog.chain`."""
    position = np.int64(start)
    if state.set_start >= 0:
        state.orphaned_from = state.set_start
        _break_set(state, position, out.events, rules)
        return BACK
    if state.orphaned == 0 and position != state.doomed:
        state.orphaned_from = position
    note(out.events, state, state.kind, position, np.int64(length), state.one, state.two)
    state.orphaned = 1
    state.zeros = -1
    return TAKEN


@kernel
def decode_rows(window: Window, state: Annotated[Any, Record(STATE)], out: Out, rules: Rules) -> Int64:
    """Decode committed rows: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`.

    A set is walked to its end first; when it is complete, it is walked again and delivered.
    """
    return walk_chain(run, judge, gather, on_damage, window, state, out, rules)
