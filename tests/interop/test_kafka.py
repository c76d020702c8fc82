"""Containers through a real Kafka: what sawlog sends, Spark reads in a stream and sawlog decodes, row for row."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import sawlog
from sawlog.cli import main
from sawlog.filodb import RecordContainer, Schemas
from sawlog.filodb.options import ReadOptions
from sawlog.filodb.schemas import make_default_partition
from sawlog.filodb.values import ValueDecoder, find_shards, hash_series
from tests.filodb_record import golden
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


def send(address: str, table: pa.Table, place: Path, topic: str = TOPIC) -> int:
    """Send every shard's containers to its partition, as FiloDB's gateway does; how many there were."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, SHARDS, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": address})
    flat = table.combine_chunks()
    shards = find_shards(flat["_metric_"].chunk(0), flat["tags"].chunk(0), SHARDS, 1, make_default_partition())
    sent = 0
    for shard in range(SHARDS):
        path = place / f"{shard}.container"
        part = table.filter(pc.equal(shards, shard))
        # Full containers as the whole arrays that FiloDB sends, of the size that it has by default in tests.
        sawlog.write(part, path, format="filodb_record", table="gauge", container_size=64 << 10, whole=True)
        data = path.read_bytes()
        while data:
            size = min(len(data), 64 << 10)
            RecordContainer(data[:size])
            producer.produce(topic, data[:size], key=shard.to_bytes(8, "big"), partition=shard)
            sent += 1
            data = data[size:]
    assert producer.flush(60) == 0
    return sent


def stream(script: str, broker: str, place: Path) -> None:
    """Run a program next to this file until all of its topic is read."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), broker, connector_jars(), str(place)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]


def poisoned() -> dict[int, tuple[bytes, int, str | None]]:
    """Values by number: their bytes, how many rows can be read of each, and the first kind of damage."""
    sound = golden.data("gauge_100_small_00")
    short, pointer, clock = (bytearray(sound) for _ in range(3))
    short[0:4] = (4).to_bytes(4, "little")
    struct.pack_into("<I", pointer, 16 + 22, 0xFFFF)
    struct.pack_into("<q", clock, 16 + 6, (1 << 63) - 1)
    rows = sound_rows(sound)
    values: dict[int, tuple[bytes, int, str | None]] = dict.fromkeys(range(20), (sound, rows, None))
    values[3] = (b"this is no container at all, but text", 0, "bad_record_length")
    values[4] = (bytes(short), 0, "bad_header")
    values[9] = (bytes(pointer), rows - 1, "bad_pointer")
    values[10] = (bytes(clock), rows - 1, "bad_timestamp")
    end = 4 + int.from_bytes(sound[:4], "little")
    values[17] = (sound[:4] + b"\2" * 4 + sound[8:end], 0, "unsupported")
    values[19] = (b"", 0, None)
    return values


def sound_rows(value: bytes) -> int:
    decoder = ValueDecoder(ReadOptions(table=("gauge",)))
    return len(decoder.decode(pa.array([value], pa.binary()))[0])


def test_poison_is_put_aside_by_its_place(broker: str, tmp_path: Path) -> None:
    """As the documentation has it: no value stops the stream, and what is damaged is found again in Kafka."""
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.create_topics([NewTopic("poisoned", 2, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": broker})
    values = poisoned()
    expected = []
    for number, (value, _, kind) in values.items():
        producer.produce("poisoned", value, partition=number % 2)
        if kind is not None:
            expected.append(("poisoned", number % 2, number // 2, kind))
    assert producer.flush(60) == 0
    stream("kafka_quarantine.py", broker, tmp_path)
    result_values = (
        ds.dataset(tmp_path / "quarantine", format="parquet", exclude_invalid_files=True).to_table().to_pylist()
    )
    assert len(expected) == 5
    assert sorted(
        (row["topic"], row["partition"], row["offset"], row["damage"][0]["kind"]) for row in result_values
    ) == sorted(expected)
    samples = ds.dataset(tmp_path / "samples", format="parquet", exclude_invalid_files=True)
    assert samples.count_rows() == sum(rows for _, rows, _ in values.values())
    # Who has the place has the value.
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "finder"})
    for row in result_values:
        consumer.assign([TopicPartition(row["topic"], row["partition"], row["offset"])])
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == values[2 * row["offset"] + row["partition"]][0]
    consumer.close()


def test_what_is_sent_is_read(broker: str, tmp_path: Path) -> None:
    table = samples()
    assert send(broker, table, tmp_path) > 2 * SHARDS
    stream("kafka_stream.py", broker, tmp_path)
    rows = (
        ds.dataset(tmp_path / "samples", format="parquet", exclude_invalid_files=True).to_table().sort_by("timestamp")
    )
    assert rows["timestamp"].cast(pa.timestamp("ms", "UTC")).to_pylist() == table["timestamp"].to_pylist()
    assert rows["value"].to_pylist() == table["value"].to_pylist()
    assert rows["_metric_"].to_pylist() == table["_metric_"].to_pylist()
    assert [dict(tags) for tags in rows["tags"].to_pylist()] == [dict(tags) for tags in table["tags"].to_pylist()]
    flat = table.combine_chunks()
    columns = {name: flat[name].chunk(0) for name in ("_metric_", "tags")}
    assert rows["_hash"].to_pylist() == hash_series(columns, Schemas.built_in()["gauge"]).to_pylist()
    assert set(rows["partition"].to_pylist()) <= set(range(SHARDS))


def test_a_topic_is_read_as_a_path(broker: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = samples()
    sent = send(broker, table, tmp_path, "path")
    topic = f"kafka://{broker}/path"
    rows = sawlog.read(topic, provenance=True).sort_by("timestamp")
    assert rows["timestamp"].to_pylist() == table["timestamp"].to_pylist()
    assert rows["value"].to_pylist() == table["value"].to_pylist()
    assert len(rows["_file"].unique()) == sent
    assert main(["verify", topic]) == 0
    capfd.readouterr()
    assert main(["cat", topic, "--columns", "value", "--json"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == ROWS
