"""Gathering the fields of located rows, column by column, into Arrow buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.deephaven_log import layout
from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import (
    copy_bytes,
    load_big_u16,
    load_big_u32,
    load_big_u64,
    load_u64,
    store_u16,
    store_u32,
    store_u64,
)
from sawlog.kernels.vector import copy_16, gather_big_u8, gather_big_u16, gather_big_u32, gather_big_u64, lanes

# Fields of the table of stored columns, int64.
WIDTH = 0
BYTE = 1
"""Byte of the presence map, and the column's bit in it."""
MASK = 2
WANTED = 3
VALUES = 4
"""Place of the values in the arena (in the scratch for Booleans); of the ends of values with a length."""
DATA = 5
"""Place, in the arena, of the bytes of values with a length, their room (less `SLACK`), and how many there are."""
ROOM = 6
USED = 7
NULL = 8
"""Bit pattern that stands for null, its bits that do not matter, and whether that counts."""
NULL_MASK = 9
HAS_NULL = 10
NULLS = 11
"""Nulls so far; as long as there are none, nothing is written to the validity bytes."""
VALID = 12
"""Place of the validity bytes in the scratch."""
BOOLEAN = 13
PRESENT = 14
"""In the rows at hand: whether the column is there, behind how many values with a length, and how far."""
SEGMENT = 15
OFFSET = 16
TEXT = 17
"""Whether values with a length are text, and whether a byte above 127 was found in them."""
HIGH = 18
COLUMN_FIELDS = 19

CHUNK = 512
"""Rows that are located, then gathered, at a time: few enough to stay in the fastest cache."""
SLACK = 16
"""Short values are copied as so many bytes."""
ABSENT = 0xFFFFFFFF

_ABSENT = np.uint64(ABSENT)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SLACK = np.uint64(SLACK)
_LENGTH = np.uint64(layout.COUNT_SIZE)
_HIGH_BITS = np.uint64(0x8080808080808080)


@inlined
def _mark_nulls(cols: Any, column: Any, scratch: Any, row: Any) -> None:
    """The first null of a column is about to be written down: everything before is valid."""
    if cols[column, NULLS] == 0:
        valid = cols[column, VALID]
        for i in range(row):
            scratch[valid + i] = 1


def _loader(width: int) -> Any:
    """`load(window, at)`: a big-endian value of 1, 2, 4 or 8 bytes."""

    def load(window: Any, at: Any) -> Any:
        return np.uint64(window[at])

    return {1: inlined(load), 2: load_big_u16, 4: load_big_u32, 8: load_big_u64}[width]


def _storer(width: int) -> Any:
    """`store(arena, base, row, value)`: a little-endian value as item `row` of the values at `base`."""

    def store_1(arena: Any, base: Any, row: Any, value: Any) -> None:
        arena[base + row] = value

    def store_2(arena: Any, base: Any, row: Any, value: Any) -> None:
        store_u16(arena, base + row + row, value)

    def store_4(arena: Any, base: Any, row: Any, value: Any) -> None:
        store_u32(arena, base + row * _FOUR, value)

    def store_8(arena: Any, base: Any, row: Any, value: Any) -> None:
        store_u64(arena, base + row * _EIGHT, value)

    return inlined({1: store_1, 2: store_2, 4: store_4, 8: store_8}[width])


