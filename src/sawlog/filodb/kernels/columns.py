"""Gathering what the fixed areas of records hold, column by column. Section 1 of the format."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.filodb import layout
from sawlog.filodb.kernels.gather import PayloadErrors, Payloads
from sawlog.filodb.layout import ContainerDamageKind, HistogramFormat
from sawlog.kernels.columns import make_take
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.layout import make_load
from sawlog.kernels.memory import load_u16, load_u32, store_u32, store_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _ZERO
from sawlog.kernels.signature import Array, OutBytes, Record, UInt64, UInt64s

# What to do for a column.
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

OPERATION = make_record_type("code", "slot", "place", "second", "field")
"""What to do, the column's place in the record, its places in the memory, and the field that is made of it.

Values of fixed width have one place, in the arena; payloads two, in the scratch: of positions and of lengths.
"""
FAILURE = make_record_type("operation", "wrong")
"""The operation that failed for a record, plus one, and the pointer or length that is wrong."""
TALLY = make_record_type("payload_bytes", "buckets")

BLOCK = 64
"""Records that are located before they are gathered."""

_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_LENGTH = np.uint64(layout.LENGTH_SIZE)
_HISTOGRAM_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_MAX_BUCKETS = np.uint64(layout.MAX_BUCKETS)
_EMPTY_HISTOGRAM = int(HistogramFormat.EMPTY)
_BAD_NESTED = int(ContainerDamageKind.BAD_NESTED_RECORD)
take_4, take_8 = make_take(4), make_take(8)
_load_length = make_load(layout.LENGTH)
_load_id = make_load(layout.SCHEMA_ID)
_load_size = make_load(layout.PAYLOAD.length)


class Memory(NamedTuple):
    """Arrays that columns are gathered to.

    Attributes:
        ops: `OPERATION` records per schema and column.
        arena: uint8, values of fixed width.
        scratch: uint8, positions (u64, relative to the window) and lengths (u32) of payloads.
        failures: `FAILURE` records, BLOCK of them, all 0.
    """

    ops: Annotated[Any, Array(OPERATION, 2)]
    arena: OutBytes
    scratch: OutBytes
    failures: Annotated[Any, Array(FAILURE, writable=True)]


class Block(NamedTuple):
    """Records of one schema.

    Attributes:
        data: uint8.
        base: uint64, what their starts count from.
        starts: int64 or uint64 per row.
        first: uint64, the first row of the block.
        picked: uint64, which rows of the block, counted from its first.
        count: How many of `picked`.
        smallest: uint64, bytes in front of the payloads.
        time: uint64, timestamp of the container.
    """

    data: Any
    base: Any
    starts: Any
    first: Any
    picked: Any
    count: Any
    smallest: Any
    time: Any


@inlined
def _fail(failures: Any, row: Any, operation: Any, wrong: Any) -> Any:
    if failures[row].operation == 0:
        failures[row].operation = operation + 1
        failures[row].wrong = wrong
    return 1


@always_inlined
def _start(block: Any, row: Any) -> Any:
    return np.uint64(block.starts[block.first + row]) - block.base


@always_inlined
def _gather_payloads(block: Any, number: Any, op: Any, place: Any, memory: Any, tally: Any) -> Any:
    """Gather positions and lengths of a column's payloads; return how many pointers or lengths lead outside."""
    data, picked, scratch = block.data, block.picked, memory.scratch
    slot = np.uint64(op.slot)
    second = np.uint64(op.second) + block.first * _FOUR
    counts_buckets = op.code == HISTOGRAM
    failed = 0
    size = np.int64(0)
    buckets = np.int64(0)
    for r in range(block.count):
        row = picked[r]
        pos = _start(block, row)
        total = _load_length(data, pos) + _LENGTH
        pointer = load_u32(data, pos + slot)
        start = pos + pointer + _PREFIX
        length = _ZERO
        if pointer < block.smallest or pointer > total or total - pointer < _PREFIX:
            failed += _fail(memory.failures, row, number, pointer)
            start = pos
        else:
            length = _load_size(data, pos + pointer)
            if pos + total - start < length:
                failed += _fail(memory.failures, row, number, length)
                length = _ZERO
        store_u64(scratch, place + _EIGHT * row, start)
        store_u32(scratch, second + _FOUR * row, length)
        size += np.int64(length)
        if counts_buckets and length >= _HISTOGRAM_HEAD + _PREFIX and data[start] != _EMPTY_HISTOGRAM:
            buckets += np.int64(min(load_u16(data, start + _HISTOGRAM_HEAD), _MAX_BUCKETS))
    tally.payload_bytes += size
    tally.buckets += buckets
    return failed


