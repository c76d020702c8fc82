"""Walking, checking and gathering fragments."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.crc32c import crc32c
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u16, load_u32, prefetch
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.layout import Kind, Role

# Fields of the reader's state, an int64 array. Offsets are those of the file.
POSITION = 0
"""The next fragment to read."""
SYNCED = 1
"""0 until the first fragment that this reader owns; what comes before belongs to an earlier split."""
RECORD_START = 2
"""Header of the open record's FIRST; -1 when no record is open."""
RECORD_LENGTH = 3
"""Payload of the open record so far."""
OVERSIZE = 4
"""1 when the open record has outgrown the limit and is not kept."""
COMMITTED = 5
"""Bytes of complete records in `data`; the open record's bytes follow them."""
ROWS = 6
EVENTS = 7
SUSPECT = 8
"""Recycled files: where the first doubtful fragment stands; it is damage if the log goes on behind it, else the end."""
SUSPECT_KIND = 9
SUSPECT_ONE = 10
SUSPECT_TWO = 11
ZEROS = 12
"""Start of the unused space that reaches up to the position; -1 when there is none."""
TORN = 13
"""1 when the end was met inside a header or payload."""
RECORD_BYTES = 14
PADDING_BYTES = 15
METADATA_BYTES = 16
NOTE_METADATA = 17
"""1 when metadata fragments are written down among the events."""
STATE_SIZE = 18

# What a call ended with.
MORE = 0
"""The window is used up."""
FULL = 1
"""No room for more rows, bytes or events."""
END = 2
"""The end of the file, or of what this reader owns."""

METADATA = -1
"""The kind of an event that is no damage but a metadata fragment; its two numbers are type and header size."""
EVENT_FIELDS = 6
"""Kind, offset, length, bytes as the reference counts them (-1: not at all), and two numbers for the message."""

_BLOCK = np.uint64(layout.BLOCK_SIZE)
_IN_BLOCK = np.uint64(layout.BLOCK_SIZE - 1)
_HEADER = np.uint64(layout.HEADER_SIZE)
_LENGTH = np.uint64(layout.LENGTH_OFFSET)
_TYPE = np.uint64(layout.TYPE_OFFSET)
_LOG_NUMBER = np.uint64(layout.LOG_NUMBER_OFFSET)
_MASK_DELTA = np.uint64(layout.MASK_DELTA)
_ROTATE_RIGHT = np.uint64(layout.MASK_ROTATION)
_ROTATE_LEFT = np.uint64(32 - layout.MASK_ROTATION)
_U32 = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)

AHEAD = np.uint64(2048)
"""How far before their use cache lines are asked for: small records leave the CPU's own prefetching behind."""
LINE = np.uint64(64)

_ROLE_UNKNOWN = int(Role.UNKNOWN)
_ROLE_FULL = int(Role.FULL)
_ROLE_FIRST = int(Role.FIRST)
_ROLE_MIDDLE = int(Role.MIDDLE)
_ROLE_LAST = int(Role.LAST)
_ROLE_METADATA = int(Role.METADATA)
_ROLE_COMPRESSION = int(Role.COMPRESSION)

_BAD_LENGTH = int(Kind.BAD_LENGTH)
_CHECKSUM_MISMATCH = int(Kind.CHECKSUM_MISMATCH)
_UNKNOWN_TYPE = int(Kind.UNKNOWN_TYPE)
_PARTIAL_RECORD = int(Kind.PARTIAL_RECORD)
_MISSING_START = int(Kind.MISSING_START)
_BROKEN_RECORD = int(Kind.BROKEN_RECORD)
_RECORD_TOO_LARGE = int(Kind.RECORD_TOO_LARGE)
_FOREIGN_FRAGMENT = int(Kind.FOREIGN_FRAGMENT)
_UNUSED_SPACE = int(Kind.UNUSED_SPACE)


@inlined
def masked(crc: Any) -> Any:
    """The stored form of a CRC-32C."""
    return ((crc >> _ROTATE_RIGHT | crc << _ROTATE_LEFT) & _U32) + _MASK_DELTA & _U32


@inlined
def masked_crc(buffer: Any, start: Any, length: Any) -> Any:
    """The stored form of the CRC-32C of `buffer[start : start + length]`."""
    return masked(crc32c(buffer, start, length))


@inlined
def _note(events: Any, state: Any, kind: Any, offset: Any, length: Any, dropped: Any, one: Any, two: Any) -> None:
    row = state[EVENTS]
    events[row, 0] = kind
    events[row, 1] = offset
    events[row, 2] = length
    events[row, 3] = dropped
    events[row, 4] = one
    events[row, 5] = two
    state[EVENTS] = row + 1


