"""Fragments: judged, assembled to records, and encoded. Section 2 of the format; sections 8 and 9 for the dialects.

`judge` is the one place where it is decided what is at a place, and whether it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import (
    DAMAGED,
    DONE,
    ENDED,
    EVENT,
    GOOD,
    NO_ROOM,
    PADDING,
    SHORT,
    SKIPPED,
    TAKEN,
    TORN,
    Window,
    blame,
    make_head_window,
    make_record_type,
    make_state,
    make_state_type,
    note,
    walk_chain,
)
from sawlog.kernels.crc32c import crc32c, crc32c_extend
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.layout import make_load, make_store
from sawlog.kernels.memory import copy_bytes, prefetch
from sawlog.kernels.numbers import _U32, _ZERO
from sawlog.kernels.signature import (
    Array,
    Bool,
    Bytes,
    Int32s,
    Int64,
    OutBytes,
    OutInt32s,
    OutInt64s,
    Record,
    UInt64,
    UInt64s,
)
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.layout import LogDamageKind, Role, Type


class Rules(NamedTuple):
    """Rules by which fragments are read.

    Attributes:
        roles: uint8[256], the `Role` of each type byte.
        headers: uint64[256], the header size of each type byte.
        log: int64, the expected log number, -1 for any.
        recycled: uint64, 0, or, where the file may end in fragments of an earlier log, the size of its headers.
        verify: Whether checksums are verified.
        gather: Whether payloads are copied into `data`.
        longest: int64, longest record that is kept.
        resync: Whether intact fragments are looked for in the rest of a damaged block.
    """

    roles: Bytes
    headers: UInt64s
    log: Int64
    recycled: UInt64
    verify: Bool
    gather: Bool
    longest: Int64
    resync: Bool


STATE = make_state_type(
    "synced",  # 0 until the first fragment that this walk owns; what comes before belongs to an earlier range
    "open",  # header of the open record's FIRST; -1 when no record is open
    "open_bytes",  # payload of the open record so far
    "oversize",  # 1 when the open record has outgrown the limit and is not kept
    "committed",  # bytes of complete records in `data`; the open record's bytes follow them
    "suspect",  # recycled files: the first doubtful fragment: damage if the log goes on after it, else the end; or -1
    "suspect_kind",
    "suspect_one",
    "suspect_two",
    "note_metadata",  # 1 when metadata fragments are written down among the events
    "resumed",  # end of the last block within which reading went on after damage; 0 for none
)
"""The state of a walk over fragments."""

METADATA = -1
"""The kind of an event that is no damage but a metadata fragment; its two numbers are type and header size."""


class Out(NamedTuple):
    """Buffers that records are written to.

    Attributes:
        data: uint8, payloads of complete records back to back, then that of the open one.
        ends: int32, `ends[i + 1]` is the end of record i in `data`; `ends[0]` is 0.
        starts: int64, file offset of each record.
        stops: int64, file offset after each record.
        recovered: uint8, set to 1 for records that begin after damage in the same block; others keep their value.
        events: See `sawlog.chain.kernels.EVENT`.
    """

    data: OutBytes
    ends: OutInt32s
    starts: OutInt64s
    stops: OutInt64s
    recovered: OutBytes
    events: Annotated[Any, Array(EVENT, writable=True)]


ENCODER = make_record_type(
    "record",  # the one being encoded
    "done",  # bytes of it that are encoded; -1 before its first fragment
    "in_block",  # bytes used of the current block
    "used",  # bytes in `out`
)
"""The state of the encoder."""

# What encoding ends with, besides NO_ROOM: the output is to be emptied first.
WRITTEN = 0
"""All records are encoded."""

_BLOCK = np.uint64(layout.BLOCK_SIZE)
_IN_BLOCK = np.uint64(layout.BLOCK_SIZE - 1)
_HEADER = np.uint64(layout.HEADER_SIZE)
_TYPE = np.uint64(layout.TYPE.offset)
_MASK_DELTA = np.uint64(layout.MASK_DELTA)
_ROTATE_RIGHT = np.uint64(layout.MASK_ROTATION)
_ROTATE_LEFT = np.uint64(32 - layout.MASK_ROTATION)
_load_checksum = make_load(layout.CHECKSUM)
_load_length = make_load(layout.LENGTH)
_load_log_number = make_load(layout.LOG_NUMBER)
_store_checksum = make_store(layout.CHECKSUM)
_store_length = make_store(layout.LENGTH)
_store_log_number = make_store(layout.LOG_NUMBER)
_AHEAD = np.uint64(2048)
"""How far before their use cache lines are asked for: small records outrun the CPU's own prefetching."""
_LINE = np.uint64(64)

