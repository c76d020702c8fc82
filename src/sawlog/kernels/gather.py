"""Gathering bytes into Arrow buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sawlog.arrow import Column
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, Int64s, OutBytes, OutInt32s
from sawlog.kernels.vector import copy_short

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@kernel
def gather_slices(data: Bytes, starts: Int64s, lengths: Int64s, out: OutBytes, ends: OutInt32s) -> None:
    """Copy slices one after the other.

    Args:
        data: uint8.
        starts: int64, slice i is `data[starts[i] : starts[i] + lengths[i]]`; it has been checked.
        lengths: int64.
        out: uint8, with room for all.
        ends: int32, `ends[i + 1]` is the end of slice i in `out`; `ends[0]` is 0.
    """
    pos = np.uint64(0)
    for row in range(len(starts)):
        length = np.uint64(lengths[row])
        copy_short(out, pos, data, np.uint64(starts[row]), length)
        pos += length
        ends[row + 1] = pos


def gathered(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[pa.Buffer, pa.Buffer]:
    """Ends and bytes of `data[start : start + length]`, one after the other, which have been checked."""
    out, ends = Column(np.uint8, int(lengths.sum())), Column(np.int32, len(starts) + 1)
    ends.values[0] = 0
    gather_slices(data, starts, lengths, out.values, ends.values)
    return ends.take(len(starts) + 1), out.take(int(ends.values[-1]))
