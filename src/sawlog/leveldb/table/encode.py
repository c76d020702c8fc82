"""Laying out the entries of blocks."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u64, store_u32, store_u64
from sawlog.kernels.protobuf import put_varint
from sawlog.kernels.signature import Bytes, Int64, Int64s, OutBytes, OutUInt32s, Record, UInt64, UInt64s
from sawlog.leveldb.table import layout

# What a call ended with.
BLOCK = 0
"""A block is complete."""
DONE = 1
"""All rows are laid out; the block is not complete."""
FULL = 2
"""No room for the next entry."""
UNORDERED = 3
"""Keys are not in ascending order at row `row`."""

STATE = record_type("row", ("used", np.uint64), ("last", np.uint64), "restarts", "since", "entries")
"""The next row; bytes of the open block; bytes of `Out.last`, 0 before the first key; restart points of the block;
entries since the last of them; entries of the block."""

_TRAILER = np.uint64(layout.KEY_TRAILER)
_SHIFT = np.uint64(layout.SEQUENCE_SHIFT)
_LENGTHS = np.uint64(15)
"""Three varints take no more."""
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SEVEN = np.uint64(7)
_MORE = np.uint64(128)


class Given(NamedTuple):
    """Rows to lay out: user keys and values with their ends, sequence numbers, and types of operations.

    Attributes:
        keys: uint8; key i is `keys[key_ends[i] : key_ends[i + 1]]`.
        key_ends: int64.
        values: uint8.
        value_ends: int64.
        sequences: uint64.
        types: uint8.
    """

    keys: Bytes
    key_ends: Int64s
    values: Bytes
    value_ends: Int64s
    sequences: UInt64s
    types: Bytes


class Out(NamedTuple):
    """The open block.

    Attributes:
        data: uint8, its entries.
        last: uint8, the internal key of the entry before.
        restarts: uint32, where its restart points are.
        block_bytes: It is complete at this size.
        interval: Every so many entries, a key is stored whole.
    """

    data: OutBytes
    last: OutBytes
    restarts: OutUInt32s
    block_bytes: UInt64
    interval: Int64


@inlined
def _common(given: Any, start: Any, length: Any, last: Any, held: Any) -> Any:
    """How many bytes a user key and the one before have in common from their beginning on."""
    shared = _ZERO
    most = min(length, held)
    while shared < most and given.keys[start + shared] == last[shared]:
        shared += _ONE
    return shared


@kernel
def lay_out(given: Given, out: Out, state: Annotated[Any, Record(STATE)]) -> Int64:
    """Lay out rows from `state.row` on, up to the end of a block.

    Args:
        given: See `Given`.
        out: See `Out`; `last` has room for any key.
        state: A record of type STATE; updated.

    Returns:
        BLOCK, DONE, FULL or UNORDERED.
    """
    rows = len(given.sequences)
    room = np.uint64(len(out.data))
    while state.row < rows:
        row = state.row
        start = np.uint64(given.key_ends[row])
        length = np.uint64(given.key_ends[row + 1]) - start
        value = np.uint64(given.value_ends[row])
        value_length = np.uint64(given.value_ends[row + 1]) - value
        total = length + _TRAILER
        if room - state.used < _LENGTHS + total + value_length or state.restarts == len(out.restarts):
            return FULL
        trailer = given.sequences[row] << _SHIFT | np.uint64(given.types[row])
        shared = _ZERO
        if state.last > _ZERO:
            held = state.last - _TRAILER
            shared = _common(given, start, length, out.last, held)
            if shared == length and length == held:
                if trailer >= load_u64(out.last, held):
                    return UNORDERED
            elif shared == length or (shared < held and given.keys[start + shared] < out.last[shared]):
                return UNORDERED
        if state.since == out.interval or state.entries == 0:
            out.restarts[state.restarts] = state.used
            state.restarts += 1
            state.since = 0
            shared = _ZERO
        pos = put_varint(out.data, state.used, shared)
        pos = put_varint(out.data, pos, total - shared)
        pos = put_varint(out.data, pos, value_length)
        copy_bytes(out.data, pos, given.keys, start + shared, length - shared)
        store_u64(out.data, pos + length - shared, trailer)
        copy_bytes(out.data, pos + total - shared, given.values, value, value_length)
        copy_bytes(out.last, _ZERO, given.keys, start, length)
        store_u64(out.last, length, trailer)
        state.used = pos + total - shared + value_length
        state.last = total
        state.since += 1
        state.entries += 1
        state.row = row + 1
        if state.used >= out.block_bytes:
            return BLOCK
    return DONE


@kernel
def close_block(out: Out, state: Annotated[Any, Record(STATE)]) -> UInt64:
    """Write restart points and their number after the entries; the bytes of the block, or 0 where there is no room."""
    need = np.uint64(state.restarts + 1) * np.uint64(layout.RESTART_SIZE)
    if np.uint64(len(out.data)) - state.used < need:
        return _ZERO
    pos = state.used
    for i in range(state.restarts):
        store_u32(out.data, pos, np.uint64(out.restarts[i]))
        pos += np.uint64(layout.RESTART_SIZE)
    store_u32(out.data, pos, np.uint64(state.restarts))
    return pos + np.uint64(layout.RESTART_SIZE)
