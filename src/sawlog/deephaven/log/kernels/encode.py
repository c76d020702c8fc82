"""Laying rows out as entries."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.deephaven.log import layout
from sawlog.kernels.adler32 import adler32
from sawlog.kernels.columns import make_put, make_put_slice
from sawlog.kernels.jit import inlined, wide_kernel
from sawlog.kernels.memory import load_u32, store_big_u32
from sawlog.kernels.numbers import _FOUR, _ONE
from sawlog.kernels.signature import Array, Bytes, Int64, OutBytes, Record, UInt64

COLUMN = make_record_type(
    "width",  # bytes per value; 0 for values with a length
    "values",  # place of the values in the arena; of their int32 ends (the first is a start)
    "body",  # place of the bytes of values with a length, and how many there are
    "length",
    "valid",  # place of a byte per row that says whether the value is there; -1 when all are
    "byte",  # byte of the presence map, and the column's bit in it
    "mask",
)
"""What the kernel knows of a stored column."""
STATE = make_record_type("row", "used")
"""The next row to lay out, and bytes in `out`."""


class Rows(NamedTuple):
    """Rows to lay out.

    Attributes:
        arena: uint8, values, ends, bytes and validity of all columns.
        columns: Of `COLUMN`.
        presence: int64, bytes of a presence map.
        count: int64, number of rows.
        longest: int64, longest entry that is written.
    """

    arena: Bytes
    columns: Annotated[Any, Array(COLUMN)]
    presence: Int64
    count: Int64
    longest: Int64


class Flags(NamedTuple):
    """Flags of the first row, of those between, and of the last one, if it is not the first: uint8."""

    first: UInt64
    middle: UInt64
    last: UInt64


DONE = 0
FULL = 1
TOO_LARGE = 2
INVALID = 3
"""Offsets that no valid Arrow array has."""

_SIZE = np.uint64(layout.SIZE_SIZE)
_BODY = np.uint64(layout.SIZE_SIZE + layout.FLAGS_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_LENGTH = np.uint64(layout.COUNT_SIZE)
_put = make_put(big=True)
_put_slice = make_put_slice(layout.VALUE)


@inlined
def _measure(rows: Any, row: Any) -> Any:
    """Return the number of bytes of a row's values; -1 for offsets outside the data."""
    arena = rows.arena
    total = np.int64(0)
    for number in range(len(rows.columns)):
        column = rows.columns[number]
        if column.valid >= 0 and arena[column.valid + row] == 0:
            continue
        if column.width == 0:
            place = np.uint64(column.values) + np.uint64(row) * _FOUR
            start = load_u32(arena, place)
            stop = load_u32(arena, place + _FOUR)
            if start > stop or stop > np.uint64(column.length):
                return np.int64(-1)
            total += np.int64(_LENGTH + stop - start)
        else:
            total += column.width
    return total


@inlined
def _lay_out(rows: Any, row: Any, out: Any, position: Any) -> Any:
    """Write presence map and values of a row at `out[at:]`. Returns the position after them."""
    arena = rows.arena
    for i in range(rows.presence):
        out[position + np.uint64(i)] = 0
    bits = position
    position += np.uint64(rows.presence)
    for number in range(len(rows.columns)):
        column = rows.columns[number]
        if column.valid >= 0 and arena[column.valid + row] == 0:
            continue
        out[bits + np.uint64(column.byte)] |= column.mask
        values, item = np.uint64(column.values), np.uint64(row)
        if column.width != 0:
            _put(column.width, out, position, arena, values, item)
            position += np.uint64(column.width)
        else:
            start = load_u32(arena, values + item * _FOUR)
            length = load_u32(arena, values + (item + _ONE) * _FOUR) - start
            position = _put_slice(out, position, arena, np.uint64(column.body) + start, length)
    return position


@wide_kernel
def encode_rows(rows: Rows, flags: Flags, state: Annotated[Any, Record(STATE)], out: OutBytes) -> Int64:
    """Lay rows out as entries, until all are done or `out` is full.

    Args:
        rows: `Rows`.
        flags: `Flags`.
        state: Of `STATE`, updated.
        out: uint8, at least `rows.longest` bytes.

    Returns:
        DONE, FULL when `out` must be emptied first, TOO_LARGE or INVALID for row `state.row`.
    """
    room = np.int64(len(out))
    row = state.row
    used = state.used
    status = DONE
    while row < rows.count:
        size = _measure(rows, row)
        if size < 0:
            status = INVALID
            break
        total = size + rows.presence + np.int64(_BODY + _DIGEST)
        if total > rows.longest:
            status = TOO_LARGE
            break
        if room - used < total:
            status = FULL
            break
        start = np.uint64(used)
        store_big_u32(out, start, np.uint64(total) - _SIZE)
        role = flags.middle
        if row == 0:
            role = flags.first
        elif row == rows.count - 1:
            role = flags.last
        out[start + _SIZE] = role
        end = _lay_out(rows, row, out, start + _BODY)
        store_big_u32(out, end, adler32(out, start, end - start))
        used += total
        row += 1
    state.row = row
    state.used = used
    return status
