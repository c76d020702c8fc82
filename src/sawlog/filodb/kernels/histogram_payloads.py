"""Encoding histograms as payloads. Section 8 of the format."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.filodb import layout
from sawlog.filodb.kernels.gather import Texts
from sawlog.filodb.kernels.histograms import _EXPONENTIAL_XOR, _compute_tops, _count_buckets
from sawlog.filodb.kernels.nibblepack import FAILED, pack_values, pack_xor
from sawlog.filodb.kernels.payloads import (
    BAD_BUCKETS,
    DECREASING,
    NO_ROOM,
    NOT_WHOLE,
    OTHER_TOPS,
    PROGRESS,
    TOO_LONG,
    WRONG_COUNT,
    Encoded,
)
from sawlog.filodb.layout import HistogramFormat
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, store_u16
from sawlog.kernels.numbers import _ONE, _TWO, _ZERO
from sawlog.kernels.signature import Float64s, Int32s, Int64, OutBytes, OutFloat64s, OutUInt64s, Record, UInt64s
from sawlog.kernels.xxh32 import xxh32

_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_LONGEST = np.uint64(layout.MAX_PAYLOAD)
_HISTOGRAM_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_EMPTY_HISTOGRAM = int(HistogramFormat.EMPTY)
_XOR = (int(HistogramFormat.GEOMETRIC_XOR), int(HistogramFormat.CUSTOM_XOR), _EXPONENTIAL_XOR)
_MOST_VALUE = 9.2e18
_TOLERANCE = 1e-15
"""Tops may differ from those that a definition says by a few units in the last place: others round otherwise."""
_SEED = np.uint64(layout.HASH_SEED)


class HistogramInput(NamedTuple):
    """Histograms to be encoded.

    Attributes:
        definitions: `Texts`, per row a format code and a bucket definition.
        ends: int32, end of the values of each row.
        values: float64, cumulative.
        bits: The same memory as uint64.
        top_ends: int32, end of the tops of each row.
        tops: float64, checked against the definitions.
    """

    definitions: Texts
    ends: Int32s
    values: Float64s
    bits: UInt64s
    top_ends: Int32s
    tops: Float64s


class Work(NamedTuple):
    """Working memory of `encode_histograms`.

    Attributes:
        tops: float64[MAX_BUCKETS], for the tops that definitions say.
        bits: The same memory as uint64.
        steps: uint64[MAX_BUCKETS].
        group: uint64[NIBBLE_GROUP].
    """

    tops: OutFloat64s
    bits: OutUInt64s
    steps: OutUInt64s
    group: OutUInt64s


@inlined
def _pack(code: Any, values: Any, first: Any, count: Any, work: Any, out: Any, pos: Any) -> Any:
    """Pack the values of a histogram; return the position after them, or what is wrong, negative."""
    if code in _XOR:
        end = pack_xor(values.bits, first, count, out, pos, work.group)
        return -NO_ROOM if end == FAILED else np.int64(end)
    last = 0.0
    for i in range(count):
        value = values.values[first + i]
        if not (value >= 0.0 and value <= _MOST_VALUE) or value != np.floor(value):
            return -NOT_WHOLE
        if value < last:
            return -DECREASING
        work.steps[i] = np.uint64(np.int64(value) - np.int64(last))
        last = value
    end = pack_values(work.steps, 0, count, out, pos)
    return -NO_ROOM if end == FAILED else np.int64(end)


@kernel
def encode_histograms(
    histograms: HistogramInput, work: Work, into: Encoded, out: OutBytes, progress: Annotated[Any, Record(PROGRESS)]
) -> Int64:
    """Encode histograms.

    Returns:
        0, or what is wrong with the histogram of a row.
    """
    definitions, definition_ends = histograms.definitions.data, histograms.definitions.ends
    value_ends, top_ends, tops = histograms.ends, histograms.top_ends, histograms.tops
    positions, lengths, hashes = into.positions, into.lengths, into.hashes
    used = np.uint64(progress.used)
    for row in range(progress.row, len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if into.wanted[row] == 0:
            continue
        progress.row = row
        progress.used = used
        size = np.uint64(definition_ends[row + 1] - definition_ends[row])
        first = np.int64(value_ends[row])
        count = np.int64(value_ends[row + 1]) - first
        if np.uint64(len(out)) - used < size + np.uint64(32):
            return NO_ROOM
        begin = used + _PREFIX
        if count == 0:
            out[begin] = _EMPTY_HISTOGRAM
            end = np.int64(begin + _ONE)
        else:
            if size < _TWO or size > _LONGEST:
                return BAD_BUCKETS
            start = np.uint64(definition_ends[row])
            code = np.int64(definitions[start])
            out[begin] = code
            store_u16(out, begin + _ONE, size - _ONE)
            copy_bytes(out, begin + _HISTOGRAM_HEAD, definitions, start + _ONE, size - _ONE)
            buckets, _ = _count_buckets(out, begin, size - _ONE + _HISTOGRAM_HEAD)
            if buckets <= 0 or code == _EMPTY_HISTOGRAM:
                return BAD_BUCKETS
            if buckets != count or top_ends[row + 1] - top_ends[row] != count:
                progress.wrong = buckets
                return WRONG_COUNT
            if not _compute_tops(out, begin, size - _ONE, code, work.tops, work.bits, 0, count):
                return BAD_BUCKETS
            first_top = np.int64(top_ends[row])
            for i in range(count):
                a, b = work.tops[i], tops[first_top + i]
                if not abs(a - b) <= _TOLERANCE * abs(a) and a != b and not (np.isnan(a) and np.isnan(b)):
                    progress.wrong = i
                    return OTHER_TOPS
            end = _pack(code, histograms, first, count, work, out, begin + _HISTOGRAM_HEAD + size - _ONE)
            if end < 0:
                return -end
        length = np.uint64(end) - begin
        if length > _LONGEST:
            progress.wrong = length
            return TOO_LONG
        store_u16(out, used, length)
        positions[row] = begin
        lengths[row] = length
        if into.hashed:
            hashes[row] = xxh32(out, begin, length, _SEED)
        used = np.uint64(end)
    progress.row = len(positions)
    progress.used = used
    return 0
