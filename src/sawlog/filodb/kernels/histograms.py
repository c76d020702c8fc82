"""Decoding and encoding histogram blobs by the column. Section 8 of the format."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sawlog.filodb import layout
from sawlog.filodb.kernels.gather import PayloadErrors, Payloads
from sawlog.filodb.kernels.nibblepack import unpack_delta, unpack_xor
from sawlog.filodb.kernels.powers import fill_powers
from sawlog.filodb.layout import ContainerDamageKind, HistogramFormat
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import load_u16, load_u32, load_u64
from sawlog.kernels.numbers import _ONE, _TWO, _ZERO
from sawlog.kernels.signature import (
    Bytes,
    Float64,
    Float64s,
    Int32s,
    Int64,
    OutBytes,
    OutFloat64s,
    OutInt32s,
    OutUInt64s,
)

_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_GEOMETRIC_SIZE = np.uint64(layout.GEOMETRIC_SIZE)
_EXPONENTIAL_SIZE = np.uint64(layout.EXPONENTIAL_SIZE)
_MAX_BUCKETS = np.uint64(layout.MAX_BUCKETS)
_MAX_EXPONENTIAL = np.uint64(layout.MAX_EXPONENTIAL)
_BAD = int(ContainerDamageKind.BAD_HISTOGRAM)
_EMPTY = int(HistogramFormat.EMPTY)
_GEOMETRIC = int(HistogramFormat.GEOMETRIC_DELTA)
_GEOMETRIC_1 = int(HistogramFormat.GEOMETRIC_1_DELTA)
_CUSTOM = int(HistogramFormat.CUSTOM_DELTA)
_EXPONENTIAL = int(HistogramFormat.EXPONENTIAL_DELTA)
_GEOMETRIC_XOR = int(HistogramFormat.GEOMETRIC_XOR)
_CUSTOM_XOR = int(HistogramFormat.CUSTOM_XOR)
_EXPONENTIAL_XOR = int(HistogramFormat.EXPONENTIAL_XOR)
_LARGEST_EXPONENT = 709.78
"""The exponential function of more is infinite."""


@inlined
def _cast_i16(value: Any) -> Any:
    return (np.int64(value) ^ 0x8000) - 0x8000


@inlined
def _cast_i32(value: Any) -> Any:
    return (np.int64(value) ^ 0x80000000) - 0x80000000


@inlined
def _count_buckets(window: Any, pos: Any, length: Any) -> Any:
    """Return how many buckets a blob has, and how long its definition is; -1 buckets when it is no histogram."""
    if length < _ONE:
        return -1, _ZERO
    code = window[pos]
    if code == _EMPTY:
        return 0, _ZERO
    if length < _HEAD + _TWO:
        return -1, _ZERO
    size = load_u16(window, pos + _ONE)
    if size < _TWO or length - _HEAD < size:
        return -1, _ZERO
    count = load_u16(window, pos + _HEAD)
    if count > _MAX_BUCKETS:
        return -1, _ZERO
    if code in (_GEOMETRIC, _GEOMETRIC_1, _GEOMETRIC_XOR):
        if size != _GEOMETRIC_SIZE:
            return -1, _ZERO
    elif code in (_EXPONENTIAL, _EXPONENTIAL_XOR):
        if size != _EXPONENTIAL_SIZE or count == _ZERO:
            return -1, _ZERO
        scale = _cast_i16(load_u16(window, pos + _HEAD + _TWO))
        positive = load_u16(window, pos + _HEAD + np.uint64(8))
        if abs(scale) > layout.MAX_SCALE or positive > _MAX_EXPONENTIAL or count != positive + _ONE:
            return -1, _ZERO
    elif code not in (_CUSTOM, _CUSTOM_XOR):
        return -1, _ZERO
    return np.int64(count), size


class Sizes(NamedTuple):
    """Sizes of what `gather_histograms` makes.

    Attributes:
        ends: int32, end of the buckets of each row; the first is 0.
        definition_ends: int32, end of the definition of each row, format codes included; the first is 0.
    """

    ends: OutInt32s
    definition_ends: OutInt32s


class Buckets(NamedTuple):
    """Arrays that `gather_histograms` fills.

    Attributes:
        tops: float64 per bucket.
        top_bits: The same memory as uint64.
        values: float64 per bucket, cumulative.
        value_bits: The same memory as uint64.
        definitions: uint8, each after its format code.
    """

    tops: OutFloat64s
    top_bits: OutUInt64s
    values: OutFloat64s
    value_bits: OutUInt64s
    definitions: OutBytes


@kernel
def measure_histograms(payloads: Payloads, sizes: Sizes, bad: PayloadErrors) -> None:
    """Work out `Sizes` of `Payloads`; others than histograms become `PayloadErrors`, explained by format codes."""
    window, positions, lengths = payloads.data, payloads.positions, payloads.lengths
    ends, definition_ends = sizes.ends, sizes.definition_ends
    for row in range(len(positions)):
        count, size = 0, _ZERO
        length = np.uint64(lengths[row])
        present = bad.kinds[row] == 0 and (length != _ZERO or positions[row] != _ZERO)
        if present:
            count, size = _count_buckets(window, positions[row], length)
            if count < 0:
                bad.kinds[row] = _BAD
                bad.where[row] = np.int64(window[positions[row]]) if length > _ZERO else -1
                count = 0
                present = False
        ends[row + 1] = ends[row] + count
        definition_ends[row + 1] = definition_ends[row] + (np.int64(size) + 1 if present else 0)


@inlined
def fill_geometric(lowest: Any, multiplier: Any, less: Any, tops: Any, first: Any, count: Any) -> None:
    """Work out tops `lowest * multiplier**i - less`."""
    fill_powers(multiplier, tops, first, count)
    for i in range(first, first + count):
        tops[i] = lowest * tops[i] - less


@inlined
def fill_exponential(scale: Any, index: Any, tops: Any, first: Any, count: Any) -> None:
    """Work out a zero bucket, and tops `base**(index + i)` for i from 1, base `2**(2**-scale)`."""
    log_base = math.log(2.0) * 2.0**-scale
    if scale > -10:
        log_base = math.log(2.0 ** (2.0**-scale))
    if count > 0:
        tops[first] = 0.0
    for i in range(1, count):
        exponent = (index + i) * log_base
        tops[first + i] = math.inf if exponent > _LARGEST_EXPONENT else math.exp(exponent)


@kernel
def compute_geometric_tops(lowest: Float64, multiplier: Float64, less: Float64, tops: OutFloat64s) -> None:
    """Compute the tops of geometric buckets, float64."""
    fill_geometric(lowest, multiplier, less, tops, 0, len(tops))


@kernel
def compute_exponential_tops(scale: Int64, index: Int64, tops: OutFloat64s) -> None:
    """Compute the tops of exponential buckets, float64."""
    fill_exponential(scale, index, tops, 0, len(tops))


@inlined
def _compute_tops(window: Any, pos: Any, size: Any, code: Any, tops: Any, bits: Any, first: Any, count: Any) -> Any:
    """Work the tops of one histogram out; `bits` is a view of `tops` as uint64.

    Returns whether that went well.
    """
    start = pos + _HEAD
    if code in (_CUSTOM, _CUSTOM_XOR):
        return unpack_xor(window, start + _TWO, start + size, bits, first, count) == count
    if code in (_EXPONENTIAL, _EXPONENTIAL_XOR):
        scale = _cast_i16(load_u16(window, start + _TWO))
        index = _cast_i32(load_u32(window, start + np.uint64(4)))
        fill_exponential(scale, index, tops, first, count)
        return True
    if count > 0:
        bits[first] = load_u64(window, start + _TWO)
        lowest = tops[first]
        bits[first] = load_u64(window, start + np.uint64(10))
        multiplier = tops[first]
        fill_geometric(lowest, multiplier, 1.0 if code == _GEOMETRIC_1 else 0.0, tops, first, count)
    return True


@kernel
def gather_histograms(payloads: Payloads, sizes: Sizes, into: Buckets, bad: PayloadErrors) -> None:
    """Work tops and values out, and copy the definitions.

    Args:
        payloads: `Payloads`.
        sizes: `Sizes`, from `measure_histograms`.
        into: `Buckets`.
        bad: `PayloadErrors`, where tops or values are broken: explained by the format code.
    """
    window, positions, lengths = payloads.data, payloads.positions, payloads.lengths
    ends, definition_ends = sizes.ends, sizes.definition_ends
    tops, values, top_bits, value_bits = into.tops, into.values, into.top_bits, into.value_bits
    for row in range(len(positions)):
        first = np.int64(ends[row])
        count = np.int64(ends[row + 1]) - first
        size = np.int64(definition_ends[row + 1]) - np.int64(definition_ends[row]) - 1
        if size < 0:
            continue
        pos = positions[row]
        code = np.int64(window[pos])
        start = np.int64(definition_ends[row])
        into.definitions[start] = code
        for i in range(size):
            into.definitions[start + 1 + i] = window[pos + _HEAD + np.uint64(i)]
        if code == _EMPTY:
            continue
        good = _compute_tops(window, pos, np.uint64(size), code, tops, top_bits, first, count)
        begin = pos + _HEAD + np.uint64(size)
        end = pos + np.uint64(lengths[row])
        if code in (_GEOMETRIC_XOR, _CUSTOM_XOR, _EXPONENTIAL_XOR):
            good = good and unpack_xor(window, begin, end, value_bits, first, count) >= 0
        else:
            good = good and unpack_delta(window, begin, end, value_bits, first, count) >= 0
            for i in range(first, first + count):
                values[i] = np.float64(np.int64(value_bits[i]))
        if not good:
            bad.kinds[row] = _BAD
            bad.where[row] = code


class Histograms(NamedTuple):
    """Histograms of rows.

    Attributes:
        ends: int32, end of the buckets of each row; `ends[0]` is where those of the first one begin.
        tops: float64 per bucket.
        values: float64 per bucket, cumulative.
        exponential: uint8 per row, whether its buckets are exponential.
    """

    ends: Int32s
    tops: Float64s
    values: Float64s
    exponential: Bytes


@kernel
def mark_exponential(definition_ends: Int32s, definitions: Bytes, exponential: OutBytes) -> None:
    """Mark rows whose buckets are exponential, by the format code in front of their definition."""
    for row in range(len(exponential)):
        code: Any = -1
        if definition_ends[row + 1] > definition_ends[row]:
            code = np.int64(definitions[definition_ends[row]])
        exponential[row] = code in (_EXPONENTIAL, _EXPONENTIAL_XOR)


@inlined
def _compute_quantile(all: Any, row: Any, q: Any, minimum: Any, maximum: Any) -> Any:
    """Return a quantile of a row's histogram, whose values lie between two bounds."""
    tops, values = all.tops, all.values
    first = np.int64(all.ends[row])
    last = np.int64(all.ends[row + 1]) - 1
    if q < 0.0:
        return -math.inf
    if q > 1.0:
        return math.inf
    total = values[last] if last > first else math.nan
    if not total > 0.0:
        return math.nan
    rank = q * total
    bucket = first
    while bucket < last and not values[bucket] >= rank:
        bucket += 1
    if bucket == last and tops[bucket] == math.inf and not (tops[bucket - 1] < maximum < math.inf):
        return tops[bucket - 1]
    if bucket == first and tops[bucket] <= 0.0:
        return tops[bucket]
    low, below = 0.0, 0.0
    if bucket > first:
        low = tops[bucket - 1]
        below = values[bucket - 1]
    high = tops[bucket]
    if low < minimum <= high:
        low = minimum
    if low < maximum <= high:
        high = maximum
    share = (rank - below) / (values[bucket] - below)
    if all.exponential[row] != 0 and low > 0.0:
        return 2.0 ** (math.log2(low) + (math.log2(high) - math.log2(low)) * share)
    return low + (high - low) * share


