"""Values of binary columns, and hashes and shards of series by the column."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pyarrow as pa
import pytest

from sawlog import DamageError, SchemaError
from sawlog.filodb import RecordBuilder, Schemas
from sawlog.filodb.hashing import (
    combine_hash_excluding,
    compute_ingestion_shard,
    sort_and_compute_hashes,
)
from sawlog.filodb.layer import Layer
from sawlog.filodb.options import ReadOptions, WriteOptions
from sawlog.filodb.schemas import make_default_partition
from sawlog.filodb.values import ValueDecoder, ValueEncoder, decode, find_shards, hash_series

from . import golden
from .support import shard_key_hash

GAUGE = Schemas.built_in()["gauge"]
LABELS = pa.map_(pa.string(), pa.string())
SMALL = [golden.data(f"gauge_100_small_{i:02}") for i in range(8)]
COUNTS = [13] * 7 + [9]


def decoder(*, on_damage: Any = "fail", **options: Any) -> ValueDecoder:
    return pickle.loads(pickle.dumps(ValueDecoder(ReadOptions(**options), on_damage)))


def test_containers_in_a_column_are_decoded() -> None:
    values = pa.array([SMALL[0], None, *SMALL[1:], b""], pa.binary())
    rows = decoder(table=("gauge",)).decode(values)
    rows.validate(full=True)
    assert rows.value_lengths().to_pylist() == [13, None, *COUNTS[1:], 0]
    expected = golden.facts("gauge_100")["records"]
    assert rows.flatten().field("_metric_").to_pylist() == [row["_metric_"] for row in expected]
    assert decoder(table=("gauge",)).decode(values.slice(2, 2)).value_lengths().to_pylist() == COUNTS[1:3]
    assert decoder(table=("gauge",)).decode(pa.array([], pa.binary())).to_pylist() == []


def test_single_records_in_a_column_are_decoded() -> None:
    expected = golden.facts("gauge_100_partkeys")["records"]
    keys = pa.array([bytes.fromhex(row["hex"]) for row in expected])
    rows = decoder(table=("gauge",), records="partkeys", extras=("hash", "record")).decode(keys)
    assert rows.value_lengths().to_pylist() == [1] * 100
    assert rows.flatten().field("_hash").to_pylist() == [row["partition_hash"] for row in expected]
    assert rows.flatten().field("_record").equals(keys)
    example = golden.facts("external_known")["cli_test_partkey_gauge"]
    (value,) = decoder(table=("all",), records="partkeys").decode(pa.array([bytes.fromhex(example["hex"])]))[0].as_py()
    assert dict(value["tags"]) == example["tags"]
    assert value["_schema"] == "gauge"


def test_several_schemas_are_decoded() -> None:
    (rows,) = decoder(table=("all",)).decode(pa.array([golden.data("mixed_schemas_4")])).to_pylist()
    assert [row["_schema"] for row in rows] == ["gauge", "prom-counter", "prom-histogram", "preagg-gauge-v2"]
    (rows,) = decoder(table=("prom-counter",)).decode(pa.array([golden.data("mixed_schemas_4")])).to_pylist()
    assert [row["count"] for row in rows] == [2.5]
    with pytest.raises(SchemaError, match="name the schemas"):
        decoder().decode(pa.array([b""]))


@pytest.mark.parametrize("cut", [5, 20, 150, 160, 700])
def test_damaged_values_fail_or_are_skipped(cut: int) -> None:
    values = pa.array([SMALL[0], SMALL[1][:cut], SMALL[2]])
    with pytest.raises(DamageError):
        decoder(table=("gauge",)).decode(values)
    counts = decoder(table=("gauge",), on_damage="skip").decode(values).value_lengths().to_pylist()
    assert counts[0] == counts[2] == 13
    assert counts[1] == sum(
        offset + 150 < cut for offset in golden.facts("gauge_100_small")["containers"][1]["first_offsets"]
    )


def test_results_of_poison() -> None:
    short = bytearray(SMALL[1])
    short[0:4] = (4).to_bytes(4, "little")
    values = pa.array([SMALL[0], bytes(short), None, b"x" * 50, b"", SMALL[2][:700]], pa.binary())
    results = decoder(table=("gauge",)).decode_results(values)
    results.validate(full=True)
    assert results.type == decoder(table=("gauge",)).result
    result_values = results.to_pylist()
    assert [row and row["ok"] for row in result_values] == [True, False, None, False, True, False]
    assert [row and len(row["rows"]) for row in result_values][:5] == [13, 0, None, 0, 0]
    (damage,) = result_values[1]["damage"]
    assert (damage["kind"], damage["offset"], damage["count"]) == ("bad_header", 0, 1)
    assert [damage["kind"] for damage in result_values[5]["damage"]] == ["bad_container_length", "bad_record_length"]
    assert all("ends at byte 700" in damage["detail"] for damage in result_values[5]["damage"])
    with pytest.raises(DamageError, match="value 1 of the batch: bad_header at byte 0"):
        decoder(table=("gauge",)).decode(values)


def test_the_output_of_one_value_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = b"\x03\x12\x00" + struct.pack("<Hdd", 8192, 1.0, 1.0)
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    for n in range(1200):
        target.start_new_record(Schemas.built_in()["prom-histogram"])
        for add, value in ((target.add_long, n), (target.add_double, 1.0), (target.add_double, 1.0)):
            add(value)
        target.add_blob(blob)
        target.add_string("m")
        target.add_map({})
        target.end_record()
    (value,) = target.optimal_container_bytes()
    assert len(value) < 100_000
    small_decoder = decoder(table=("prom-histogram",))
    limit = 4 << 20
    monkeypatch.setattr(decode, "MAX_VALUE_BYTES", limit)
    (result,) = small_decoder.decode_results(pa.array([value])).to_pylist()
    assert not result["ok"]
    assert 0 < len(result["rows"]) < 600
    assert [damage["kind"] for damage in result["damage"]] == ["too_large"]
    parts = list(small_decoder.decode_parts(pa.array([value, b""])))
    assert sum(len(part.field("rows").flatten()) for _, part in parts) == 1200
    assert max(part.nbytes for _, part in parts) < 64 << 20
    assert [numbers.tolist() for numbers, _ in parts] == [[0]] * (len(parts) - 1) + [[1]]


def test_one_layer_makes_the_containers_of_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer and an encoder for each value took a thousand times the time of its bytes."""
    calls: list[int] = []
    begin = Layer.__init__

    def counted(self: Layer, *arguments: Any) -> None:
        calls.append(1)
        begin(self, *arguments)

    monkeypatch.setattr(Layer, "__init__", counted)
    structs = decoder(table=("gauge",)).decode(pa.array(SMALL)).flatten()
    rows = pa.concat_arrays([structs, structs.slice(0, 0), pa.nulls(1, structs.type), structs])
    options = WriteOptions(table="gauge", container_timestamp=golden.TIMESTAMP)
    values = ValueEncoder(options).encode(rows)
    assert len(calls) == 1
    assert values.null_count == 1
    assert values[100].as_py() is None
    singles = [ValueEncoder(options).encode(structs.slice(n, 1))[0].as_py() for n in range(100)]
    assert values.to_pylist() == [*singles, None, *singles]


