"""Finding the containers of a file: each from its header, the next one behind its end, or behind what is left of it.

Section 4 of the format. Headers carry no magic number and whole containers no size, so what is doubtful is settled by
looking for the next header that makes sense. The answer depends on the bytes alone, never on where a window begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import load_u32, load_u64

# Fields of the state, an int64 array. Offsets are those of the file.
POSITION = 0
"""The container that is being settled."""
STEP = 1
"""Bytes that whole containers take; 0 while unknown."""
ROWS = 2
WANTED = 3
"""Where the window must begin."""
PHASE = 4
MODE = 5
"""What a search is for."""
SEARCH = 6
"""Where it goes on."""
NONZERO = 7
"""1 when it met a byte other than zero."""
TAIL = 8
STATE_SIZE = 9

# Phases.
AT_HEADER = 0
AT_END = 1
AT_STEP = 2
SEARCHING = 3

# Modes.
PADDING = 0
"""Nothing that makes sense stands at the container's end: is it whole, of a size yet unknown?"""
RESYNC = 1
"""Neither does anything stand behind it: is its length wrong?"""
BEYOND = 2
"""It reaches beyond the end of the file: is it cut off, or its length wrong?"""
BROKEN = 3
"""Where a header is expected stands none."""

# Tails.
NO_TAIL = 0
TORN_HEADER = 1
TORN_CONTAINER = 2
UNUSED = 3

# Fields of a frame, a row of int64.
KIND = 0
"""0 for a container; a `Kind` where the header, or everything, is damaged."""
START = 1
FIRST = 2
"""Its first record."""
END = 3
"""Where its records end."""
NEXT = 4
ONE = 5
TWO = 6
TORN = 7
"""1 when the file ends before the container does."""
TIME = 8
"""Its timestamp."""
FRAME_FIELDS = 9

# What a call ended with.
MORE = 0
"""The window must begin at `WANTED`."""
FULL = 1
DONE = 2

LOOK = layout.CONTAINER_HEADER_SIZE + 4
"""Bytes from its start by which a header is judged: the header, and the length of the first record."""

_HEADER = np.uint64(layout.CONTAINER_HEADER_SIZE)
_LOOK = np.uint64(LOOK)
_LENGTH = np.uint64(layout.LENGTH_SIZE)
_VERSION = np.uint64(layout.VERSION_OFFSET)
_TIMESTAMP = np.uint64(layout.TIMESTAMP_OFFSET)
_VERSION_WORD = np.uint64(layout.VERSION << layout.VERSION_SHIFT)
_SHIFT = np.uint64(layout.VERSION_SHIFT)
_KNOWN_VERSION = np.uint64(layout.VERSION)
_EMPTY = np.uint64(layout.EMPTY_CONTAINER)
_MOST = np.uint64(layout.MAX_CONTAINER_SIZE)
_ALIGNED = np.uint64(layout.ALIGNMENT - 1)
_LAST_TIMESTAMP = np.uint64(layout.MAX_TIMESTAMP)
_ZERO = np.uint64(0)
_FOUR = np.uint64(4)
_UNKNOWN_VERSION = int(Kind.UNKNOWN_VERSION)
_BAD_HEADER = int(Kind.BAD_HEADER)
_BAD_LENGTH = int(Kind.BAD_CONTAINER_LENGTH)
_UNIT = layout.WHOLE_UNIT
_SMALLEST = layout.MIN_CONTAINER_SIZE


@inlined
def makes_sense(window: Any, at: Any, left: Any) -> Any:
    """Whether a container begins at window position `at`; `left` bytes of the file follow, LOOK are in the window."""
    if left < _HEADER or load_u32(window, at + _VERSION) != _VERSION_WORD:
        return False
    length = load_u32(window, at)
    if length < _EMPTY or length > _MOST or length & _ALIGNED != _ZERO:
        return False
    if load_u64(window, at + _TIMESTAMP) > _LAST_TIMESTAMP:
        return False
    if length == _EMPTY or left < _LOOK:
        return True
    record = load_u32(window, at + _HEADER)
    return record >= _FOUR and record + _HEADER <= length


@inlined
def _emit(
    frames: Any, state: Any, head: Any, kind: Any, first: Any, end: Any, following: Any, one: Any, two: Any
) -> None:
    """Write the frame that starts at POSITION down, and go on behind it."""
    row = state[ROWS]
    frames[row, KIND] = kind
    frames[row, START] = state[POSITION]
    frames[row, FIRST] = first
    frames[row, END] = end
    frames[row, NEXT] = following
    frames[row, ONE] = one
    frames[row, TWO] = two
    frames[row, TORN] = 0
    frames[row, TIME] = head[2]
    state[ROWS] = row + 1
    state[POSITION] = following
    state[PHASE] = AT_HEADER


@inlined
def _search(state: Any, mode: Any, start: Any) -> None:
    state[PHASE] = SEARCHING
    state[MODE] = mode
    state[SEARCH] = start
    state[NONZERO] = 0


