"""Tables small enough for plain Python, where every access is checked: whole and damaged, written and read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError
from sawlog.kernels.jit import MODE, PYTHON
from sawlog.leveldb.log.kernels import compute_masked_checksum
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table.layout import Role

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python

PACE = 4 if MODE == PYTHON else 1
ROWS = pa.table(
    {
        "sequence": pa.array(range(1, 31), pa.int64()),
        "operation": pa.array(["put", "delete", "put"] * 10),
        "key": pa.array([b"key/%03d" % i if i % 7 else b"key/%03d" % i + b"x" * 40 for i in range(30)], pa.binary()),
        "value": pa.array([bytes([i]) * (i * i % 300) for i in range(30)], pa.binary()),
    }
)


def write_table(place: Path, **options: object) -> Path:
    file = place / "000001.ldb"
    sawlog.write(ROWS, file, format="leveldb_table", block_bytes=200, restart_interval=3, **options)
    return file


@pytest.mark.parametrize(
    ("dialect", "compression"), [("leveldb", "none"), ("leveldb", "snappy"), ("rocksdb", "none"), ("rocksdb", "lz4")]
)
def test_what_is_written_is_read(tmp_path: Path, dialect: str, compression: str) -> None:
    file = write_table(tmp_path, dialect=dialect, compression=compression)
    assert sawlog.read(file).to_pylist() == ROWS.to_pylist()
    assert not any(report.damaged for report in sawlog.verify(file).files)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_changed_bytes_stay_inside(tmp_path: Path, compression: str) -> None:
    """Without checksums, whatever a block says is believed until it cannot be."""
    file = write_table(tmp_path, compression=compression)
    data = file.read_bytes()
    for place in range(0, len(data) - 8, 97 * PACE):
        for value in (0, 255):
            file.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            for verify in (True, False):
                try:
                    (report,) = sawlog.verify(file, format="leveldb_table", verify_checksums=verify).files
                except FormatError:
                    continue
                assert report.account.total == len(data)


def test_spans_hold_every_byte_once_and_runs_end_at_what_is_apart() -> None:
    """Blocks of 20 bytes one after the other, a gap, one that another overlaps, and one that reaches past the end."""
    data, header = int(Role.DATA), int(Role.HEADER)
    blocks = np.array([(170, 25, header, -1)], k.SPAN)
    handles = np.array([(0, 15), (20, 15), (50, 35), (60, 15), (150, 95)], k.HANDLE)
    spans = np.zeros(14, k.SPAN)
    count = k.lay_spans(blocks, handles, np.array([1, 2, 3, 4, 5, 0]), np.int64(200), np.int64(48), spans)
    gap, overlap = int(Role.GAP), int(Role.OVERLAP)
    assert spans[:count].tolist() == [
        (0, 20, data, 0),
        (20, 20, data, 1),
        (40, 10, gap, -1),
        (50, 40, data, 2),
        (90, 0, overlap, 3),
        (90, 60, gap, -1),
        (150, 50, overlap, 4),
        (200, 48, header, -1),
    ]
    ends = np.zeros(count, np.int64)
    keys = np.array([5, 10, 15, 20, 25])
    for limit, key_room, expected in ((40, 5, [2, 3]), (39, 5, [1, 2]), (40, 4, [1, 2])):
        runs = k.find_runs(spans[:count], keys, np.int64(limit), np.int64(key_room), ends)
        assert ends[:2].tolist() == expected
        assert ends[runs - 1] == count


def test_the_end_of_a_block_is_found_by_whatever_compressed_it() -> None:
    """Pebble's MinLZ has the last code of all."""
    for code in Compression:
        block = b"a block" + bytes([code])
        stored = block + compute_masked_checksum(block).to_bytes(4, "little") + b"after it"
        assert k.find_block_end(np.frombuffer(stored, np.uint8), np.uint64(len(stored))) == len(block) - 1