@inlined
def _forget_record(events: Any, state: Any, kind: Any, at: Any) -> None:
    """Give the open record up, if there is one, because of what stands at file offset `at`."""
    start = state[RECORD_START]
    if start < 0:
        return
    state[RECORD_START] = -1
    # An old writer left an empty FIRST at the end of a block and began anew behind it; nothing is lost by that.
    if state[RECORD_LENGTH] == 0 and kind == _PARTIAL_RECORD:
        state[PADDING_BYTES] += at - start
    else:
        _note(events, state, kind, start, at - start, state[RECORD_LENGTH], state[RECORD_LENGTH], at)


@inlined
def _confirm_suspect(events: Any, state: Any, at: Any) -> None:
    """A valid fragment stands behind a doubtful one: the log went on, so what lies between is damage."""
    suspect = state[SUSPECT]
    if suspect >= 0:
        _note(events, state, state[SUSPECT_KIND], suspect, at - suspect, -1, state[SUSPECT_ONE], state[SUSPECT_TWO])
        _forget_record(events, state, _BROKEN_RECORD, suspect)
        state[SUSPECT] = -1


@inlined
def _torn_own(window: Any, pos: Any, left: Any, header: Any, log: Any, state: Any) -> Any:
    """Whether a fragment that the end of a recycled file cuts off is this log's own, and not left over."""
    if state[SUSPECT] >= 0 or header == _HEADER:
        return False
    return left < header or log < 0 or load_u32(window, pos + _LOG_NUMBER) == np.uint64(log)


@inlined
def _judge(
    window: Any, pos: Any, left: Any, header: Any, length: Any, role: Any, log: Any, recycled: Any, verify: Any
) -> Any:
    """What is wrong with a fragment (a `Kind`, or 0), and the two numbers that explain it. Order as in RocksDB."""
    if header + length > left:
        return _BAD_LENGTH, length, _ZERO
    if header > _HEADER:
        number = load_u32(window, pos + _LOG_NUMBER)
        if log >= 0 and number != np.uint64(log):
            return _FOREIGN_FRAGMENT, number, np.uint64(log)
    elif recycled != 0 and _ROLE_FULL <= role <= _ROLE_LAST:
        return _FOREIGN_FRAGMENT, _ZERO, np.uint64(log)
    if verify:
        stored = load_u32(window, pos)
        expected = masked_crc(window, pos + _TYPE, header - _TYPE + length)
        if stored != expected:
            return _CHECKSUM_MISMATCH, expected, stored
    return 0, _ZERO, _ZERO


@inlined
def _all_zero(window: Any, pos: Any, length: Any) -> Any:
    for i in range(length):
        if window[pos + np.uint64(i)] != 0:
            return False
    return True


@inlined
def _full_run(
    window: Any,
    pos: Any,
    stop: Any,
    base: Any,
    verify: Any,
    gather: Any,
    longest: Any,
    rows: Any,
    committed: Any,
    data: Any,
    ends: Any,
    starts: Any,
    stops: Any,
) -> Any:
    """The common case, alone in a tight loop: intact legacy FULL fragments in `window[pos:stop]`, all in one block.

    Returns:
        Position, rows and committed bytes at the first fragment that is anything else, or finds no room.
    """
    max_rows = len(starts)
    capacity = np.uint64(len(data))
    while rows < max_rows and stop - pos >= _HEADER:
        prefetch(window, pos + AHEAD)
        prefetch(window, pos + AHEAD + LINE)
        length = load_u16(window, pos + _LENGTH)
        total = _HEADER + length
        if window[pos + _TYPE] != _ROLE_FULL or total > stop - pos or length > longest:
            break
        if verify and load_u32(window, pos) != masked_crc(window, pos + _TYPE, total - _TYPE):
            break
        if gather:
            if capacity - committed < length:
                break
            copy_bytes(data, committed, window, pos + _HEADER, length)
        committed += length
        starts[rows] = base + pos
        pos += total
        stops[rows] = base + pos
        rows += 1
        ends[rows] = committed
    return pos, rows, committed


@inlined
def _pass_unused(state: Any, here: Any, left: Any) -> None:
    """The rest of a block is zeros: padding."""
    state[PADDING_BYTES] += np.int64(left)
    if state[ZEROS] < 0:
        state[ZEROS] = here