_ROLE_UNKNOWN = int(Role.UNKNOWN)
_ROLE_FULL = int(Role.FULL)
_ROLE_FIRST = int(Role.FIRST)
_ROLE_LAST = int(Role.LAST)
_ROLE_METADATA = int(Role.METADATA)
_ROLE_COMPRESSION = int(Role.COMPRESSION)
_BAD_LENGTH = int(LogDamageKind.BAD_LENGTH)
_CHECKSUM_MISMATCH = int(LogDamageKind.CHECKSUM_MISMATCH)
_FOREIGN_FRAGMENT = int(LogDamageKind.FOREIGN_FRAGMENT)
_UNUSED_SPACE = int(LogDamageKind.UNUSED_SPACE)
_UNKNOWN_TYPE = int(LogDamageKind.UNKNOWN_TYPE)
_PARTIAL_RECORD = int(LogDamageKind.PARTIAL_RECORD)
_MISSING_START = int(LogDamageKind.MISSING_START)
_BROKEN_RECORD = int(LogDamageKind.BROKEN_RECORD)
_RECORD_TOO_LARGE = int(LogDamageKind.RECORD_TOO_LARGE)
_FULL = np.uint64(Type.FULL)
_FIRST = np.uint64(Type.FIRST)
_MIDDLE = np.uint64(Type.MIDDLE)
_LAST = np.uint64(Type.LAST)
_RECYCLABLE_TYPES = np.uint64(Type.RECYCLABLE_FULL - Type.FULL)


@inlined
def mask_crc(crc: Any) -> Any:
    """Return the stored form of a CRC-32C."""
    return ((crc >> _ROTATE_RIGHT | crc << _ROTATE_LEFT) & _U32) + _MASK_DELTA & _U32


@inlined
def compute_masked_crc(buffer: Any, start: Any, length: Any) -> Any:
    """Return the stored form of the CRC-32C of `buffer[start : start + length]`."""
    return mask_crc(crc32c(buffer, start, length))


@inlined
def _is_zero(data: Any, pos: Any, length: Any) -> Any:
    used = np.uint64(0)
    for i in range(length):
        used |= np.uint64(data[pos + np.uint64(i)])
    return used == _ZERO


@always_inlined
def measure_remainder(window: Any, offset: Any) -> Any:
    """Return the number of bytes from a file offset to the end of its block, or of the file."""
    return min(_BLOCK - (offset & _IN_BLOCK), window.size - offset)


@inlined
def _cut_off(window: Any, pos: Any, room: Any, header: Any, state: Any, rules: Any) -> Any:
    """Return whether a fragment that the end of the file cuts off is this log's, and no remainder of an earlier log."""
    if (window.base + pos & _IN_BLOCK) + room == _BLOCK:
        return False
    if rules.recycled == 0:
        return True
    if state.suspect >= 0 or header == _HEADER:
        return False
    return room < header or rules.log < 0 or _load_log_number(window.data, pos) == np.uint64(rules.log)


@inlined
def _prove_fragment(data: Any, pos: Any, room: Any, rules: Any) -> Any:
    """Return the size of the fragment of this log, part of a record, that a checksum proves to be at `pos`, or 0.

    It ends within `room` bytes.
    """
    if room < _HEADER:
        return _ZERO
    code = data[pos + _TYPE]
    header = rules.headers[code]
    total = header + _load_length(data, pos)
    if not _ROLE_FULL <= rules.roles[code] <= _ROLE_LAST or total > room:
        return _ZERO
    if header > _HEADER:
        if rules.log >= 0 and _load_log_number(data, pos) != np.uint64(rules.log):
            return _ZERO
    elif rules.recycled != _ZERO:
        return _ZERO
    return total if _load_checksum(data, pos) == compute_masked_crc(data, pos + _TYPE, total - _TYPE) else _ZERO


