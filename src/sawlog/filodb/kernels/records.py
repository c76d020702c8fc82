"""Judging records, locating those that are whole, and gathering their fixed areas. Section 1 of the format."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import DAMAGED, EVENT, GOOD, SHORT, TAKEN, TORN, blame, note
from sawlog.filodb import layout
from sawlog.filodb.judge import PLAIN_WORD
from sawlog.filodb.kernels import state as s
from sawlog.filodb.kernels.columns import (
    BLOCK,
    COPY_4,
    COPY_8,
    END,
    SKIP,
    Block,
    Memory,
    gather_columns,
    take_4,
    take_8,
)
from sawlog.filodb.layout import ContainerDamageKind
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.layout import make_load
from sawlog.kernels.memory import prefetch
from sawlog.kernels.numbers import _ONE, _ZERO
from sawlog.kernels.signature import Array, Bytes, Int64, OutBytes, OutInt64s, UInt64

_LENGTH = np.uint64(layout.LENGTH_SIZE)
_WITH_ID = np.uint64(layout.LENGTH_SIZE + layout.SCHEMA_ID_SIZE)
_ROUND = np.uint64(layout.ALIGNMENT - 1)
_SIGN = np.uint64(0x80000000)
_LOW_BYTE = np.uint64(0xFF)
_BAD_LENGTH = int(ContainerDamageKind.BAD_RECORD_LENGTH)
_HIDDEN = int(ContainerDamageKind.HIDDEN_CONTAINER)
_BAD_POINTER = int(ContainerDamageKind.BAD_POINTER)
_BAD_SIZE = int(ContainerDamageKind.BAD_RECORD_SIZE)
_UNKNOWN_SCHEMA = int(ContainerDamageKind.UNKNOWN_SCHEMA)
_UNEXPECTED_SCHEMA = int(ContainerDamageKind.UNEXPECTED_SCHEMA)
_AHEAD = np.uint64(32)
"""Records ahead of the present one whose bytes are asked into the cache."""
_LINE = np.uint64(64)
_load_length = make_load(layout.LENGTH)
_load_id = make_load(layout.SCHEMA_ID)
_load_word = make_load(layout.VERSION_WORD)


class Out(NamedTuple):
    """Arrays that rows go to.

    Attributes:
        starts: int64 per row: file offset of its record.
        which: uint8 per row: number of its schema.
        memory: `sawlog.filodb.kernels.columns.Memory`.
        picked: uint64[2, BLOCK], the numbers from 0 on, and working memory.
        events: See `sawlog.chain.kernels.EVENT`.
    """

    starts: OutInt64s
    which: OutBytes
    memory: Memory
    picked: Annotated[Any, Array(np.uint64, 2, writable=True)]
    events: Annotated[Any, Array(EVENT, writable=True)]


@inlined
def _resolve_doubt(meaning: Any) -> Any:
    """Return what a schema ID means where no container begins."""
    return s.DOUBTED - meaning if meaning < s.NOT_WANTED else meaning


@inlined
def _condemn(data: Any, pos: Any, remaining: Any, state: Any, rules: Any) -> Any:
    """Return the verdict on a record that is not whole, or of no known schema."""
    length = _load_length(data, pos) if remaining >= _LENGTH else _SIGN
    outside = length >= _SIGN or remaining - _LENGTH < length
    if outside and state.ending == s.TORN_CONTAINER:
        return TORN, remaining
    if not outside and not rules.plain and remaining >= _WITH_ID:
        schema_id = _load_id(data, pos)
        meaning = _resolve_doubt(np.int64(rules.schema_index[schema_id]))
        if length >= _WITH_ID - _LENGTH and meaning in (s.UNKNOWN, s.UNEXPECTED):
            blame(state, _UNKNOWN_SCHEMA if meaning == s.UNKNOWN else _UNEXPECTED_SCHEMA, schema_id, 0)
            return DAMAGED, min((length + _LENGTH + _ROUND) & ~_ROUND, remaining)
    blame(state, _BAD_LENGTH, np.int64(length) if length < _SIGN else np.int64(-1), state.end)
    return DAMAGED, remaining


@always_inlined
def _find_number(data: Any, pos: Any, total: Any, rules: Any, sure: Any) -> Any:
    """Return the number of a record's schema, or NOT_WANTED, if the schema allows `total` bytes; else UNKNOWN.

    Unless it is `sure` that no container begins there, what looks like one is UNKNOWN.
    """
    number: Any = np.int64(0)
    if not rules.plain:
        number = np.int64(rules.schema_index[_load_id(data, pos)])
        if sure:
            number = _resolve_doubt(number)
    elif not sure and _begins_like_header(data, pos, rules):
        number = s.UNKNOWN
    if number >= 0:
        schema = rules.schemas[number]
        return number if np.uint64(schema.smallest) <= total <= np.uint64(schema.largest) else s.UNKNOWN
    return number if number == s.NOT_WANTED and total >= _WITH_ID else s.UNKNOWN


@always_inlined
def _begins_like_header(data: Any, pos: Any, rules: Any) -> Any:
    """Return whether what begins at a position has the version word of a container."""
    word = np.int64(_load_word(data, pos))
    return word == PLAIN_WORD or word == rules.flagged  # noqa: PLR1714 - for Numba


@inlined
def _look_again(window: Any, pos: Any, remaining: Any, state: Any, rules: Any) -> Any:
    """Judge a record that reaches to the end of its container, or of what is in sight, or beyond, or a container."""
    data = window.data
    visible = np.uint64(len(data)) - pos
    if visible < min(remaining, _LENGTH + _LENGTH):
        return SHORT, min(remaining, _LENGTH + _LENGTH), 0
    doubted = len(rules.bounds) == 0 and state.broken != np.int64(window.base + pos)
    if doubted and remaining >= _LENGTH + _LENGTH and _begins_like_header(data, pos, rules):
        blame(state, _HIDDEN, 0, 0)
        return DAMAGED, remaining, 0
    if remaining >= (_LENGTH if rules.plain else _WITH_ID):
        total = _load_length(data, pos) + _LENGTH
        if total <= remaining:
            number = _find_number(data, pos, total, rules, True)
            if number >= 0 and visible < total:
                return SHORT, total, 0
            if number != s.UNKNOWN:
                return GOOD, min((total + _ROUND) & ~_ROUND, remaining), number
    verdict, size = _condemn(data, pos, remaining, state, rules)
    return verdict, size, 0


@always_inlined
def judge_record(window: Any, pos: Any, end: Any, state: Any, rules: Any) -> Any:
    """Judge what is at a position among the records of a container, which end at `end`.

    Returns:
        GOOD, SHORT, DAMAGED or TORN; the bytes up to the next record, or that must be in sight; the number of its
        schema, or NOT_WANTED.
    """
    data = window.data
    near = min(end, np.uint64(len(data))) - pos
    if near >= _LENGTH + _LENGTH:
        total = _load_length(data, pos) + _LENGTH
        size = (total + _ROUND) & ~_ROUND
        if size <= near:
            number = _find_number(data, pos, total, rules, False)
            if number != s.UNKNOWN:
                return GOOD, size, number
    return _look_again(window, pos, end - pos, state, rules)


@always_inlined
def ask_ahead(data: Any, pos: Any, size: Any) -> None:
    """Ask records to come into the cache: mostly they are about as long as this, and fixed areas few lines of each."""
    soon = pos + _AHEAD * size
    prefetch(data, soon)
    prefetch(data, soon + _LINE)


@always_inlined
def locate(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Write down where the next records begin, as many as make a block, up to one that needs a second look."""
    data, base = window.data, window.base
    end = np.uint64(state.end) - base
    row = np.uint64(state.rows)
    room = min(row + np.uint64(BLOCK), np.uint64(state.max_rows))
    starts, layout_numbers = out.starts, out.which
    while row < room and pos < end:
        verdict, size, number = judge_record(window, pos, end, state, rules)
        if verdict != GOOD:
            break
        ask_ahead(data, pos, size)
        if number >= 0:
            starts[row] = base + pos
            layout_numbers[row] = number
            row += _ONE
        pos += size
    return pos, np.int64(row)


