"""Judging blocks, and taking the entries of expanded ones apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.kernels.crc32c import crc32c, crc32c_extend
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32, load_u64, prefetch
from sawlog.kernels.protobuf import varint
from sawlog.kernels.xxh32 import xxh32
from sawlog.kernels.xxh64 import xxh3, xxh64
from sawlog.leveldb_log.kernels import masked
from sawlog.leveldb_table import layout
from sawlog.leveldb_table.layout import Checksum, Kind

# What a call ended with.
FULL = 0
"""No room for more rows, bytes or events."""
GROW = 1
"""A key is longer than the room for one."""
DONE = 2
"""All blocks are read."""

HANDLE = np.dtype([("offset", np.uint64), ("size", np.uint64)], align=True)
"""A block: where it begins in the file, and its bytes without the trailer."""

VERDICT = np.dtype(
    [("kind", np.int64), ("one", np.uint64), ("two", np.uint64), ("compression", np.int64)],
    align=True,
)
"""What is wrong with a block (a `Kind`, or 0), two numbers that explain it, and how it is compressed."""

CONTENT = np.dtype(
    [("start", np.uint64), ("end", np.uint64), ("offset", np.int64), ("length", np.int64)],
    align=True,
)
"""An expanded block: its place in the data, and that of what it was stored as in the file, with its trailer."""

STATE = np.dtype(
    [
        ("block", np.int64),
        ("position", np.uint64),
        ("rows", np.int64),
        ("keys", np.uint64),
        ("values", np.uint64),
        ("last", np.uint64),
        ("expanded", np.uint64),
        ("events", np.int64),
    ],
    align=True,
)
"""Where the reading of entries stands.

`block` is being read, from its byte `position` on; `rows`, `keys` and `values` are the rows so far and their bytes; the
key of the entry before is the first `last` bytes of `Rows.last`; `expanded` counts the bytes of the block's keys.
"""

EVENT = np.dtype(
    [("kind", np.int64), ("block", np.int64), ("one", np.int64), ("two", np.int64), ("row", np.int64)],
    align=True,
)
"""Damage: its kind, the number of the block, two numbers that explain it, and how many rows stand before it."""


class Rule(NamedTuple):
    """How the blocks of a table are checked.

    Attributes:
        checksum: The `Checksum`.
        context: What makes checksums depend on the place of their block; 0 where they do not.
        limit: Where the blocks of the file end.
        verify: Whether checksums are verified.
    """

    checksum: Any
    context: Any
    limit: Any
    verify: Any


class Take(NamedTuple):
    """What is taken of entries.

    Attributes:
        internal: Whether keys end in sequence number and type.
        values: Whether values are wanted.
        types: uint8[256], the number of each type's operation; 255 where it is unknown.
    """

    internal: Any
    values: Any
    types: Any


class Rows(NamedTuple):
    """Where entries go: user keys and values back to back with their ends, and what follows user keys.

    Attributes:
        keys: uint8.
        key_ends: int32, one more than rows; key i is `keys[key_ends[i] : key_ends[i + 1]]`.
        values: uint8.
        value_ends: int32, likewise.
        sequences: int64.
        operations: uint8, numbers of `Take.types`.
        offsets: int64, the file offset of each row's block.
        events: Damage, of type EVENT.
        last: uint8, the key of the entry before, which the next one shares a prefix with.
    """

    keys: Any
    key_ends: Any
    values: Any
    value_ends: Any
    sequences: Any
    operations: Any
    offsets: Any
    events: Any
    last: Any


_TRAILER = np.uint64(layout.TRAILER_SIZE)
_KEY_TRAILER = np.uint64(layout.KEY_TRAILER)
_RESTART = np.uint64(layout.RESTART_SIZE)
_BUCKETS = np.uint64(layout.BUCKETS_SIZE)
_HASH_INDEX = np.uint64(layout.HASH_INDEX)
_HASH_LARGEST = np.uint64(layout.HASH_INDEX_LARGEST)
_SHIFT = np.uint64(layout.SEQUENCE_SHIFT)
_MOST = np.uint64(layout.MOST_EXPANSION)
_FACTOR = np.uint64(layout.LAST_BYTE_FACTOR)
_U32 = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_NOWHERE = np.uint64((1 << 64) - 1)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_AHEAD = np.uint64(1024)
_HALF = np.uint64(32)

_CRC = int(Checksum.CRC32C)
_XXH32 = int(Checksum.XXH32)
_XXH64 = int(Checksum.XXH64)
_XXH3 = int(Checksum.XXH3)
_MISMATCH = int(Kind.CHECKSUM_MISMATCH)
_BAD_HANDLE = int(Kind.BAD_HANDLE)
_BAD_BLOCK = int(Kind.BAD_BLOCK)
_BAD_ENTRY = int(Kind.BAD_ENTRY)
_BAD_KEY = int(Kind.BAD_KEY)
_UNKNOWN_OPERATION = int(Kind.UNKNOWN_OPERATION)
_UNKNOWN = 255
_LAST_COMPRESSION = np.uint64(layout.Compression.ZSTD)


@inlined
def checksum_of(window: Any, start: Any, length: Any, kind: Any) -> Any:
    """The stored form of the checksum of `window[start : start + length]`, of which the last byte is a block's type."""
    if kind == _CRC:
        return masked(crc32c(window, start, length))
    if kind == _XXH32:
        return xxh32(window, start, length, _ZERO)
    if kind == _XXH64:
        return xxh64(window, start, length) & _U32
    if kind == _XXH3:
        last = np.uint64(window[start + length - _ONE])
        return (xxh3(window, start, length - _ONE) ^ last * _FACTOR) & _U32
    return _ZERO


