"""Copies of short byte strings, and checks of text: what strings and maps share."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u64, store_u64

SLACK = 8
"""Bytes that a target must have behind what is copied to it."""

_SLACK = np.uint64(SLACK)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_HIGH_BITS = np.uint64(0x8080808080808080)


@inlined
def copy_short(target: Any, at: Any, source: Any, start: Any, length: Any, limit: Any) -> None:
    """Copy a short string in steps of eight bytes: the last one writes beyond it, into the slack.

    `limit` is the length of the source.
    """
    if limit - start < length + _SLACK:
        copy_bytes(target, at, source, start, length)
        return
    done = _ZERO
    while done < length:
        store_u64(target, at + done, load_u64(source, start + done))
        done += _SLACK


@kernel
def gather_strings(window: Any, positions: Any, lengths: Any, ends: Any, data: Any) -> None:
    """Copy the payloads at `positions` to `data`, which has room for them and SLACK; `ends[0]` is 0."""
    limit = np.uint64(len(window))
    used = _ZERO
    for row in range(len(positions)):
        length = np.uint64(lengths[row])
        copy_short(data, used, window, positions[row], length, limit)
        used += length
        ends[row + 1] = used


@kernel
def all_ascii(data: Any, length: Any) -> Any:
    """Whether none of the first `length` bytes is above 127."""
    seen = _ZERO
    at = _ZERO
    while length - at >= np.uint64(8):
        seen |= load_u64(data, at)
        at += np.uint64(8)
    while at < length:
        seen |= np.uint64(data[at])
        at += _ONE
    return seen & _HIGH_BITS == _ZERO


@inlined
def _continues(data: Any, at: Any, count: Any, end: Any) -> Any:
    """Whether `count` continuation bytes stand at `at`."""
    good = end - at >= count
    for i in range(count):
        good = good and data[at + i] >> 6 == 2
    return good


@inlined
def _invalid_from(data: Any, at: Any, end: Any) -> Any:
    """The first position in `data[at:end]` at which it is no UTF-8; -1 when it is."""
    while at < end:
        byte = data[at]
        if byte < 0x80:
            at += 1
        elif 0xC2 <= byte < 0xE0:
            if not _continues(data, at + 1, 1, end):
                return at
            at += 2
        elif 0xE0 <= byte < 0xF0:
            if not _continues(data, at + 1, 2, end):
                return at
            second = data[at + 1]
            if (byte == 0xE0 and second < 0xA0) or (byte == 0xED and second >= 0xA0):
                return at
            at += 3
        elif 0xF0 <= byte < 0xF5:
            if not _continues(data, at + 1, 3, end):
                return at
            second = data[at + 1]
            if (byte == 0xF0 and second < 0x90) or (byte == 0xF4 and second >= 0x90):
                return at
            at += 4
        else:
            return at
    return -1


@kernel
def check_text(data: Any, ends: Any, groups: Any, kind: Any, bad: Any, where: Any) -> None:
    """Mark the rows that hold text which is not UTF-8.

    Args:
        data: uint8, text back to back.
        ends: int32, text i is `data[ends[i] : ends[i + 1]]`.
        groups: int32, row i holds the texts `groups[i]` to `groups[i + 1]`.
        kind: What `bad` is set to.
        bad: uint8 per row; rows that are marked already are left alone.
        where: int64 per row: the position within the text.
    """
    for row in range(len(bad)):
        if bad[row] != 0:
            continue
        for text in range(groups[row], groups[row + 1]):
            at = _invalid_from(data, np.int64(ends[text]), np.int64(ends[text + 1]))
            if at >= 0:
                bad[row] = kind
                where[row] = at - ends[text]
                break
