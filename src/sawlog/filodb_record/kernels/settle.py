"""Settling containers: whether one stands at a position, where its records end, and where the next one begins.

Section 4 of the format. Headers carry no magic number and whole containers no size, so what is doubtful is settled by
looking for the next header. The answer depends on the bytes alone, never on where a window begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.chain.kernels import AWAY, DAMAGED, ENDED, HEADER, PADDING, SHORT, TORN, blame
from sawlog.chain.layout import loader
from sawlog.filodb_record import judge, layout
from sawlog.filodb_record.kernels import state as s
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import inlined

# What a search is for.
PADDING_BEHIND = 0
"""No header stands at the container's end: is it whole?"""
RESYNC = 1
"""It is not: is its length wrong?"""
BEYOND = 2
"""It reaches beyond the end of the file: is it cut off, or its length wrong?"""
BROKEN = 3
"""Where a header is expected stands none."""

LOOK = layout.CONTAINER_HEADER_SIZE + layout.LENGTH_SIZE
"""Bytes from its start by which a header is judged: the header, and the length of the first record."""

_HEADER = np.uint64(layout.CONTAINER_HEADER_SIZE)
_LOOK = np.uint64(LOOK)
_LAST = np.uint64(layout.VERSION_WORD.end - 1)
"""The last byte of the version word: the version itself."""
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_UNKNOWN_VERSION = int(Kind.UNKNOWN_VERSION)
_BAD_HEADER = int(Kind.BAD_HEADER)
_BAD_LENGTH = int(Kind.BAD_CONTAINER_LENGTH)
_HIDDEN = int(Kind.HIDDEN_CONTAINER)

_is_header = inlined(judge.is_header)
is_whole = inlined(judge.is_whole)
load_length = loader(layout.LENGTH)
load_word = loader(layout.VERSION_WORD)
_load_time = loader(layout.TIMESTAMP)


@inlined
def time_at(data: Any, at: Any) -> Any:
    """The timestamp of the container that begins there."""
    return np.int64(_load_time(data, at))


@inlined
def header_at(window: Any, place: Any, rules: Any, searched: Any) -> Any:
    """Whether a container begins at file offset `place`; one that is searched for must show a record that fits."""
    left = window.size - place
    if left < _HEADER:
        return False
    at = place - window.base
    data = window.data
    record = np.int64(judge.UNSEEN)
    if searched and left >= _LOOK:
        record = np.int64(load_length(data, at + _HEADER))
    length, word = np.int64(load_length(data, at)), np.int64(load_word(data, at))
    return _is_header(length, word, time_at(data, at), record, rules.flagged)


@inlined
def sees(window: Any, place: Any) -> Any:
    """Whether what a header is judged by is in sight, as far as the file has it."""
    limit = window.base + np.uint64(len(window.data))
    return window.base <= place <= limit and limit - place >= min(window.size - place, _LOOK)


@inlined
def visit(window: Any, at: Any, place: Any, state: Any, rules: Any) -> Any:
    """The verdict by which a place that is not in sight comes into it."""
    if at <= place and place - at <= rules.near:
        return SHORT, min(place - at + _LOOK, window.size - at)
    state.position = place
    return AWAY, _ZERO


@inlined
def _proves(window: Any, state: Any, found: Any) -> Any:
    """Whether the header at `found`, which is in sight, shows that the container in front of it is whole."""
    if window.size - found < _LOOK:
        return False
    at = found - window.base
    size = np.int64(found) - state.container
    unused = size - layout.LENGTH_SIZE - state.length
    length, record = np.int64(load_length(window.data, at)), np.int64(load_length(window.data, at + _HEADER))
    return is_whole(size, unused, length, record, state.step)


@inlined
def _rests(window: Any, unused: Any, found: Any) -> Any:
    """Whether so many bytes can be what a container that was read before has left over in front of another one."""
    return unused < np.int64(load_length(window.data, found - window.base + _HEADER)) + layout.LENGTH_SIZE


@inlined
def decide(state: Any, what: Any, first: Any, end: Any, following: Any) -> None:
    """Say what the container turned out to be, where its records begin and end, and where the next one begins."""
    state.what = what
    state.first = first
    state.end = end
    state.next = following
    state.phase = s.SETTLED


@inlined
def _contain(state: Any, following: Any) -> None:
    """The container is intact; the next one begins at `following`."""
    start = state.container
    decide(state, s.INTACT, start + layout.CONTAINER_HEADER_SIZE, start + layout.LENGTH_SIZE + state.length, following)


@inlined
def _cut_short(state: Any, first: Any, found: Any) -> None:
    """The container's length is wrong: another one begins at `found`."""
    decide(state, _BAD_LENGTH, first, found, found)
    blame(state, _BAD_LENGTH, state.length, found)


@inlined
def _tear(state: Any, end: Any) -> None:
    """The container's records end at `end`, and so does what is sure of the file."""
    _contain(state, end)
    state.ending = s.TORN_REST


@inlined
def _search(state: Any, mode: Any, start: Any, nonzero: Any) -> None:
    state.phase = s.SEARCHING
    state.mode = mode
    state.search = start
    state.begun = start
    state.dirty = nonzero


