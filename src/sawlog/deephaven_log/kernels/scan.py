"""Walking the chain of entries without decoding rows: for cuts, and to list them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.deephaven_log.kernels.chain import (
    BAD_AT,
    BAD_KIND,
    BAD_ONE,
    BAD_TWO,
    CUT,
    DAMAGE,
    DAMAGE_END,
    DAMAGE_START,
    END,
    EVENTS,
    FULL,
    LAST_DELETE,
    MAX_ENTRY,
    OK,
    POSITION,
    ROWS,
    TARGET,
    VERIFY,
    ZEROS,
    is_delete,
    note,
    step,
)
from sawlog.deephaven_log.layout import Kind
from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import load_big_u32, prefetch

_ZERO = np.uint64(0)
_AHEAD = np.uint64(4096)
"""Bytes: the next page is asked for in time, for what the CPU fetches by itself stops where a page ends."""
_SIZE = np.uint64(layout.SIZE_SIZE)
_FLAGS = np.uint64(layout.SIZE_SIZE)
_MIN = np.uint64(layout.MIN_ENTRY_SIZE)
_RECORD = np.uint64(layout.Flag.RECORD)
_KNOWN_FLAGS = np.uint64(layout.KNOWN_FLAGS)
_START = np.uint64(layout.Flag.START)
_MISMATCH = int(Kind.CHECKSUM_MISMATCH)


@kernel
def scan_chain(window: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Walk the chain without looking into rows: for cut points and for DELETE_PARTITION.

    Stops at the first entry at or behind TARGET that begins a set. What a reader makes of such an entry and of all that
    follow does not depend on what came before, so that a fragment may begin there.

    Returns:
        CUT, MORE, TABLE, DAMAGE (passed over) or FINISHED.
    """
    base = np.uint64(state[POSITION])
    limit = np.uint64(len(window))
    target = np.uint64(state[TARGET])
    end = np.uint64(state[END])
    quick = state[VERIFY] == 0
    longest = np.uint64(state[MAX_ENTRY])
    pos = _ZERO
    outcome = OK
    while outcome == OK:
        if quick and state[BAD_AT] < 0 and state[ZEROS] < 0:
            # Rows that need no second look, alone in a tight loop.
            stop = min(limit, min(end, target) - min(base, end, target))
            last = stop - min(_SIZE + _MIN, stop)
            while pos < last:
                prefetch(window, pos + _AHEAD)
                length = load_big_u32(window, pos)
                total = length + _SIZE
                if length > longest or length < _MIN or window[pos + _FLAGS] >= 4 or total > stop - pos:
                    break
                pos += total
        outcome, pos, total = step(window, base, pos, state, totals, weights)
        if outcome == OK:
            flags = np.uint64(window[pos + _FLAGS]) & _KNOWN_FLAGS
            if base + pos >= target and flags < _RECORD and flags & _START:
                outcome = CUT
            else:
                if flags >= _RECORD and is_delete(window, pos, total):
                    state[LAST_DELETE] = base + pos + total
                pos += total
    state[POSITION] = base + pos
    return outcome


@kernel
def list_entries(window: Any, state: Any, totals: Any, weights: Any, entries: Any, events: Any) -> Any:
    """List entries, and damage.

    Args:
        window: uint8, the file from `state[POSITION]`.
        state: int64[CHAIN_FIELDS], updated.
        totals: uint64, room for running sums; one item as long as there are none.
        weights: uint64, likewise.
        entries: int64[:, 4]: offset, bytes in all, flags, and 1 where the digest does not match.
        events: int64[:, EVENT_FIELDS].

    Returns:
        MORE, TABLE, FULL or FINISHED.
    """
    base = np.uint64(state[POSITION])
    pos = _ZERO
    outcome = FULL
    while state[ROWS] < len(entries) and state[EVENTS] < len(events):
        outcome, pos, total = step(window, base, pos, state, totals, weights)
        if outcome == OK:
            row = state[ROWS]
            entries[row, 0] = base + pos
            entries[row, 1] = total
            entries[row, 2] = window[pos + _FLAGS]
            entries[row, 3] = 0
            state[ROWS] = row + 1
            pos += total
        elif outcome == DAMAGE:
            start = state[DAMAGE_START]
            length = state[DAMAGE_END] - start
            note(events, state, state[BAD_KIND], start, length, state[BAD_ONE], state[BAD_TWO])
            if state[BAD_KIND] == _MISMATCH and np.uint64(start) >= base:
                at = np.uint64(start) - base
                whole = np.int64(_SIZE + load_big_u32(window, at))
                if whole == length:
                    row = state[ROWS]
                    entries[row, 0] = start
                    entries[row, 1] = length
                    entries[row, 2] = window[at + _FLAGS]
                    entries[row, 3] = 1
                    state[ROWS] = row + 1
        else:
            break
        outcome = FULL
    state[POSITION] = base + pos
    return outcome
