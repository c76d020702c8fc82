"""Numbers in JSON, against Python's text of them."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from sawlog.kernels.jit import kernel
from sawlog.kernels.json_text import put_integer, put_unsigned
from sawlog.kernels.signature import OutBytes, UInt64


@kernel
def _unsigned(out: OutBytes, offset: UInt64, value: UInt64) -> UInt64:
    return put_unsigned(out, offset, value)


@kernel
def _integer(out: OutBytes, offset: UInt64, value: UInt64) -> UInt64:
    return put_integer(out, offset, value)


@given(st.integers(0, 20).flatmap(lambda digits: st.integers(0, min(10**digits, (1 << 64) - 1))))
@example((1 << 64) - 1)
@example(10**8)
@example(10**16)
def test_digits_of_integers(value: int) -> None:
    text = str(value).encode()
    out = np.full(len(text) + 2, 7, np.uint8)
    assert _unsigned(out[: len(text) + 1], np.uint64(1), np.uint64(value)) == len(text) + 1
    assert out.tobytes() == b"\x07" + text + b"\x07"


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(-(1 << 63))
def test_signs_of_integers(value: int) -> None:
    text = str(value).encode()
    out = np.zeros(len(text), np.uint8)
    assert _integer(out, np.uint64(0), np.uint64(value & (1 << 64) - 1)) == len(text)
    assert out.tobytes() == text