@inlined
def _suspect(state: Any, here: Any, left: Any, recycled: Any, unused: Any, kind: Any, one: Any, two: Any) -> None:
    """What cannot be read where a recycled file may end: the end of the log, unless fragments of it follow."""
    if state[SYNCED] == 0 or state[SUSPECT] >= 0:
        return
    if unused and state[RECORD_START] < 0:
        _pass_unused(state, here, left)
    # Longer headers leave longer trailers, which a record in compressed chunks may go on behind.
    elif not unused or left >= recycled:
        state[SUSPECT] = here
        state[SUSPECT_KIND] = kind if kind != 0 else _UNUSED_SPACE
        state[SUSPECT_ONE] = one
        state[SUSPECT_TWO] = two


@inlined
def _pass_unreadable(state: Any, events: Any, here: Any, left: Any, unused: Any, kind: Any, one: Any, two: Any) -> None:
    """The rest of a block cannot be read: it is unused, or damaged. An open record is broken by it."""
    state[SYNCED] = 1
    if unused:
        _pass_unused(state, here, left)
    else:
        dropped = np.int64(-1) if kind == _FOREIGN_FRAGMENT else np.int64(left)
        _note(events, state, kind, here, left, dropped, one, two)
        state[ZEROS] = -1
    _forget_record(events, state, _BROKEN_RECORD, here)


@inlined
def _take_record(
    state: Any, start: Any, end: Any, rows: Any, committed: Any, ends: Any, starts: Any, stops: Any
) -> None:
    """A record is complete, from file offset `start` to `end`; `committed` counts its bytes."""
    starts[rows] = start
    stops[rows] = end
    ends[rows + 1] = committed
    state[RECORD_BYTES] += end - start


@inlined
def _take_other(state: Any, events: Any, here: Any, total: Any, length: Any, code: Any, role: Any) -> Any:
    """A fragment that is no part of the open record. Returns whether it was one."""
    start = state[RECORD_START]
    if role == _ROLE_METADATA:
        _forget_record(events, state, _PARTIAL_RECORD, here)
        state[METADATA_BYTES] += np.int64(total)
        if state[NOTE_METADATA] != 0:
            _note(events, state, METADATA, here, total, -1, code, total - length)
        return True
    if role == _ROLE_UNKNOWN:
        if start < 0:
            _note(events, state, _UNKNOWN_TYPE, here, total, length, code, 0)
        else:
            dropped = np.int64(length) + state[RECORD_LENGTH]
            _note(events, state, _UNKNOWN_TYPE, start, here + np.int64(total) - start, dropped, code, 0)
            state[RECORD_START] = -1
        return True
    if start < 0:
        _note(events, state, _MISSING_START, here, total, length, length, role)
        return True
    return False