@kernel
def compute_quantiles(
    all: Histograms, quantiles: Float64s, minimums: Float64s, maximums: Float64s, out: OutFloat64s
) -> None:
    """Compute quantiles of each row: `out[row * len(wanted) + i]` is that of `wanted[i]`, NaN if none.

    Args:
        all: `Histograms`.
        quantiles: float64.
        minimums: float64, of all rows or per row: the least of a row's values; -inf where it is not known.
        maximums: float64, of all rows or per row: the greatest; inf where it is not known.
        out: float64.
    """
    for row in range(len(all.ends) - 1):
        least = minimums[min(row, len(minimums) - 1)]
        maximum = maximums[min(row, len(maximums) - 1)]
        for i in range(len(quantiles)):
            out[row * len(quantiles) + i] = _compute_quantile(all, row, quantiles[i], least, maximum)


@inlined
def _rank(all: Any, row: Any, bucket: Any, value: Any, minimum: Any, maximum: Any) -> Any:
    """Return how much of a row's histogram is at or below a value inside of a bucket."""
    first = np.int64(all.ends[row])
    low, below = 0.0, 0.0
    if bucket > first:
        low = all.tops[bucket - 1]
        below = all.values[bucket - 1]
    low = max(low, minimum)
    high = min(all.tops[bucket], maximum)
    if all.exponential[row] != 0 and bucket > first:
        share = (math.log2(value) - math.log2(low)) / (math.log2(high) - math.log2(low))
    else:
        share = (value - low) / (high - low)
    return below + (all.values[bucket] - below) * share


