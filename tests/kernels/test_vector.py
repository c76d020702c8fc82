"""Many values at once, against one value at a time."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sawlog.kernels import vector
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, OutBytes, UInt32s, UInt64

GATHERS = {1: vector.gather_big_u8, 2: vector.gather_big_u16, 4: vector.gather_big_u32, 8: vector.gather_big_u64}


def gathering(width: int) -> Any:
    gather = GATHERS[width]

    @kernel
    def run(
        source: Bytes,
        offset: UInt64,
        places: UInt32s,
        first: UInt64,
        target: OutBytes,
        target_offset: UInt64,
        pattern: UInt64,
        mask: UInt64,
    ) -> UInt64:
        return gather(source, offset, places, first, target, target_offset, pattern, mask)

    return run


@kernel
def copying(target: OutBytes, offset: UInt64, source: Bytes, start: UInt64) -> None:
    vector.copy_16(target, offset, source, start)


@kernel
def copying_short(target: OutBytes, offset: UInt64, source: Bytes, start: UInt64, length: UInt64) -> None:
    vector.copy_short(target, offset, source, start, length)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 100, 128, 129])
@pytest.mark.parametrize("room", [0, 1, vector.SLACK, 200])
def test_short_strings_are_copied_within_both_arrays(length: int, room: int) -> None:
    text = random.Random(length).randbytes(length)
    for source, after in ((text, room), (text + bytes(room), 0)):
        target = np.full(3 + length + after, 7, np.uint8)
        copying_short(target, np.uint64(3), np.frombuffer(b"\xff" + source, np.uint8), np.uint64(1), np.uint64(length))
        assert target[: 3 + length].tobytes() == b"\x07" * 3 + text
        assert (target[3 + length + vector.SLACK :] == 7).all()


@kernel
def copying_plain(target: OutBytes, offset: UInt64, source: Bytes, start: UInt64) -> UInt64:
    return vector.copy_plain_16(target, offset, source, start)


@pytest.mark.parametrize("offset", range(16))
def test_characters_that_json_does_not_have_as_they_are_are_marked(offset: int) -> None:
    for byte in range(256):
        source = bytearray(b"\xff" + b"\x7f a[]~!#" * 2)
        source[1 + offset] = byte
        target = np.full(18, 7, np.uint8)
        marks = copying_plain(target, np.uint64(1), np.frombuffer(source, np.uint8), np.uint64(1))
        assert target.tobytes() == b"\x07" + source[1:] + b"\x07"
        assert marks == (byte < 32 or byte > 127 or byte in b'"\\') << offset


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_values_are_loaded_from_their_places(width: int) -> None:
    rng = random.Random(width)
    gather = gathering(width)
    source = np.frombuffer(rng.randbytes(300), np.uint8)
    count = vector.count_lanes(width)
    for _ in range(20):
        places = np.array([rng.randrange(300 - 8 - 5) for _ in range(count + 3)], np.uint32)
        places[3] = 300 - max(width, vector.LOADED) - 5
        target = np.zeros(7 + count * width, np.uint8)
        values = [int.from_bytes(source[p + 5 : p + 5 + width].tobytes(), "big") for p in places[3:].tolist()]
        mask = rng.choice([0, 1])
        pattern = rng.choice(values) | mask
        numbers = (np.uint64(number) for number in (5, 3, 7, pattern, mask))
        offset, first, target_offset, pattern_, mask_ = numbers
        gathered = gather(source, offset, places, first, target, target_offset, pattern_, mask_)
        assert target[7:].view(f"<u{width}").tolist() == values
        assert not target[:7].any()
        assert int(gathered) == sum(1 << lane for lane, value in enumerate(values) if value | mask == pattern)


@kernel
def pairing(data: Bytes, offset: UInt64, first: UInt64, second: UInt64) -> UInt64:
    return vector.pairs(data, offset, first, second)


def test_pairs_of_bytes_are_found_at_every_place() -> None:
    rng = random.Random(6)
    for _ in range(20):
        data = np.frombuffer(bytes(rng.choices([1, 2, 255], k=vector.PLACES + 4)), np.uint8)
        offset_read = int(pairing(data, np.uint64(3), np.uint64(255), np.uint64(2)))
        places = [i for i in range(vector.PLACES) if data[3 + i] == 255 and data[4 + i] == 2]
        assert offset_read == sum(1 << place for place in places)


def test_sixteen_bytes_are_copied() -> None:
    source = np.arange(40, dtype=np.uint8)
    target = np.zeros(20, np.uint8)
    copying(target, np.uint64(3), source, np.uint64(24))
    assert target.tolist() == [0, 0, 0, *range(24, 40), 0]
