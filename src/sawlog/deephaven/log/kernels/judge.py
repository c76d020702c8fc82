"""Judges entries: where each ends, whether it is whole, and where the chain goes on after damage.

An entry states its own size, so entries are chained from the end of the header on. Where the chain breaks, the next
entry is searched byte by byte; see `_agrees` for what is taken for one. See `sawlog.chain` for the verdicts.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import (
    DAMAGED,
    ENDED,
    FOUND,
    GOOD,
    LOST,
    SHORT,
    SKIPPED,
    TORN,
    blame,
    make_state_type,
    search_chain,
)
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.kernels.digest import STEP, compute_digest
from sawlog.deephaven.log.kernels.gather import COLUMN
from sawlog.deephaven.log.kernels.locate import find_row_end
from sawlog.deephaven.log.layout import BinaryLogDamageKind
from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import load_big_u32, load_u64
from sawlog.kernels.numbers import _EIGHT, _ONE, _ZERO
from sawlog.kernels.signature import Array, Bool, Int64, OutUInt32s, OutUInt64s, UInt64

STATE = make_state_type(
    # While something is lost:
    "following",  # where a bad entry ends by its own account; -1 when it cannot be, or when that has been looked at
    "cut_off",  # 1 when the end of the file cuts the bad entry off, which is then no damage but the tail
    "suspected",  # the length of a bad entry of which only the digest is wrong, and its flags
    "suspected_flags",
    "zeros_go_on",  # 1 while all bytes since `lost` are zero
    # The running sums, see `sawlog.deephaven.log.kernels.digest`:
    "sums_wanted",  # 1 when there should be room for them
    "origin",  # byte that they begin at; -1 when there are none
    "ready",  # bytes that they cover; a multiple of `STEP`
    # Rows, see `sawlog.deephaven.log.kernels.rows`:
    "trusted",  # entries before this byte were walked before: they are intact, and their rows are to be delivered
    "doomed",  # likewise, but their rows belong to a set that damage has broken
    "set_start",  # start of the set that is being walked, to see how it ends; -1 when there is none
    "set_rows",
    "orphaned",  # 1 after damage, until a set begins: what follows may lack its start
    "orphaned_from",  # then: the start of that damage, or of the set that it broke
    "uneven",  # 1 while rows differ too often in which columns they have
    "orphan_rows",
    "aborted_rows",
    "deleted_rows",
    "undigested",  # commands without a digest
    "last_delete",  # end of the last DELETE_PARTITION; -1 when there was none
    # Scans, see `sawlog.deephaven.log.kernels.scan`:
    "target",  # stop at the first entry at or past this byte that begins a set
    "cut",  # that entry; -1 when none was found
)
"""The state of a walk over entries."""


class Rules(NamedTuple):
    """Rules by which entries are judged.

    Attributes:
        longest: uint64, longest plausible entry, in bytes after its size.
        verify: Whether digests are verified.
        vouched: Whether digests vouch for flags; reserved ones of entries that nobody verifies are damage.
        strict: Whether reserved flags and bytes after the last column are damage.
        presence: int64, bytes of a presence map.
        columns: The stored columns, see `sawlog.deephaven.log.kernels.gather`.
        places: uint32, CHUNK times one more than columns: scratch.
        totals: uint64, room for the running sums; one item as long as there are none.
        weights: uint64, likewise.
        live_from: uint64, rows before this byte were deleted by a later DELETE_PARTITION.
        emit: Whether rows of sets that lack a member are delivered all the same.
        applies_deletes: Whether a DELETE_PARTITION ends a set.
        notes_aborted: Whether aborted sets are written down one by one.
    """

    longest: UInt64
    verify: Bool
    vouched: Bool
    strict: Bool
    presence: Int64
    columns: Annotated[Any, Array(COLUMN, writable=True)]
    places: OutUInt32s
    totals: OutUInt64s
    weights: OutUInt64s
    live_from: UInt64
    emit: Bool
    applies_deletes: Bool
    notes_aborted: Bool


REACH = 8 << 20
"""Bytes in sight that the search wants, to follow chains of entries through."""
_REACH = np.uint64(REACH)
_SIZE = np.uint64(layout.SIZE_SIZE)
_HEAD = np.uint64(layout.SIZE_SIZE + layout.FLAGS_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_FLAGS = np.uint64(layout.SIZE_SIZE)
_MIN = np.uint64(layout.MIN_ENTRY_SIZE)
_RECORD_TYPE = np.uint64(layout.RECORD_TYPE_OFFSET)
_COMMAND_ID = np.uint64(layout.RECORD_DATA_OFFSET)
_COMMAND = np.uint64(layout.COMMAND_RECORD)
_DELETE = np.uint64(layout.DELETE_PARTITION)
_BARE_COMMAND = np.uint64(layout.BARE_COMMAND_SIZE)
_RECORD = np.uint64(layout.Flag.RECORD)
_RECORD_BIT = int(layout.Flag.RECORD)
_KNOWN_FLAGS = np.uint64(layout.KNOWN_FLAGS)
_SIGN = np.uint64(1 << 31)

# Typed, so that what they are passed to is compiled once.
_NONE = np.int64(-1)
_NOUGHT = np.int64(0)
_VERIFY = np.bool_(True)
_BAD_SIZE = np.int64(BinaryLogDamageKind.BAD_SIZE)
_MISMATCH = np.int64(BinaryLogDamageKind.CHECKSUM_MISMATCH)
_BAD_FLAGS = np.int64(BinaryLogDamageKind.BAD_FLAGS)
_UNKNOWN_FLAGS = np.int64(BinaryLogDamageKind.UNKNOWN_FLAGS)
_BAD_ROW = np.int64(BinaryLogDamageKind.BAD_ROW)
_UNUSED = np.int64(BinaryLogDamageKind.UNUSED_SPACE)

_WHOLE = 0
_MISMATCHED = 1
_BEYOND = 2
_IMPOSSIBLE = 3
_UNSEEN = 4


@inlined
def read_flags(data: Any, pos: Any) -> Any:
    """Return the flags of an entry, without reserved ones."""
    return np.uint64(data[pos + _FLAGS]) & _KNOWN_FLAGS


@inlined
def has_digest(data: Any, pos: Any, total: Any) -> Any:
    """Return whether the entry at `pos` ends with a digest: all do but commands without room for one after their id.

    Published texts differ on whether records that are no rows have digests; a writer that leaves them out does so in
    every command. One without data cannot be mistaken; with data, its last bytes look like a digest that is wrong.
    """
    if total != _BARE_COMMAND or read_flags(data, pos) != _RECORD:
        return True
    return load_big_u32(data, pos + _RECORD_TYPE) != _COMMAND


@inlined
def is_delete(data: Any, pos: Any, total: Any) -> Any:
    """Return whether the record at `pos` is the command DELETE_PARTITION."""
    if total < _BARE_COMMAND or load_big_u32(data, pos + _RECORD_TYPE) != _COMMAND:
        return False
    return load_big_u32(data, pos + _COMMAND_ID) == _DELETE


@inlined
def _judge_frame(window: Any, pos: Any, verify: Any, state: Any, rules: Any) -> Any:
    """Judge an entry at `pos` by its size and its digest.

    Returns:
        _WHOLE, _MISMATCHED, _BEYOND (it ends past the file), _IMPOSSIBLE (its size is), or _UNSEEN (it ends past
        the window); and its bytes.
    """
    data = window.data
    limit = np.uint64(len(data))
    if pos + _HEAD > limit:
        return _UNSEEN, _HEAD
    length = load_big_u32(data, pos)
    total = _SIZE + length
    if length < _MIN or length > rules.longest:
        return _IMPOSSIBLE, total
    if window.base + pos + total > window.size:
        return _BEYOND, total
    if pos + total > limit:
        return _UNSEEN, total
    if verify and has_digest(data, pos, total):
        covered = total - _DIGEST
        if load_big_u32(data, pos + covered) != compute_digest(window, pos, covered, state, rules):
            return _MISMATCHED, total
    return _WHOLE, total


@inlined
def _holds_zeros(data: Any, pos: Any) -> Any:
    """Return whether the next bytes, up to `STEP` of them, are zero."""
    stop = min(pos + np.uint64(STEP), np.uint64(len(data)))
    while pos < stop:
        if data[pos] != 0:
            return False
        pos += _ONE
    return True


@inlined
def _agrees(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Return whether a chain of entries begins at `pos`: a good one, then another good one or the end of the file.

    The digest of a short entry is weak, so a single one is no proof. Two in a row, the second exactly where the first
    one says, leave random bytes a chance of less than 2**-58 per place. One bad digest between the two is let pass;
    zeros up to the end, or an entry cut off by it, are as good as the end.
    """
    verdict, total = _judge_frame(window, pos, _VERIFY, state, rules)
    if verdict != _WHOLE:
        return False
    following = pos + total
    for _ in range(2):
        if window.base + following + _HEAD > window.size:
            return True
        if following + _HEAD > np.uint64(len(window.data)):
            return False
        verdict, total = _judge_frame(window, following, _VERIFY, state, rules)
        if verdict == _WHOLE:
            return True
        if verdict >= _IMPOSSIBLE:
            return load_big_u32(window.data, following) == _ZERO and _holds_zeros(window.data, following)
        following += total
        if window.base + following >= window.size:
            return True
    return False


