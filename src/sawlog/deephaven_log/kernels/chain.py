"""The chain of entries: judging them, and passing over damage.

An entry tells its own size, so entries are chained from the end of the header on. Where the chain breaks, the next
entry is searched byte by byte; see `_agrees` for what is taken for one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.deephaven_log.layout import Kind
from sawlog.kernels.adler32 import LONGEST, adler32, finish, sums
from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_big_u32, load_u64

# Fields of the state, an int64 array shared by all kernels of this format. Offsets are those of the file.
POSITION = 0
"""Where the window begins, and where to go on."""
SIZE = 1
"""Bytes in the file."""
END = 2
"""End of what is read: the start of another fragment's first entry, or the size of the file."""
MAX_ENTRY = 3
VERIFY = 4
STRICT = 5
NEED = 6
"""Bytes that the next window must have at least."""
TORN = 7
"""1 when the end was met inside an entry."""
TAIL = 8
"""Where the unfinished tail begins; -1 when there is none."""
ZEROS = 9
"""Start of the zeros that reach up to the position; -1 when there are none."""
BAD_AT = 10
"""Start of a bad entry behind which the next good one is searched; -1 when there is none."""
BAD_KIND = 11
BAD_ONE = 12
BAD_TWO = 13
BAD_NEXT = 14
"""Where the bad entry ends by its own account; -1 when it cannot be."""
SEARCH = 15
"""The next byte to try."""
DAMAGE_START = 16
DAMAGE_END = 17
ORIGIN = 18
"""Byte that the running sums begin at; -1 when there are none."""
READY = 19
"""Bytes that they cover; a multiple of `STEP`."""
EVENTS = 20
ROWS = 21
TARGET = 22
"""Walking: stop at the first entry at or behind this byte that a fragment may begin with."""
LAST_DELETE = 23
"""End of the last DELETE_PARTITION; -1 when there was none."""
UNDIGESTED = 24
"""Commands without a digest."""
CHAIN_FIELDS = 25

# What a call ended with.
OK = 0
MORE = 1
"""The window is used up: go on with one from POSITION, of NEED bytes at least."""
FULL = 2
"""No room for more rows, bytes or events."""
FINISHED = 3
TABLE = 4
"""The running sums are needed, which are allocated only for damaged files."""
DAMAGE = 5
CUT = 6

EVENT_FIELDS = 5
"""Kind, offset, length, and two numbers for the message."""

STEP = 64
"""The running sums are noted every so many bytes."""
TABLE_BYTES = LONGEST
"""Bytes that the running sums can cover."""
REACH = 8 << 20
"""Bytes in sight that the search wants, to follow chains of entries through."""

SUMMED = np.uint64(1024)
"""Longer stretches are looked up in the running sums, once a file has shown damage."""

