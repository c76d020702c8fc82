"""What metadata names and is not there, and metadata that is cut: incomplete, never clean."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError, IncompleteError, OptionError
from sawlog.format.damage import DamageWarning, Verdict
from sawlog.format.recognition import find_parts
from sawlog.storage import Storage

from .support import GOLDEN, NOW, delete, with_etcd, write_collection

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Forty rows in two partitions; three of them are deleted, one by a delta log of all partitions."""
    root = tmp_path / "backup"
    table = pa.table({"key": range(40), "_partition": [2 + key % 2 for key in range(40)]})
    write_collection(root, table, tree="backup", collection_name="products")
    (first, *_) = sorted(int(path.name) for path in root.glob("binlogs/insert_log/1/2/*"))
    delete(root, [0, 2], [NOW + 1] * 2, first, tree="backup")
    delete(root, [13], [NOW + 1], 900, -1, tree="backup")
    return root


def partial(path: Path, match: str, **options: Any) -> pa.Table:
    """What is read of an incomplete tree, once it was seen that it is reported."""
    with pytest.raises(IncompleteError, match=match):
        sawlog.read(path, **options)
    assert sawlog.verify(path, **options).verdict is Verdict.INCOMPLETE
    with pytest.warns(DamageWarning, match=match):
        return sawlog.read(path, on_damage="skip", **options)


@pytest.mark.parametrize(("log", "back"), [("*/2/*/*", {0, 2}), ("*/-1/900/*", {13})])
def test_a_delta_log_that_the_metadata_names(backup: Path, log: str, back: set[int]) -> None:
    assert set(sawlog.read(backup)["key"].to_pylist()) == set(range(40)) - {0, 2, 13}
    (file,) = backup.glob(f"binlogs/delta_log/{log}")
    file.unlink()
    keys = partial(backup, f"{file.name}.*names this delta log, which is not there")["key"].to_pylist()
    assert set(keys) == set(range(40)) - {0, 2, 13} | back
    assert sawlog.open(backup, deletes="ignore").count_rows() == sawlog.open(backup, view="inserts").count_rows() == 40
    with pytest.raises(IncompleteError, match="names this delta log"):
        sawlog.read(backup, view="deletes")
    with pytest.raises(IncompleteError, match="names this delta log"):
        sawlog.read(backup, view="history")


def test_a_delta_log_that_etcd_names(tmp_path: Path) -> None:
    root = tmp_path / "2.3.5"
    shutil.copytree(GOLDEN / "2.3.5", root)
    count = with_etcd("2.3.5", "alltypes").count_rows()
    options = {"table": "alltypes", "metadata": str(root / "etcd.json")}
    for file in root.glob(f"delta_log/{_collection('alltypes')}/*/*/*"):
        file.unlink()
    assert partial(root, "names this delta log", **options).num_rows > count


def _collection(name: str) -> int:
    return with_etcd("2.3.5", name).contents.collection.id


def test_a_backup_without_its_binlogs(backup: Path) -> None:
    files = [path for path in backup.glob("binlogs/*_log/**/*") if path.is_file()]
    named = {str(path) for path in files if "stats_log" not in path.parts}
    shutil.rmtree(backup / "binlogs")
    assert partial(backup, "the metadata names").num_rows == 0
    report = sawlog.verify(backup)
    missing = {damage.path for file in report.files for damage in file.damages if damage.kind == "missing_file"}
    assert missing == named
    assert sawlog.open(backup, on_damage="skip").schema.names == ["key"]


def test_metadata_of_a_backup_that_is_cut_or_gone(backup: Path) -> None:
    table = sawlog.read(backup)
    file = backup / "meta" / "full_meta.json"
    data = file.read_bytes()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:length])
        assert partial(backup, "no whole JSON.*metadata=").num_rows == table.num_rows
    file.unlink()
    assert partial(backup, "a backup without its metadata").num_rows == table.num_rows


