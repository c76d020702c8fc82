"""Topics of Kafka as paths, on the broker that librdkafka has for tests; `tests/interop` has a real one."""

from __future__ import annotations

import gc
import multiprocessing

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import sawlog
from sawlog.cli import main
from sawlog.errors import OptionError, StorageError
from sawlog.format.damage import DamageWarning
from sawlog.storage import kafka
from tests.filodb_record import golden

CONTAINER = golden.data("gauge_100_small_00")
ROWS = sawlog.read(CONTAINER, format="filodb_record").drop_columns("value")  # of which some are NaN


class Topic:
    """A topic on a broker in this process."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "replaced", "test.mock.num.brokers": 1})
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.address = f"kafka://{broker.host}:{broker.port}"
        self.url = f"{self.address}/series"

    def send(self, *values: bytes | None, partition: int = 0) -> None:
        for value in values:
            self._producer.produce("series", value, partition=partition)
        assert self._producer.flush(30) == 0


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_a_topic_is_read_like_a_directory(topic: Topic) -> None:
    topic.send(CONTAINER, None, CONTAINER)
    topic.send(CONTAINER, partition=1)
    table = sawlog.read(topic.url, provenance=True)
    assert table.select(ROWS.column_names).equals(pa.concat_tables([ROWS] * 3))
    assert table["_file"].unique().to_pylist() == [
        f"{topic.url}/{name}" for name in ("0/0.container", "0/2.container", "1/0.container")
    ]
    for inner in ("1", "0/2.container"):
        assert sawlog.read(f"{topic.url}/{inner}").select(ROWS.column_names).equals(ROWS)


def test_a_broken_message_is_named(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.send(CONTAINER, b"this is not a container, but text", CONTAINER)
    with pytest.warns(DamageWarning):
        assert len(sawlog.read(topic.url, on_damage="skip")) == 2 * len(ROWS)
    assert main(["verify", topic.url]) == 1
    assert f"{topic.url}/0/1.container" in capsys.readouterr().out


def test_what_is_sent_later_is_read_later(topic: Topic) -> None:
    topic.send(CONTAINER)
    watch = sawlog.open(topic.url).watch()
    assert sum(batch.num_rows for batch in watch.look()) == len(ROWS)
    topic.send(CONTAINER, CONTAINER)
    assert sum(batch.num_rows for batch in watch.look()) == 2 * len(ROWS)


def test_a_process_that_is_forked_afterwards_lives(topic: Topic) -> None:
    topic.send(CONTAINER)
    sawlog.read(topic.url)
    process = multiprocessing.get_context("fork").Process(target=gc.collect)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.nightly
def test_what_cannot_be_read_says_why(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.send(CONTAINER)
    for path in ("series/7", "series/0/1.container", "series/x", "series/0/0/0"):
        with pytest.raises(FileNotFoundError):
            sawlog.read(f"{topic.address}/{path}")
    with pytest.raises(OptionError, match="nonsense"):
        sawlog.read(topic.url, storage_options={"nonsense": "1"})
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 0.2)
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9"):
        sawlog.read("kafka://127.0.0.1:9/series")
