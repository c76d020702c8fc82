"""Decoding write batches into columns, and encoding operations as write batches."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, prefetch, store_u32
from sawlog.kernels.numbers import _LOW7, _ONE, _SEVEN, _U32, _ZERO
from sawlog.kernels.protobuf import put_varint
from sawlog.kernels.signature import (
    Array,
    Bool,
    Bytes,
    Int8s,
    Int32s,
    Int64,
    Int64s,
    OutBytes,
    OutInt8s,
    OutInt32s,
    OutInt64s,
    Record,
)
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import BatchDamageKind, Field

DECODER = make_record_type(
    "record",  # the one being decoded
    "position",  # byte of it after the last operation that is decoded; 0 before its header
    "sequence",  # number of the next operation
    "found",  # operations of the record so far that take a sequence number
    "rows",
    "key_bytes",
    "value_bytes",
    "events",
    "no_keys",  # rows without a key
    "no_values",
)
"""The decoder's state."""
EVENT = make_record_type("kind", "record", "one", "two")
"""Damage in a record, with two numbers for the message."""


class Strings(NamedTuple):
    """Binary values: value i is `data[offsets[i] : offsets[i + 1]]`, uint8 and int32."""

    data: Bytes
    offsets: Int32s


class Table(NamedTuple):
    """The meaning of tags.

    Attributes:
        variants: uint8[256], of each tag: twice the code of an operation, plus one where a column family follows; or
            `len(shapes)` for nothing.
        shapes: uint8, the `Field` bits of each variant.
        tags: int16[:, 2], tags of each code, without and with a column family; -1 for none.
    """

    variants: Bytes
    shapes: Bytes
    tags: Annotated[Any, Array(np.int16, 2)]


class Gathered(NamedTuple):
    """A column of keys or values that is being made.

    Attributes:
        wanted: Whether they are copied.
        has: uint8 per row, 0 or 1.
        data: uint8, as long as all batches if they are copied.
        ends: int32, `ends[i + 1]` is the end of value i; `ends[0]` is 0.
    """

    wanted: Bool
    has: OutBytes
    data: OutBytes
    ends: OutInt32s


class Decoded(NamedTuple):
    """Columns of operations, a row each.

    Attributes:
        records: int32, the batch that it is from.
        sequences: int64.
        operations: int8, codes.
        families: int64.
        keys: `Gathered`.
        values: `Gathered`.
        events: `EVENT`.
    """

    records: OutInt32s
    sequences: OutInt64s
    operations: OutInt8s
    families: OutInt64s
    keys: Gathered
    values: Gathered
    events: Annotated[Any, Array(EVENT, writable=True)]


class Operations(NamedTuple):
    """Operations to encode.

    Attributes:
        starts: int64, batch i is made of the rows from `starts[i]` up to `starts[i + 1]`.
        sequences: int64, of each row.
        codes: int8, each below the number of operations.
        families: int64, each a u32.
        keys: `Strings`.
        values: `Strings`.
    """

    starts: Int64s
    sequences: Int64s
    codes: Int8s
    families: Int64s
    keys: Strings
    values: Strings


# What a call ended with.
DONE = 0
"""All records are decoded, or encoded."""
FULL = 1
"""No room for more rows or events."""
INVALID = 2
"""Arguments that no valid Arrow array has."""

_HEADER = np.uint64(layout.BATCH_HEADER)
_COUNT = np.uint64(layout.COUNT_OFFSET)
_HALF = np.uint64(4)
_HALF_BITS = np.uint64(32)
_LINE = np.uint64(64)
_AHEAD = np.uint64(1024)
_VARINT32_SHIFT = np.uint64(7 * (layout.VARINT32_BYTES - 1))
_VARINT_MORE = 128

_FAMILY = int(Field.FAMILY)
_KEY = int(Field.KEY)
_VALUE = int(Field.VALUE)
_COUNTED = int(Field.COUNTED)
_VALUE_FIRST = int(Field.VALUE_FIRST)

_TOO_SMALL = int(BatchDamageKind.BATCH_TOO_SMALL)
_UNKNOWN = int(BatchDamageKind.UNKNOWN_OPERATION)
_BROKEN = int(BatchDamageKind.BROKEN_OPERATION)
_WRONG_COUNT = int(BatchDamageKind.WRONG_COUNT)


