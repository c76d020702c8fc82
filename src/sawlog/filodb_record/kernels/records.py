"""Walking the records of containers, and gathering what their fixed areas hold. Section 1 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.frames import END as FRAME_END
from sawlog.filodb_record.kernels.frames import FIRST as FRAME_FIRST
from sawlog.filodb_record.kernels.frames import START as FRAME_START
from sawlog.filodb_record.kernels.frames import TIME as FRAME_TIME
from sawlog.filodb_record.kernels.frames import TORN as FRAME_TORN
from sawlog.filodb_record.layout import HistogramFormat, Kind
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import load_u16, load_u32, load_u64, prefetch, store_u32, store_u64
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

# What to do for a column: rows of (code, offset in the record, offset in the arena, second offset in the arena).
COPY_8 = 1
COPY_4 = 2
PAYLOAD = 3
"""Position (u64) and length (u32) of a pointer column's payload."""
HISTOGRAM = 4
"""As PAYLOAD, and the number of buckets is counted."""
WHOLE = 5
"""Position and length of the record itself."""
SCHEMA_ID = 6
CONTAINER_TIME = 7
NOTHING_8 = 8
NOTHING_4 = 9
NO_PAYLOAD = 10
OP_FIELDS = 5
"""Code, record offset, arena offset, second arena offset, column number for messages."""

BLOCK = 128
"""Records that are located before they are gathered."""

# Fields of a schema, a row of int64.
SMALLEST = 0
LARGEST = 1
SCHEMA_FIELDS = 2

_LENGTH = np.uint64(layout.LENGTH_SIZE)
_ID = np.uint64(layout.SCHEMA_ID_OFFSET)
_ID_SIZE = np.uint64(layout.SCHEMA_ID_SIZE)
_ROUND = np.uint64(layout.ALIGNMENT - 1)
_PAYLOAD_LENGTH = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_TIME = np.uint64(layout.TIMESTAMP_OFFSET)
_ZERO = np.uint64(0)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SIGN = np.uint64(0x80000000)
_HISTOGRAM_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_MAX_BUCKETS = np.uint64(layout.MAX_BUCKETS)
_EMPTY_HISTOGRAM = int(HistogramFormat.EMPTY)
_BAD_LENGTH = int(Kind.BAD_RECORD_LENGTH)
_BAD_POINTER = int(Kind.BAD_POINTER)
_BAD_NESTED = int(Kind.BAD_NESTED_RECORD)
_UNKNOWN_SCHEMA = int(Kind.UNKNOWN_SCHEMA)
_UNEXPECTED_SCHEMA = int(Kind.UNEXPECTED_SCHEMA)
_AHEAD = np.uint64(2048)
_HASH_SEED = np.uint64(layout.HASH_SEED)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_U32 = np.uint64(0xFFFFFFFF)