@inlined
def _find_chain(window: Any, pos: Any, goal: Any, state: Any, rules: Any) -> Any:
    """Return where, from `pos` on, good entries begin that lead from one to the next to `goal`; `goal` if none do."""
    while pos < goal:
        start = pos
        verdict, total = _judge_frame(window, pos, _VERIFY, state, rules)
        while verdict == _WHOLE and pos + total < goal:
            pos += total
            verdict, total = _judge_frame(window, pos, _VERIFY, state, rules)
        if verdict == _WHOLE and pos + total == goal:
            return start
        # What has led nowhere is passed over as a whole, so that nothing is looked at twice.
        pos = max(pos, start + _ONE)
    return goal


@inlined
def _pass_zeros(window: Any, pos: Any, state: Any) -> Any:
    """Go on over zeros, which are padding if they reach the end of the file, and damage elsewhere."""
    data = window.data
    stop = min(np.uint64(len(data)), window.end - window.base)
    position = pos
    while stop - position >= _EIGHT and load_u64(data, position) == _ZERO:
        position += _EIGHT
    while position < stop and data[position] == 0:
        position += _ONE
    if window.base + position >= window.end:
        if window.end < window.size:
            return FOUND, position - pos
        state.zeros = state.lost
        state.padding_bytes += np.int64(window.end) - state.lost
        state.lost = -1
        return SKIPPED, position - pos
    state.zeros_go_on = 0 if position < stop else 1
    # The last of the zeros may be the first bytes of a size.
    back = min(position - pos, _SIZE - _ONE)
    if state.zeros_go_on != 0 and back == position - pos:
        return SHORT, _REACH
    return SKIPPED, position - pos - back