@kernel
def read_fragments(
    window: Any,
    size: Any,
    end: Any,
    roles: Any,
    headers: Any,
    log: Any,
    recycled: Any,
    verify: Any,
    gather: Any,
    max_record: Any,
    state: Any,
    data: Any,
    ends: Any,
    starts: Any,
    stops: Any,
    events: Any,
) -> Any:
    """Read fragments from a window and assemble records.

    Args:
        window: uint8, the file from `state[POSITION]` to a block boundary or the end of the file.
        size: uint64, bytes in the file.
        end: uint64, a block boundary or `size`: records that start at or behind it are not ours.
        roles: uint8[256], the `Role` of each type byte.
        headers: uint8[256], the header size of each type byte.
        log: int64, the expected log number, -1 for any.
        recycled: uint64, 0, or, where the file may end in fragments of an earlier log, the size of its headers.
        verify: Whether checksums are verified.
        gather: Whether payloads are copied into `data`.
        max_record: int64, longest record that is kept.
        state: int64[STATE_SIZE], updated.
        data: uint8, payloads of complete records back to back, then that of the open one.
        ends: int32, `ends[i + 1]` is the end of record i in `data`; `ends[0]` is 0.
        starts: int64, file offset of each record.
        stops: int64, file offset behind each record.
        events: int64[:, EVENT_FIELDS], damage.

    Returns:
        MORE, FULL or END.
    """
    base = np.uint64(state[POSITION])
    limit = np.uint64(len(window))
    capacity = np.uint64(len(data))
    max_rows = len(starts)
    max_events = len(events)
    longest = np.uint64(max_record)
    rows = state[ROWS]
    committed = np.uint64(state[COMMITTED])
    pos = _ZERO
    status = FULL
    # One fragment causes three events at the most.
    while rows < max_rows and state[EVENTS] + 3 <= max_events:
        at = base + pos
        here = np.int64(at)
        if at >= size or (at >= end and state[SYNCED] == 0):
            status = END
            break
        left = _BLOCK - (at & _IN_BLOCK)
        last_block = size - at < left
        if last_block:
            left = size - at
        if limit - pos < left:
            status = MORE
            break
        if left < _HEADER:
            if last_block and not (state[ZEROS] >= 0 and _all_zero(window, pos, left)):
                state[TORN] = 1
                status = END
                break
            if state[SYNCED] != 0 and state[RECORD_START] < 0 and state[SUSPECT] < 0:
                _pass_unused(state, here, left)
            pos += left
            continue

        if recycled == 0 and at < end and state[SYNCED] != 0 and state[RECORD_START] < 0:
            first = pos
            pos, rows, committed = _full_run(
                window, pos, pos + left, base, verify, gather, longest, rows, committed, data, ends, starts, stops
            )
            if pos != first:
                state[RECORD_BYTES] += np.int64(pos - first)
                state[ZEROS] = -1
                continue

        length = load_u16(window, pos + _LENGTH)
        code = window[pos + _TYPE]
        role = roles[code]
        header = np.uint64(headers[code])
        total = header + length
        if total > left and last_block and (recycled == 0 or _torn_own(window, pos, left, header, log, state)):
            state[TORN] = 1
            status = END
            break
        unused = code == 0 and length == 0
        kind, one, two = 0, _ZERO, _ZERO
        if not unused:
            kind, one, two = _judge(window, pos, left, header, length, role, log, recycled, verify)
            if role == _ROLE_COMPRESSION:
                role = _ROLE_METADATA if at == 0 else _ROLE_UNKNOWN

        if kind != 0 or unused:
            if recycled != 0:
                _suspect(state, here, left, recycled, unused, kind, one, two)
            elif at < end:
                _pass_unreadable(state, events, here, left, unused, kind, one, two)
            else:
                _forget_record(events, state, _BROKEN_RECORD, here)
                status = END
                break
            pos += left
            continue

        if role in (_ROLE_FULL, _ROLE_FIRST):
            if at >= end:
                _confirm_suspect(events, state, here)
                _forget_record(events, state, _PARTIAL_RECORD, here)
                status = END
                break
            keep = np.int64(length) <= max_record
            if gather and keep and capacity - committed < length:
                break
            state[SYNCED] = 1
            state[ZEROS] = -1
            _confirm_suspect(events, state, here)
            _forget_record(events, state, _PARTIAL_RECORD, here)
            if gather and keep:
                copy_bytes(data, committed, window, pos + header, length)
            pos += total
            if role == _ROLE_FIRST:
                state[RECORD_START] = here
                state[RECORD_LENGTH] = np.int64(length)
                state[OVERSIZE] = 0 if keep else 1
            elif keep:
                committed += length
                _take_record(state, here, here + np.int64(total), rows, committed, ends, starts, stops)
                rows += 1
            else:
                _note(events, state, _RECORD_TOO_LARGE, at, total, -1, length, max_record)
            continue

        if state[SYNCED] == 0:
            pos += total
            continue
        _confirm_suspect(events, state, here)
        state[ZEROS] = -1
        if _take_other(state, events, here, total, length, code, role):
            pos += total
            continue

        whole = state[RECORD_LENGTH] + np.int64(length)
        if whole > max_record:
            state[OVERSIZE] = 1
        if gather and state[OVERSIZE] == 0:
            used = committed + np.uint64(state[RECORD_LENGTH])
            if capacity - used < length:
                break
            copy_bytes(data, used, window, pos + header, length)
        state[RECORD_LENGTH] = whole
        pos += total
        if role == _ROLE_LAST:
            start, stop = state[RECORD_START], np.int64(base + pos)
            state[RECORD_START] = -1
            if state[OVERSIZE] != 0:
                _note(events, state, _RECORD_TOO_LARGE, start, stop - start, -1, whole, max_record)
            else:
                committed += np.uint64(whole)
                _take_record(state, start, stop, rows, committed, ends, starts, stops)
                rows += 1
    state[POSITION] = base + pos
    state[ROWS] = rows
    state[COMMITTED] = committed
    return status


@kernel
def _masked_checksum(buffer: Any) -> Any:
    return masked_crc(buffer, _ZERO, np.uint64(len(buffer)))


def masked_checksum(data: bytes) -> int:
    """The stored form of the CRC-32C of some bytes."""
    return int(_masked_checksum(np.frombuffer(data, np.uint8)))