@inlined
def _gather(window: Any, first: Any, count: Any, state: Any, out: Any, rules: Any) -> Any:
    """Gather a block of records, one schema at a time, in any order of the schemas."""
    failures = 0
    done = 0
    row = np.uint64(first)
    begin = out.which[row]
    differ = False
    for r in range(count):
        differ |= out.which[row + np.uint64(r)] != begin
    for turn in range(len(rules.schemas)):
        # Mostly all are of the first one's schema.
        number = (np.int64(begin) + turn) % len(rules.schemas)
        rows = out.picked[0]
        matches = count
        if differ:
            rows = out.picked[1]
            matches = 0
            for r in range(count):
                rows[matches] = r
                matches += out.which[row + np.uint64(r)] == number
        if matches > 0:
            smallest = np.uint64(rules.schemas[number].smallest)
            time = np.uint64(state.time)
            block = Block(window.data, window.base, out.starts, row, rows, matches, smallest, time)
            failures += gather_columns(block, out.memory.ops[number], out.memory, state)
            done += matches
        if done == count:
            break
    return failures


@inlined
def _drop_failed(window: Any, first: Any, count: Any, state: Any, out: Any) -> Any:
    """Note the records of a block that failed, and move the others together; return how many they are."""
    matching = 0
    failures = out.memory.failures
    for r in range(count):
        pos = out.starts[first + r]
        number = out.which[first + r]
        if failures[r].operation == 0:
            out.starts[first + matching] = pos
            out.which[first + matching] = number
            matching += 1
            continue
        length = _load_length(window.data, np.uint64(pos) - window.base)
        size = np.int64(min((length + _LENGTH + _ROUND) & ~_ROUND, np.uint64(state.end) - np.uint64(pos)))
        op = out.memory.ops[number, failures[r].operation - 1]
        kind, detail = _BAD_POINTER, op.field
        if op.code == END:
            kind, detail = _BAD_SIZE, np.int64(length)
        note(out.events, state, kind, pos, size, detail, failures[r].wrong)
        state.record_bytes -= size
        failures[r].operation = 0
    return matching