@inlined
def _settle(frames: Any, state: Any, head: Any, size: Any, found: Any) -> None:
    """A search ended: at the header `found`, or, without one, at the end of the file."""
    length = head[0]
    start = state[POSITION]
    first = start + layout.CONTAINER_HEADER_SIZE
    end = start + layout.LENGTH_SIZE + length
    mode = state[MODE]
    if mode == PADDING:
        step = found - start
        if step >= _SMALLEST and step % _UNIT == 0:
            state[STEP] = step
            _emit(frames, state, head, 0, first, end, found, 0, 0)
        elif size - end < layout.CONTAINER_HEADER_SIZE:
            _emit(frames, state, head, 0, first, end, end, 0, 0)
        else:
            _search(state, RESYNC, first)
    elif mode == RESYNC:
        if found < end:
            _emit(frames, state, head, _BAD_LENGTH, first, found, found, length, found)
        else:
            _emit(frames, state, head, 0, first, end, end, 0, 0)
    elif mode == BEYOND:
        if found < size:
            _emit(frames, state, head, _BAD_LENGTH, first, found, found, length, found)
        else:
            _emit(frames, state, head, 0, first, size, size, 0, 0)
            frames[state[ROWS] - 1, TORN] = 1
            state[TAIL] = TORN_CONTAINER
    elif found == size and state[NONZERO] == 0:
        state[TAIL] = UNUSED
    else:
        _emit(frames, state, head, _BAD_HEADER, found, found, found, length, head[1])


@kernel
def frame_containers(window: Any, base: Any, size: Any, end: Any, head: Any, state: Any, frames: Any) -> Any:
    """Settle containers from POSITION on.

    Args:
        window: uint8, the file from `base` on; it reaches at least LOOK + 8 bytes behind WANTED, or to its end.
        base: uint64, file offset of the window.
        size: uint64, bytes in the file.
        end: uint64, containers that start at or behind it are not ours.
        head: int64[3], length, version word and timestamp of the container at POSITION, kept between calls.
        state: int64[STATE_SIZE], updated.
        frames: int64[:, FRAME_FIELDS].

    Returns:
        MORE, FULL or DONE.
    """
    limit = base + np.uint64(len(window))
    while state[ROWS] < len(frames) and state[TAIL] == NO_TAIL:
        start = np.uint64(state[POSITION])
        phase = state[PHASE]
        if phase == AT_HEADER:
            if start >= end or start >= size:
                return DONE
            left = size - start
            if left < _HEADER:
                state[TAIL] = TORN_HEADER
                break
            if start < base or limit - start < min(left, _LOOK) or start > limit:
                state[WANTED] = start
                return MORE
            length = load_u32(window, start - base)
            word = load_u32(window, start - base + _VERSION)
            head[0] = length
            head[1] = word
            head[2] = np.uint64(load_u64(window, start - base + _TIMESTAMP)).view(np.int64)
            if length < _EMPTY or length > _MOST:
                _search(state, BROKEN, start + np.uint64(1))
                state[NONZERO] = 1 if window[start - base] != 0 else 0
            elif length + _LENGTH == left and word >> _SHIFT == _KNOWN_VERSION:
                _emit(frames, state, head, 0, start + _HEADER, size, size, 0, 0)
            elif length + _LENGTH > left:
                if word >> _SHIFT == _KNOWN_VERSION:
                    _search(state, BEYOND, start + _HEADER)
                else:
                    _search(state, BROKEN, start + np.uint64(1))
                    state[NONZERO] = 1
            else:
                state[PHASE] = AT_END
            continue
        length = np.uint64(head[0])
        stop = start + _LENGTH + length
        if phase == SEARCHING:
            at = np.uint64(state[SEARCH])
            if at < base or at > limit or (limit < size and limit - at < _LOOK):
                state[WANTED] = at
                return MORE
            found = size
            nonzero = state[NONZERO]
            while at < size:
                if limit < size and limit - at < _LOOK:
                    break
                if makes_sense(window, at - base, size - at):
                    found = at
                    break
                if window[at - base] != 0:
                    nonzero = 1
                at += np.uint64(1)
            state[SEARCH] = at
            state[NONZERO] = nonzero
            if at < size and found == size:
                state[WANTED] = at
                return MORE
            _settle(frames, state, head, np.int64(size), np.int64(found))
            continue
        at = stop if phase == AT_END else start + np.uint64(state[STEP])
        sensible = at == size
        if at < size:
            if at < base or at > limit or limit - at < min(size - at, _LOOK):
                state[WANTED] = at
                return MORE
            sensible = makes_sense(window, at - base, size - at)
        if np.uint64(head[1]) >> _SHIFT != _KNOWN_VERSION:
            if sensible:
                _emit(frames, state, head, _UNKNOWN_VERSION, stop, stop, stop, head[0], head[1] >> layout.VERSION_SHIFT)
            else:
                _search(state, BROKEN, start + np.uint64(1))
                state[NONZERO] = 1
        elif sensible:
            _emit(frames, state, head, 0, start + _HEADER, stop, at, 0, 0)
        elif phase == AT_END and state[STEP] == 0:
            _search(state, PADDING, stop + np.uint64(1))
        elif phase == AT_END and start + np.uint64(state[STEP]) >= stop:
            if start + np.uint64(state[STEP]) > size:
                # The file was cut off in the unused rest of a whole container.
                _emit(frames, state, head, 0, start + _HEADER, stop, size, 0, 0)
            else:
                state[PHASE] = AT_STEP
        elif size - stop < _HEADER:
            _emit(frames, state, head, 0, start + _HEADER, stop, stop, 0, 0)
        else:
            _search(state, RESYNC, start + _HEADER)
    return FULL if state[TAIL] == NO_TAIL else DONE
