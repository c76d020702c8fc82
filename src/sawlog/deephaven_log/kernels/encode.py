"""Laying rows out as entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.kernels.adler32 import adler32
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import (
    copy_bytes,
    load_u16,
    load_u32,
    load_u64,
    store_big_u16,
    store_big_u32,
    store_big_u64,
)

# Fields of the table of columns, int64.
WIDTH = 0
VALUES = 1
"""Place of the values in the arena; of their int32 ends for values with a length (the first end is the start)."""
DATA = 2
"""Place of the bytes of values with a length, and how many there are."""
SIZE = 3
VALID = 4
"""Place of a byte per row that says whether the value is there; -1 when all are."""
BYTE = 5
MASK = 6
COLUMN_FIELDS = 7

# Fields of the state, an int64 array.
ROW = 0
"""The next row to lay out."""
USED = 1
"""Bytes in `out`."""
STATE_SIZE = 2

DONE = 0
FULL = 1
TOO_LARGE = 2
INVALID = 3
"""Offsets that no valid Arrow array has."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SIZE = np.uint64(layout.SIZE_SIZE)
_BODY = np.uint64(layout.SIZE_SIZE + layout.FLAGS_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_LENGTH = np.uint64(layout.COUNT_SIZE)


@inlined
def _measure(arena: Any, cols: Any, row: Any) -> Any:
    """Bytes of a row's values; -1 for offsets outside the data."""
    total = np.int64(0)
    for column in range(len(cols)):
        if cols[column, VALID] >= 0 and arena[cols[column, VALID] + row] == 0:
            continue
        width = cols[column, WIDTH]
        if width == 0:
            place = np.uint64(cols[column, VALUES]) + np.uint64(row) * _FOUR
            start = load_u32(arena, place)
            stop = load_u32(arena, place + _FOUR)
            if start > stop or stop > np.uint64(cols[column, SIZE]):
                return np.int64(-1)
            total += np.int64(_LENGTH + stop - start)
        else:
            total += width
    return total


@inlined
def _lay_out(arena: Any, cols: Any, row: Any, presence: Any, out: Any, at: Any) -> Any:
    """Write presence map and values of a row at `out[at:]`. Returns the position behind them."""
    for i in range(presence):
        out[at + np.uint64(i)] = 0
    bits = at
    at += np.uint64(presence)
    for column in range(len(cols)):
        if cols[column, VALID] >= 0 and arena[cols[column, VALID] + row] == 0:
            continue
        out[bits + np.uint64(cols[column, BYTE])] |= cols[column, MASK]
        width = cols[column, WIDTH]
        values = np.uint64(cols[column, VALUES])
        item = np.uint64(row)
        if width == 8:
            store_big_u64(out, at, load_u64(arena, values + item * _EIGHT))
            at += _EIGHT
        elif width == 4:
            store_big_u32(out, at, load_u32(arena, values + item * _FOUR))
            at += _FOUR
        elif width == 2:
            store_big_u16(out, at, load_u16(arena, values + item * _TWO))
            at += _TWO
        elif width == 1:
            out[at] = arena[values + item]
            at += _ONE
        else:
            start = load_u32(arena, values + item * _FOUR)
            length = load_u32(arena, values + (item + _ONE) * _FOUR) - start
            store_big_u32(out, at, length)
            copy_bytes(out, at + _LENGTH, arena, np.uint64(cols[column, DATA]) + start, length)
            at += _LENGTH + length
    return at


@kernel
def encode_rows(
    arena: Any,
    cols: Any,
    presence: Any,
    rows: Any,
    first: Any,
    middle: Any,
    last: Any,
    max_entry: Any,
    state: Any,
    out: Any,
) -> Any:
    """Lay rows out as entries, until all are done or `out` is full.

    Args:
        arena: uint8, values, ends, bytes and validity of all columns.
        cols: int64[:, COLUMN_FIELDS].
        presence: int64, bytes of a presence map.
        rows: int64, number of rows.
        first: uint8, flags of the first row.
        middle: uint8, flags of those between.
        last: uint8, flags of the last row, if it is not the first.
        max_entry: int64, longest entry that is written.
        state: int64[STATE_SIZE], updated.
        out: uint8, at least `max_entry` bytes.

    Returns:
        DONE, FULL when `out` must be emptied first, TOO_LARGE or INVALID for row `state[ROW]`.
    """
    room = np.int64(len(out))
    row = state[ROW]
    used = state[USED]
    status = DONE
    while row < rows:
        size = _measure(arena, cols, row)
        if size < 0:
            status = INVALID
            break
        total = size + presence + np.int64(_BODY + _DIGEST)
        if total > max_entry:
            status = TOO_LARGE
            break
        if room - used < total:
            status = FULL
            break
        start = np.uint64(used)
        store_big_u32(out, start, np.uint64(total) - _SIZE)
        flags = middle
        if row == 0:
            flags = first
        elif row == rows - 1:
            flags = last
        out[start + _SIZE] = flags
        end = _lay_out(arena, cols, row, presence, out, start + _BODY)
        store_big_u32(out, end, adler32(out, start, end - start))
        used += total
        row += 1
    state[ROW] = row
    state[USED] = used
    return status
