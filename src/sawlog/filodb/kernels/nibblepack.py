"""NibblePack: groups of eight 64-bit numbers, as few nibbles of each as all need. Section 9 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb import layout
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import load_u64, store_u64
from sawlog.kernels.numbers import _FOUR, _ONE, _ZERO
from sawlog.kernels.signature import Bytes, Int64, OutBytes, OutUInt64s, UInt64, UInt64s

FAILED = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Instead of a position: the input is broken, or the output full."""

GROUP = layout.NIBBLE_GROUP
MAX_GROUP_BYTES = 2 + 8 * GROUP
"""Mask, widths, and eight values of sixteen nibbles."""

_NIBBLE = np.uint64(15)
_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)
_CANONICAL_NAN = np.uint64(0x7FF8000000000000)
_INFINITY = np.uint64(0x7FF0000000000000)
_MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)


@inlined
def add(a: Any, b: Any) -> Any:
    """Return the sum modulo 2**64, in halves: plain Python warns of an overflow."""
    low = (a & _HALF) + (b & _HALF)
    high = (a >> _HALF_BITS) + (b >> _HALF_BITS) + (low >> _HALF_BITS)
    return (high & _HALF) << _HALF_BITS | low & _HALF


@inlined
def pack_group(values: Any, first: Any, count: Any, out: Any, pos: Any) -> Any:
    """Pack `values[at : at + count]`, filled up with zeros to a group; `out` has room for `MAX_GROUP_BYTES`.

    Returns:
        The position after the group.
    """
    together = _ZERO
    mask = _ZERO
    for i in range(count):
        value = values[first + i]
        together |= value
        if value != _ZERO:
            mask |= _ONE << np.uint64(i)
    out[pos] = mask
    pos += _ONE
    if mask == _ZERO:
        return pos
    trailing = 0
    while together >> np.uint64(4 * trailing) & _NIBBLE == _ZERO:
        trailing += 1
    nibbles = 16 - trailing
    while together >> np.uint64(4 * (trailing + nibbles - 1)) == _ZERO:
        nibbles -= 1
    out[pos] = np.uint64((nibbles - 1) << 4 | trailing)
    pos += _ONE
    half = 0
    pending = _ZERO
    for i in range(count):
        value = values[first + i]
        if value != _ZERO:
            for k in range(nibbles):
                nibble = value >> np.uint64(4 * (trailing + k)) & _NIBBLE
                if half == 0:
                    pending = nibble
                    half = 1
                else:
                    out[pos] = pending | nibble << _FOUR
                    pos += _ONE
                    half = 0
    if half == 1:
        out[pos] = pending
        pos += _ONE
    return pos


@inlined
def unpack_group(data: Any, pos: Any, end: Any, values: Any, first: Any, count: Any) -> Any:
    """Unpack a group; its first `count` values go to `values[at : at + count]`.

    Returns:
        The position after the group, or FAILED when the group is longer than the data.
    """
    if end - pos < _ONE:
        return FAILED
    mask = np.uint64(data[pos])
    pos += _ONE
    if mask == _ZERO:
        for i in range(count):
            values[first + i] = _ZERO
        return pos
    if end - pos < _ONE:
        return FAILED
    widths = np.uint64(data[pos])
    pos += _ONE
    nibbles = (widths >> _FOUR) + _ONE
    shift = (widths & _NIBBLE) * _FOUR
    total = _ZERO
    for i in range(8):
        total += nibbles * (mask >> np.uint64(i) & _ONE)
    size = (total + _ONE) >> _ONE
    if end - pos < size:
        return FAILED
    cursor = _ZERO
    for i in range(8):
        value = _ZERO
        if mask >> np.uint64(i) & _ONE != _ZERO:
            for k in range(nibbles):
                byte = np.uint64(data[pos + (cursor >> _ONE)])
                value |= (byte >> (_FOUR * (cursor & _ONE)) & _NIBBLE) << np.uint64(4 * k)
                cursor += _ONE
            value <<= shift
        if i < count:
            values[first + i] = value
    return pos + size


