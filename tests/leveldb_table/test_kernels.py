"""Tables small enough for plain Python, where every access is checked: whole and damaged, written and read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError
from sawlog.kernels.jit import MODE, PYTHON

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


def save(place: Path, **options: object) -> Path:
    file = place / "000001.ldb"
    sawlog.write(ROWS, file, format="leveldb_table", block_bytes=200, restart_interval=3, **options)
    return file


@pytest.mark.parametrize(
    ("dialect", "compression"), [("leveldb", "none"), ("leveldb", "snappy"), ("rocksdb", "none"), ("rocksdb", "lz4")]
)
def test_what_is_written_is_read(tmp_path: Path, dialect: str, compression: str) -> None:
    file = save(tmp_path, dialect=dialect, compression=compression)
    assert sawlog.read(file).to_pylist() == ROWS.to_pylist()
    assert not any(report.damaged for report in sawlog.verify(file).files)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_changed_bytes_stay_inside(tmp_path: Path, compression: str) -> None:
    """Without checksums, whatever a block says is believed until it cannot be."""
    file = save(tmp_path, compression=compression)
    whole = file.read_bytes()
    for place in range(0, len(whole) - 8, 97 * PACE):
        for value in (0, 255):
            file.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            for verify in (True, False):
                try:
                    (report,) = sawlog.verify(file, format="leveldb_table", verify_checksums=verify).files
                except FormatError:
                    continue
                assert report.account.total == len(whole)
