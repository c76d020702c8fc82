"""Values of binary columns, and hashes and shards of series by the column."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from sawlog import DamageError, SchemaError
from sawlog.filodb_record import Schemas
from sawlog.filodb_record.hashing import (
    combine_hash_excluding,
    ingestion_shard,
    shard_key_hash,
    sort_and_compute_hashes,
)
from sawlog.filodb_record.options import ReadOptions, WriteOptions
from sawlog.filodb_record.schemas import default_partition
from sawlog.filodb_record.values import ValueDecoder, ValueEncoder, partition_hashes, shards

from . import golden

GAUGE = Schemas.built_in()["gauge"]
LABELS = pa.map_(pa.string(), pa.string())
SMALL = [golden.data(f"gauge_100_small_{i:02}") for i in range(8)]
COUNTS = [13] * 7 + [9]


def decoder(*, on_damage: Any = "fail", **options: Any) -> ValueDecoder:
    return pickle.loads(pickle.dumps(ValueDecoder(ReadOptions(**options), on_damage)))


def test_containers() -> None:
    values = pa.array([SMALL[0], None, *SMALL[1:], b""], pa.binary())
    rows = decoder(schema=("gauge",)).decode(values)
    rows.validate(full=True)
    assert rows.value_lengths().to_pylist() == [13, None, *COUNTS[1:], 0]
    expected = golden.facts("gauge_100")["records"]
    assert rows.flatten().field("_metric_").to_pylist() == [one["_metric_"] for one in expected]
    assert decoder(schema=("gauge",)).decode(values.slice(2, 2)).value_lengths().to_pylist() == COUNTS[1:3]
    assert decoder(schema=("gauge",)).decode(pa.array([], pa.binary())).to_pylist() == []


def test_single_records() -> None:
    expected = golden.facts("gauge_100_partkeys")["records"]
    keys = pa.array([bytes.fromhex(one["hex"]) for one in expected])
    rows = decoder(schema=("gauge",), records="partkeys", extras=("hash", "record")).decode(keys)
    assert rows.value_lengths().to_pylist() == [1] * 100
    assert rows.flatten().field("_hash").to_pylist() == [one["partition_hash"] for one in expected]
    assert rows.flatten().field("_record").equals(keys)
    known = golden.facts("external_known")["cli_test_partkey_gauge"]
    (found,) = decoder(schema=("all",), records="partkeys").decode(pa.array([bytes.fromhex(known["hex"])]))[0].as_py()
    assert dict(found["tags"]) == known["tags"]
    assert found["_schema"] == "gauge"


def test_several_schemas() -> None:
    (rows,) = decoder(schema=("all",)).decode(pa.array([golden.data("mixed_schemas_4")])).to_pylist()
    assert [row["_schema"] for row in rows] == ["gauge", "prom-counter", "prom-histogram", "preagg-gauge-v2"]
    (rows,) = decoder(schema=("prom-counter",)).decode(pa.array([golden.data("mixed_schemas_4")])).to_pylist()
    assert [row["count"] for row in rows] == [2.5]
    with pytest.raises(SchemaError, match="name the schemas"):
        decoder().decode(pa.array([b""]))


@pytest.mark.parametrize("cut", [5, 20, 150, 160, 700])
def test_damage(cut: int) -> None:
    values = pa.array([SMALL[0], SMALL[1][:cut], SMALL[2]])
    with pytest.raises(DamageError):
        decoder(schema=("gauge",)).decode(values)
    counts = decoder(schema=("gauge",), on_damage="skip").decode(values).value_lengths().to_pylist()
    assert counts[0] == counts[2] == 13
    assert counts[1] == sum(
        offset + 150 < cut for offset in golden.facts("gauge_100_small")["containers"][1]["first_offsets"]
    )


def test_rows_to_containers_and_back() -> None:
    given = decoder(schema=("gauge",)).decode(pa.array([*SMALL, None], pa.binary()))
    encoder = ValueEncoder(WriteOptions(schema="gauge", container_timestamp=golden.TIMESTAMP))
    made = encoder.encode(given)
    sizes = [one["num_bytes_header"] + 4 for one in golden.facts("gauge_100_small")["containers"]]
    assert made.to_pylist() == [*(data[:size] for data, size in zip(SMALL, sizes, strict=True)), None]
    single = encoder.encode(given.flatten())
    again = decoder(schema=("gauge",)).decode(single).flatten()
    assert repr(again.to_pylist()) == repr(given.flatten().to_pylist())
    with pytest.raises(SchemaError, match="expected structs"):
        encoder.encode(pa.array([1]))


def test_partition_hashes() -> None:
    records = golden.facts("gauge_100")["records"]
    columns = {
        "_metric_": pa.array([*(one["_metric_"] for one in records), None]),
        "tags": pa.array([*([tuple(p) for p in one["tags_in_insertion_order"]] for one in records), []], LABELS),
    }
    assert partition_hashes(columns, GAUGE).to_pylist() == [*(one["partition_hash"] for one in records), None]


def test_shards() -> None:
    examples = golden.facts("hashes")["shard_examples_default_partition_schema"]
    metric = pa.array([one["metric"] for one in examples])
    labels = pa.array([[tuple(pair) for pair in one["tags"]] for one in examples], LABELS)
    for at, setting in enumerate(examples[0]["shards"]):
        found = shards(metric, labels, setting["num_shards"], setting["spread"], default_partition())
        assert found.to_pylist() == [one["shards"][at]["ingestion_shard"] for one in examples]


def test_shards_where_java_orders_keys_otherwise() -> None:
    labels = {"\U0001f600": "astral", "\uff5e": "bmp", "_ws_": "w", "le": "1"}
    hashed = sort_and_compute_hashes(labels)
    expected = ingestion_shard(shard_key_hash(["w"], "m"), combine_hash_excluding(hashed, ["le"]), 256, 8)
    given = pa.array([list(labels.items()), None], LABELS)
    assert shards(pa.array(["m_sum", "m"]), given, 256, 8, default_partition()).to_pylist() == [expected, None]
