"""What the tests of Milvus binlogs share."""

from __future__ import annotations

import base64
import gzip
import io
import json
import lzma
import os
import shutil
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.milvus import layout
from sawlog.milvus.encode import LogPlace, NewEvent, encode_log
from sawlog.milvus.layout import DataType, EventType
from tests.bytes import encode_varint

GOLDEN = Path(__file__).parents[1] / "golden" / "milvus"
SYNTHETIC = GOLDEN / "synthetic"
SETS = ("2.1.0", "2.3.5", "2.3.5-compacted", "2.3.5-multi")
NOW = 470611425428242439
"""A TSO of November 2026."""


def manifest(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "manifest.json").read_text())["collections"]


def id_of(name: str, collection: str) -> str:
    return str(manifest(name)[collection]["collection_id"])


def truth(name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((GOLDEN / name / "truth.json.gz").read_bytes()))


def collections() -> list[tuple[str, str]]:
    return [(name, collection) for name in SETS for collection in manifest(name)]


def open_as_it_lies(path: Any, **options: Any) -> sawlog.Dataset:
    """Open without metadata; reading warns of that."""
    return sawlog.open(path, **{"metadata": "none", **options})


def with_etcd(name: str, collection: str, **options: Any) -> sawlog.Dataset:
    return sawlog.open(GOLDEN / name, table=collection, metadata=str(GOLDEN / name / "etcd.json"), **options)


def write_collection(root: Path, table: pa.Table, **options: Any) -> None:
    sawlog.write(table, root, format="milvus_binlog", **{"timestamp": NOW, **options})


def delete(root: Path, keys: list[Any], times: list[int], segment: int, partition: int = 2, **options: Any) -> None:
    table = pa.table(
        {
            "pk": keys,
            "timestamp": pa.array(times, pa.int64()),
            "partition": pa.array([partition] * len(keys), pa.int64()),
            "segment": pa.array([segment] * len(keys), pa.int64()),
        }
    )
    sawlog.write(table, root, format="milvus_binlog", content="deletes", **options)


def unpack_etcd(directory: Path, name: str = "etcd") -> Path:
    """Unpack a golden data directory. Zeros at the end of a file, of which a database has 16 MB, are a hole."""
    for relative, (data, size) in golden_etcd(name).items():
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.truncate(path, size)
    return directory


@cache
def golden_etcd(name: str) -> dict[Path, tuple[bytes, int]]:
    """The files of a golden data directory: bytes without zeros at their end, and sizes with them."""
    root = GOLDEN / name
    files = {
        packed.relative_to(root).with_suffix(""): lzma.decompress(packed.read_bytes()) for packed in root.rglob("*.xz")
    }
    return {path: (data.rstrip(b"\0"), len(data)) for path, data in files.items()}


def copy_root(name: str, root: Path) -> Path:
    """Copy the logs of a golden server."""
    for kind in ("insert_log", "delta_log", "stats_log"):
        shutil.copytree(GOLDEN / name / kind, root / kind)
    return root


