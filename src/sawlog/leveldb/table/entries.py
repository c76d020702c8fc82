"""Blocks of rows: each is judged, expanded and parsed while it is in the CPU's cache; and rows encoded as such."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.lz4 import expand_lz4
from sawlog.kernels.memory import compare_bytes, copy_bytes, load_u64, prefetch, store_u32, store_u64
from sawlog.kernels.numbers import _EIGHT, _ONE, _ZERO
from sawlog.kernels.protobuf import put_varint, read_varint
from sawlog.kernels.signature import (
    Array,
    Bool,
    Bytes,
    Int64,
    Int64s,
    OutBytes,
    OutInt32s,
    OutInt64s,
    OutUInt32s,
    Record,
    UInt64,
    UInt64s,
)
from sawlog.kernels.snappy import SLACK, expand_snappy
from sawlog.kernels.vector import copy_32
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.kernels import (
    AS_IS,
    LZ4,
    NOWHERE,
    OTHERWISE,
    SPAN,
    Rule,
    find_entries_end,
    judge_block,
    read_entry_head,
)
from sawlog.leveldb.table.layout import TableDamageKind

# What a call ended with.
FULL = 0
"""No room for more rows, bytes or events."""
GROW = 1
"""A key is longer than the room for one."""
DONE = 2
"""All blocks are read."""
EXPAND = 3
"""The block is to be expanded by a library: `state.compression` says how it is compressed."""
SCRATCH = 4
"""The block expands to `state.length` bytes, for which `Rows.scratch` has no room."""
UNUSUAL = 5
"""The content of the block, `state.length` bytes from `state.start` on, has another layout than others."""

_UNBOUNDED = 0
_BELOW = 1
_BOTH = 2

BLOCK = make_record_type(
    ("offset", np.uint64),
    ("stored", np.uint64),
    "length",
    "bounded",
    ("low", np.uint64),
    ("low_end", np.uint64),
    ("high", np.uint64),
    ("high_end", np.uint64),
)
"""A block of rows: where it begins in the file, its bytes without the trailer, and those that its damage takes.

Where it is `bounded`, _BELOW or on _BOTH sides, its user keys lie from the separator `[low, low_end)` of
`Take.separators` up to `[high, high_end)`.
"""

_TRAILER = np.int64(layout.TRAILER_SIZE)


@kernel
def lay_blocks(
    spans: Annotated[Any, Array(SPAN)],
    ends: Int64s,
    first: Int64,
    last: Int64,
    blocks: Annotated[Any, Array(BLOCK, writable=True)],
) -> Int64:
    """Set blocks of rows, and between which separators their keys lie: none is before the first one of a table.

    Args:
        spans: Their spans, of type SPAN.
        ends: int64, where separators end, from that of the block before `first` on; empty: none are known.
        first: int64, the number of the first separator.
        last: int64, the number of the last block of the table: keys after its separator are in it as well.
        blocks: Of type BLOCK, as many; set.

    Returns:
        Bytes of all of them.
    """
    total = 0
    for i in range(len(spans)):
        span = spans[i]
        block = blocks[i]
        block.offset = span.offset
        block.stored = span.length - _TRAILER
        block.length = span.length
        block.bounded = _UNBOUNDED
        block.low, block.low_end, block.high, block.high_end = _ZERO, _ZERO, _ZERO, _ZERO
        total += span.length
        if len(ends):
            place = span.number - first
            block.bounded = _BOTH if span.number < last else _BELOW
            if place > 0:
                block.low, block.low_end = ends[place - 1], ends[place]
            block.high, block.high_end = ends[place], ends[place + 1]
    return total


STATE = make_record_type(
    "block",
    "open",
    ("start", np.uint64),
    ("length", np.uint64),
    ("position", np.uint64),
    "rows",
    ("keys", np.uint64),
    ("values", np.uint64),
    ("last", np.uint64),
    ("expanded", np.uint64),
    "events",
    "compression",
    "descents",
)
"""Where the reading is.

