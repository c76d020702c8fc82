"""Walking the records of containers, and gathering what their fixed areas hold. Section 1 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.columns import BLOCK, END, gather_columns
from sawlog.filodb_record.kernels.frames import TORN
from sawlog.filodb_record.layout import Kind
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import load_u16, load_u32, prefetch
from sawlog.kernels.xxh32 import xxh32

# Fields of the state, an int64 array.
FRAME = 0
"""The frame being read."""
POSITION = 1
"""The next record, as file offset."""
ROWS = 2
EVENTS = 3
BYTES = 4
"""Payload bytes of the rows so far."""
BUCKETS = 5
"""Histogram buckets of the rows so far."""
RECORD_BYTES = 6
"""Bytes of records delivered or passed over by choice, padding included."""
TORN_AT = 7
"""Where the first incomplete record of a container that is cut off stands; -1 while there is none."""
PASSED = 8
"""Records passed over because their schema was not asked for."""
STATE_SIZE = 9

# What a call ended with.
MORE = 0
"""The window must begin at POSITION."""
FULL = 1
DONE = 2
"""All frames are read."""

EVENT_FIELDS = 6
"""Kind, offset, length, column (-1: none), and two numbers for the message."""

# What a schema ID means, besides the number of a schema to deliver.
UNKNOWN = -1
UNEXPECTED = -2
NOT_WANTED = -3

# Fields of a schema, a row of int64.
SMALLEST = 0
LARGEST = 1
SCHEMA_FIELDS = 2

_LENGTH = np.uint64(layout.LENGTH_SIZE)
_ID = np.uint64(layout.SCHEMA_ID_OFFSET)
_ID_SIZE = np.uint64(layout.SCHEMA_ID_SIZE)
_WITH_ID = np.uint64(layout.LENGTH_SIZE + layout.SCHEMA_ID_SIZE)
_ROUND = np.uint64(layout.ALIGNMENT - 1)
_PAYLOAD_LENGTH = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SIGN = np.uint64(0x80000000)
_BAD_LENGTH = int(Kind.BAD_RECORD_LENGTH)
_BAD_POINTER = int(Kind.BAD_POINTER)
_BAD_SIZE = int(Kind.BAD_RECORD_SIZE)
_UNKNOWN_SCHEMA = int(Kind.UNKNOWN_SCHEMA)
_UNEXPECTED_SCHEMA = int(Kind.UNEXPECTED_SCHEMA)
_AHEAD = np.uint64(32)
"""Records ahead of the present one whose bytes are asked into the cache."""
_LINE = np.uint64(64)
_HASH_SEED = np.uint64(layout.HASH_SEED)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_U32 = np.uint64(0xFFFFFFFF)


@inlined
def _gather_block(
    window: Any,
    base: Any,
    starts: Any,
    which: Any,
    first: Any,
    count: Any,
    schemas: Any,
    ops: Any,
    time: Any,
    arena: Any,
    scratch: Any,
    tally: Any,
    failed: Any,
    picked: Any,
) -> Any:
    """Gather a block of records, those of one schema at a time, in whatever order the schemas stand."""
    failures = 0
    done = 0
    row = np.uint64(first)
    begin = which[row]
    differ = False
    for r in range(count):
        differ |= which[row + np.uint64(r)] != begin
    for turn in range(len(schemas)):
        # Mostly all are of the first one's schema.
        number = (np.int64(begin) + turn) % len(schemas)
        rows = picked[0]
        found = count
        if differ:
            rows = picked[1]
            found = 0
            for r in range(count):
                rows[found] = r
                found += which[row + np.uint64(r)] == number
        if found > 0:
            smallest = np.uint64(schemas[number, SMALLEST])
            failures += gather_columns(
                window, base, starts, row, rows, found, smallest, ops[number], time, arena, scratch, tally, failed
            )
            done += found
        if done == count:
            break
    return failures


@inlined
def _drop_failed(
    window: Any,
    base: Any,
    starts: Any,
    which: Any,
    first: Any,
    count: Any,
    end: Any,
    ops: Any,
    failed: Any,
    state: Any,
    events: Any,
) -> Any:
    """Note the records of a block that failed, and move the others together; how many they are."""
    kept = 0
    for r in range(count):
        at = starts[first + r]
        number = which[first + r]
        if failed[r] == 0:
            starts[first + kept] = at
            which[first + kept] = number
            kept += 1
            continue
        length = load_u32(window, np.uint64(at) - base)
        step = _step(length + _LENGTH, end - np.uint64(at))
        operation = failed[r] - 1
        if ops[number, operation, 0] == END:
            _note(events, state, _BAD_SIZE, at, step, -1, length, failed[BLOCK + r])
        else:
            _note(events, state, _BAD_POINTER, at, step, ops[number, operation, 4], failed[BLOCK + r], 0)
        state[RECORD_BYTES] -= np.int64(step)
        failed[r] = 0
    return kept


@inlined
def _step(total: Any, left: Any) -> Any:
    """Bytes from a record to the next."""
    return min((total + _ROUND) & ~_ROUND, left)


@inlined
def _note(events: Any, state: Any, kind: Any, offset: Any, length: Any, column: Any, one: Any, two: Any) -> None:
    row = state[EVENTS]
    events[row, 0] = kind
    events[row, 1] = offset
    events[row, 2] = length
    events[row, 3] = column
    events[row, 4] = one
    events[row, 5] = two
    state[EVENTS] = row + 1


@always_inlined
def _locate(
    window: Any,
    base: Any,
    at: Any,
    stop: Any,
    plain: Any,
    meanings: Any,
    schemas: Any,
    room: Any,
    starts: Any,
    which: Any,
    rows: Any,
) -> Any:
    """Write down records that need no second look: whole ones, with room up to the next one, of known schemas.

    Returns:
        The position of the first other record, or of the first beyond `room`; rows; and how many were passed over.
    """
    passed = 0
    row = np.uint64(rows)
    room = np.uint64(room)
    while row < room:
        left = stop - at
        if left < _WITH_ID:
            break
        here = at - base
        total = load_u32(window, here) + _LENGTH
        step = (total + _ROUND) & ~_ROUND
        if step > left:
            break
        # Records that stand together are mostly about as long, and fixed areas few cache lines of each.
        soon = here + _AHEAD * step
        prefetch(window, soon)
        prefetch(window, soon + _LINE)
        number = 0
        if not plain:
            number = int(meanings[load_u16(window, here + _ID)])
            if number < 0:
                if number != NOT_WANTED or total < _WITH_ID:
                    break
                passed += 1
                at += step
                continue
        if total < np.uint64(schemas[number, SMALLEST]) or total > np.uint64(schemas[number, LARGEST]):
            break
        starts[row] = at
        which[row] = number
        row += _ONE
        at += step
    return at, np.int64(row), passed


@kernel
def read_records(
    window: Any,
    base: Any,
    frames: Any,
    plain: Any,
    meanings: Any,
    schemas: Any,
    ops: Any,
    max_bytes: Any,
    max_buckets: Any,
    state: Any,
    starts: Any,
    which: Any,
    arena: Any,
    scratch: Any,
    events: Any,
    failed: Any,
    picked: Any,
) -> Any:
    """Read records from a window, and gather their fixed areas.

    Records are located first, a block at a time, and then gathered from the cache.

    Args:
        window: uint8, the file from `base` on.
        base: uint64, file offset of the window.
        frames: `FRAME` records, containers; those without records are passed over.
        plain: Whether records have no schema ID; then all are of schema 0.
        meanings: int16[65536], per schema ID: the number of its schema, or UNKNOWN, UNEXPECTED or NOT_WANTED.
        schemas: int64[:, SCHEMA_FIELDS].
        ops: int64[schemas, columns, OP_FIELDS].
        max_bytes: int64, payload bytes after which a batch is complete, but for the rest of a block.
        max_buckets: int64, histogram buckets after which it is.
        state: int64[STATE_SIZE], updated; POSITION is that of the first frame's records, or -1 to begin with.
        starts: int64 per row: file offset of its record.
        which: uint8 per row: number of its schema.
        arena: uint8, the fixed-width columns.
        scratch: uint8, positions (relative to the window) and lengths of payloads.
        events: int64[:, EVENT_FIELDS], damage; room for more than two blocks.
        failed: int64[2 * BLOCK], all 0.
        picked: uint64[2, BLOCK], the numbers from 0 on, and working memory.

    Returns:
        MORE, FULL or DONE.
    """
    limit = base + np.uint64(len(window))
    max_rows = len(starts)
    max_events = len(events) - BLOCK - 1
    rows = state[ROWS]
    frame = state[FRAME]
    position = state[POSITION]
    tally = state[BYTES : BUCKETS + 1]
    status = DONE
    while frame < len(frames):
        if position < 0:
            position = frames[frame].first
        at = np.uint64(position)
        end = np.uint64(frames[frame].end)
        stop = min(end, limit)
        status = DONE
        while at < end and status == DONE:
            first = rows
            begun = at
            before_bytes, before_buckets = tally[0], tally[1]
            before_events, before_passed, before_record = state[EVENTS], state[PASSED], state[RECORD_BYTES]
            used = _ZERO
            room = min(first + BLOCK, max_rows)
            while at < end and rows - first < BLOCK:
                if rows == max_rows or state[EVENTS] >= max_events:
                    status = FULL
                    break
                if base <= at < stop:
                    before = at
                    at, rows, passed = _locate(
                        window, base, at, stop, plain, meanings, schemas, room, starts, which, rows
                    )
                    used += at - before
                    state[PASSED] += passed
                    if at == end or rows == room:
                        continue
                if at < base or at > limit or limit - at < min(end - at, _FOUR + _FOUR):
                    status = MORE
                    break
                left = end - at
                here = at - base
                length = load_u32(window, here) if left >= _LENGTH else _SIGN
                if length >= _SIGN or left - _LENGTH < length:
                    if frames[frame].torn == TORN:
                        state[TORN_AT] = at
                    else:
                        shown = np.int64(length) if length < _SIGN else np.int64(-1)
                        _note(events, state, _BAD_LENGTH, at, left, -1, shown, end)
                    at = end
                    break
                total = length + _LENGTH
                step = _step(total, left)
                meaning = 0
                if not plain:
                    if length < _ID_SIZE:
                        _note(events, state, _BAD_LENGTH, at, left, -1, length, end)
                        at = end
                        break
                    schema_id = load_u16(window, here + _ID)
                    meaning = int(meanings[schema_id])
                    if meaning < 0:
                        if meaning == NOT_WANTED:
                            state[PASSED] += 1
                            used += step
                        else:
                            kind = _UNKNOWN_SCHEMA if meaning == UNKNOWN else _UNEXPECTED_SCHEMA
                            _note(events, state, kind, at, step, -1, schema_id, 0)
                        at += step
                        continue
                if total < np.uint64(schemas[meaning, SMALLEST]) or total > np.uint64(schemas[meaning, LARGEST]):
                    _note(events, state, _BAD_LENGTH, at, left, -1, length, end)
                    at = end
                    break
                if limit - at < total:
                    status = MORE
                    break
                starts[rows] = at
                which[rows] = meaning
                rows += 1
                used += step
                at += step
            state[RECORD_BYTES] += np.int64(used)
            if rows > first:
                time = np.uint64(frames[frame].time)
                count = rows - first
                if _gather_block(
                    window, base, starts, which, first, count, schemas, ops, time, arena, scratch, tally, failed, picked
                ):
                    tally[0], tally[1] = before_bytes, before_buckets
                    count = _drop_failed(window, base, starts, which, first, count, end, ops, failed, state, events)
                    _gather_block(
                        window, base, starts, which, first, count, schemas, ops, time, arena, scratch, tally, failed,
                        picked,
                    )  # fmt: skip
                    rows = first + count
                if first > 0 and (tally[0] > max_bytes or tally[1] > max_buckets):
                    tally[0], tally[1] = before_bytes, before_buckets
                    state[EVENTS], state[PASSED], state[RECORD_BYTES] = before_events, before_passed, before_record
                    rows = first
                    at = begun
                    status = FULL
                    break
        if status != DONE:
            position = np.int64(at)
            break
        frame += 1
        position = -1
    state[ROWS] = rows
    state[FRAME] = frame
    state[POSITION] = position
    return status


@kernel
def hash_payloads(window: Any, positions: Any, lengths: Any, with_length: Any, hashes: Any) -> None:
    """Combine the hashes of payloads into `hashes`, uint64 per row; of maps the length in front enters as well."""
    for row in range(len(positions)):
        start = positions[row]
        length = np.uint64(lengths[row])
        if with_length:
            start -= _PAYLOAD_LENGTH
            length += _PAYLOAD_LENGTH
        hashes[row] = (_FACTOR * hashes[row] + xxh32(window, start, length, _HASH_SEED)) & _U32


@kernel
def count_records(starts: Any, frames: Any, counts: Any) -> None:
    """Count the records of each container; both are in ascending order."""
    frame = 0
    for row in range(len(starts)):
        while frame < len(frames) and starts[row] >= frames[frame].end:
            frame += 1
        if frame == len(frames):
            return
        if starts[row] >= frames[frame].start:
            counts[frame] += 1
