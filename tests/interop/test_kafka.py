"""Containers through a real Kafka: what sawlog sends, Spark reads in a stream and sawlog decodes, row for row."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import sawlog
from sawlog.filodb_record import RecordContainer, Schemas
from sawlog.filodb_record.schemas import default_partition
from sawlog.filodb_record.values import partition_hashes, shards
from tests.interop.kafka_server import connector_jars, kafka

pytestmark = pytest.mark.interop

TOPIC = "timeseries"
SHARDS = 4
ROWS = 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


def samples() -> pa.Table:
    i = np.arange(ROWS)
    labels = [
        [("_ws_", "demo"), ("_ns_", f"App-{k % 5}"), ("instance", f"host-{k}:9100"), ("city", "München"), ("le", "1")]
        for k in range(300)
    ]
    tags = pa.array(labels, pa.map_(pa.string(), pa.string())).take(pa.array(i % 300))
    return pa.table(
        {
            "timestamp": pa.array(1_700_000_000_000 + 10 * i, pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "value": np.sin(i),
            "_metric_": pa.array(["heap_usage", "cpu_seconds_sum"]).take(pa.array(i % 2)),
            "tags": tags,
        }
    )


def send(address: str, table: pa.Table, place: Path) -> int:
    """Send every shard's containers to its partition, as FiloDB's gateway does; how many there were."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(TOPIC, SHARDS, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": address})
    flat = table.combine_chunks()
    found = shards(flat["_metric_"].chunk(0), flat["tags"].chunk(0), SHARDS, 1, default_partition())
    sent = 0
    for shard in range(SHARDS):
        path = place / f"{shard}.container"
        part = table.filter(pc.equal(found, shard))
        # Full containers as the whole arrays that FiloDB sends, of the size that it has by default in tests.
        sawlog.write(part, path, format="filodb_record", schema="gauge", container_size=64 << 10, whole=True)
        data = path.read_bytes()
        while data:
            size = min(len(data), 64 << 10)
            RecordContainer(data[:size])
            producer.produce(TOPIC, data[:size], key=shard.to_bytes(8, "big"), partition=shard)
            sent += 1
            data = data[size:]
    assert producer.flush(60) == 0
    return sent


def test_what_is_sent_is_read(broker: str, tmp_path: Path) -> None:
    table = samples()
    assert send(broker, table, tmp_path) > 2 * SHARDS
    script = Path(__file__).with_name("kafka_stream.py")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script), broker, connector_jars(), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = (
        ds.dataset(tmp_path / "samples", format="parquet", exclude_invalid_files=True).to_table().sort_by("timestamp")
    )
    assert found["timestamp"].cast(pa.timestamp("ms", "UTC")).to_pylist() == table["timestamp"].to_pylist()
    assert found["value"].to_pylist() == table["value"].to_pylist()
    assert found["_metric_"].to_pylist() == table["_metric_"].to_pylist()
    assert [dict(tags) for tags in found["tags"].to_pylist()] == [dict(tags) for tags in table["tags"].to_pylist()]
    flat = table.combine_chunks()
    columns = {name: flat[name].chunk(0) for name in ("_metric_", "tags")}
    assert found["_hash"].to_pylist() == partition_hashes(columns, Schemas.built_in()["gauge"]).to_pylist()
    assert set(found["partition"].to_pylist()) <= set(range(SHARDS))