def _gatherer(width: int) -> Any:
    """The function that gathers columns of one width: a loop of its own for each, without a choice per value."""
    load = _loader(width)
    store = _storer(width)
    load_many = {1: gather_big_u8, 2: gather_big_u16, 4: gather_big_u32, 8: gather_big_u64}[width]
    many = lanes(width)
    step = np.uint64(width)

    @inlined
    def present(
        window: Any, cols: Any, column: Any, places: Any, count: Any, row: Any, target: Any, scratch: Any
    ) -> None:
        """All located rows have the column. Behind it is at least a digest: narrow values are loaded as wide ones."""
        place = np.uint64(cols[column, SEGMENT] * CHUNK)
        offset = np.uint64(cols[column, OFFSET])
        values = np.uint64(cols[column, VALUES])
        first = np.uint64(row)
        pattern = np.uint64(cols[column, NULL])
        mask = np.uint64(cols[column, NULL_MASK])
        hits = _ZERO
        done = 0
        while count - done >= many:
            at = values + (first + np.uint64(done)) * step
            hits |= load_many(window, offset, places, place + np.uint64(done), target, at, pattern, mask)
            done += many
        found = hits != _ZERO
        for i in range(done, count):
            value = load(window, np.uint64(places[place + np.uint64(i)]) + offset)
            found |= (value | mask) == pattern
            store(target, values, first + np.uint64(i), value)
        check = found and cols[column, HAS_NULL] != 0
        if not check and cols[column, NULLS] == 0:
            return
        if check:
            _mark_nulls(cols, column, scratch, row)
        valid = cols[column, VALID] + row
        nulls = 0
        for i in range(count):
            here = 1
            if check:
                value = load(window, np.uint64(places[place + np.uint64(i)]) + offset)
                if (value | mask) == pattern:
                    here = 0
                    nulls += 1
                    store(target, values, first + np.uint64(i), _ZERO)
            scratch[valid + i] = here
        cols[column, NULLS] += nulls

    @inlined
    def mixed(
        window: Any, cols: Any, column: Any, places: Any, count: Any, row: Any, target: Any, scratch: Any
    ) -> None:
        """Located rows may have the column or not."""
        place = column * CHUNK
        values = np.uint64(cols[column, VALUES])
        first = np.uint64(row)
        pattern = np.uint64(cols[column, NULL])
        mask = np.uint64(cols[column, NULL_MASK])
        check = cols[column, HAS_NULL] != 0
        valid = cols[column, VALID] + row
        for i in range(count):
            at = np.uint64(places[place + i])
            value = _ZERO
            null = at == _ABSENT
            if not null:
                value = load(window, at)
                if check and (value | mask) == pattern:
                    null = True
                    value = _ZERO
            store(target, values, first + np.uint64(i), value)
            if null:
                _mark_nulls(cols, column, scratch, row + i)
                cols[column, NULLS] += 1
                scratch[valid + i] = 0
            elif cols[column, NULLS] != 0:
                scratch[valid + i] = 1

    @inlined
    def gather(
        window: Any, cols: Any, column: Any, uneven: Any, places: Any, count: Any, row: Any, target: Any, scratch: Any
    ) -> None:
        """Copy one column of the located rows behind the `row` values that are there."""
        if uneven:
            mixed(window, cols, column, places, count, row, target, scratch)
        elif cols[column, PRESENT] != 0:
            present(window, cols, column, places, count, row, target, scratch)
        else:
            _mark_nulls(cols, column, scratch, row)
            cols[column, NULLS] += count
            values = np.uint64(cols[column, VALUES])
            valid = cols[column, VALID] + row
            for i in range(count):
                store(target, values, np.uint64(row) + np.uint64(i), _ZERO)
                scratch[valid + i] = 0

    return gather


_gather_1 = _gatherer(1)
_gather_2 = _gatherer(2)
_gather_4 = _gatherer(4)
_gather_8 = _gatherer(8)


@inlined
def _copy_value(window: Any, at: Any, length: Any, limit: Any, arena: Any, target: Any) -> None:
    """Copy a value, a short one as a whole vector: what that takes too much is written over or never looked at."""
    if length <= _SLACK and limit - at >= _SLACK:
        copy_16(arena, target, window, at)
    else:
        copy_bytes(arena, target, window, at, length)


@inlined
def _note_high(cols: Any, column: Any, arena: Any, data: Any, used: Any) -> None:
    """Note whether a byte above 127 is among those of a text that were just copied, while they are in the cache."""
    if cols[column, TEXT] == 0:
        return
    start = data + np.uint64(cols[column, USED])
    end = data + used
    bits = _ZERO
    while end - start >= _EIGHT:
        bits |= load_u64(arena, start)
        start += _EIGHT
    while start < end:
        bits |= np.uint64(arena[start])
        start += _ONE
    if bits & _HIGH_BITS != _ZERO:
        cols[column, HIGH] = 1


