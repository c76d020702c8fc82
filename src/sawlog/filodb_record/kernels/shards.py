"""Label hashes by the column, from which FiloDB chooses shards. Sections 3.3 and 10.1 of the format."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.kernels.payloads import sort_keys
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.xxh32 import xxh32

_SEED = np.uint64(layout.HASH_SEED)
_INIT = np.uint64(layout.HASH_INIT)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_U32 = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ORDER_DIFFERS = 0xEE
"""Keys without bytes from here on have the same order in UTF-8 as in Java."""


@inlined
def _combine(total: Any, value: Any) -> Any:
    return (_FACTOR * total + value) & _U32


@inlined
def _is(data: Any, start: Any, length: Any, names: Any, ends: Any, i: Any) -> Any:
    """Whether a string is that of number `i`."""
    begin = np.uint64(ends[i])
    if np.uint64(ends[i + 1]) - begin != length:
        return False
    same = True
    for k in range(length):
        same = same and data[start + np.uint64(k)] == names[begin + np.uint64(k)]
    return same


@inlined
def _trimmed(data: Any, start: Any, length: Any, suffixes: Any, ends: Any) -> Any:
    """Length of a metric without the first suffix that it ends with."""
    for i in range(len(ends) - 1):
        size = np.uint64(ends[i + 1] - ends[i])
        if size <= length and _is(data, start + length - size, size, suffixes, ends, i):
            return length - size
    return length


@kernel
def label_hashes(
    metrics: Any,
    metric_ends: Any,
    map_ends: Any,
    keys: Any,
    key_ends: Any,
    values: Any,
    value_ends: Any,
    shard_names: Any,
    shard_name_ends: Any,
    ignored: Any,
    ignored_ends: Any,
    suffixes: Any,
    suffix_ends: Any,
    order: Any,
    shard_hashes: Any,
    partition_hashes: Any,
    doubtful: Any,
) -> None:
    """Hash the labels of series.

    Args:
        metrics: uint8.
        metric_ends: int32.
        map_ends: int32, entries of each row's labels.
        keys: uint8.
        key_ends: int32.
        values: uint8.
        value_ends: int32.
        shard_names: uint8, shard key labels in order, without the metric.
        shard_name_ends: int64.
        ignored: uint8, labels that do not enter the partition hash.
        ignored_ends: int64.
        suffixes: uint8, cut off metrics.
        suffix_ends: int64.
        order: int32, as many as the largest map has entries.
        shard_hashes: uint32 per row, set.
        partition_hashes: uint32 per row, set.
        doubtful: uint8 per row: set where keys may have another order in Java.
    """
    for row in range(len(shard_hashes)):
        first = np.int64(map_ends[row])
        count = np.int64(map_ends[row + 1]) - first
        shard = _INIT
        for i in range(len(shard_name_ends) - 1):
            for at in range(count):
                # Of repeated keys the last one counts.
                entry = first + count - 1 - at
                start = np.uint64(key_ends[entry])
                if _is(keys, start, np.uint64(key_ends[entry + 1]) - start, shard_names, shard_name_ends, i):
                    begin = np.uint64(value_ends[entry])
                    shard = _combine(shard, xxh32(values, begin, np.uint64(value_ends[entry + 1]) - begin, _SEED))
                    break
        start = np.uint64(metric_ends[row])
        length = _trimmed(metrics, start, np.uint64(metric_ends[row + 1]) - start, suffixes, suffix_ends)
        shard_hashes[row] = _combine(shard, xxh32(metrics, start, length, _SEED))
        sort_keys(keys, key_ends, first, count, order)
        total = _INIT
        for i in range(count):
            entry = first + np.int64(order[i])
            start = np.uint64(key_ends[entry])
            length = np.uint64(key_ends[entry + 1]) - start
            for k in range(length):
                if keys[start + np.uint64(k)] >= _ORDER_DIFFERS:
                    doubtful[row] = 1
            skipped = False
            for k in range(len(ignored_ends) - 1):
                skipped = skipped or _is(keys, start, length, ignored, ignored_ends, k)
            if not skipped:
                begin = np.uint64(value_ends[entry])
                value = xxh32(values, begin, np.uint64(value_ends[entry + 1]) - begin, _SEED)
                total = _combine(total, _combine(xxh32(keys, start, length, _SEED), value))
        partition_hashes[row] = total
