"""Values of columns: from the bytes of rows into Arrow buffers, and back, for use inside kernels and by Python.

As in `sawlog.kernels.memory`, callers check before each access.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column
from sawlog.kernels.jit import always_inlined, kernel
from sawlog.kernels.layout import Number, Slice, make_load, make_store
from sawlog.kernels.memory import store_u32
from sawlog.kernels.numbers import _FOUR, _ZERO
from sawlog.kernels.signature import Bytes, Int64s, OutBytes
from sawlog.kernels.vector import copy_short


def make_take(width: int, *, big: bool = False) -> Any:
    """Return `take(target, values, row, data, at) -> uint64`: a value of 1, 2, 4 or 8 bytes as stored at `data[at]`.

    It goes to the buffer that begins at `target[values]`, as item `row`. All numbers are uint64.
    """
    load, store, step = make_load(Number(0, width, big)), make_store(Number(0, width)), np.uint64(width)

    @always_inlined
    def take(target: Any, values: Any, row: Any, data: Any, pos: Any) -> Any:
        value = load(data, pos)
        store(target, values + row * step, value)
        return value

    return take


def make_put(*, big: bool = False) -> Any:
    """Return `put(width, out, at, data, values, row)`, the reverse: item `row` from `data[values]` to `out[at]`."""

    def make_copy(width: int) -> Any:
        load, store, step = make_load(Number(0, width)), make_store(Number(0, width, big)), np.uint64(width)

        @always_inlined
        def copy(out: Any, pos: Any, data: Any, values: Any, row: Any) -> None:
            store(out, pos, load(data, values + row * step))

        return copy

    copy_1, copy_2, copy_4, copy_8 = (make_copy(width) for width in (1, 2, 4, 8))

    @always_inlined
    def put(width: Any, out: Any, pos: Any, data: Any, values: Any, row: Any) -> None:
        if width == 8:
            copy_8(out, pos, data, values, row)
        elif width == 4:
            copy_4(out, pos, data, values, row)
        elif width == 2:
            copy_2(out, pos, data, values, row)
        else:
            copy_1(out, pos, data, values, row)

    return put


@always_inlined
def append(target: Any, body: Any, used: Any, ends: Any, place: Any, data: Any, pos: Any, length: Any) -> Any:
    """Copy `length` bytes at `data[at]` after the `used` ones of a buffer that begins at `target[body]`.

    Their end there is stored at `ends[place]`, of a uint8 array, and returned. All numbers are uint64.
    """
    copy_short(target, body + used, data, pos, length)
    used += length
    store_u32(ends, place, used)
    return used


def make_put_slice(kind: Slice) -> Any:
    """Return `put_slice(out, at, data, start, length) -> uint64`: `length` bytes of `data[start]`, after their length.

    What comes after them in `out` may be overwritten. The result is their end. All numbers are uint64.
    """
    store, size = make_store(kind.length), np.uint64(kind.length.size)

    @always_inlined
    def put_slice(out: Any, pos: Any, data: Any, start: Any, length: Any) -> Any:
        store(out, pos, length)
        copy_short(out, pos + size, data, start, length)
        return pos + size + length

    return put_slice


@kernel
def gather_slices(data: Bytes, starts: Int64s, lengths: Int64s, out: OutBytes, ends: OutBytes) -> None:
    """Copy slices one after the other.

    Args:
        data: uint8.
        starts: int64, slice i is `data[starts[i] : starts[i] + lengths[i]]`; it has been checked.
        lengths: int64.
        out: uint8, with room for all.
        ends: uint8, of int32: `ends[i + 1]` becomes the end of slice i in `out`; `ends[0]` is 0.
    """
    used = _ZERO
    for row in range(len(starts)):
        place = np.uint64(row) * _FOUR + _FOUR
        used = append(out, _ZERO, used, ends, place, data, np.uint64(starts[row]), np.uint64(lengths[row]))


def gather_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[pa.Buffer, pa.Buffer]:
    """Return ends and bytes of `data[start : start + length]`, one after the other, which have been checked."""
    out, ends = Column(np.uint8, int(lengths.sum())), Column(np.int32, len(starts) + 1)
    ends.values[0] = 0
    gather_slices(data, starts, lengths, out.values, ends.values.view(np.uint8))
    return ends.take(len(starts) + 1), out.take(int(ends.values[-1]))
