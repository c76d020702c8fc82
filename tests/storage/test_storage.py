from __future__ import annotations

import errno
import os
import pickle
import random
import re
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import sawlog
from sawlog.storage import File, Staged, Storage, discard_staged, flight, normalize
from sawlog.storage.names import make_natural_key, sort_files
from tests.support import make_dead_links

DATA = np.random.default_rng(1).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    """A storage and an empty directory on it."""
    if request.param == "local":
        return Storage(), str(tmp_path)
    if request.param == "memory":
        return Storage(), f"memory://{uuid.uuid4().hex}"
    return Storage(request.getfixturevalue("s3")), f"s3://logs/{uuid.uuid4().hex}"


def publish(storage: Storage, path: str, data: bytes) -> None:
    file = storage.stage(path)
    file.write(data)
    storage.publish([file.finish()])


def test_what_is_written_is_found_and_read(place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "REMOTE_RANGE", 700_001)
    storage, root = place
    publish(storage, f"{root}/a.bin", DATA)
    (file,) = storage.find(f"{root}/a.bin")
    assert (file.name, file.size, file.explicit) == ("a.bin", len(DATA), True)
    assert storage.exists(file.path)
    assert not storage.exists(f"{root}/b.bin")
    assert storage.read(file.path, 10, 20) == DATA[10:30]
    assert storage.read(file.path) == DATA
    source = storage.open(file.path)
    position = 0
    for length in (0, 1, 999_999, 1_000_000, 1_500_000):
        assert source.read_window(position, length).tobytes() == DATA[position : position + length]
        position += length // 2
    assert source.read_window(2_999_990, 100).tobytes() == DATA[-10:]
    assert source.read_window(len(DATA), 100).tobytes() == b""
    assert source.read_window(0, 5).tobytes() == DATA[:5]
    source.close()


@pytest.mark.parametrize("shapes", [["0/00-0"], ["0/00", "00/0", "a0", "0a", "000/", "٣0"]])
def test_paths_are_in_natural_order_whatever_their_shapes(shapes: list[str]) -> None:
    """Those of one shape are compared as texts, which takes less than their keys."""
    dice = random.Random(1)
    for _ in range(300):
        files = [
            File("".join(dice.choice("0179") if char == "0" else char for char in dice.choice(shapes)), 0)
            for _ in range(9)
        ]
        assert sort_files(files) == sorted(files, key=lambda file: make_natural_key(file.path))


def test_a_pickled_file_keeps_all_that_is_known_of_it() -> None:
    file = File("s3://bucket/a/b.bin", 7, False, "tag", 1.5, 2.5, True)
    copy = pickle.loads(pickle.dumps(file))
    assert all(getattr(copy, name) == getattr(file, name) for name in File.__slots__)


def test_a_file_that_another_process_has_found_is_read_without_a_look_at_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(Storage(), f"{tmp_path}/a.bin", DATA[:100])
    (file,) = Storage().find(f"{tmp_path}/a.bin")
    copy = pickle.loads(pickle.dumps(file))
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda *arguments, **settings: pytest.fail("a look at the path"))
        assert Storage().read(copy) == DATA[:100]


def test_directories_are_walked_in_natural_order(place: tuple[Storage, str]) -> None:
    storage, root = place
    names = ["10.log", "9.log", "sub/1.log", "_hidden", ".hidden", "_temporary/2.log"]
    for name in names:
        publish(storage, f"{root}/{name}", b"x")
    names_found = [file.path.split(root.rpartition("/")[2])[1] for file in storage.find(root)]
    assert names_found == ["/9.log", "/10.log", "/sub/1.log"]
    assert not any(file.explicit for file in storage.find(root))
    globbed = storage.find(f"{root}/*.log")
    assert [file.name for file in globbed] == ["9.log", "10.log"]
    assert all(file.explicit for file in globbed)
    files = storage.find([f"{root}/10.log", root])
    assert [file.name for file in files] == ["10.log", "9.log", "1.log"]
    assert storage.is_directory(root)
    assert not storage.is_directory(f"{root}/9.log")


