"""Reading protobuf's wire format at unsigned positions of uint8 arrays, for use inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_SEVEN = np.uint64(7)
_EIGHT = np.uint64(8)
_LOW7 = np.uint64(127)
_MORE = np.uint64(128)
_TAGS = np.uint64(0xFFFFFFFF)


@inlined
def varint(data: Any, pos: Any, end: Any) -> Any:
    """A varint at `pos`: the value and the position behind it, which is 0 for none."""
    value = _ZERO
    shift = _ZERO
    while pos < end and shift < 70:
        byte = np.uint64(data[pos])
        pos += _ONE
        value |= (byte & _LOW7) << shift
        if byte < 128:
            return value, pos
        shift += _SEVEN
    return _ZERO, _ZERO


@inlined
def put_varint(out: Any, pos: Any, value: Any) -> Any:
    """Write a varint at `pos`; the position behind it. At most ten bytes."""
    while value >= _MORE:
        out[pos] = value & _LOW7 | _MORE
        pos += _ONE
        value >>= _SEVEN
    out[pos] = value
    return pos + _ONE


@inlined
def varint_size(value: Any) -> Any:
    """The bytes that `put_varint` writes."""
    size = _ONE
    while value >= _MORE:
        value >>= _SEVEN
        size += _ONE
    return size


@inlined
def delimited(data: Any, pos: Any, end: Any) -> Any:
    """Length-delimited bytes at `pos`: their start and end; the end is 0 for none."""
    length, start = varint(data, pos, end)
    if start == _ZERO or end - start < length:
        return _ZERO, _ZERO
    return start, start + length


@inlined
def skip_field(data: Any, tag: Any, pos: Any, end: Any) -> Any:
    """The position behind a field that nobody needs; 0 where it does not end or is a group."""
    # Field numbers have 29 bits, and none is 0.
    if tag < _EIGHT or tag > _TAGS:
        return _ZERO
    wire = tag & _SEVEN
    if wire == 0:
        _, pos = varint(data, pos, end)
        return pos
    if wire == 2:
        _, pos = delimited(data, pos, end)
        return pos
    size = _EIGHT if wire == 1 else _FOUR
    if wire not in (1, 5) or end - pos < size:
        return _ZERO
    return pos + size
