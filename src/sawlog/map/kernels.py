"""Bins and sketches, filled in one pass."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.intern import hash_string, mix_bits
from sawlog.kernels.jit import kernel, wide_kernel
from sawlog.kernels.memory import compare_bytes
from sawlog.kernels.signature import Array, Bytes, Int64, Int64s, OutInt64s, OutUInt64s, Record, UInt64, UInt64s

USES = ("header", "record", "padding", "tail", "damage", "unsupported")
"""What a byte can be: the names of `sawlog.format.damage.Account`."""

BIN = make_record_type(
    *(f"{use}_bytes" for use in USES),
    "rows",
    "row_bytes",
    "shortest",
    "longest",
    "sample",  # where the first row of the bin begins
    "sample_bytes",
    "low",  # of the order values; low > high: no row has one
    "high",
    "resets",  # rows whose order value is lower than that of the row before them
)
"""What is known of a range of a file: bytes by use, rows that begin there with their sizes, and their order."""

ORDER = make_record_type("last", "known", "step", "step_at", "resets")
"""The order so far: the last value, whether there is one, the largest step, and where it was."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel
def bin_rows(
    starts: Int64s,
    sizes: Int64s,
    order: Int64s,
    width: Int64,
    state: Annotated[Any, Record(ORDER)],
    bins: Annotated[Any, Array(BIN, writable=True)],
) -> None:
    """Count rows, by where they begin.

    Args:
        starts: int64, file offsets.
        sizes: int64, bytes of each row.
        order: int64, a value per row that is expected to ascend; empty for none.
        width: int64, bytes per bin.
        state: A record of `ORDER`.
        bins: Records of `BIN`.
    """
    for row in range(len(starts)):
        slot = bins[starts[row] // width]
        size = sizes[row]
        if slot.rows == 0:
            slot.sample = starts[row]
            slot.sample_bytes = size
            slot.shortest = size
        slot.shortest = min(slot.shortest, size)
        slot.longest = max(slot.longest, size)
        slot.rows += 1
        slot.row_bytes += size
        if row < len(order):
            value = order[row]
            if slot.low > slot.high:
                slot.low = value
                slot.high = value
            slot.low = min(slot.low, value)
            slot.high = max(slot.high, value)
            if state.known:
                step = value - state.last
                if step < 0:
                    slot.resets += 1
                    state.resets += 1
                elif step > state.step:
                    state.step = step
                    state.step_at = starts[row]
            state.last = value
            state.known = 1


@wide_kernel
def hash_words(words: UInt64s, out: OutUInt64s) -> None:
    """Compute a hash of each uint64."""
    for row in range(len(words)):
        out[row] = mix_bits(words[row] + _GOLDEN)


@kernel
def hash_slices(ends: Int64s, data: Bytes, out: OutUInt64s) -> None:
    """Return a hash of each value of variable length.

    Args:
        ends: int64, one more than there are values: value i is `data[ends[i]:ends[i + 1]]`.
        data: uint8.
        out: uint64, one per value.
    """
    for row in range(len(out)):
        start, end = np.uint64(ends[row]), np.uint64(ends[row + 1])
        out[row] = hash_string(data, start, end - start, _GOLDEN)


@kernel
def move_new(hashes: OutUInt64s, limit: UInt64, known_hashes: OutUInt64s) -> Int64:
    """Move hashes that are new, as far as is known, to the front; return how many.

    Args:
        hashes: uint64.
        limit: uint64, the largest that is wanted.
        known_hashes: uint64, as many as a power of two: the last hash that has led to each. A few that come again and
            again are all there.
    """
    mask, new = np.uint64(len(known_hashes) - 1), 0
    for row in range(len(hashes)):
        hashed = hashes[row]
        if hashed <= limit and known_hashes[hashed & mask] != hashed:
            known_hashes[hashed & mask] = hashed
            hashes[new] = hashed
            new += 1
    return new


@kernel
def find_bounds(ends: Int64s, data: Bytes, bounds: OutInt64s) -> None:
    """Find the least and the greatest of values of variable length; there is one at least.

    Args:
        ends: int64, as in `hash_slices`.
        data: uint8.
        bounds: int64, two places: the rows of the least and of the greatest.
    """
    low = high = 0
    for row in range(1, len(ends) - 1):
        if compare_bytes(data, ends[row], ends[row + 1], data, ends[low], ends[low + 1]) < 0:
            low = row
        elif compare_bytes(data, ends[row], ends[row + 1], data, ends[high], ends[high + 1]) > 0:
            high = row
    bounds[0], bounds[1] = low, high
