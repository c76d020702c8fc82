"""What a database holds in memory is bounded by its batches, whatever its files claim."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from rocksdict import DBCompressionType, Options, Rdict

import sawlog
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.pebble import BlockLayer
from tests.bytes import encode_varint, mask_crc
from tests.leveldb_database.support import state_new_size

VALUE = 4 << 20
ENTRIES = 60
MAX_BYTES = 10 * VALUE


class Peak:
    """The most bytes that were allocated at once, by Python and NumPy and by Arrow."""

    def __enter__(self) -> Self:
        tracemalloc.start()
        self._before = pa.total_allocated_bytes()
        self._arrow = 0
        return self

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._arrow = max(self._arrow, pa.total_allocated_bytes() - self._before)
            yield batch

    def __exit__(self, *raised: object) -> None:
        self.bytes = self._arrow + tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:.*the MANIFEST says that its first entry is:sawlog.DamageWarning")
def test_a_blob_that_many_entries_lead_to_is_not_held_for_all_of_them(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(100)
    options.set_blob_compression_type(DBCompressionType.zstd())
    database = Rdict(str(tmp_path / "db"), options)
    database[b"key"] = bytes(VALUE)
    database.flush()
    database.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    (row,) = sawlog.read(table).to_pylist()
    rows = [{**row, "sequence": ENTRIES - number} for number in range(ENTRIES)]
    size_before = table.stat().st_size
    sawlog.write(pa.Table.from_pylist(rows), table, format="leveldb_table", dialect="rocksdb")
    state_new_size(table, size_before)
    dataset = sawlog.open(tmp_path / "db", format="leveldb_database", view="all", on_damage="skip")
    with Peak() as peak:
        count = size = 0
        for batch in peak.watched(dataset.to_batches()):
            count, size = count + batch.num_rows, size + sum(len(value.as_py()) for value in batch["value"])
    assert (count, size) == (ENTRIES, ENTRIES * VALUE)
    assert peak.bytes < MAX_BYTES


def entry(shared: int, suffix: bytes, value: bytes) -> bytes:
    return encode_varint(shared) + encode_varint(len(suffix)) + encode_varint(len(value)) + suffix + value


PREFIX = 200_000
BLOCKS = 600


@pytest.fixture(scope="module")
def long_keys() -> bytes:
    """A table of LevelDB whose keys are long, and whose index is a fraction of them: 120 MB in 200 KB."""
    out, index, before = b"", b"", b""
    for number in range(BLOCKS):
        key = bytes(PREFIX) + struct.pack(">H", number) + b"\x01" + bytes(7)
        block = zstandard.compress(entry(0, key, b"value") + struct.pack("<II", 0, 1)) + b"\x02"
        handle = encode_varint(len(out)) + encode_varint(len(block) - 1)
        shared = PREFIX if number else 0
        index += entry(shared, key[shared:], handle)
        out += block + mask_crc(block).to_bytes(4, "little")
        before = key
    assert before
    handles = b""
    for content in (b"", index):
        block = content + struct.pack("<II", 0, 1) + b"\x00"
        handles += encode_varint(len(out)) + encode_varint(len(block) - 1)
        out += block + mask_crc(block).to_bytes(4, "little")
    return out + handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


@pytest.mark.parametrize("view", ["rows", "frames"])
@pytest.mark.nightly
def test_an_index_of_keys_that_share_long_prefixes_stays_as_it_is(view: str, long_keys: bytes, tmp_path: Path) -> None:
    path = tmp_path / "000005.ldb"
    path.write_bytes(long_keys)
    assert len(long_keys) < 300_000
    comparator = "leveldb.BytewiseComparator"
    with Peak() as peak:
        dataset = sawlog.open(path, format="leveldb_table", comparator=comparator, view=view, columns=["_offset"])
        rows = sum(batch.num_rows for batch in peak.watched(dataset.to_batches()))
        dataset = sawlog.open(path, format="leveldb_table", comparator=comparator, view=view)
        rows += sum(batch.num_rows for batch in peak.watched(dataset.to_batches()))
    assert rows == 2 * (BLOCKS if view == "rows" else BLOCKS + 2)
    assert peak.bytes < MAX_BYTES
    key = bytes(PREFIX) + struct.pack(">H", 77)
    table = sawlog.read(path, format="leveldb_table", comparator=comparator, filters=[("key", "=", key)])
    assert table["key"].to_pylist() == [key]
    assert not sawlog.verify(path, format="leveldb_table", comparator=comparator).damaged


def test_keys_of_a_pebble_block_take_no_more_than_a_block_may() -> None:
    """Each key shares nearly all of the one before; one after the other they take 150 MB."""
    longest, shared, count = 1 << 20, 30_000, 5_000
    head = encode_varint(0) + encode_varint(shared) + encode_varint(0) + bytes(shared)
    block = head + (encode_varint(shared) + bytes(2)) * count + struct.pack("<II", 0, 1)
    rules: Any = SimpleNamespace(longest=longest)
    layer = BlockLayer(layout.PREFIXED_VALUES, {}, rules, np.zeros(0, np.void), cast("Any", None))
    with Peak() as peak:
        content, _ = layer.convert_block(pa.py_buffer(block), deletions=False)
    assert isinstance(content, tuple)
    assert peak.bytes < 8 * longest
