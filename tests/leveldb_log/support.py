"""Helpers that tests of leveldb_log share."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

import sawlog

from .fragments import fragment, varint, write


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
    return varint(len(data)) + data


def batch(sequence: int, count: int, *operations: bytes) -> bytes:
    return struct.pack("<QI", sequence, count) + b"".join(operations)


def put(key: bytes, value: bytes) -> bytes:
    return b"\x01" + length_prefixed(key) + length_prefixed(value)
