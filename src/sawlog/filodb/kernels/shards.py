"""Label hashes by the column, from which FiloDB chooses shards. Sections 3.3 and 10.1 of the format."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.filodb import layout
from sawlog.filodb.kernels.gather import Labels, Texts
from sawlog.filodb.kernels.payloads import sort_keys
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import are_bytes_equal
from sawlog.kernels.numbers import _U32
from sawlog.kernels.signature import OutBytes, OutInt32s, OutUInt32s
from sawlog.kernels.xxh32 import xxh32

_SEED = np.uint64(layout.HASH_SEED)
_INIT = np.uint64(layout.HASH_INIT)
_FACTOR = np.uint64(layout.HASH_FACTOR)
_ORDER_DIFFERS = 0xEE
"""Keys without bytes from here on have the same order in UTF-8 as in Java."""


@inlined
def _combine(total: Any, value: Any) -> Any:
    return (_FACTOR * total + value) & _U32


@inlined
def _is(data: Any, start: Any, length: Any, texts: Any, i: Any) -> Any:
    """Return whether a string is that of number `i`."""
    names, ends = texts.data, texts.ends
    begin = np.uint64(ends[i])
    return np.uint64(ends[i + 1]) - begin == length and are_bytes_equal(data, start, names, begin, length)


@inlined
def _trim_suffix(data: Any, start: Any, length: Any, suffixes: Any) -> Any:
    """Return the length of a metric without the first suffix that it ends with."""
    for i in range(len(suffixes.ends) - 1):
        size = np.uint64(suffixes.ends[i + 1] - suffixes.ends[i])
        if size <= length and _is(data, start + length - size, size, suffixes, i):
            return length - size
    return length


class Partition(NamedTuple):
    """Labels that make up the hashes.

    Attributes:
        shard: `Texts`, shard key labels in order, without the metric.
        ignored: `Texts`, labels that do not enter the partition hash.
        suffixes: `Texts`, cut off metrics.
    """

    shard: Texts
    ignored: Texts
    suffixes: Texts


class Hashes(NamedTuple):
    """Arrays that `hash_labels` sets.

    Attributes:
        shard: uint32 per row.
        partition: uint32 per row.
        doubtful: uint8 per row: whether keys may have another order in Java.
    """

    shard: OutUInt32s
    partition: OutUInt32s
    doubtful: OutBytes


@kernel
def hash_labels(metrics: Texts, labels: Labels, partition: Partition, order: OutInt32s, hashes: Hashes) -> None:
    """Hash the labels of series."""
    keys, key_ends, values, value_ends = labels.keys.data, labels.keys.ends, labels.values.data, labels.values.ends
    for row in range(len(hashes.shard)):
        first = np.int64(labels.ends[row])
        count = np.int64(labels.ends[row + 1]) - first
        shard = _INIT
        for i in range(len(partition.shard.ends) - 1):
            for index in range(count):
                # Of repeated keys the last one counts.
                entry = first + count - 1 - index
                start = np.uint64(key_ends[entry])
                if _is(keys, start, np.uint64(key_ends[entry + 1]) - start, partition.shard, i):
                    begin = np.uint64(value_ends[entry])
                    shard = _combine(shard, xxh32(values, begin, np.uint64(value_ends[entry + 1]) - begin, _SEED))
                    break
        start = np.uint64(metrics.ends[row])
        length = _trim_suffix(metrics.data, start, np.uint64(metrics.ends[row + 1]) - start, partition.suffixes)
        hashes.shard[row] = _combine(shard, xxh32(metrics.data, start, length, _SEED))
        sort_keys(labels.keys, first, count, order)
        total = _INIT
        for i in range(count):
            entry = first + np.int64(order[i])
            start = np.uint64(key_ends[entry])
            length = np.uint64(key_ends[entry + 1]) - start
            for k in range(length):
                if keys[start + np.uint64(k)] >= _ORDER_DIFFERS:
                    hashes.doubtful[row] = 1
            skipped = False
            for k in range(len(partition.ignored.ends) - 1):
                skipped = skipped or _is(keys, start, length, partition.ignored, k)
            if not skipped:
                begin = np.uint64(value_ends[entry])
                value = xxh32(values, begin, np.uint64(value_ends[entry + 1]) - begin, _SEED)
                total = _combine(total, _combine(xxh32(keys, start, length, _SEED), value))
        hashes.partition[row] = total
