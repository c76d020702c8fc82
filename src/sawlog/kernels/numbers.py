"""Numbers that kernels compute with: uint64, since Numba makes a float of a signed number with an unsigned one."""

from __future__ import annotations

import numpy as np

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_FIVE = np.uint64(5)
_SIX = np.uint64(6)
_SEVEN = np.uint64(7)
_EIGHT = np.uint64(8)
_NINE = np.uint64(9)
_TEN = np.uint64(10)
_SIXTEEN = np.uint64(16)
_HALF = np.uint64(32)
_U32 = np.uint64(0xFFFFFFFF)
_LOW7 = np.uint64(127)
