"""Expanding Snappy's raw blocks, within kernels that read many small ones. See Snappy's format description."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import copy_bytes, load_u16, load_u32, load_u64, store_u64
from sawlog.kernels.numbers import _EIGHT, _FIVE, _FOUR, _ONE, _SEVEN, _TWO, _ZERO
from sawlog.kernels.vector import copy_32

SLACK = 32
"""Bytes that an expansion may write past its end: as many as are copied at a time."""

_COPIED = np.uint64(SLACK)
_LONG_LITERAL = np.uint64(60)
_TAG = np.uint64(3)


@inlined
def expand_snappy(data: Any, start: Any, end: Any, out: Any, size: Any) -> Any:
    """Expand the elements `data[start:end]` of a block, which follow its size.

    Args:
        data: uint8.
        start: uint64.
        end: uint64.
        out: uint8, with `SLACK` bytes after `size`.
        size: uint64, what the block says it expands to.

    Returns:
        Whether it does.
    """
    pos = start
    out_pos = _ZERO
    while pos < end:
        tag = np.uint64(data[pos])
        pos += _ONE
        kind = tag & _TAG
        if kind == _ZERO:
            length = tag >> _TWO
            if length >= _LONG_LITERAL:
                width = length - _LONG_LITERAL + _ONE
                if end - pos < width:
                    return False
                length = _ZERO
                for i in range(width):
                    length |= np.uint64(data[pos + i]) << _EIGHT * i
                pos += width
            length += _ONE
            if length > end - pos or length > size - out_pos:
                return False
            copy_literal(out, out_pos, data, pos, end, length)
            pos += length
            out_pos += length
            continue
        if kind == _ONE:
            if pos == end:
                return False
            length = (tag >> _TWO & _SEVEN) + _FOUR
            back = (tag >> _FIVE) << _EIGHT | np.uint64(data[pos])
            pos += _ONE
        elif kind == _TWO:
            if end - pos < _TWO:
                return False
            length = (tag >> _TWO) + _ONE
            back = load_u16(data, pos)
            pos += _TWO
        else:
            if end - pos < _FOUR:
                return False
            length = (tag >> _TWO) + _ONE
            back = load_u32(data, pos)
            pos += _FOUR
        if back == _ZERO or back > out_pos or length > size - out_pos:
            return False
        repeat_bytes(out, out_pos, back, length)
        out_pos += length
    return out_pos == size


@inlined
def copy_literal(out: Any, out_pos: Any, data: Any, pos: Any, end: Any, length: Any) -> None:
    """Copy `length` bytes of an input that ends at `end`. Up to `SLACK` bytes after them are overwritten."""
    if length <= _COPIED and end - pos >= _COPIED:
        copy_32(out, out_pos, data, pos)
    else:
        copy_bytes(out, out_pos, data, pos, length)


@inlined
def repeat_bytes(out: Any, pos: Any, back: Any, length: Any) -> None:
    """Copy `length` bytes from `back` bytes before `pos`, which may reach into what is being written.

    Up to `SLACK` bytes after them are overwritten.
    """
    source = pos - back
    stop = pos + length
    while pos - source < _EIGHT:
        # Each step doubles what repeats, until it is as long as a word.
        store_u64(out, pos, load_u64(out, source))
        pos += pos - source
    while pos < stop:
        if pos - source >= _COPIED:
            copy_32(out, pos, out, source)
            source += _COPIED
            pos += _COPIED
        else:
            store_u64(out, pos, load_u64(out, source))
            source += _EIGHT
            pos += _EIGHT
