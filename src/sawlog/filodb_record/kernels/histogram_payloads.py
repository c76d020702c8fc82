"""Encoding histograms as payloads. Section 8 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.histograms import _EXPONENTIAL_XOR, _buckets, _tops
from sawlog.filodb_record.kernels.nibblepack import FAILED, pack_values, pack_xor
from sawlog.filodb_record.kernels.payloads import (
    BAD_BUCKETS,
    DECREASING,
    NO_ROOM,
    NOT_WHOLE,
    OTHER_TOPS,
    ROW,
    TOO_LONG,
    USED,
    WRONG,
    WRONG_COUNT,
)
from sawlog.filodb_record.layout import HistogramFormat
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, store_u16
from sawlog.kernels.xxh32 import xxh32

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_PREFIX = np.uint64(layout.PAYLOAD_LENGTH_SIZE)
_LONGEST = np.uint64(layout.MAX_PAYLOAD)
_HISTOGRAM_HEAD = np.uint64(layout.HISTOGRAM_HEADER_SIZE)
_EMPTY_HISTOGRAM = int(HistogramFormat.EMPTY)
_XOR = (int(HistogramFormat.GEOMETRIC_XOR), int(HistogramFormat.CUSTOM_XOR), _EXPONENTIAL_XOR)
_MOST_VALUE = 9.2e18
_TOLERANCE = 1e-15
"""Tops may differ from those that a definition says by a few units in the last place: others round otherwise."""
_SEED = np.uint64(layout.HASH_SEED)


@inlined
def _pack(
    code: Any, values: Any, bits: Any, first: Any, count: Any, steps: Any, scratch: Any, out: Any, pos: Any
) -> Any:
    """Pack the values of a histogram; the position behind them, or what is wrong, negative."""
    if code in _XOR:
        end = pack_xor(bits, first, count, out, pos, scratch)
        return -NO_ROOM if end == FAILED else np.int64(end)
    last = 0.0
    for i in range(count):
        value = values[first + i]
        if not (value >= 0.0 and value <= _MOST_VALUE) or value != np.floor(value):
            return -NOT_WHOLE
        if value < last:
            return -DECREASING
        steps[i] = np.uint64(np.int64(value) - np.int64(last))
        last = value
    end = pack_values(steps, 0, count, out, pos)
    return -NO_ROOM if end == FAILED else np.int64(end)


@kernel
def encode_histograms(
    definitions: Any,
    definition_ends: Any,
    value_ends: Any,
    values: Any,
    bits: Any,
    tops: Any,
    top_ends: Any,
    wanted: Any,
    computed: Any,
    computed_bits: Any,
    steps: Any,
    scratch: Any,
    hashed: Any,
    positions: Any,
    lengths: Any,
    hashes: Any,
    out: Any,
    state: Any,
) -> Any:
    """Encode histograms.

    Args:
        definitions: uint8, per row a format code and a bucket definition.
        definition_ends: int32.
        value_ends: int32.
        values: float64, cumulative.
        bits: The same memory as uint64.
        tops: float64, checked against the definitions.
        top_ends: int32.
        wanted: uint8 per row.
        computed: float64[MAX_BUCKETS], for the tops that definitions say.
        computed_bits: The same memory as uint64.
        steps: uint64[MAX_BUCKETS].
        scratch: uint64[NIBBLE_GROUP].
        hashed: Whether hashes are wanted.
        positions: uint64 per row.
        lengths: uint32 per row.
        hashes: uint32 per row.
        out: uint8.
        state: int64[ENCODER_STATE_SIZE].

    Returns:
        0, or what is wrong with the histogram at ROW.
    """
    used = np.uint64(state[USED])
    for row in range(state[ROW], len(positions)):
        positions[row] = _ZERO
        lengths[row] = 0
        if wanted[row] == 0:
            continue
        state[ROW] = row
        state[USED] = used
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
            buckets, _ = _buckets(out, begin, size - _ONE + _HISTOGRAM_HEAD)
            if buckets <= 0 or code == _EMPTY_HISTOGRAM:
                return BAD_BUCKETS
            if buckets != count or top_ends[row + 1] - top_ends[row] != count:
                state[WRONG] = buckets
                return WRONG_COUNT
            if not _tops(out, begin, size - _ONE, code, computed, computed_bits, 0, count):
                return BAD_BUCKETS
            given = np.int64(top_ends[row])
            for i in range(count):
                a, b = computed[i], tops[given + i]
                if not abs(a - b) <= _TOLERANCE * abs(a) and a != b and not (np.isnan(a) and np.isnan(b)):
                    state[WRONG] = i
                    return OTHER_TOPS
            end = _pack(code, values, bits, first, count, steps, scratch, out, begin + _HISTOGRAM_HEAD + size - _ONE)
            if end < 0:
                return -end
        length = np.uint64(end) - begin
        if length > _LONGEST:
            state[WRONG] = length
            return TOO_LONG
        store_u16(out, used, length)
        positions[row] = begin
        lengths[row] = length
        if hashed:
            hashes[row] = xxh32(out, begin, length, _SEED)
        used = np.uint64(end)
    state[ROW] = len(positions)
    state[USED] = used
    return 0
