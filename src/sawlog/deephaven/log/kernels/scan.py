"""Walking the chain of entries without decoding rows: for cuts, and to list them."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import DONE, EVENT, TAKEN, Window, make_record_type, note_damage, walk_chain
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.kernels.digest import SUMMED
from sawlog.deephaven.log.kernels.judge import STATE, Rules, is_delete, judge, read_flags
from sawlog.deephaven.log.layout import BinaryLogDamageKind
from sawlog.kernels.adler32 import LEAD, adler32_before
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import load_big_u32, prefetch
from sawlog.kernels.numbers import _ONE, _ZERO
from sawlog.kernels.signature import Array, Bool, Bytes, Int64, Record
from sawlog.kernels.vector import PLACES, pairs

ENTRY = make_record_type(
    "offset",
    "length",  # bytes of the whole entry
    "role",  # the flags
    "mismatch",  # 1 where the digest is wrong
)
"""An entry that a walk has found."""

_AHEAD = np.uint64(4096)
"""Bytes: the next page is asked for in time, for what the CPU fetches by itself stops where a page ends."""
_SIZE = np.uint64(layout.SIZE_SIZE)
_FLAGS = np.uint64(layout.SIZE_SIZE)
_DIGEST = np.uint64(layout.DIGEST_SIZE)
_MIN = np.uint64(layout.MIN_ENTRY_SIZE)
_RECORD = np.uint64(layout.Flag.RECORD)
_START = np.uint64(layout.Flag.START)
_LEAD = np.uint64(LEAD)
_MISMATCH = int(BinaryLogDamageKind.CHECKSUM_MISMATCH)
_GOOD = np.int64(0)
_BAD = np.int64(1)
_TYPE_1, _TYPE_2 = (np.uint64(byte) for byte in layout.COMMAND_RECORD.to_bytes(2, "big"))
_ID_1, _ID_2 = (np.uint64(byte) for byte in layout.DELETE_PARTITION.to_bytes(2, "big"))
_APART = np.uint64(layout.RECORD_DATA_OFFSET - layout.RECORD_TYPE_OFFSET)
_PLACES = np.uint64(PLACES)


MARK_BYTES = int(_APART) + 2
"""Bytes that mark a DELETE_PARTITION: the lower halves of its type and of its id, and what is between them."""


class Out(NamedTuple):
    """Arrays that the entries and events of a walk are written to.

    Attributes:
        entries: Of `ENTRY`; none for a scan.
        events: See `sawlog.chain.kernels.EVENT`.
    """

    entries: Annotated[Any, Array(ENTRY, writable=True)]
    events: Annotated[Any, Array(EVENT, writable=True)]


@always_inlined
def pass_rows(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Pass over rows that need no second look, in a tight loop of their own. See `sawlog.chain`."""
    if state.lost >= 0 or len(out.entries) != 0:
        return pos
    data = window.data
    base = window.base
    end = min(window.end, np.uint64(state.target))
    stop = min(np.uint64(len(data)), end - min(base, end))
    last = stop - min(_SIZE + _MIN, stop)
    longest = rules.longest
    if rules.verify:
        longest = min(longest, SUMMED)
    while pos < last:
        prefetch(data, pos + _AHEAD)
        length = load_big_u32(data, pos)
        total = length + _SIZE
        if length > longest or length < _MIN or data[pos + _FLAGS] >= _RECORD or total > stop - pos:
            break
        if rules.verify:
            covered = total - _DIGEST
            finish = pos + covered
            if pos < _LEAD or load_big_u32(data, finish) != adler32_before(data, finish, covered):
                break
        pos += total
    return pos


@inlined
def _list(entries: Any, state: Any, position: Any, size: Any, role: Any, mismatch: Any) -> None:
    """Write an entry down."""
    entry = entries[state.rows]
    entry.offset = position
    entry.length = size
    entry.role = role
    entry.mismatch = mismatch
    state.rows += 1


@always_inlined
def gather(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """List an entry; or note where deletions end, and stop where a cut may be. See `sawlog.chain`."""
    position = np.int64(window.base + pos)
    total = np.int64(size)
    if len(out.entries) != 0:
        _list(out.entries, state, position, total, np.int64(window.data[pos + _FLAGS]), _GOOD)
        state.record_bytes += total
        return TAKEN
    flags = read_flags(window.data, pos)
    if flags & _RECORD:
        if is_delete(window.data, pos, size):
            state.last_delete = position + total
    elif position >= state.target and flags & _START:
        state.cut = position
        return DONE
    return TAKEN


@always_inlined
def on_damage(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Write damage down; and list the entry that it is, if only its digest is wrong. See `sawlog.chain`."""
    outcome = note_damage(window, start, length, state, out, rules)
    total = np.int64(length)
    if len(out.entries) != 0 and state.kind == _MISMATCH and state.suspected == total:
        _list(out.entries, state, np.int64(start), total, state.suspected_flags, _BAD)
    return outcome


@kernel
def walk_entries(window: Window, state: Annotated[Any, Record(STATE)], out: Out, rules: Rules) -> Int64:
    """List entries, or look for cuts and DELETE_PARTITION: MORE, FULL or END, see `sawlog.chain.kernels.walk_chain`.

    Without room for a list, it ends at the first entry at or past the target that begins a set. What a reader makes
    of such an entry and of all that follow does not depend on what came before, so that a fragment may begin there.
    """
    return walk_chain(pass_rows, judge, gather, on_damage, window, state, out, rules)


@kernel
def may_delete(data: Bytes) -> Bool:
    """Return whether the bytes that mark a DELETE_PARTITION are anywhere in `data` (uint8), in a command or by chance.

    Where they are not, there is no such command: to know that, no entry need be walked.
    """
    limit = np.uint64(len(data))
    position = _ZERO
    while limit - position > _PLACES + _APART:
        id_matches = pairs(data, position + _APART, _ID_1, _ID_2)
        if id_matches != _ZERO and id_matches & pairs(data, position, _TYPE_1, _TYPE_2) != _ZERO:
            return True
        position += _PLACES
    while limit - position > _APART + _ONE:
        if data[position] == _TYPE_1 and data[position + _ONE] == _TYPE_2:
            following = position + _APART
            if data[following] == _ID_1 and data[following + _ONE] == _ID_2:
                return True
        position += _ONE
    return False
