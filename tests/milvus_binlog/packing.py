"""Segments of Storage V3, written by pyarrow and fastavro to what Milvus' storage library publishes of its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from .support import NOW


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


FILE = record("ColumnGroupFile", path="string", start_index="long", end_index="long", properties=mapping("string"))
GROUP = record("ColumnGroup", columns=array("string"), files=array(FILE), format="string")
DELTA = record("DeltaLog", path="string", type="int", num_entries="long")
STATS = record("Statistics", paths=array("string"), metadata=mapping("string"))
SCHEMA = {
    **record("Manifest", column_groups=array(GROUP), delta_logs=array(DELTA), stats=mapping(STATS)),
    "namespace": "milvus_storage",
}


def packed_file(path: str, first: int, last: int) -> dict[str, Any]:
    return {"path": path, "start_index": first, "end_index": last, "properties": {}}


def group(columns: Sequence[int], files: Sequence[dict[str, Any]], format: str = "parquet") -> dict[str, Any]:
    return {"columns": [str(id) for id in columns], "files": list(files), "format": format}


def write_manifest(
    directory: Path,
    groups: Sequence[dict[str, Any]],
    deltas: Sequence[str] = (),
    *,
    version: int = 1,
    stats: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> Path:
    path = directory / "_metadata" / f"manifest-{version}.avro"
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = {
        "column_groups": list(groups),
        "delta_logs": [
            {"path": delta, "type": options.get("type", 0), "num_entries": options.get("deletes", 1)}
            for delta in deltas
        ],
        "stats": {key: {"paths": list(paths), "metadata": {}} for key, paths in (stats or {}).items()},
    }
    with path.open("wb") as out:
        fastavro.writer(out, options.get("schema", SCHEMA), [manifest], codec=options.get("codec", "null"))
    return path


def write_segment(
    root: Path,
    segment: int,
    columns: Mapping[int, pa.Array],
    cuts: Mapping[tuple[int, ...], Sequence[int]],
    parquet: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """A segment whose column groups are cut into files of so many rows each; row ids and timestamps are added."""
    directory = root / "insert_log" / "1" / "2" / str(segment)
    (directory / "_data").mkdir(parents=True, exist_ok=True)
    rows = len(next(iter(columns.values())))
    system = {0: pa.array(range(rows), pa.int64()), 1: pa.array([NOW + row for row in range(rows)], pa.int64())}
    table = pa.table({str(id): column for id, column in {**system, **columns}.items()})
    groups = []
    for number, (ids, sizes) in enumerate(cuts.items()):
        files, start = [], 0
        for index, size in enumerate(sizes):
            name = f"{number}_{index}.parquet"
            part = table.select(list(map(str, ids))).slice(start, size)
            pq.write_table(part, directory / "_data" / name, **(parquet or {}))
            files.append(packed_file(name, 0, size))
            start += size
        groups.append(group(ids, files))
    write_manifest(directory, groups, **options)
    return directory
