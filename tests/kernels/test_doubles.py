"""Doubles in JSON, against Python's text of them."""

from __future__ import annotations

import itertools
import json
import math
import random
import struct
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.doubles import put_double, widen_bits
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Array, OutBytes, UInt64

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # products do, in plain Python

_STATE = make_record_type(("position", np.uint64))


class _Rendered(NamedTuple):
    out: OutBytes


@kernel
def _put(bits: UInt64, rendered: _Rendered, states: Annotated[Any, Array(_STATE, writable=True)]) -> UInt64:
    states[0].position = 1
    return np.uint64(states[0].position if put_double(bits, rendered, states[0]) else 0)


@kernel
def _widen(bits: UInt64) -> UInt64:
    return widen_bits(bits)


def write(value: float) -> str | None:
    """Return the text that the kernel writes into 24 bytes; nothing if there is none."""
    out, states = np.full(26, 7, np.uint8), np.zeros(1, _STATE)
    end = int(_put(np.uint64(int.from_bytes(struct.pack("<d", value), "little")), _Rendered(out[:25]), states))
    assert (out[0], out[25]) == (7, 7)
    return out[1:end].tobytes().decode() if end else None


def expect(value: float) -> str | None:
    """Return Python's text of a number; integers of 53 bits at most are written as such."""
    if not math.isfinite(value):
        return None
    is_integer = value.is_integer() and abs(value) < 1 << 53 and str(value) != "-0.0"
    return str(int(value)) if is_integer else json.dumps(value)


@given(st.floats())
def test_doubles(value: float) -> None:
    assert write(value) == expect(value)


@given(st.floats(-1e7, 1e7), st.integers(0, 8))
def test_fractions_of_few_digits(value: float, digits: int) -> None:
    assert write(round(value, digits)) == expect(round(value, digits))


@given(st.integers(-(1 << 53), 1 << 53), st.integers(0, 12))
def test_fractions_of_few_bits(magnitude: int, places: int) -> None:
    for value in (magnitude, magnitude >> 20, (magnitude >> 22) + 1):
        assert write(value / (1 << places)) == expect(value / (1 << places))


def test_powers_and_their_neighbours() -> None:
    powers = itertools.chain((2.0**i for i in range(-1074, 1024)), (float(f"1e{i}") for i in range(-324, 309)))
    for power in powers:
        for value in (power, math.nextafter(power, 0), -math.nextafter(power, math.inf)):
            assert write(value) == expect(value), value


def test_bits_of_any_kind() -> None:
    rng = random.Random(54)
    for _ in range(2000):
        (value,) = struct.unpack("<d", rng.randbytes(8))
        assert write(value) == expect(value), value


@given(st.floats(width=32, allow_subnormal=False))
def test_floats_of_32_bits(value: float) -> None:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    (expected,) = struct.unpack("<Q", struct.pack("<d", value) if math.isfinite(value) else b"\xff" * 8)
    assert _widen(np.uint64(bits)) == expected
