"""Writing: tables to FiloDB's bytes, and what cannot be written."""

from __future__ import annotations

import hashlib
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog import DamageError, OptionError, SchemaError
from sawlog.filodb import Buckets, Histogram, RecordBuilder, Schema, Schemas

from . import golden
from .support import BUILT_IN, GAUGE, HISTOGRAM_FIELDS, LABELS, NESTED, make_gauges, nested_rows, rows, write_containers


@pytest.mark.parametrize(
    "name", ["gauge_100", "gauge_100_partkeys", "mixed_schemas_4", "otel_exp_delta_histogram_10", "str_long_12"]
)
def test_reading_and_writing_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    schemas = Schemas([golden.STR_LONG]) if name == "str_long_12" else None
    table = sawlog.read(golden.path(name), schema=schemas)
    assert write_containers(table, tmp_path / "a.container") == golden.data(name)
    dataset = sawlog.open(golden.path(name), schema=schemas)
    assert write_containers(dataset, tmp_path / "b.container") == golden.data(name)


def test_records_without_partition_columns(tmp_path: Path) -> None:
    schemas = Schemas([golden.RESULT])
    table = sawlog.read(golden.path("no_partition_5"), schema=schemas, table="result")
    assert write_containers(table, tmp_path / "a.container") == golden.data("no_partition_5")


def test_part_keys_of_samples(tmp_path: Path) -> None:
    series = sawlog.read(golden.path("gauge_100"), view="partkeys").select(["_metric_", "tags"])
    assert write_containers(series, tmp_path / "a.container", table="gauge", records="partkeys") == golden.data(
        "gauge_100_partkeys"
    )


def test_one_hundred_thousand_records_have_filodbs_checksum(tmp_path: Path) -> None:
    facts = golden.facts("bench_gauge")
    count = 100_000
    i = np.arange(count)
    labels = []
    for k in range(1000):
        tags = {"_ws_": "demo", "_ns_": f"App-{k % 4}", "instance": f"Instance-{k}", "host": f"H{k % 20}"}
        tags |= {"dc": f"DC{k % 3}", "cloudProvider": "AmazonAWS", "region": "us-west-2", "job": "node-exporter"}
        labels.append(list(tags.items()))
    table = pa.table(
        {
            "timestamp": pa.array(golden.TIMESTAMP + i, pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "value": i * 0.25,
            "_metric_": pa.repeat(pa.scalar("heap_usage0"), count),
            "tags": pa.array(labels, LABELS).take(pa.array(i % 1000)),
        }
    )
    data = write_containers(table, tmp_path / "a.container")
    assert len(data) == facts["total_trimmed_bytes"]
    assert hashlib.sha256(data).hexdigest() == facts["sha256_of_concatenated_trimmed_containers"]
    containers = sawlog.read(tmp_path / "a.container", view="frames")
    assert containers["num_records"].to_pylist() == facts["records_per_container"]
    assert containers["num_bytes"].to_pylist() == facts["num_bytes_header_per_container"]
    whole_containers = write_containers(table.slice(0, 2000), tmp_path / "b.container", whole=True)
    first = golden.data("bench_gauge_first_262144")
    assert whole_containers[: facts["num_bytes_header_per_container"][0] + 4] == first[: 262004 + 4]
    assert sawlog.read(tmp_path / "b.container").num_rows == 2000
    assert [len(whole_containers) > 262144, whole_containers[262008:262144]] == [True, bytes(136)]
    read = sawlog.read(tmp_path / "a.container", columns=["timestamp", "value", "_hash"], extras="hash")
    assert int(read["timestamp"].cast(pa.int64()).to_numpy().sum()) == int((golden.TIMESTAMP + i).sum())
    expected = facts["first_container"]
    assert int(np.bitwise_xor.reduce(read["_hash"].to_numpy()[:1682])) == expected["xor_partition_hash"]
    assert float(read["value"].to_numpy()[:1682].sum()) == expected["sum_value"]


@given(rows, st.sampled_from([2048, 4096]))
@settings(max_examples=40)
def test_tables_and_builder_make_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, series_rows: list, size: int
) -> None:
    target = RecordBuilder(size, clock=lambda: golden.TIMESTAMP)
    for row in series_rows:
        target.add_from_reader(row, GAUGE)
    expected = b"".join(container.trimmed_bytes() for container in target.all_containers)
    place = tmp_path_factory.mktemp("w") / "a.container"
    table = make_gauges([(*row[:3], list(row[3].items())) for row in series_rows])
    assert write_containers(table, place, table="gauge", container_size=size) == expected
    if series_rows:
        again = sawlog.read(place)
        assert again["_metric_"].to_pylist() == [row[2] for row in series_rows]
        assert [dict(tags) for tags in again["tags"].to_pylist()] == [row[3] for row in series_rows]
        assert write_containers(again, place, container_size=size) == expected


