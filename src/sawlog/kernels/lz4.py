"""Expanding LZ4's raw blocks, within kernels that read many small ones. See LZ4's block format description."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import load_u16
from sawlog.kernels.numbers import _FOUR, _ONE, _TWO, _ZERO
from sawlog.kernels.signature import Bool, Bytes, OutBytes, UInt64
from sawlog.kernels.snappy import copy_literal, repeat_bytes

_MORE = np.uint64(15)
_MOST = np.uint64(255)


@inlined
def _extend_length(data: Any, pos: Any, end: Any, length: Any) -> Any:
    """Return a length that goes on in bytes of their own, and the position after it, which is 0 for none."""
    while pos < end:
        byte = np.uint64(data[pos])
        pos += _ONE
        length += byte
        if byte != _MOST:
            return length, pos
    return length, _ZERO


@inlined
def expand_lz4(data: Any, start: Any, end: Any, out: Any, begin: Any, size: Any) -> Any:
    """Expand `data[start:end]`: whether it makes `out[begin:size]`; what is before `begin` may be referred to.

    As `sawlog.kernels.snappy.expand_snappy`.
    """
    pos = start
    out_pos = begin
    while pos < end:
        token = np.uint64(data[pos])
        pos += _ONE
        length = token >> _FOUR
        if length == _MORE:
            length, pos = _extend_length(data, pos, end, length)
            if pos == _ZERO:
                return False
        if length > end - pos or length > size - out_pos:
            return False
        copy_literal(out, out_pos, data, pos, end, length)
        pos += length
        out_pos += length
        if pos == end:
            return out_pos == size
        if end - pos < _TWO:
            return False
        back = load_u16(data, pos)
        pos += _TWO
        length = token & _MORE
        if length == _MORE:
            length, pos = _extend_length(data, pos, end, length)
            if pos == _ZERO:
                return False
        length += _FOUR
        if back == _ZERO or back > out_pos or length > size - out_pos:
            return False
        repeat_bytes(out, out_pos, back, length)
        out_pos += length
    return False


@kernel
def expand_after(data: Bytes, out: OutBytes, begin: UInt64, end: UInt64) -> Bool:
    """Expand a block that was compressed with a dictionary: whether it makes `out[begin:end]`.

    Args:
        data: uint8, the block.
        out: uint8, begins with the dictionary; `SLACK` bytes longer than `end`.
        begin: uint64.
        end: uint64.
    """
    return expand_lz4(data, _ZERO, np.uint64(len(data)), out, begin, end)
