"""Interning against a dictionary."""

from __future__ import annotations

import random
from itertools import accumulate, combinations

import numpy as np
import pytest

from sawlog.kernels import intern
from sawlog.kernels.intern import Interner, Strings, hash_strings

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python


def strings(texts: list[bytes], before: bytes = b"") -> Strings:
    ends = np.array([*accumulate(map(len, texts), initial=len(before))], np.int64)
    return Strings(ends, np.frombuffer(before + b"".join(texts), np.uint8))


@pytest.mark.parametrize("is_shared", [False, True])
def test_strings_are_numbered_as_they_first_appear(monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    """In tables that grow, and where all hashes are the same."""
    monkeypatch.setattr(intern, "CHUNK", 5)
    if is_shared:
        monkeypatch.setattr(intern, "hash_strings", lambda strings, seed, hashes: hashes.fill(1 << 63))
    rng = random.Random(3)
    interner, numbers_by_text = Interner(), dict[bytes, int]()
    for _ in range(10):
        texts = [rng.randbytes(rng.randrange(4)) + b"x" * rng.choice([0, 0, 5, 20, 40]) for _ in range(12)]
        validity = np.array([rng.random() < 0.8 for _ in texts], np.uint8)
        count = len(numbers_by_text)
        expected_numbers = [
            numbers_by_text.setdefault(text, len(numbers_by_text))
            for text, is_valid in zip(texts, validity, strict=True)
            if is_valid
        ]
        numbers, rows = interner.assign_numbers(strings(texts, b"abc"), validity)
        assert numbers[validity == 1].tolist() == expected_numbers
        assert [texts[row] for row in rows] == list(numbers_by_text)[count:]
        assert interner.count == len(numbers_by_text)
    ends, data = interner.interned.strings
    assert [data[ends[i] : ends[i + 1]].tobytes() for i in range(interner.count)] == list(numbers_by_text)


def test_hashes_depend_on_every_byte_the_length_and_the_seed() -> None:
    text = bytes(range(1, 50))
    texts = [text[:length] for length in range(len(text))]
    texts += [
        text[:offset] + bytes([text[offset] ^ 1]) + text[offset + 1 : length]
        for length in (3, 7, 16, 40)
        for offset in range(length)
    ]
    hash_values = set()
    for seed in (0x9E6C63D0676A9A99, 0x3F84D5B5B5470917, 1 << 63):
        hashes, elsewhere = np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.uint64)
        hash_strings(strings(texts), np.uint64(seed), hashes)
        hash_strings(strings(texts, b"12345"), np.uint64(seed), elsewhere)
        assert hashes.tolist() == elsewhere.tolist()
        hash_values.update(hashes.tolist())
    assert len(hash_values) == 3 * len(texts)


def test_blocks_that_change_places_change_the_hash() -> None:
    rng = random.Random(5)
    halves = [rng.randbytes(8) for _ in range(8)]
    texts = [b"".join(halves)]
    for block, next_block in combinations(range(8), 2):
        swapped = halves.copy()
        swapped[block], swapped[next_block] = halves[next_block], halves[block]
        texts.append(b"".join(swapped))
    for seed in (0, 1, 1 << 63, *(rng.getrandbits(64) for _ in range(20))):
        hashes = np.zeros(len(texts), np.uint64)
        hash_strings(strings(texts), np.uint64(seed), hashes)
        assert len(set(hashes.tolist())) == len(texts)
