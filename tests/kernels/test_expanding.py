"""Snappy and LZ4 in kernels give what Arrow's codecs give, and refuse what these refuse."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.kernels.jit import kernel
from sawlog.kernels.lz4 import expand_lz4
from sawlog.kernels.signature import Bool, Bytes, OutBytes, UInt64
from sawlog.kernels.snappy import SLACK, expand_snappy


@kernel
def _snappy(data: Bytes, start: UInt64, out: OutBytes, size: UInt64) -> Bool:
    return expand_snappy(data, start, np.uint64(len(data)), out, size)


@kernel
def _lz4(data: Bytes, start: UInt64, out: OutBytes, size: UInt64) -> Bool:
    return expand_lz4(data, start, np.uint64(len(data)), out, np.uint64(0), size)


CODECS: dict[str, Callable[..., Any]] = {"snappy": _snappy, "lz4_raw": _lz4}


def expand_block(codec: str, stored: bytes, start: int, size: int) -> bytes | None:
    """What a kernel makes of a block whose elements begin at `start`; None where it refuses."""
    out = np.full(size + SLACK, 7, np.uint8)
    end = CODECS[codec](np.frombuffer(stored, np.uint8), np.uint64(start), out, np.uint64(size))
    return out[:size].tobytes() if end else None


def preamble(codec: str, size: int) -> int:
    """Bytes of the size that Snappy's blocks begin with."""
    return 0 if codec != "snappy" else max(1, -(-size.bit_length() // 7))


pieces = st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 60)), max_size=12)


@pytest.mark.parametrize("codec", CODECS)
@given(pieces=pieces)
def test_what_arrow_compresses_is_expanded(codec: str, pieces: list[tuple[bytes, int]]) -> None:
    content = b"".join(piece * times for piece, times in pieces)
    stored = pa.Codec(codec).compress(content, asbytes=True)
    assert expand_block(codec, stored, preamble(codec, len(content)), len(content)) == content


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.nightly
def test_damaged_blocks_are_taken_as_arrow_takes_them(codec: str) -> None:
    dice = random.Random(3)
    refused = 0
    for _ in range(300):
        content = b"".join(dice.randbytes(dice.randrange(1, 30)) * dice.randrange(1, 9) for _ in range(20))
        stored = bytearray(pa.Codec(codec).compress(content, asbytes=True))
        start = preamble(codec, len(content))
        for _ in range(dice.randrange(1, 3)):
            stored[dice.randrange(start, len(stored))] = dice.randrange(256)
        if dice.random() < 0.2:
            del stored[dice.randrange(start, len(stored)) :]
        content_read = expand_block(codec, bytes(stored), start, len(content))
        try:
            truth = pa.Codec(codec).decompress(bytes(stored), decompressed_size=len(content), asbytes=True)
        except OSError:
            truth = None
        refused += content_read is None
        # LZ4 in Arrow does not mind a block that ends early.
        assert content_read == truth or (codec == "lz4_raw" and content_read is None)
    assert 0 < refused < 300
