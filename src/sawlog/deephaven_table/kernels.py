"""Searching columns for sentinels: the one pass over fixed-width values that delivering them takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import kernel


@kernel
def holds(values: Any, pattern: Any) -> bool:
    """Whether a bit pattern occurs.

    Args:
        values: Unsigned integers, read-only.
        pattern: Of the same type.
    """
    found = np.uint64(0)
    for i in range(len(values)):
        found += np.uint64(values[i] == pattern)
    return bool(found)


@kernel
def reaches(values: Any, limit: Any) -> bool:
    """Whether a value is as large as a limit, or larger.

    Args:
        values: uint32, read-only.
        limit: uint32.
    """
    found = np.uint64(0)
    for i in range(len(values)):
        found += np.uint64(values[i] >= limit)
    return bool(found)
