"""The walk over the records of a container. Sections 1 and 4 of the format; see `sawlog.chain` and `framing`."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import (
    DAMAGED,
    ENDED,
    EVENT,
    GOOD,
    HEADER,
    NO_ROOM,
    SHORT,
    TAKEN,
    Window,
    blame,
    make_record_type,
    walk_chain,
)
from sawlog.filodb import judge as header
from sawlog.filodb import layout
from sawlog.filodb.kernels import state as s
from sawlog.filodb.kernels.records import Out, ask_ahead, judge_record, on_damage, take_records
from sawlog.filodb.layout import ContainerDamageKind
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.layout import make_load
from sawlog.kernels.numbers import _U32, _ZERO
from sawlog.kernels.signature import Array, Bool, Bytes, Int64, OutInt64s, OutUInt64s, Record, UInt32s, UInt64, UInt64s
from sawlog.kernels.xxh32 import xxh32

_BAD_RECORD_LENGTH = int(ContainerDamageKind.BAD_RECORD_LENGTH)
_HIDDEN = int(ContainerDamageKind.HIDDEN_CONTAINER)
_UNKNOWN_VERSION = int(ContainerDamageKind.UNKNOWN_VERSION)
_BAD_HEADER = int(ContainerDamageKind.BAD_HEADER)
_BAD_LENGTH = int(ContainerDamageKind.BAD_CONTAINER_LENGTH)
_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_HEADER = np.uint64(layout.CONTAINER_HEADER_SIZE)
_LOOK = np.uint64(header.LOOK)
_MUCH = np.uint64(1 << 20)
"""Bytes of a window that are left behind before the next one is asked for, only to see where a container ends."""
_LAST = np.uint64(layout.VERSION_WORD.end - 1)
"""The last byte of the version word: the version itself."""
_HASH_SEED = np.uint64(layout.HASH_SEED)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_is_header = inlined(header.is_header)
_is_whole = inlined(header.is_whole)
_load_length = make_load(layout.LENGTH)
_load_word = make_load(layout.VERSION_WORD)
_load_time = make_load(layout.TIMESTAMP)


CONTAINER = make_record_type("start", "end", "following", "time", "records")
"""A container: where its header is, where its records end, where the next one begins, its timestamp, and how many
records it has."""


class Containers(NamedTuple):
    """Arrays that containers go to.

    Attributes:
        rows: `CONTAINER` records.
        starts: int64 per row, their headers.
        events: See `sawlog.chain.kernels.EVENT`.
        records: Whether records are counted; else they are passed over.
    """

    rows: Annotated[Any, Array(CONTAINER, writable=True)]
    starts: OutInt64s
    events: Annotated[Any, Array(EVENT, writable=True)]
    records: Bool


@inlined
def _sees(window: Any, place: Any) -> Any:
    """Return whether all that a header is judged by is in the window."""
    return place >= window.base and place - window.base + _LOOK <= np.uint64(len(window.data))


@inlined
def _has_header(window: Any, place: Any, rules: Any, searched: Any) -> Any:
    """Return whether a container begins at a file offset in the window.

    If it is searched for, its first record must fit.
    """
    if not _sees(window, place):
        return False
    pos, data = place - window.base, window.data
    length, word = np.int64(_load_length(data, pos)), np.int64(_load_word(data, pos))
    record = np.int64(_load_length(data, pos + _HEADER)) if searched else np.int64(header.UNSEEN)
    return _is_header(length, word, np.int64(_load_time(data, pos)), record, rules.flagged)


@inlined
def _stop_of(window: Any, pos: Any) -> Any:
    """Return where the records of the container at a file offset end."""
    return pos + np.uint64(layout.LENGTH_SIZE) + _load_length(window.data, pos - window.base)


@inlined
def _follows(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Return where the container after that at an offset begins, if that is beyond doubt; else 0.

    It begins where the records end, or one whole container further on; a header is there, too, or the file ends.
    """
    stop = _stop_of(window, pos)
    if stop == window.size or _has_header(window, stop, rules, False):
        return stop
    following = pos + np.uint64(state.step)
    if following < stop or not _has_header(window, following, rules, False):
        return _ZERO
    length = np.int64(_load_length(window.data, following - window.base))
    record = np.int64(_load_length(window.data, following - window.base + _HEADER))
    is_whole = rules.given or _is_whole(state.step, np.int64(following - stop), length, record, state.step)
    return following if is_whole else _ZERO


