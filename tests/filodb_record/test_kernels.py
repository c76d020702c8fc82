"""Small inputs that reach every branch of the kernels: quick enough for plain Python and for checked builds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import sawlog
from sawlog.filodb import Buckets, Histogram, RecordBuilder, Schemas
from sawlog.filodb.kernels.records import find_record
from sawlog.filodb.schemas import make_default_partition
from sawlog.filodb.values import find_shards, hash_series
from sawlog.kernels.jit import MODE, PYTHON

from . import golden
from .support import DATA, LABELS, checked, in_every_view, make_gauges, nested_rows, write_containers

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python

BUILT_IN = Schemas.built_in()

PACE = 4 if MODE == PYTHON else 1
"""Plain Python, which is slow, tries every fourth place only."""


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, events, tables and windows so small that they run out everywhere."""
    monkeypatch.setattr("sawlog.filodb.walk.WINDOW_BYTES", 500)
    monkeypatch.setattr("sawlog.filodb.walk.BATCH_ROWS", 7)
    monkeypatch.setattr("sawlog.filodb.walk.EVENT_ROOM", 2)
    monkeypatch.setattr("sawlog.filodb.walk.BATCH_BUCKETS", 20)
    monkeypatch.setattr("sawlog.filodb.series.FIRST_SERIES", 2)
    monkeypatch.setattr("sawlog.filodb.layer.BATCH_ROWS", 9)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.nightly
def test_damage_at_many_places_is_judged_alike(first: int) -> None:
    rng = random.Random(1 + first)
    for offset in range(rng.randrange(50) + 257 * first, len(DATA), 257 * 4 * PACE):
        in_every_view(DATA[:offset] + bytes([DATA[offset] ^ rng.randrange(1, 256)]) + DATA[offset + 1 :])
        in_every_view(DATA[:offset])
        in_every_view(DATA[:offset] + rng.randbytes(7) + DATA[offset:])
        in_every_view(DATA[:offset] + bytes(30) + DATA[offset:])
    assert len(checked(DATA)[0]) == 15


@pytest.mark.parametrize(
    "name", ["mixed_schemas_4", "otel_exp_delta_histogram_10", "gauge_100_partkeys", "str_long_12"]
)
def test_golden_bytes_are_read_and_written(tmp_path: Path, name: str) -> None:
    schemas = Schemas([golden.STR_LONG]) if name == "str_long_12" else None
    table = sawlog.read(golden.path(name), schema=schemas, verify_hashes=True)
    table.validate(full=True)
    assert write_containers(table, tmp_path / "a.container", container_size=2048, whole=True)
    assert sawlog.read(tmp_path / "a.container", schema=schemas).equals(table)
    assert write_containers(table, tmp_path / "b.container") == golden.data(name)


@pytest.mark.parametrize("name", ["geometric", "geometric_1", "custom", "exponential"])
def test_kernel_and_decoder_agree_on_histograms(tmp_path: Path, name: str) -> None:
    buckets = {
        "geometric": Buckets.geometric(1.0, 2.0, 9),
        "geometric_1": Buckets.geometric(2.0, 2.0, 9, minus_one=True),
        "custom": Buckets.custom([0.5, 1.0, 2.5, float("inf")]),
        "exponential": Buckets.exponential(3, -5, 8),
    }[name]
    rng = random.Random(2)
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    schema = BUILT_IN["prom-histogram"]
    for n in range(30):
        steps = [rng.choice([0, 1, 7, 1 << rng.randrange(40)]) for _ in range(len(buckets.tops))]
        values = [float(sum(steps[: i + 1])) for i in range(len(buckets.tops))]
        target.add_from_reader((n, 1.0, 2.0, Histogram(buckets, tuple(values)), "m", {"k": "v"}), schema)
    path = tmp_path / "a.container"
    path.write_bytes(b"".join(target.optimal_container_bytes()))
    table = sawlog.read(path, statistics="count,sum", quantiles="0.5,0.9")
    assert [row["h"]["count"] for row in table.to_pylist()] == [row["h"]["values"][-1] for row in table.to_pylist()]
    plain = sawlog.read(path)
    assert write_containers(plain, tmp_path / "b.container") == path.read_bytes()