def test_a_dump_of_etcd_that_is_cut(tmp_path: Path) -> None:
    data = (GOLDEN / "2.3.5" / "etcd.json").read_bytes()
    dump = tmp_path / "etcd.json"
    dump.write_bytes(data[: len(data) // 2])
    options = {"table": str(_collection("alltypes")), "metadata": str(dump)}
    with pytest.raises(IncompleteError, match=r"etcd\.json: cut_metadata"):
        sawlog.read(GOLDEN / "2.3.5", **options)
    assert sawlog.verify(GOLDEN / "2.3.5", **options).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("name", ["multi_event_insert", "delta/json_stream"])
@pytest.mark.parametrize("view", ["rows", "inserts", "deletes"])
def test_a_log_by_itself_is_not_followed(name: str, view: str) -> None:
    expected = r"follow its collection's root|cannot be followed|view (inserts|deletes) is for"
    with pytest.raises(OptionError, match=expected):
        next(sawlog.open(GOLDEN / "synthetic" / name, view=view).watch())


def test_numbers_in_a_path_are_not_content(tmp_path: Path) -> None:
    """Milvus maps columns of numbers into memory from files whose paths are ids, too."""
    cache = tmp_path / "449" / "450" / "451" / "452" / "100"
    cache.parent.mkdir(parents=True)
    cache.write_bytes(struct.pack("<400f", *range(400)))
    (part,) = find_parts(Storage().find(str(tmp_path)), Storage())
    assert part.format is None
    with pytest.raises(FormatError, match="not recognised"):
        sawlog.open(tmp_path)
    (report,) = sawlog.verify(tmp_path, format="milvus_binlog").files
    assert report.damaged


@pytest.mark.parametrize("view", ["rows", "history", "deletes"])
def test_a_delta_log_of_another_state(backup: Path, tmp_path: Path, view: str) -> None:
    """The metadata says that there are two deletes; an earlier state of the log has one."""
    (log,) = backup.glob("binlogs/delta_log/*/2/*/*")
    segment = int(log.parent.name)
    delete(tmp_path / "earlier", [0], [NOW + 1], segment, first_id=int(log.name))
    (earlier,) = (tmp_path / "earlier").glob("delta_log/*/2/*/*")
    log.write_bytes(earlier.read_bytes())
    table = partial(backup, "expected 2 deletes, as the metadata says, found 1", view=view)
    assert table.num_rows == {"rows": 38, "history": 40, "deletes": 2}[view]
    assert sawlog.open(backup, deletes="ignore").count_rows() == 40


def test_insert_logs_of_another_state(tmp_path: Path) -> None:
    """All files of a batch agree with each other, and have fewer rows than the metadata says."""
    for name, count in (("backup", 5), ("earlier", 3)):
        write_collection(tmp_path / name, pa.table({"key": range(count)}), tree="backup", collection_name="products")
    shutil.rmtree(tmp_path / "backup/binlogs/insert_log")
    shutil.copytree(tmp_path / "earlier/binlogs/insert_log", tmp_path / "backup/binlogs/insert_log")
    assert partial(tmp_path / "backup", "expected 5 rows, as the metadata says, found 3").num_rows == 3
    with pytest.raises(IncompleteError, match="expected 5 rows"):
        sawlog.open(tmp_path / "backup").count_rows()


@pytest.mark.parametrize("changes", [{"memory_size": 1}, {}])
def test_a_log_of_another_size(tmp_path: Path, changes: dict[str, int]) -> None:
    """Only metadata of Milvus 2.4 and later says how large files are: before, `log_size` was the size in memory."""
    write_collection(tmp_path / "backup", pa.table({"key": range(5)}), tree="backup", collection_name="products")
    meta = tmp_path / "backup/meta/full_meta.json"
    document = json.loads(meta.read_text())
    segment = document["collection_backups"][0]["partition_backups"][0]["segment_backups"][0]
    log = next(binlog for binlog in segment["binlogs"] if binlog.get("fieldID") == 100)["binlogs"][0]
    size = log["log_size"]
    log |= {"log_size": 7, **changes}
    meta.write_text(json.dumps(document))
    if changes:
        match = f"expected 7 bytes, as the metadata says, found {size}"
        assert partial(tmp_path / "backup", match).num_rows == 5
    else:
        assert sawlog.verify(tmp_path / "backup").verdict is Verdict.CLEAN