@inlined
def modifier(context: Any, offset: Any) -> Any:
    """What a checksum is combined with because its block stands at a file offset."""
    return (context ^ (offset + (offset >> _HALF))) & _U32 if context != _ZERO else _ZERO


@kernel
def judge_blocks(window: Any, base: Any, handles: Any, rule: Any, verdicts: Any) -> None:
    """Judge blocks by their place, length and checksum; what is inside of them is judged by `read_entries`.

    Args:
        window: uint8, the file from `base` on, up to the end of the last of these blocks that ends in the file.
        base: uint64, file offset of the window.
        handles: Blocks, of type HANDLE.
        rule: See `Rule`.
        verdicts: Of type VERDICT, one per block; set.
    """
    for i in range(len(handles)):
        offset = handles[i].offset
        size = handles[i].size
        verdict = verdicts[i]
        verdict.kind = 0
        verdict.compression = 0
        if offset > rule.limit or rule.limit - offset < _TRAILER or size > rule.limit - offset - _TRAILER:
            verdict.kind = _BAD_HANDLE
            verdict.one = size
            verdict.two = rule.limit
            continue
        start = offset - base
        verdict.compression = np.int64(window[start + size])
        if rule.verify and rule.checksum != 0:
            expected = checksum_of(window, start, size + _ONE, rule.checksum)
            expected = (expected + modifier(rule.context, offset)) & _U32
            stored = load_u32(window, start + size + _ONE)
            if stored != expected:
                verdict.kind = _MISMATCH
                verdict.one = stored
                verdict.two = expected


@inlined
def entries_end(data: Any, start: Any, end: Any) -> Any:
    """Where the entries of an expanded block end, and its restart points; the end is `_NOWHERE` if they do not fit."""
    if end - start < _RESTART:
        return _NOWHERE, _ZERO
    stop = end - _RESTART
    count = load_u32(data, stop)
    if count & _HASH_INDEX != _ZERO and end - start <= _HASH_LARGEST:
        count ^= _HASH_INDEX
        if stop - start < _BUCKETS:
            return _NOWHERE, count
        buckets = np.uint64(data[stop - _BUCKETS]) | np.uint64(data[stop - _ONE]) << _EIGHT
        if stop - start - _BUCKETS < buckets:
            return _NOWHERE, count
        stop -= _BUCKETS + buckets
    if count > (stop - start) // _RESTART:
        return _NOWHERE, count
    return stop - count * _RESTART, count


