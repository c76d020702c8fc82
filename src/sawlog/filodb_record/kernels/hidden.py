"""Containers that another one hides: its length is wrong, and ends where a later one begins, or at the end of the file.

That only shows where its records are broken. Whether another container begins there is settled as in the rest of the
file, by its header and by the builder's rule of rolling over, and the containers from there on are read up to the end
of the one that hid them. Section 4 of the format.

That is rare: it is walked by a kernel of its own, which is compiled when the first file needs it. Where very many are
hidden, to go from kernel to kernel for each costs more than to compile one that does it all.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import AWAY, EVENT, GOOD, NO_ROOM, SHORT, Window, blame, no_run, walk_chain
from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels import state as s
from sawlog.filodb_record.kernels.records import lose_bytes
from sawlog.filodb_record.kernels.settle import (
    LOOK,
    decide,
    header_at,
    is_whole,
    load_length,
    load_word,
    sees,
    time_at,
    told,
    visit,
)
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.signature import Array, Int64, Record

_ZERO = np.uint64(0)
_HEADER = np.uint64(layout.CONTAINER_HEADER_SIZE)
_LOOK = np.uint64(LOOK)
_BAD_HEADER = int(Kind.BAD_HEADER)
_HIDDEN = int(Kind.HIDDEN_CONTAINER)


@inlined
def _fits(window: Any, place: Any, state: Any, rules: Any) -> Any:
    """Whether a container begins at file offset `place`, which is in sight, that ends within the one that is read.

    Behind records, it must be one that a builder would have gone on in.
    """
    if not header_at(window, place, rules, True):
        return False
    at, found = place - window.base, np.int64(place)
    length = np.int64(load_length(window.data, at))
    limit = state.bound if state.bound > 0 else state.next
    if length + layout.LENGTH_SIZE > limit - found:
        return False
    if found == state.broken:
        return True
    if window.size - place < _LOOK:
        return False
    record = np.int64(load_length(window.data, at + _HEADER))
    return is_whole(found - state.container, found - state.broken, length, record, state.step)


def hunts(state: Any) -> Any:
    """Whether hidden containers are looked for, or one of them is to be opened."""
    return state.phase == s.HUNTING or (state.phase == s.AT_HEADER and state.bound > 0)


is_hunt = inlined(hunts)


@inlined
def begin_hunt(at: Any, state: Any, here: Any) -> None:
    """Records have ended at file offset `at`, or are broken: look for containers from there on, or only `here`."""
    state.broken = at
    state.search = at
    state.reach = state.bound if state.bound > 0 else state.end
    if here:
        state.reach = at + 1
    state.phase = s.HUNTING


@inlined
def _hunt(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Look for a container where the records end or are broken, and where a whole container can end behind that.

    Then, or to see more of the file, the walk is sent to where it is to be asked again.
    """
    while state.search < state.reach:
        place = np.uint64(state.search)
        if not sees(window, place):
            return visit(window, window.base + pos, place, state, rules)
        state.looked += 1
        if _fits(window, place, state, rules):
            break
        size = state.search - state.container
        following = size - size % layout.WHOLE_UNIT + layout.WHOLE_UNIT
        state.search = state.container + (state.step if size < state.step < following else following)
    if state.search < state.reach:
        if state.broken < state.end:
            state.hider = state.container
            state.claimed = state.length
        state.bound = state.bound if state.bound > 0 else state.next
        state.end = state.broken
        state.next = state.search
    elif state.broken >= state.end:
        rest = state.bound - state.container
        state.next = state.bound if is_whole(rest, 0, layout.EMPTY_CONTAINER, 0, state.step) else state.end
    state.phase = s.READING
    state.position = state.broken
    return AWAY, _ZERO


@inlined
def _open(window: Any, pos: Any, state: Any) -> Any:
    """Judge what stands among hidden containers where one has ended, or where all have."""
    at = np.int64(window.base + pos)
    if at >= state.bound:
        state.bound = 0
        state.position = at
        return AWAY, _ZERO
    place = np.uint64(at)
    if not sees(window, place):
        return SHORT, min(window.size - place, _LOOK)
    length, word = np.int64(0), np.int64(0)
    if window.size - place >= _HEADER:
        length, word = np.int64(load_length(window.data, pos)), np.int64(load_word(window.data, pos))
    state.container = at
    if state.search == at:
        state.length = length
        state.word = word
        state.time = time_at(window.data, pos)
        end = at + layout.LENGTH_SIZE + length
        decide(state, s.INTACT if state.hider < 0 else _HIDDEN, at + layout.CONTAINER_HEADER_SIZE, end, end)
        blame(state, state.what, state.claimed, state.hider)
        state.hider = -1
    else:
        decide(state, _BAD_HEADER, state.bound, state.bound, state.bound)
        blame(state, _BAD_HEADER, length, word)
    return told(place, state)


class Events(NamedTuple):
    """What is written down.

    Attributes:
        events: See `sawlog.chain.kernels.EVENT`.
    """

    events: Annotated[Any, Array(EVENT, writable=True)]


@inlined
def judge_hidden(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """What stands at a position while `is_hunt`; behind that GOOD, which nobody takes."""
    if state.phase == s.HUNTING:
        return _hunt(window, pos, state, rules)
    if is_hunt(state):
        return _open(window, pos, state)
    return GOOD, _ZERO


@inlined
def _leave_to_others(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    return NO_ROOM


@kernel
def read_hidden(window: Window, state: Annotated[Any, Record(s.STATE)], out: Events, rules: s.Rules) -> Int64:
    """Go on while `is_hunt`: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`; `out` is `Events`."""
    return walk_chain(no_run, judge_hidden, _leave_to_others, lose_bytes, window, state, out, rules)
