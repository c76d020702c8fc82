"""RecordBuilder, RecordContainer and RecordSchema, record by record: the golden bytes, and FiloDB's own tests."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from sawlog import FormatError, OptionError, SchemaError
from sawlog.filodb import (
    Buckets,
    Column,
    Histogram,
    MapEncoder,
    PartitionSchema,
    RecordBuilder,
    RecordContainer,
    RecordSchema,
    Schema,
    Schemas,
)
from sawlog.filodb.schemas.record import parse_columns

from . import golden

GAUGE = Schemas.built_in()["gauge"]
EDGES = {case["case"]: case for case in golden.facts("edge_cases")["cases"]}
EXTERNAL = golden.facts("external_known")
MACHINE = Schema(
    "machine",
    parse_columns(("timestamp:ts", "min:double", "avg:double", "max:double", "count:long")),
    PartitionSchema(parse_columns(("series:string",))),
)


def builder(size: int = 262144, **options: Any) -> RecordBuilder:
    return RecordBuilder(size, clock=lambda: golden.TIMESTAMP, **options)


def add_gauge(target: RecordBuilder, timestamp: int, value: float, metric: str, tags: dict[str, str]) -> int:
    target.start_new_record(GAUGE)
    target.add_long(timestamp)
    target.add_double(value)
    target.add_string(metric)
    target.add_map(tags)
    return target.end_record()


def add_machine(target: RecordBuilder, n: int) -> int:
    row = (100_000 + 1000 * n, 1.0 + n, 20.0 + n, 99.9 + n, 85 + n, f"Series {n % 10}")
    return target.add_from_reader(row, MACHINE)


def add_gauge_100(target: RecordBuilder) -> None:
    for record in golden.facts("gauge_100")["records"]:
        tags = dict(record["tags_in_insertion_order"])
        add_gauge(target, record["timestamp"], golden.number(record["value"]), record["_metric_"], tags)


def record_hex(target: RecordBuilder) -> str:
    (container,) = target.all_containers
    (record,) = container
    return record.hex()


def test_containers_are_built_as_by_the_original() -> None:
    target = builder()
    add_gauge_100(target)
    assert target.optimal_container_bytes() == [golden.data("gauge_100")]
    (container,) = target.all_containers
    for record, expected in zip(container, golden.facts("gauge_100")["records"], strict=True):
        layout = GAUGE.ingestion
        assert record.hex() == expected["hex"]
        assert layout.schema_id(record) == 2200
        assert layout.get_long(record, 0) == expected["timestamp"]
        assert repr(layout.get_double(record, 1)) == repr(golden.number(expected["value"]))
        assert layout.utf8_string(record, 2) == expected["_metric_"]
        assert layout.get_map(record, 3) == dict(expected["tags_in_insertion_order"])
        assert layout.partition_hash(record) == expected["partition_hash"]
        assert layout.compute_partition_hash(record) == expected["partition_hash"]
    assert list(container.offsets()) == [expected["offset"] for expected in golden.facts("gauge_100")["records"]]


def test_small_containers_have_the_leftovers_of_filodb() -> None:
    target = builder(2048)
    add_gauge_100(target)
    names = [
        container["file"].removesuffix(".container") for container in golden.facts("gauge_100_small")["containers"]
    ]
    assert target.optimal_container_bytes() == [golden.data(name) for name in names]
    for container, expected in zip(target.all_containers, golden.facts("gauge_100_small")["containers"], strict=True):
        assert container.num_bytes == expected["num_bytes_header"]
        assert list(container.offsets()) == expected["first_offsets"]


def test_part_keys_are_built_from_records() -> None:
    target = builder()
    source = RecordContainer(golden.data("gauge_100"))
    for record in source:
        GAUGE.ingestion.build_part_key_from_ingest(record, target)
    assert target.optimal_container_bytes() == [golden.data("gauge_100_partkeys")]
    keys = list(target.all_containers[0])
    directly = builder()
    for expected in golden.facts("gauge_100")["records"]:
        directly.start_new_record(GAUGE.part_key, GAUGE.schema_id)
        directly.add_string(expected["_metric_"])
        directly.add_map(dict(expected["tags_in_insertion_order"]))
        directly.end_record()
    assert directly.optimal_container_bytes() == target.optimal_container_bytes()
    for i, record in enumerate(source):
        for j, key in enumerate(keys):
            is_equal = bytes(GAUGE.part_key.blob(keys[i], 1)) == bytes(GAUGE.part_key.blob(key, 1))
            assert GAUGE.ingestion.partition_match(record, key) is (is_equal and i % 3 == j % 3)


def test_records_with_histograms() -> None:
    facts = golden.facts("otel_exp_delta_histogram_10")
    schema = Schemas.built_in()["otel-exp-delta-histogram"]
    target = builder()
    for fact in facts["records"]:
        buckets = Buckets.exponential(fact["scale"], fact["start_index_positive"], fact["num_positive"])
        histogram = Histogram(buckets, tuple(fact["values_with_zero_bucket_first"]))
        row = (fact["timestamp"], fact["sum"], fact["count"], histogram, fact["min"], fact["max"], facts["metric"])
        target.add_from_reader((*row, facts["tags"]), schema)
    assert target.optimal_container_bytes() == [golden.data("otel_exp_delta_histogram_10")]
    for record, fact in zip(target.all_containers[0], facts["records"], strict=True):
        histogram_bytes = schema.ingestion.get_histogram(record, 3)
        assert histogram_bytes.values == tuple(fact["values_with_zero_bucket_first"])
        assert list(histogram_bytes.buckets.tops) == pytest.approx(golden.numbers(fact["bucket_tops"]), rel=1e-15)


def test_variable_data_columns_and_long_partition_columns_are_built() -> None:
    facts = golden.facts("str_long_12")
    schema = golden.STR_LONG
    target, keys = builder(), builder()
    for fact in facts["records"]:
        histogram = Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(fact["h_values_geometric_1_2_8"]))
        row = (fact["timestamp"], fact["s"], histogram, fact["n"], fact["ps"], fact["pl"])
        target.add_from_reader(row, schema)
    assert target.optimal_container_bytes() == [golden.data("str_long_12")]
    for record, fact in zip(target.all_containers[0], facts["records"], strict=True):
        assert schema.ingestion.partition_hash(record) == fact["partition_hash"]
        schema.ingestion.build_part_key_from_ingest(record, keys)
    assert keys.optimal_container_bytes() == [golden.data("str_long_12_partkeys")]


def test_records_without_partition_columns() -> None:
    target = builder()
    for fact in golden.facts("no_partition_5")["records"]:
        target.add_from_reader((fact["timestamp"], fact["value"], fact["s"], fact["n"]), golden.RESULT)
    assert target.optimal_container_bytes() == [golden.data("no_partition_5")]
    record = next(iter(target.all_containers[0]))
    assert golden.RESULT.ingestion.stringify(record) == "b2[ timestamp=1700000000000,value=0.0,s=,n=0]"
    with pytest.raises(SchemaError, match="no partition hash"):
        golden.RESULT.ingestion.partition_hash(record)


def test_several_schemas_are_built_in_one_container() -> None:
    schemas = Schemas.built_in()
    target = builder()
    tags = {"_ws_": "w", "_ns_": "n"}
    histogram = Histogram(Buckets.custom([1.0, 2.0, float("inf")]), (1.0, 3.0, 4.0))
    start = golden.TIMESTAMP
    target.add_from_reader((start, 1.5, "m1", tags), schemas["gauge"])
    target.add_from_reader((start + 1, 2.5, "m2", tags), schemas["prom-counter"])
    target.add_from_reader((start + 2, 3.0, 4.0, histogram, "m3", {**tags, "le": "x"}), schemas["prom-histogram"])
    target.add_from_reader((start + 3, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, "m4", {}), schemas["preagg-gauge-v2"])
    assert target.optimal_container_bytes() == [golden.data("mixed_schemas_4")]
    for record, fact in zip(target.all_containers[0], golden.facts("mixed_schemas_4")["records"], strict=True):
        schema = schemas.by_id(GAUGE.ingestion.schema_id(record))
        assert schema is not None
        assert schema.name == fact["schema"]
        assert schema.ingestion.stringify(record, schema.name) == fact["stringified"]


def test_one_hundred_thousand_records_have_filodbs_checksum() -> None:
    facts = golden.facts("bench_gauge")
    target = builder()
    maps = []
    for k in range(1000):
        tags = {"_ws_": "demo", "_ns_": f"App-{k % 4}", "instance": f"Instance-{k}", "host": f"H{k % 20}"}
        tags |= {"dc": f"DC{k % 3}", "cloudProvider": "AmazonAWS", "region": "us-west-2", "job": "node-exporter"}
        maps.append(tags)
    for i in range(2000):
        add_gauge(target, golden.TIMESTAMP + i, i * 0.25, "heap_usage0", maps[i % 1000])
    first = golden.data("bench_gauge_first_262144")
    assert target.non_current_container_bytes() == [first]
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(bytes(target.containers[0])).hexdigest()
    assert len(target.all_containers[0]) == facts["records_per_container"][0]


@pytest.mark.parametrize(
    "expected", golden.facts("hashes")["string_only_partkey_schema_id_123"], ids=lambda e: e["s"][:9]
)
def test_string_part_keys_are_built(expected: dict) -> None:
    layout = RecordSchema(["series:string"], 0)
    for add in ("add_string", "add_slowly"):
        target = builder()
        target.start_new_record(layout, 123)
        getattr(target, add)(expected["s"])
        target.end_record()
        assert record_hex(target) == expected["hex"]
    target.start_new_record(layout, 123)
    target.add_blob(expected["s"].encode())
    target.end_record()
    assert list(target.all_containers[0])[1].hex() == expected["hex"]


def test_literals_of_filodbs_readme_and_tests() -> None:
    prometheus = EXTERNAL["readme_partkey_prom_counter"]
    for example in (prometheus, EXTERNAL["cli_test_partkey_gauge"]):
        schema = Schemas.built_in().by_id(example["schema_id"])
        assert schema is not None
        # The production key was written when predefined key 9 was `_step_`: as an ordinary key it has other bytes.
        target = builder()
        target.start_new_record(schema.part_key, example["schema_id"])
        target.add_string(example["metric"])
        target.add_map(example["tags"])
        target.end_record()
        assert record_hex(target) == example["hex"]
    record = bytes.fromhex(prometheus["hex"])
    layout = Schemas.built_in()["prom-counter"].part_key
    text = "b2[schema=prom-counter  _metric_=myMetricName,tags={_ns_: myNs, _ws_: myWs}]"
    assert layout.stringify(record, "prom-counter") == text


def test_hashes_of_the_producers_own() -> None:
    from sawlog.filodb.hashing import hash_bytes

    example = EXTERNAL["influx_style_endMap_false"]
    target = builder()
    target.start_new_record(GAUGE)
    target.add_long(1)
    target.add_double(9.0)
    target.add_string("cpu")
    target.start_map()
    target.add_map_key_value("_ns_", "n")
    target.add_map_key_value("host", "h")
    target.update_partition_hash(hash_bytes(example["extra_hash_text"].encode()))
    target.end_map(bulk_hash=False)
    target.end_record()
    assert record_hex(target)[40:] == example["hex"][40:]
    record = bytes.fromhex(example["hex"])
    assert GAUGE.ingestion.partition_hash(record) == example["partition_hash"]
    assert GAUGE.ingestion.compute_partition_hash(record) != example["partition_hash"]

    example = EXTERNAL["addMapKeyValueHash_endMap_false"]
    target = builder()
    target.start_new_record(GAUGE)
    target.add_long(GAUGE.ingestion.get_long(bytes.fromhex(example["hex"]), 0))
    target.add_double(GAUGE.ingestion.get_double(bytes.fromhex(example["hex"]), 1))
    target.add_string("cpu")
    target.start_map()
    target.add_map_key_value_hash("_ns_", "n")
    target.add_map_key_value_hash("host", "h")
    target.end_map(bulk_hash=False)
    target.end_record()
    assert record_hex(target) == example["hex"]


def edge(case: str) -> Any:
    return EDGES[case]["result"]


@pytest.mark.parametrize(
    ("case", "tags"),
    [
        ("map key 191 bytes", {"k" * 191: "v"}),
        ("empty map", {}),
        ("empty key", {"": "v"}),
        ("empty value", {"k": ""}),
        ("predefined keys all", {key: f"v_{key}" for key in GAUGE.ingestion.predefined_keys}),
        (
            "key that is 8 bytes with same bytes as a predefined key",
            {"instance": "x", "instances": "y", "exporter": "z"},
        ),
        ("addMap sort: byte order vs UTF-16 order", {"\U0001f600": "astral", "\uff5e": "bmp"}),
    ],
)
def test_maps_are_encoded_as_by_the_original(case: str, tags: dict[str, str]) -> None:
    target = builder()
    add_gauge(target, 1, 2.0, "m", tags)
    assert record_hex(target) == edge(case)["hex"]
    record = next(iter(target.all_containers[0]))
    if "iterated_pairs" in edge(case):
        assert list(GAUGE.ingestion.map_items(record, 3)) == [tuple(pair) for pair in edge(case)["iterated_pairs"]]


def test_map_in_the_order_of_java() -> None:
    target = builder()
    target.start_new_record(GAUGE)
    target.add_long(1)
    target.add_double(2.0)
    target.add_string("m")
    target.encode_map_from({"\U0001f600": "astral", "\uff5e": "bmp"})
    target.end_record()
    assert record_hex(target) == edge("encodeMapFrom sort: TreeMap UTF-16 order")["hex"]


def test_a_key_with_leading_nul_is_not_a_predefined_key() -> None:
    """FiloDB takes it for one; the bytes decide here. See "Where FiloDB has bugs" in the documentation."""
    target = builder()
    add_gauge(target, 1, 2.0, "m", {"\0app": "nul", "zz": "y"})
    record = next(iter(target.all_containers[0]))
    assert GAUGE.ingestion.get_map(record, 3) == {"\0app": "nul", "zz": "y"}
    assert (
        record.hex()
        != edge("leading NUL key collides with predefined key app (keyKey is the big-endian number)")["hex"]
    )


def test_records_of_primitives_are_hashed_as_by_the_original() -> None:
    layout = RecordSchema(["a:long", "b:int"], 0)
    target = builder()
    target.add_from_reader((4, 3), layout, 9)
    digits = record_hex(target)
    expected = edge("primitive-only partition key: hash")
    assert layout.partition_hash(bytes.fromhex(expected["hex"])) == layout.partition_hash(bytes.fromhex(digits)) == 7
    assert digits == expected["hex"]

    big = bytes.fromhex(edge("schema id >= 32768 round trip")["hex"])
    assert RecordSchema(["s:string"], 0).schema_id(big) == edge("schema id >= 32768 round trip")["schema_id"]

    assert builder().optimal_container_bytes() == []
    reused = builder(reuse_one_container=True)
    assert len(reused.containers) == 1
    assert reused.all_containers[0].is_empty
    assert reused.optimal_container_bytes() == []


def test_downsampling_takes_the_hash_along() -> None:
    expected = edge("addPartKeyRecordFields with map (downsample path)")
    target = builder()
    ds = Schemas.built_in()["ds-gauge"]
    add_gauge(target, 1, 2.0, "m", {"_ws_": "w", "job": "j"})
    GAUGE.ingestion.build_part_key_from_ingest(next(iter(target.all_containers[0])), target)
    expected_bytes = bytes.fromhex(expected["ds_hex"])
    metric, tags = ds.ingestion.utf8_string(expected_bytes, 6), ds.ingestion.get_map(expected_bytes, 7)
    target = builder()
    add_gauge(target, 1, 2.0, metric, tags)
    (record,) = target.all_containers[0]
    assert GAUGE.ingestion.partition_hash(record) == expected["ingest_hash"]
    target.start_new_record(ds)
    for index in range(6):
        target.add_slowly(ds.ingestion.get(expected_bytes, index))
    target.add_part_key_fields(bytes(record), GAUGE.ingestion)
    target.end_record()
    assert list(target.all_containers[0])[1].hex() == expected["ds_hex"]


def call(target: RecordBuilder, steps: list[tuple]) -> None:
    for name, *arguments in steps:
        getattr(target, name)(*arguments)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([("add_int", 1)], "no record was started"),
        ([("start_new_record", GAUGE), ("add_int", 1)], "'timestamp', is ts, not int"),
        ([("start_new_record", GAUGE), ("add_double", 1.0)], "'timestamp', is ts, not double"),
        ([("start_new_record", GAUGE), ("add_long", "1")], "found str '1'"),
        ([("start_new_record", GAUGE), ("add_long", True)], "found bool True"),
        ([("start_new_record", GAUGE), ("add_long", 1 << 63)], "does not fit ts"),
        ([("start_new_record", GAUGE), ("add_slowly", "x")], "found str 'x'"),
        ([("start_new_record", GAUGE), ("add_long", 1), ("end_record",)], "missing: value, _metric_, tags"),
        ([("start_new_record", GAUGE.ingestion)], "a schema ID is given where"),
        ([("start_new_record", golden.RESULT.ingestion, 4)], "a schema ID is given where"),
        ([("start_new_record", GAUGE.ingestion, 65536)], "expected 0 to 65535"),
        ([("start_new_record", GAUGE), ("add_map_key_value", "a", "b")], "no map was started"),
    ],
)
def test_calls_out_of_order_are_refused(steps: list[tuple], message: str) -> None:
    target = builder()
    with pytest.raises(SchemaError, match=message):
        call(target, steps)
    assert target.optimal_container_bytes() == []


def at_map(target: RecordBuilder) -> None:
    target.start_new_record(GAUGE)
    target.add_long(1)
    target.add_double(2.0)
    target.add_string("m")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([("add_map", {"k" * 192: "v"})], "a key has at most 191"),
        ([("add_map", {"k": "v" * 65536})], "a value has at most 65535"),
        ([("add_map", {"k": "v" * 65532})], "65536 bytes of entries"),
        ([("start_map",), ("add_map_key_value", "k", "v" * 65532)], "65536 bytes of entries"),
        ([("start_map",), ("start_map",)], "a map was started"),
        ([("start_map",), ("end_record",)], "the map was not ended"),
        ([("add_map", {}), ("add_int", 1)], "all 4 columns are filled"),
        ([("add_string", "x")], "is map, not string"),
    ],
)
def test_a_map_that_is_refused_leaves_the_builder_usable(steps: list[tuple], message: str) -> None:
    target = builder()
    at_map(target)
    with pytest.raises(SchemaError, match=message):
        call(target, steps)
    add_gauge(target, 1, 2.0, "m", {})  # the builder goes on
    assert record_hex(target) == edge("empty map")["hex"]


def test_values_beyond_limits_are_refused() -> None:
    target = builder()
    target.start_new_record(GAUGE)
    target.add_long(1)
    target.add_double(2.0)
    with pytest.raises(SchemaError, match="65536 bytes; at most 65535"):
        target.add_string("x" * 65536)
    target.add_string("x" * 65535)
    target.add_map({"k": "v" * 65531})
    target.end_record()
    record = next(iter(target.all_containers[0]))
    assert len(GAUGE.ingestion.blob(record, 2)) == 65535
    assert GAUGE.ingestion.get_map(record, 3) == {"k": "v" * 65531}  # FiloDB itself reads an empty map here
    with pytest.raises(OptionError, match="container_size=2047"):
        builder(2047)
    with pytest.raises(OptionError, match="multiple of 4"):
        builder(2050)
    small = builder(2048)
    with pytest.raises(SchemaError, match="too long for containers of 2048"):
        add_gauge(small, 1, 2.0, "x" * 3000, {})
    assert small.optimal_container_bytes() == []


def test_a_full_container_is_followed_by_another() -> None:
    target = builder(2048)
    for n in range(31):
        add_machine(target, n)
    assert [len(record) for record in target.all_containers[0]] == [64] * 31
    add_machine(target, 31)
    assert [container.num_bytes for container in target.all_containers] == [12 + 31 * 64, 76]
    assert [len(container) for container in target.non_current_container_bytes()] == [2048]
    assert [len(container) for container in target.optimal_container_bytes(reset=True)] == [2048, 80]
    assert target.optimal_container_bytes() == []
    assert len(target.containers) == 1


def test_one_container_is_reused() -> None:
    target = builder(2048, reuse_one_container=True)
    for n in range(32):
        add_machine(target, n)
    assert [container.num_bytes for container in target.all_containers] == [76]
    assert len(target.all_containers[0]) == 1


def test_a_reset_builder_begins_again() -> None:
    times = iter((5, 6))
    target = RecordBuilder(clock=lambda: next(times))
    for n in range(10):
        add_machine(target, n)
    assert target.all_containers[0].num_bytes == 12 + 640
    mins = [MACHINE.ingestion.get_double(record, 1) for record in target.all_containers[0]]
    assert mins == [float(n) for n in range(1, 11)]
    assert len(target.optimal_container_bytes(reset=True)) == 1
    container = target.current_container
    assert container is not None
    assert (container.num_bytes, container.is_empty, container.timestamp) == (12, True, 6)
    for n in range(9):
        add_machine(target, n)
    assert target.all_containers[0].num_bytes == 12 + 576


def test_half_a_record_is_dropped() -> None:
    target = builder()
    at_map(target)
    target.start_new_record(GAUGE)
    add_gauge(target, 1, 2.0, "m", {})
    assert len(target.all_containers[0]) == edge("partial record then startNewRecord rewinds: records counted")


def test_partition_columns_of_every_type() -> None:
    """FiloDB's own extraction is wrong where a long or double comes before a string or map; this one is not."""
    columns = ("a:long", "b:string", "c:double", "d:int", "e:ts", "tags:map")
    schema = Schema("mixed", parse_columns(("timestamp:ts", "v:string")), PartitionSchema(parse_columns(columns)))
    target, keys, directly = builder(), builder(), builder()
    rows = [(n, "x" * (n % 5), n // 2, f"s{n % 3}", n / 4, n % 2, 1000 + n % 2, {"n": str(n)}) for n in range(25)]
    for row in rows:
        target.add_from_reader(row, schema)
        directly.add_from_reader(row[2:], schema.part_key, schema.schema_id)
    records = list(target.all_containers[0])
    for record in records:
        schema.ingestion.build_part_key_from_ingest(record, keys)
    assert keys.optimal_container_bytes() == directly.optimal_container_bytes()
    for i, record in enumerate(records):
        for j, key in enumerate(keys.all_containers[0]):
            assert schema.ingestion.partition_match(record, key) is (i == j)


def test_records_are_nested_in_records() -> None:
    inner = RecordSchema(["name:string", "n:int"])
    outer = RecordSchema([Column("timestamp", "ts"), Column("series", "br", schema=inner)])
    target = builder()
    target.add_from_reader(("job", 4), inner)
    nested = bytes(next(iter(target.all_containers[0])))
    target.reset()
    target.add_from_reader((5, nested), outer)
    record = next(iter(target.all_containers[0]))
    assert outer.to_dict(record) == {"timestamp": 5, "series": {"name": "job", "n": 4}}
    assert outer.stringify(record) == "b2[ timestamp=5,series=b2[ name=job,n=4]]"


def test_records_that_are_too_short_are_refused() -> None:
    good = bytes.fromhex(golden.facts("gauge_100")["records"][0]["hex"])
    layout = GAUGE.ingestion
    with pytest.raises(FormatError, match="fewer than a length field"):
        layout.num_bytes(b"abc")
    with pytest.raises(FormatError, match="expected 34 to 144"):
        layout.num_bytes(b"\xff\xff\0\0" + good[4:])
    with pytest.raises(FormatError, match="pointer 4096; expected 34 to 142"):
        layout.utf8_string(good[:22] + b"\0\x10\0\0" + good[26:], 2)
    with pytest.raises(FormatError, match="run over its end at 144"):
        layout.utf8_string(good[:34] + b"\xff\xff" + good[36:], 2)
    with pytest.raises(FormatError, match="not UTF-8"):
        layout.utf8_string(good[:36] + b"\xff" + good[37:], 2)
    with pytest.raises(FormatError, match="predefined key number 63"):
        layout.get_map(good[:49] + b"\xff" + good[50:], 3)
    with pytest.raises(FormatError, match="runs over the end"):
        layout.get_map(good[:49] + b"\xb0" + good[50:], 3)
    with pytest.raises(SchemaError, match="'value' is double, not long"):
        layout.get_long(good, 1)
    with pytest.raises(FormatError, match="version 2"):
        RecordContainer(b"\x0c\0\0\0\0\0\0\2" + bytes(8))
    with pytest.raises(FormatError, match="length 99"):
        RecordContainer(b"\x63\0\0\0\0\0\0\1" + bytes(8))
    with pytest.raises(FormatError, match="record at byte 16 has length 77"):
        list(RecordContainer(b"\x10\0\0\0\0\0\0\1" + bytes(8) + b"\x4d\0\0\0"))


TAG_MAPS = [
    {"_ns_": "ns", "_ws_": "ws", "a": "1"},
    {"k" * 100: "v" * 100, "x": "y" * 500},
    {"k" * 80: "v" * 500, "long_label_name_that_is_verbose": "z"},
    {"_ws_": "demo", "host": "h", "job": "j", "zone": ""},
    {"_ws_": "demo", "_ns_": "App-0"},
    {"名前空間": "作業空間", "é": "München", "_NS_": "1", "_ns": "2", "ns_": "3", "0start": "", "Azure": "a"},
]


@pytest.mark.parametrize("tags", TAG_MAPS)
def test_maps_are_decoded_as_they_were_encoded(tags: dict[str, str]) -> None:
    encoder = MapEncoder(GAUGE.ingestion.predefined_keys)
    encoded = encoder.encode(tags)
    assert encoder.decode(encoded) == tags
    assert list(encoder.decode(encoded)) == sorted(tags)
    first, two, three = builder(), builder(), builder()
    add_gauge(first, 1, 2.0, "m", tags)
    at_map(two)
    two.add_encoded_map(encoded)
    two.end_record()
    at_map(three)
    three.start_map()
    for key in sorted(tags, key=str.encode):
        three.add_map_key_value(key, tags[key])
    three.end_map()
    three.end_record()
    assert record_hex(first) == record_hex(two) == record_hex(three)


def test_map_encoder_edges() -> None:
    encoder = MapEncoder(GAUGE.ingestion.predefined_keys)
    assert encoder.encode({}) == b""
    assert encoder.decode(b"") == {}
    assert len(encoder.encode({"_ws_": "x"})) < len(MapEncoder().encode({"_ws_": "x"}))
    with pytest.raises(SchemaError, match="at most 65535"):
        encoder.encode({"a": "x" * 40000, "b": "x" * 40000})
