"""NibblePack for single lists of numbers: plain, delta and XOR. Section 9 of the format.

How many numbers there are is not stored: the caller has to know.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.errors import FormatError, SchemaError

_MASK = (1 << 64) - 1


def pack(values: Sequence[int]) -> bytes:
    """Return packed numbers of 64 bits, in groups of eight; the last group is filled up with zeros."""
    return _pack(np.array([value & _MASK for value in values], np.uint64))


def unpack(data: bytes | memoryview, count: int) -> list[int]:
    """Return the `count` numbers, unsigned.

    Raises:
        FormatError: When a group is longer than the data.
    """
    return list(_unpack("unpack_stream", data, count).tolist())


def pack_delta(values: Sequence[int]) -> bytes:
    """Return non-decreasing numbers packed as the first and the differences between them.

    FiloDB writes a decrease as no difference and goes on from the lower value, which reads back as something else.

    Raises:
        SchemaError: When the numbers decrease or are negative.
    """
    steps = [after - before for before, after in itertools.pairwise((0, *values))]
    if any(step < 0 for step in steps):
        raise SchemaError(f"delta packing: {list(values)}: the values must not decrease, nor be negative")
    return _pack(np.array(steps, np.uint64))


def unpack_delta(data: bytes | memoryview, count: int) -> list[int]:
    """Return the `count` numbers from their differences, signed.

    Raises:
        FormatError: When a group is longer than the data.
    """
    return list(_unpack("unpack_delta_stream", data, count).view("i8").tolist())


def pack_doubles(values: Sequence[float]) -> bytes:
    """Return packed doubles: the first, then each XORed with the previous one. NaNs but the first become canonical.

    Raises:
        SchemaError: For no values.
    """
    from sawlog.filodb.kernels.nibblepack import GROUP, MAX_GROUP_BYTES, pack_xor_stream

    if not values:
        raise SchemaError("XOR packing: expected at least one value")
    bits = np.array(values, np.float64).view(np.uint64)
    out = np.zeros(8 + (len(bits) // GROUP + 1) * MAX_GROUP_BYTES, np.uint8)
    return out[: int(pack_xor_stream(bits, np.zeros(GROUP, np.uint64), out))].tobytes()


def unpack_doubles(data: bytes | memoryview, count: int) -> list[float]:
    """Return the `count` doubles.

    Raises:
        FormatError: When a group is longer than the data.
    """
    return list(_unpack("unpack_xor_stream", data, count).view("f8").tolist())


def _pack(values: NDArray[np.uint64]) -> bytes:
    from sawlog.filodb.kernels.nibblepack import GROUP, MAX_GROUP_BYTES, pack_stream

    out = np.zeros((len(values) // GROUP + 1) * MAX_GROUP_BYTES, np.uint8)
    return out[: int(pack_stream(values, out))].tobytes()


def _unpack(kernel: str, data: bytes | memoryview, count: int) -> NDArray[Any]:
    from sawlog.filodb.kernels import nibblepack

    values = np.zeros(count, np.uint64)
    if getattr(nibblepack, kernel)(np.frombuffer(data, np.uint8), values) < 0:
        raise FormatError(f"NibblePack: {len(data)} bytes end inside a group")
    return values
