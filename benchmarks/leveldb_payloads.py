"""What is inside LevelDB logs: entities of exports, in both schemas, and the latest state of a database."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sawlog
from benchmarks.harness import Case, Settings, Side

ENTITY_BYTES = 360
"""What an entity of this benchmark takes in a log."""
SLOW = 20
"""The pure-Python reader gets a file this many times smaller."""


def cases(settings: Settings) -> Iterator[Case]:
    if settings.wanted("entities"):
        yield from entity_cases(settings)
    if settings.wanted("latest"):
        yield latest_case(settings)


def entity_cases(settings: Settings) -> Iterator[Case]:
    """Twelve properties per entity: text, numbers, a timestamp, a geo point, an array, a map."""
    count = max(100, settings.size // 5 // ENTITY_BYTES)
    few = max(min(1000, count), count // SLOW)
    whole_folder, small = settings.place / "whole" / "output-0", settings.place / "small" / "output-0"
    for path, rows in ((whole_folder, count), (small, few)):
        table = pa.table({"record": pa.array([entity(i) for i in range(rows)], pa.binary())})
        sawlog.write(table, path, format="leveldb_log")
    size, less = whole_folder.stat().st_size, small.stat().st_size
    typed = sawlog.open(whole_folder, view="entities", properties="infer")
    yield Case(
        "entities",
        "Firestore entities of 12 properties, one core",
        (
            Side("sawlog, JSON", partial(read, whole_folder), size, count, "into Arrow: keys, properties as JSON"),
            Side("sawlog, typed", partial(drain, typed), size, count, "into typed columns, schema known"),
            Side("sawlog, inferred", partial(read, whole_folder, properties="infer"), size, count, "both passes"),
            Side(
                "leveldb-export",
                partial(export_documents, small),
                less,
                few,
                "dicts; does not verify checksums",
                needs="leveldb_export",
            ),
        ),
        per="rows",
    )


def latest_case(settings: Settings) -> Case:
    """Overwrites of a tenth as many keys, folded to the last one of each."""
    count = settings.size // 128
    numbers = np.random.default_rng(1).integers(0, count // 10, count)
    keys = pa.array([b"%012d" % number for number in numbers.tolist()], pa.binary())
    data = np.random.default_rng(2).integers(0, 256, 100 * count, np.uint8)
    ends = np.arange(0, 100 * (count + 1), 100, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    log = settings.place / "000003.log"
    table = pa.table({"operation": pa.repeat("put", count), "key": keys, "value": values})
    sawlog.write(table, log, format="leveldb_log", view="writes")
    return Case(
        "latest",
        "the last state of each key, one core",
        (
            Side("sawlog, latest=True", partial(read, log, view="writes", latest=True), log.stat().st_size, count),
            Side("sawlog, all operations", partial(read, log, view="writes"), log.stat().st_size, count),
        ),
        headline=False,
    )


def read(path: Path, view: str = "entities", **options: object) -> None:
    drain(sawlog.open(path, view=view, **options))


def drain(dataset: sawlog.Dataset) -> None:
    for _ in dataset.to_batches():
        pass


def export_documents(path: Path) -> None:
    from leveldb_export import parse_leveldb_documents

    for _ in parse_leveldb_documents(str(path)):
        pass


def entity(number: int) -> bytes:
    """An entity as Firestore exports it, encoded by App Engine's library."""
    from google.appengine.datastore import entity_bytes_pb2

    message = entity_bytes_pb2.EntityProto()
    message.key.app = "s~demo"
    step = message.key.path.element.add()
    step.type, step.name = "users", f"user{number:08}"
    message.entity_group.element.add().CopyFrom(step)
    add(message, "email", "stringValue", b"user%d@example.com" % number)
    add(message, "age", "int64Value", number % 90)
    add(message, "score", "doubleValue", number / 3)
    add(message, "active", "booleanValue", bool(number & 1))
    add(message, "created", "int64Value", 1_700_000_000_000_000 + number * 1_000_003, 7)
    add(message, "nick", "stringValue", b"nick %d" % number)
    for tag in (b"a", b"b", b"c"):
        add(message, "tags", "stringValue", tag).multiple = True
    point = add(message, "place", meaning=9).value.pointvalue
    point.x, point.y = 1.5, number % 100 / 7
    add(message, "nothing")
    address = entity_bytes_pb2.EntityProto()
    address.key.app = ""
    address.key.path.SetInParent()
    address.entity_group.SetInParent()
    add(address, "street", "stringValue", b"Main street %d" % number)
    add(address, "city", "stringValue", b"Town")
    add(message, "address", "stringValue", address.SerializeToString(), 19)
    return message.SerializeToString()


def add(message: Any, name: str, kind: str | None = None, value: object = None, meaning: int | None = None) -> Any:
    protobuf_property = message.raw_property.add()
    protobuf_property.name, protobuf_property.multiple = name, False
    protobuf_property.value.SetInParent()
    if kind is not None:
        setattr(protobuf_property.value, kind, value)
    if meaning is not None:
        protobuf_property.meaning = meaning
    return protobuf_property
