"""Values that cannot be written, because readers would take them for null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray


def refuse_nulls(
    bits: NDArray[Any],
    valid: NDArray[Any] | None,
    pattern: tuple[int, int],
    array: pa.Array,
    kind: str,
    error: Callable[[int, str], Exception],
) -> None:
    """Refuse values whose bits stand for null.

    Args:
        bits: Unsigned bit patterns of the values.
        valid: Which of them are there; `None` for all.
        pattern: The bits that stand for null, and those of them that do not matter.
        array: The values, for the message.
        kind: What their column is, for the message.
        error: Makes what is raised of a row of the array and a message.
    """
    null, mask = pattern
    is_null = bits | bits.dtype.type(mask) == null | mask
    if valid is not None:
        is_null &= valid
    if is_null.any():
        row = int(is_null.argmax())
        raise error(row, f"{array[row]} stands for null in a {kind} column, so that it cannot be written")
