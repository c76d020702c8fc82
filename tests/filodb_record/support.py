"""Helpers that tests of filodb_record share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import sawlog
from sawlog.filodb import Buckets, Histogram, RecordBuilder, Schemas, hashing
from sawlog.filodb.layout import HASH_INIT
from sawlog.format.damage import FileReport
from sawlog.testing import Sample, check

from . import golden

CONTAINER_HEADER = 16


def trim_container(container: bytes, records: int) -> bytes:
    """A container of the first records of another."""
    end = CONTAINER_HEADER
    for _ in range(records):
        end += (int.from_bytes(container[end : end + 4], "little") + 7) // 4 * 4
    return (end - 4).to_bytes(4, "little") + container[4:end]


GAUGE = Schemas.built_in()["gauge"]
HISTOGRAM = Schemas.built_in()["prom-histogram"]
OPTIONS: dict[str, Any] = {"table": "gauge,prom-histogram,prom-counter,preagg-gauge-v2"}


def container(count: int, first: int = 0) -> bytes:
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    for n in range(first, first + count):
        if n % 3 == 2:
            histogram = Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(range(n, n + 8)))
            target.add_from_reader((n, 1.0, 2.0, histogram, "latency", {"_ws_": "é", "k": "v" * (n % 7)}), HISTOGRAM)
        else:
            target.add_from_reader((n, float(n), "heap", {"_ns_": "App", "n": str(n)}), GAUGE)
    (data,) = target.optimal_container_bytes()
    return data


FIRST, SECOND, THIRD = container(5), container(4, 5), container(6, 9)
DATA = FIRST + SECOND + THIRD
CONTAINERS = Sample("containers", "filodb_record", DATA, "a.container", options=OPTIONS, repaired="rows")


def list_plain_rows(table: pa.Table) -> list[dict]:
    """Rows with timestamps as numbers: hostile ones are beyond Python's dates."""
    field_index = table.schema.get_field_index("timestamp")
    return table.set_column(field_index, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def checked(data: bytes, *, laws: Any = None, **options: Any) -> tuple[list[dict], FileReport]:
    """Rows, with their offsets, and report of bytes that keep the laws."""
    outcome = check(CONTAINERS, data, laws=laws, **options)
    assert outcome.origins is not None
    rows = [
        {**row, "_offset": offset}
        for row, (_, offset) in zip(list_plain_rows(outcome.table), outcome.origins, strict=True)
    ]
    return rows, outcome.report


def in_every_view(data: bytes) -> None:
    checked(data)
    for view in ("frames", "partkeys"):
        check(replace(CONTAINERS, view=view), data, laws=())


HEADER = 16


def containers(count: int, size: int = 2048) -> list[bytes]:
    """Whole containers, the last one trimmed."""
    builder = RecordBuilder(container_size=size, clock=lambda: golden.TIMESTAMP)
    n = 0
    while len(builder.all_containers) < count:
        builder.add_from_reader((n, float(n), "heap", {"_ns_": "App", "n": "x" * (n % 11)}), GAUGE)
        n += 1
    return builder.optimal_container_bytes()


def shard_key_hash(values: list[str], metric: str | None) -> int:
    """Of the values of shard keys, in order, and of the metric where there is one."""
    total = HASH_INIT
    for value in (*values, *(() if metric is None else (metric,))):
        total = hashing.combine(total, hashing.hash_bytes(value.encode()))
    return total


BUILT_IN = Schemas.built_in()
LABELS = pa.map_(pa.string(), pa.string())


def make_gauges(rows: list[tuple]) -> pa.Table:
    timestamps, values, metrics, tags = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "timestamp": pa.array(timestamps, pa.timestamp("ms", "UTC")),
            "value": pa.array(values, pa.float64()),
            "_metric_": pa.array(metrics, pa.string()),
            "tags": pa.array(tags, LABELS),
        }
    )


def write_containers(data: Any, place: Path, **options: Any) -> bytes:
    sawlog.write(data, place, format="filodb_record", **{"container_timestamp": golden.TIMESTAMP, **options})
    return place.read_bytes()


text = st.text(max_size=12)
keys = st.one_of(st.sampled_from(GAUGE.ingestion.predefined_keys), text)
rows = st.lists(
    st.tuples(
        st.integers(-(2**62), 2**62),
        st.floats(),
        text,
        st.dictionaries(keys, text, max_size=6),
    ),
    max_size=40,
)
NESTED = """
[schemas.result]
columns = ["timestamp:ts", "series:br"]
partitioned = false

[schemas.result.nested.series]
columns = ["name:string", "labels:map", "n:int", "inner:br"]
predefined-keys = ["job"]

[schemas.result.nested.series.nested.inner]
columns = ["h:hist:counter=true", "x:double"]
"""


def nested_rows() -> tuple[Schemas, pa.Table, list[bytes]]:
    """Records with records in them, as a table, and as FiloDB's builder makes them."""
    schemas = Schemas.parse(NESTED)
    outer = schemas["result"]
    series = outer.ingestion.br_schemas[1]
    inner = series.br_schemas[3]
    buckets = Buckets.geometric(1.0, 2.0, 4)
    rows, containers = [], []
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    for n in range(50):
        histogram = Histogram(buckets, (n, n, n + 1, n + 2))
        scratch, middle = RecordBuilder(), RecordBuilder()
        scratch.add_from_reader((histogram, n / 2), inner)
        deepest = bytes(next(iter(scratch.all_containers[0])))
        middle.add_from_reader((f"s{n % 3}", {"job": "j" * n, "k": "v"}, n, deepest), series)
        target.add_from_reader((n, bytes(next(iter(middle.all_containers[0])))), outer)
        tops = [2.0**k for k in range(4)]
        blob = histogram.encode()
        h = {"tops": tops, "values": [float(v) for v in histogram.values], "buckets": blob[:1] + buckets.definition}
        row = {"name": f"s{n % 3}", "labels": [("job", "j" * n), ("k", "v")], "n": n, "inner": {"h": h, "x": n / 2}}
        rows.append({"timestamp": n, "series": row})
    containers = target.optimal_container_bytes()
    kind = pa.struct(
        [
            ("name", pa.string()),
            ("labels", LABELS),
            ("n", pa.int64()),
            ("inner", pa.struct([("h", pa.struct(HISTOGRAM_FIELDS)), ("x", pa.float64())])),
        ]
    )
    schema = pa.schema([("timestamp", pa.timestamp("ms", "UTC")), ("series", kind)])
    return schemas, pa.Table.from_pylist(rows, schema), containers


HISTOGRAM_FIELDS = [("tops", pa.list_(pa.float64())), ("values", pa.list_(pa.float64())), ("buckets", pa.binary())]
