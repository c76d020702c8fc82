"""Distinguishing series by the bytes of their partition columns, before anything of them is decoded.

Records are read as `sawlog.filodb.kernels.chain` reads them; only rows of series that are new are kept.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import FULL, Window, make_record_type, walk_chain
from sawlog.filodb.kernels.chain import gather_records, judge
from sawlog.filodb.kernels.records import Out, on_damage, take_records
from sawlog.filodb.kernels.state import STATE, Rules
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import are_bytes_equal, copy_bytes, load_u32, load_u64, prefetch, store_u32, store_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _ONE, _U32, _ZERO
from sawlog.kernels.signature import Array, Bytes, Int64, OutBytes, OutInt64s, Record, UInt64
from sawlog.kernels.xxh32 import xxh32

TABLE = make_record_type(
    "row",  # the next row to be looked up; the rows that are kept come before it
    "kept",
    "series",  # in the table
    "used",  # bytes of their keys
    "status",  # what the last reading of records ended with
)
"""The state of a table."""
FIXED = make_record_type("place", "width")
"""The place of a fixed-width column in the arena, and bytes of a value."""
PAYLOADS = make_record_type("positions", "lengths")
"""Where the positions and the lengths of a column's payloads are in the scratch."""

NEEDS_ROOM = 3
"""The table must grow; an outcome besides those with which walks end."""

CHUNK = 1024
"""Rows that are read before they are looked up: their bytes are still in the cache."""
SLOT_SIZE = 8
"""Bytes of a place in the table: number of the series plus one, or 0; and after it the stored hash."""

PROBES = 16
"""Places that are tried where the stored hash leads; who stores equal hashes for all is led on by a secret one."""

_MIX = np.uint64(0x9E3779B1)
_AHEAD = 8
"""Rows ahead of the present one whose place is asked into the cache."""


class Columns(NamedTuple):
    """Arrays that columns were gathered to."""

    fixed: Annotated[Any, Array(FIXED)]
    payloads: Annotated[Any, Array(PAYLOADS)]


class Table(NamedTuple):
    """The series seen so far.

    Attributes:
        slots: uint8, as many places of SLOT_SIZE as a power of two.
        key_starts: int64 per series.
        keys: uint8, their keys back to back: number of the layout, and the partition columns.
        secret: uint64, seed of the second hash.
        hashes: uint64, place of the stored partition hashes in the arena.
        partition: `Columns`, those that make up the key.
        every: `Columns`, all.
    """

    slots: OutBytes
    key_starts: OutInt64s
    keys: OutBytes
    secret: UInt64
    hashes: UInt64
    partition: Columns
    every: Columns


class Row(NamedTuple):
    """A row, and where its values are.

    Attributes:
        data: uint8, the window.
        number: uint64.
        layout: Number of its schema.
        arena: uint8.
        scratch: uint8.
    """

    data: Any
    number: Any
    layout: Any
    arena: Any
    scratch: Any


@always_inlined
def _locate_value(row: Any, column: Any) -> Any:
    return np.uint64(column.place) + row.number * np.uint64(column.width)


@always_inlined
def _read_payload(row: Any, column: Any) -> Any:
    """Return the position and length of a payload."""
    position = load_u64(row.scratch, np.uint64(column.positions) + row.number * _EIGHT)
    return position, load_u32(row.scratch, np.uint64(column.lengths) + row.number * _FOUR)


@always_inlined
def _matches(row: Any, columns: Any, keys: Any, pos: Any) -> Any:
    """Return whether the key at `pos` is that of the row."""
    if keys[pos] != row.layout:
        return False
    pos += _ONE
    for i in range(len(columns.fixed)):
        width = np.uint64(columns.fixed[i].width)
        if not are_bytes_equal(keys, pos, row.arena, _locate_value(row, columns.fixed[i]), width):
            return False
        pos += width
    for i in range(len(columns.payloads)):
        start, length = _read_payload(row, columns.payloads[i])
        if load_u32(keys, pos) != length:
            return False
        pos += _FOUR
        if not are_bytes_equal(keys, pos, row.data, start, length):
            return False
        pos += length
    return True


@inlined
def _store(row: Any, columns: Any, keys: Any, pos: Any) -> Any:
    """Write the key of a row; return the position after it, or -1 when there is no room."""
    need = _ONE
    for i in range(len(columns.fixed)):
        need += np.uint64(columns.fixed[i].width)
    for i in range(len(columns.payloads)):
        _, length = _read_payload(row, columns.payloads[i])
        need += _FOUR + length
    if np.uint64(len(keys)) - pos < need:
        return -1
    keys[pos] = row.layout
    pos += _ONE
    for i in range(len(columns.fixed)):
        width = np.uint64(columns.fixed[i].width)
        copy_bytes(keys, pos, row.arena, _locate_value(row, columns.fixed[i]), width)
        pos += width
    for i in range(len(columns.payloads)):
        start, length = _read_payload(row, columns.payloads[i])
        store_u32(keys, pos, length)
        pos += _FOUR
        copy_bytes(keys, pos, row.data, start, length)
        pos += length
    return np.int64(pos)


@inlined
def _compute_place(hash32: Any, mask: Any) -> Any:
    return (hash32 * _MIX & _U32) >> np.uint64(7) & mask