def test_distinct_series_of_any_size(tmp_path: Path) -> None:
    rng = random.Random(3)
    series = [(f"m{k % 5}", {"k" * (k % 11): "é" * (k % 9), "job": str(k)}) for k in range(40)]
    rows = [(n, 1.0, *series[rng.randrange(40)]) for n in range(200)]
    path = tmp_path / "a.container"
    data = write_containers(make_gauges([(t, v, m, list(tags.items())) for t, v, m, tags in rows]), path, table="gauge")
    assert data == path.read_bytes()
    keys = sawlog.read(path, view="partkeys")
    met = list(dict.fromkeys((m, tuple(sorted(tags.items()))) for _, _, m, tags in rows))
    key_pairs = zip(keys["_metric_"].to_pylist(), keys["tags"].to_pylist(), strict=True)
    assert [(metric, tuple(tags)) for metric, tags in key_pairs] == met
    assert sum(sawlog.read(path, view="frames")["num_records"].to_pylist()) == 200


def test_nested_records_are_written_as_they_were_built(tmp_path: Path) -> None:
    schemas, table, containers = nested_rows()
    container_count = write_containers(table.slice(0, 20), tmp_path / "a.container", schema=schemas, table="result")
    assert container_count[16:] == containers[0][16 : len(container_count)]
    again = sawlog.read(tmp_path / "a.container", schema=schemas, table="result")
    assert again["series"].to_pylist() == table["series"].to_pylist()[:20]


def test_hashes_and_shards_are_computed() -> None:
    labels = [[("_ws_", "w"), ("_ns_", "n" * k), ("é", "x"), ("le", str(k))] for k in range(20)]
    metric = pa.array([f"m{k}_bucket" for k in range(20)])
    tags = pa.array(labels, LABELS)
    assert hash_series({"_metric_": metric, "tags": tags}, BUILT_IN["gauge"]).null_count == 0
    assert set(find_shards(metric, tags, 16, 2, make_default_partition()).to_pylist()) <= set(range(16))


def test_records_are_found_by_schema_ids_that_are_not_complete() -> None:
    rng = random.Random(5)
    for _ in range(400 // PACE):
        sizes = [rng.choice([4, 5, 6, 7, 8, 11, 30]) for _ in range(6)]
        records = [(size - 4).to_bytes(4, "little") + rng.choices([b"\1\0", b"\2\1"])[0] + bytes(30) for size in sizes]
        data = b"".join(record[:size] + b"\7" * (-size % 4) for record, size in zip(records, sizes, strict=True))
        data = data[: rng.randrange(len(data) + 1)] + rng.choice([b"", b"\xff" * 8])
        complete = np.zeros(1 << 16, np.uint8)
        complete[rng.sample([0, 1, 2, 0x102], 2)] = 1
        start = 0
        for position in [*walk_plainly(data, complete), -1]:
            start = find_record(np.frombuffer(data, np.uint8), start, len(data), complete)
            assert start == position
            start += (int.from_bytes(data[start : start + 4], "little") + 7) // 4 * 4


def walk_plainly(data: bytes, complete: NDArray[np.uint8]) -> Iterator[int]:
    """Where adjacent records begin whose IDs are not complete; what has no more than a length and an ID is none."""
    pos = 0
    while len(data) - pos > 6:
        record = data[pos : pos + int.from_bytes(data[pos : pos + 4], "little") + 4]
        if int.from_bytes(record[:4], "little") + 4 != len(record):
            return
        if not complete[int.from_bytes(record[4:6], "little")]:
            yield pos
        pos += -(-len(record) // 4) * 4
