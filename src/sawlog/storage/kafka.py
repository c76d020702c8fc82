"""Topics of Kafka as a file system of fsspec: `kafka://BROKER/TOPIC/PARTITION/OFFSET.container` is one message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from fsspec.spec import AbstractFileSystem

_SUFFIX = ".container"
"""Ends the name of a message, as names of FiloDB's containers in files do."""
ANSWER_SECONDS = 10.0
"""How long a broker may take to answer."""
_AHEAD_MESSAGES = 32
"""Messages that are received when one of them is asked for."""
_HELD_BYTES = 64 << 20
"""Of the messages received last, how many bytes are held, so that they are not received again."""


class _Partition(NamedTuple):
    broker: str
    topic: str
    number: int


class Topics(AbstractFileSystem):  # type: ignore[misc]
    """The messages of Kafka, read only.

    A broker is a directory of topics, these are directories of partitions, and those of messages. Messages without a
    value are left out. Kafka does not say how long messages are, so that listing them receives them all, once.

    Args:
        options: Options of the consumer, as librdkafka names them.
    """

    protocol = "kafka"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options
        self._sizes: dict[_Partition, dict[int, int]] = {}
        self._next: dict[_Partition, int] = {}
        self._values: dict[tuple[_Partition, int], bytes] = {}
        self._value_bytes = 0
        self._lock = threading.Lock()

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List what is below a broker, a topic or a partition.

        Raises:
            FileNotFoundError: When there is no such topic or partition.
            KafkaException: When the broker does not answer.
        """
        entries = self._list_entries(self._strip_protocol(path).split("/"))
        return entries if detail else [entry["name"] for entry in entries]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return bytes of the value of a message.

        Raises:
            FileNotFoundError: When there is no such message, or none any more.
            KafkaException: When the broker does not answer.
        """
        broker, topic, *names = self._strip_protocol(path).split("/")
        number, offset = _parse_numbers(path, names, 2)
        with self._lock:
            return self._read_value(_Partition(broker, topic, number), offset, path)[start:end]

    def _list_entries(self, names: list[str]) -> list[dict[str, Any]]:
        broker, *inner = names
        path = "/".join(names)
        with self._lock, self._hold_consumer(broker) as consumer:
            if not inner:
                topics = consumer.list_topics(timeout=ANSWER_SECONDS).topics
                return [_describe_directory(f"{path}/{name}") for name in topics if not name.startswith("__")]
            topic, *number_names = inner
            numbers = _parse_numbers(path, number_names, len(number_names))
            metadata = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
            if metadata.error is not None and metadata.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(metadata.error)
            if not metadata.partitions or len(numbers) > 2 or (numbers and numbers[0] not in metadata.partitions):
                raise FileNotFoundError(path)
            if not numbers:
                return [_describe_directory(f"{path}/{number}") for number in metadata.partitions]
            partition = _Partition(broker, topic, numbers[0])
            sizes = self._list_messages(consumer, partition)
            offsets = sizes if len(numbers) == 1 else [numbers[1]]
            if not all(offset in sizes for offset in offsets):
                raise FileNotFoundError(path)
            parent = "/".join(map(str, partition))
            return [
                {"name": f"{parent}/{offset}{_SUFFIX}", "size": sizes[offset], "type": "file", "ETag": str(offset)}
                for offset in offsets
            ]

    def _list_messages(self, consumer: Consumer, partition: _Partition) -> dict[int, int]:
        """Return the bytes of all messages that a partition has now, by offset."""
        first, end = consumer.get_watermark_offsets(
            TopicPartition(partition.topic, partition.number), timeout=ANSWER_SECONDS
        )
        sizes = self._sizes.setdefault(partition, {})
        for offset in [listed_offset for listed_offset in sizes if listed_offset < first]:
            del sizes[offset]
        begin = max(first, self._next.get(partition, first))
        sizes.update((offset, len(value)) for offset, value in self._iterate_messages(consumer, partition, begin, end))
        self._next[partition] = end
        return sizes

    def _read_value(self, partition: _Partition, offset: int, path: str) -> bytes:
        value = self._values.get((partition, offset))
        if value is None:
            with self._hold_consumer(partition.broker) as consumer:
                received = dict(self._iterate_messages(consumer, partition, offset, offset + _AHEAD_MESSAGES))
            if offset not in received:
                raise FileNotFoundError(path)
            value = received[offset]
        return value

    def _iterate_messages(
        self, consumer: Consumer, partition: _Partition, first: int, end: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield offsets and values of a partition between two offsets, as far as there are any."""
        if first < end:
            consumer.assign([TopicPartition(partition.topic, partition.number, first)])
        offset: int | None = first - 1
        while offset is not None and offset < end - 1:
            message = consumer.poll(ANSWER_SECONDS)
            if message is None:
                raise TimeoutError(f"{partition.broker} sent nothing for {ANSWER_SECONDS:.0f} s")
            error, offset, value = message.error(), message.offset(), message.value()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            if error is not None:
                raise KafkaException(error)
            if offset is not None and offset < end and value is not None:
                yield offset, self._hold(partition, offset, bytes(value))

    def _hold(self, partition: _Partition, offset: int, value: bytes) -> bytes:
        self._value_bytes += len(value) - len(self._values.pop((partition, offset), b""))
        self._values[partition, offset] = value
        while self._value_bytes > _HELD_BYTES:
            self._value_bytes -= len(self._values.pop(next(iter(self._values))))
        return value

    @contextmanager
    def _hold_consumer(self, broker: str) -> Iterator[Consumer]:
        """Provide a consumer in the block only: one that a process has when it is forked ends the new process."""
        settings = {"group.id": "sawlog", "log_level": 0, **self._options, "bootstrap.servers": broker}
        # A broker answers nothing else while it waits for messages that are not there.
        ours = {"fetch.wait.max.ms": 10, "auto.offset.reset": "error", "enable.auto.commit": False}
        try:
            consumer = Consumer({**settings, **ours, "enable.partition.eof": True})
        except KafkaException as error:
            raise TypeError(error.args[0].str()) from error
        with closing(consumer):
            yield consumer


def _describe_directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _parse_numbers(path: str, names: list[str], count: int) -> list[int]:
    """Return the numbers of a partition and of a message."""
    numbers = [name.removesuffix(_SUFFIX) if index else name for index, name in enumerate(names)]
    if len(names) != count or not all(number.isascii() and number.isdigit() for number in numbers):
        raise FileNotFoundError(path)
    return [int(number) for number in numbers]