def test_hashes_and_container_timestamps_are_taken_over(tmp_path: Path) -> None:
    table = make_gauges([(n, 1.0, "m", [("n", str(n))]) for n in range(6)])
    times = pa.array([5, 5, 9, 9, 9, 5], pa.timestamp("ms", "UTC"))
    table = table.append_column("_hash", pa.array(range(6), pa.int32())).append_column("_container_timestamp", times)
    place = tmp_path / "a.container"
    write_containers(table, place)
    result_table = sawlog.read(place, extras=["hash", "container_timestamp"])
    assert result_table["_hash"].to_pylist() == list(range(6))
    assert result_table["_container_timestamp"].cast(pa.int64()).to_pylist() == [5, 5, 9, 9, 9, 5]
    assert sawlog.read(place, view="frames")["num_records"].to_pylist() == [2, 3, 1]
    first = place.read_bytes()
    assert write_containers(result_table, place) == first


def test_whole_records_are_written(tmp_path: Path) -> None:
    table = sawlog.read(golden.path("mixed_schemas_4"), extras="record").select(["_record"])
    assert write_containers(table, tmp_path / "a.container") == golden.data("mixed_schemas_4")
    with pytest.raises(SchemaError, match="column '_record', row 1: not one whole record"):
        write_containers(pa.table({"_record": [table["_record"][0].as_py(), b"12345"]}), tmp_path / "b.container")
    with pytest.raises(SchemaError, match="column 'value': whole records"):
        write_containers(pa.table({"_record": [b""], "value": [1.0]}), tmp_path / "b.container")


def test_arrow_types_that_mean_the_same(tmp_path: Path) -> None:
    plain = make_gauges([(1000, 1.0, "m", [("_ws_", "demo")]), (2000, 2.0, "n", [])])
    expected = write_containers(plain, tmp_path / "a.container")
    other_table = pa.table(
        {
            "tags": plain["tags"].cast(pa.map_(pa.large_string(), pa.large_string())),
            "_metric_": plain["_metric_"].dictionary_encode(),
            "value": pa.array([1, 2], pa.int8()),
            "timestamp": plain["timestamp"].cast(pa.timestamp("ns", "Europe/Zurich")),
        }
    )
    assert write_containers(other_table, tmp_path / "b.container", table="gauge") == expected
    naive = plain.set_column(0, "timestamp", plain["timestamp"].cast(pa.int64()))
    assert write_containers(naive, tmp_path / "c.container", table="gauge") == expected


def test_histograms_without_a_definition_get_custom_buckets(tmp_path: Path) -> None:
    schema = BUILT_IN["prom-histogram"]
    tops, values = [0.5, 1.0, float("inf")], [1.0, 2.0, 7.0]
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    target.add_from_reader((1, 3.0, 7.0, Histogram(Buckets.custom(tops), tuple(values)), "m", {}), schema)
    target.add_from_reader((2, 3.0, 7.0, Histogram(Buckets.empty(), ()), "m", {}), schema)
    h = pa.array([{"tops": tops, "values": values}, {"tops": [], "values": []}])
    table = make_gauges([(1, 3.0, "m", []), (2, 3.0, "m", [])]).rename_columns(["timestamp", "sum", "_metric_", "tags"])
    table = table.append_column("count", pa.array([7.0, 7.0])).append_column("h", h)
    assert [
        write_containers(table, tmp_path / "a.container", table="prom-histogram")
    ] == target.optimal_container_bytes()


