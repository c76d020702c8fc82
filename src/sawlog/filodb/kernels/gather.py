"""Functions that strings and maps share: where they are, and the check of their text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, Int32s, Int64, OutBytes, OutInt32s, OutInt64s, OutUInt32s, OutUInt64s
from sawlog.kernels.text import exceeds_ascii, find_utf8_end


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


class PayloadErrors(NamedTuple):
    """Marks of payloads that are damaged.

    Attributes:
        kinds: uint8 per row, a `ContainerDamageKind`, or 0; rows that are marked already are left alone.
        where: int64 per row: what explains it.
    """

    kinds: OutBytes
    where: OutInt64s


@kernel
def check_text(texts: Texts, groups: Int32s, kind: Int64, bad: PayloadErrors) -> None:
    """Mark the rows that hold text which is not UTF-8.

    Args:
        texts: `Texts`.
        groups: int32, row i holds the texts `groups[i]` to `groups[i + 1]`.
        kind: What rows are marked with.
        bad: `PayloadErrors`: what explains it is the position within the text.
    """
    for row in range(len(bad.kinds)):
        if bad.kinds[row] != 0:
            continue
        for text in range(groups[row], groups[row + 1]):
            start, end = np.uint64(texts.ends[text]), np.uint64(texts.ends[text + 1])
            valid = find_utf8_end(texts.data, start, end)
            if valid < end:
                bad.kinds[row] = kind
                bad.where[row] = valid - start
                break


@kernel
def judge_texts(payloads: Payloads, kind: Int64, bad: PayloadErrors) -> None:
    """Mark the rows whose payload is not UTF-8 with `kind`, and note the position within the text; copy nothing."""
    for row in range(len(payloads.positions)):
        start = payloads.positions[row]
        end = start + np.uint64(payloads.lengths[row])
        if exceeds_ascii(payloads.data, start, end):
            valid = find_utf8_end(payloads.data, start, end)
            if valid < end:
                bad.kinds[row] = kind
                bad.where[row] = valid - start
