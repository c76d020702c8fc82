"""Finding the containers of a file: each from its header, the next one behind its end, or behind what is left of it.

Section 4 of the format. Headers carry no magic number and whole containers no size, so what is doubtful is settled by
looking for the next header. The answer depends on the bytes alone, never on where a window begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.filodb_record import judge, layout
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import PLAIN, inlined, kernel
from sawlog.kernels.memory import load_u32, load_u64

STATE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "position",  # the container that is being settled, as file offset
            "step",  # bytes that whole containers take; 0 while unknown
            "given",  # 1 when the user has said so
            "rows",
            "wanted",  # where the window must begin
            "phase",
            "mode",  # what a search is for
            "begun",  # where it began
            "search",  # where it goes on
            "filled",  # 1 when the search behind the container met a byte other than zero
            "dirty",  # 1 when it met a byte other than zero
            "clear_from",  # from here to `clear_to` no header begins: searched before
            "clear_to",
            "clear_dirty",  # 1 when other bytes than zeros stand there
            "resumed",  # where this pass goes on behind another one, which has seen no more of the file; -1 if not
            "skipped",  # unused bytes in front of the first container of such a pass
            "following",  # where a whole container is to end, while it is looked through for others
            "looked",  # places at which a header was searched for
            "tail",
            "length",  # of the container at `position`
            "word",
            "time",
        )
    ],
    align=True,
)

# Phases.
AT_HEADER = 0
AT_END = 1
AT_STEP = 2
SEARCHING = 3
PROBING = 4
"""The container seems to be whole, of another size than those before: does it hold others?"""

# Modes.
PADDING = 0
"""No header stands at the container's end: is it whole?"""
RESYNC = 1
"""It is not: is its length wrong?"""
BEYOND = 2
"""It reaches beyond the end of the file: is it cut off, or its length wrong?"""
BROKEN = 3
"""Where a header is expected stands none."""

# Tails.
NO_TAIL = 0
TORN_HEADER = 1
TORN_CONTAINER = 2
UNUSED = 3
TORN_REST = 4
"""The last container is whole, and what follows its records may be its unused rest, or not be complete."""

# How containers are torn.
TORN = 1
"""The file ends before its records do."""
UNSURE = 2
"""The file ends behind them, and not where it would if all of the container were there."""

FRAME = np.dtype(
    [
        (name, np.int64)
        for name in (
            "kind",  # 0 for a container; a `Kind` where the header, or everything, is damaged
            "start",
            "first",  # its first record
            "end",  # where its records end
            "next",
            "one",
            "two",
            "torn",  # TORN, UNSURE, or 0
            "guess",  # 1 when nothing proves that what follows its records is unused
            "time",  # its timestamp
        )
    ],
    align=True,
)

# What a call ended with.
MORE = 0
"""The window must begin at `wanted`."""
FULL = 1
DONE = 2

LOOK = layout.CONTAINER_HEADER_SIZE + layout.LENGTH_SIZE
"""Bytes from its start by which a header is judged: the header, and the length of the first record."""

_HEADER = np.uint64(layout.CONTAINER_HEADER_SIZE)
_LOOK = np.uint64(LOOK)
_LENGTH = np.uint64(layout.LENGTH_SIZE)
_VERSION = np.uint64(layout.VERSION_OFFSET)
_LAST = np.uint64(layout.TIMESTAMP_OFFSET - 1)
"""The last byte of the version word: the version itself."""
_TIMESTAMP = np.uint64(layout.TIMESTAMP_OFFSET)
_ONE = np.uint64(1)
_UNKNOWN_VERSION = int(Kind.UNKNOWN_VERSION)
_BAD_HEADER = int(Kind.BAD_HEADER)
_BAD_LENGTH = int(Kind.BAD_CONTAINER_LENGTH)

_is_header = inlined(judge.is_header)
_is_whole = inlined(judge.is_whole)


class Sight(NamedTuple):
    """The bytes in sight, and what holds for the whole file.

    Attributes:
        data: uint8, the file from `base` on; at least LOOK + 8 bytes behind `wanted`, or to its end.
        base: uint64, file offset of the data.
        size: uint64, bytes in the file.
        end: uint64, containers that start at or behind it are not ours.
        flagged: int64, the version word of the file's first container.
    """

    data: Any
    base: Any
    size: Any
    end: Any
    flagged: Any


