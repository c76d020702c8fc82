"""Helpers that tests of leveldb_log share."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sawlog
from sawlog.leveldb.datastore.plain import PlainEntities
from sawlog.leveldb.datastore.values import EntityDecoder, decode_path, make_json_encoder
from tests.bytes import encode_varint

from .fragments import fragment, write


def read_pebble_truth(lines: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.read_text().splitlines()]


def spell_operation(value: bytes | None) -> str | None:
    """As the truth has it: long values by their digests."""
    if value is None or len(value) <= 1000:
        return None if value is None else value.hex()
    return "sha256:" + hashlib.sha256(value).hexdigest()


def read_operations(path: Path, **options: Any) -> list[dict[str, Any]]:
    rows = sawlog.read(path, view="writes", **options).to_pylist()
    return [
        {
            "sequence": row["sequence"],
            "operation": row["operation"],
            "key": spell_operation(row["key"]),
            "value": spell_operation(row["value"]),
        }
        for row in rows
    ]


COMPRESSED = fragment(9, struct.pack("<I", 7))


def zstd(content: bytes) -> bytes:
    """A frame that declares its size, as RocksDB's do."""
    return pa.Codec("zstd").compress(content, asbytes=True)


def compressed_log(*frames: bytes, log: int | None = None) -> bytes:
    return COMPRESSED + write(*frames, log=log, start=len(COMPRESSED))


MANIFEST = b"\x01\x1aleveldb.BytewiseComparator\x02\x00\x09\x00\x03\x02\x04\x00"