@inlined
def _open_sound(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Open the container at a position where nothing is doubtful; else ENDED, for the framing to go on."""
    offset = window.base + pos
    reach = max(_stop_of(window, offset), offset + np.uint64(state.step)) if _sees(window, offset) else offset
    if pos >= _MUCH and reach < window.size and not _sees(window, reach):
        return SHORT, min(_LOOK, window.size - offset)
    if state.ending != 0 or not _has_header(window, offset, rules, False):
        return ENDED, _ZERO
    if state.bound != 0:
        following = _stop_of(window, offset) if state.expected == np.int64(offset) else _ZERO
    else:
        following = _follows(window, offset, state, rules) if offset < window.end else _ZERO
    if following == _ZERO:
        return ENDED, _ZERO
    state.container, state.first, state.end, state.next = offset, offset + _HEADER, _stop_of(window, offset), following
    state.time = np.int64(_load_time(window.data, pos))
    state.inside, state.counted = 1, 0
    return HEADER, _HEADER


@inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Return a record, or the rest of a container.

    ENDED where the framing is to look: at doubtful headers, broken records.
    """
    offset = np.int64(window.base + pos)
    if state.inside == 0:
        return _open_sound(window, pos, state, rules)
    if offset >= state.end:
        if state.bound > offset and state.broken != offset:
            if not _has_header(window, window.base + pos, rules, True):
                return ENDED, _ZERO
            if np.int64(_stop_of(window, window.base + pos)) > state.bound:
                return ENDED, _ZERO
            # Among hidden containers, one after the other.
            state.broken = state.next = state.expected = offset
        elif state.bound > 0 and state.broken != offset:
            return ENDED, _ZERO
        return GOOD, np.uint64(state.next - offset)
    verdict, size, _ = judge_record(window, pos, np.uint64(state.end) - window.base, state, rules)
    broken = verdict == DAMAGED and state.kind in (_BAD_RECORD_LENGTH, _HIDDEN) and state.broken != offset
    if broken and not _holds_none(window, pos, state, rules):
        return ENDED, _ZERO
    return verdict, size


@inlined
def _holds_none(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Return whether no container begins where records are broken, in one that is too small for others after that."""
    reach = state.bound if state.bound > 0 else state.end
    small = reach - state.container < layout.WHOLE_UNIT and not rules.given
    return small and _sees(window, window.base + pos) and not _has_header(window, window.base + pos, rules, True)


@inlined
def _open_value(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Judge the value at a position, of a column of them: it is a container, by its header, or a record.

    The records of a container that is broken are read as far as its header lets.
    """
    offset = np.int64(window.base + pos)
    if offset >= np.int64(window.size):
        return ENDED, _ZERO
    value = state.value
    while rules.bounds[value + 1] <= offset:
        value += 1
    state.value = value
    stop = rules.bounds[value + 1]
    visible = min(np.uint64(stop - offset), _LOOK)
    if np.uint64(len(window.data)) - pos < visible:
        return SHORT, visible
    state.inside, state.first, state.end, state.next = 1, offset, stop, stop
    if visible < _HEADER:
        return HEADER, _ZERO
    data = window.data
    length, word = np.int64(_load_length(data, pos)), np.int64(_load_word(data, pos))
    time = np.int64(_load_time(data, pos))
    version = word >> layout.VERSION_SHIFT
    bare = word == version << layout.VERSION_SHIFT and version != 0
    # Whose word is bare is a container, whatever is wrong with its first record.
    record = np.int64(header.UNSEEN)
    if not bare and visible == _LOOK:
        record = np.int64(_load_length(data, pos + _HEADER))
    sound = _is_header(length, np.int64(header.PLAIN_WORD) if bare else word, time, record, word)
    if sound and version == layout.VERSION:
        claimed = offset + layout.LENGTH_SIZE + length
        state.time = time
        state.first, state.end = offset + layout.CONTAINER_HEADER_SIZE, min(claimed, stop)
        if claimed > stop:
            blame(state, _BAD_LENGTH, length, stop)
            state.inside = 1 if state.end > state.first else 0
            return DAMAGED, _HEADER
        return HEADER, _HEADER
    if bare and (sound or version == layout.VERSION):
        state.inside = 0
        blame(state, _UNKNOWN_VERSION if sound else _BAD_HEADER, length, version if sound else word)
        return DAMAGED, np.uint64(stop - offset)
    return HEADER, _ZERO


@inlined
def _judge_value(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Judge what is at a position of a column of values: one of them, or what is in it."""
    if state.inside == 0:
        return _open_value(window, pos, state, rules)
    offset = np.int64(window.base + pos)
    if offset >= state.end:
        return GOOD, np.uint64(state.next - offset)
    verdict, size, _ = judge_record(window, pos, np.uint64(state.end) - window.base, state, rules)
    return verdict, size


@always_inlined
def gather_records(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Account for the rest of a container, once all of its records were taken by `take_records`."""
    if np.int64(window.base + pos) < state.end:
        return NO_ROOM
    state.padding_bytes += np.int64(size)
    state.inside = 0
    return TAKEN


@kernel
def read_records(window: Window, state: Annotated[Any, Record(s.STATE)], out: Out, rules: s.Rules) -> Int64:
    """Read records: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`."""
    return walk_chain(take_records, judge, gather_records, on_damage, window, state, out, rules)


@kernel
def read_values(window: Window, state: Annotated[Any, Record(s.STATE)], out: Out, rules: s.Rules) -> Int64:
    """Read the records of a column of values, as `read_records` does."""
    return walk_chain(take_records, _judge_value, gather_records, on_damage, window, state, out, rules)


@always_inlined
def _count(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Count whole records, as many as are in sight; return the position after them."""
    if state.inside == 0:
        return pos
    first_pos = pos
    end = np.uint64(state.end) - window.base
    count = 0
    if not out.records:
        pos = max(pos, end)
    while pos < end:
        verdict, size, _ = judge_record(window, pos, end, state, rules)
        if verdict != GOOD:
            break
        ask_ahead(window.data, pos, size)
        count += 1
        pos += size
    state.counted += count
    state.record_bytes += np.int64(pos - first_pos)
    return pos


@always_inlined
def _take_container(state: Any, out: Any) -> None:
    row = state.rows
    out.starts[row] = state.container
    container = out.rows[row]
    container.start, container.end, container.following = state.container, state.end, state.next
    container.time, container.records = state.time, state.counted
    state.rows = row + 1


@always_inlined
def _gather_container(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take a container, whose records were counted. Whether the last one of a torn file is complete is known later."""
    if state.counted >= 0 and (state.ending == 0 or state.next < state.bound):
        _take_container(state, out)
    return gather_records(window, pos, size, state, out, rules)


@always_inlined
def _on_damage(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Note damage. With a record that cannot be read ends what can be known of its container."""
    if state.kind == _BAD_RECORD_LENGTH and state.ending == 0:
        _take_container(state, out)
        state.counted = -1
    return on_damage(window, start, length, state, out, rules)


@kernel
def read_containers(window: Window, state: Annotated[Any, Record(s.STATE)], out: Containers, rules: s.Rules) -> Int64:
    """Read containers, and count their records: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`."""
    return walk_chain(_count, judge, _gather_container, _on_damage, window, state, out, rules)


@kernel
def find_header(data: Bytes, count: UInt64, flagged: Int64) -> Int64:
    """Search for a container's header.

    Args:
        data: Bytes of the file.
        count: At how many places, from the first byte on; what follows them belongs to the last of these headers.
        flagged: As in `Rules`.

    Returns:
        The first place at which one begins, or `count`.
    """
    limit = np.uint64(len(data))
    for place in range(count):
        offset = np.uint64(place)
        if limit - offset < _HEADER:
            break
        if data[offset + _LAST] == layout.VERSION:
            record = (
                np.int64(_load_length(data, offset + _HEADER)) if limit - offset >= _LOOK else np.int64(header.UNSEEN)
            )
            length, word = np.int64(_load_length(data, offset)), np.int64(_load_word(data, offset))
            if _is_header(length, word, np.int64(_load_time(data, offset)), record, flagged):
                return np.int64(offset)
    return np.int64(count)


@kernel
def hash_payloads(window: Bytes, positions: UInt64s, lengths: UInt32s, with_length: Bool, hashes: OutUInt64s) -> None:
    """Combine the hashes of payloads into `hashes`, uint64 per row; of maps the length in front enters as well."""
    for row in range(len(positions)):
        start = positions[row]
        length = np.uint64(lengths[row])
        if with_length:
            start -= _PREFIX
            length += _PREFIX
        hashes[row] = (_FACTOR * hashes[row] + xxh32(window, start, length, _HASH_SEED)) & _U32
