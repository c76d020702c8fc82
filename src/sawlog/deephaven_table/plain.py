"""Fixed-width values as Arrow arrays, over the bytes of the file where their order and place allow it. Section 4.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array
from sawlog.deephaven.text import characters
from sawlog.deephaven.types import FIXED, ColumnType, Type
from sawlog.deephaven_table.kernels import holds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.storage import Bytes

_WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
_NULLS = {
    kind: tuple(_WORDS[facts.width].type(pattern) for pattern in (facts.null, facts.also_null) if pattern is not None)
    for kind, facts in FIXED.items()
}
"""The patterns that stand for null, as numbers that kernels take."""


def words(data: Bytes, width: int, *, little: bool) -> NDArray[Any]:
    """Bytes as unsigned integers of the machine's order: a view where that is possible, otherwise a copy.

    Args:
        data: Whole values.
        width: 1, 2, 4 or 8.
        little: Byte order of the data.
    """
    values: NDArray[Any] = data.view(_WORDS[width])
    if not values.flags.aligned:
        values = values.copy()
    if little != np.little_endian and width > 1:
        values = values.byteswap()
    values.flags.writeable = False
    return values


def bitmap(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """An Arrow validity bitmap; None where everything is valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def plain_array(kind: ColumnType, values: NDArray[Any], target: pa.DataType, *, sentinels: bool) -> pa.Array:
    """Values of a fixed width as an Arrow array.

    Args:
        kind: Type of the column.
        values: Bit patterns, unsigned.
        target: Arrow type; a char may become a string.
        sentinels: Whether the patterns that stand for null become null.
    """
    if kind is ColumnType.BOOLEAN:
        return _booleans(values, FIXED[kind])
    nulls = None
    for pattern in _NULLS[kind] if sentinels else ():
        if holds(values, pattern):
            nulls = _validity(values, _NULLS[kind])
            break
    if pa.types.is_string(target):
        return characters(values, nulls)
    if nulls is None:
        return fixed_array(target, values)
    return pa.Array.from_buffers(target, len(values), [nulls, pa.py_buffer(values)])


def _validity(values: NDArray[Any], patterns: tuple[Any, ...]) -> pa.Buffer | None:
    valid = values != patterns[0]
    for pattern in patterns[1:]:
        valid &= values != pattern
    return bitmap(valid)


def _booleans(values: NDArray[Any], facts: Type) -> pa.Array:
    """Null has no other form among true and false, so these sentinels are always null."""
    true = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
    valid = (values != facts.null) & (values != facts.also_null)
    return pa.Array.from_buffers(pa.bool_(), len(values), [bitmap(valid), true])
