"""Decoding write batches into columns, and laying operations out as write batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, prefetch, store_u32
from sawlog.leveldb_log.payloads import layout
from sawlog.leveldb_log.payloads.layout import BatchKind, Field

# Fields of the decoder's state, an int64 array.
RECORD = 0
"""The record being decoded."""
POSITION = 1
"""Byte of it behind the last operation that is decoded; 0 before its header."""
SEQUENCE = 2
"""Sequence number of the next operation."""
FOUND = 3
"""Operations of the record so far that take a sequence number."""
ROWS = 4
KEY_BYTES = 5
VALUE_BYTES = 6
EVENTS = 7
NO_KEYS = 8
"""Rows without a key."""
NO_VALUES = 9
STATE_SIZE = 10

EVENT_FIELDS = 4
"""Kind, record, and two numbers for the message."""

# What a call ended with.
DONE = 0
"""All records are decoded, or laid out."""
FULL = 1
"""No room for more rows or events."""
INVALID = 2
"""Arguments that no valid Arrow array has."""

_HEADER = np.uint64(layout.BATCH_HEADER)
_COUNT = np.uint64(layout.COUNT_OFFSET)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SEVEN = np.uint64(7)
_LOW7 = np.uint64(127)
_HALF = np.uint64(4)
_HALF_BITS = np.uint64(32)
_LINE = np.uint64(64)
_AHEAD = np.uint64(1024)
_U32 = np.uint64(0xFFFFFFFF)
_VARINT32_SHIFT = np.uint64(7 * (layout.VARINT32_BYTES - 1))
_VARINT_MORE = 128

_FAMILY = int(Field.FAMILY)
_KEY = int(Field.KEY)
_VALUE = int(Field.VALUE)
_COUNTED = int(Field.COUNTED)
_VALUE_FIRST = int(Field.VALUE_FIRST)

_TOO_SMALL = int(BatchKind.BATCH_TOO_SMALL)
_UNKNOWN = int(BatchKind.UNKNOWN_OPERATION)
_BROKEN = int(BatchKind.BROKEN_OPERATION)
_WRONG_COUNT = int(BatchKind.WRONG_COUNT)


@inlined
def _varint32(data: Any, pos: Any, end: Any) -> Any:
    """A varint32 at `pos`, read as LevelDB reads it: the value and the position behind it, which is 0 for none."""
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
def _string(data: Any, pos: Any, end: Any) -> Any:
    """A string at `pos`: its start, its length, and the position behind it, which is 0 for none."""
    length, start = _varint32(data, pos, end)
    if start == _ZERO or end - start < length:
        return _ZERO, _ZERO, _ZERO
    return start, length, start + length


@inlined
def _note(events: Any, state: Any, kind: Any, record: Any, one: Any, two: Any) -> None:
    row = state[EVENTS]
    events[row, 0] = kind
    events[row, 1] = record
    events[row, 2] = one
    events[row, 3] = two
    state[EVENTS] = row + 1


@kernel
def decode_batches(
    data: Any,
    offsets: Any,
    variants: Any,
    shapes: Any,
    gather_keys: Any,
    gather_values: Any,
    state: Any,
    records: Any,
    sequences: Any,
    operations: Any,
    families: Any,
    has_key: Any,
    keys: Any,
    key_ends: Any,
    has_value: Any,
    values: Any,
    value_ends: Any,
    events: Any,
) -> Any:
    """Decode write batches into rows, one per operation. Section 10.1 of the format.

    What follows an error in a batch is left out; the operations before it are kept.

    Args:
        data: uint8, the batches.
        offsets: int32, batch i is `data[offsets[i] : offsets[i + 1]]`.
        variants: uint8[256], what each tag stands for: twice the code of an operation, plus one where a column family
            follows; or `len(shapes)` for nothing.
        shapes: uint8, the `Field` bits of each variant.
        gather_keys: Whether keys are copied.
        gather_values: Whether values are copied.
        state: int64[STATE_SIZE], updated.
        records: int32, the batch of each row.
        sequences: int64.
        operations: int8, codes.
        families: int64.
        has_key: uint8, 0 or 1.
        keys: uint8, at least as long as `data` if keys are gathered.
        key_ends: int32, `key_ends[i + 1]` is the end of key i; `key_ends[0]` is 0.
        has_value: As `has_key`.
        values: As `keys`.
        value_ends: As `key_ends`.
        events: int64[:, EVENT_FIELDS], damage.

    Returns:
        DONE, FULL or INVALID.
    """
    count = len(offsets) - 1
    max_rows = len(sequences)
    max_events = len(events)
    unknown = len(shapes)
    record = state[RECORD]
    resume = np.uint64(state[POSITION])
    sequence = state[SEQUENCE]
    found = state[FOUND]
    row = state[ROWS]
    key_at = np.uint64(state[KEY_BYTES])
    value_at = np.uint64(state[VALUE_BYTES])
    no_keys = state[NO_KEYS]
    no_values = state[NO_VALUES]
    status = DONE
    while record < count:
        if not 0 <= offsets[record] <= offsets[record + 1] <= len(data):
            return INVALID
        # A record causes one event at the most.
        if state[EVENTS] >= max_events or row >= max_rows:
            status = FULL
            break
        start = np.uint64(offsets[record])
        end = np.uint64(offsets[record + 1])
        if end - start < _HEADER:
            _note(events, state, _TOO_SMALL, record, end - start, 0)
            record += 1
            continue
        pos = start + resume
        if resume == _ZERO:
            sequence = np.int64(load_u64(data, start))
            found = 0
            pos = start + _HEADER
        intact = True
        while pos < end and row < max_rows:
            prefetch(data, pos + _AHEAD)
            prefetch(data, pos + _AHEAD + _LINE)
            tag = data[pos]
            variant = np.int64(variants[tag])
            here = pos
            if variant >= unknown:
                _note(events, state, _UNKNOWN, record, tag, here - start)
                intact = False
                break
            shape = shapes[variant]
            code = variant >> 1
            pos += _ONE
            family = _ZERO
            key_start = key_length = value_start = value_length = _ZERO
            if shape & _FAMILY:
                family, pos = _varint32(data, pos, end)
            if shape & _VALUE_FIRST and pos != _ZERO:
                value_start, value_length, pos = _string(data, pos, end)
            if shape & _KEY and pos != _ZERO:
                key_start, key_length, pos = _string(data, pos, end)
            if shape & _VALUE and not shape & _VALUE_FIRST and pos != _ZERO:
                value_start, value_length, pos = _string(data, pos, end)
            if pos == _ZERO:
                _note(events, state, _BROKEN, record, code, here - start)
                intact = False
                break
            records[row] = record
            sequences[row] = sequence
            operations[row] = code
            families[row] = family
            has_key[row] = 1 if shape & _KEY else 0
            has_value[row] = 1 if shape & _VALUE else 0
            no_keys += 0 if shape & _KEY else 1
            no_values += 0 if shape & _VALUE else 1
            if gather_keys:
                copy_bytes(keys, key_at, data, key_start, key_length)
                key_at += key_length
            if gather_values:
                copy_bytes(values, value_at, data, value_start, value_length)
                value_at += value_length
            row += 1
            key_ends[row] = key_at
            value_ends[row] = value_at
            if shape & _COUNTED:
                sequence += 1
                found += 1
        if intact and pos < end:
            resume = pos - start
            status = FULL
            break
        counted = np.int64(load_u32(data, start + _COUNT))
        if intact and found != counted:
            _note(events, state, _WRONG_COUNT, record, counted, found)
        resume = _ZERO
        record += 1
    state[RECORD] = record
    state[POSITION] = resume
    state[SEQUENCE] = sequence
    state[FOUND] = found
    state[ROWS] = row
    state[KEY_BYTES] = key_at
    state[VALUE_BYTES] = value_at
    state[NO_KEYS] = no_keys
    state[NO_VALUES] = no_values
    return status


@kernel
def gather_names(codes: Any, data: Any, offsets: Any, out: Any, ends: Any) -> Any:
    """Write the name of each code.

    Args:
        codes: int8, each below the number of names.
        data: uint8, the names.
        offsets: int32, name i is `data[offsets[i] : offsets[i + 1]]`.
        out: uint8, with room for the longest name as many times as there are codes.
        ends: int32, `ends[i + 1]` is the end of name i in `out`; `ends[0]` is 0.

    Returns:
        Bytes written.
    """
    pos = _ZERO
    ends[0] = 0
    for row in range(len(codes)):
        start = np.uint64(offsets[codes[row]])
        length = np.uint64(offsets[codes[row] + 1]) - start
        copy_bytes(out, pos, data, start, length)
        pos += length
        ends[row + 1] = pos
    return pos


@inlined
def _put_varint(out: Any, pos: Any, value: Any) -> Any:
    while value >= _VARINT_MORE:
        out[pos] = value & _LOW7 | np.uint64(_VARINT_MORE)
        pos += _ONE
        value >>= _SEVEN
    out[pos] = value
    return pos + _ONE


@inlined
def _put_string(out: Any, pos: Any, data: Any, start: Any, end: Any) -> Any:
    length = np.uint64(end) - np.uint64(start)
    pos = _put_varint(out, pos, length)
    copy_bytes(out, pos, data, np.uint64(start), length)
    return pos + length


@kernel
def encode_batches(
    starts: Any,
    sequences: Any,
    operations: Any,
    families: Any,
    keys: Any,
    key_offsets: Any,
    values: Any,
    value_offsets: Any,
    tags: Any,
    shapes: Any,
    out: Any,
    ends: Any,
) -> Any:
    """Lay operations out as write batches. Section 10.1 of the format.

    Args:
        starts: int64, batch i is made of the rows from `starts[i]` up to `starts[i + 1]`.
        sequences: int64, of each row.
        operations: int8, codes, each below `len(shapes)`.
        families: int64, each a u32.
        keys: uint8.
        key_offsets: int32, key i is `keys[key_offsets[i] : key_offsets[i + 1]]`.
        values: As `keys`.
        value_offsets: As `key_offsets`.
        tags: int16[:, 2], tags of each code, without and with a column family.
        shapes: uint8, the `Field` bits of each code.
        out: uint8, with room for a header and `OPERATION_ROOM` bytes per row beside all keys and values.
        ends: int32, `ends[i + 1]` is the end of batch i in `out`; `ends[0]` is 0.

    Returns:
        DONE, or INVALID.
    """
    batches = len(starts) - 1
    pos = _ZERO
    for batch in range(batches):
        header = pos
        counted = _ZERO
        sequence = np.uint64(sequences[starts[batch]])
        store_u32(out, header, sequence & _U32)
        store_u32(out, header + _HALF, sequence >> _HALF_BITS)
        pos += _HEADER
        for row in range(starts[batch], starts[batch + 1]):
            code = operations[row]
            shape = shapes[code]
            family = np.uint64(families[row])
            key_start, key_end = key_offsets[row], key_offsets[row + 1]
            value_start, value_end = value_offsets[row], value_offsets[row + 1]
            if not (0 <= key_start <= key_end <= len(keys) and 0 <= value_start <= value_end <= len(values)):
                return INVALID
            if family == _ZERO:
                out[pos] = tags[code, 0]
                pos += _ONE
            else:
                out[pos] = tags[code, 1]
                pos = _put_varint(out, pos + _ONE, family)
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
