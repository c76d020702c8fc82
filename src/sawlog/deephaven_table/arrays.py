"""Java-serialized arrays of primitives, and sets of symbols, as Arrow lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array
from sawlog.deephaven.types import ARRAYS, FIXED, ColumnType, element_type
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.plain import bitmap, plain_array, words

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from sawlog.deephaven_table.variable import Slices

_HEAD = layout.ARRAY_PREFIX_SIZE + layout.ARRAY_LENGTH_SIZE


def array_lists(kind: ColumnType, slices: Slices, target: pa.DataType, *, sentinels: bool) -> tuple[pa.Array, Any]:
    """Serialized arrays as lists.

    Returns:
        The lists, and which values (bool array) are no such arrays: they are null.
    """
    element = element_type(kind)
    width = FIXED[element].width
    lengths = slices.lengths
    starts = slices.ends[:-1].astype(np.int64)
    prefix = np.frombuffer(layout.array_prefix(ARRAYS[kind].descriptor), np.uint8)
    long_enough = np.flatnonzero(lengths >= _HEAD)
    heads = slices.data[starts[long_enough, None] + np.arange(_HEAD)]
    counts = words(np.ascontiguousarray(heads[:, layout.ARRAY_PREFIX_SIZE :]).ravel(), 4, little=False).astype(np.int64)
    fitting = (heads[:, : layout.ARRAY_PREFIX_SIZE] == prefix).all(axis=1)
    fitting &= _HEAD + counts * width == lengths[long_enough]
    chosen = long_enough[fitting]
    good = np.zeros(len(lengths), np.bool_)
    good[chosen] = True
    bad = (lengths > 0) & ~good & ~_null_streams(slices, starts, lengths)
    kept = np.repeat(good, lengths)
    heads_at = (starts[chosen, None] + np.arange(_HEAD)).ravel()
    kept[heads_at] = False
    elements = slices.keep(kept)
    payload = np.ascontiguousarray(elements.data)
    if kind is ColumnType.BOOLEANS:
        bits = pa.py_buffer(np.packbits(payload != 0, bitorder="little"))
        values = pa.Array.from_buffers(pa.bool_(), len(payload), [None, bits])
    else:
        values = plain_array(element, words(payload, width, little=False), target.value_type, sentinels=sentinels)
    ends = pa.py_buffer((elements.ends // width).astype(np.int32))
    return pa.Array.from_buffers(target, len(lengths), [bitmap(good), ends], children=[values]), bad


def _null_streams(slices: Slices, starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which values are a serialized null."""
    found = np.zeros(len(lengths), np.bool_)
    size = len(layout.JAVA_NULL)
    rows = np.flatnonzero(lengths == size)
    null = np.frombuffer(layout.JAVA_NULL, np.uint8)
    found[rows] = (slices.data[starts[rows, None] + np.arange(size)] == null).all(axis=1)
    return found


def symbol_sets(masks: NDArray[np.uint64], symbols: pa.Array, target: pa.DataType) -> tuple[pa.Array, Any]:
    """Masks over a symbol table as lists of strings.

    Returns:
        The lists, and which values (bool array) have bits without a symbol: they are null.
    """
    null = np.uint64(FIXED[ColumnType.STRING_SET].null)
    valid = masks != null
    known = min(len(symbols), layout.MAX_SYMBOLS_IN_SET)
    beyond = np.uint64(0) if known == layout.MAX_SYMBOLS_IN_SET else ~np.uint64((1 << known) - 1)
    bad = valid & ((masks & beyond) != 0)
    valid &= ~bad
    used = np.where(valid, masks, np.uint64(0)).astype("<u8")
    bits = np.unpackbits(used.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    rows, members = np.nonzero(bits)
    ends = np.zeros(len(masks) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(masks)), out=ends[1:])
    values = symbols.take(fixed_array(pa.int64(), np.ascontiguousarray(members, np.int64)))
    return pa.Array.from_buffers(target, len(masks), [bitmap(valid), pa.py_buffer(ends)], children=[values]), bad
