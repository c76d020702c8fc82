"""Hashing the values of columns, and the order of rows by numbers."""

from __future__ import annotations

import numpy as np

from sawlog.kernels.intern import mix_bits
from sawlog.kernels.jit import kernel, wide_kernel
from sawlog.kernels.signature import Bool, Bytes, Int64, Int64s, OutInt64s, OutUInt64s, UInt64, UInt64s
from sawlog.kernels.xxh64 import xxh64

_STEP = np.uint64(0x9E3779B97F4A7C15)


@kernel
def hash_bytes(data: Bytes, ends: Int64s, hashes: OutUInt64s) -> None:
    """Compute a hash of each binary value.

    Args:
        data: uint8, read-only.
        ends: int64, read-only: value i is `data[ends[i] : ends[i + 1]]`.
        hashes: uint64, to write into.
    """
    for i in range(len(hashes)):
        hashes[i] = xxh64(data, np.uint64(ends[i]), np.uint64(ends[i + 1] - ends[i]))


@wide_kernel
def hash_words(words: UInt64s, validity: Bytes, seed: UInt64, hashes: OutUInt64s) -> None:
    """Add the hash of each value to that of its row.

    Args:
        words: uint64, read-only.
        validity: uint8: 0 for null, which adds nothing; empty: all values are there.
        seed: uint64.
        hashes: uint64, one per row.
    """
    if len(validity):
        for i in range(len(words)):
            if validity[i]:
                hashes[i] ^= mix_bits(words[i] ^ seed)
    else:
        for i in range(len(words)):
            hashes[i] ^= mix_bits(words[i] ^ seed)


@kernel
def hash_lists(elements: UInt64s, ends: Int64s, ordered: Bool, words: OutUInt64s) -> None:
    """Compute a hash of each list, from numbers for its elements.

    Args:
        elements: uint64, read-only: a number for each element.
        ends: int64, read-only: list i is `elements[ends[i] : ends[i + 1]]`.
        ordered: Whether the order of elements matters.
        words: uint64, to write into.
    """
    for i in range(len(words)):
        word = np.uint64(ends[i + 1] - ends[i])
        for pos in range(ends[i], ends[i + 1]):
            word = mix_bits(word + _STEP ^ elements[pos]) if ordered else word + mix_bits(elements[pos])
        words[i] = word


@wide_kernel
def hash_rows(hashes: UInt64s) -> UInt64:
    """Return the sum of the hashes of rows, modulo 2**64, each of them mixed once more.

    Args:
        hashes: uint64, read-only.
    """
    total = np.uint64(0)
    for i in range(len(hashes)):
        total += mix_bits(hashes[i] + _STEP)
    return total


@kernel
def count_order(codes: Int64s, least: Int64, places: OutInt64s, before: Int64s, order: OutInt64s) -> None:
    """Sort rows by small numbers; those of the same number keep their order.

    Args:
        codes: int64, read-only: the number of each row.
        least: int64, the smallest of them.
        places: int64 zeros, two more than the largest less the smallest.
        before: int64, read-only: rows, in the order that they have.
        order: int64, to write into: rows, in the order that they get.
    """
    for i in range(len(codes)):
        places[codes[i] - least + 1] += 1
    for i in range(1, len(places)):
        places[i] += places[i - 1]
    for i in range(len(before)):
        row = before[i]
        code = codes[row] - least
        order[places[code]] = row
        places[code] += 1
