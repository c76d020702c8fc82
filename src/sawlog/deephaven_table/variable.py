"""Values of variable width: slices of binary data that end offsets describe. Section 4.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.deephaven.text import decode_text
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.plain import bitmap
from sawlog.kernels.gather import gather_slices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.storage import Bytes

MAX_VALUE = (1 << 31) - 1
"""Bytes that the values of one Arrow array may have together."""
_BEYOND_ASCII = 0x80


@dataclass(slots=True)
class Slices:
    """Values of variable width.

    Attributes:
        data: The bytes of all values, one after the other.
        ends: int32; value i is `data[ends[i] : ends[i + 1]]`, and `ends[0]` is 0.
        bad: Which values have offsets that cannot be.
    """

    data: Bytes
    ends: NDArray[np.int32]
    bad: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Bytes of every value."""
        return np.diff(self.ends)

    def binary(self, valid: NDArray[np.bool_]) -> pa.Array:
        """The values as binary."""
        buffers = [bitmap(valid), pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(valid), buffers)

    def keep(self, kept: NDArray[np.bool_]) -> Slices:
        """The values without those of their bytes that are not to be kept."""
        moved = np.zeros(len(self.data) + 1, np.int64)
        np.cumsum(kept, out=moved[1:])
        return Slices(self.data[kept], moved[self.ends].astype(np.int32), self.bad)


def check_ends(ends: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """Which values have offsets that cannot be: before their own beginning, or outside of the binary data.

    Args:
        ends: The end of the value before the first, then the ends of all values.
        size: Bytes of the binary data.
    """
    inside = (ends >= 0) & (ends <= size)
    bad: NDArray[np.bool_] = ~inside[1:] | ~inside[:-1] | (ends[1:] < ends[:-1])
    return bad


def gather(ends: NDArray[np.int64], bad: NDArray[np.bool_], data: Bytes, base: int) -> Slices:
    """The values between checked offsets. Bad ones become empty.

    Args:
        ends: As for `check_ends`.
        bad: What that found.
        data: Binary data from `base`.
        base: Where it begins.
    """
    if not bad.any():
        return Slices(data, (ends - base).astype(np.int32), bad)
    lengths = np.where(bad, 0, np.diff(ends))
    starts = np.where(bad, 0, ends[:-1] - base)
    out = np.zeros(int(lengths.sum()), np.uint8)
    moved = np.zeros(len(ends), np.int32)
    gather_slices(data, starts, lengths, out, moved)
    out.flags.writeable = False
    return Slices(out, moved, bad)


def text_array(slices: Slices, charset: str) -> tuple[pa.Array, list[int]]:
    """Strings: no byte is null, a single NUL is the empty string.

    Returns:
        Strings, and the rows in which something was replaced because it is malformed.
    """
    lengths = slices.lengths
    valid = lengths > 0
    single = np.flatnonzero(lengths == len(layout.EMPTY_STRING))
    empty = slices.ends[:-1][single]
    empty = empty[slices.data[empty] == layout.EMPTY_STRING[0]]
    if len(empty):
        kept = np.ones(len(slices.data), np.bool_)
        kept[empty] = False
        slices = slices.keep(kept)
    ascii = bool(slices.data.max(initial=0) < _BEYOND_ASCII)
    return decode_text(slices.binary(valid), charset, ascii=ascii)