def handed(frames: Any) -> Any:
    """Frames as kernels take them: Numba takes plain arrays of records ten times as fast as those that Python needs."""
    return frames if PLAIN else frames.view(np.ndarray)


def new_state(start: int, step: int, *, given: bool, resumed: bool) -> Any:
    """The state in front of a container."""
    state = np.zeros(1, STATE).view(np.recarray)[0]
    state.position = state.wanted = start
    state.step = step
    state.given = int(given)
    state.clear_from = state.clear_to = -1
    state.resumed = start if resumed else -1
    return state


@inlined
def _unsigned(sight: Any, at: Any) -> Any:
    return np.int64(load_u32(sight.data, at))


@inlined
def _header_at(sight: Any, place: Any, searched: Any) -> Any:
    """Whether a container begins at file offset `place`; one that is searched for must show a record that fits."""
    left = sight.size - place
    if left < _HEADER:
        return False
    at = place - sight.base
    record = judge.UNSEEN
    if searched and left >= _LOOK:
        record = _unsigned(sight, at + _HEADER)
    time = np.uint64(load_u64(sight.data, at + _TIMESTAMP))
    return _is_header(
        _unsigned(sight, at), _unsigned(sight, at + _VERSION), np.int64(time.view(np.int64)), record, sight.flagged
    )


@inlined
def _sees(sight: Any, place: Any) -> Any:
    """Whether what a header is judged by is in sight, as far as the file has it."""
    limit = sight.base + np.uint64(len(sight.data))
    return sight.base <= place <= limit and limit - place >= min(sight.size - place, _LOOK)


@inlined
def _proves(sight: Any, state: Any, found: Any) -> Any:
    """Whether the header at `found`, which is in sight, shows that the container in front of it is whole."""
    if sight.size - found < _LOOK:
        return False
    at = found - sight.base
    size = np.int64(found) - state.position
    unused = size - layout.LENGTH_SIZE - state.length
    return _is_whole(size, unused, _unsigned(sight, at), _unsigned(sight, at + _HEADER), state.step)


@inlined
def _rests(sight: Any, unused: Any, found: Any) -> Any:
    """Whether so many bytes can be what a container that was read before has left over in front of another one."""
    record = _unsigned(sight, found - sight.base + _HEADER)
    return unused < record + layout.LENGTH_SIZE


@inlined
def _emit(frames: Any, state: Any, kind: Any, first: Any, end: Any, following: Any, one: Any, two: Any) -> Any:
    """Write the frame that starts at `position` down, and go on behind it; returns its row."""
    row = state.rows
    frames[row].kind = kind
    frames[row].start = state.position
    frames[row].first = first
    frames[row].end = end
    frames[row].next = following
    frames[row].one = one
    frames[row].two = two
    frames[row].torn = 0
    frames[row].guess = 0
    frames[row].time = state.time
    state.rows = row + 1
    state.position = following
    state.phase = AT_HEADER
    return row


@inlined
def _contain(frames: Any, state: Any, following: Any) -> Any:
    """The container at `position` is intact; the next one begins at `following`."""
    start = state.position
    end = start + layout.LENGTH_SIZE + state.length
    return _emit(frames, state, 0, start + layout.CONTAINER_HEADER_SIZE, end, following, 0, 0)


@inlined
def _search(state: Any, mode: Any, start: Any, nonzero: Any) -> None:
    state.phase = SEARCHING
    state.mode = mode
    state.search = state.begun = start
    state.dirty = nonzero


@inlined
def _look_on(sight: Any, state: Any) -> Any:
    """Go on with a search: whether it has ended, and where; the end of the file stands for no header at all."""
    at = np.uint64(state.search)
    nonzero = state.dirty
    looked = 0
    while at < sight.size:
        if state.mode != BROKEN and state.clear_from <= np.int64(at) <= state.clear_to:
            at = np.uint64(state.clear_to)
            nonzero |= state.clear_dirty
            break
        if not _sees(sight, at):
            break
        here = at - sight.base
        if sight.size - at >= _HEADER and sight.data[here + _LAST] == layout.VERSION and _header_at(sight, at, True):
            break
        if sight.data[here] != 0:
            nonzero = 1
        looked += 1
        at += _ONE
    state.looked += looked
    state.search = at
    state.dirty = nonzero
    if at < sight.size and not _sees(sight, at):
        state.wanted = at
        return False
    if state.mode != BROKEN and np.int64(at) >= state.clear_to:
        state.clear_from = state.begun
        state.clear_to = at
        state.clear_dirty = nonzero
    return True