@inlined
def _note(state: Any, events: Any, kind: Any, one: Any, two: Any) -> None:
    event = events[state.events]
    event.kind = kind
    event.block = state.block
    event.one = np.int64(one)
    event.two = np.int64(two)
    event.row = state.rows
    state.events += 1


@inlined
def _lengths(data: Any, pos: Any, end: Any) -> Any:
    """The three numbers that begin an entry, and the position behind them, which is 0 where they are none."""
    if end - pos >= _FOUR:
        word = load_u32(data, pos)
        if word & np.uint64(0x00808080) == _ZERO:
            rest = word >> _EIGHT & np.uint64(127)
            return word & np.uint64(127), rest, word >> np.uint64(16) & np.uint64(127), pos + np.uint64(3)
    shared, pos = varint(data, pos, end)
    if pos == _ZERO:
        return _ZERO, _ZERO, _ZERO, _ZERO
    rest, pos = varint(data, pos, end)
    if pos == _ZERO:
        return _ZERO, _ZERO, _ZERO, _ZERO
    length, pos = varint(data, pos, end)
    return shared, rest, length, pos


@kernel
def read_entries(data: Any, contents: Any, take: Any, state: Any, rows: Any) -> Any:
    """Take the entries of expanded blocks apart.

    An entry shares a prefix with the key before it. Of a block that breaks off, the entries before are kept.

    Args:
        data: uint8, expanded blocks.
        contents: Of type CONTENT: where they are in `data`.
        take: See `Take`.
        state: A record of type STATE; updated. Begins with zeros.
        rows: See `Rows`.

    Returns:
        FULL, GROW (`rows.last` is too small for a key) or DONE.
    """
    status = DONE
    while state.block < len(contents):
        if state.events + 1 >= len(rows.events):
            return FULL
        start = contents[state.block].start
        size = contents[state.block].end - start
        end, restarts = entries_end(data, start, start + size)
        if end == _NOWHERE:
            _note(state, rows.events, _BAD_BLOCK, size, restarts)
            end = start
        status = _read_block(data, start, end, contents[state.block].offset, size, take, state, rows)
        if status != DONE:
            break
        state.block += 1
        state.position = _ZERO
        state.last = _ZERO
        state.expanded = _ZERO
    return status


@inlined
def _read_block(data: Any, start: Any, end: Any, offset: Any, size: Any, take: Any, state: Any, rows: Any) -> Any:
    """The entries `data[start:end]` of a block of `size` bytes, from `state.position` on: FULL, GROW or DONE."""
    least = _KEY_TRAILER if take.internal else _ZERO
    max_rows = len(rows.sequences)
    key_room = np.uint64(len(rows.keys))
    value_room = np.uint64(len(rows.values))
    longest = np.uint64(len(rows.last))
    row, keys, values = state.rows, state.keys, state.values
    last, expanded = state.last, state.expanded
    pos = start + state.position
    status = DONE
    while pos < end:
        prefetch(data, pos + _AHEAD)
        shared, rest, length, after = _lengths(data, pos, end)
        total = shared + rest
        broken = after == _ZERO or shared > last or rest > end - after or length > end - after - rest
        if broken or total < least or expanded + total > size * _MOST:
            if state.events + 1 >= len(rows.events):
                status = FULL
                break
            state.rows = row
            if broken or total >= least:
                _note(state, rows.events, _BAD_ENTRY, pos - start, size)
            else:
                _note(state, rows.events, _BAD_KEY, pos - start, total)
            break
        kept = total - least
        if total > longest:
            status = GROW
            break
        if row == max_rows or key_room - keys < kept or (take.values and value_room - values < length):
            status = FULL
            break
        copy_bytes(rows.last, shared, data, after, rest)
        code = _ZERO
        if take.internal:
            trailer = load_u64(rows.last, kept)
            code = trailer & np.uint64(255)
            rows.sequences[row] = np.int64(trailer >> _SHIFT)
        operation = take.types[code]
        if operation == _UNKNOWN:
            if state.events + 1 >= len(rows.events):
                status = FULL
                break
            state.rows = row
            _note(state, rows.events, _UNKNOWN_OPERATION, pos - start, code)
        else:
            copy_bytes(rows.keys, keys, rows.last, _ZERO, kept)
            keys += kept
            if take.values:
                copy_bytes(rows.values, values, data, after + rest, length)
                values += length
            rows.operations[row] = operation
            rows.offsets[row] = offset
            row += 1
            rows.key_ends[row] = keys
            rows.value_ends[row] = values
        last = total
        expanded += total
        pos = after + rest + length
    state.rows, state.keys, state.values = row, keys, values
    state.last, state.expanded = last, expanded
    state.position = pos - start
    return status