@inlined
def _look_on(window: Any, state: Any, rules: Any) -> Any:
    """Go on with a search: whether it has ended, and where; the end of the file stands for no header at all."""
    at = np.uint64(state.search)
    nonzero = state.dirty
    looked = 0
    while at < window.size:
        if state.mode != BROKEN and state.clear_from <= np.int64(at) <= state.clear_to:
            at = np.uint64(state.clear_to)
            nonzero |= state.clear_dirty
            break
        if not sees(window, at):
            break
        here = at - window.base
        seen = window.size - at >= _HEADER and window.data[here + _LAST] == layout.VERSION
        if seen and header_at(window, at, rules, True):
            break
        if window.data[here] != 0:
            nonzero = 1
        looked += 1
        at += _ONE
    state.looked += looked
    state.search = at
    state.dirty = nonzero
    if at < window.size and not sees(window, at):
        return False
    if state.mode != BROKEN and np.int64(at) >= state.clear_to:
        state.clear_from = state.begun
        state.clear_to = at
        state.clear_dirty = nonzero
    return True


@inlined
def _conclude(window: Any, state: Any, rules: Any) -> None:
    """A search ended: at the header `state.search`, or, without one, at the end of the file."""
    found = state.search
    size = np.int64(window.size)
    start = state.container
    first = start + layout.CONTAINER_HEADER_SIZE
    end = start + layout.LENGTH_SIZE + state.length
    mode = state.mode
    if mode == PADDING_BEHIND:
        if found < size and _proves(window, state, np.uint64(found)):
            if found - start == state.step:
                _contain(state, found)
            else:
                state.phase = s.PROBING
                state.following = found
                state.search = start + layout.MIN_CONTAINER_SIZE
        elif found == size and is_whole(size - start, 0, layout.EMPTY_CONTAINER, 0, state.step):
            _contain(state, found)
            state.guesses += 1
        elif size - end < layout.CONTAINER_HEADER_SIZE:
            _tear(state, end)
        else:
            state.filled = state.dirty
            _search(state, RESYNC, first, 0)
    elif mode == RESYNC:
        if found < end:
            _cut_short(state, first, found)
        elif found == size and state.length % layout.ALIGNMENT == 0 and state.filled != 0:
            _tear(state, end)
        else:
            _contain(state, end)
    elif mode == BEYOND:
        if found < size:
            _cut_short(state, first, found)
        else:
            decide(state, s.INTACT, first, size, size)
            state.ending = s.TORN_CONTAINER
    elif found == size and state.dirty == 0:
        decide(state, s.UNUSED, found, found, found)
    elif start == rules.resumed and size - found < LOOK:
        decide(state, s.UNUSED, start, start, start)
        state.ending = s.TORN_REST
    elif start == rules.resumed and _rests(window, found - start, np.uint64(found)):
        decide(state, s.UNUSED, found, found, found)
    else:
        decide(state, _BAD_HEADER, found, found, found)
        blame(state, _BAD_HEADER, state.length, state.word)


@inlined
def _begin(window: Any, state: Any, rules: Any) -> None:
    """Take in the header of the container, which is in sight."""
    start = np.uint64(state.container)
    at = start - window.base
    left = np.int64(window.size - start)
    length = np.int64(load_length(window.data, at))
    state.length = length
    state.word = np.int64(load_word(window.data, at))
    state.time = time_at(window.data, at)
    total = length + layout.LENGTH_SIZE
    first = state.container + layout.CONTAINER_HEADER_SIZE
    aligned = length - length % layout.ALIGNMENT
    known = state.word >> layout.VERSION_SHIFT == layout.VERSION
    word = state.word if known else np.int64(judge.PLAIN_WORD)
    sound = _is_header(aligned, word, state.time, np.int64(judge.UNSEEN), rules.flagged)
    if not sound or (total > left and not known):
        _search(state, BROKEN, state.container + 1, 1 if window.data[at] != 0 else 0)
    elif total > left:
        _search(state, BEYOND, first, 0)
    elif length != aligned:
        _search(state, RESYNC, first, 0)
    elif total == left and known:
        _contain(state, np.int64(window.size))
    else:
        state.phase = s.AT_END


@inlined
def _at_end(window: Any, state: Any, rules: Any) -> None:
    """Settle a container by what stands at its end, which is in sight."""
    stop = state.container + layout.LENGTH_SIZE + state.length
    size = np.int64(window.size)
    follows = stop == size or header_at(window, np.uint64(stop), rules, False)
    version = state.word >> layout.VERSION_SHIFT
    if version != layout.VERSION:
        if follows:
            decide(state, _UNKNOWN_VERSION, stop, stop, stop)
            blame(state, _UNKNOWN_VERSION, state.length, version)
        else:
            _search(state, BROKEN, state.container + 1, 1)
    elif follows:
        _contain(state, stop)
    elif state.step == 0 or state.container + state.step < stop:
        _search(state, PADDING_BEHIND, stop + 1, 0)
    elif state.container + state.step > size:
        # The file was cut off in the unused rest of a whole container.
        _tear(state, stop)
    else:
        state.phase = s.AT_STEP