@inlined
def _search(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Find the next good entry after a bad one.

    A good entry where the bad one says that it ends is taken first. Then only the content of the bad one is damaged,
    and nothing in it may be mistaken for entries. If entries in it lead exactly there, its size is damaged instead.
    """
    if len(rules.totals) < 2:
        state.sums_wanted = 1
        return SHORT, _ONE
    if state.zeros_go_on != 0:
        return _pass_zeros(window, pos, state)
    limit = np.uint64(len(window.data))
    is_complete = window.base + limit >= window.size
    if state.following >= 0:
        following = np.uint64(state.following) - window.base
        in_sight = following + _SIZE <= limit
        reach = following + _SIZE
        if in_sight:
            reach += min(load_big_u32(window.data, following), rules.longest) + _EIGHT
        if reach > limit and not is_complete:
            return SHORT, reach - pos
        good = window.base + following == window.end or window.base + following == window.size
        if good or (in_sight and _judge_frame(window, following, _VERIFY, state, rules)[0] == _WHOLE):
            state.following = -1
            chain_start = _find_chain(window, pos, following, state, rules)
            return FOUND, min(chain_start, window.end - window.base) - pos
        state.following = -1
    verdict, size = search_chain(_agrees, window.end, _REACH, window, pos, state, rules)
    if verdict == FOUND and state.cut_off != 0 and window.base + pos + size >= window.end:
        state.tail = state.lost
        state.lost = -1
        verdict = ENDED
    return verdict, size


@inlined
def _blame_entry(state: Any, rules: Any, kind: Any, first: Any, second: Any, following: Any) -> Any:
    """Return a bad entry: search for the next good one, once there is room for the running sums."""
    if len(rules.totals) < 2:
        state.sums_wanted = 1
        return SHORT, _ONE
    blame(state, kind, first, second)
    state.following = following
    state.cut_off = 0
    state.zeros_go_on = 0
    return LOST, _ONE


@inlined
def _cast_signed(length: Any) -> Any:
    """Return a size as the signed number that it is."""
    return np.int64(length) - (np.int64(1 << 32) if length >= _SIGN else np.int64(0))


@inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Judge what is at a position. See `sawlog.chain`."""
    if state.lost >= 0:
        return _search(window, pos, state, rules)
    data = window.data
    position = window.base + pos
    if position >= window.end:
        return ENDED, _ZERO
    remaining = window.end - position
    last = window.end == window.size
    if remaining < _SIZE and last:
        return TORN, remaining
    if np.uint64(len(data)) - pos < min(_HEAD, window.size - position):
        return SHORT, _HEAD
    length = load_big_u32(data, pos)
    total = _SIZE + length
    if length == _ZERO:
        outcome = _blame_entry(state, rules, _UNUSED, _NOUGHT, _NOUGHT, _NONE)
        state.zeros_go_on = 1
        return outcome
    if length < _MIN or length > rules.longest or (total > window.size - position and not last):
        return _blame_entry(state, rules, _BAD_SIZE, _cast_signed(length), np.int64(_MIN), _NONE)
    if total > remaining and last:
        outcome = _blame_entry(state, rules, _BAD_SIZE, np.int64(length), np.int64(_MIN), _NONE)
        state.cut_off = 1
        return outcome
    # What is deleted hangs on records: they are verified even where rows are not, by who looks for nothing else.
    verify = rules.verify or (rules.vouched and data[pos + _FLAGS] & _RECORD_BIT != 0)
    verdict, total = _judge_frame(window, pos, verify, state, rules)
    if verdict == _UNSEEN:
        return SHORT, total
    if verdict == _MISMATCHED:
        covered = total - _DIGEST
        expected = np.int64(compute_digest(window, pos, covered, state, rules))
        stored = np.int64(load_big_u32(data, pos + covered))
        state.suspected = total
        state.suspected_flags = data[pos + _FLAGS]
        return _blame_entry(state, rules, _MISMATCH, expected, stored, np.int64(position + total))
    if total > remaining:
        return _blame_entry(state, rules, _BAD_SIZE, _cast_signed(length), np.int64(_MIN), _NONE)
    flags = np.uint64(data[pos + _FLAGS])
    if flags > _KNOWN_FLAGS and not rules.vouched:
        return _blame_entry(state, rules, _BAD_FLAGS, np.int64(flags), _NOUGHT, _NONE)
    if flags > _RECORD and rules.strict:
        blame(state, _UNKNOWN_FLAGS if rules.vouched else _BAD_FLAGS, np.int64(flags), _NOUGHT)
        return DAMAGED, total
    if flags & _RECORD == _ZERO:
        finish_ = pos + total - _DIGEST
        stop = find_row_end(data, pos + _HEAD, finish_, rules, _NOUGHT)
        if stop > finish_ or (rules.strict and stop != finish_):
            blame(state, _BAD_ROW, np.int64(total), np.int64(stop - pos))
            return DAMAGED, total
    return GOOD, total
