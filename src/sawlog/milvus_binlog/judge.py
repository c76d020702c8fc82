"""What is at a place after the descriptor: an event, or which damage. See `sawlog.chain`.

A file has few events, and each costs more to decode than to find: they are walked in plain Python, for to compile the
walk would take longer than to read thousands of files.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sawlog.chain.kernels import (
    DAMAGED,
    DONE,
    ENDED,
    GOOD,
    SHORT,
    TAKEN,
    blame,
    no_run,
    note,
    record_type,
    walk_chain,
)
from sawlog.kernels.jit import as_written
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.envelope import signed
from sawlog.milvus_binlog.layout import EventKind, EventType

EVENT = record_type("kind", "start", "length", "next_position", "timestamp", "first", "last", "payload")
"""An event, as `sawlog.milvus_binlog.envelope.Event` has it."""


class Rules(NamedTuple):
    """What the descriptor says.

    Attributes:
        end: Where it ends.
        legacy: Whether headers are those from before 2.0.
        encrypted: Whether the events are cipher text.
    """

    end: int
    legacy: bool
    encrypted: bool


class Out(NamedTuple):
    """Where events go: records of `EVENT`, and what is damaged."""

    found: Any
    events: Any


_walk, _no_run, _note, _blame = map(as_written, (walk_chain, no_run, note, blame))


def header_size(rules: Rules) -> int:
    """Bytes of an event's header."""
    return (layout.LEGACY_HEADER if rules.legacy else layout.HEADER).size


def _header(data: Any, pos: int, rules: Rules) -> tuple[int, int, int, int]:
    """Timestamp, type code, length and next position of the event at `pos`."""
    if rules.legacy:
        timestamp, code, _, length, following = layout.LEGACY_HEADER.unpack_from(data, pos)
        return timestamp, code, length, following
    return layout.HEADER.unpack_from(data, pos)


def judge(window: Any, pos: Any, state: Any, rules: Rules) -> tuple[int, int]:
    """What is at a position. Damage lasts up to the end of the file: the next event cannot be located.

    An event of a type beyond those that are known is unsupported where its length and its next position agree.
    """
    at = int(window.base + pos)
    left = int(window.size) - at
    if left <= 0:
        return ENDED, 0
    least = header_size(rules) + layout.EVENT_DATA.size
    if rules.encrypted:
        _blame(state, EventKind.ENCRYPTED, 0, 0)
        return DAMAGED, left
    if left < least:
        _blame(state, EventKind.TRAILING_BYTES if at > rules.end else EventKind.TRUNCATED, left, least)
        return DAMAGED, left
    if len(window.data) < int(pos) + least:
        return SHORT, least
    _, code, length, following = _header(window.data, pos, rules)
    if not EventType.INSERT <= code <= EventType.INDEX_FILE:
        if code > EventType.INDEX_FILE and least <= length <= left and following == at + length:
            _blame(state, EventKind.UNSUPPORTED, code, 0)
            return DAMAGED, length
        _blame(state, EventKind.UNKNOWN_EVENT, code, 0)
        return DAMAGED, left
    if length < least or length > left:
        cut = length > left and following == at + length
        _blame(state, EventKind.TRUNCATED if cut else EventKind.BAD_EVENT_LENGTH, length, least)
        return DAMAGED, left
    return GOOD, length


def _gather(window: Any, pos: Any, size: int, state: Any, out: Out, rules: Rules) -> int:
    """Write an event down; the last one ends the walk."""
    at, behind = int(window.base + pos), int(pos) + header_size(rules)
    timestamp, code, _, following = _header(window.data, pos, rules)
    span = layout.EVENT_DATA.unpack_from(window.data, behind)
    payload = int(window.base) + behind + layout.EVENT_DATA.size
    out.found[state.rows] = (code, at, size, signed(following), timestamp, *span, payload)
    state.rows += 1
    return DONE if at + size == window.size else TAKEN


def _lose(window: Any, start: Any, length: int, state: Any, out: Out, rules: Rules) -> int:
    """Write damage down."""
    state.zeros = -1
    _note(out.events, state, state.kind, start, length, state.one, state.two)
    return TAKEN


def read(window: Any, state: Any, out: Out, rules: Rules) -> int:
    """Walk events."""
    return int(_walk(_no_run, judge, _gather, _lose, window, state, out, rules))
