"""Keys with timestamps, which a RocksDB wrote: see `tests/interop/rocksdb_timestamps.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

import sawlog
from sawlog.errors import SchemaError

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_table"
DATABASE = GOLDEN / "timestamps"


def answers() -> list[tuple[bytes, int, bytes]]:
    """What RocksDB answered, key by key."""
    held = {}
    for turn in range(3):
        for number in range(200):
            key, stamp = b"key%03d" % number + bytes(number % 3), 10 * (turn + 1) + number % 5
            if number % 7 != turn:
                held[key] = stamp, b"v%d.%d" % (number, turn)
            elif turn:
                held.pop(key, None)
    return [(key, *held[key]) for key in sorted(held)]


def test_the_newest_version_of_each_key() -> None:
    rows = sawlog.read(DATABASE, format="leveldb_database", view="live").to_pylist()
    assert [(row["key"], row["timestamp"], row["value"]) for row in rows] == answers()
    some = sawlog.read(DATABASE, format="leveldb_database", columns=["timestamp"], filters=[("key", ">=", b"key150")])
    assert some["timestamp"].to_pylist() == [stamp for key, stamp, _ in answers() if key >= b"key150"]


def test_every_version() -> None:
    rows = sawlog.read(DATABASE, format="leveldb_database", view="all").to_pylist()
    assert len(rows) == 3 * 200 - 29
    assert rows == sorted(rows, key=lambda row: (row["key"], -row["timestamp"]))
    assert {row["operation"] for row in rows} == {"put", "delete"}


def test_timestamps_of_a_table_stand_in_a_column() -> None:
    table = min(DATABASE.glob("*.sst"))
    whole, apart = sawlog.read(table).to_pylist(), sawlog.read(table, keys="stamped").to_pylist()
    for row, split in zip(whole, apart, strict=True):
        assert row["key"] == split["key"] + split["timestamp"].to_bytes(8, "little")
    picked = sawlog.read(table, keys="stamped", filters=[("key", "=", b"key003")]).to_pylist()
    assert picked == [row for row in apart if row["key"] == b"key003"]
    assert len(picked) == 1


def test_keys_that_have_none_are_refused(tmp_path: Path) -> None:
    sawlog.write(sawlog.read(min(DATABASE.glob("*.sst"))).slice(0, 0), tmp_path / "a.sst", format="leveldb_table")
    assert sawlog.read(tmp_path / "a.sst", keys="stamped").num_rows == 0
    import pyarrow as pa

    sawlog.write(pa.table({"key": [b"short"], "value": [b""]}), tmp_path / "b.ldb", format="leveldb_table")
    with pytest.raises(SchemaError, match="has no timestamp"):
        sawlog.read(tmp_path / "b.ldb", keys="stamped")
