"""Copies of short byte strings, and checks of text: what strings and maps share."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import utf8_length
from sawlog.kernels.memory import copy_bytes, load_u64, store_u64
from sawlog.kernels.signature import (
    WRITABLE,
    Bytes,
    Int32s,
    Int64,
    OutBytes,
    OutInt32s,
    OutInt64s,
    OutUInt32s,
    OutUInt64s,
)

SLACK = 8
"""Bytes that a target must have after what is copied to it."""


class Texts(NamedTuple):
    """Strings back to back.

    Attributes:
        data: uint8.
        ends: String i is `data[ends[i] : ends[i + 1]]`.
    """

    data: Bytes
    ends: Int32s


class Labels(NamedTuple):
    """Maps of rows.

    Attributes:
        ends: int32, row i has the entries `ends[i]` to `ends[i + 1]`.
        keys: `Texts`.
        values: `Texts`.
    """

    ends: Int32s
    keys: Texts
    values: Texts


class TextRoom(NamedTuple):
    """Room for strings.

    Attributes:
        data: Their bytes.
        ends: The bytes of their ends, int32.
    """

    data: OutBytes
    ends: OutBytes


class LabelRoom(NamedTuple):
    """Room for maps of rows, as those of `Labels`."""

    ends: OutInt32s
    keys: TextRoom
    values: TextRoom


class Payloads(NamedTuple):
    """The payloads of a column.

    Attributes:
        data: uint8.
        positions: uint64 per row; a length of 0 at position 0 is no value.
        lengths: uint32 per row.
    """

    data: Bytes
    positions: OutUInt64s
    lengths: OutUInt32s


class Bad(NamedTuple):
    """What is wrong with payloads.

    Attributes:
        kinds: uint8 per row, a `Kind`, or 0; rows that are marked already are left alone.
        where: int64 per row: what explains it.
    """

    kinds: OutBytes
    where: OutInt64s


_SLACK = np.uint64(SLACK)
_EIGHT = np.uint64(8)
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
def gather_strings(payloads: Payloads, into: Annotated[Texts, WRITABLE]) -> None:
    """Copy `Payloads` to `Texts`, whose data has room for them and SLACK; its first end is 0."""
    data = payloads.data
    limit = np.uint64(len(data))
    used = _ZERO
    for row in range(len(payloads.positions)):
        length = np.uint64(payloads.lengths[row])
        copy_short(into.data, used, data, payloads.positions[row], length, limit)
        used += length
        into.ends[row + 1] = used


@inlined
def beyond_ascii(data: Any, at: Any, length: Any) -> Any:
    """Whether any of `length` bytes is above 127."""
    seen = _ZERO
    end = at + length
    while end - at >= _EIGHT:
        seen |= load_u64(data, at)
        at += _EIGHT
    while at < end:
        seen |= np.uint64(data[at])
        at += _ONE
    return seen & _HIGH_BITS != _ZERO


@inlined
def _valid_to(data: Any, at: Any, end: Any) -> Any:
    """The first position in `data[at:end]` at which it is no UTF-8; the end when it is."""
    length = _ONE
    while at < end and length != _ZERO:
        length = _ONE if data[at] < 128 else utf8_length(data, at, end)
        at += length
    return at


@kernel
def check_text(texts: Texts, groups: Int32s, kind: Int64, bad: Bad) -> None:
    """Mark the rows that hold text which is not UTF-8.

    Args:
        texts: `Texts`.
        groups: int32, row i holds the texts `groups[i]` to `groups[i + 1]`.
        kind: What rows are marked with.
        bad: `Bad`: what explains it is the position within the text.
    """
    for row in range(len(bad.kinds)):
        if bad.kinds[row] != 0:
            continue
        for text in range(groups[row], groups[row + 1]):
            start, end = np.uint64(texts.ends[text]), np.uint64(texts.ends[text + 1])
            valid = _valid_to(texts.data, start, end) - start
            if valid < end - start:
                bad.kinds[row] = kind
                bad.where[row] = valid
                break
