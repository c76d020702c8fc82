"""Taking the rows that are left out of stored columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array
from sawlog.milvus_binlog import delete_kernels as kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def take_kept(columns: Mapping[str, pa.Array], keep: NDArray[np.uint8], left: int) -> dict[str, pa.Array]:
    """The kept rows of columns that were just decoded, and that nobody else holds.

    Args:
        columns: As they are stored.
        keep: 1 for every row to keep, 0 for the others.
        left: How many are kept.
    """
    mask = fixed_array(pa.uint8(), keep).cast(pa.bool_())
    return {
        name: _close_up(column, keep, left) if _closes_up(column) else column.filter(mask)
        for name, column in columns.items()
    }


def _closes_up(column: pa.Array) -> bool:
    """Whether a column is one of vectors in memory that may be changed."""
    if not pa.types.is_fixed_size_binary(column.type) or column.null_count or not len(column):
        return False
    return bool(column.buffers()[1].is_mutable)


def _close_up(column: pa.Array, keep: NDArray[np.uint8], left: int) -> pa.Array:
    """Move the kept vectors to the front, in the memory where they lie, which is cheaper than a copy."""
    width = column.type.byte_width
    slots = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    kernels.close_up(slots, keep, np.uint64(width))
    return column.slice(0, left)
