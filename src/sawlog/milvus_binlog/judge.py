"""What stands at a place behind the descriptor: an event, or which damage. See `sawlog.chain`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import (
    DAMAGED,
    DONE,
    ENDED,
    GOOD,
    SHORT,
    TAKEN,
    blame,
    no_run,
    note_damage,
    record_type,
    walk_chain,
)
from sawlog.chain.layout import loader
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import EventKind, EventType

EVENT = record_type("kind", "start", "length", "next_position", "timestamp", "first", "last", "payload")
"""An event, as `sawlog.milvus_binlog.envelope.Event` has it."""


class Rules(NamedTuple):
    """What the descriptor says.

    Attributes:
        end: uint64, where it ends.
        legacy: Whether headers are those from before 2.0.
        encrypted: Whether the events are cipher text.
    """

    end: Any
    legacy: Any
    encrypted: Any


class Out(NamedTuple):
    """Where events go: records of `EVENT`, and what is damaged."""

    found: Any
    events: Any


_timestamp, _code = (loader(layout.EVENT_HEADER[name]) for name in ("timestamp", "type"))
_length, _next = (loader(layout.EVENT_HEADER[name]) for name in ("event length", "next position"))
_legacy_length, _legacy_next = (loader(layout.LEGACY_EVENT_HEADER[name]) for name in ("event length", "next position"))
_first, _last = (loader(layout.EVENT_RANGE[name]) for name in ("start timestamp", "end timestamp"))
_HEADER, _LEGACY_HEADER = np.uint64(layout.HEADER.size), np.uint64(layout.LEGACY_HEADER.size)
_RANGE, _ZERO = np.uint64(layout.EVENT_DATA.size), np.uint64(0)
_FIRST_TYPE, _LAST_TYPE = np.uint64(EventType.INSERT), np.uint64(EventType.INDEX_FILE)
_TRUNCATED, _TRAILING = int(EventKind.TRUNCATED), int(EventKind.TRAILING_BYTES)
_UNKNOWN, _BAD_LENGTH, _ENCRYPTED = map(int, (EventKind.UNKNOWN_EVENT, EventKind.BAD_EVENT_LENGTH, EventKind.ENCRYPTED))


@inlined
def header_size(rules: Any) -> Any:
    """Bytes of an event's header."""
    return _LEGACY_HEADER if rules.legacy else _HEADER


@inlined
def lengths(data: Any, pos: Any, rules: Any) -> Any:
    """The length of the event at `pos`, and its next position."""
    if rules.legacy:
        return _legacy_length(data, pos), _legacy_next(data, pos)
    return _length(data, pos), _next(data, pos)


@always_inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """What stands at a position. Damage lasts up to the end of the file: nothing tells where the next event begins."""
    at = window.base + pos
    if at >= window.size:
        return ENDED, _ZERO
    left = window.size - at
    least = header_size(rules) + _RANGE
    if rules.encrypted:
        blame(state, _ENCRYPTED, 0, 0)
        return DAMAGED, left
    if left < least:
        blame(state, _TRAILING if at > rules.end else _TRUNCATED, left, least)
        return DAMAGED, left
    if np.uint64(len(window.data)) < pos + least:
        return SHORT, least
    code = _code(window.data, pos)
    if code < _FIRST_TYPE or code > _LAST_TYPE:
        blame(state, _UNKNOWN, code, 0)
        return DAMAGED, left
    length, following = lengths(window.data, pos, rules)
    if length < least or length > left:
        blame(state, _TRUNCATED if length > left and following == at + length else _BAD_LENGTH, length, least)
        return DAMAGED, left
    return GOOD, length


@always_inlined
def gather(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Write an event down; the last one ends the walk."""
    row = out.found[state.rows]
    data, behind = window.data, pos + header_size(rules)
    row.kind = _code(data, pos)
    row.start = window.base + pos
    row.length = size
    row.next_position = np.int64(np.int32(lengths(data, pos, rules)[1]))
    row.timestamp = _timestamp(data, pos)
    row.first = _first(data, behind)
    row.last = _last(data, behind)
    row.payload = window.base + behind + _RANGE
    state.rows += 1
    return DONE if window.base + pos + size == window.size else TAKEN


@kernel
def read(window: Any, state: Any, out: Any, rules: Any) -> Any:
    """Walk events."""
    return walk_chain(no_run, judge, gather, note_damage, window, state, out, rules)