@inlined
def _measure_loss(data: Any, pos: Any, room: Any, rules: Any) -> Any:
    """Return how many bytes are lost with the damage at `pos`: the rest of its block, unless `rules.resync`.

    A header that could be one is believed: what looks like fragments in the payload that it announces is payload.
    """
    if not rules.resync:
        return room
    code = data[pos + _TYPE]
    total = rules.headers[code] + _load_length(data, pos)
    if _ROLE_FULL <= rules.roles[code] <= _ROLE_LAST and total <= room:
        return total if room - total >= _HEADER else room
    for step in range(np.uint64(1), room):
        if _prove_fragment(data, pos + step, room - step, rules) != _ZERO:
            return step
    return room


@always_inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Return the kind and length of what is at a position, asked in RocksDB's order. See `sawlog.chain`."""
    data = window.data
    offset = window.base + pos
    if offset >= window.size or (offset >= window.end and state.synced == 0):
        return ENDED, _ZERO
    room = measure_remainder(window, offset)
    if np.uint64(len(data)) - pos < room:
        return SHORT, room
    if room < _HEADER:
        if (offset & _IN_BLOCK) + room != _BLOCK and not (state.zeros >= 0 and _is_zero(data, pos, room)):
            return TORN, room
        # Between the pieces of a record, the unused end of a block belongs to the record.
        owned = state.synced != 0 and state.open < 0 and state.suspect < 0
        return (PADDING if owned else SKIPPED), room
    length = _load_length(data, pos)
    code = data[pos + _TYPE]
    header = rules.headers[code]
    total = header + length
    if total > room and _cut_off(window, pos, room, header, state, rules):
        return TORN, room
    if code == 0 and length == _ZERO:
        blame(state, _UNUSED_SPACE, 0, 0)
        return DAMAGED, _measure_loss(data, pos, room, rules)
    if total > room:
        blame(state, _BAD_LENGTH, length, 0)
        return DAMAGED, _measure_loss(data, pos, room, rules)
    if header > _HEADER:
        number = _load_log_number(data, pos)
        if rules.log >= 0 and number != np.uint64(rules.log):
            blame(state, _FOREIGN_FRAGMENT, number, rules.log)
            return DAMAGED, _measure_loss(data, pos, room, rules)
    elif rules.recycled != _ZERO and _ROLE_FULL <= rules.roles[code] <= _ROLE_LAST:
        blame(state, _FOREIGN_FRAGMENT, 0, rules.log)
        return DAMAGED, _measure_loss(data, pos, room, rules)
    if rules.verify:
        stored = _load_checksum(data, pos)
        expected = compute_masked_crc(data, pos + _TYPE, total - _TYPE)
        if stored != expected:
            blame(state, _CHECKSUM_MISMATCH, expected, stored)
            return DAMAGED, _measure_loss(data, pos, room, rules)
    return GOOD, total


