"""Helpers for tests of databases."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import sawlog
from tests.leveldb_log.fragments import varint


def state_new_size(table: Path, size_before: int) -> None:
    """Have the MANIFEST next to a table of RocksDB's say its size, which was another one when it was written."""
    (manifest,) = table.parent.glob("MANIFEST-*")
    number, size = varint(int(table.stem)), table.stat().st_size
    records = sawlog.read(manifest, format="leveldb_log").column("record").to_pylist()
    before, after = number + varint(size_before), number + varint(size)
    assert sum(record.count(before) for record in records) == 1
    assert len(before) == len(after)
    changed = pa.table({"record": pa.array([record.replace(before, after) for record in records], pa.binary())})
    sawlog.write(changed, manifest, format="leveldb_log")


def rename_comparator(database: Path, name: str, other: str) -> None:
    """Give a database an order of keys with another name, of the same length."""
    (manifest,) = database.glob("MANIFEST-*")
    records = sawlog.read(manifest, format="leveldb_log").column("record").to_pylist()
    renamed = [record.replace(name.encode(), other.encode()) for record in records]
    assert renamed != records
    sawlog.write(pa.table({"record": pa.array(renamed, pa.binary())}), manifest, format="leveldb_log")