@inlined
def _gather_bytes(window: Any, cols: Any, column: Any, places: Any, count: Any, row: Any, arena: Any) -> None:
    """Copy one column of values with a length; all located rows have it. Its room was seen to before."""
    place = cols[column, SEGMENT] * CHUNK
    offset = np.uint64(cols[column, OFFSET]) + _LENGTH
    ends = np.uint64(cols[column, VALUES]) + np.uint64(row) * _FOUR
    data = np.uint64(cols[column, DATA])
    used = np.uint64(cols[column, USED])
    limit = np.uint64(len(window))
    for i in range(count):
        at = np.uint64(places[place + i]) + offset
        length = load_big_u32(window, at - _LENGTH)
        _copy_value(window, at, length, limit, arena, data + used)
        used += length
        store_u32(arena, ends, used)
        ends += _FOUR
    _note_high(cols, column, arena, data, used)
    cols[column, USED] = used


@inlined
def _gather_mixed_bytes(
    window: Any, cols: Any, column: Any, uneven: Any, places: Any, count: Any, row: Any, arena: Any, scratch: Any
) -> None:
    """The same where located rows may not have the column, or do not."""
    place = column * CHUNK
    ends = np.uint64(cols[column, VALUES]) + np.uint64(row) * _FOUR
    data = np.uint64(cols[column, DATA])
    used = np.uint64(cols[column, USED])
    valid = cols[column, VALID] + row
    limit = np.uint64(len(window))
    for i in range(count):
        at = np.uint64(places[place + i]) if uneven else _ABSENT
        if at == _ABSENT:
            _mark_nulls(cols, column, scratch, row + i)
            cols[column, NULLS] += 1
            scratch[valid + i] = 0
        else:
            length = load_big_u32(window, at)
            _copy_value(window, at + _LENGTH, length, limit, arena, data + used)
            used += length
            if cols[column, NULLS] != 0:
                scratch[valid + i] = 1
        store_u32(arena, ends, used)
        ends += _FOUR
    _note_high(cols, column, arena, data, used)
    cols[column, USED] = used


@inlined
def _mark_valid(cols: Any, column: Any, scratch: Any, count: Any, row: Any) -> None:
    """Located rows all have the column; that need only be written down when others did not."""
    if cols[column, NULLS] != 0:
        valid = cols[column, VALID] + row
        for i in range(count):
            scratch[valid + i] = 1


@inlined
def gather(window: Any, cols: Any, uneven: Any, places: Any, count: Any, row: Any, arena: Any, scratch: Any) -> None:
    """Copy all wanted columns of the located rows.

    Args:
        window: uint8, the rows.
        cols: int64[:, COLUMN_FIELDS], the stored columns.
        uneven: Whether `places` has the place of every field; else that of the fields behind those with a length.
        places: uint32, CHUNK per column, ABSENT for null; else CHUNK per segment.
        count: Rows located.
        row: Rows gathered before.
        arena: uint8, values.
        scratch: uint8, Booleans and validity, a byte each.
    """
    for column in range(len(cols)):
        if cols[column, WANTED] == 0:
            continue
        width = cols[column, WIDTH]
        if width == 0:
            if uneven or cols[column, PRESENT] == 0:
                _gather_mixed_bytes(window, cols, column, uneven, places, count, row, arena, scratch)
            else:
                _gather_bytes(window, cols, column, places, count, row, arena)
                _mark_valid(cols, column, scratch, count, row)
        elif width == 8:
            _gather_8(window, cols, column, uneven, places, count, row, arena, scratch)
        elif width == 4:
            _gather_4(window, cols, column, uneven, places, count, row, arena, scratch)
        elif width == 2:
            _gather_2(window, cols, column, uneven, places, count, row, arena, scratch)
        else:
            target = scratch if cols[column, BOOLEAN] != 0 else arena
            _gather_1(window, cols, column, uneven, places, count, row, target, scratch)


@inlined
def room(cols: Any) -> Any:
    """Bytes of rows that can be gathered whatever is in them."""
    least = np.int64(1) << 62
    for column in range(len(cols)):
        if cols[column, WANTED] != 0 and cols[column, WIDTH] == 0:
            least = min(least, cols[column, ROOM] - cols[column, USED])
    return np.uint64(least)
