"""Charts of tables: bytes by kind of block add up to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.map.pictures import pictures, widths

TABLES = Path(__file__).parents[1] / "golden" / "leveldb_table"


@pytest.mark.parametrize("name", ["rocksdb/11-embedded-small.sst", "rocksdb/zlib.sst", "timestamps/000009.sst"])
def test_bytes_by_kind_of_block(name: str) -> None:
    path = TABLES / name
    (sums,) = widths(pictures(path)["Bytes by kind of block"]).values()
    assert sum(sums.values()) == path.stat().st_size
    assert {"data block", "index", "metaindex", "footer"} <= sums.keys()
