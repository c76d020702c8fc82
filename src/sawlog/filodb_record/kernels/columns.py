"""Gathering what the fixed areas of records hold, column by column. Section 1 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.layout import HistogramFormat, Kind
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import load_u16, load_u32, load_u64, store_u32, store_u64

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
END = 11
"""Records end where the last of their payloads does; all pointer columns are among the operations in front of it."""
SKIP = 12
OP_FIELDS = 5
"""Code, record offset, arena offset, second arena offset, column number for messages."""

BLOCK = 64
"""Records that are located before they are gathered."""

_LENGTH = np.uint64(layout.LENGTH_SIZE)
_ID = np.uint64(layout.SCHEMA_ID_OFFSET)
_PAYLOAD_LENGTH = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_ZERO = np.uint64(0)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_HISTOGRAM_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_MAX_BUCKETS = np.uint64(layout.MAX_BUCKETS)
_EMPTY_HISTOGRAM = int(HistogramFormat.EMPTY)
_BAD_NESTED = int(Kind.BAD_NESTED_RECORD)


@always_inlined
def gather_columns(
    window: Any,
    base: Any,
    starts: Any,
    first: Any,
    picked: Any,
    count: Any,
    smallest: Any,
    ops: Any,
    time: Any,
    arena: Any,
    scratch: Any,
    tally: Any,
    failed: Any,
) -> Any:
    """Gather records of one schema, the rows `first + picked[r]`, column by column.

    `tally[0]` and `tally[1]` grow by payload bytes and histogram buckets. For a record with a bad pointer, `failed`
    gets, `picked[r]` places on, the number of the operation plus one, and, BLOCK behind it, the pointer or length that
    is wrong.

    Returns:
        How many operations failed.
    """
    failures = 0
    for i in range(len(ops)):
        code = ops[i, 0]
        slot = np.uint64(ops[i, 1])
        place = np.uint64(ops[i, 2])
        second = np.uint64(ops[i, 3]) + first * _FOUR
        if code in (COPY_8, NOTHING_8, CONTAINER_TIME, PAYLOAD, HISTOGRAM, NO_PAYLOAD, WHOLE):
            place += first * _EIGHT
        else:
            place += first * _FOUR
        if code == COPY_8:
            for r in range(count):
                store_u64(
                    arena,
                    place + _EIGHT * picked[r],
                    load_u64(window, np.uint64(starts[first + picked[r]]) - base + slot),
                )
        elif code == COPY_4:
            for r in range(count):
                store_u32(
                    arena,
                    place + _FOUR * picked[r],
                    load_u32(window, np.uint64(starts[first + picked[r]]) - base + slot),
                )
        elif code in (PAYLOAD, HISTOGRAM):
            for r in range(count):
                at = np.uint64(starts[first + picked[r]]) - base
                total = load_u32(window, at) + _LENGTH
                pointer = load_u32(window, at + slot)
                start = at + pointer + _PAYLOAD_LENGTH
                length = _ZERO
                if pointer < smallest or pointer > total or total - pointer < _PAYLOAD_LENGTH:
                    failures += _fail(failed, picked[r], i, pointer)
                    start = at
                else:
                    length = load_u16(window, at + pointer)
                    if at + total - start < length:
                        failures += _fail(failed, picked[r], i, length)
                        length = _ZERO
                store_u64(scratch, place + _EIGHT * picked[r], start)
                store_u32(scratch, second + _FOUR * picked[r], length)
                tally[0] += np.int64(length)
                if (
                    code == HISTOGRAM
                    and length >= _HISTOGRAM_HEAD + _PAYLOAD_LENGTH
                    and window[start] != _EMPTY_HISTOGRAM
                ):
                    tally[1] += np.int64(min(load_u16(window, start + _HISTOGRAM_HEAD), _MAX_BUCKETS))
        elif code == WHOLE:
            for r in range(count):
                at = np.uint64(starts[first + picked[r]]) - base
                total = load_u32(window, at) + _LENGTH
                store_u64(scratch, place + _EIGHT * picked[r], at)
                store_u32(scratch, second + _FOUR * picked[r], total)
                tally[0] += np.int64(total)
        elif code == SCHEMA_ID:
            for r in range(count):
                identity = load_u16(window, np.uint64(starts[first + picked[r]]) - base + _ID)
                store_u32(arena, place + _FOUR * picked[r], identity)
        elif code == NO_PAYLOAD:
            for r in range(count):
                store_u64(scratch, place + _EIGHT * picked[r], _ZERO)
                store_u32(scratch, second + _FOUR * picked[r], _ZERO)
        elif code == END:
            for r in range(count):
                at = np.uint64(starts[first + picked[r]]) - base
                total = load_u32(window, at) + _LENGTH
                reach = smallest
                for j in range(i):
                    if (ops[j, 0] == PAYLOAD or ops[j, 0] == HISTOGRAM) and failed[picked[r]] == 0:
                        pointer = load_u32(window, at + np.uint64(ops[j, 1]))
                        reach = max(reach, pointer + load_u16(window, at + pointer) + _PAYLOAD_LENGTH)
                if reach != total and failed[picked[r]] == 0:
                    failures += _fail(failed, picked[r], i, reach)
        elif code == SKIP:
            continue
        elif code == NOTHING_4:
            for r in range(count):
                store_u32(arena, place + _FOUR * picked[r], _ZERO)
        else:
            for r in range(count):
                store_u64(arena, place + _EIGHT * picked[r], time if code == CONTAINER_TIME else _ZERO)
    return failures


@inlined
def _fail(failed: Any, row: Any, operation: Any, wrong: Any) -> Any:
    if failed[row] == 0:
        failed[row] = operation + 1
        failed[BLOCK + row] = wrong
    return 1


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
    picked: Any,
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
        picked: uint64[1], 0.
        bad: uint8 per row, set to a `Kind` where the payload is no record.
        where: int64 per row: the pointer or length that is wrong.
    """
    for n in range(len(positions)):
        row = np.uint64(n)
        given = np.uint64(lengths[row])
        at = positions[row]
        good = given == _ZERO and at == _ZERO
        wrong = np.int64(given)
        if given >= smallest:
            total = load_u32(window, at) + _LENGTH
            wrong = np.int64(total)
            if smallest <= total <= given:
                good = True
                if gather_columns(
                    window, _ZERO, positions, row, picked, 1, smallest, ops, _ZERO, arena, scratch, tally, failed
                ):
                    good = False
                    wrong = failed[BLOCK]
                    failed[0] = 0
        if not good:
            bad[row] = _BAD_NESTED
            where[row] = wrong
        if not good or given == _ZERO:
            gather_columns(
                window, _ZERO, positions, row, picked, 1, smallest, empty, _ZERO, arena, scratch, tally, failed
            )
