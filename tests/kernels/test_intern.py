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


@pytest.mark.parametrize("same", [False, True])
def test_strings_are_numbered_as_they_first_appear(monkeypatch: pytest.MonkeyPatch, same: bool) -> None:
    """In tables that grow, and where all hashes are the same."""
    monkeypatch.setattr(intern, "CHUNK", 5)
    if same:
        monkeypatch.setattr(intern, "hash_strings", lambda strings, seed, hashes: hashes.fill(1 << 63))
    rng = random.Random(3)
    interner, known = Interner(), dict[bytes, int]()
    for _ in range(10):
        texts = [rng.randbytes(rng.randrange(4)) + b"x" * rng.choice([0, 0, 5, 20, 40]) for _ in range(12)]
        there = np.array([rng.random() < 0.8 for _ in texts], np.uint8)
        count = len(known)
        wanted = [known.setdefault(text, len(known)) for text, one in zip(texts, there, strict=True) if one]
        numbers, rows = interner.assign_numbers(strings(texts, b"abc"), there)
        assert numbers[there == 1].tolist() == wanted
        assert [texts[row] for row in rows] == list(known)[count:]
        assert interner.count == len(known)
    ends, data = interner.interned.strings
    assert [data[ends[i] : ends[i + 1]].tobytes() for i in range(interner.count)] == list(known)


def test_hashes_depend_on_every_byte_the_length_and_the_seed() -> None:
    text = bytes(range(1, 50))
    texts = [text[:length] for length in range(len(text))]
    texts += [
        text[:at] + bytes([text[at] ^ 1]) + text[at + 1 : length] for length in (3, 7, 16, 40) for at in range(length)
    ]
    found = set()
    for seed in (0x9E6C63D0676A9A99, 0x3F84D5B5B5470917, 1 << 63):
        hashes, elsewhere = np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.uint64)
        hash_strings(strings(texts), np.uint64(seed), hashes)
        hash_strings(strings(texts, b"12345"), np.uint64(seed), elsewhere)
        assert hashes.tolist() == elsewhere.tolist()
        found.update(hashes.tolist())
    assert len(found) == 3 * len(texts)


def test_blocks_that_change_places_change_the_hash() -> None:
    rng = random.Random(5)
    halves = [rng.randbytes(8) for _ in range(8)]
    texts = [b"".join(halves)]
    for one, other in combinations(range(8), 2):
        swapped = halves.copy()
        swapped[one], swapped[other] = halves[other], halves[one]
        texts.append(b"".join(swapped))
    for seed in (0, 1, 1 << 63, *(rng.getrandbits(64) for _ in range(20))):
        hashes = np.zeros(len(texts), np.uint64)
        hash_strings(strings(texts), np.uint64(seed), hashes)
        assert len(set(hashes.tolist())) == len(texts)