def test_rows_to_containers_and_back() -> None:
    rows = decoder(table=("gauge",)).decode(pa.array([*SMALL, None], pa.binary()))
    encoder = ValueEncoder(WriteOptions(table="gauge", container_timestamp=golden.TIMESTAMP))
    containers = encoder.encode(rows)
    sizes = [container["num_bytes_header"] + 4 for container in golden.facts("gauge_100_small")["containers"]]
    assert containers.to_pylist() == [*(data[:size] for data, size in zip(SMALL, sizes, strict=True)), None]
    single = encoder.encode(rows.flatten())
    again = decoder(table=("gauge",)).decode(single).flatten()
    assert repr(again.to_pylist()) == repr(rows.flatten().to_pylist())
    with pytest.raises(SchemaError, match="expected structs"):
        encoder.encode(pa.array([1]))


def test_partition_hashes_are_those_of_the_original() -> None:
    records = golden.facts("gauge_100")["records"]
    columns = {
        "_metric_": pa.array([*(record["_metric_"] for record in records), None]),
        "tags": pa.array([*([tuple(p) for p in record["tags_in_insertion_order"]] for record in records), []], LABELS),
    }
    assert hash_series(columns, GAUGE).to_pylist() == [*(record["partition_hash"] for record in records), None]


def test_shards_of_columns_are_those_of_the_original() -> None:
    examples = golden.facts("hashes")["shard_examples_default_partition_schema"]
    metric = pa.array([example["metric"] for example in examples])
    labels = pa.array([[tuple(pair) for pair in example["tags"]] for example in examples], LABELS)
    for index, setting in enumerate(examples[0]["shards"]):
        shards = find_shards(metric, labels, setting["num_shards"], setting["spread"], make_default_partition())
        assert shards.to_pylist() == [example["shards"][index]["ingestion_shard"] for example in examples]


def test_shards_are_right_where_java_orders_keys_otherwise() -> None:
    labels = {"\U0001f600": "astral", "\uff5e": "bmp", "_ws_": "w", "le": "1"}
    hashed = sort_and_compute_hashes(labels)
    expected = compute_ingestion_shard(shard_key_hash(["w"], "m"), combine_hash_excluding(hashed, ["le"]), 256, 8)
    tag_array = pa.array([list(labels.items()), None], LABELS)
    assert find_shards(pa.array(["m_sum", "m"]), tag_array, 256, 8, make_default_partition()).to_pylist() == [
        expected,
        None,
    ]