@inlined
def _settle(sight: Any, frames: Any, state: Any) -> None:
    """A search ended: at the header `state.search`, or, without one, at the end of the file."""
    found = state.search
    size = np.int64(sight.size)
    start = state.position
    first = start + layout.CONTAINER_HEADER_SIZE
    end = start + layout.LENGTH_SIZE + state.length
    mode = state.mode
    if mode == PADDING:
        if found < size and _proves(sight, state, np.uint64(found)):
            if found - start == state.step:
                _contain(frames, state, found)
            else:
                state.phase = PROBING
                state.following = found
                state.search = start + layout.MIN_CONTAINER_SIZE
        elif found == size and _is_whole(size - start, 0, layout.EMPTY_CONTAINER, 0, state.step):
            row = _contain(frames, state, found)
            frames[row].guess = 1
        elif size - end < layout.CONTAINER_HEADER_SIZE:
            row = _contain(frames, state, end)
            frames[row].torn = UNSURE
            state.tail = TORN_REST
        else:
            state.filled = state.dirty
            _search(state, RESYNC, first, 0)
    elif mode == RESYNC:
        if found < end:
            _emit(frames, state, _BAD_LENGTH, first, found, found, state.length, found)
        elif found == size and state.length % layout.ALIGNMENT == 0 and state.filled != 0:
            row = _contain(frames, state, end)
            frames[row].torn = UNSURE
            state.tail = TORN_REST
        else:
            _contain(frames, state, end)
    elif mode == BEYOND:
        if found < size:
            _emit(frames, state, _BAD_LENGTH, first, found, found, state.length, found)
        else:
            row = _emit(frames, state, 0, first, size, size, 0, 0)
            frames[row].torn = TORN
            state.tail = TORN_CONTAINER
    elif found == size and state.dirty == 0:
        state.tail = UNUSED
    elif start == state.resumed and size - found < LOOK:
        state.tail = TORN_REST
    elif start == state.resumed and _rests(sight, found - start, np.uint64(found)):
        state.skipped = found - start
        state.position = found
        state.phase = AT_HEADER
    else:
        _emit(frames, state, _BAD_HEADER, found, found, found, state.length, state.word)


@inlined
def _begin(sight: Any, frames: Any, state: Any) -> None:
    """Take in the header at `position`, which is in sight."""
    start = np.uint64(state.position)
    at = start - sight.base
    left = np.int64(sight.size - start)
    length = _unsigned(sight, at)
    state.length = length
    state.word = _unsigned(sight, at + _VERSION)
    state.time = np.uint64(load_u64(sight.data, at + _TIMESTAMP)).view(np.int64)
    total = length + layout.LENGTH_SIZE
    first = state.position + layout.CONTAINER_HEADER_SIZE
    aligned = length - length % layout.ALIGNMENT
    known = state.word >> layout.VERSION_SHIFT == layout.VERSION
    word = state.word if known else judge.PLAIN_WORD
    if not _is_header(aligned, word, state.time, judge.UNSEEN, sight.flagged) or (total > left and not known):
        _search(state, BROKEN, state.position + 1, 1 if sight.data[at] != 0 else 0)
    elif total > left:
        _search(state, BEYOND, first, 0)
    elif length != aligned:
        _search(state, RESYNC, first, 0)
    elif total == left and known:
        _contain(frames, state, np.int64(sight.size))
    else:
        state.phase = AT_END


@inlined
def _at_end(sight: Any, frames: Any, state: Any) -> None:
    """Settle a container by what stands at its end, which is in sight."""
    stop = state.position + layout.LENGTH_SIZE + state.length
    size = np.int64(sight.size)
    follows = stop == size or _header_at(sight, np.uint64(stop), False)
    version = state.word >> layout.VERSION_SHIFT
    if version != layout.VERSION:
        if follows:
            _emit(frames, state, _UNKNOWN_VERSION, stop, stop, stop, state.length, version)
        else:
            _search(state, BROKEN, state.position + 1, 1)
    elif follows:
        _contain(frames, state, stop)
    elif state.step == 0 or state.position + state.step < stop:
        _search(state, PADDING, stop + 1, 0)
    elif state.position + state.step > size:
        # The file was cut off in the unused rest of a whole container.
        row = _contain(frames, state, stop)
        frames[row].torn = UNSURE
        state.tail = TORN_REST
    else:
        state.phase = AT_STEP