def test_nothing_there_is_an_error(place: tuple[Storage, str]) -> None:
    storage, root = place
    for path in (f"{root}/nothing", f"{root}/*.none"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            storage.find(path)


def test_what_cannot_be_looked_into_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "1.log").touch()
    (tmp_path / "closed").mkdir()
    os.symlink("nothing", tmp_path / "link")
    os.symlink("loop", tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    assert [file.name for file in Storage().find(tmp_path)] == ["1.log"]

    def refused(call_kept: Any) -> Any:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            if "closed" in str(path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call_kept(path, *arguments, **named)

        return call

    monkeypatch.setattr(os, "scandir", refused(os.scandir))
    with pytest.raises(PermissionError, match="closed"):
        Storage().find(tmp_path)
    (tmp_path / "closed").rmdir()
    (tmp_path / "closed").touch()
    monkeypatch.setattr(os, "stat", refused(os.stat))
    with pytest.raises(PermissionError, match="closed"):
        Storage().find(tmp_path)


def test_staged_files_are_invisible_until_published(place: tuple[Storage, str]) -> None:
    storage, root = place
    publish(storage, f"{root}/kept", b"old")
    file = storage.stage(f"{root}/kept")
    file.write(b"new")
    staged = file.finish()
    assert [f.name for f in storage.find(root)] == ["kept"]
    assert storage.read(f"{root}/kept") == b"old"
    storage.publish([staged])
    assert storage.read(f"{root}/kept") == b"new"
    dropped = storage.stage(f"{root}/dropped")
    dropped.write(b"gone")
    dropped.discard(storage)
    other_file = storage.stage(f"{root}/other")
    other_file.write(b"gone")
    discard_staged(storage, [other_file.finish()])
    fs, path = fsspec.core.url_to_fs(root, **storage.options)
    assert [name.rpartition("/")[2] for name in fs.find(path)] == ["kept"]


def test_what_killed_writers_left_is_found_by_its_marker(place: tuple[Storage, str]) -> None:
    storage, root = place
    assert storage.directories.find_staged_paths(f"{root}/nothing", "job") == []
    ours = [storage.stage(f"{root}/{name}") for name in ("part-0-job1", "part-1-job1/column")]
    other_file = storage.stage(f"{root}/part-0-job2")
    publish(storage, f"{root}/published-job1", b"1")
    staged = [file.finish() for file in (*ours, other_file)]
    paths_found = storage.directories.find_staged_paths(root, "job1")
    assert sorted(map(os.path.basename, paths_found)) == sorted(os.path.basename(file.temporary) for file in staged[:2])
    for path in paths_found:
        storage.directories.remove(path)
    assert storage.directories.find_staged_paths(root, "job1") == []
    assert len(storage.directories.find_staged_paths(root, "job2")) == 1


def test_listings_show_what_others_have_written(s3: dict[str, Any]) -> None:
    storage, root = Storage(s3), f"s3://logs/{uuid.uuid4().hex}"
    publish(storage, f"{root}/1.log", b"1")
    assert len(storage.find(root)) == 1
    with fsspec.filesystem("s3", skip_instance_cache=True, **s3).open(f"{root}/2.log", "wb") as file:
        file.write(b"2")
    assert len(storage.find(root)) == 2
    assert storage.exists(f"{root}/2.log")


def test_publishing_is_taken_back_when_one_file_fails(tmp_path: Path) -> None:
    storage = Storage()
    good = storage.stage(tmp_path / "good")
    staged = [good.finish(), Staged(str(tmp_path / "missing"), str(tmp_path / "bad"), 0)]
    with pytest.raises(FileNotFoundError):
        storage.publish(staged)
    assert os.listdir(tmp_path) == []


def test_an_empty_file_is_opened(place: tuple[Storage, str]) -> None:
    storage, root = place
    publish(storage, f"{root}/empty", b"")
    source = storage.open(f"{root}/empty")
    assert source.size == 0
    assert len(source.read_window(0, 10)) == 0


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("a/b", "a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("memory://a", "memory://a"),
    ],
)
def test_paths_have_one_spelling(path: str, expected: str) -> None:
    assert normalize(path) == expected


def test_nothing_is_fetched_after_the_end_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr(flight, "REMOTE_RANGE", 100_000)
    content = random.Random(2).randbytes(1_000_000)
    storage = Storage()
    publish(storage, "memory://ends/file", content)
    ends_asked: list[int] = []
    fetch = MemoryFileSystem.cat_file

    def cat_file(self: Any, path: str, start: int, end: int, **options: Any) -> bytes:
        ends_asked.append(end)
        return fetch(self, path, start=start, end=end, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    with closing(storage.open("memory://ends/file", 330_000)) as source:
        for offset in range(0, 330_000, 30_000):
            assert bytes(source.read_window(offset, 30_000)) == content[offset : offset + 30_000]
        assert max(ends_asked) == 330_000
        assert bytes(source.read_window(320_000, 20_000)) == content[320_000:340_000]
        assert max(ends_asked) == 340_000


def test_secrets_stay_out_of_messages() -> None:
    assert "hunter2" not in repr(Storage({"secret": "hunter2"}))


def test_a_log_on_s3_reads_like_a_local_one(
    s3: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa

    monkeypatch.setattr(flight, "REMOTE_RANGE", 100_000)
    records = [bytes([i % 256]) * size for i, size in enumerate((0, 5, 40_000, 200_000, 1_000, 70_000))]
    table = pa.table({"record": pa.array(records, pa.binary())})
    local, remote = tmp_path / "000001.log", "s3a://logs/db/000001.log"
    sawlog.write(table, local, format="leveldb_log")
    sawlog.write(table, remote, format="leveldb_log", storage_options=s3)
    assert Storage(s3).read(remote) == local.read_bytes()
    for path in (remote, "s3://logs/db", "s3://logs/db/*.log"):
        read = sawlog.read(path, storage_options=s3, columns=["_offset", "record"])
        assert read.column("record").to_pylist() == records
        assert read.equals(sawlog.read(local, columns=["_offset", "record"]))
    split = sawlog.open(remote, storage_options=s3).fragments(task_bytes=32768)
    assert len(split) > 5
    assert [r for f in split for b in f.to_batches() for r in b.column("record").to_pylist()] == records


def fill(storage: Storage, path: str, *, exclusive: bool = False, **files: bytes) -> Staged:
    directory = storage.directories.stage_directory(path, "job")
    for name, data in files.items():
        Path(directory.work, name).write_bytes(data)
    return directory.finish(storage, exclusive=exclusive)


def content(storage: Storage, root: str) -> dict[str, bytes]:
    return {file.path.rpartition("/t/")[2]: storage.read(file.path) for file in storage.find(root)}


def test_a_directory_appears_whole(place: tuple[Storage, str]) -> None:
    storage, root = place
    location = fill(storage, f"{root}/t/loc", a=b"1", b=b"22")
    assert location.size == 3
    assert not storage.exists(f"{root}/t/loc")
    assert len(storage.directories.find_staged_paths(root, "job")) == 1
    assert storage.directories.find_staged_paths(root, "jab") == []
    storage.publish([location])
    assert content(storage, f"{root}/t") == {"loc/a": b"1", "loc/b": b"22"}
    assert storage.directories.find_staged_paths(root, "") == []
    storage.publish([fill(storage, f"{root}/t/loc/", c=b"3")])
    assert content(storage, f"{root}/t") == {"loc/c": b"3"}
    with pytest.raises(FileExistsError, match="exists already"):
        storage.publish([fill(storage, f"{root}/t/new", d=b"4"), fill(storage, f"{root}/t/loc", exclusive=True)])
    assert content(storage, f"{root}/t") == {"loc/c": b"3"}


def test_staged_directories_are_swept(place: tuple[Storage, str]) -> None:
    storage, root = place
    publish(storage, f"{root}/t/kept", b"x")
    discard_staged(storage, [fill(storage, f"{root}/t/loc", a=b"1")])
    assert storage.directories.find_staged_paths(root, "") == []
    directory_left = fill(storage, f"{root}/t/loc", a=b"1")
    assert [os.path.basename(path) for path in storage.directories.find_staged_paths(root, "job")] == [
        os.path.basename(directory_left.temporary)
    ]
    for path in storage.directories.find_staged_paths(root, "job"):
        storage.directories.remove(path)
    storage.directories.stage_directory(f"{root}/t/loc").discard(storage)
    assert storage.directories.find_staged_paths(root, "") == []
    assert content(storage, f"{root}/t") == {"kept": b"x"}


def test_links_to_nothing_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to(tmp_path / "missing")
    for path in ("a.log", "*.log"):
        with pytest.raises(FileNotFoundError, match="no such file, directory or glob match"):
            Storage().find(tmp_path / path)
    (tmp_path / "b.log").write_bytes(b"x")
    assert [file.name for file in Storage().find(tmp_path / "*.log")] == ["b.log"]


def test_links_that_lead_nowhere_are_neither_files_nor_directories(tmp_path: Path) -> None:
    make_dead_links(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "other").symlink_to("inner")
    (tmp_path / "same").symlink_to("file")
    names = ["file", "same"]
    assert sorted(file.name for file in Storage().find(tmp_path)) == names
    assert sorted(file.name for file in Storage().list_files(tmp_path)) == names
    assert sorted(file.name for file in Storage().list_files(tmp_path, names=re.compile(""))) == names
    assert Storage().directories.list_directories(tmp_path) == ["inner", "other"]


def test_a_directory_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    storage.publish([fill(storage, str(tmp_path / "loc"), a=b"1")])
    replacing = fill(storage, str(tmp_path / "loc"), a=b"2")
    rename = os.replace
    monkeypatch.setattr("sawlog.storage.files.exchange", lambda *_: False)  # as on file systems that cannot

    def fail(source: str, target: str) -> None:
        if source == replacing.temporary:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        storage.publish([replacing])
    monkeypatch.undo()
    assert (tmp_path / "loc" / "a").read_bytes() == b"1"
    discard_staged(storage, [replacing])
    assert os.listdir(tmp_path) == ["loc"]