@inlined
def _gather(
    window: Any,
    base: Any,
    starts: Any,
    first: Any,
    count: Any,
    smallest: Any,
    ops: Any,
    time: Any,
    arena: Any,
    scratch: Any,
    tally: Any,
    failed: Any,
) -> Any:
    """Gather a block of records, the rows from `first` on, column by column.

    `tally[0]` and `tally[1]` grow by payload bytes and histogram buckets. For a record with a bad pointer, `failed`
    gets the number of the operation plus one, and, BLOCK behind it, the pointer or length that is wrong.

    Returns:
        How many operations failed.
    """
    failures = 0
    row = np.uint64(first)
    for i in range(len(ops)):
        code = ops[i, 0]
        slot = np.uint64(ops[i, 1])
        place = np.uint64(ops[i, 2])
        second = np.uint64(ops[i, 3]) + row * _FOUR
        if code in (COPY_8, NOTHING_8, CONTAINER_TIME, PAYLOAD, HISTOGRAM, NO_PAYLOAD, WHOLE):
            place += row * _EIGHT
        else:
            place += row * _FOUR
        if code == COPY_8:
            for r in range(count):
                store_u64(arena, place + np.uint64(8 * r), load_u64(window, np.uint64(starts[first + r]) - base + slot))
        elif code == COPY_4:
            for r in range(count):
                store_u32(arena, place + np.uint64(4 * r), load_u32(window, np.uint64(starts[first + r]) - base + slot))
        elif code in (PAYLOAD, HISTOGRAM):
            for r in range(count):
                at = np.uint64(starts[first + r]) - base
                total = load_u32(window, at) + _LENGTH
                pointer = load_u32(window, at + slot)
                start = at + pointer + _PAYLOAD_LENGTH
                length = _ZERO
                if pointer < smallest or pointer > total or total - pointer < _PAYLOAD_LENGTH:
                    failures += _fail(failed, r, i, pointer)
                    start = at
                else:
                    length = load_u16(window, at + pointer)
                    if at + total - start < length:
                        failures += _fail(failed, r, i, length)
                        length = _ZERO
                store_u64(scratch, place + np.uint64(8 * r), start)
                store_u32(scratch, second + np.uint64(4 * r), length)
                tally[0] += np.int64(length)
                if (
                    code == HISTOGRAM
                    and length >= _HISTOGRAM_HEAD + _PAYLOAD_LENGTH
                    and window[start] != _EMPTY_HISTOGRAM
                ):
                    tally[1] += np.int64(min(load_u16(window, start + _HISTOGRAM_HEAD), _MAX_BUCKETS))
        elif code == WHOLE:
            for r in range(count):
                at = np.uint64(starts[first + r]) - base
                total = load_u32(window, at) + _LENGTH
                store_u64(scratch, place + np.uint64(8 * r), at)
                store_u32(scratch, second + np.uint64(4 * r), total)
                tally[0] += np.int64(total)
        elif code == SCHEMA_ID:
            for r in range(count):
                identity = load_u16(window, np.uint64(starts[first + r]) - base + _ID)
                store_u32(arena, place + np.uint64(4 * r), identity)
        elif code == NO_PAYLOAD:
            for r in range(count):
                store_u64(scratch, place + np.uint64(8 * r), _ZERO)
                store_u32(scratch, second + np.uint64(4 * r), _ZERO)
        elif code == NOTHING_4:
            for r in range(count):
                store_u32(arena, place + np.uint64(4 * r), _ZERO)
        else:
            for r in range(count):
                store_u64(arena, place + np.uint64(8 * r), time if code == CONTAINER_TIME else _ZERO)
    return failures


@inlined
def _fail(failed: Any, row: Any, operation: Any, wrong: Any) -> Any:
    if failed[row] == 0:
        failed[row] = operation + 1
        failed[BLOCK + row] = wrong
    return 1


