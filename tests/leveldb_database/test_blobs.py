"""Values in RocksDB's blob files stand where the entries that lead to them would hold them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.compute as pc
import pytest
from rocksdict import DBCompressionType, Options, Rdict

import sawlog
from sawlog import DamageError

CODECS = ("none", "snappy", "lz4", "zstd")


def database(path: Path, codec: str) -> dict[bytes, bytes]:
    """A RocksDB with values in blob files and in tables, old versions, deletions, and a log; what it holds."""
    options = Options(raw_mode=True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(100)
    options.set_blob_compression_type(getattr(DBCompressionType, codec)())
    dice = random.Random(1)
    opened = Rdict(str(path), options)
    for number in range(600):
        key = b"key%03d" % dice.randrange(300)
        opened[key] = dice.randbytes(20) * dice.randrange(20)
        if number % 9 == 0:
            del opened[key]
        if number % 150 == 149:
            opened.flush()
    held = dict(opened.items())
    opened.close()
    return held


def live(path: Path, **arguments: object) -> dict[bytes, bytes]:
    table = sawlog.read(path, format="leveldb_database", view="live", **arguments)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("codec", CODECS)
def test_values_in_blob_files(codec: str, tmp_path: Path) -> None:
    held = database(tmp_path / "db", codec)
    assert list((tmp_path / "db").glob("*.blob"))
    assert live(tmp_path / "db") == held
    every = sawlog.read(tmp_path / "db", format="leveldb_database", view="all")
    assert {"put", "put_blob_index"} <= set(every["operation"].to_pylist())
    assert not sawlog.verify(tmp_path / "db", format="leveldb_database").damaged
    dataset = sawlog.open(tmp_path / "db", format="leveldb_database")
    assert dataset.count_rows() == len(held)
    assert sawlog.read(tmp_path / "db", format="leveldb_database", columns=["key"]).num_rows == len(held)


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("gone", [True, False])
def test_damaged_blob_files_cost_their_values(gone: bool, tmp_path: Path) -> None:
    held = database(tmp_path / "db", "none")
    blob = max((tmp_path / "db").glob("*.blob"))
    if gone:
        blob.unlink()
    else:
        data = bytearray(blob.read_bytes())
        for place in range(200, len(data), 2000):
            data[place] ^= 1
        blob.write_bytes(data)
    with pytest.raises(DamageError, match=blob.name):
        live(tmp_path / "db")
    found = live(tmp_path / "db", on_damage="skip")
    assert found.items() < held.items()
    assert len(held) - len(found) >= 5
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert (report.rows, report.damaged) == (len(found), True)
    listed = sawlog.read(tmp_path / "db", format="leveldb_database", view="damage")
    lost = listed.filter(pc.not_equal(listed["kind"], "bad_blob_part"))
    assert lost.num_rows == len(held) - len(found)
    assert listed.num_rows == (lost.num_rows if gone else 2 * lost.num_rows)
    assert set(listed["file"].to_pylist()) == {str(blob)}
    assert sawlog.open(tmp_path / "db", format="leveldb_database", on_damage="skip").count_rows() == len(found)
