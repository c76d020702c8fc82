"""Expanding MinLZ's blocks: sections 1 and 2 of the MinLZ specification, version 1.0."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.numbers import _EIGHT, _FIVE, _FOUR, _ONE, _SEVEN, _SIX, _THREE, _TWO, _ZERO
from sawlog.kernels.signature import Bool, Bytes, OutBytes, UInt64
from sawlog.kernels.snappy import repeat_bytes

_ELEVEN = np.uint64(11)
_COPY3 = np.uint64(4)
_TAG = np.uint64(3)
_LOW4 = np.uint64(15)
_LOW6 = np.uint64(63)
_LOW16 = np.uint64(0xFFFF)
_LITERAL_EXTENDED = np.uint64(29)
_LITERAL_MORE = np.uint64(30)
_COPY1_EXTENDED = np.uint64(15)
_COPY1_MORE = np.uint64(18)
_COPY_EXTENDED = np.uint64(61)
_COPY_MORE = np.uint64(64)
_COPY2_LEAST = np.uint64(64)
_COPY3_LEAST = np.uint64(65536)


@inlined
def _load_number(data: Any, pos: Any, width: Any) -> Any:
    """Return the little-endian number of `width` bytes at `pos`."""
    value = _ZERO
    for i in range(width):
        value |= np.uint64(data[pos + i]) << _EIGHT * i
    return value


@kernel
def expand_minlz(data: Bytes, start: UInt64, end: UInt64, out: OutBytes, size: UInt64) -> Bool:
    """Expand the elements `data[start:end]` of a block, which follow its size.

    Args:
        data: uint8.
        start: uint64.
        end: uint64.
        out: uint8, `SLACK` bytes longer than `size`.
        size: uint64, what the block says it expands to.

    Returns:
        Whether it does.
    """
    pos = start
    out_pos = _ZERO
    back = _ONE
    while pos < end:
        tag = np.uint64(data[pos])
        kind = tag & _TAG
        # The element's bytes up to its longer length, and that length's; literals follow both.
        head, more, literals = _ONE, _ZERO, _ZERO
        if kind == _ZERO:
            length, least, extended = tag >> _THREE, _LITERAL_MORE, _LITERAL_EXTENDED
        elif kind == _ONE:
            head = _TWO
            length, least, extended = tag >> _TWO & _LOW4, _COPY1_MORE, _COPY1_EXTENDED
        elif kind == _TWO:
            head = _THREE
            length, least, extended = tag >> _TWO, _COPY_MORE, _COPY_EXTENDED
        else:
            head = _FOUR if tag & _COPY3 else _THREE
            literals = tag >> _THREE & _TAG
            if end - pos < head:
                return False
            length, least, extended = _load_number(data, pos, head) >> _FIVE & _LOW6, _COPY_MORE, _COPY_EXTENDED
            if not tag & _COPY3:
                literals += _ONE
                length &= _SEVEN
        if length >= extended:
            more = length - extended + _ONE
            if end - pos < head + more:
                return False
            length = least + _load_number(data, pos + head, more)
        elif kind == _ZERO:
            length += _ONE
        else:
            length += _FOUR
        if end - pos < head + more:
            return False
        if kind == _ONE:
            back = (_load_number(data, pos, _TWO) >> _SIX) + _ONE
        elif kind == _TWO:
            back = _load_number(data, pos + _ONE, _TWO) + _COPY2_LEAST
        elif kind == _THREE:
            word = _load_number(data, pos, head)
            back = (word >> _ELEVEN) + _COPY3_LEAST if tag & _COPY3 else (word >> _EIGHT & _LOW16) + _COPY2_LEAST
        pos += head + more
        if kind == _ZERO and not tag & _FOUR:
            literals, length = length, _ZERO
        if literals > end - pos or literals > size - out_pos:
            return False
        copy_bytes(out, out_pos, data, pos, literals)
        pos += literals
        out_pos += literals
        if length:
            if back > out_pos or length > size - out_pos:
                return False
            repeat_bytes(out, out_pos, back, length)
            out_pos += length
    return out_pos == size
