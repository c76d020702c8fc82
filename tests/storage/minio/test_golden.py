"""Drives that a real MinIO wrote: every object equals what was put, also with parity in the place of lost drives."""

from __future__ import annotations

import itertools
import shutil
import tarfile
from pathlib import Path

import pytest

import sawlog
from sawlog.errors import BitrotError, IncompleteError
from sawlog.storage import Storage
from tests.milvus_binlog.support import GOLDEN as MILVUS
from tests.milvus_binlog.support import with_etcd
from tests.storage.minio.golden import EXPECTED, GOLDEN, LARGE, make_files

ALL = {f"a-bucket/{key}": data for key, data in make_files().items()} | EXPECTED


@pytest.fixture
def drives(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The directory above drives."""
    with tarfile.open(GOLDEN / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def contents(root: Path) -> dict[str, bytes]:
    """The bytes of all objects, by bucket and key."""
    storage = Storage()
    return {file.path.removeprefix(f"{root}/d1/"): storage.read(file) for file in storage.find(root)}


@pytest.mark.parametrize("drives", ["one", "four"], indirect=True)
def test_every_object_is_what_was_put(drives: Path) -> None:
    assert contents(drives) == ALL


@pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
@pytest.mark.parametrize("drives", ["one", "four"], indirect=True)
def test_a_collection_is_read_from_drives(drives: Path) -> None:
    table = with_etcd("2.3.5", "autoid").to_table()
    files = drives / "d1" / "a-bucket" / "files"
    assert sawlog.read(files, table="autoid", metadata=str(MILVUS / "2.3.5/etcd.json")).equals(table)
    report = sawlog.verify(files)
    assert (report.verdict, report.rows) == ("clean", 45)


@pytest.mark.parametrize("lost_drives", list(itertools.combinations("1234", 2)))
@pytest.mark.parametrize("drives", ["four"], indirect=True)
def test_two_of_four_drives_are_enough(drives: Path, lost_drives: tuple[str, ...]) -> None:
    for number in lost_drives:
        shutil.rmtree(drives / f"d{number}")
    first = min(set("1234") - set(lost_drives))
    expected = {f"d{first}/{key}": data for key, data in ALL.items()}
    storage = Storage()
    contents = {file.path.removeprefix(f"{drives}/"): storage.read(file) for file in storage.find(drives)}
    assert contents == expected


@pytest.mark.parametrize("drives", ["four"], indirect=True)
def test_of_one_drive_objects_are_incomplete(drives: Path) -> None:
    for number in "134":
        shutil.rmtree(drives / f"d{number}")
    storage = Storage()
    files = storage.find(drives)
    assert {file.path.removeprefix(f"{drives}/d2/") for file in files} == set(ALL)
    for file in files:
        if not file.path.endswith("/empty"):
            with pytest.raises(IncompleteError, match=r"shard \d, on no drive.*2 shards are needed"):
                storage.read(file)


@pytest.mark.parametrize("drives", ["four"], indirect=True)
def test_parity_takes_the_place_of_damaged_shards(drives: Path) -> None:
    parts = sorted(drives.glob("d*/versions/large/*/part.1"))
    for count, part in enumerate(parts, 1):
        data = bytearray(part.read_bytes())
        data[100] ^= 1
        part.write_bytes(data)
        storage = Storage()
        if count <= 2:
            assert storage.read(drives / "d1/versions/large") == LARGE
        else:
            with pytest.raises(BitrotError, match=r"part\.1: HighwayHash of \d+ bytes at byte 32 is"):
                storage.read(drives / "d1/versions/large")