def read_rows(path: Path | str, **options: Any) -> tuple[Any, list[str]]:
    """A collection's rows, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = sawlog.read(path, **options)
    return rows, [str(warning.message) for warning in caught]


quiet = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
SECOND = 1000 << layout.LOGICAL_BITS


def message(fields: dict[int, Any]) -> bytes:
    """A protobuf message."""
    data = b""
    for number, field_value in fields.items():
        for value in field_value if isinstance(field_value, list) else [field_value]:
            raw = value.encode() if isinstance(value, str) else value
            if isinstance(raw, bytes):
                data += encode_varint(number << 3 | 2) + encode_varint(len(raw)) + raw
            else:
                data += encode_varint(number << 3) + encode_varint(raw)
    return data


def field(id: int, name: str, kind: int, further_fields: dict[int, Any] | None = None, **params: Any) -> bytes:
    pairs = [message({1: key, 2: str(value)}) for key, value in params.items()]
    return message({1: id, 2: name, 5: kind, 6: pairs, **(further_fields or {})})


PK = field(100, "pk", 5, {3: 1})


class Server:
    """The etcd of a server, as much of it as the tests need."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}

    def put(self, key: str, value: bytes, *times: int) -> None:
        """A value, now and, with times, since the first of them."""
        self.keys[f"by-dev/meta/{key}"] = value
        for time in times:
            self.keys[f"by-dev/meta/snapshots/{key}_ts{time}"] = value

    def collection(self, id: int, name: str, fields: list[bytes], *times: int, **options: Any) -> None:
        schema = message({1: name, 4: fields, **options.get("schema", {})})
        value = message({1: id, 2: schema, 3: times[0] if times else 1, 15: 1, **options.get("info", {})})
        self.put(f"root-coord/database/collection-info/{options.get('database', 1)}/{id}", value, *times)

    def partition(self, collection: int, id: int, name: str, state: int, *times: int) -> None:
        value = message({1: id, 2: name, 3: 1, 4: collection, 5: state})
        self.put(f"root-coord/partitions/{collection}/{id}", value, *times)

    def segment(self, collection: int, partition: int, id: int, state: int = 4, dropped_at: int = 0) -> None:
        info = {1: id, 2: collection, 3: partition, 6: state, 20: 2}
        if dropped_at:
            info[16] = (dropped_at >> layout.LOGICAL_BITS) * 1_000_000
        self.put(f"datacoord-meta/s/{collection}/{partition}/{id}", message(info))

    def save(self, place: Path) -> str:
        place.write_text(json.dumps({key: base64.b64encode(value).decode() for key, value in self.keys.items()}))
        return str(place)


PAGE = 100
"""Rows of a page."""
ROWS = 1000


def payload(column: pa.Array | pa.ChunkedArray, name: str = "val", **options: Any) -> bytes:
    """A payload of small pages."""
    sink = pa.BufferOutputStream()
    options = {"store_schema": False, "max_rows_per_page": PAGE, **options}
    pq.write_table(pa.table({name: column}), sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def encode_binlog(payloads: Sequence[bytes], type: DataType = DataType.VarChar) -> bytes:
    events = [NewEvent(EventType.INSERT, NOW, NOW, payload) for payload in payloads]
    return encode_log(LogPlace(1, 2, 3), 101, type, events, {"original_size": "1", "nullable": True}, "it")


def in_small_pages(path: Path, page: int) -> None:
    """Write an insert log again, in pages of few rows."""
    data = path.read_bytes()
    head, content = data[: data.index(b"PAR1")], data[data.index(b"PAR1") :]
    stored = pq.read_table(io.BytesIO(content)).column(0)
    content = payload(stored, compression="zstd", use_dictionary=False, max_rows_per_page=page)
    event = len(head) - layout.HEADER.size - layout.EVENT_DATA.size
    time, kind, _, _ = layout.HEADER.unpack_from(head, event)
    length = len(head) - event + len(content)
    header = layout.HEADER.pack(time, kind, length, event + length)
    path.write_bytes(head[:event] + header + head[event + layout.HEADER.size :] + content)


def collection(root: Path, count: int = ROWS, page: int = PAGE) -> list[dict[str, Any]]:
    """A collection of one batch in small pages, and some deletes; its rows."""
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": [f"{row:05}" for row in range(count)],
            "v": pa.array([[float(row), 2.0] for row in range(count)], pa.list_(pa.float32(), 2)),
        }
    )
    write_collection(root, table, primary_key="id", tree="backup")
    for path in root.glob("**/insert_log/**/*"):
        if path.is_file():
            in_small_pages(path, page)
    delete(root, [3, count // 2, count - 1], [NOW + 1] * 3, 900, -1, tree="backup")
    return [row for row in table.to_pylist() if row["id"] not in (3, count // 2, count - 1)]