@inlined
def _at_step(window: Any, state: Any, rules: Any) -> None:
    """Settle a container by what stands where a whole one ends, which is in sight."""
    following = np.uint64(state.container + state.step)
    follows = following < window.size and header_at(window, following, rules, False)
    if following == window.size or (follows and (rules.given or _proves(window, state, following))):
        _contain(state, np.int64(following))
    else:
        _search(state, PADDING_BEHIND, state.container + layout.LENGTH_SIZE + state.length + 1, 0)


@inlined
def _probe(window: Any, state: Any, rules: Any) -> Any:
    """Look for others in a container of a new size, at whole units; returns whether all of it was in sight."""
    start = state.container
    end = start + layout.LENGTH_SIZE + state.length
    while state.search < end:
        place = np.uint64(state.search)
        if not sees(window, place):
            return False
        if header_at(window, place, rules, True):
            _cut_short(state, start + layout.CONTAINER_HEADER_SIZE, np.int64(place))
            return True
        state.search += layout.WHOLE_UNIT
    state.step = state.following - start
    _contain(state, state.following)
    return True


@inlined
def told(at: Any, state: Any) -> Any:
    """The verdict on a container of which all is known."""
    start = state.container
    if np.int64(at) != start:
        state.position = start
        return AWAY, _ZERO
    what = state.what
    state.phase = s.READING if state.end > state.first or what in (s.INTACT, _HIDDEN) else s.AT_HEADER
    state.counted = 0
    if what == s.UNUSED:
        return PADDING, np.uint64(state.next - start)
    if what == s.INTACT:
        return HEADER, np.uint64(state.first - start)
    state.kind = what
    return DAMAGED, np.uint64(state.first - start)


@inlined
def open_value(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Judge the value at a position, of a column of them: it is a container, by its header, or a record.

    The records of a container that is broken are read as far as its header lets.
    """
    at = np.int64(window.base + pos)
    if at >= np.int64(window.size):
        return ENDED, _ZERO
    value = state.value
    while rules.bounds[value + 1] <= at:
        value += 1
    state.value = value
    end = rules.bounds[value + 1]
    state.container = at
    state.ending = 0
    decide(state, s.INTACT, at, end, end)
    if end - at < layout.CONTAINER_HEADER_SIZE:
        return told(at, state)
    if np.uint64(len(window.data)) - pos < min(np.uint64(end - at), _LOOK):
        state.phase = s.AT_HEADER
        return SHORT, min(np.uint64(end - at), _LOOK)
    length, word = np.int64(load_length(window.data, pos)), np.int64(load_word(window.data, pos))
    time = time_at(window.data, pos)
    version = word >> layout.VERSION_SHIFT
    bare = word == version << layout.VERSION_SHIFT and version != 0
    # Whose word is bare is a container, whatever is wrong with its first record.
    record = np.int64(judge.UNSEEN)
    if not bare and end - at >= LOOK:
        record = np.int64(load_length(window.data, pos + _HEADER))
    sound = _is_header(length, np.int64(judge.PLAIN_WORD) if bare else word, time, record, word)
    if sound and version == layout.VERSION:
        claimed = at + layout.LENGTH_SIZE + length
        state.time = time
        what = s.INTACT if claimed <= end else _BAD_LENGTH
        decide(state, what, at + layout.CONTAINER_HEADER_SIZE, min(claimed, end), end)
        blame(state, what, length, end)
    elif bare and (sound or version == layout.VERSION):
        what = _UNKNOWN_VERSION if sound else _BAD_HEADER
        decide(state, what, end, end, end)
        blame(state, what, length, version if sound else word)
    return told(at, state)


@inlined
def settle(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Judge the container at a position, or go on with that. See `sawlog.chain`."""
    at = window.base + pos
    if state.phase == s.AT_HEADER:
        if at >= window.size and state.ending == 0:
            return ENDED, _ZERO
        if state.ending != 0:
            return TORN, _ZERO
        if at >= window.end:
            return ENDED, _ZERO
        state.container = at
        if window.size - at < _HEADER:
            state.ending = s.TORN_HEADER
            return TORN, _ZERO
    while state.phase != s.SETTLED:
        phase = state.phase
        place = np.uint64(state.container)
        if phase == s.AT_END:
            place += np.uint64(layout.LENGTH_SIZE + state.length)
        elif phase == s.AT_STEP:
            place += np.uint64(state.step)
        elif phase != s.AT_HEADER:
            done = _look_on(window, state, rules) if phase == s.SEARCHING else _probe(window, state, rules)
            if not done:
                return visit(window, at, np.uint64(state.search), state, rules)
            if phase == s.SEARCHING:
                _conclude(window, state, rules)
            continue
        if place < window.size and not sees(window, place):
            return visit(window, at, place, state, rules)
        if phase == s.AT_HEADER:
            _begin(window, state, rules)
        elif phase == s.AT_END:
            _at_end(window, state, rules)
        else:
            _at_step(window, state, rules)
    return told(at, state)
