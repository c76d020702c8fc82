"""Deletes: reading the JSON of delta logs, looking keys up, and moving the vectors that are left together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.kernels.intern import AHEAD, Interned, Strings, find, find_place, is_same_string, mix_bits
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, prefetch
from sawlog.kernels.numbers import _ONE, _SIX, _TEN, _THREE, _TWO, _ZERO
from sawlog.kernels.signature import Bytes, Int64, Int64s, OutBytes, OutInt64s, OutUInt64s, UInt64, UInt64s
from sawlog.kernels.text import make_text


class Table(NamedTuple):
    """A hash table of int64 keys, and when each was deleted last.

    Attributes:
        salt: uint64 unknown to the author of the keys, so that they cannot be made to collide.
        slots: int64, -1 everywhere at first; its length is a power of two, at least four times the number of keys.
            Pairs: the key itself, and when it was deleted.
        lines: The bytes of the slots, to have them ready in time.
        marks: uint64, zeros at first, its length a power of two: a bit for each key, by its hash.
    """

    salt: UInt64
    slots: OutInt64s
    lines: Bytes
    marks: OutUInt64s


_LOW6 = np.uint64(63)
_FAIL = np.uint64(0xFFFFFFFFFFFFFFFF)
_MOST = np.uint64(0x7FFFFFFFFFFFFFFF)
_LAST_TENTH = np.uint64(0x7FFFFFFFFFFFFFFF // 10)
_QUOTE = np.uint8(ord('"'))
_BACKSLASH = np.uint8(ord("\\"))
_MINUS = np.uint8(ord("-"))
_NOUGHT = np.uint8(ord("0"))
_NINE = np.uint8(ord("9"))
_SPACE = np.uint8(ord(" "))

_KEY = make_text(b'{"pk":')
_TIME = make_text(b',"ts":')
_NUMBER = make_text(b',"pkType":5}')
_TEXT = make_text(b',"pkType":21}')
"""What surrounds key and time in the cells that Milvus writes."""


@inlined
def _expect(data: Any, pos: Any, end: Any, text: Any) -> Any:
    """Return the position after `text` in `data[pos:end]`; `_FAIL` when something else is there."""
    if pos == _FAIL or end - pos < np.uint64(len(text)):
        return _FAIL
    for i in range(len(text)):
        if data[pos + np.uint64(i)] != text[i]:
            return _FAIL
    return pos + np.uint64(len(text))


@inlined
def _parse_decimal(data: Any, pos: Any, end: Any) -> Any:
    """Return the number in decimal digits, up to 2**63 - 1, and the position after them; `_FAIL` for anything else."""
    value = _ZERO
    start = pos
    while pos < end:
        if data[pos] < _NOUGHT or data[pos] > _NINE:
            break
        digit = np.uint64(data[pos] - _NOUGHT)
        if value > _LAST_TENTH or (pos > start and value == _ZERO):
            return value, _FAIL
        value = value * _TEN + digit
        if value > _MOST:
            return value, _FAIL
        pos += _ONE
    return value, (_FAIL if pos == start else pos)


@kernel
def parse_number_cells(data: Bytes, offsets: Int64s, keys: OutInt64s, stamps: OutInt64s) -> Int64:
    """Read deletes of int64 keys, the cells `{"pk":1,"ts":2,"pkType":5}`.

    Args:
        data: The bytes of all cells.
        offsets: int64; cell i is `data[offsets[i] : offsets[i + 1]]`. Checked by the caller to ascend within `data`.
        keys: int64; receives the keys.
        stamps: int64; receives when they were deleted.

    Returns:
        How many cells were read, up to the first of another form.
    """
    for row in range(len(keys)):
        end = np.uint64(offsets[row + 1])
        pos = _expect(data, np.uint64(offsets[row]), end, _KEY)
        if pos in (_FAIL, end):
            return row
        negative = data[pos] == _MINUS
        key, pos = _parse_decimal(data, pos + _ONE if negative else pos, end)
        pos = _expect(data, pos, end, _TIME)
        if pos == _FAIL:
            return row
        stamp, pos = _parse_decimal(data, pos, end)
        if _expect(data, pos, end, _NUMBER) != end:
            return row
        keys[row] = -np.int64(key) if negative else np.int64(key)
        stamps[row] = np.int64(stamp)
    return len(keys)


@kernel
def parse_text_cells(data: Bytes, offsets: Int64s, starts: OutInt64s, lengths: OutInt64s, stamps: OutInt64s) -> Int64:
    """Read deletes of varchar keys, the cells `{"pk":"a","ts":2,"pkType":21}`, as long as no key is escaped.

    Args:
        data: The bytes of all cells.
        offsets: int64; cell i is `data[offsets[i] : offsets[i + 1]]`. Checked by the caller to ascend within `data`.
        starts: int64; receives where the keys begin.
        lengths: int64; receives how long they are.
        stamps: int64; receives when they were deleted.

    Returns:
        How many cells were read, up to the first of another form.
    """
    for row in range(len(starts)):
        end = np.uint64(offsets[row + 1])
        pos = _expect(data, np.uint64(offsets[row]), end, _KEY)
        if pos in (_FAIL, end) or data[pos] != _QUOTE:
            return row
        start = pos + _ONE
        pos = start
        while pos < end and data[pos] != _QUOTE:
            if data[pos] == _BACKSLASH or data[pos] < _SPACE:
                return row
            pos += _ONE
        if pos == end:
            return row
        starts[row] = start
        lengths[row] = pos - start
        pos = _expect(data, pos + _ONE, end, _TIME)
        if pos == _FAIL:
            return row
        stamp, pos = _parse_decimal(data, pos, end)
        if _expect(data, pos, end, _TEXT) != end:
            return row
        stamps[row] = np.int64(stamp)
    return len(starts)


_AHEAD = 12
"""Lookups whose place in the table is fetched before they are made."""


@inlined
def _mark(marks: Any, hashed: Any) -> None:
    """Set the bit of a hash."""
    bit = hashed & np.uint64((len(marks) << 6) - 1)
    marks[bit >> _SIX] |= _ONE << (bit & _LOW6)


@inlined
def _read_mark(marks: Any, hashed: Any) -> Any:
    """Return the bit of a hash."""
    bit = hashed & np.uint64((len(marks) << 6) - 1)
    return marks[bit >> _SIX] >> (bit & _LOW6) & _ONE


@inlined
def _find_slot(key: Any, hashed: Any, table: Any) -> Any:
    """Return the slot that a key has in the table, or would take, as the place of its first number."""
    mask = np.uint64(len(table) - 1)
    slot = hashed << _ONE & mask
    while table[slot + _ONE] >= 0 and table[slot] != key:
        slot = slot + _TWO & mask
    return slot


@kernel
def add_numbers(keys: Int64s, stamps: Int64s, table: Table) -> Int64:
    """Note the newest delete of int64 keys.

    Args:
        keys: int64.
        stamps: int64, none of them negative.
        table: A `Table` with room for all of them.

    Returns:
        How many of them are new to it.
    """
    slots = table.slots
    fresh: Any = 0
    for i in range(len(keys)):
        hashed = mix_bits(np.uint64(keys[i]) ^ table.salt)
        _mark(table.marks, hashed)
        slot = _find_slot(keys[i], hashed, slots)
        fresh += np.int64(slots[slot + _ONE] < 0)
        slots[slot] = keys[i]
        slots[slot + _ONE] = max(slots[slot + _ONE], stamps[i])
    return fresh


@kernel
def mark_numbers(keys: Int64s, stamps: Int64s, table: Table, suspects: OutInt64s, keep: OutBytes) -> Int64:
    """Mark the rows that no later delete hits, and count them: a delete hits rows strictly older than itself.

    Most rows are not deleted: the small table of bits shows that without a branch; only the others are looked up.

    Args:
        keys: int64, primary keys.
        stamps: int64, when the rows were inserted.
        table: As filled by `add_numbers`.
        suspects: int64, scratch space for as many rows.
        keep: uint8; receives 1 for every row that survives, 0 for the others.
    """
    slots = table.slots
    marks = table.marks
    salt = table.salt
    marked: Any = 0
    for i in range(len(keys)):
        keep[i] = 1
        suspects[marked] = i
        marked += np.int64(_read_mark(marks, mix_bits(np.uint64(keys[i]) ^ salt)))
    mask = np.uint64(len(slots) - 1)
    kept_rows = len(keys)
    for index in range(marked):
        if index + _AHEAD < marked:
            later = mix_bits(np.uint64(keys[suspects[index + _AHEAD]]) ^ salt)
            prefetch(table.lines, (later << _ONE & mask) << _THREE)
        row = suspects[index]
        slot = _find_slot(keys[row], mix_bits(np.uint64(keys[row]) ^ salt), slots)
        if slots[slot + _ONE] > stamps[row]:
            keep[row] = 0
            kept_rows -= 1
    return kept_rows


@kernel
def mark_texts(
    texts: Strings, hashes: UInt64s, stamps: Int64s, keys: Interned, newest: Int64s, keep: OutBytes
) -> Int64:
    """Mark the rows that no later delete hits, and count them, as `mark_numbers` does.

    Args:
        texts: `Strings`, the rows' primary keys.
        hashes: uint64, of each.
        stamps: int64, when the rows were inserted.
        keys: Those that are deleted.
        newest: int64, when each of these was deleted last.
        keep: uint8; receives 1 for every row that survives, 0 for the others.
    """
    kept_rows = len(stamps)
    for i in range(len(stamps)):
        if i + AHEAD < len(stamps):
            prefetch(keys.slots, find_place(keys.slots, hashes[i + AHEAD]))
        start = np.uint64(texts.ends[i])
        sought = texts.data, start, np.uint64(texts.ends[i + 1]) - start
        number, _ = find(is_same_string, keys.strings, sought, keys.slots, hashes[i], len(keys.slots))
        deleted = number >= 0 and newest[number] > stamps[i]
        keep[i] = not deleted
        kept_rows -= deleted
    return kept_rows


@kernel
def keep_slots(data: OutBytes, keep: Bytes, width: UInt64) -> None:
    """Move the slots to keep to the front, in order.

    Args:
        data: uint8, adjacent slots, as many as in `keep`.
        keep: uint8, 1 for every slot to keep, 0 for the others.
        width: uint64, bytes per slot.
    """
    cursor = _ZERO
    pos = _ZERO
    for row in range(len(keep)):
        if keep[row]:
            if pos > cursor:  # by a slot or more: they do not overlap
                copy_bytes(data, cursor, data, pos, width)
            cursor += width
        pos += width