_STEP = np.uint64(STEP)
_REACH = np.uint64(REACH)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SIZE = np.uint64(layout.SIZE_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_FLAGS = np.uint64(layout.SIZE_SIZE)
_MIN = np.uint64(layout.MIN_ENTRY_SIZE)
_RECORD_TYPE = np.uint64(layout.RECORD_TYPE_OFFSET)
_RECORD_DATA = np.uint64(layout.RECORD_DATA_OFFSET)
_COMMAND = np.uint64(layout.COMMAND_RECORD)
_DELETE = np.uint64(layout.DELETE_PARTITION)
_DELETE_TOTAL = np.uint64(layout.RECORD_DATA_OFFSET + layout.COUNT_SIZE + layout.DIGEST_SIZE)
_RECORD = np.uint64(layout.Flag.RECORD)
_KNOWN_FLAGS = np.uint64(layout.KNOWN_FLAGS)

_SIGN = np.uint64(1 << 31)

_TORN_ENTRY = -1
_BAD_SIZE = int(Kind.BAD_SIZE)
_MISMATCH = int(Kind.CHECKSUM_MISMATCH)
_BAD_FLAGS = int(Kind.BAD_FLAGS)
_UNUSED = int(Kind.UNUSED_SPACE)

_GOOD = 0
_BAD = 1
_PLAUSIBLE = 2


@inlined
def note(events: Any, state: Any, kind: Any, offset: Any, length: Any, one: Any, two: Any) -> None:
    """Write down a damage."""
    row = state[EVENTS]
    events[row, 0] = kind
    events[row, 1] = offset
    events[row, 2] = length
    events[row, 3] = one
    events[row, 4] = two
    state[EVENTS] = row + 1


@inlined
def _sums_up_to(window: Any, base: Any, offset: Any, state: Any, totals: Any, weights: Any) -> Any:
    """The two sums over everything from ORIGIN up to ORIGIN + offset."""
    row = offset // _STEP
    start = np.uint64(state[ORIGIN]) + row * _STEP - base
    return sums(window, start, offset - row * _STEP, totals[row], weights[row])


@inlined
def digest_of(window: Any, base: Any, start: Any, length: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Adler-32 of `window[start : start + length]`.

    Once a file has shown damage, long stretches are looked up in running sums: claims of size that overlap, as hostile
    files make them, would otherwise have the same bytes summed over and over.
    """
    capacity = np.uint64(len(totals) - 1) * _STEP
    if length <= SUMMED or length > capacity:
        return adler32(window, start, length)
    at = base + start
    origin = np.uint64(max(state[ORIGIN], 0))
    stale = state[ORIGIN] < 0 or at < origin
    first = _ZERO if stale else at - origin
    if not stale:
        held = origin + min(first // _STEP * _STEP, np.uint64(state[READY]))
        stale = first + length > capacity or held < base
    if stale:
        state[ORIGIN] = at
        state[READY] = 0
        totals[0] = _ZERO
        weights[0] = _ZERO
        origin = at
        first = _ZERO
    ready = np.uint64(state[READY])
    while ready + _STEP <= first + length:
        row = ready // _STEP
        total, weighted = sums(window, origin + ready - base, _STEP, totals[row], weights[row])
        ready += _STEP
        totals[row + _ONE] = total
        weights[row + _ONE] = weighted
    state[READY] = ready
    total, weighted = _sums_up_to(window, base, first + length, state, totals, weights)
    before, weighted_before = _sums_up_to(window, base, first, state, totals, weights)
    return finish(total - before, weighted - weighted_before - length * before, length)


@inlined
def is_delete(window: Any, pos: Any, total: Any) -> Any:
    """Whether the non-row entry at `pos` is the command DELETE_PARTITION."""
    if total < _RECORD_DATA + _FOUR:
        return False
    kind = load_big_u32(window, pos + _RECORD_TYPE)
    return kind == _COMMAND and load_big_u32(window, pos + _RECORD_DATA) == _DELETE


@inlined
def _inspect(window: Any, base: Any, pos: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Whether there is a good entry at `pos`, for the search: its digest is always verified.

    Returns:
        _GOOD, _BAD, or _PLAUSIBLE for one whose digest alone does not match or that ends behind the file; its size.
    """
    limit = np.uint64(len(window))
    if pos + _SIZE + _ONE > limit:
        return _BAD, _ZERO
    length = load_big_u32(window, pos)
    if length < _MIN or length > np.uint64(state[MAX_ENTRY]) or window[pos + _FLAGS] > _RECORD:
        return _BAD, _ZERO
    total = _SIZE + length
    if base + pos + total > np.uint64(state[SIZE]):
        return _PLAUSIBLE, total
    if pos + total > limit:
        return _BAD, total
    checked = total - _DIGEST
    if load_big_u32(window, pos + checked) == digest_of(window, base, pos, checked, state, totals, weights):
        return _GOOD, total
    return _PLAUSIBLE, total


@inlined
def _agrees(window: Any, base: Any, pos: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Whether a chain of entries begins at `pos`: a good one, and behind it another good one or the end of the file.

    The digest of a short entry is weak, so one alone proves nothing. Two in a row, the second exactly where the first
    one says, leave random bytes a chance of less than 2**-64 per place. One bad digest between the two is let pass;
    zeros up to the end, or an entry cut off by it, are as good as the end.
    """
    verdict, total = _inspect(window, base, pos, state, totals, weights)
    if verdict != _GOOD:
        return False
    size = np.uint64(state[SIZE])
    limit = np.uint64(len(window))
    following = pos + total
    for _ in range(2):
        if base + following + _SIZE + _ONE > size:
            return True
        if following + _SIZE + _ONE > limit:
            return False
        verdict, total = _inspect(window, base, following, state, totals, weights)
        if verdict == _GOOD:
            return True
        if verdict == _BAD:
            return load_big_u32(window, following) == _ZERO and _only_zeros(window, following)
        following += total
        if base + following >= size:
            return True
    return False


@inlined
def _chain_to(window: Any, base: Any, pos: Any, goal: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Where good entries begin that lead from one to the next exactly to `goal`, from `pos` on; `goal` if none do."""
    while pos < goal:
        start = pos
        verdict, total = _inspect(window, base, pos, state, totals, weights)
        while verdict == _GOOD and pos + total < goal:
            pos += total
            verdict, total = _inspect(window, base, pos, state, totals, weights)
        if verdict == _GOOD and pos + total == goal:
            return start
        # What has led nowhere is passed over as a whole, so that nothing is looked at twice.
        pos = max(pos, start + _ONE)
    return goal


@inlined
def _only_zeros(window: Any, pos: Any) -> Any:
    """Whether the next bytes, up to `STEP` of them, are zero."""
    stop = min(pos + _STEP, np.uint64(len(window)))
    while pos < stop:
        if window[pos] != 0:
            return False
        pos += _ONE
    return True


@inlined
def _search(window: Any, base: Any, pos: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Find the next good entry behind a bad one.

    A good entry where the bad one ends by its own account is taken first: then only its content is damaged, and nothing
    in it may be mistaken for entries; unless entries in it lead exactly there, for then it is its size that is damaged.

    Returns:
        DAMAGE, MORE, TABLE or FINISHED (a torn tail), and the position.
    """
    if len(totals) < 2:
        return TABLE, np.uint64(min(state[SEARCH], np.int64(base + pos))) - base
    end = np.uint64(state[END])
    size = np.uint64(state[SIZE])
    limit = np.uint64(len(window))
    whole = base + limit >= size
    found = end
    searching = True
    if state[BAD_NEXT] >= 0:
        following = np.uint64(state[BAD_NEXT]) - base
        in_sight = following + _SIZE <= limit
        reach = following + _SIZE
        if in_sight:
            reach = following + _SIZE + min(load_big_u32(window, following), np.uint64(state[MAX_ENTRY])) + _EIGHT
        if reach > limit and not whole and pos > 0:
            state[NEED] = reach - pos
            return MORE, pos
        good = np.uint64(state[BAD_NEXT]) == end or base + following == size
        if good or (in_sight and _inspect(window, base, following, state, totals, weights)[0] == _GOOD):
            searching = False
            inside = np.uint64(state[SEARCH]) - base
            found = min(base + _chain_to(window, base, inside, following, state, totals, weights), end)
        state[BAD_NEXT] = -1
    if searching:
        if np.uint64(state[SEARCH]) < base:
            return MORE, np.uint64(state[SEARCH]) - base
        pos = np.uint64(state[SEARCH]) - base
        while base + pos < end:
            if not whole and pos > 0 and limit - pos < _REACH:
                state[SEARCH] = base + pos
                state[NEED] = 4 * REACH
                return MORE, pos
            if _agrees(window, base, pos, state, totals, weights):
                found = base + pos
                break
            pos += _ONE
        if found == end and state[BAD_KIND] == _TORN_ENTRY:
            state[TORN] = 1
            state[TAIL] = state[BAD_AT]
            state[BAD_AT] = -1
            return FINISHED, pos
    if state[BAD_KIND] == _TORN_ENTRY:
        state[BAD_KIND] = _BAD_SIZE
        state[BAD_TWO] = _MIN
    state[DAMAGE_START] = state[BAD_AT]
    state[DAMAGE_END] = found
    state[BAD_AT] = -1
    return DAMAGE, found - base


@inlined
def _blame(state: Any, at: Any, kind: Any, one: Any, two: Any, following: Any) -> None:
    """Remember a bad entry, to search behind it."""
    state[BAD_AT] = at
    state[BAD_KIND] = kind
    state[BAD_ONE] = one
    state[BAD_TWO] = two
    state[BAD_NEXT] = following
    state[SEARCH] = at + _ONE


@inlined
def _pass_zeros(window: Any, base: Any, pos: Any, state: Any) -> Any:
    """Go on over zeros. Returns OK at the first other byte, MORE, or FINISHED at the end; and the position."""
    end = np.uint64(state[END])
    stop = min(np.uint64(len(window)), end - base)
    while stop - pos >= _EIGHT and load_u64(window, pos) == _ZERO:
        pos += _EIGHT
    while pos < stop and window[pos] == 0:
        pos += _ONE
    if base + pos >= end:
        return FINISHED, pos
    if pos < stop:
        return OK, pos
    # A size may begin in the last bytes seen.
    state[NEED] = REACH
    return MORE, pos - min(pos, _FOUR)


@inlined
def step(window: Any, base: Any, pos: Any, state: Any, totals: Any, weights: Any) -> Any:
    """Take the entry at `pos` of the window, which begins at file offset `base`.

    Returns:
        OK (a good entry), DAMAGE (from DAMAGE_START to DAMAGE_END, see BAD_KIND), FINISHED, MORE or TABLE; the position
        of the entry, or behind the damage; bytes of the entry.
    """
    at = base + pos
    end = np.uint64(state[END])
    limit = np.uint64(len(window))
    if state[BAD_AT] < 0 and state[ZEROS] < 0:
        left = end - at
        ahead = np.uint64(state[SIZE]) - at
        last = end == np.uint64(state[SIZE])
        if at >= end:
            return FINISHED, pos, _ZERO
        if left < _SIZE:
            if last:
                state[TORN] = 1
                state[TAIL] = at
                return FINISHED, pos, _ZERO
            _blame(state, at, _BAD_SIZE, left, _SIZE, -1)
        elif limit - pos < _SIZE:
            state[NEED] = REACH
            return MORE, pos, _ZERO
        else:
            length = load_big_u32(window, pos)
            total = _SIZE + length
            if length == _ZERO:
                state[ZEROS] = at
            elif length < _MIN or length > np.uint64(state[MAX_ENTRY]) or (total > ahead and not last):
                signed = np.int64(length) - (np.int64(1 << 32) if length >= _SIGN else np.int64(0))
                _blame(state, at, _BAD_SIZE, signed, _MIN, -1)
            elif total > ahead:
                _blame(state, at, _TORN_ENTRY, length, left, -1)
            elif total > limit - pos:
                state[NEED] = total
                return MORE, pos, _ZERO
            else:
                checked = total - _DIGEST
                flags = np.uint64(window[pos + _FLAGS])
                intact = True
                if state[VERIFY] != 0:
                    stored = load_big_u32(window, pos + checked)
                    expected = digest_of(window, base, pos, checked, state, totals, weights)
                    if stored != expected:
                        # Published texts differ on whether commands have digests; this one is certain without.
                        if flags == _RECORD and total + _DIGEST == _DELETE_TOTAL and is_delete(window, pos, total):
                            state[UNDIGESTED] += 1
                        else:
                            intact = False
                            _blame(state, at, _MISMATCH, expected, stored, at + total)
                if intact and total > left:
                    intact = False
                    _blame(state, at, _BAD_SIZE, np.int64(length), _MIN, -1)
                if intact:
                    bound = _KNOWN_FLAGS
                    if state[STRICT] != 0:
                        bound = _RECORD
                    elif state[VERIFY] != 0:
                        bound = np.uint64(255)
                    if flags <= bound:
                        return OK, pos, total
                    if state[VERIFY] == 0:
                        _blame(state, at, _BAD_FLAGS, flags, 0, -1)
                    else:
                        state[BAD_KIND] = _BAD_FLAGS
                        state[BAD_ONE] = flags
                        state[BAD_TWO] = 0
                        state[DAMAGE_START] = at
                        state[DAMAGE_END] = at + total
                        return DAMAGE, pos + total, total
    if state[ZEROS] >= 0:
        outcome, pos = _pass_zeros(window, base, pos, state)
        if outcome != OK and not (outcome == FINISHED and end < np.uint64(state[SIZE])):
            return outcome, pos, _ZERO
        zeros = np.uint64(state[ZEROS])
        state[ZEROS] = -1
        _blame(state, zeros, _UNUSED, 0, 0, -1)
        back = base + pos - min(pos, np.uint64(3))
        state[SEARCH] = max(back, zeros + _ONE)
    outcome, pos = _search(window, base, pos, state, totals, weights)
    return outcome, pos, _ZERO
