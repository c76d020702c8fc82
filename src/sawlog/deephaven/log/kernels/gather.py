"""Gathering the fields of located rows, column by column, into Arrow buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.deephaven.log import layout
from sawlog.kernels.columns import append, make_take
from sawlog.kernels.jit import inlined
from sawlog.kernels.layout import Number, make_load, make_store
from sawlog.kernels.memory import store_u32
from sawlog.kernels.numbers import _FOUR, _ZERO
from sawlog.kernels.text import exceeds_ascii
from sawlog.kernels.vector import count_lanes, gather_big_u8, gather_big_u16, gather_big_u32, gather_big_u64

COLUMN = make_record_type(
    "width",  # bytes per value; 0 for values with a length
    "byte",  # byte of the presence map, and the column's bit in it
    "mask",
    "wanted",  # 1 when it is gathered
    "boolean",  # 1 when values go to the scratch
    "text",  # 1 for values with a length that are text
    "values",  # place of the values in the arena (or scratch); of the ends of values with a length
    "body",  # place, in the arena, of the bytes of values with a length
    "room",  # how many of these there may be (less `SLACK`), and how many there are
    "used",
    "high",  # 1 when a byte above 127 was found in a text
    "null",  # bit pattern that stands for null, its bits that do not matter, and 1 when that counts
    "null_mask",
    "has_null",
    "nulls",  # nulls so far; as long as there are none, nothing is written to the validity bytes
    "valid",  # place of the validity bytes in the scratch
    "first",  # place of its first field among the places, where rows differ in their columns
    # In the rows at hand, where they do not:
    "present",  # 1 when the column is there,
    "segment",  # after this many values with a length,
    "offset",  # and so far
)
"""What kernels know of a stored column."""

CHUNK = 512
"""Rows that are located, then gathered, at a time: few enough to stay in the fastest cache."""
ABSENT = 0xFFFFFFFF

_ABSENT = np.uint64(ABSENT)
_LENGTH = np.uint64(layout.COUNT_SIZE)
_load_length = make_load(layout.VALUE.length)


@inlined
def _mark_nulls(column: Any, scratch: Any, row: Any) -> None:
    """Mark all rows before `row` as valid, if the first null of a column is about to be written."""
    if column.nulls == 0:
        valid = column.valid
        for i in range(row):
            scratch[valid + i] = 1


def _make_present(width: int) -> Any:
    """Return `gather(data, column, places, count, row, target, scratch)`: a column that all located rows have.

    A function of its own for each width, so that its loop has no choice per value; so has `_make_mixed`.
    """
    take, store = make_take(width, big=True), make_store(Number(0, width))
    load = make_load(Number(0, width, big=True))
    load_many = {1: gather_big_u8, 2: gather_big_u16, 4: gather_big_u32, 8: gather_big_u64}[width]
    many = count_lanes(width)
    step = np.uint64(width)

    @inlined
    def gather_present(data: Any, column: Any, places: Any, count: Any, row: Any, target: Any, scratch: Any) -> None:
        # A value is followed by at least a digest: narrow ones are loaded as wide ones.
        place = np.uint64(column.segment * CHUNK)
        offset = np.uint64(column.offset)
        values = np.uint64(column.values)
        first = np.uint64(row)
        pattern = np.uint64(column.null)
        mask = np.uint64(column.null_mask)
        hits = _ZERO
        done = 0
        while count - done >= many:
            index = values + (first + np.uint64(done)) * step
            hits |= load_many(data, offset, places, place + np.uint64(done), target, index, pattern, mask)
            done += many
        has_sentinel = hits != _ZERO
        for i in range(done, count):
            index = np.uint64(places[place + np.uint64(i)]) + offset
            has_sentinel |= (take(target, values, first + np.uint64(i), data, index) | mask) == pattern
        check = has_sentinel and column.has_null != 0
        if not check and column.nulls == 0:
            return
        if check:
            _mark_nulls(column, scratch, row)
        valid = column.valid + row
        nulls = 0
        for i in range(count):
            validity = 1
            if check:
                value = load(data, np.uint64(places[place + np.uint64(i)]) + offset)
                if (value | mask) == pattern:
                    validity = 0
                    nulls += 1
                    store(target, values + (first + np.uint64(i)) * step, _ZERO)
            scratch[valid + i] = validity
        column.nulls += nulls

    return gather_present


def _make_mixed(width: int) -> Any:
    """Return the same for a column that located rows may have or not."""
    take, store, step = make_take(width, big=True), make_store(Number(0, width)), np.uint64(width)

    @inlined
    def gather_mixed(data: Any, column: Any, places: Any, count: Any, row: Any, target: Any, scratch: Any) -> None:
        place = column.first
        values = np.uint64(column.values)
        first = np.uint64(row)
        pattern = np.uint64(column.null)
        mask = np.uint64(column.null_mask)
        check = column.has_null != 0
        valid = column.valid + row
        for i in range(count):
            position = np.uint64(places[place + i])
            null = position == _ABSENT
            if not null:
                null = (take(target, values, first + np.uint64(i), data, position) | mask) == pattern and check
            if null:
                store(target, values + (first + np.uint64(i)) * step, _ZERO)
                _mark_nulls(column, scratch, row + i)
                column.nulls += 1
                scratch[valid + i] = 0
            elif column.nulls != 0:
                scratch[valid + i] = 1

    return gather_mixed


_present_1, _present_2, _present_4, _present_8 = (_make_present(width) for width in (1, 2, 4, 8))
_mixed_1, _mixed_2, _mixed_4, _mixed_8 = (_make_mixed(width) for width in (1, 2, 4, 8))


@inlined
def _gather_absent(column: Any, count: Any, row: Any, target: Any, scratch: Any) -> None:
    """Fill a column of values of fixed width that no located row has with nulls."""
    _mark_nulls(column, scratch, row)
    column.nulls += count
    width = column.width
    values = column.values + row * width
    for i in range(count * width):
        target[values + i] = 0
    valid = column.valid + row
    for i in range(count):
        scratch[valid + i] = 0


@inlined
def _gather_fixed(data: Any, column: Any, uneven: Any, places: Any, count: Any, row: Any, out: Any) -> None:
    """Copy one column of values of fixed width."""
    arena, scratch = out.arena, out.scratch
    target = scratch if column.boolean != 0 else arena
    width = column.width
    if uneven:
        if width == 8:
            _mixed_8(data, column, places, count, row, arena, scratch)
        elif width == 4:
            _mixed_4(data, column, places, count, row, arena, scratch)
        elif width == 2:
            _mixed_2(data, column, places, count, row, arena, scratch)
        else:
            _mixed_1(data, column, places, count, row, target, scratch)
    elif column.present == 0:
        _gather_absent(column, count, row, target, scratch)
    elif width == 8:
        _present_8(data, column, places, count, row, arena, scratch)
    elif width == 4:
        _present_4(data, column, places, count, row, arena, scratch)
    elif width == 2:
        _present_2(data, column, places, count, row, arena, scratch)
    else:
        _present_1(data, column, places, count, row, target, scratch)


@inlined
def _gather_bytes(data: Any, column: Any, places: Any, count: Any, row: Any, arena: Any) -> None:
    """Copy one column of values with a length; all located rows have it. Its room was seen to before."""
    place = column.segment * CHUNK
    offset = np.uint64(column.offset) + _LENGTH
    ends = np.uint64(column.values) + np.uint64(row) * _FOUR
    target = np.uint64(column.body)
    used = np.uint64(column.used)
    for i in range(count):
        position = np.uint64(places[place + i]) + offset
        used = append(arena, target, used, arena, ends, data, position, _load_length(data, position - _LENGTH))
        ends += _FOUR
    if column.text != 0 and exceeds_ascii(arena, target + np.uint64(column.used), target + used):
        column.high = 1
    column.used = used


@inlined
def _gather_mixed_bytes(
    data: Any, column: Any, uneven: Any, places: Any, count: Any, row: Any, arena: Any, scratch: Any
) -> None:
    """Copy one column of values with a length, where some or all of the located rows lack it."""
    place = column.first
    ends = np.uint64(column.values) + np.uint64(row) * _FOUR
    target = np.uint64(column.body)
    used = np.uint64(column.used)
    valid = column.valid + row
    for i in range(count):
        position = np.uint64(places[place + i]) if uneven else _ABSENT
        if position == _ABSENT:
            _mark_nulls(column, scratch, row + i)
            column.nulls += 1
            scratch[valid + i] = 0
            store_u32(arena, ends, used)
        else:
            used = append(arena, target, used, arena, ends, data, position + _LENGTH, _load_length(data, position))
            if column.nulls != 0:
                scratch[valid + i] = 1
        ends += _FOUR
    if column.text != 0 and exceeds_ascii(arena, target + np.uint64(column.used), target + used):
        column.high = 1
    column.used = used


@inlined
def _mark_valid(column: Any, scratch: Any, count: Any, row: Any) -> None:
    """Mark located rows, which all have the column, as valid; that is only needed when others did not have it."""
    if column.nulls != 0:
        valid = column.valid + row
        for i in range(count):
            scratch[valid + i] = 1


@inlined
def gather(data: Any, uneven: Any, count: Any, row: Any, out: Any, rules: Any) -> None:
    """Copy all wanted columns of the located rows.

    Args:
        data: uint8, the rows.
        uneven: Whether `rules.places` has the place of every field, CHUNK per column, ABSENT for null; else that of
            the fields after those with a length, CHUNK per segment.
        count: Rows located.
        row: Rows gathered before.
        out: See `sawlog.deephaven.log.kernels.rows`.
        rules: See `sawlog.deephaven.log.kernels.judge`.
    """
    places, arena, scratch = rules.places, out.arena, out.scratch
    for number in range(len(rules.columns)):
        column = rules.columns[number]
        if column.wanted == 0:
            continue
        if column.width != 0:
            _gather_fixed(data, column, uneven, places, count, row, out)
        elif uneven or column.present == 0:
            _gather_mixed_bytes(data, column, uneven, places, count, row, arena, scratch)
        else:
            _gather_bytes(data, column, places, count, row, arena)
            _mark_valid(column, scratch, count, row)


@inlined
def measure_room(columns: Any) -> Any:
    """Return the number of bytes of rows that can be gathered whatever is in them."""
    least = np.int64(1) << 62
    for number in range(len(columns)):
        column = columns[number]
        if column.wanted != 0 and column.width == 0:
            least = min(least, column.room - column.used)
    return np.uint64(least)