@inlined
def _read_varint32(data: Any, pos: Any, end: Any) -> Any:
    """Return the value of a varint32 at `pos`, as LevelDB reads it, and the position after it, which is 0 for none."""
    if pos >= end:
        return _ZERO, _ZERO
    byte = np.uint64(data[pos])
    pos += _ONE
    if byte < _VARINT_MORE:
        return byte, pos
    value = byte & _LOW7
    shift = _SEVEN
    while shift <= _VARINT32_SHIFT and pos < end:
        byte = np.uint64(data[pos])
        pos += _ONE
        value |= (byte & _LOW7) << shift
        if byte < _VARINT_MORE:
            return value & _U32, pos
        shift += _SEVEN
    return _ZERO, _ZERO


@inlined
def _read_string(data: Any, pos: Any, end: Any) -> Any:
    """Return a string at `pos`: its start, its length, and the position after it, which is 0 for none."""
    length, start = _read_varint32(data, pos, end)
    if start == _ZERO or end - start < length:
        return _ZERO, _ZERO, _ZERO
    return start, length, start + length


@inlined
def _note(events: Any, state: Any, kind: Any, one: Any, two: Any) -> None:
    row = state.events
    events[row].kind = kind
    events[row].record = state.record
    events[row].one = one
    events[row].two = two
    state.events = row + 1


@always_inlined
def _read_fields(data: Any, pos: Any, end: Any, shape: Any) -> Any:
    """Return the fields after a tag: the column family, the offsets of key and value, and their lengths.

    Then the position after the operation, which is 0 where it does not end in the batch.
    """
    family = key_start = key_length = value_start = value_length = _ZERO
    if shape & _FAMILY:
        family, pos = _read_varint32(data, pos, end)
    if shape & _VALUE_FIRST and pos != _ZERO:
        value_start, value_length, pos = _read_string(data, pos, end)
    if shape & _KEY and pos != _ZERO:
        key_start, key_length, pos = _read_string(data, pos, end)
    if shape & _VALUE and not shape & _VALUE_FIRST and pos != _ZERO:
        value_start, value_length, pos = _read_string(data, pos, end)
    return family, key_start, key_length, value_start, value_length, pos


@always_inlined
def _take(column: Any, row: Any, has: Any, at: Any, data: Any, start: Any, length: Any) -> Any:
    """Add a row's value to a column that ends at `at`; return where it ends then."""
    column.has[row] = 1 if has else 0
    if column.wanted:
        copy_bytes(column.data, at, data, start, length)
        at += length
    column.ends[row + 1] = at
    return at


@always_inlined
def _decode_batch(data: Any, pos: Any, end: Any, start: Any, table: Any, state: Any, out: Any) -> Any:
    """Decode the operations from `pos` on; return the position after them, and whether none is broken."""
    variants, shapes = table.variants, table.shapes
    max_rows = len(out.sequences)
    record, sequence, found, row = state.record, state.sequence, state.found, state.rows
    key_at, value_at = np.uint64(state.key_bytes), np.uint64(state.value_bytes)
    no_keys, no_values = state.no_keys, state.no_values
    intact = True
    while pos < end and row < max_rows:
        prefetch(data, pos + _AHEAD)
        prefetch(data, pos + _AHEAD + _LINE)
        tag = data[pos]
        variant = np.int64(variants[tag])
        if variant >= len(shapes):
            _note(out.events, state, _UNKNOWN, tag, pos - start)
            intact = False
            break
        shape = shapes[variant]
        family, key_start, key_length, value_start, value_length, after = _read_fields(data, pos + _ONE, end, shape)
        if after == _ZERO:
            _note(out.events, state, _BROKEN, variant >> 1, pos - start)
            intact = False
            break
        out.records[row] = record
        out.sequences[row] = sequence
        out.operations[row] = variant >> 1
        out.families[row] = family
        no_keys += 0 if shape & _KEY else 1
        no_values += 0 if shape & _VALUE else 1
        key_at = _take(out.keys, row, shape & _KEY, key_at, data, key_start, key_length)
        value_at = _take(out.values, row, shape & _VALUE, value_at, data, value_start, value_length)
        row += 1
        if shape & _COUNTED:
            sequence += 1
            found += 1
        pos = after
    state.sequence, state.found, state.rows = sequence, found, row
    state.key_bytes, state.value_bytes = key_at, value_at
    state.no_keys, state.no_values = no_keys, no_values
    return pos, intact


