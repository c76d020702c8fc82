"""Reading protobuf's wire format at unsigned positions of uint8 arrays, for use inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined
from sawlog.kernels.numbers import _EIGHT, _FOUR, _LOW7, _ONE, _SEVEN, _THREE, _ZERO

_MORE = np.uint64(128)
_TAGS = np.uint64(0xFFFFFFFF)


@inlined
def read_varint(data: Any, pos: Any, end: Any) -> Any:
    """Return a varint at `pos`: the value and the position after it, which is 0 for none."""
    if pos < end and data[pos] < 128:
        return np.uint64(data[pos]), pos + _ONE
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
    """Write a varint at `pos`; return the position after it. At most ten bytes."""
    while value >= _MORE:
        out[pos] = value & _LOW7 | _MORE
        pos += _ONE
        value >>= _SEVEN
    out[pos] = value
    return pos + _ONE


@inlined
def measure_varint(value: Any) -> Any:
    """Return the bytes that `put_varint` writes."""
    size = _ONE
    while value >= _MORE:
        value >>= _SEVEN
        size += _ONE
    return size


@inlined
def read_field(data: Any, pos: Any, end: Any) -> Any:
    """Return a field of a message that ends at `end`.

    Returns:
        Its tag; where its bytes begin, or the number that it is; and the position after it, which is 0 for none. A
        group is two fields without bytes, one where it begins and one where it ends: see `of_group`.
    """
    tag, pos = read_varint(data, pos, end)
    # Field numbers have 29 bits, and none is 0.
    if pos == _ZERO or tag < _EIGHT or tag > _TAGS:
        return _ZERO, _ZERO, _ZERO
    wire = tag & _SEVEN
    if wire == 0:
        value, pos = read_varint(data, pos, end)
        return tag, value, pos
    size = _ZERO
    if wire == 2:
        size, pos = read_varint(data, pos, end)
    elif wire == 1:
        size = _EIGHT
    elif wire == 5:
        size = _FOUR
    if pos == _ZERO or wire > 5 or end - pos < size:
        return _ZERO, _ZERO, _ZERO
    return tag, pos, pos + size


@inlined
def of_group(tag: Any) -> Any:
    """Return whether a group begins or ends with a field."""
    return tag & _SEVEN in (_THREE, _FOUR)
