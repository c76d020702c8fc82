"""Hashes and shards against FiloDB's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xxhash

from sawlog import OptionError
from sawlog.filodb import hashing
from sawlog.filodb.layout import HASH_SEED
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, UInt64
from sawlog.kernels.xxh32 import xxh32

from . import golden
from .support import shard_key_hash

HASHES = golden.facts("hashes")
LABELS = HASHES["label_hashing"]


@kernel
def hash_all(data: Bytes) -> UInt64:
    return xxh32(data, np.uint64(0), np.uint64(len(data)), np.uint64(HASH_SEED))


@pytest.mark.parametrize("expected", HASHES["xxhash"], ids=lambda expected: expected["s"][:20])
def test_xxh32_agrees_with_the_original(expected: dict) -> None:
    data = expected["s"].encode()
    assert hashing.hash_bytes(data) == expected["xxh32_seed_9747b28c"]
    assert int(hash_all(np.frombuffer(data, np.uint8))) == expected["xxh32_unsigned"]
    assert hashing.hash_java_string(expected["s"]) == expected["java_string_hashcode"]


def test_both_implementations_agree() -> None:
    data = np.random.default_rng(1).integers(0, 256, 200, np.uint8)
    for size in range(len(data)):
        assert int(hash_all(data[:size])) == xxhash.xxh32_intdigest(data[:size].tobytes(), HASH_SEED)


def test_labels_are_hashed_as_by_the_original() -> None:
    labels = dict(LABELS["labels"])
    hashed = hashing.sort_and_compute_hashes(labels)
    assert [key for key, _, _ in hashed] == LABELS["sorted_keys"]
    assert [value for _, _, value in hashed] == LABELS["pair_hashes"]
    assert hashing.combine_hash_excluding(hashed) == LABELS["combine_all"]
    assert hashing.combine_hash_excluding(hashed, ["__name__"]) == LABELS["combine_excluding___name__"]
    with_le = hashing.sort_and_compute_hashes({**labels, "le": "0.25"})
    assert hashing.combine_hash_excluding(with_le, ["le"]) == LABELS["with_le_combine_excluding_le"]


def test_shard_key_hashes_are_those_of_filodb() -> None:
    metric = "host_cpu_load"
    assert shard_key_hash([], metric) == LABELS["shardKeyHash_metric_only"]
    assert shard_key_hash(["prometheus"], metric) == LABELS["shardKeyHash_job_metric"]
    assert shard_key_hash(["prometheus"], None) == LABELS["shardKeyHash_target_no_metric"]
    assert shard_key_hash([], None) == LABELS["shardKeyHash_none_target_no_metric"]


@pytest.mark.parametrize(
    "example", HASHES["shard_examples_default_partition_schema"], ids=lambda example: example["metric"]
)
def test_shards_are_those_of_the_original(example: dict) -> None:
    for expected in example["shards"]:
        shard = hashing.compute_ingestion_shard(
            example["shard_key_hash"], example["partition_key_hash"], expected["num_shards"], expected["spread"]
        )
        assert shard == expected["ingestion_shard"]


def test_shards_follow_the_shard_mapper_spec() -> None:
    expected = [0x1B, 0x3B, 0x2B, 0x2B, 0x2F, 0x2F, 0x2F]
    for spread, shard in enumerate(expected):
        assert hashing.compute_ingestion_shard(0x111FCDDB, 0x9D3D772F, 64, spread) == shard
    with pytest.raises(OptionError, match="spread=7"):
        hashing.compute_ingestion_shard(0x111FCDDB, 0x9D3D772F, 64, 7)
    with pytest.raises(OptionError, match="power of two"):
        hashing.compute_ingestion_shard(1, 1, 48, 1)


def test_hashes_are_spread_evenly_over_shards() -> None:
    tops = [shard_key_hash([f"App-{i}"], f"Counter{i % 100}") >> 24 & 0xFF for i in range(10_000)]
    counts = [len(list(group)) for _, group in itertools.groupby(sorted(top & 15 for top in tops))]
    assert len(counts) == 16
    assert max(counts) / min(counts) < 2.5