def length_prefixed(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def batch(sequence: int, count: int, *operations: bytes) -> bytes:
    return struct.pack("<QI", sequence, count) + b"".join(operations)


def put(key: bytes, value: bytes) -> bytes:
    return b"\x01" + length_prefixed(key) + length_prefixed(value)


def render(*records: bytes) -> tuple[PlainEntities, dict[str, pa.Array]]:
    ends = np.cumsum([0, *map(len, records)]).astype(np.int32)
    plain = PlainEntities(np.frombuffer(b"".join(records), np.uint8), ends)
    names = ("project", "database", "namespace", "kind", "id", "name", "key", "path", "properties")
    columns = {name: plain.make_column(name) for name in names}
    for column in columns.values():
        column.validate(full=True)
    return plain, columns


def assert_agreement(*records: bytes) -> PlainEntities:
    """What the kernel renders is what the library gives."""
    plain, columns = render(*records)
    decoder = EntityDecoder()
    for row, index in enumerate(plain.rows):
        (message,) = decoder.parse([records[index]])
        key = decoder.decode_key(message)
        assert {name: columns[name][row].as_py() for name in key} == key
        assert columns["path"][row].as_py() == decode_path(message)
        assert columns["properties"][row].as_py().encode() == make_json_encoder()(decoder.decode_properties(message))
    return plain


def delete(key: bytes) -> bytes:
    return b"\x00" + length_prefixed(key)


def save(directory: Path, *records: bytes, name: str = "000003.log") -> Path:
    path = directory / name
    path.write_bytes(write(*records))
    return path


def as_table(operations: list[tuple], names: tuple[str, ...] = ("operation", "key", "value")) -> pa.Table:
    types = {"operation": pa.string(), "key": pa.binary(), "value": pa.binary()}
    columns = list(zip(*operations, strict=True)) or [[]] * len(names)
    arrays = [pa.array(column, types.get(name, pa.int64())) for name, column in zip(names, columns, strict=True)]
    return pa.table(arrays, names=list(names))


BIG = 0xFFFFFFFF
TAGS = [
    (b"\x00" + length_prefixed(b"k"), "delete", 0, b"k", None, 1),
    (b"\x01" + length_prefixed(b"k") + length_prefixed(b"v"), "put", 0, b"k", b"v", 1),
    (b"\x02" + length_prefixed(b"k") + length_prefixed(b"v"), "merge", 0, b"k", b"v", 1),
    (b"\x03" + length_prefixed(b"blob"), "log_data", 0, None, b"blob", 0),
    (b"\x04" + encode_varint(7) + length_prefixed(b"k"), "delete", 7, b"k", None, 1),
    (b"\x05" + encode_varint(BIG) + length_prefixed(b"k") + length_prefixed(b"v"), "put", BIG, b"k", b"v", 1),
    (b"\x06" + encode_varint(300) + length_prefixed(b"k") + length_prefixed(b"v"), "merge", 300, b"k", b"v", 1),
    (b"\x07" + length_prefixed(b"k"), "single_delete", 0, b"k", None, 1),
    (b"\x08" + encode_varint(1) + length_prefixed(b"k"), "single_delete", 1, b"k", None, 1),
    (b"\x09", "begin_prepare", 0, None, None, 0),
    (b"\x0a" + length_prefixed(b"xid"), "end_prepare", 0, b"xid", None, 0),
    (b"\x0b" + length_prefixed(b"xid"), "commit", 0, b"xid", None, 0),
    (b"\x0c" + length_prefixed(b"xid"), "rollback", 0, b"xid", None, 0),
    (b"\x0d", "noop", 0, None, None, 0),
    (b"\x0e" + encode_varint(2) + length_prefixed(b"a") + length_prefixed(b"z"), "delete_range", 2, b"a", b"z", 1),
    (b"\x0f" + length_prefixed(b"a") + length_prefixed(b"z"), "delete_range", 0, b"a", b"z", 1),
    (b"\x10" + encode_varint(2) + length_prefixed(b"k") + length_prefixed(b"i"), "put_blob_index", 2, b"k", b"i", 1),
    (b"\x11" + length_prefixed(b"k") + length_prefixed(b"i"), "put_blob_index", 0, b"k", b"i", 1),
    (b"\x12", "begin_persisted_prepare", 0, None, None, 0),
    (b"\x13", "begin_unprepare", 0, None, None, 0),
    (b"\x15" + length_prefixed(b"ts") + length_prefixed(b"xid"), "commit_with_timestamp", 0, b"xid", b"ts", 0),
    (b"\x16" + length_prefixed(b"k") + length_prefixed(b"w"), "put_entity", 0, b"k", b"w", 1),
    (b"\x17" + encode_varint(2) + length_prefixed(b"k") + length_prefixed(b"w"), "put_entity", 2, b"k", b"w", 1),
    (b"\x18" + length_prefixed(b"k") + length_prefixed(b"v" + bytes(8)), "timed_put", 0, b"k", b"v", 1),
    (
        b"\x19" + encode_varint(2) + length_prefixed(b"k") + length_prefixed(b"v" + bytes(8)),
        "timed_put",
        2,
        b"k",
        b"v",
        1,
    ),
]
DAMAGED = [
    (b"", "batch_too_small", "the record has 0", [], 0),
    (bytes(11), "batch_too_small", "the record has 11", [], 11),
    (
        batch(5, 2, put(b"a", b"1"), b"\x14" + length_prefixed(b"x")),
        "unsupported",
        "0x14 at byte 17",
        [(5, b"a")],
        None,
    ),
    (batch(5, 1, b"\xff"), "unsupported", "0xff at byte 12", [], None),
    (batch(5, 2, put(b"a", b"1"), put(b"b", b"2")[:-1]), "broken_operation", "put at byte 17", [(5, b"a")], None),
    (batch(5, 1, b"\x01"), "broken_operation", "put at byte 12", [], None),
    (batch(5, 1, b"\x00" + b"\xff" * 4 + b"\x7f"), "broken_operation", "delete at byte 12", [], None),
    (batch(5, 1, b"\x00" + b"\xff" * 5 + b"\x00"), "broken_operation", "delete at byte 12", [], None),
    (batch(5, 1, b"\x04\x80"), "broken_operation", "delete at byte 12", [], None),
    (batch(5, 3, put(b"a", b"1")), "wrong_count", "counts 3 operations and holds 1", [(5, b"a")], None),
    (batch(5, 0, put(b"a", b"1")), "wrong_count", "counts 0 operations and holds 1", [(5, b"a")], None),
]
