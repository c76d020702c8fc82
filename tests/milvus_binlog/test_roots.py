"""What else is below a root: a server's queue, Storage V3, BM25 statistics; and what is guessed."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import DamageError
from sawlog.format.damage import DamageWarning

from .support import NOW, delete, open_as_it_lies, write_collection

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


def test_a_servers_data_root_is_recognised(tmp_path: Path) -> None:
    """Next to the binlogs is the server's queue, which is a RocksDB with logs of its own."""
    root = tmp_path / "data"
    write_collection(root, pa.table({"pk": [1, 2, 3]}))
    queue = root / "rocksmq"
    queue.mkdir()
    batches = pa.table({"record": pa.array([b"\1" + bytes(11)] * 3, pa.binary())})
    sawlog.write(batches, queue / "000004.log", format="leveldb_log")
    assert sawlog.open(queue).format.name == "leveldb_log"
    dataset = sawlog.open(root)
    assert dataset.format.name == "milvus_binlog"
    assert dataset.count_rows() == 3


def manifest_segment(root: Path, segment: int) -> None:
    """A segment of Storage V3 whose manifest is none, and nothing that has the place of a log."""
    directory = root / "insert_log" / "1" / "2" / str(segment) / "_metadata"
    directory.mkdir(parents=True)
    (directory / "manifest-1.avro").write_bytes(b"Obj\x01" + bytes(64))


def test_segments_of_storage_v3_are_noticed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_collection(root, pa.table({"pk": [1, 2, 3]}))
    manifest_segment(root, 900)
    with pytest.raises(DamageError, match=r"insert_log/1/2/900/_metadata.*no Avro container"):
        open_as_it_lies(root).to_table()
    with pytest.warns(DamageWarning, match="1 bad_manifest"):
        assert open_as_it_lies(root, on_damage="skip").to_table()["100"].to_pylist() == [1, 2, 3]
    assert open_as_it_lies(root, segments=(100,)).count_rows() == 3
    with pytest.warns(DamageWarning, match="1 bad_manifest"):
        segments = open_as_it_lies(root, view="segments", on_damage="skip").to_table().to_pylist()
    assert [(segment["segment"], segment["rows"]) for segment in segments] == [(100, 3), (900, None)]
    report = sawlog.verify(root)
    assert [file.kinds["bad_manifest"] for file in report.files if file.damaged] == [1]
    # A read of one segment does not warn about its neighbours.
    assert open_as_it_lies(root / "insert_log" / "1" / "2" / "100").count_rows() == 3


def test_bm25_statistics_are_read_and_checked(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_collection(root, pa.table({"pk": [1, 2, 3]}))
    log = root / "bm25_stats" / "1" / "2" / "100" / "101" / "7"
    log.parent.mkdir(parents=True)
    log.write_bytes(struct.pack("<iqq", 0, 3, 9) + struct.pack("<IiIi", 4_000_000_000, 2, 17, 1))
    assert sawlog.read(log).to_pylist() == [{"token": 4_000_000_000, "rows": 2}, {"token": 17, "rows": 1}]
    assert open_as_it_lies(root).count_rows() == 3
    files_by_path = {file.path: file for file in sawlog.verify(root).files}
    assert sawlog.verify(log).rows == 2  # in the tree, the rows are those of the collection
    assert files_by_path[str(log)].account.total == log.stat().st_size
    log.write_bytes(log.read_bytes()[:-3])
    damages = sawlog.read(root, view="damage").to_pylist()
    assert [(Path(damage["file"]), damage["kind"]) for damage in damages] == [(log, "bad_stats")]


def test_guessed_element_types_are_told(tmp_path: Path) -> None:
    table = pa.table({"pk": [1], "small": pa.array([[1, -2]], pa.list_(pa.int8()))})
    write_collection(tmp_path, table)
    dataset = open_as_it_lies(tmp_path)
    assert dataset.schema.field("101").type == pa.list_(pa.int32())
    assert "101" in dataset.info()["array elements"]
    fields = [{"name": "pk", "type": 5, "is_primary": True}, {"name": "small", "type": 22, "element_type": 2}]
    warned_dataset = open_as_it_lies(tmp_path, schema={"name": "c", "fields": fields})
    assert warned_dataset.to_table()["small"].to_pylist() == [[1, -2]]
    assert warned_dataset.schema.field("small").type == pa.list_(pa.int8())
    assert "array elements" not in warned_dataset.info()


def test_deletes_that_were_written_anew_are_read_anew(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1, 2, 3]}))
    for key in (1, 2):
        (log,) = list(tmp_path.rglob("delta_log/1/2/100/*")) or [None]
        size = log.stat().st_size if log else 0
        if log:
            log.unlink()
        delete(tmp_path, [key], [NOW + 1], 100)
        (log,) = tmp_path.rglob("delta_log/1/2/100/*")
        assert size in (0, log.stat().st_size)
        assert key not in open_as_it_lies(tmp_path).to_table()["100"].to_pylist()
        assert open_as_it_lies(tmp_path).count_rows() == 2