@always_inlined
def _check_ends(block: Any, number: Any, ops: Any, failures: Any) -> Any:
    """Return how many records do not end where the last of their payloads does."""
    failed = 0
    for r in range(block.count):
        row = block.picked[r]
        pos = _start(block, row)
        total = _load_length(block.data, pos) + _LENGTH
        reach = block.smallest
        for j in range(number):
            if (ops[j].code == PAYLOAD or ops[j].code == HISTOGRAM) and failures[row].operation == 0:
                pointer = load_u32(block.data, pos + np.uint64(ops[j].slot))
                reach = max(reach, pointer + _load_size(block.data, pos + pointer) + _PREFIX)
        if reach != total and failures[row].operation == 0:
            failed += _fail(failures, row, number, reach)
    return failed


@always_inlined
def gather_columns(block: Any, ops: Any, memory: Any, tally: Any) -> Any:
    """Gather records of one schema, column by column.

    Args:
        block: `Block`.
        ops: `OPERATION` records.
        memory: `Memory`. For a record that is wrong its failure is set; of several the first.
        tally: Has the fields of `TALLY`, which grow.

    Returns:
        How many operations failed.
    """
    data, picked, arena, scratch = block.data, block.picked, memory.arena, memory.scratch
    failed = 0
    for i in range(len(ops)):
        op = ops[i]
        code = op.code
        slot = np.uint64(op.slot)
        four = np.uint64(op.place) + block.first * _FOUR
        eight = np.uint64(op.place) + block.first * _EIGHT
        if code == COPY_8:
            for r in range(block.count):
                take_8(arena, eight, picked[r], data, _start(block, picked[r]) + slot)
        elif code == COPY_4:
            for r in range(block.count):
                take_4(arena, four, picked[r], data, _start(block, picked[r]) + slot)
        elif code in (PAYLOAD, HISTOGRAM):
            failed += _gather_payloads(block, i, op, eight, memory, tally)
        elif code in (WHOLE, NO_PAYLOAD):
            second = np.uint64(op.second) + block.first * _FOUR
            for r in range(block.count):
                pos, total = _ZERO, _ZERO
                if code == WHOLE:
                    pos = _start(block, picked[r])
                    total = _load_length(data, pos) + _LENGTH
                store_u64(scratch, eight + _EIGHT * picked[r], pos)
                store_u32(scratch, second + _FOUR * picked[r], total)
                tally.payload_bytes += np.int64(total)
        elif code == SCHEMA_ID:
            for r in range(block.count):
                store_u32(arena, four + _FOUR * picked[r], _load_id(data, _start(block, picked[r])))
        elif code == END:
            failed += _check_ends(block, i, ops, memory.failures)
        elif code == NOTHING_4:
            for r in range(block.count):
                store_u32(arena, four + _FOUR * picked[r], _ZERO)
        elif code != SKIP:
            for r in range(block.count):
                store_u64(arena, eight + _EIGHT * picked[r], block.time if code == CONTAINER_TIME else _ZERO)
    return failed


@kernel
def read_nested(
    payloads: Payloads,
    smallest: UInt64,
    memory: Memory,
    picked: UInt64s,
    tally: Annotated[Any, Record(TALLY)],
    bad: PayloadErrors,
) -> None:
    """Gather the records that are the payloads of a column.

    Args:
        payloads: `sawlog.filodb.kernels.gather.Payloads`.
        smallest: uint64, the smallest record of the schema.
        memory: `Memory`: its operations are those of the nested schema, and of a row that holds no record.
        picked: uint64[1], 0.
        tally: `TALLY`.
        bad: `sawlog.filodb.kernels.gather.PayloadErrors`: what explains it is the pointer or length that is wrong.
    """
    for n in range(len(payloads.positions)):
        row = np.uint64(n)
        length = np.uint64(payloads.lengths[row])
        start = payloads.positions[row]
        good = length == _ZERO and start == _ZERO
        wrong = np.int64(length)
        block = Block(payloads.data, _ZERO, payloads.positions, row, picked, 1, smallest, _ZERO)
        if length >= smallest:
            total = _load_length(payloads.data, start) + _LENGTH
            wrong = np.int64(total)
            if smallest <= total <= length:
                good = True
                if gather_columns(block, memory.ops[0], memory, tally):
                    good = False
                    wrong = memory.failures[0].wrong
                    memory.failures[0].operation = 0
        if not good:
            bad.kinds[row] = _BAD_NESTED
            bad.where[row] = wrong
        if not good or length == _ZERO:
            gather_columns(block, memory.ops[1], memory, tally)