@kernel
def compute_fractions(
    all: Histograms, lower: Float64, upper: Float64, minimums: Float64s, maximums: Float64s, out: OutFloat64s
) -> None:
    """Compute the share of each row's values between `lower` and `upper`, not negative; the rest as for quantiles."""
    for row in range(len(all.ends) - 1):
        first = np.int64(all.ends[row])
        last = np.int64(all.ends[row + 1]) - 1
        total = all.values[last] if last >= first else 0.0
        out[row] = math.nan
        if total == 0.0 or math.isnan(total) or math.isnan(lower) or math.isnan(upper):
            continue
        if lower == 0.0 and upper == 0.0:
            out[row] = all.values[first] / total
            continue
        if lower >= upper:
            out[row] = 0.0
            continue
        least = minimums[min(row, len(minimums) - 1)]
        maximum = maximums[min(row, len(maximums) - 1)]
        low_rank, high_rank = total, total
        low_set, high_set = False, False
        start, below = 0.0, 0.0
        for bucket in range(first, last + 1):
            top = all.tops[bucket]
            if not low_set and start == lower:
                low_rank, low_set = below, True
            if not high_set and top == upper:
                high_rank, high_set = all.values[bucket], True
            if not low_set and start < lower < top:
                low_rank, low_set = _rank(all, row, bucket, lower, least, maximum), True
            if not high_set and start < upper < top:
                high_rank, high_set = _rank(all, row, bucket, upper, least, maximum), True
            start, below = top, all.values[bucket]
        # Ranks beyond the total come of bounds that lie in other buckets, NaN of buckets without an end.
        low_rank = min(low_rank, total)
        high_rank = min(high_rank, total)
        out[row] = (high_rank - low_rank) / total


@kernel
def compute_totals(ends: Int32s, tops: Float64s, values: Float64s, counts: OutFloat64s, sums: OutFloat64s) -> None:
    """Compute each row's count, and estimate its sum: every bucket's share at its middle, beyond the last top at it."""
    for row in range(len(ends) - 1):
        counts[row] = math.nan
        sums[row] = math.nan
        below = 0.0
        low = 0.0
        total = 0.0
        for i in range(ends[row], ends[row + 1]):
            top = tops[i]
            middle = low if top == math.inf else (top if i == ends[row] and top <= 0.0 else (low + top) / 2.0)
            total += (values[i] - below) * middle
            below = values[i]
            low = top
            counts[row] = below
            sums[row] = total