@kernel
def decode_batches(batches: Strings, table: Table, state: Annotated[Any, Record(DECODER)], out: Decoded) -> Int64:
    """Decode write batches into rows, one per operation. Section 10.1 of the format.

    What follows an error in a batch is left out; the operations before it are kept.

    Returns:
        DONE, FULL or INVALID.
    """
    data, offsets = batches.data, batches.offsets
    while state.record < len(offsets) - 1:
        record = state.record
        if not 0 <= offsets[record] <= offsets[record + 1] <= len(data):
            return INVALID
        # A record causes one event at the most.
        if state.events >= len(out.events) or state.rows >= len(out.sequences):
            return FULL
        start, end = np.uint64(offsets[record]), np.uint64(offsets[record + 1])
        if end - start < _HEADER:
            _note(out.events, state, _TOO_SMALL, end - start, 0)
            state.record += 1
            continue
        pos = start + np.uint64(state.position)
        if state.position == 0:
            state.sequence = np.int64(load_u64(data, start))
            state.found = 0
            pos = start + _HEADER
        pos, intact = _decode_batch(data, pos, end, start, table, state, out)
        if intact and pos < end:
            state.position = pos - start
            return FULL
        counted = np.int64(load_u32(data, start + _COUNT))
        if intact and state.found != counted:
            _note(out.events, state, _WRONG_COUNT, counted, state.found)
        state.position = 0
        state.record += 1
    return DONE


@inlined
def _put_string(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    length = np.uint64(end) - np.uint64(start)
    pos = put_varint(out, pos, length)
    copy_bytes(out, pos, data, np.uint64(start), length)
    return pos + length


@kernel
def encode_batches(rows: Operations, table: Table, out: OutBytes, ends: OutInt32s) -> Int64:
    """Encode operations as write batches. Section 10.1 of the format.

    Args:
        rows: `Operations`; each has a tag for its column family, or for none.
        table: `Table`.
        out: uint8, with room for a header and `OPERATION_ROOM` bytes per row besides all keys and values.
        ends: int32, `ends[i + 1]` is the end of batch i in `out`; `ends[0]` is 0.

    Returns:
        DONE, or INVALID.
    """
    starts = rows.starts
    keys, key_offsets = rows.keys.data, rows.keys.offsets
    values, value_offsets = rows.values.data, rows.values.offsets
    batches = len(starts) - 1
    pos = _ZERO
    for batch in range(batches):
        header = pos
        counted = _ZERO
        sequence = np.uint64(rows.sequences[starts[batch]])
        store_u32(out, header, sequence & _U32)
        store_u32(out, header + _HALF, sequence >> _HALF_BITS)
        pos += _HEADER
        for row in range(starts[batch], starts[batch + 1]):
            code = rows.codes[row]
            shape = table.shapes[2 * code]
            family = np.uint64(rows.families[row])
            key_start, key_end = key_offsets[row], key_offsets[row + 1]
            value_start, value_end = value_offsets[row], value_offsets[row + 1]
            if not (0 <= key_start <= key_end <= len(keys) and 0 <= value_start <= value_end <= len(values)):
                return INVALID
            if family == _ZERO:
                out[pos] = table.tags[code, 0]
                pos += _ONE
            else:
                out[pos] = table.tags[code, 1]
                pos = put_varint(out, pos + _ONE, family)
            if shape & _VALUE_FIRST:
                pos = _put_string(out, pos, values, value_start, value_end)
            if shape & _KEY:
                pos = _put_string(out, pos, keys, key_start, key_end)
            if shape & _VALUE and not shape & _VALUE_FIRST:
                pos = _put_string(out, pos, values, value_start, value_end)
            if shape & _COUNTED:
                counted += _ONE
        store_u32(out, header + _COUNT, counted)
        ends[batch + 1] = pos
    return DONE


OPERATION_ROOM = 1 + 3 * layout.VARINT32_BYTES
"""Bytes that the tag, the column family and two lengths take at the most."""