@always_inlined
def _look_up(row: Any, hash32: Any, table: Any) -> Any:
    """Return whether the series of a row is in the table, and the place where it is, or belongs."""
    mask = np.uint64(len(table.slots) // SLOT_SIZE - 1)
    columns = table.partition
    place = _compute_place(hash32, mask)
    probe = 0
    while True:
        slot = load_u64(table.slots, place * _EIGHT)
        if slot == _ZERO:
            return False, place
        if slot >> _HALF == hash32:
            key = np.uint64(table.key_starts[np.int64(slot & _U32) - 1])
            if _matches(row, columns, table.keys, key):
                return True, place
        probe += 1
        if probe == PROBES:
            second = table.secret
            for i in range(len(columns.payloads)):
                start, length = _read_payload(row, columns.payloads[i])
                second = xxh32(row.data, start, length, second)
            for i in range(len(columns.fixed)):
                second = xxh32(
                    row.arena, _locate_value(row, columns.fixed[i]), np.uint64(columns.fixed[i].width), second
                )
            place = _compute_place(second, mask)
        else:
            place = (place + _ONE) & mask


@inlined
def _move(row: Any, to: Any, columns: Any, out: Any, state: Any) -> None:
    """Move all that was gathered of a row to another one, and count its payload bytes."""
    out.starts[to] = out.starts[row.number]
    out.which[to] = row.layout
    slot = np.uint64(to)
    for i in range(len(columns.fixed)):
        column = columns.fixed[i]
        copy_bytes(
            row.arena,
            np.uint64(column.place) + slot * np.uint64(column.width),
            row.arena,
            _locate_value(row, column),
            np.uint64(column.width),
        )
    for i in range(len(columns.payloads)):
        column = columns.payloads[i]
        start, length = _read_payload(row, column)
        store_u64(row.scratch, np.uint64(column.positions) + slot * _EIGHT, start)
        store_u32(row.scratch, np.uint64(column.lengths) + slot * _FOUR, length)
        state.payload_bytes += np.int64(length)


@inlined
def _keep_new(window: Any, state: Any, out: Any, table: Any, progress: Any) -> Any:
    """Look up the rows that were read, and keep those of new series; return whether there was room for all of them."""
    mask = np.uint64(len(table.slots) // SLOT_SIZE - 1)
    arena, scratch = out.memory.arena, out.memory.scratch
    count = state.rows
    for ahead in range(progress.row, min(progress.row + _AHEAD, count)):
        prefetch(table.slots, _compute_place(load_u32(arena, table.hashes + np.uint64(ahead) * _FOUR), mask) * _EIGHT)
    for index in range(progress.row, count):
        r = np.uint64(index)
        if index + _AHEAD < count:
            hash32 = load_u32(arena, table.hashes + (r + np.uint64(_AHEAD)) * _FOUR)
            prefetch(table.slots, _compute_place(hash32, mask) * _EIGHT)
        hash32 = load_u32(arena, table.hashes + r * _FOUR)
        row = Row(window.data, r, out.which[r], arena, scratch)
        number, place = _look_up(row, hash32, table)
        if number:
            continue
        series = progress.series
        end = np.int64(-1)
        if series < len(table.key_starts) and 2 * SLOT_SIZE * series < len(table.slots):
            end = _store(row, table.partition, table.keys, np.uint64(progress.used))
        if end < 0:
            progress.row = index
            return False
        table.key_starts[series] = progress.used
        progress.used = end
        progress.series = series + 1
        store_u64(table.slots, place * _EIGHT, hash32 << _HALF | np.uint64(series + 1))
        _move(row, progress.kept, table.every, out, state)
        progress.kept += 1
    progress.row = progress.kept
    state.rows = progress.kept
    return True


@kernel
def read_series(
    window: Window,
    state: Annotated[Any, Record(STATE)],
    out: Out,
    rules: Rules,
    table: Table,
    progress: Annotated[Any, Record(TABLE)],
) -> Int64:
    """Read records, and keep those rows whose series is seen for the first time.

    Returns:
        What `walk_chain` returns, or NEEDS_ROOM: then the kernel is to be called again, with a larger table.
    """
    room = len(out.starts)
    while True:
        is_empty = False
        if progress.row == state.rows:
            first = state.rows
            before = state.payload_bytes
            state.max_rows = min(first + CHUNK, room)
            progress.status = walk_chain(take_records, judge, gather_records, on_damage, window, state, out, rules)
            progress.row = first
            progress.kept = first
            state.payload_bytes = before
            is_empty = state.rows == first
        if not _keep_new(window, state, out, table, progress):
            return NEEDS_ROOM
        if is_empty or progress.status != FULL or state.events > 0 or state.rows == room:
            return progress.status


@kernel
def rebuild(table: Table, old_slots: Bytes) -> None:
    """Put all series of one table into a larger one, of which the slots are empty yet."""
    slots, keys, columns = table.slots, table.keys, table.partition
    mask = np.uint64(len(slots) // SLOT_SIZE - 1)
    for old in range(len(old_slots) // SLOT_SIZE):
        slot = load_u64(old_slots, np.uint64(old) * _EIGHT)
        if slot == _ZERO:
            continue
        place = _compute_place(slot >> _HALF, mask)
        probe = 0
        while load_u64(slots, place * _EIGHT) != _ZERO:
            probe += 1
            if probe == PROBES:
                second = table.secret
                start = np.uint64(table.key_starts[np.int64(slot & _U32) - 1]) + _ONE
                pos = start
                for i in range(len(columns.fixed)):
                    pos += np.uint64(columns.fixed[i].width)
                for _ in range(len(columns.payloads)):
                    length = load_u32(keys, pos)
                    second = xxh32(keys, pos + _FOUR, length, second)
                    pos += _FOUR + length
                pos = start
                for i in range(len(columns.fixed)):
                    width = np.uint64(columns.fixed[i].width)
                    second = xxh32(keys, pos, width, second)
                    pos += width
                place = _compute_place(second, mask)
            else:
                place = (place + _ONE) & mask
        store_u64(slots, place * _EIGHT, slot)
