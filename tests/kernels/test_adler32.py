"""Adler-32 against zlib's, by register and by vector."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest

from sawlog.kernels import adler32
from sawlog.kernels.jit import CHECKED, kernel
from sawlog.kernels.signature import Bytes, UInt64

LENGTHS = [*range(0, 140, 1 if not CHECKED else 7), 255, 256, 1000, 5552, 5553, 20_000]


@kernel
def by_choice(buffer: Bytes, start: UInt64, length: UInt64) -> UInt64:
    return adler32.adler32(buffer, start, length)


@kernel
def by_register(buffer: Bytes, start: UInt64, length: UInt64) -> UInt64:
    total, weighted = adler32.sum_by_register(buffer, start, length, np.uint64(0), np.uint64(0))
    return adler32.finish(total, weighted, length)


@pytest.mark.parametrize("function", [by_choice, by_register])
@pytest.mark.parametrize("fill", ["random", "ones", "zeros"])
def test_zlib_agrees(function: Any, fill: str) -> None:
    samples = {"random": random.Random(1).randbytes(20_100), "ones": b"\xff" * 20_100, "zeros": bytes(20_100)}
    data = samples[fill]
    buffer = np.frombuffer(data, np.uint8)
    for length in LENGTHS:
        for start in (0, 1, 37, 20_100 - length):
            if 0 <= start <= len(data) - length:
                sum_read = function(buffer, np.uint64(start), np.uint64(length))
                assert int(sum_read) == zlib.adler32(data[start : start + length])


@pytest.mark.parametrize(
    ("triple", "features", "width"),
    [
        ("x86_64-unknown-linux-gnu", {"avx512bw": True, "avx2": True}, 64),
        ("x86_64-unknown-linux-gnu", {"avx512bw": False, "avx2": True}, 32),
        ("x86_64-apple-darwin", {"sse4.2": True}, 0),
        ("aarch64-unknown-linux-gnu", {"neon": True}, 0),
    ],
)
def test_the_widest_vectors_are_taken(triple: str, features: dict[str, bool], width: int) -> None:
    assert adler32.choose_vector_width(triple, features) == width


@kernel
def before(buffer: Bytes, end: UInt64, length: UInt64) -> UInt64:
    return adler32.adler32_before(buffer, end, length)


@pytest.mark.parametrize("fill", ["random", "ones"])
def test_zlib_agrees_on_what_is_before_a_place(fill: str) -> None:
    data = random.Random(2).randbytes(20_100) if fill == "random" else b"\xff" * 20_100
    buffer = np.frombuffer(data, np.uint8)
    for length in [length for length in LENGTHS if 0 < length <= adler32.BRIEF]:
        for start in (adler32.LEAD, adler32.LEAD + 1, 137, 20_100 - length):
            sum_read = before(buffer, np.uint64(start + length), np.uint64(length))
            assert int(sum_read) == zlib.adler32(data[start : start + length])