@inlined
def _at_step(sight: Any, frames: Any, state: Any) -> None:
    """Settle a container by what stands where a whole one ends, which is in sight."""
    following = np.uint64(state.position + state.step)
    if following == sight.size or (
        _header_at(sight, following, False) and (state.given != 0 or _proves(sight, state, following))
    ):
        _contain(frames, state, np.int64(following))
    else:
        _search(state, PADDING, state.position + layout.LENGTH_SIZE + state.length + 1, 0)


@inlined
def _probe(sight: Any, frames: Any, state: Any) -> Any:
    """Look for others in a container of a new size, at whole units; returns whether more must be in sight."""
    start = state.position
    end = start + layout.LENGTH_SIZE + state.length
    while state.search < end:
        place = np.uint64(state.search)
        if not _sees(sight, place):
            state.wanted = place
            return True
        if _header_at(sight, place, True):
            _emit(frames, state, _BAD_LENGTH, start + layout.CONTAINER_HEADER_SIZE, place, place, state.length, place)
            return False
        state.search += layout.WHOLE_UNIT
    state.step = state.following - start
    _contain(frames, state, state.following)
    return False


@kernel
def frame_containers(sight: Any, state: Any, frames: Any) -> Any:
    """Settle containers from `state.position` on.

    Args:
        sight: `Sight`.
        state: `STATE`, updated.
        frames: `FRAME` records.

    Returns:
        MORE, FULL or DONE.
    """
    while state.rows < len(frames) and state.tail == NO_TAIL:
        phase = state.phase
        place = np.uint64(state.position)
        if phase == AT_HEADER:
            if place >= sight.end or place >= sight.size:
                return DONE
            if sight.size - place < _HEADER:
                state.tail = TORN_HEADER
                break
        elif phase == AT_END:
            place += _LENGTH + np.uint64(state.length)
        elif phase == AT_STEP:
            place += np.uint64(state.step)
        elif phase == PROBING:
            if _probe(sight, frames, state):
                return MORE
            continue
        if phase != SEARCHING:
            if place < sight.size and not _sees(sight, place):
                state.wanted = place
                return MORE
            if phase == AT_HEADER:
                _begin(sight, frames, state)
            elif phase == AT_END:
                _at_end(sight, frames, state)
            else:
                _at_step(sight, frames, state)
            continue
        if not _look_on(sight, state):
            return MORE
        _settle(sight, frames, state)
    return FULL if state.tail == NO_TAIL else DONE


@kernel
def frame_values(data: Any, bounds: Any, valid: Any, frames: Any) -> None:
    """Take values as containers, by their headers, or as records.

    Args:
        data: uint8, the values back to back.
        bounds: int64, where each value starts, and the last one ends.
        valid: bool per value.
        frames: `FRAME` records, one per value. Those of broken containers have a kind; their records are read as far as
            the header lets.
    """
    for i in range(len(valid)):
        start = bounds[i]
        end = bounds[i + 1] if valid[i] else start
        frames[i].start = frames[i].first = start
        frames[i].end = frames[i].next = end
        if end - start < layout.CONTAINER_HEADER_SIZE:
            continue
        at = np.uint64(start)
        length = np.int64(load_u32(data, at))
        word = np.int64(load_u32(data, at + _VERSION))
        time = np.uint64(load_u64(data, at + _TIMESTAMP)).view(np.int64)
        version = word >> layout.VERSION_SHIFT
        bare = word == version << layout.VERSION_SHIFT and version != 0
        # Whose word is bare is a container, whatever is wrong with its first record.
        seen = not bare and end - start >= LOOK
        record = np.int64(load_u32(data, at + _HEADER)) if seen else np.int64(judge.UNSEEN)
        sound = _is_header(length, judge.PLAIN_WORD if bare else word, time, record, word)
        if sound and version == layout.VERSION:
            claimed = start + layout.LENGTH_SIZE + length
            frames[i].first = start + layout.CONTAINER_HEADER_SIZE
            frames[i].end = min(claimed, end)
            frames[i].time = time
            if claimed > end:
                frames[i].kind = _BAD_LENGTH
        elif bare and (sound or version == layout.VERSION):
            frames[i].kind = _UNKNOWN_VERSION if sound else _BAD_HEADER
            frames[i].first = end
        else:
            continue
        frames[i].one = length
        frames[i].two = end if frames[i].kind == _BAD_LENGTH else version if sound else word
