"""Dumps of etcd, as Milvus keeps its metadata there, of collections that sawlog has written."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from sawlog.kernels.varints import encode_varint
from sawlog.milvus.layout import SegmentState

Value: TypeAlias = "int | bytes | Sequence[bytes]"


def message(fields: Mapping[int, Value]) -> bytes:
    """A protobuf message of integers, bytes and repeated messages, by the numbers of its fields."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, int):
            out += encode_varint(number << 3) + encode_varint(value)
            continue
        for item in [value] if isinstance(value, bytes) else value:
            out += encode_varint(number << 3 | 2) + encode_varint(len(item)) + item
    return out


def dump(root: Path, collection: int, fields: Sequence[tuple[int, str, int]], deletes: int = 0, rows: int = 0) -> bytes:
    """A dump that names all logs below a root as those of one collection, whose first field is the primary key.

    Args:
        root: Where they are.
        collection: Its id.
        fields: Id, name and type of each field.
        deletes: How many each delta log has.
        rows: How many each insert log has.
    """
    keys = {f"root-coord/database/collection-info/1/{collection}": message({1: collection, 2: message({1: b"c"})})}
    for id, name, kind in fields:
        fields_of_entry = {1: id, 2: name.encode(), 3: int(id == fields[0][0]), 5: kind}
        keys[f"root-coord/fields/{collection}/{id}"] = message(fields_of_entry)
    segments: dict[tuple[str, str], int] = {}
    for kind, entries in (("insert_log", rows), ("delta_log", deletes)):
        logs: dict[tuple[str, str, str], list[bytes]] = {}
        for path in sorted((root / kind).rglob("*")):
            if path.is_file():
                parts = path.relative_to(root / kind).parts
                field = parts[3] if kind == "insert_log" else "0"
                size = path.stat().st_size
                log = message({1: entries, 5: size, 6: int(parts[-1]), 7: size})
                logs.setdefault((parts[1], parts[2], field), []).append(log)
                segments[parts[1], parts[2]] = segments.get((parts[1], parts[2]), 0)
        for (partition, segment, field), group in logs.items():
            place = (
                f"datacoord-meta/{kind.replace('_', '').replace('insert', 'bin')}/{collection}/{partition}/{segment}"
            )
            keys[f"{place}/{field}"] = message({1: int(field), 2: group})
    for partition, segment in segments:
        keys[f"root-coord/partitions/{collection}/{partition}"] = message({1: int(partition), 2: b"p"})
        fields_of_entry = {1: int(segment), 2: collection, 3: int(partition), 5: rows, 6: int(SegmentState.FLUSHED)}
        keys[f"datacoord-meta/s/{collection}/{partition}/{segment}"] = message(fields_of_entry)
    coded = {f"by-dev/meta/{key}": base64.b64encode(value).decode() for key, value in keys.items()}
    return json.dumps(coded).encode()
