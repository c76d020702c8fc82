"""The walk over containers and their records. Sections 1 and 4 of the format; see `sawlog.chain`."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import DAMAGED, EVENT, GOOD, NO_ROOM, TAKEN, Window, note, record_type, walk_chain
from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels import state as s
from sawlog.filodb_record.kernels.hidden import begin_hunt, is_hunt, judge_hidden
from sawlog.filodb_record.kernels.records import Out, ask_ahead, judge_record, lose_bytes, take_records
from sawlog.filodb_record.kernels.settle import open_value, settle
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.signature import Array, Bool, Bytes, Int64, OutInt64s, OutUInt64s, Record, UInt32s, UInt64s
from sawlog.kernels.xxh32 import xxh32

CONTAINER = record_type("start", "end", "following", "time", "records", "guesses")
"""A container: where its header is, where its records end, where the next one begins, its timestamp, how many records
it has, and how many guesses have been made up to it."""

_BAD_RECORD_LENGTH = int(Kind.BAD_RECORD_LENGTH)
_HIDDEN = int(Kind.HIDDEN_CONTAINER)
_ZERO = np.uint64(0)
_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_HASH_SEED = np.uint64(layout.HASH_SEED)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_U32 = np.uint64(0xFFFFFFFF)


class Containers(NamedTuple):
    """Where containers go.

    Attributes:
        rows: `CONTAINER` records.
        starts: int64 per row, their headers.
        events: See `sawlog.chain.kernels.EVENT`.
    """

    rows: Annotated[Any, Array(CONTAINER, writable=True)]
    starts: OutInt64s
    events: Annotated[Any, Array(EVENT, writable=True)]


@inlined
def _judge_within(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """A record of the container that is read, or the rest of it, which is a good thing, too."""
    at = window.base + pos
    end = np.uint64(state.end)
    if at >= end or not rules.records:
        return GOOD, np.uint64(state.next) - at
    verdict, size, _ = judge_record(window, pos, end - window.base, state, rules)
    return verdict, size


@inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """What stands at a position of a file: a container, or what is in it.

    Where containers may be hidden it says GOOD, which nobody takes, for `read_hidden` to go on.
    """
    if state.phase == s.READING:
        verdict, size = _judge_within(window, pos, state, rules)
        at = np.int64(window.base + pos)
        broken = verdict == DAMAGED and state.kind in (_BAD_RECORD_LENGTH, _HIDDEN)
        ended = at >= state.end
        if state.broken == at or not (broken or (ended and state.bound > 0)):
            return verdict, size
        begin_hunt(at, state, not ended and state.kind == _HIDDEN)
    if is_hunt(state):
        return GOOD, _ZERO
    return settle(window, pos, state, rules)


@inlined
def _judge_all(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """As `judge`, with what is hidden."""
    verdict, size = judge(window, pos, state, rules)
    return judge_hidden(window, pos, state, rules) if is_hunt(state) else (verdict, size)


@inlined
def _judge_value(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """What stands at a position of a column of values: one of them, or what is in it."""
    if state.phase != s.READING:
        return open_value(window, pos, state, rules)
    return _judge_within(window, pos, state, rules)


@always_inlined
def _leave(state: Any) -> None:
    """The container is read; what is left of it is unused."""
    state.padding_bytes += state.next - state.end
    state.phase = s.AT_HEADER


@always_inlined
def gather_records(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Whole records are taken by `take_records`, as far as there is room for them."""
    if state.phase != s.READING or window.base + pos < np.uint64(state.end):
        return NO_ROOM
    _leave(state)
    return TAKEN


@kernel
def read_records(window: Window, state: Annotated[Any, Record(s.STATE)], out: Out, rules: s.Rules) -> Int64:
    """Read records: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`."""
    return walk_chain(take_records, judge, gather_records, lose_bytes, window, state, out, rules)


@kernel
def read_all_records(window: Window, state: Annotated[Any, Record(s.STATE)], out: Out, rules: s.Rules) -> Int64:
    """As `read_records`, with those of hidden containers."""
    return walk_chain(take_records, _judge_all, gather_records, lose_bytes, window, state, out, rules)


@kernel
def read_values(window: Window, state: Annotated[Any, Record(s.STATE)], out: Out, rules: s.Rules) -> Int64:
    """As `read_records`, of a column of values."""
    return walk_chain(take_records, _judge_value, gather_records, lose_bytes, window, state, out, rules)


@always_inlined
def count_records(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Count whole records, as many as are in sight."""
    if state.phase != s.READING or not rules.records:
        return pos
    begun = pos
    end = np.uint64(state.end) - window.base
    count = 0
    while pos < end:
        verdict, size, _ = judge_record(window, pos, end, state, rules)
        if verdict != GOOD:
            break
        ask_ahead(window.data, pos, size)
        count += 1
        pos += size
    state.counted += count
    state.record_bytes += np.int64(pos - begun)
    return pos


@always_inlined
def _take_container(state: Any, out: Any) -> None:
    row = state.rows
    out.starts[row] = state.container
    one = out.rows[row]
    one.start = state.container
    one.end = state.end
    one.following = state.next
    one.time = state.time
    one.records = state.counted
    one.guesses = state.guesses
    state.rows = row + 1


@always_inlined
def gather_container(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """A container is read. Whether the last one of a torn file is complete is only known later."""
    if state.phase != s.READING:
        return NO_ROOM
    if state.counted >= 0 and (state.ending == 0 or state.next < state.bound):
        _take_container(state, out)
    _leave(state)
    return TAKEN


@always_inlined
def lose_container(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Note damage. With a record that cannot be read ends what can be known of its container."""
    if state.kind == _BAD_RECORD_LENGTH and state.ending == 0:
        _take_container(state, out)
        state.counted = -1
    note(out.events, state, state.kind, start, length, state.one, state.two)
    return TAKEN


@kernel
def read_containers(window: Window, state: Annotated[Any, Record(s.STATE)], out: Containers, rules: s.Rules) -> Int64:
    """Read containers, and count their records: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`."""
    return walk_chain(count_records, judge, gather_container, lose_container, window, state, out, rules)


@kernel
def read_all_containers(
    window: Window, state: Annotated[Any, Record(s.STATE)], out: Containers, rules: s.Rules
) -> Int64:
    """As `read_containers`, with those that are hidden."""
    return walk_chain(count_records, _judge_all, gather_container, lose_container, window, state, out, rules)


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
