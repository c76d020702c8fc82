"""What the tests of Milvus binlogs share."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import sawlog

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


def write(root: Path, table: pa.Table, **options: Any) -> None:
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
    """Unpack a golden data directory."""
    for packed in (GOLDEN / name).rglob("*.xz"):
        path = directory / packed.relative_to(GOLDEN / name).with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    return directory


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