@always_inlined
def _take_fixed(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take records of the only schema, if one or two values of 8 bytes are wanted, and at most one of 4: in one loop.

    What a record holds is copied while the length of the next one is on its way.
    """
    data, base, starts = window.data, window.base, out.starts
    ops, arena = out.memory.ops[0], out.memory.arena
    eights, fours, rest_count = 0, 0, len(rules.schemas) - 1
    a, b, c = ops[0], ops[0], ops[0]
    for i in range(len(ops)):
        if ops[i].code == COPY_8:
            b = a if eights > 0 else ops[i]
            a = ops[i]
            eights += 1
        elif ops[i].code == COPY_4:
            c = ops[i]
            fours += 1
        else:
            rest_count += ops[i].code != SKIP
    if eights == 0 or eights > 2 or fours > 1 or rest_count > 0 or rules.plain:
        return pos
    slot_a, slot_b, slot_c = np.uint64(a.slot), np.uint64(b.slot), np.uint64(c.slot)
    place_a, place_b, place_c = np.uint64(a.place), np.uint64(b.place), np.uint64(c.place)
    limit = min(np.uint64(state.end) - base, np.uint64(len(data)))
    row, room = np.uint64(state.rows), np.uint64(state.max_rows)
    smallest, largest = np.uint64(rules.schemas[0].smallest), np.uint64(rules.schemas[0].largest)
    first_pos = pos
    while row < room and limit - pos >= _LENGTH + _LENGTH:
        total = _load_length(data, pos) + _LENGTH
        size = (total + _ROUND) & ~_ROUND
        if size > limit - pos or total < smallest or total > largest:
            break
        if rules.schema_index[_load_id(data, pos)] != 0:
            break
        ask_ahead(data, pos, size)
        starts[row] = base + pos
        take_8(arena, place_a, row, data, pos + slot_a)
        take_8(arena, place_b, row, data, pos + slot_b)
        if fours > 0:
            take_4(arena, place_c, row, data, pos + slot_c)
        row += _ONE
        pos += size
    state.record_bytes += np.int64(pos - first_pos)
    state.rows = np.int64(row)
    return pos


@always_inlined
def take_records(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take whole records, or a block of them, located first and then gathered from the cache: the common case."""
    if state.inside == 0 or state.payload_bytes >= rules.max_bytes or state.buckets >= rules.max_buckets:
        return pos
    first_pos = pos
    pos = _take_fixed(window, pos, state, out, rules)
    if pos != first_pos:
        return pos
    first = state.rows
    pos, rows = locate(window, pos, state, out, rules)
    state.record_bytes += np.int64(pos - first_pos)
    count = rows - first
    if count > 0:
        size, buckets = state.payload_bytes, state.buckets
        if _gather(window, first, count, state, out, rules):
            state.payload_bytes, state.buckets = size, buckets
            count = _drop_failed(window, first, count, state, out)
            if count > 0:
                _gather(window, first, count, state, out, rules)
    state.rows = first + count
    return pos


@always_inlined
def on_damage(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Note damage, of a container or of a record."""
    note(out.events, state, state.kind, start, length, state.one, state.two)
    return TAKEN


@kernel
def find_record(data: Bytes, start: UInt64, end: UInt64, complete: Bytes) -> Int64:
    """Search adjacent records for one whose schema ID is not complete.

    Args:
        data: Bytes of the file.
        start: Where the first record begins.
        end: Where the last one ends, at the end of the bytes or before.
        complete: Per schema ID: whether it is.

    Returns:
        Where the record begins; -1 if there is none.
    """
    pos = start
    while pos < end and end - pos > _WITH_ID:
        size = _LENGTH + _load_length(data, pos)
        if size > end - pos:
            break
        id = _load_id(data, pos)
        if size < _WITH_ID:  # the record ends inside its ID
            id &= _LOW_BYTE if size > _LENGTH else _ZERO
        if complete[id] == 0:
            return np.int64(pos)
        pos += (size + _ROUND) & ~_ROUND
    return np.int64(-1)
