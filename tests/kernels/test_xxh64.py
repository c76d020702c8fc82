"""XXH64 and XXH3 against the reference implementation's own binding."""

from __future__ import annotations

import random

import numpy as np
import pytest
import xxhash

from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, UInt64
from sawlog.kernels.xxh64 import xxh3, xxh64

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python


@kernel
def hash_twice(buffer: Bytes, start: UInt64, length: UInt64) -> tuple[UInt64, UInt64]:
    return xxh64(buffer, start, length), xxh3(buffer, start, length)


LENGTHS = [*range(260), 511, 512, 1023, 1024, 1025, 1087, 1088, 1089, 2048, 4099, 65537]


@pytest.mark.parametrize("shift", [0, 3])
def test_every_path_agrees_with_the_reference(shift: int) -> None:
    data = random.Random(7).randbytes(1 << 17)
    buffer = np.frombuffer(data, np.uint8)
    for length in LENGTHS:
        part = data[shift : shift + length]
        hash_values = hash_twice(buffer, np.uint64(shift), np.uint64(length))
        assert (int(hash_values[0]), int(hash_values[1])) == (
            xxhash.xxh64_intdigest(part),
            xxhash.xxh3_64_intdigest(part),
        ), length