@inlined
def unpack_values(data: Any, pos: Any, end: Any, values: Any, first: Any, count: Any) -> Any:
    """Unpack `count` numbers to `values[at:]`; those past the end of the data, at the border of a group, are 0.

    Returns:
        How many numbers the data held, or -1 when it is broken.
    """
    done = 0
    while done < count and pos != end:
        take = min(count - done, GROUP)
        pos = unpack_group(data, pos, end, values, first + done, take)
        if pos == FAILED:
            return -1
        done += take
    for i in range(done, count):
        values[first + i] = _ZERO
    return done


@inlined
def unpack_delta(data: Any, pos: Any, end: Any, values: Any, first: Any, count: Any) -> Any:
    """Unpack `count` numbers from their differences, as `unpack_values` does."""
    done = unpack_values(data, pos, end, values, first, count)
    for i in range(1, done):
        values[first + i] = add(values[first + i], values[first + i - 1])
    return done


@inlined
def pack_values(values: Any, first: Any, count: Any, out: Any, pos: Any) -> Any:
    """Pack `values[at : at + count]`, group by group.

    Returns:
        The position after them, or FAILED when `out` has no room.
    """
    done = 0
    while done < count:
        if np.uint64(len(out)) - pos < np.uint64(MAX_GROUP_BYTES):
            return FAILED
        take = min(count - done, GROUP)
        pos = pack_group(values, first + done, take, out, pos)
        done += take
    return pos


@inlined
def unpack_xor(data: Any, pos: Any, end: Any, values: Any, first: Any, count: Any) -> Any:
    """Unpack the bits of `count` doubles, each XORed with the one before it, to `values[at:]`.

    Returns:
        How many of them the data held, or -1 when it is broken.
    """
    if count == 0:
        return 0
    if end - pos < np.uint64(8):
        return -1
    last = load_u64(data, pos)
    values[first] = last
    done = unpack_values(data, pos + np.uint64(8), end, values, first + 1, count - 1)
    for i in range(1, done + 1):
        last ^= values[first + i]
        values[first + i] = last
    return -1 if done < 0 else done + 1


@inlined
def pack_xor(values: Any, first: Any, count: Any, out: Any, pos: Any, scratch: Any) -> Any:
    """Pack the bits of doubles. NaNs but the first are made canonical, as in FiloDB. `scratch` is uint64[GROUP].

    Returns:
        The position after them, or FAILED when `out` has no room.
    """
    if np.uint64(len(out)) - pos < np.uint64(8):
        return FAILED
    last = values[first]
    store_u64(out, pos, last)
    pos += np.uint64(8)
    done = 1
    while done < count:
        if np.uint64(len(out)) - pos < np.uint64(MAX_GROUP_BYTES):
            return FAILED
        take = min(count - done, GROUP)
        for i in range(take):
            bits = values[first + done + i]
            if bits & _MAGNITUDE > _INFINITY:
                bits = _CANONICAL_NAN
            scratch[i] = bits ^ last
            last = bits
        pos = pack_group(scratch, 0, take, out, pos)
        done += take
    return pos


@kernel
def pack_stream(values: UInt64s, out: OutBytes) -> UInt64:
    """Pack all of `values`, uint64, into `out`, uint8; return the position after them, or FAILED."""
    return pack_values(values, 0, len(values), out, _ZERO)


@kernel
def unpack_delta_stream(data: Bytes, values: OutUInt64s) -> Int64:
    """Unpack differences until `values` are full; return -1 when the data is broken."""
    return unpack_delta(data, _ZERO, np.uint64(len(data)), values, 0, len(values))


@kernel
def unpack_stream(data: Bytes, values: OutUInt64s) -> Int64:
    """Unpack `data`, uint8, until `values`, uint64, are full; return -1 when the data is broken."""
    return unpack_values(data, _ZERO, np.uint64(len(data)), values, 0, len(values))


@kernel
def pack_xor_stream(values: UInt64s, scratch: OutUInt64s, out: OutBytes) -> UInt64:
    """Pack the bits of all doubles; return the position after them, or FAILED."""
    return pack_xor(values, 0, len(values), out, _ZERO, scratch)


@kernel
def unpack_xor_stream(data: Bytes, values: OutUInt64s) -> Int64:
    """Unpack the bits of doubles until `values` are full; return -1 when the data is broken."""
    return unpack_xor(data, _ZERO, np.uint64(len(data)), values, 0, len(values))
