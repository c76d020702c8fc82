"""Searching columns for sentinels: the one pass over fixed-width values that delivering them takes."""

from __future__ import annotations

from typing import Any

from sawlog.kernels.jit import kernel


@kernel
def holds(values: Any, pattern: Any) -> bool:
    """Whether a bit pattern occurs.

    Args:
        values: Unsigned integers, read-only.
        pattern: Of the same type.
    """
    found = False
    for i in range(len(values)):
        found |= values[i] == pattern
    return found


@kernel
def reaches(values: Any, limit: Any) -> bool:
    """Whether a value is as large as a limit, or larger.

    Args:
        values: uint32, read-only.
        limit: uint32.
    """
    found = False
    for i in range(len(values)):
        found |= values[i] >= limit
    return found