@kernel
def read_index(data: Any, content: Any, delta: Any, first_key: Any, handles: Any, keys: Any, ends: Any) -> Any:
    """Read a block of an index: its keys, and the places of blocks that its values are.

    Args:
        data: uint8, an expanded block.
        content: Of type CONTENT, one: where it is in `data`.
        delta: Whether values between restart points hold but the difference in size to the one before.
        first_key: Whether values go on with the first key of their block.
        handles: Of type HANDLE, set.
        keys: uint8, set to the keys, back to back.
        ends: int64, one more than handles; key i is `keys[ends[i] : ends[i + 1]]`.

    Returns:
        How many there are; -1 where the block is none, -2 where `handles` or `keys` are too small.
    """
    start = content[0].start
    end, _ = entries_end(data, start, content[0].end)
    if end == _NOWHERE:
        return -1
    pos = start
    count = 0
    used = _ZERO
    before = _ZERO
    while pos < end:
        shared, pos = varint(data, pos, end)
        if pos == _ZERO:
            return -1
        rest, pos = varint(data, pos, end)
        if pos == _ZERO:
            return -1
        length = _ZERO
        if not delta:
            length, pos = varint(data, pos, end)
            if pos == _ZERO:
                return -1
        if shared > used - before or rest > end - pos or length > end - pos - rest:
            return -1
        if count == len(handles) or shared + rest > np.uint64(len(keys)) - used:
            return -2
        copy_bytes(keys, used, keys, before, shared)
        copy_bytes(keys, used + shared, data, pos, rest)
        before = used
        used += shared + rest
        pos += rest
        stop = end if delta else pos + length
        first, pos = varint(data, pos, stop)
        if pos == _ZERO:
            return -1
        if delta and shared != _ZERO:
            # A number with its sign in the lowest bit.
            change = first >> _ONE ^ (_ZERO - (first & _ONE))
            handles[count].offset = handles[count - 1].offset + handles[count - 1].size + _TRAILER
            handles[count].size = handles[count - 1].size + change
        else:
            size, pos = varint(data, pos, stop)
            if pos == _ZERO:
                return -1
            handles[count].offset = first
            handles[count].size = size
        if not delta:
            # Behind a handle may stand the block's first key, or properties.
            pos = stop
        elif first_key:
            key_length, pos = varint(data, pos, end)
            if pos == _ZERO or key_length > end - pos:
                return -1
            pos += key_length
        count += 1
        ends[count] = np.int64(used)
    return count


@kernel
def find_block_end(data: Any, end: Any) -> Any:
    """Where the block that `data` begins with has its trailer, by its CRC-32C, which is taken on from byte to byte.

    Args:
        data: uint8.
        end: uint64, where to give up.

    Returns:
        uint64; `end` if there is no such place.
    """
    crc = _ZERO
    at = _ZERO
    while at < end and end - at >= _TRAILER:
        crc = crc32c_extend(crc, data, at, _ONE)
        # The byte taken last would be the compression.
        if data[at] <= _LAST_COMPRESSION and load_u32(data, at + _ONE) == masked(crc):
            return at
        at += _ONE
    return end


@kernel
def footer_checksum(data: Any, checksum: Any, context: Any, place: Any) -> Any:
    """The stored form of the checksum of a footer that begins at file offset `place`."""
    return (checksum_of(data, _ZERO, np.uint64(len(data)), checksum) + modifier(context, place)) & _U32


@kernel
def end_of_entries(data: Any) -> Any:
    """Where the entries of an expanded block end; 0 if it is none."""
    end, _ = entries_end(data, _ZERO, np.uint64(len(data)))
    return _ZERO if end == _NOWHERE else end
