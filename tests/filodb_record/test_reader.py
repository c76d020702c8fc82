"""Files and views: the golden containers by the column, schemas mixed, chosen, unknown, part keys, nested records."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog import DamageError, DamageWarning, OptionError, SchemaError
from sawlog.filodb import (
    Buckets,
    Column,
    Histogram,
    RecordBuilder,
    RecordSchema,
    Schema,
    Schemas,
)
from sawlog.filodb.kernels import maps
from sawlog.filodb.schemas.record import parse_columns

from . import golden

BUILT_IN = Schemas.built_in()
GAUGE = BUILT_IN["gauge"]
WITH_RESULT = Schemas([*BUILT_IN.values(), golden.RESULT])
SMALL = [golden.path(f"gauge_100_small_{i:02}") for i in range(8)]


def builder(size: int = 262144) -> RecordBuilder:
    return RecordBuilder(size, clock=lambda: golden.TIMESTAMP)


def write_container(place: Path, *parts: bytes) -> str:
    place.write_bytes(b"".join(parts))
    return str(place)


def milliseconds(column: pa.ChunkedArray) -> list[int]:
    return column.cast(pa.int64()).to_pylist()


def assert_gauge_100(table: pa.Table) -> None:
    expected = golden.facts("gauge_100")["records"]
    table.validate(full=True)
    assert table.schema.names == ["timestamp", "value", "_metric_", "tags"]
    assert milliseconds(table["timestamp"]) == [row["timestamp"] for row in expected]
    assert list(map(repr, table["value"].to_pylist())) == [repr(golden.number(row["value"])) for row in expected]
    assert table["_metric_"].to_pylist() == [row["_metric_"] for row in expected]
    tags = [sorted(map(tuple, row["tags_in_insertion_order"]), key=lambda pair: pair[0].encode()) for row in expected]
    assert table["tags"].to_pylist() == tags


def test_rows_are_those_that_the_original_wrote() -> None:
    assert_gauge_100(sawlog.read(golden.path("gauge_100")))


def test_types_of_columns_follow_the_schema() -> None:
    schema = sawlog.open(golden.path("otel_exp_delta_histogram_10")).schema
    assert schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    assert schema.field("tags").type == pa.map_(pa.string(), pa.string())
    assert [child.name for child in schema.field("h").type] == ["tops", "values", "buckets"]
    assert schema.field("sum").metadata[b"sawlog.type"] == b"sum:double:{detectDrops=false,delta=true}"
    assert not schema.field("sum").nullable


@pytest.mark.parametrize("container_size", [None, 2048])
def test_whole_containers_back_to_back(tmp_path: Path, container_size: int | None) -> None:
    path = write_container(tmp_path / "a.container", *(Path(file).read_bytes() for file in SMALL))
    assert_gauge_100(sawlog.read(path, container_size=container_size))
    (report,) = sawlog.verify(path).files
    unused = sum(
        2048 - 4 - container["num_bytes_header"] for container in golden.facts("gauge_100_small")["containers"][:-1]
    )
    assert report.account.padding == unused
    assert report.account.header == 8 * 16
    assert not report.damaged
    containers = sawlog.read(path, view="frames", provenance=True)
    assert containers["num_records"].to_pylist() == [13] * 7 + [9]
    assert containers["_offset"].to_pylist() == [2048 * i for i in range(8)]
    assert containers["num_bytes"].to_pylist() == [
        container["num_bytes_header"] for container in golden.facts("gauge_100_small")["containers"]
    ]
    assert set(milliseconds(containers["timestamp"])) == {golden.TIMESTAMP}


def test_trimmed_containers_and_several_files(tmp_path: Path) -> None:
    sizes = [container["num_bytes_header"] + 4 for container in golden.facts("gauge_100_small")["containers"]]
    trimmed = [Path(file).read_bytes()[:size] for file, size in zip(SMALL, sizes, strict=True)]
    assert_gauge_100(sawlog.read(write_container(tmp_path / "a.container", *trimmed)))
    assert_gauge_100(sawlog.read(SMALL))
    for number, part in enumerate(trimmed):
        write_container(
            tmp_path / "d" / f"{number}.container" if (tmp_path / "d").mkdir(exist_ok=True) is None else tmp_path, part
        )
    assert_gauge_100(sawlog.read(tmp_path / "d"))


def test_a_size_of_whole_containers_that_cannot_be_guessed(tmp_path: Path) -> None:
    target = builder(3000)
    for n in range(100):
        target.add_from_reader((n, float(n), "metric", {"n": str(n)}), GAUGE)
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    assert sawlog.read(path, container_size=3000)["value"].to_pylist() == [float(n) for n in range(100)]
    with pytest.raises(DamageError, match="expected a container header"):
        sawlog.read(path)
    with pytest.warns(sawlog.DamageWarning):
        assert sawlog.read(path, on_damage="skip")["value"].to_pylist() == [float(n) for n in range(100)]


def test_histograms_are_read_with_statistics_and_quantiles() -> None:
    facts = golden.facts("otel_exp_delta_histogram_10")["records"]
    path = golden.path("otel_exp_delta_histogram_10")
    table = sawlog.read(path, statistics=["count", "sum"], quantiles=[0.5, 0.95])
    table.validate(full=True)
    for row, fact in zip(table["h"].to_pylist(), facts, strict=True):
        buckets = Buckets.exponential(fact["scale"], fact["start_index_positive"], fact["num_positive"])
        histogram = Histogram(buckets, tuple(fact["values_with_zero_bucket_first"]))
        assert row["values"] == list(histogram.values)
        assert row["tops"] == pytest.approx(golden.numbers(fact["bucket_tops"]), rel=1e-15)
        assert row["tops"] == list(buckets.tops)
        assert row["buckets"] == b"\x09" + buckets.definition
        assert row["count"] == histogram.count
        expected = [histogram.quantile(q) for q in (0.5, 0.95)]
        assert row["quantiles"] == pytest.approx(expected, rel=1e-14, nan_ok=True)
        assert row["tops"][0] * row["count"] <= row["sum"] <= row["tops"][-1] * row["count"]
    blobs = sawlog.read(path, histograms="binary")["h"].to_pylist()
    assert [(len(b).to_bytes(2, "little") + b).hex() for b in blobs] == [
        fact["hist_blob_hex_with_len"] for fact in facts
    ]


@pytest.mark.parametrize("group", ["long_delta", "double_xor"])
def test_every_kind_of_histogram(tmp_path: Path, group: str) -> None:
    cases = golden.facts("binary_histogram")[group]
    schema = Schema("h", parse_columns(("timestamp:ts", "h:hist:counter=false")), GAUGE.partition)
    target = builder()
    for case in cases:
        target.start_new_record(schema)
        target.add_long(1)
        target.add_blob(bytes.fromhex(case["hex"])[2:])
        target.add_string("m")
        target.add_map({})
        target.end_record()
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    options = {"schema": Schemas([schema]), "quantiles": (0.9,), "statistics": ("count",)}
    values = sawlog.read(path, **options)["h"].to_pylist()
    for row, case in zip(values, cases, strict=True):
        histogram = Histogram.decode(bytes.fromhex(case["hex"])[2:])
        assert row["values"] == golden.numbers(case["values"]) == list(histogram.values)
        assert row["tops"] == list(histogram.buckets.tops)
        if "bucket_tops" in case:
            assert row["tops"] == pytest.approx(golden.numbers(case["bucket_tops"]), rel=1e-15)
        assert row["quantiles"] == pytest.approx([histogram.quantile(0.9)], rel=1e-14, nan_ok=True)
        assert row["count"] == pytest.approx(histogram.count, nan_ok=True)
    again = tmp_path / "b.container"
    sawlog.write(
        sawlog.read(path, schema=Schemas([schema])),
        again,
        format="filodb_record",
        container_timestamp=golden.TIMESTAMP,
    )
    assert again.read_bytes() == Path(path).read_bytes()


def test_sums_are_estimates_from_the_middles() -> None:
    from sawlog.filodb.kernels.histograms import compute_totals

    np = pytest.importorskip("numpy")
    counts, sums = np.zeros(2), np.zeros(2)
    tops = np.array([1.0, 2.0, math.inf])
    compute_totals(np.array([0, 3, 3], np.int32), tops, np.array([2.0, 5.0, 6.0]), counts, sums)
    assert counts[0] == 6
    assert sums[0] == 2 * 0.5 + 3 * 1.5 + 1 * 2.0
    assert math.isnan(sums[1])


def test_several_schemas_are_read_from_one_container() -> None:
    path = golden.path("mixed_schemas_4")
    table = sawlog.read(path)
    table.validate(full=True)
    names = ["gauge", "prom-counter", "prom-histogram", "preagg-gauge-v2"]
    assert table["_schema"].to_pylist() == names
    assert table["value"].to_pylist() == [1.5, None, None, None]
    assert table["count"].to_pylist() == [None, 2.5, 4.0, 1.0]
    assert [h and h["values"] for h in table["h"].to_pylist()] == [None, None, [1.0, 3.0, 4.0], None]
    assert table["tags"].to_pylist()[3] == []
    assert table.schema.names[-2:] == ["_metric_", "tags"]
    result_table = sawlog.read(path, table="prom-counter", extras="schema_id,hash,container_timestamp,schema")
    assert result_table.select(["count", "_schema", "_schema_id", "_hash"]).to_pylist() == [
        {"count": 2.5, "_schema": "prom-counter", "_schema_id": 5903, "_hash": 711221565}
    ]
    assert milliseconds(result_table["_container_timestamp"]) == [golden.TIMESTAMP]
    two = sawlog.read(path, table=["gauge", "preagg-gauge-v2"])
    assert two["_metric_"].to_pylist() == ["m1", "m4"]
    dataset = sawlog.open(path, table="all")
    assert dataset.count_rows() == 4
    assert {"avg", "tscount", "sumLast", "number"} <= set(dataset.schema.names)
    with pytest.raises(SchemaError, match="no schema 'nope'"):
        sawlog.open(path, table="nope")


def test_known_schemas_that_come_later_are_told(tmp_path: Path) -> None:
    target = builder()
    for n in range(2000):
        target.add_from_reader((n, 1.0, "metric", {"n": str(n)}), GAUGE)
    target.add_from_reader((0, 1.0, "metric", {}), BUILT_IN["prom-counter"])
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    with pytest.raises(DamageError, match=r"schema ID 5903, whose columns are not being read.*table=\"all\""):
        sawlog.read(path)
    assert sawlog.read(path, table="gauge").num_rows == 2000
    assert sawlog.read(path, table="all").num_rows == 2001


def test_records_of_unknown_schemas_are_passed_over(tmp_path: Path) -> None:
    strange_schema = RecordSchema(["a:long", "b:string"], 1)
    target = builder()
    target.add_from_reader((1, 1.0, "m", {}), GAUGE)
    target.add_from_reader((7, "x"), strange_schema, 4711)
    target.add_from_reader((2, 2.0, "m", {}), GAUGE)
    records = [bytes(record) for record in target.all_containers[0]]
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    with pytest.raises(sawlog.UnsupportedError, match="schema ID 4711, which is not among the known schemas"):
        sawlog.read(path)
    with pytest.warns(sawlog.DamageWarning, match="28 bytes in 1 ranges that this version"):
        assert sawlog.read(path, on_damage="skip")["value"].to_pylist() == [1.0, 2.0]
    (report,) = sawlog.verify(path).files
    assert report.kinds == {"unsupported": 1}
    assert not report.damaged
    raw = sawlog.read(path, salvage="unknown_schemas")
    assert raw["_record"].to_pylist() == records
    assert raw["_schema_id"].to_pylist() == [2200, 4711, 2200]
    assert raw["value"].to_pylist() == [1.0, None, 2.0]
    assert strange_schema.to_dict(raw["_record"][1].as_py()) == {"a": 7, "b": "x"}


def test_predefined_keys_can_be_renamed(tmp_path: Path) -> None:
    target = builder()
    target.add_from_reader((1, 1.0, "m", {"_pi_": "60"}), GAUGE)
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    older = Schemas.parse(BUILT_IN.to_json(["gauge"]).replace("_pi_", "_step_"))
    assert sawlog.read(path, schema=older)["tags"].to_pylist() == [[("_step_", "60")]]
    shorter = Schemas.parse(BUILT_IN.to_json(["gauge"]).replace(', "_pi_"', ""))
    with pytest.raises(DamageError, match="column tags: predefined key number 9 is beyond the schema's list"):
        sawlog.read(path, schema=shorter)


def test_part_keys_are_read_with_hashes() -> None:
    expected = golden.facts("gauge_100_partkeys")["records"]
    for options in ({}, {"records": "partkeys"}):
        dataset = sawlog.open(golden.path("gauge_100_partkeys"), extras=["hash", "record"], **options)
        table = dataset.to_table()
        assert table.schema.names == ["_metric_", "tags", "_hash", "_record"]
        assert table["_hash"].to_pylist() == [row["partition_hash"] for row in expected]
        assert [record.hex() for record in table["_record"].to_pylist()] == [row["hex"] for row in expected]
        assert dataset.info()["records"] == "part keys"


def test_custom_schemas_from_a_file(tmp_path: Path) -> None:
    place = tmp_path / "schemas.toml"
    place.write_text(
        '[partition-schema]\ncolumns = ["ps:string", "pl:long"]\npredefined-keys = ["job", "instance"]\n'
        '[schemas.str-long]\ncolumns = ["timestamp:ts", "s:string", "h:hist:counter=false", "n:long"]\n'
    )
    facts = golden.facts("str_long_12")["records"]
    table = sawlog.read(golden.path("str_long_12"), schema=str(place))
    assert table["s"].to_pylist() == [fact["s"] for fact in facts]
    assert table["pl"].to_pylist() == [fact["pl"] for fact in facts]
    assert [h["values"] for h in table["h"].to_pylist()] == [fact["h_values_geometric_1_2_8"] for fact in facts]
    keys = sawlog.read(golden.path("str_long_12_partkeys"), schema=Schemas.load(place), view="partkeys")
    assert keys["ps"].to_pylist() == [fact["ps"] for fact in facts]
    assert keys["partition_hash"].to_pylist() == [fact["partkey_hash"] for fact in facts]


def test_records_without_partition_columns() -> None:
    facts = golden.facts("no_partition_5")["records"]
    table = sawlog.read(golden.path("no_partition_5"), schema=WITH_RESULT, table="result")
    assert table["n"].to_pylist() == [fact["n"] for fact in facts]
    assert table["s"].to_pylist() == [fact["s"] for fact in facts]
    with pytest.raises(SchemaError, match="no partition columns, so no part keys"):
        sawlog.open(golden.path("no_partition_5"), schema=WITH_RESULT, table="result", view="partkeys")
    with pytest.raises(OptionError, match="such a schema is read on its own"):
        sawlog.open(golden.path("no_partition_5"), schema=WITH_RESULT, table="result,gauge")


def test_nested_records_become_structs(tmp_path: Path) -> None:
    inner = RecordSchema(["name:string", "labels:map", "n:int"])
    columns = (Column("timestamp", "ts"), Column("series", "br", schema=inner))
    outer = Schema("outer", columns, None)
    target = builder()
    for n in range(5):
        scratch = builder()
        scratch.add_from_reader((f"s{n}", {"k": "v" * n}, n), inner)
        nested = bytes(next(iter(scratch.all_containers[0])))
        target.add_from_reader((n, nested), outer)
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    table = sawlog.read(path, schema=Schemas([outer]), table="outer", format="filodb_record")
    table.validate(full=True)
    assert table["series"].to_pylist() == [{"name": f"s{n}", "labels": [("k", "v" * n)], "n": n} for n in range(5)]
    data = Path(path).read_bytes().replace(b"s3", b"\xff3")
    broken = write_container(tmp_path / "b.container", data)
    options = {"schema": Schemas([outer]), "table": "outer", "format": "filodb_record"}
    with pytest.raises(DamageError, match="column series: the nested record is damaged"):
        sawlog.read(broken, **options)


def test_part_keys_of_a_container_are_distinct(tmp_path: Path) -> None:
    table = sawlog.read(golden.path("bench_gauge_first_262144"), view="partkeys", provenance=True)
    table.validate(full=True)
    assert table.num_rows == 1000
    assert table.schema.names == ["schema", "schema_id", "partition_hash", "_metric_", "tags", "_file", "_offset"]
    assert len(set(table["partition_hash"].to_pylist())) == 1000
    rows = sawlog.read(golden.path("bench_gauge_first_262144"), columns=["_hash", "tags"])
    assert table["tags"].to_pylist() == rows["tags"].to_pylist()[:1000]
    assert table["partition_hash"].to_pylist() == rows["_hash"].to_pylist()[:1000]
    # Over several files, too, and under equal hashes.
    twice = [golden.path("gauge_100"), *SMALL]
    assert sawlog.read(twice, view="partkeys").num_rows == 100
    target = builder()
    for n in range(9000):
        target.start_new_record(GAUGE)
        target.add_long(1)
        target.add_double(1.0)
        target.add_string("m")
        target.start_map()
        target.add_map_key_value("n", str(n % 4500))
        target.end_map(bulk_hash=False)
        target.end_record()
    path = write_container(tmp_path / "a.container", *target.optimal_container_bytes())
    keys = sawlog.read(path, view="partkeys")
    assert [dict(tags)["n"] for tags in keys["tags"].to_pylist()] == [str(n) for n in range(4500)]
    assert len(set(keys["partition_hash"].to_pylist())) == 1
    assert sawlog.read(golden.path("mixed_schemas_4"), view="partkeys")["schema"].to_pylist() == [
        "gauge",
        "prom-counter",
        "prom-histogram",
        "preagg-gauge-v2",
    ]
    only = sawlog.read(golden.path("gauge_100"), view="partkeys", columns=["schema_id", "tags"])
    assert only.schema.names == ["schema_id", "tags"]


def test_hashes_are_compared_on_request(tmp_path: Path) -> None:
    assert sawlog.read(golden.path("gauge_100"), verify_hashes=True).num_rows == 100
    assert sawlog.read(golden.path("mixed_schemas_4"), verify_hashes=True).num_rows == 4
    influx = bytes.fromhex(golden.facts("external_known")["influx_style_endMap_false"]["hex"])
    header = (12 + len(influx) + -len(influx) % 4).to_bytes(4, "little") + b"\0\0\0\1" + bytes(8)
    path = write_container(tmp_path / "a.container", header, influx, bytes(-len(influx) % 4))
    assert sawlog.read(path, extras="hash")["_hash"].to_pylist() == [-859275062]
    with pytest.raises(DamageError, match="the stored partition hash is -859275062, the computed one"):
        sawlog.read(path, verify_hashes="true")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    data = golden.data("gauge_100").replace("München".encode(), b"M\xffnchen!")
    path = write_container(tmp_path / "a.container", data)
    for columns in (None, ["timestamp", "_metric_"], []):
        with pytest.raises(DamageError, match=r"column tags: not UTF-8 \(byte 1 of the payload\)"):
            sawlog.read(path, columns=columns)
    table = sawlog.read(path, strings="binary")
    assert dict(table["tags"][0].as_py())[b"city"] == b"M\xffnchen!"
    assert table["_metric_"][0].as_py() == b"heap_usage0"


def test_columns_filters_and_provenance_choose_what_is_read() -> None:
    table = sawlog.read(
        golden.path("gauge_100"), columns=["value", "_offset"], filters=[("_metric_", "=", "heap_usage1")]
    )
    offsets = [record["offset"] for record in golden.facts("gauge_100")["records"]]
    assert table["_offset"].to_pylist() == offsets[1::3]
    assert sawlog.open(golden.path("gauge_100")).count_rows() == 100
    assert sawlog.open(golden.path("gauge_100")).head(3).num_rows == 3


def test_containers_are_recognised_by_content(tmp_path: Path) -> None:
    for name in ("gauge_100", "no_partition_5", "bench_gauge_first_262144"):
        place = tmp_path / name
        place.write_bytes(golden.data(name))
        assert sawlog.open(place).format.name == "filodb_record"
    with pytest.raises(sawlog.FormatError, match="not recognised"):
        sawlog.open(write_container(tmp_path / "zeros", bytes(4096)))


def test_a_growing_container_is_followed(tmp_path: Path) -> None:
    place = tmp_path / "a.container"
    parts = [golden.data("gauge_100"), golden.data("gauge_100")]
    data = b"".join(parts)
    positions: dict = {}
    looks = []
    for size in (10, 500, len(parts[0]), len(parts[0]) + 9, len(parts[0]) + 900, len(data)):
        place.write_bytes(data[:size])
        watch = sawlog.open(place, format="filodb_record", table="gauge").watch(positions)
        looks.append([n for batch in watch.look() for n in batch.column("value").to_pylist()])
        positions = watch.positions
        assert {offset for offset, _, _ in positions["files"].values()} <= {len(parts[0]), len(data)}
    assert [len(values) for values in looks] == [0, 0, 100, 0, 0, 100]


def test_a_directory_of_files_of_several_schemas_is_read_without_options(tmp_path: Path) -> None:
    for name, schema, column in (("a", "gauge", "value"), ("b", "prom-counter", "count"), ("c", "gauge", "value")):
        table = pa.table({"timestamp": [1, 2], column: [1.0, 2.0], "_metric_": ["m", "m"], "tags": [{"k": name}] * 2})
        tags = pa.array([[("k", name)]] * 2, pa.map_(pa.string(), pa.string()))
        table = table.set_column(3, "tags", tags)
        sawlog.write(table, tmp_path / f"{name}.container", format="filodb_record", table=schema)
    table = sawlog.read(tmp_path)
    assert table["_schema"].to_pylist() == ["gauge"] * 2 + ["prom-counter"] * 2 + ["gauge"] * 2
    assert table["value"].null_count == 2
    assert table["count"].null_count == 4
    assert not sawlog.verify(tmp_path).damaged
    assert sawlog.read(tmp_path, table="gauge").num_rows == 4
    assert sawlog.read(tmp_path, view="partkeys").num_rows == 3


def test_unknown_schemas_as_bytes_have_no_name(tmp_path: Path) -> None:
    data = bytearray(golden.data("gauge_100"))
    data[20:22] = b"\x67\x12"
    path = tmp_path / "a.container"
    path.write_bytes(data)
    table = sawlog.read(path, salvage="unknown_schemas", extras="schema")
    assert table["_schema"].to_pylist() == [None] + ["gauge"] * 99
    assert table["_schema_id"].to_pylist()[:2] == [0x1267, 2200]


def test_maps_that_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps are put down as they were decoded before: in whatever order they come, short, empty, odd, beyond ASCII."""
    dice = random.Random(7)
    pool: list[dict[str, str]] = [
        {},
        {"a": ""},
        {"_ws_": "demo"},
        {"_ws_": "dem"},
        {"é": "日本"},
        {"k" * 191: "v" * 500},
    ]
    pool += [{"job": f"j{n}", **{f"l{m}": "v" * m for m in range(n % 9)}} for n in range(40)]
    order = [*range(len(pool))] * 3 + [dice.randrange(len(pool)) for _ in range(600)]
    records = [(1, 0.5, "m", pool[n]) for n in order]
    container_builder = builder(1 << 20)
    for record in records:
        container_builder.add_from_reader(record, GAUGE)
    (container,) = container_builder.optimal_container_bytes()
    monkeypatch.setattr("sawlog.filodb.walk.WINDOW_BYTES", 16 << 10)
    for memo in (maps.MEMO_BYTES, 1 << 10, 64):
        monkeypatch.setattr(maps, "MEMO_BYTES", memo)
        for strings in ("utf8", "binary"):
            path = write_container(tmp_path / "a.container", container)
            table = sawlog.read(path, table="gauge", columns=["tags"], strings=strings)
            table.validate(full=True)
            rows = [dict(value) for value in table["tags"].cast(pa.map_(pa.string(), pa.string())).to_pylist()]
            assert rows == [record[3] for record in records]


def test_maps_that_come_again_and_are_damaged(tmp_path: Path) -> None:
    """What is not a map, or not a text, is not accepted because it was seen before."""
    container_builder = builder(1 << 20)
    labels = [{"job": "abcdefgh"}, {"job": "abcdefgh", "x": "ABCD"}, {"job": "zzzzzzzz"}]
    for n in range(60):
        container_builder.add_from_reader((n, 0.5, "m", labels[n % 3]), GAUGE)
    (container,) = container_builder.optimal_container_bytes()
    data = bytearray(container)
    assert data.count(b"ABCD") == 20
    data = data.replace(b"ABCD", b"A\xff\xfeD")
    data = data.replace(b"\x08\0zzzzzzzz", b"\x09\0zzzzzzzz")
    path = write_container(tmp_path / "a.container", data)
    with pytest.warns(DamageWarning, match="20 bad_map, 20 invalid_utf8"):
        table = sawlog.read(path, table="gauge", columns=["timestamp", "tags"], on_damage="skip")
    assert milliseconds(table["timestamp"]) == list(range(0, 60, 3))
    assert table["tags"].to_pylist() == [[("job", "abcdefgh")]] * 20
