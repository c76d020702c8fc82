"""Hashes and shards of series, by the column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, make_bitmap, unpack_booleans, view_binary
from sawlog.filodb import hashing, layout
from sawlog.filodb.arrays import map_parts, pack_texts
from sawlog.filodb.kernels.gather import Texts
from sawlog.filodb.options import WriteOptions
from sawlog.filodb.schemas import PartitionSchema, Schema
from sawlog.filodb.selection import RecordLayout
from sawlog.filodb.target import Target


def hash_series(columns: dict[str, pa.Array], schema: Schema) -> pa.Array:
    """Return the hashes that FiloDB stores in the records of series, as int32; null where a column is null.

    Args:
        columns: The partition columns of the schema, by name.
        schema: Any schema with these partition columns.
    """
    from sawlog.filodb.layer import Layer

    options = WriteOptions(table=schema.name, records="partkeys", container_size=layout.MIN_CONTAINER_SIZE)
    batch, valid = _drop_nulls(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
    part_key = RecordLayout(schema.name, schema.schema_id, schema.part_key)
    target = Target((part_key,), by_name=False, raw=False)
    hashes = Layer(target, options, 0, lambda data: None).compute_hashes(batch)
    return _spread(hashes.astype(np.uint32).view(np.int32), valid)


def find_shards(
    metric: pa.Array, labels: pa.Array, num_shards: int, spread: int, partition: PartitionSchema
) -> pa.Array:
    """Return the shard that each series is ingested to, as int32; null where metric or labels are null.

    Args:
        metric: Metric names.
        labels: Maps of labels.
        num_shards: A power of two.
        spread: How many bits of the shard come from the labels outside the shard key.
        partition: Which labels are the shard key, and what is trimmed and ignored.

    Raises:
        OptionError: When `num_shards` is no power of two, or `spread` does not fit it.
    """
    hashing.compute_ingestion_shard(0, 0, num_shards, spread)
    batch, valid = _drop_nulls(pa.RecordBatch.from_arrays([metric, labels], ["metric", "labels"]))
    shard, part = _hash_labels(batch.column("metric"), batch.column("labels"), partition)
    mask = np.uint32((num_shards >> spread) - 1)
    shard_numbers = (shard & mask) | (part & np.uint32(num_shards - 1) & ~mask)
    return _spread(shard_numbers.astype(np.int32), valid)


def _hash_labels(
    metric: pa.Array, labels: pa.Array, partition: PartitionSchema
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    from sawlog.filodb.kernels.shards import Hashes, Partition, hash_labels

    options = partition.options
    maps = map_parts(labels, "labels", 0)
    suffixes = dict(options.ignore_shard_key_column_suffixes).get(options.metric_column, ())
    rows = len(metric)
    shard, part, doubtful = np.zeros(rows, np.uint32), np.zeros(rows, np.uint32), np.zeros(rows, np.uint8)
    max_entries = int((maps.ends[1:] - maps.ends[:-1]).max(initial=0)) + 1
    names = (options.non_metric_shard_columns, options.ignore_tags_on_partition_key_hash, suffixes)
    key_partition = Partition(*(pack_texts([name.encode() for name in key_names]) for key_names in names))
    metrics = Texts(*view_binary(metric.cast(pa.binary())))
    hash_labels(metrics, maps, key_partition, np.zeros(max_entries, np.int32), Hashes(shard, part, doubtful))
    for row in np.flatnonzero(doubtful).tolist():
        hashed = hashing.sort_and_compute_hashes(labels[row].as_py())
        total = hashing.combine_hash_excluding(hashed, options.ignore_tags_on_partition_key_hash)
        part[row] = total & 0xFFFFFFFF
    return shard, part


def _drop_nulls(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Return the rows without nulls, and which they are."""
    valid = np.ones(batch.num_rows, np.bool_)
    for column in batch.columns:
        if column.null_count:
            valid &= unpack_booleans(column.is_valid())
    return (batch if valid.all() else batch.filter(make_array(valid, pa.bool_()))), valid


def _spread(numbers: Any, valid: NDArray[np.bool_]) -> pa.Array:
    """Return values back to the rows they are of; the others are null."""
    values = np.zeros(len(valid), np.int32)
    values[valid] = numbers
    return pa.Array.from_buffers(pa.int32(), len(valid), [make_bitmap(valid), pa.py_buffer(values)])
