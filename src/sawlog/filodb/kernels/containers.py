"""Laying records out, in containers and as payloads of others. Sections 1 and 4 of the format."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.filodb import layout
from sawlog.filodb.kernels.payloads import NO_ROOM, PROGRESS, TOO_LONG, Encoded
from sawlog.kernels.columns import make_put
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.layout import make_store
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, store_u16, store_u32
from sawlog.kernels.numbers import _EIGHT, _FOUR, _ZERO
from sawlog.kernels.signature import Array, Bool, Bytes, Int64, Int64s, OutBytes, OutInt64s, Record, UInt64s
from sawlog.kernels.vector import copy_short
from sawlog.kernels.xxh32 import xxh32

LAYER = make_record_type(
    "row",  # the next one
    "start",  # of the current container in `out`; -1 when there is none
    "end",  # where the next record goes
    "time",  # timestamp of the current container
    "group",  # that its records are of
)
"""The state of the container writer."""

PAYLOAD = -1
PUT = make_record_type("width", "offset", "place", "second")
"""Bytes of a value, 0 for none, or PAYLOAD; where it goes in the record, and where it is: in the arena, or position and
length in the scratch."""

# What a call ended with.
DONE = 0
FLUSH = 1
"""`out` must be emptied of complete containers."""
RECORD_TOO_LONG = 2
BAD_RECORD = 3

LAYOUT = make_record_type("payloads", "schema_id", "hash_offset")
"""Where payloads begin in a record, its schema ID, or -1, and the place of its hash."""

_HEADER = layout.CONTAINER_HEADER_SIZE
_VERSION_WORD = np.uint64(layout.VERSION << layout.VERSION_SHIFT)
_ALIGN = layout.ALIGNMENT
_store_word = make_store(layout.VERSION_WORD)
_store_time = make_store(layout.TIMESTAMP)
_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_SEED = np.uint64(layout.HASH_SEED)
_put_fixed = make_put()


class Values(NamedTuple):
    """Rows, column by column.

    Attributes:
        arena: uint8, values of fixed-width columns.
        payloads: uint8, payloads, each after its length.
        scratch: uint8, positions (u64) and lengths (u32) of payloads.
    """

    arena: Bytes
    payloads: Bytes
    scratch: Bytes


@inlined
def _compute_size(row: Any, start_of_payloads: Any, ops: Any, scratch: Any) -> Any:
    """Return the size of a record in bytes."""
    total = start_of_payloads
    for i in range(len(ops)):
        if ops[i].width == PAYLOAD:
            total += np.int64(load_u32(scratch, np.uint64(ops[i].second) + row * _FOUR)) + layout.PAYLOAD_LENGTH_SIZE
    return total


@inlined
def _put(row: Any, begin: Any, total: Any, start_of_payloads: Any, ops: Any, values: Any, out: Any) -> None:
    """Write a record of `total` bytes at `begin`, but for its schema ID and hash, unless they are among the columns."""
    arena, scratch, payloads = values.arena, values.scratch, values.payloads
    store_u32(out, begin, np.uint64(total - layout.LENGTH_SIZE))
    pointer = np.uint64(start_of_payloads)
    for i in range(len(ops)):
        slot = begin + np.uint64(ops[i].offset)
        place = np.uint64(ops[i].place)
        if ops[i].width > 0:
            _put_fixed(ops[i].width, out, slot, arena, place, row)
        elif ops[i].width == PAYLOAD:
            source = load_u64(scratch, place + row * _EIGHT) - _PREFIX
            length = np.uint64(load_u32(scratch, np.uint64(ops[i].second) + row * _FOUR)) + _PREFIX
            store_u32(out, slot, pointer)
            copy_short(out, begin + pointer, payloads, source, length)
            pointer += length


@kernel
def encode_records(
    values: Values,
    start_of_payloads: Int64,
    ops: Annotated[Any, Array(PUT)],
    into: Encoded,
    out: OutBytes,
    progress: Annotated[Any, Record(PROGRESS)],
) -> Int64:
    """Lay records out as payloads of others; schema ID and hash of those that have them are columns.

    Returns:
        0, or what is wrong with the record of a row.
    """
    used = np.uint64(progress.used)
    positions, lengths = into.positions, into.lengths
    for row in range(progress.row, len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if into.wanted[row] == 0:
            continue
        progress.row = row
        progress.used = used
        r = np.uint64(row)
        total = _compute_size(r, start_of_payloads, ops, values.scratch)
        if total > layout.MAX_PAYLOAD:
            progress.wrong = total
            return TOO_LONG
        if np.uint64(len(out)) - used < np.uint64(total) + _PREFIX:
            return NO_ROOM
        store_u16(out, used, np.uint64(total))
        used += _PREFIX
        _put(r, used, total, start_of_payloads, ops, values, out)
        positions[row] = used
        lengths[row] = total
        if into.hashed:
            into.hashes[row] = xxh32(out, used, np.uint64(total), _SEED)
        used += np.uint64(total)
    progress.row = len(positions)
    progress.used = used
    return 0


class Rows(NamedTuple):
    """Rows to be laid out.

    Attributes:
        which: uint8 per row, number of its layout.
        ops: `PUT` records per layout and column.
        values: `Values`.
        hashes: uint64 per row, partition hashes.
        times: int64 per row, timestamp of the container it goes to; another one begins another container.
        groups: int64 per row, ascending; another one begins another container.
    """

    which: Bytes
    ops: Annotated[Any, Array(PUT, 2)]
    values: Values
    hashes: UInt64s
    times: Int64s
    groups: Int64s


class Plan(NamedTuple):
    """Layout of the rows to encode.

    Attributes:
        layouts: `LAYOUT` records.
        raw: Whether the first payload of each row is its whole record.
        size: int64, bytes of a container.
        whole: Whether full containers are written in their full size.
    """

    layouts: Annotated[Any, Array(LAYOUT)]
    raw: Bool
    size: Int64
    whole: Bool


def make_layer() -> Any:
    """Return the state before the first row."""
    state = np.zeros(1, LAYER)[0]
    state.start = -1
    return state


@inlined
def _close(out: Any, sizes: Any, state: Any, size: Any, is_whole: Any) -> None:
    """Complete the current container, in its full size if `is_whole`."""
    start = state.start
    store_u32(out, np.uint64(start), np.uint64(state.end - start - layout.LENGTH_SIZE))
    if is_whole:
        for i in range(state.end, start + size):
            out[i] = 0
        state.end = start + size
    sizes[state.group] += state.end - start
    state.start = -1


@kernel
def close_container(out: OutBytes, sizes: OutInt64s, state: Annotated[Any, Record(LAYER)]) -> None:
    """Complete the current container, trimmed, if there is one."""
    if state.start >= 0:
        _close(out, sizes, state, 0, False)


@kernel
def lay_records(rows: Rows, plan: Plan, state: Annotated[Any, Record(LAYER)], out: OutBytes, sizes: OutInt64s) -> Int64:
    """Lay records out in containers.

    Args:
        rows: `Rows`.
        plan: `Plan`.
        state: `LAYER`, updated.
        out: uint8, room for at least two containers.
        sizes: int64 per group: grows by the bytes of its containers.

    Returns:
        DONE, FLUSH, RECORD_TOO_LONG or BAD_RECORD.
    """
    values = rows.values
    for row in range(state.row, len(rows.which)):
        state.row = row
        r = np.uint64(row)
        number = rows.which[row]
        start_of_payloads = plan.layouts[number].payloads
        source = _ZERO
        if plan.raw:
            total = np.int64(load_u32(values.scratch, np.uint64(rows.ops[0, 0].second) + r * _FOUR))
            source = load_u64(values.scratch, np.uint64(rows.ops[0, 0].place) + r * _EIGHT)
            if total < layout.LENGTH_SIZE or load_u32(values.payloads, source) + _FOUR != np.uint64(total):
                return BAD_RECORD
        else:
            total = _compute_size(r, start_of_payloads, rows.ops[number], values.scratch)
        if total > plan.size - _HEADER:
            return RECORD_TOO_LONG
        if state.start >= 0 and (
            state.end + total > state.start + plan.size
            or state.time != rows.times[row]
            or state.group != rows.groups[row]
        ):
            full = state.end + total > state.start + plan.size
            _close(out, sizes, state, plan.size, plan.whole and full)
        if state.start < 0:
            start = state.end
            if len(out) - start < plan.size:
                return FLUSH
            state.start = start
            state.time = rows.times[row]
            state.group = rows.groups[row]
            pos = np.uint64(start)
            store_u32(out, pos, np.uint64(layout.EMPTY_CONTAINER))
            _store_word(out, pos, _VERSION_WORD)
            _store_time(out, pos, np.uint64(rows.times[row]))
            state.end = start + _HEADER
        begin = np.uint64(state.end)
        if plan.raw:
            copy_bytes(out, begin, values.payloads, source, np.uint64(total))
        else:
            _put(r, begin, total, start_of_payloads, rows.ops[number], values, out)
            if plan.layouts[number].schema_id >= 0:
                store_u16(out, begin + np.uint64(layout.SCHEMA_ID_OFFSET), np.uint64(plan.layouts[number].schema_id))
                store_u32(out, begin + np.uint64(plan.layouts[number].hash_offset), rows.hashes[row])
        end = state.end + total
        aligned = (end + _ALIGN - 1) // _ALIGN * _ALIGN
        for i in range(end, aligned):
            out[i] = 0
        state.end = aligned
    state.row = len(rows.which)
    return DONE