@inlined
def _drop_failed(
    window: Any,
    base: Any,
    starts: Any,
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
        if failed[r] == 0:
            starts[first + kept] = at
            kept += 1
            continue
        step = _step(load_u32(window, np.uint64(at) - base) + _LENGTH, end - np.uint64(at))
        _note(events, state, _BAD_POINTER, at, step, ops[failed[r] - 1, 4], failed[BLOCK + r], 0)
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
) -> Any:
    """Read records from a window, and gather their fixed areas.

    Records are located first, a block of one schema at a time, and then gathered from the cache.

    Args:
        window: uint8, the file from `base` on.
        base: uint64, file offset of the window.
        frames: int64[:, FRAME_FIELDS], containers; those without records are passed over.
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
    last_id = np.uint64(0x10000)
    meaning = 0
    smallest = np.uint64(schemas[0, SMALLEST])
    largest = np.uint64(schemas[0, LARGEST])
    status = DONE
    while frame < len(frames):
        if position < 0:
            position = frames[frame, FRAME_FIRST]
        at = np.uint64(position)
        end = np.uint64(frames[frame, FRAME_END])
        status = DONE
        while at < end and status == DONE:
            first = rows
            begun = at
            block = meaning
            before_bytes, before_buckets = tally[0], tally[1]
            before_events, before_passed, before_record = state[EVENTS], state[PASSED], state[RECORD_BYTES]
            used = _ZERO
            while at < end and rows - first < BLOCK:
                if rows == max_rows or state[EVENTS] >= max_events:
                    status = FULL
                    break
                if at < base or at > limit or limit - at < min(end - at, _FOUR + _FOUR):
                    status = MORE
                    break
                left = end - at
                here = at - base
                prefetch(window, here + _AHEAD)
                prefetch(window, here + _AHEAD + np.uint64(64))
                length = load_u32(window, here) if left >= _LENGTH else _SIGN
                if length >= _SIGN or left - _LENGTH < length:
                    if frames[frame, FRAME_TORN] != 0:
                        state[TORN_AT] = at
                    else:
                        shown = np.int64(length) if length < _SIGN else np.int64(-1)
                        _note(events, state, _BAD_LENGTH, at, left, -1, shown, end)
                    at = end
                    break
                total = length + _LENGTH
                step = _step(total, left)
                if not plain:
                    if length < _ID_SIZE:
                        _note(events, state, _BAD_LENGTH, at, left, -1, length, end)
                        at = end
                        break
                    schema_id = load_u16(window, here + _ID)
                    if schema_id != last_id:
                        found = meanings[schema_id]
                        if found < 0:
                            if found == NOT_WANTED:
                                state[PASSED] += 1
                                used += step
                            else:
                                kind = _UNKNOWN_SCHEMA if found == UNKNOWN else _UNEXPECTED_SCHEMA
                                _note(events, state, kind, at, step, -1, schema_id, 0)
                            at += step
                            continue
                        if found != meaning and rows > first:
                            break
                        last_id = schema_id
                        meaning = int(found)
                        block = meaning
                        smallest = np.uint64(schemas[meaning, SMALLEST])
                        largest = np.uint64(schemas[meaning, LARGEST])
                if total < smallest or total > largest:
                    _note(events, state, _BAD_LENGTH, at, left, -1, length, end)
                    at = end
                    break
                if limit - at < total:
                    status = MORE
                    break
                starts[rows] = at
                rows += 1
                used += step
                at += step
            state[RECORD_BYTES] += np.int64(used)
            if rows > first:
                time = np.uint64(frames[frame, FRAME_TIME])
                count = rows - first
                todo = ops[block]
                if _gather(window, base, starts, first, count, smallest, todo, time, arena, scratch, tally, failed):
                    tally[0], tally[1] = before_bytes, before_buckets
                    count = _drop_failed(window, base, starts, first, count, end, todo, failed, state, events)
                    _gather(window, base, starts, first, count, smallest, todo, time, arena, scratch, tally, failed)
                    rows = first + count
                if first > 0 and (tally[0] > max_bytes or tally[1] > max_buckets):
                    tally[0], tally[1] = before_bytes, before_buckets
                    state[EVENTS], state[PASSED], state[RECORD_BYTES] = before_events, before_passed, before_record
                    rows = first
                    at = begun
                    status = FULL
                    break
                which[first:rows] = block
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
def read_nested(
    window: Any,
    positions: Any,
    lengths: Any,
    smallest: Any,
    ops: Any,
    empty: Any,
    arena: Any,
    scratch: Any,
    tally: Any,
    failed: Any,
    bad: Any,
    where: Any,
) -> None:
    """Gather the records that are the payloads of a column.

    Args:
        window: uint8.
        positions: uint64 per row; a length of 0 at position 0 is no value.
        lengths: uint32 per row.
        smallest: uint64, the smallest record of the schema.
        ops: int64[columns, OP_FIELDS].
        empty: The same for a row that holds no record.
        arena: uint8, the fixed-width columns.
        scratch: uint8, positions and lengths of payloads.
        tally: int64[2], payload bytes and histogram buckets.
        failed: int64[2 * BLOCK], all 0.
        bad: uint8 per row, set to a `Kind` where the payload is no record.
        where: int64 per row: the pointer or length that is wrong.
    """
    for row in range(len(positions)):
        given = np.uint64(lengths[row])
        at = positions[row]
        good = given == _ZERO and at == _ZERO
        wrong = np.int64(given)
        if given >= smallest:
            total = load_u32(window, at) + _LENGTH
            wrong = np.int64(total)
            if smallest <= total <= given:
                good = True
                if _gather(window, _ZERO, positions, row, 1, smallest, ops, _ZERO, arena, scratch, tally, failed):
                    good = False
                    wrong = failed[BLOCK]
                    failed[0] = 0
        if not good:
            bad[row] = _BAD_NESTED
            where[row] = wrong
        if not good or given == _ZERO:
            _gather(window, _ZERO, positions, row, 1, smallest, empty, _ZERO, arena, scratch, tally, failed)


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
        while frame < len(frames) and starts[row] >= frames[frame, FRAME_END]:
            frame += 1
        if frame == len(frames):
            return
        if starts[row] >= frames[frame, FRAME_START]:
            counts[frame] += 1