def bad(**columns: Any) -> pa.Table:
    table = make_gauges([(1, 1.0, "m", []), (2, 2.0, "m", [])])
    for name, values in columns.items():
        table = table.set_column(table.schema.names.index(name), name, values)
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (bad(value=pa.array([1.0, None])), "column 'value', row 1: is null"),
        (bad(tags=pa.array([[], [("a", None)]], LABELS)), "column 'tags', row 1: the value of key b'a' is null"),
        (bad(tags=pa.array([[], [("k" * 192, "v")]], LABELS)), "column 'tags', row 1: a key of 192 bytes"),
        (bad(tags=pa.array([[], [("k", "v" * 65536)]], LABELS)), "column 'tags', row 1: 65536 bytes"),
        (bad(tags=pa.array([[], [("k", "v" * 65532)]], LABELS)), "column 'tags', row 1: 65536 bytes"),
        (bad(_metric_=pa.array(["", "x" * 65536])), "column '_metric_', row 1: 65536 bytes"),
        (bad(timestamp=pa.array([1, 1500], pa.timestamp("us", "UTC"))), "column 'timestamp', row 0: does not fit"),
        (bad(value=pa.array(["a", "b"])), "column 'value', row 0: does not fit double"),
        (bad(_metric_=pa.array([1, 2])), "expected strings or bytes"),
        (bad(tags=pa.array(["a", "b"])), "expected map<string, string>"),
        (bad().drop_columns(["tags"]), "columns are missing: tags"),
        (bad().append_column("more", pa.array([1, 2])), "column 'more': there is none in gauge"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, table: pa.Table, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        write_containers(table, tmp_path / "a.container", table="gauge")
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_chosen_by_columns(tmp_path: Path) -> None:
    table = make_gauges([(1, 1.0, "m", [])])
    write_containers(table, tmp_path / "a.container")
    assert sawlog.read(tmp_path / "a.container", extras="schema")["_schema"].to_pylist() == ["gauge"]
    counter = table.rename_columns(["timestamp", "count", "_metric_", "tags"])
    with pytest.raises(SchemaError, match="these are prom-counter or delta-counter; name one with table="):
        write_containers(counter, tmp_path / "b.container")
    with pytest.raises(SchemaError, match="none of the known schemas"):
        write_containers(table.drop_columns(["tags"]), tmp_path / "b.container")
    named = table.append_column("_schema", pa.array(["nope"]))
    with pytest.raises(SchemaError, match="column '_schema', row 0: no schema 'nope'"):
        write_containers(named, tmp_path / "b.container")
    named = table.append_column("_schema", pa.array(["prom-counter"]))
    with pytest.raises(
        SchemaError,
        match=r"column 'value', row 0: has a value, but the row's schema has no|column 'count'; it is missing",
    ):
        write_containers(named, tmp_path / "b.container")
    with pytest.raises(OptionError, match="container_size=100"):
        write_containers(table, tmp_path / "b.container", container_size=100)
    long = make_gauges([(1, 1.0, "m", []), (1, 1.0, "m" * 3000, [])])
    with pytest.raises(SchemaError, match="row 1: the record is too long for containers of 2048"):
        write_containers(long, tmp_path / "b.container", container_size=2048)
    assert [path.name for path in tmp_path.iterdir()] == ["a.container"]


def test_tops_that_another_machine_rounded_otherwise_are_taken(tmp_path: Path) -> None:
    """Java's `Math.pow` is one unit in the last place off now and then; what is stored is the definition."""
    buckets = Buckets.geometric(1.0, 1.1, 40)
    for direction in (0.0, math.inf):
        tops = [math.nextafter(top, direction) for top in buckets.tops]
        h = {"tops": tops, "values": [float(n) for n in range(40)], "buckets": b"\x03" + buckets.definition}
        table = make_gauges([(1, 3.0, "m", [])]).rename_columns(["timestamp", "sum", "_metric_", "tags"])
        table = table.append_column("count", pa.array([7.0])).append_column("h", pa.array([h]))
        write_containers(table, tmp_path / "a.container", table="prom-histogram")
        assert sawlog.read(tmp_path / "a.container")["h"][0].as_py()["tops"] == list(buckets.tops)


@pytest.mark.parametrize(
    ("h", "message"),
    [
        ({"tops": [1.0, 2.0], "values": [1.0]}, "as many values and tops as buckets, 2"),
        ({"tops": [1.0, 2.0], "values": [2.0, 1.0]}, "must be cumulative"),
        ({"tops": [1.0, 2.0], "values": [0.5, 1.0]}, "not whole numbers"),
        ({"tops": [2.0, 1.0], "values": [0.0, 1.0]}, "must ascend"),
        ({"tops": [1.0, 2.0], "values": [0.0, 1.0], "buckets": b"\x63123456"}, "no definition of buckets"),
        (
            {"tops": [1.0, 3.0], "values": [0.0, 1.0], "buckets": b"\x03" + Buckets.geometric(1, 2, 2).definition},
            "`tops` and `buckets` differ at bucket 1",
        ),
    ],
)
def test_bad_histograms_are_refused(tmp_path: Path, h: dict, message: str) -> None:
    table = make_gauges([(1, 3.0, "m", [])]).rename_columns(["timestamp", "sum", "_metric_", "tags"])
    table = table.append_column("count", pa.array([7.0])).append_column("h", pa.array([h]))
    with pytest.raises(SchemaError, match=f"column 'h', row 0: .*{message}"):
        write_containers(table, tmp_path / "a.container", table="prom-histogram")


def test_empty_tables_are_written(tmp_path: Path) -> None:
    assert write_containers(make_gauges([]), tmp_path / "a.container") == b""


def test_nested_records(tmp_path: Path) -> None:
    schemas, table, containers = nested_rows()
    container_list = write_containers(table, tmp_path / "a.container", schema=schemas, table="result")
    assert container_list == b"".join(containers)
    again = sawlog.read(tmp_path / "a.container", schema=schemas, table="result")
    assert again["series"].to_pylist() == table["series"].to_pylist()
    # What was read says how it is written.
    assert write_containers(again, tmp_path / "b.container") == container_list
    write_containers(again.slice(7, 20), tmp_path / "c.container")
    assert sawlog.read(tmp_path / "c.container", schema=schemas, table="result").equals(again.slice(7, 20))


PART_KEYS = """
[schemas.found]
columns = ["last:ts", "series:br"]
partitioned = false

[schemas.found.nested.series]
columns = ["_metric_:string", "tags:map", "n:long"]
predefined-keys = ["_ws_", "job"]
partition-start = 0
"""


def test_nested_records_with_a_schema_id(tmp_path: Path) -> None:
    """Query results hold part keys, which say their schema and hash."""
    schemas = Schemas.parse(PART_KEYS)
    outer = schemas["found"]
    series = outer.ingestion.br_schemas[1]
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    rows = []
    for n in range(300):
        inner = RecordBuilder()
        inner.add_from_reader((f"m{n % 7}", {"_ws_": "demo", "k": "v" * (n % 5)}, n), series, 60000 + n)
        key = bytes(next(iter(inner.all_containers[0])))
        target.add_from_reader((n, key), outer)
        tags = [("_ws_", "demo"), ("k", "v" * (n % 5))]
        series_values = {"_schema_id": 60000 + n, "_hash": series.partition_hash(key)}
        rows.append({"_metric_": f"m{n % 7}", "tags": tags, "n": n, **series_values})
    data = b"".join(target.optimal_container_bytes())
    path = tmp_path / "a.container"
    path.write_bytes(data)
    table = sawlog.read(path, schema=schemas)
    table.validate(full=True)
    assert table["series"].to_pylist() == rows
    assert write_containers(table, tmp_path / "b.container") == data
    series_column = table["series"].combine_chunks()
    names = [field.name for field in series_column.type if field.name != "_hash"]
    fields = [series_column.type.field(name) for name in names]

    def with_series(arrays: list[pa.Array]) -> pa.Table:
        return table.set_column(1, "series", pa.StructArray.from_arrays(arrays, fields=fields))

    arrays = [series_column.field(name) for name in names]
    assert write_containers(with_series(arrays), tmp_path / "b.container", schema=schemas) == data
    for wrong in (-1, 65536):
        arrays[-1] = pa.array([1, wrong] + [1] * 298, pa.int32())
        with pytest.raises(SchemaError, match=rf"'series._schema_id', row 1: {wrong} is no schema ID"):
            write_containers(with_series(arrays), tmp_path / "b.container", schema=schemas)
    fields.pop()
    with pytest.raises(SchemaError, match=r"has a column 'series._schema_id'; it is missing"):
        write_containers(with_series(arrays[:-1]), tmp_path / "b.container", schema=schemas)
    with pytest.raises(SchemaError, match="partition-start is True; expected the number of a column"):
        Schemas.parse(PART_KEYS.replace("partition-start = 0", "partition-start = true"))
    start = data.index(b"m1") - 30
    for place, number, message in (
        (start, struct.pack("<H", 9), "bad_record_size"),  # the payload's length: the record has bytes of no column
        (start + 2, struct.pack("<I", 9), "column series: the nested record is damaged"),  # the nested record's own
    ):
        broken = data[:place] + number + data[place + len(number) :]
        assert len(broken) == len(data)
        path.write_bytes(broken)
        with pytest.raises(DamageError, match=message):
            sawlog.read(path, schema=schemas)


def test_records_without_schema_id_are_of_the_only_schema(tmp_path: Path) -> None:
    schemas, table, _ = nested_rows()
    write_containers(table, tmp_path / "a.container", schema=schemas)
    result_table = sawlog.read(tmp_path / "a.container", schema=schemas)
    assert result_table.num_rows == table.num_rows
    assert result_table.equals(sawlog.read(tmp_path / "a.container", schema=schemas, table="result"))
    two = Schemas([schemas["result"], Schema("other", schemas["result"].columns, None)])
    with pytest.raises(OptionError, match="name their schema with table=; schemas: result, other"):
        sawlog.read(tmp_path / "a.container", schema=two)


def test_nested_records_that_cannot_be_written(tmp_path: Path) -> None:
    schemas, table, _ = nested_rows()
    rows = table.to_pylist()

    def refused(series: Any, message: str, row: int = 3) -> None:
        changed = [*rows[:row], {**rows[row], "series": series}, *rows[row + 1 :]]
        with pytest.raises(SchemaError, match=message):
            write_containers(
                pa.Table.from_pylist(changed, table.schema), tmp_path / "a.container", schema=schemas, table="result"
            )

    good = rows[3]["series"]
    refused(None, "column 'series', row 3: is null")
    refused({**good, "name": None}, "column 'series.name', row 3: is null")
    refused({**good, "n": 1 << 40}, "column 'series.n', row 3: does not fit int32")
    refused({**good, "name": "x" * 70000}, "column 'series.name', row 3: 70000 bytes")
    refused({**good, "name": "x" * 40000, "labels": [("k", "v" * 40000)]}, r"column 'series', row 3: 80\d\d\d bytes")
    refused({**good, "inner": {**good["inner"], "x": None}}, "column 'series.inner.x', row 3: is null")
    with pytest.raises(SchemaError, match=r"row 0: schema 'series' has a column 'series\.labels'; it is missing"):
        write_containers(table_of(rows, without="labels"), tmp_path / "a.container", schema=schemas, table="result")
    with pytest.raises(SchemaError, match="column 'series': there is no 'extra' in the nested records"):
        write_containers(table_of(rows, extra=1), tmp_path / "a.container", schema=schemas, table="result")
    unsaid = Schemas.parse(NESTED.partition("[schemas.result.nested.series]")[0])
    with pytest.raises(SchemaError, match="its schema does not say what is nested in it"):
        write_containers(table, tmp_path / "a.container", schema=unsaid, table="result")
    with pytest.raises(SchemaError, match=r"nested\.x: there is no column of that name and type br"):
        Schemas.parse(NESTED.replace("nested.series]", "nested.x]").partition("[schemas.result.nested.series.")[0])


def table_of(rows: list[dict], without: str = "", **extra: Any) -> pa.Table:
    """The rows with other fields in `series`."""
    series = [{k: v for k, v in {**row["series"], **extra}.items() if k != without} for row in rows]
    series = [{**entry, "labels": entry.get("labels") and dict(entry["labels"])} for entry in series]
    kinds = {"name": pa.string(), "labels": LABELS, "n": pa.int64(), "extra": pa.int64()}
    inner = pa.struct([("h", pa.struct(HISTOGRAM_FIELDS)), ("x", pa.float64())])
    kind = pa.struct([(name, kinds.get(name, inner)) for name in series[0] if name != without])
    return pa.table(
        {
            "timestamp": pa.array([row["timestamp"] for row in rows], pa.timestamp("ms", "UTC")),
            "series": pa.array(series, kind),
        }
    )
