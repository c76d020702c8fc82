"""Gathering bytes into Arrow buffers."""

from __future__ import annotations

import numpy as np

from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.signature import Bytes, Int64s, OutBytes, OutInt32s


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
        copy_bytes(out, pos, data, np.uint64(starts[row]), length)
        pos += length
        ends[row + 1] = pos