`block` is being read, from its byte `position` on; `open` says whether it is judged, and where its `length` bytes begin
at `start`: NOT_OPEN, IN_WINDOW or IN_SCRATCH. `rows`, `keys` and `values` are the rows so far and their bytes; the key
of the entry before is the first `last` bytes of `Rows.last`; `expanded` counts the bytes of the block's keys;
`compression` says how it is compressed; `descents` counts the rows whose keys are below that of the row before.
"""
SHORT = 32
"""Parts of keys up to so many bytes are copied as if they had as many."""
KEY_SLACK = layout.KEY_TRAILER + SHORT
"""Room that the trailer of the last key takes after user keys, and what is copied past it."""
NOT_OPEN = 0
IN_WINDOW = 1
IN_SCRATCH = 2

EVENT = make_record_type("kind", "block", "one", "two", "row")
"""Damage: its kind, the number of the block, two numbers that explain it, and how many rows are before it."""


class Take(NamedTuple):
    """The fields that are taken of entries.

    Attributes:
        internal: Whether keys end in sequence number and type.
        values: Whether values are wanted.
        offsets: Whether the offsets of blocks are wanted.
        types: uint8[256], the number of each type's operation; 255 where it is unknown.
        separators: uint8, the keys of the index.
        stamp: uint64, bytes at the end of user keys that separators do not count.
    """

    internal: Bool
    values: Bool
    offsets: Bool
    types: Bytes
    separators: Bytes
    stamp: UInt64


class Rows(NamedTuple):
    """Columns of entries: user keys and values back to back with their ends, and the bytes after user keys.

    Attributes:
        keys: uint8, with `KEY_SLACK` bytes more than user keys may take.
        key_ends: int32, one more than rows; key i is `keys[key_ends[i] : key_ends[i + 1]]`.
        values: uint8.
        value_ends: int32, likewise.
        value_sizes: int32, bytes of values that are left where they are stored: `value_ends` are places in the window
            then, value i begins at `value_ends[i]`; empty where values are copied, or none are wanted.
        sequences: int64.
        operations: uint8, numbers of `Take.types`.
        offsets: int64, the file offset of each row's block.
        events: Damage, of type EVENT.
        last: uint8, the key of the entry before, where reading was interrupted.
        scratch: uint8, an expanded block.
        expanded: The same memory, read-only.
    """

    keys: OutBytes
    key_ends: OutInt32s
    values: OutBytes
    value_ends: OutInt32s
    value_sizes: OutInt32s
    sequences: OutInt64s
    operations: OutBytes
    offsets: OutInt64s
    events: Annotated[Any, Array(EVENT, writable=True)]
    last: OutBytes
    scratch: OutBytes
    expanded: Bytes


_KEY_TRAILER = np.uint64(layout.KEY_TRAILER)
_KEY_SLACK = np.uint64(KEY_SLACK)
_SHIFT = np.uint64(layout.SEQUENCE_SHIFT)
_MOST = np.uint64(layout.MOST_EXPANSION)
_SLACK = np.uint64(SLACK)
_MOST_PER_BYTE = np.uint64(255)
"""A byte of LZ4 makes no more, one of Snappy less."""
_NEVER = NOWHERE >> _ONE
_MISPLACED = _NEVER - _ONE
_SHORT = np.uint64(SHORT)
_AHEAD = np.uint64(1024)

_BAD_ENTRY = int(TableDamageKind.BAD_ENTRY)
_BAD_KEY = int(TableDamageKind.BAD_KEY)
_UNKNOWN_OPERATION = int(TableDamageKind.UNKNOWN_OPERATION)
_MISPLACED_KEY = int(TableDamageKind.MISPLACED_KEY)
_TOO_LARGE = int(TableDamageKind.BLOCK_TOO_LARGE)
_BAD_COMPRESSION = int(TableDamageKind.BAD_COMPRESSION)
_UNKNOWN = 255


@inlined
def _note(state: Any, events: Any, kind: Any, first: Any, two: Any) -> None:
    event = events[state.events]
    event.kind = kind
    event.block = state.block
    event.one = np.int64(first)
    event.two = np.int64(two)
    event.row = state.rows
    state.events += 1


@kernel
def read_blocks(
    window: Bytes,
    base: UInt64,
    blocks: Annotated[Any, Array(BLOCK)],
    rule: Rule,
    take: Take,
    state: Annotated[Any, Record(STATE)],
    rows: Rows,
) -> Int64:
    """Judge blocks, expand them, and take their entries apart.

    Of a block that breaks off, the entries before are kept.

    Args:
        window: uint8, the file from `base` on, up to the end of the last of these blocks that ends in the file.
        base: uint64, file offset of the window.
        blocks: Of type BLOCK.
        rule: See `kernels.Rule`.
        take: See `Take`.
        state: A record of type STATE; updated. Begins with zeros.
        rows: See `Rows`.

    Returns:
        FULL, GROW (`rows.last` is too small for a key), DONE, EXPAND, SCRATCH or UNUSUAL.
    """
    status = DONE
    while state.block < len(blocks):
        if state.events + 1 >= len(rows.events):
            return FULL
        if state.open == NOT_OPEN:
            status = _open_block(window, base, blocks[state.block], rule, state, rows)
            if status != DONE:
                return status
        if state.open != NOT_OPEN:
            block = blocks[state.block]
            if state.open == IN_WINDOW:
                status = _read_block(window, block, take, state, rows)
            else:
                status = _read_block(rows.expanded, block, take, state, rows)
            if status != DONE:
                return status
        state.block += 1
        state.open = NOT_OPEN
        state.position = _ZERO
        state.last = _ZERO
        state.expanded = _ZERO
    return status


@inlined
def _open_block(window: Any, base: Any, block: Any, rule: Any, state: Any, rows: Any) -> Any:
    """Judge a block and find its content, or note what is wrong with it: DONE, EXPAND or SCRATCH."""
    kind, first, second, state.compression = judge_block(window, base, block.offset, block.stored, rule)
    if kind != 0:
        _note(state, rows.events, kind, first, second)
        return DONE
    start = block.offset - base
    stop = start + block.stored
    size = block.stored
    codec = rule.codecs[state.compression]
    if codec == OTHERWISE:
        return EXPAND
    if codec != AS_IS:
        size, start = read_varint(window, start, stop)
        if start == _ZERO or size > (stop - start) * _MOST_PER_BYTE:
            _note(state, rows.events, _BAD_COMPRESSION, state.compression, 0)
            return DONE
    if size > rule.longest:
        _note(state, rows.events, _TOO_LARGE, size, rule.longest)
        return DONE
    state.length = size
    state.start = start
    state.open = IN_WINDOW
    if codec != AS_IS:
        if size + _SLACK > np.uint64(len(rows.scratch)):
            state.open = NOT_OPEN
            return SCRATCH
        state.start = _ZERO
        state.open = IN_SCRATCH
        if codec == LZ4:
            is_expanded = expand_lz4(window, start, stop, rows.scratch, _ZERO, size)
        else:
            is_expanded = expand_snappy(window, start, stop, rows.scratch, size)
        if not is_expanded:
            state.open = NOT_OPEN
            _note(state, rows.events, _BAD_COMPRESSION, state.compression, 0)
    return DONE


@inlined
def _count_common(
    keys: Any, start: Any, end: Any, separators: Any, separator: Any, other_end: Any, known_length: Any
) -> Any:
    """Return the number of bytes that a key and a separator share from their beginning on.

    Of `known_length` ones it is known.
    """
    max_length = min(end - start, other_end - separator)
    length = min(known_length, max_length)
    while length < max_length and keys[start + length] == separators[separator + length]:
        length += _ONE
    return length


@inlined
def _compare(keys: Any, start: Any, end: Any, take: Any, block: Any, shared: Any, proven: Any) -> Any:
    """Compare a user key with the bounds of its block.

    Args:
        keys: uint8.
        start: Where the key begins.
        end: Where it ends.
        take: See `Take`.
        block: See `BLOCK`.
        shared: Bytes that it has in common with the key before.
        proven: What is returned, for the key before.

    Returns:
        How many bytes of it prove that it, and whatever else begins so, is between them: `_MISPLACED` if it is
        not, `_NEVER` if it is, and other keys that begin so need not be; and how many bytes it has in common with
        either bound.
    """
    _, low, high = proven
    low = _count_common(keys, start, end, take.separators, block.low, block.low_end, min(shared, low))
    high = _count_common(keys, start, end, take.separators, block.high, block.high_end, min(shared, high))
    proof = low
    if block.low + low < block.low_end:
        proof += _ONE
        if start + low == end or keys[start + low] < take.separators[block.low + low]:
            return _MISPLACED, low, high
    if block.bounded == _BOTH:
        if start + high == end:
            return _NEVER, low, high
        if block.high + high == block.high_end or keys[start + high] > take.separators[block.high + high]:
            return _MISPLACED, low, high
        proof = max(proof, high + _ONE)
    return proof, low, high


@inlined
def _restore_key(rows: Any, keys: Any, last: Any, least: Any, key_room: Any) -> Any:
    """Put the key before an interruption where the next one will be, which shares its beginning.

    Returns:
        Whether there was room, and its trailer, if keys have any: `least` bytes.
    """
    if key_room < last or key_room - last < keys:
        return False, _ZERO
    copy_bytes(rows.keys, keys, rows.last, _ZERO, last)
    return True, load_u64(rows.last, last - least) if least != _ZERO else _ZERO


@inlined
def _keep_key(rows: Any, before: Any, key_length: Any, least: Any, trailer: Any) -> None:
    """Put the last key aside for when reading goes on."""
    copy_bytes(rows.last, _ZERO, rows.keys, before, key_length)
    if least != _ZERO:
        store_u64(rows.last, key_length, trailer)


@always_inlined
def _put_shared(target: Any, keys: Any, before: Any, shared: Any, held_length: Any, trailer: Any) -> None:
    """Put what a key shares with the key at `before`, of which `held_length` bytes are still there."""
    if before != keys:
        if shared <= _SHORT:
            copy_32(target, keys, target, before)
        else:
            copy_bytes(target, keys, target, before, min(shared, held_length))
    if shared > held_length:
        store_u64(target, keys + held_length, trailer)


@always_inlined
def _put_rest(target: Any, pos: Any, data: Any, start: Any, unshared: Any) -> None:
    """Put what a key does not share."""
    if unshared <= _SHORT and start + _SHORT <= np.uint64(len(data)):
        copy_32(target, pos, data, start)
    else:
        copy_bytes(target, pos, data, start, unshared)


@always_inlined
def _is_below(keys: Any, start: Any, end: Any, before: Any, common: Any) -> Any:
    """Return whether a key is below that right before it, with which it has so many bytes in common, or more."""
    if common < min(start - before, end - start) and keys[start + common] > keys[before + common]:
        return False
    return compare_bytes(keys, before, start, keys, start, end) > 0


@always_inlined
def _take_value(data: Any, start: Any, length: Any, take: Any, rows: Any, row: Any, values: Any) -> Any:
    """Add the value of a row, if it is wanted, after `values` bytes of others; return how many there are then."""
    if len(rows.value_sizes):
        rows.value_ends[row], rows.value_ends[row + 1], rows.value_sizes[row] = start, start + length, length
        return values
    if take.values:
        copy_bytes(rows.values, values, data, start, length)
        values += length
    rows.value_ends[row + 1] = values
    return values


@always_inlined
def _add_row(rows: Any, row: Any, take: Any, block: Any, keys: Any, trailer: Any, operation: Any) -> None:
    """Write down what there is of a row, whose key ends at `keys`, besides its bytes."""
    rows.key_ends[row + 1] = keys
    rows.operations[row] = operation
    if take.internal:
        rows.sequences[row] = np.int64(trailer >> _SHIFT)
    if take.offsets:
        rows.offsets[row] = np.int64(block.offset)


@inlined
def _read_block(data: Any, block: Any, take: Any, state: Any, rows: Any) -> Any:
    """Return the entries of a block, from `state.position` on: FULL, GROW, DONE or UNUSUAL.

    An entry shares a prefix with the key before it, which is still in `rows.keys`, but for its trailer.
    """
    start, size = state.start, state.length
    end, _ = find_entries_end(data, start, start + size)
    if end == NOWHERE:
        return UNUSUAL
    least = _KEY_TRAILER if take.internal else _ZERO
    # A key is put with its trailer, which the next one overwrites.
    key_room, value_room = np.uint64(len(rows.keys)) - _KEY_SLACK, np.uint64(len(rows.values))
    row, keys, values = state.rows, state.keys, state.values
    last, expanded = state.last, state.expanded
    trailer, before = _ZERO, keys
    previous = np.uint64(rows.key_ends[max(row - 1, 0)])
    if last != _ZERO:
        fits, trailer = _restore_key(rows, keys, last, least, key_room)
        if not fits:
            return FULL
    pos = start + state.position
    quiet = True
    status = DONE
    # Keys that begin as one did that was found in its place need not be looked at.
    stamp = take.stamp
    proof = _NEVER if block.bounded != _UNBOUNDED else _ZERO
    proven = proof, _ZERO, _ZERO
    while pos < end:
        if not quiet:
            status = FULL
            break
        prefetch(data, pos + _AHEAD)
        shared, unshared, length, after = read_entry_head(data, pos, end)
        total = shared + unshared
        broken = after == _ZERO or shared > last or unshared > end - after or length > end - after - unshared
        if broken or total < least or expanded + total > size * _MOST:
            state.rows = row
            bad = broken or total >= least
            _note(state, rows.events, _BAD_ENTRY if bad else _BAD_KEY, pos - start, size if bad else total)
            break
        width = total - least
        if total > np.uint64(len(rows.last)):
            status = GROW
            break
        if row == len(rows.operations) or key_room - keys < width or (take.values and value_room - values < length):
            status = FULL
            break
        _put_shared(rows.keys, keys, before, shared, last - least if last != _ZERO else _ZERO, trailer)
        _put_rest(rows.keys, keys + shared, data, after, unshared)
        code = _ZERO
        if take.internal:
            trailer = (
                load_u64(data, after + unshared - _EIGHT) if unshared >= _EIGHT else load_u64(rows.keys, keys + width)
            )
            code = trailer & np.uint64(255)
        common, before, last = shared if before == previous else _ZERO, keys, total
        expanded += total
        operation = take.types[code]
        if shared < proof or width < proof + stamp:
            user_end = keys + width - min(width, stamp)
            proven = _compare(rows.keys, keys, user_end, take, block, shared, proven)
            proof = proven[0]
        if operation == _UNKNOWN or proof == _MISPLACED:
            state.rows = row
            kind, number = (_UNKNOWN_OPERATION, code) if operation == _UNKNOWN else (_MISPLACED_KEY, width)
            _note(state, rows.events, kind, pos - start, number)
            quiet = state.events + 1 < len(rows.events)
        else:
            state.descents += np.int64(_is_below(rows.keys, keys, keys + width, previous, common))
            previous, keys = keys, keys + width
            values = _take_value(data, after + unshared, length, take, rows, row, values)
            _add_row(rows, row, take, block, keys, trailer, operation)
            row += 1
        pos = after + unshared + length
    if status != DONE and last != _ZERO:
        _keep_key(rows, before, last - least, least, trailer)
    state.rows, state.keys, state.values = row, keys, values
    state.last, state.expanded = last, expanded
    state.position = pos - start
    return status


# What encoding ends with.
COMPLETE = 0
"""A block is complete."""
ENCODED = 1
"""All rows are encoded; the block is not complete."""
NO_ROOM = 2
"""No room for the next entry."""
UNORDERED = 3
"""Keys are not in ascending order at row `row`."""

BUILDER = make_record_type("row", ("used", np.uint64), ("last", np.uint64), "restarts", "since", "entries")
"""The next row; bytes of the open block; bytes of `Block.last`, 0 before the first key; restart points of the block;
entries since the last of them; entries of the block."""

_LENGTHS = np.uint64(15)
"""Three varints take no more."""


class EntryInput(NamedTuple):
    """Rows to encode: user keys and values with their ends, sequence numbers, and types of operations.

    Attributes:
        keys: uint8; key i is `keys[key_ends[i] : key_ends[i + 1]]`.
        key_ends: int64.
        values: uint8.
        value_ends: int64.
        sequences: uint64.
        types: uint8.
    """

    keys: Bytes
    key_ends: Int64s
    values: Bytes
    value_ends: Int64s
    sequences: UInt64s
    types: Bytes


class Block(NamedTuple):
    """The open block.

    Attributes:
        data: uint8, its entries.
        last: uint8, the internal key of the entry before.
        restarts: uint32, where its restart points are.
        block_bytes: It is complete at this size.
        interval: Every so many entries, a key is stored whole.
    """

    data: OutBytes
    last: OutBytes
    restarts: OutUInt32s
    block_bytes: UInt64
    interval: Int64


@inlined
def _count_shared(rows: Any, start: Any, length: Any, last: Any, last_length: Any) -> Any:
    """Return the length of the beginning that a user key shares with the previous one."""
    shared = _ZERO
    max_length = min(length, last_length)
    while shared < max_length and rows.keys[start + shared] == last[shared]:
        shared += _ONE
    return shared


@kernel
def encode_entries(columns: EntryInput, out: Block, state: Annotated[Any, Record(BUILDER)]) -> Int64:
    """Encode rows from `state.row` on, up to the end of a block.

    Args:
        columns: See `EntryInput`.
        out: See `Block`; `last` has room for any key.
        state: A record of type BUILDER; updated.

    Returns:
        COMPLETE, ENCODED, NO_ROOM or UNORDERED.
    """
    rows = len(columns.sequences)
    room = np.uint64(len(out.data))
    while state.row < rows:
        row = state.row
        start = np.uint64(columns.key_ends[row])
        length = np.uint64(columns.key_ends[row + 1]) - start
        value = np.uint64(columns.value_ends[row])
        value_length = np.uint64(columns.value_ends[row + 1]) - value
        total = length + _KEY_TRAILER
        if room - state.used < _LENGTHS + total + value_length or state.restarts == len(out.restarts):
            return NO_ROOM
        trailer = columns.sequences[row] << _SHIFT | np.uint64(columns.types[row])
        shared = _ZERO
        if state.last > _ZERO:
            last_length = state.last - _KEY_TRAILER
            shared = _count_shared(columns, start, length, out.last, last_length)
            if shared == length and length == last_length:
                if trailer >= load_u64(out.last, last_length):
                    return UNORDERED
            elif shared == length or (shared < last_length and columns.keys[start + shared] < out.last[shared]):
                return UNORDERED
        if state.since == out.interval or state.entries == 0:
            out.restarts[state.restarts] = state.used
            state.restarts += 1
            state.since = 0
            shared = _ZERO
        pos = put_varint(out.data, state.used, shared)
        pos = put_varint(out.data, pos, total - shared)
        pos = put_varint(out.data, pos, value_length)
        copy_bytes(out.data, pos, columns.keys, start + shared, length - shared)
        store_u64(out.data, pos + length - shared, trailer)
        copy_bytes(out.data, pos + total - shared, columns.values, value, value_length)
        copy_bytes(out.last, _ZERO, columns.keys, start, length)
        store_u64(out.last, length, trailer)
        state.used = pos + total - shared + value_length
        state.last = total
        state.since += 1
        state.entries += 1
        state.row = row + 1
        if state.used >= out.block_bytes:
            return COMPLETE
    return ENCODED


@kernel
def close_block(out: Block, state: Annotated[Any, Record(BUILDER)]) -> UInt64:
    """Write restart points and their number after the entries; return the block's bytes, 0 where there is no room."""
    need = np.uint64(state.restarts + 1) * np.uint64(layout.RESTART_SIZE)
    if np.uint64(len(out.data)) - state.used < need:
        return _ZERO
    pos = state.used
    for i in range(state.restarts):
        store_u32(out.data, pos, np.uint64(out.restarts[i]))
        pos += np.uint64(layout.RESTART_SIZE)
    store_u32(out.data, pos, np.uint64(state.restarts))
    return pos + np.uint64(layout.RESTART_SIZE)