@always_inlined
def run(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take intact legacy FULL fragments, all in one block: the common case, in a tight loop of its own."""
    data = window.data
    offset = window.base + pos
    if rules.recycled != _ZERO or offset >= window.end or state.synced == 0 or state.open >= 0:
        return pos
    if state.resumed > np.int64(offset):
        return pos
    room = measure_remainder(window, offset)
    if np.uint64(len(data)) - pos < room:
        return pos
    base = window.base
    start = pos
    stop = pos + room
    rows = state.rows
    max_rows = state.max_rows
    longest = np.uint64(rules.longest)
    committed = np.uint64(state.committed)
    capacity = np.uint64(len(out.data))
    while rows < max_rows and stop - pos >= _HEADER:
        prefetch(data, pos + _AHEAD)
        prefetch(data, pos + _AHEAD + _LINE)
        length = _load_length(data, pos)
        total = _HEADER + length
        if data[pos + _TYPE] != _ROLE_FULL or total > stop - pos or length > longest:
            break
        if rules.verify and _load_checksum(data, pos) != compute_masked_crc(data, pos + _TYPE, total - _TYPE):
            break
        if rules.gather:
            if capacity - committed < length:
                break
            copy_bytes(out.data, committed, data, pos + _HEADER, length)
        committed += length
        out.starts[rows] = base + pos
        pos += total
        out.stops[rows] = base + pos
        rows += 1
        out.ends[rows] = committed
    state.rows = rows
    state.committed = committed
    state.record_bytes += np.int64(pos - start)
    return pos


@inlined
def _forget_record(events: Any, state: Any, kind: Any, offset: Any) -> None:
    """Give the open record up, if there is one, because of what is at a file offset."""
    start = state.open
    if start < 0:
        return
    state.open = -1
    # An old writer left an empty FIRST at the end of a block and began another one after it; nothing is lost by that.
    if state.open_bytes == 0 and kind == _PARTIAL_RECORD:
        state.padding_bytes += offset - start
    else:
        note(events, state, kind, start, offset - start, state.open_bytes, offset)
        events[state.events - 1].dropped = state.open_bytes


@inlined
def _confirm_suspect(events: Any, state: Any, offset: Any) -> None:
    """Note the bytes from a doubtful fragment, if any, up to a valid one as damage: the log went on."""
    suspect = state.suspect
    if suspect >= 0:
        note(events, state, state.suspect_kind, suspect, offset - suspect, state.suspect_one, state.suspect_two)
        _forget_record(events, state, _BROKEN_RECORD, suspect)
        state.suspect = -1


@always_inlined
def _pass_unused(state: Any, offset: Any, length: Any) -> None:
    """Pass over the rest of a block, which is zeros: padding."""
    state.padding_bytes += length
    if state.zeros < 0:
        state.zeros = offset


@inlined
def _note_suspect(state: Any, offset: Any, length: Any, unused: Any, recycled: Any) -> None:
    """Note what cannot be read where a recycled file may end: the log's end, unless fragments of it follow."""
    if state.synced == 0 or state.suspect >= 0:
        return
    if unused and state.open < 0:
        _pass_unused(state, offset, length)
    # Longer headers leave longer trailers, after which a record in compressed chunks may go on.
    elif not unused or np.uint64(length) >= recycled:
        state.suspect = offset
        state.suspect_kind = state.kind
        state.suspect_one = state.one
        state.suspect_two = state.two


@always_inlined
def on_damage(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Note that the rest of a block cannot be read: it is unused, or damaged. An open record is broken by it."""
    offset = np.int64(start)
    lost_bytes = np.int64(length)
    room = measure_remainder(window, start)
    unused = state.kind == _UNUSED_SPACE and length == room
    if length < room:
        state.resumed = np.int64(start + room)
    if rules.recycled != _ZERO:
        _note_suspect(state, offset, lost_bytes, unused, rules.recycled)
        return TAKEN
    if start >= window.end:
        _forget_record(out.events, state, _BROKEN_RECORD, offset)
        return DONE
    state.synced = 1
    if unused:
        _pass_unused(state, offset, lost_bytes)
    else:
        note(out.events, state, state.kind, offset, lost_bytes, state.one, state.two)
        if state.kind != _FOREIGN_FRAGMENT and not rules.resync:
            out.events[state.events - 1].dropped = lost_bytes
        state.zeros = -1
    _forget_record(out.events, state, _BROKEN_RECORD, offset)
    return TAKEN


@always_inlined
def _take_record(state: Any, out: Any, start: Any, end: Any) -> None:
    """Enter a complete record, from file offset `start` to `end`; `state.committed` counts its bytes."""
    row = state.rows
    out.starts[row] = start
    out.stops[row] = end
    out.ends[row + 1] = state.committed
    if start < state.resumed:
        out.recovered[row] = 1
    state.rows = row + 1
    state.record_bytes += end - start


@always_inlined
def _begin(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take a fragment that begins a record: FULL or FIRST."""
    start = window.base + pos
    offset = np.int64(start)
    code = window.data[pos + _TYPE]
    header = rules.headers[code]
    length = np.int64(size - header)
    if start >= window.end:
        _confirm_suspect(out.events, state, offset)
        _forget_record(out.events, state, _PARTIAL_RECORD, offset)
        return DONE
    keep = length <= rules.longest
    if rules.gather and keep and len(out.data) - state.committed < length:
        return NO_ROOM
    state.synced = 1
    _confirm_suspect(out.events, state, offset)
    _forget_record(out.events, state, _PARTIAL_RECORD, offset)
    if rules.gather and keep:
        copy_bytes(out.data, np.uint64(state.committed), window.data, pos + header, size - header)
    if rules.roles[code] == _ROLE_FIRST:
        state.open = offset
        state.open_bytes = length
        state.oversize = 0 if keep else 1
    elif keep:
        state.committed += length
        _take_record(state, out, offset, offset + np.int64(size))
    else:
        note(out.events, state, _RECORD_TOO_LARGE, start, size, length, rules.longest)
    return TAKEN


@inlined
def _take_other(offset: Any, total: Any, length: Any, code: Any, role: Any, state: Any, events: Any) -> Any:
    """Take a fragment that is no part of the open record; return whether it was one."""
    start = state.open
    if role == _ROLE_METADATA:
        _forget_record(events, state, _PARTIAL_RECORD, offset)
        state.header_bytes += total
        if state.note_metadata != 0:
            note(events, state, METADATA, offset, total, code, total - length)
        return True
    if role == _ROLE_UNKNOWN:
        dropped = length
        if start < 0:
            note(events, state, _UNKNOWN_TYPE, offset, total, code, 0)
        else:
            dropped += state.open_bytes
            note(events, state, _UNKNOWN_TYPE, start, offset + total - start, code, 0)
            state.open = -1
        events[state.events - 1].dropped = dropped
        return True
    if start < 0:
        note(events, state, _MISSING_START, offset, total, length, role)
        events[state.events - 1].dropped = length
        return True
    return False


@always_inlined
def gather(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take an intact fragment."""
    code = window.data[pos + _TYPE]
    role = rules.roles[code]
    if role in (_ROLE_FULL, _ROLE_FIRST):
        return _begin(window, pos, size, state, out, rules)
    if state.synced == 0:
        return TAKEN
    offset = np.int64(window.base + pos)
    header = rules.headers[code]
    length = np.int64(size - header)
    _confirm_suspect(out.events, state, offset)
    if role == _ROLE_COMPRESSION:
        role = _ROLE_METADATA if offset == 0 else _ROLE_UNKNOWN
    if _take_other(offset, np.int64(size), length, np.int64(code), role, state, out.events):
        return TAKEN

    record_bytes = state.open_bytes + length
    if record_bytes > rules.longest:
        state.oversize = 1
    if rules.gather and state.oversize == 0:
        used = state.committed + state.open_bytes
        if len(out.data) - used < length:
            return NO_ROOM
        copy_bytes(out.data, np.uint64(used), window.data, pos + header, size - header)
    state.open_bytes = record_bytes
    if role == _ROLE_LAST:
        start = state.open
        stop = offset + np.int64(size)
        state.open = -1
        if state.oversize != 0:
            note(out.events, state, _RECORD_TOO_LARGE, start, stop - start, record_bytes, rules.longest)
        else:
            state.committed += record_bytes
            _take_record(state, out, start, stop)
    return TAKEN


@kernel
def read_fragments(window: Window, state: Annotated[Any, Record(STATE)], out: Out, rules: Rules) -> Int64:
    """Read fragments from a window and assemble records: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`."""
    return walk_chain(run, judge, gather, on_damage, window, state, out, rules)


@kernel
def judge_fragment(window: Window, state: Annotated[Any, Record(STATE)], rules: Rules) -> UInt64:
    """Judge the fragment at `state.position`: the bytes of a good one, else 0."""
    verdict, size = judge(window, np.uint64(state.position) - window.base, state, rules)
    return size if verdict == GOOD else _ZERO


@kernel
def write_fragments(
    data: Bytes, offsets: Int32s, header: UInt64, log: UInt64, state: Annotated[Any, Record(ENCODER)], out: OutBytes
) -> Int64:
    """Encode records as fragments, until all are done or `out` has no room for another block.

    Args:
        data: uint8, payloads.
        offsets: int32, record i is `data[offsets[i] : offsets[i + 1]]`.
        header: uint64, header size: of legacy fragments, or of RocksDB's recyclable ones.
        log: uint64, log number for recyclable headers.
        state: A record of `ENCODER`, updated.
        out: uint8, at least two blocks.

    Returns:
        WRITTEN or NO_ROOM.
    """
    recyclable = header > _HEADER
    records = len(offsets) - 1
    room = np.uint64(len(out))
    used = np.uint64(state.used)
    in_block = np.uint64(state.in_block)
    record = state.record
    done = state.done
    while record < records and room - used >= _BLOCK + _BLOCK:
        room_in_block = _BLOCK - in_block
        if room_in_block < header:
            for i in range(room_in_block):
                out[used + np.uint64(i)] = 0
            used += room_in_block
            in_block = _ZERO
            room_in_block = _BLOCK
        first = done < 0
        start = np.uint64(offsets[record]) + (_ZERO if first else np.uint64(done))
        prefetch(data, start + _AHEAD)
        prefetch(data, start + _AHEAD + _LINE)
        remaining = np.uint64(offsets[record + 1]) - start
        length = min(remaining, room_in_block - header)
        last = length == remaining
        code = _MIDDLE
        if first:
            code = _FULL if last else _FIRST
        elif last:
            code = _LAST
        if recyclable:
            code += _RECYCLABLE_TYPES
            _store_log_number(out, used, log)
        _store_length(out, used, length)
        out[used + _TYPE] = code
        copy_bytes(out, used + header, data, start, length)
        # Reading the payload where it came from does not wait for the copy.
        crc = crc32c_extend(crc32c(out, used + _TYPE, header - _TYPE), data, start, length)
        _store_checksum(out, used, mask_crc(crc))
        used += header + length
        in_block += header + length
        if last:
            record += 1
            done = -1
        else:
            done = np.int64(length) + (0 if first else done)
    state.record = record
    state.done = done
    state.in_block = in_block
    state.used = used
    return WRITTEN if record == records else NO_ROOM


@kernel
def _compute_masked_checksum(buffer: Bytes) -> UInt64:
    return compute_masked_crc(buffer, _ZERO, np.uint64(len(buffer)))


def compute_masked_checksum(data: bytes) -> int:
    """Return the stored form of the CRC-32C of some bytes."""
    return int(_compute_masked_checksum(np.frombuffer(data, np.uint8)))


def make_judge_state(position: int = 0) -> Any:
    """Return a state for judging single fragments."""
    return make_state(STATE, position=position, synced=1, open=-1, suspect=-1)


def make_judge(head: bytes, dialect: layout.Dialect) -> tuple[Callable[[], int], Any]:
    """Return `judge_fragment` of the beginning of a file, and the state whose position it looks at."""
    rules, state = make_rules(dialect, gather=False, longest=0), make_judge_state()
    return partial(judge_fragment, make_head_window(head, len(head)), state, rules), state


@cache
def _make_type_tables(dialect: layout.Dialect) -> tuple[Any, Any]:
    roles = np.zeros(256, np.uint8)
    headers = np.full(256, layout.HEADER_SIZE, np.uint64)
    for code, fragment_type in layout.TYPES[dialect].items():
        roles[code] = fragment_type.role
        headers[code] = fragment_type.header_size
    return roles, headers


@lru_cache(64)
def make_rules(
    dialect: layout.Dialect,
    *,
    log: int = -1,
    recycled: bool = False,
    verify: bool = True,
    gather: bool,
    longest: int,
    resync: bool = False,
) -> Rules:
    """Return the rules for reading fragments of a dialect."""
    roles, headers = _make_type_tables(dialect)
    longer = headers.max() if recycled else _ZERO
    return Rules(roles, headers, np.int64(log), longer, verify, gather, np.int64(longest), resync)
