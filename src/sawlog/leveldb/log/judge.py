"""Judging fragments: the one place where it is decided what is at a place, and whether it is whole.

Section 2 of the format; sections 8 and 9 for the dialects.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import DAMAGED, ENDED, GOOD, PADDING, SHORT, SKIPPED, TORN, blame
from sawlog.chain.layout import loader
from sawlog.kernels.crc32c import crc32c
from sawlog.kernels.jit import always_inlined, inlined
from sawlog.kernels.signature import Bool, Bytes, Int64, UInt64, UInt64s
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.layout import Kind, Role


class Rules(NamedTuple):
    """How fragments are read.

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


_BLOCK = np.uint64(layout.BLOCK_SIZE)
_IN_BLOCK = np.uint64(layout.BLOCK_SIZE - 1)
_HEADER = np.uint64(layout.HEADER_SIZE)
_TYPE = np.uint64(layout.TYPE.offset)
_MASK_DELTA = np.uint64(layout.MASK_DELTA)
_ROTATE_RIGHT = np.uint64(layout.MASK_ROTATION)
_ROTATE_LEFT = np.uint64(32 - layout.MASK_ROTATION)
_U32 = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)
_load_checksum = loader(layout.CHECKSUM)
_load_length = loader(layout.LENGTH)
_load_log_number = loader(layout.LOG_NUMBER)

_ROLE_FULL = int(Role.FULL)
_ROLE_LAST = int(Role.LAST)
_BAD_LENGTH = int(Kind.BAD_LENGTH)
_CHECKSUM_MISMATCH = int(Kind.CHECKSUM_MISMATCH)
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
def _all_zero(data: Any, pos: Any, length: Any) -> Any:
    used = np.uint64(0)
    for i in range(length):
        used |= np.uint64(data[pos + np.uint64(i)])
    return used == _ZERO


@always_inlined
def left_in_block(window: Any, at: Any) -> Any:
    """Bytes from file offset `at` to the end of its block, or of the file."""
    return min(_BLOCK - (at & _IN_BLOCK), window.size - at)


@inlined
def _cut_off(window: Any, pos: Any, left: Any, header: Any, state: Any, rules: Any) -> Any:
    """Whether a fragment that the end of the file cuts off is this log's own, and not left over from an earlier one."""
    if (window.base + pos & _IN_BLOCK) + left == _BLOCK:
        return False
    if rules.recycled == 0:
        return True
    if state.suspect >= 0 or header == _HEADER:
        return False
    return left < header or rules.log < 0 or _load_log_number(window.data, pos) == np.uint64(rules.log)


@inlined
def _proven(data: Any, pos: Any, left: Any, rules: Any) -> Any:
    """Bytes of the fragment of this log, part of a record, that a checksum proves to stand at `pos`; 0 for none.

    It ends within `left` bytes.
    """
    if left < _HEADER:
        return _ZERO
    code = data[pos + _TYPE]
    header = rules.headers[code]
    total = header + _load_length(data, pos)
    if not _ROLE_FULL <= rules.roles[code] <= _ROLE_LAST or total > left:
        return _ZERO
    if header > _HEADER:
        if rules.log >= 0 and _load_log_number(data, pos) != np.uint64(rules.log):
            return _ZERO
    elif rules.recycled != _ZERO:
        return _ZERO
    return total if _load_checksum(data, pos) == masked_crc(data, pos + _TYPE, total - _TYPE) else _ZERO


@inlined
def _lost(data: Any, pos: Any, left: Any, rules: Any) -> Any:
    """How many bytes are lost with what is damaged at `pos`: the rest of its block, unless fragments are looked for.

    A header that could be one is believed: what looks like fragments in the payload that it announces is payload.
    """
    if not rules.resync:
        return left
    code = data[pos + _TYPE]
    total = rules.headers[code] + _load_length(data, pos)
    if _ROLE_FULL <= rules.roles[code] <= _ROLE_LAST and total <= left:
        return total if left - total >= _HEADER else left
    for step in range(np.uint64(1), left):
        if _proven(data, pos + step, left - step, rules) != _ZERO:
            return step
    return left


@always_inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """What is at a position, in the order in which RocksDB asks. See `sawlog.chain`."""
    data = window.data
    at = window.base + pos
    if at >= window.size or (at >= window.end and state.synced == 0):
        return ENDED, _ZERO
    left = left_in_block(window, at)
    if np.uint64(len(data)) - pos < left:
        return SHORT, left
    if left < _HEADER:
        if (at & _IN_BLOCK) + left != _BLOCK and not (state.zeros >= 0 and _all_zero(data, pos, left)):
            return TORN, left
        # Between the pieces of a record, the unused end of a block belongs to the record.
        owned = state.synced != 0 and state.open < 0 and state.suspect < 0
        return (PADDING if owned else SKIPPED), left
    length = _load_length(data, pos)
    code = data[pos + _TYPE]
    header = rules.headers[code]
    total = header + length
    if total > left and _cut_off(window, pos, left, header, state, rules):
        return TORN, left
    if code == 0 and length == _ZERO:
        blame(state, _UNUSED_SPACE, 0, 0)
        return DAMAGED, _lost(data, pos, left, rules)
    if total > left:
        blame(state, _BAD_LENGTH, length, 0)
        return DAMAGED, _lost(data, pos, left, rules)
    if header > _HEADER:
        number = _load_log_number(data, pos)
        if rules.log >= 0 and number != np.uint64(rules.log):
            blame(state, _FOREIGN_FRAGMENT, number, rules.log)
            return DAMAGED, _lost(data, pos, left, rules)
    elif rules.recycled != _ZERO and _ROLE_FULL <= rules.roles[code] <= _ROLE_LAST:
        blame(state, _FOREIGN_FRAGMENT, 0, rules.log)
        return DAMAGED, _lost(data, pos, left, rules)
    if rules.verify:
        stored = _load_checksum(data, pos)
        expected = masked_crc(data, pos + _TYPE, total - _TYPE)
        if stored != expected:
            blame(state, _CHECKSUM_MISMATCH, expected, stored)
            return DAMAGED, _lost(data, pos, left, rules)
    return GOOD, total


@cache
def _types(dialect: layout.Dialect) -> tuple[Any, Any]:
    roles = np.zeros(256, np.uint8)
    headers = np.full(256, layout.HEADER_SIZE, np.uint64)
    for code, known in layout.TYPES[dialect].items():
        roles[code] = known.role
        headers[code] = known.header_size
    return roles, headers


def rules_of(
    dialect: layout.Dialect,
    *,
    log: int = -1,
    recycled: bool = False,
    verify: bool = True,
    gather: bool,
    longest: int,
    resync: bool = False,
) -> Rules:
    """The rules for reading fragments of a dialect."""
    roles, headers = _types(dialect)
    longer = headers.max() if recycled else _ZERO
    return Rules(roles, headers, np.int64(log), longer, verify, gather, np.int64(longest), resync)
