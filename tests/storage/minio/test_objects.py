"""Objects on drives of MinIO are files: found, sized, read, and refused by name."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from pathlib import Path

import pytest

from sawlog.errors import BitrotError, IncompleteError, OptionError, UnsupportedError
from sawlog.storage import Storage
from sawlog.storage.minio.drives import walk_upwards
from tests.storage.minio.maker import MODIFIED, StoredVersion, format_drives, put, put_old, put_on_all

BYTES = random.Random(55).randbytes(3_000_000)
SMALL = BYTES[:1000]


def read_all(root: Path) -> dict[str, bytes]:
    """The bytes of all files below a directory, by their paths in it."""
    storage = Storage()
    files = storage.find(root)
    contents = {file.path.removeprefix(f"{root}/"): storage.read(file) for file in files}
    assert [len(contents[file.path.removeprefix(f"{root}/")]) for file in files] == [file.size for file in files]
    return contents


@pytest.mark.parametrize("minor", [1, 2, 3])
def test_an_inline_object_is_a_file(tmp_path: Path, minor: int) -> None:
    put(tmp_path, "bucket/some/key", StoredVersion([SMALL]), minor=minor)
    assert read_all(tmp_path) == {"bucket/some/key": SMALL}
    (file,) = Storage().find(tmp_path)
    assert (file.size, file.modified, file.explicit) == (1000, MODIFIED / 1e9, False)


@pytest.mark.parametrize("minor", [0, 1, 2, 3])
def test_parts_are_joined(tmp_path: Path, minor: int) -> None:
    parts = [BYTES[:2_500_000], BYTES[2_500_000:]]
    put(tmp_path, "bucket/key", StoredVersion(parts, inline=False), minor=minor)
    assert read_all(tmp_path) == {"bucket/key": BYTES}


@pytest.mark.parametrize("algorithm", ["highwayhash256S", "highwayhash256", "sha256", "blake2b"])
def test_version_1_is_read(tmp_path: Path, algorithm: str) -> None:
    put_old(tmp_path, "bucket/key", [BYTES, SMALL], algorithm)
    assert read_all(tmp_path) == {"bucket/key": BYTES + SMALL}
    part = tmp_path / "bucket/key/part.2"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    storage = Storage()
    source = storage.open(*storage.find(tmp_path))
    assert bytes(source.read_window(0, len(BYTES))) == BYTES
    with pytest.raises(BitrotError, match=r"part\.2"):
        source.read_window(len(BYTES), 1)


def test_windows_go_anywhere(tmp_path: Path) -> None:
    put(tmp_path, "b/k", StoredVersion([BYTES[:1_200_000], BYTES[1_200_000:]], inline=False, block=1 << 18))
    storage = Storage()
    source = storage.open(*storage.find(tmp_path))
    places = random.Random(1)
    for _ in range(200):
        start, length = places.randrange(len(BYTES)), places.choice([0, 1, 100, 300_000, 1_000_000])
        assert source.read_window(start, length).tobytes() == BYTES[start : start + length]
    assert not source.read_window(len(BYTES), 10).size
    assert not source.read_window(0, 10).flags.writeable


def test_an_object_is_named_like_a_file(tmp_path: Path) -> None:
    meta = put(tmp_path, "bucket/key", StoredVersion([SMALL]))
    put(tmp_path, "bucket/key/below", StoredVersion([BYTES], inline=False))
    for named in (tmp_path / "bucket/key/xl.meta", tmp_path / "bucket/k*y/xl.meta"):
        (file,) = Storage().find(named)
        assert (file.path, file.explicit) == (str(tmp_path / "bucket/key"), True)
    storage = Storage()
    assert [file.path for file in storage.find(meta.parent)] == [str(meta.parent), str(meta.parent / "below")]
    assert storage.exists(meta.parent)
    assert not storage.is_directory(meta.parent)
    assert storage.is_directory(tmp_path / "bucket")
    assert storage.read(meta.parent, 10, 5) == SMALL[10:15]
    assert [file.path for file in storage.list_files(tmp_path / "bucket")] == [str(meta.parent)]
    assert Storage().read(meta.parent) == SMALL  # what nobody has listed


def test_the_newest_version_counts(tmp_path: Path) -> None:
    first = StoredVersion([SMALL], identity=bytes([1] * 16))
    second = StoredVersion([SMALL[::-1]], identity=bytes([2] * 16), modified=MODIFIED + 1)
    marker = StoredVersion(deleted=True, identity=bytes([3] * 16), modified=MODIFIED + 2)
    third = StoredVersion([BYTES[:70]], identity=bytes([4] * 16), modified=MODIFIED + 3)
    put(tmp_path, "b/two", second, first)
    put(tmp_path, "b/deleted", marker, second, first)
    put(tmp_path, "b/again", third, marker, second, first)
    assert read_all(tmp_path) == {"b/two": SMALL[::-1], "b/again": BYTES[:70]}
    assert not Storage().exists(tmp_path / "b/two/none")


def test_versions_as_of_a_time(tmp_path: Path) -> None:
    second = 10**9
    first = StoredVersion([SMALL], identity=bytes([1] * 16), modified=MODIFIED)
    marker = StoredVersion(deleted=True, identity=bytes([2] * 16), modified=MODIFIED + second)
    last = StoredVersion([BYTES[:70]], identity=bytes([3] * 16), modified=MODIFIED + 2 * second)
    put(tmp_path, "b/object", last, marker, first)
    put(tmp_path, "b/deleted", marker, first)
    first_time = dt.datetime.fromtimestamp(MODIFIED // second, dt.UTC)
    states = []
    for seconds in (-1, 0.5, 1.5, 2.5):
        time = first_time + dt.timedelta(seconds=seconds)
        for option in (time, time.isoformat(), time.replace(tzinfo=None).isoformat()):
            storage = pickle.loads(pickle.dumps(Storage({"minio_as_of": option})))
            assert storage.options == {}
            for used in (storage, storage.make_fresh()):
                files = used.find(tmp_path) if seconds > 0 else []
                states.append({file.path.removeprefix(f"{tmp_path}/"): used.read(file) for file in files})
    assert states == [
        *[{}] * 6,
        *[{"b/object": SMALL, "b/deleted": SMALL}] * 6,
        *[{}] * 6,
        *[{"b/object": BYTES[:70]}] * 6,
    ]
    with pytest.raises(OptionError, match="expected a time like"):
        Storage({"minio_as_of": "yesterday"})


def test_empty_objects_and_directories_are_read(tmp_path: Path) -> None:
    put(tmp_path, "b/empty", StoredVersion([b""]))
    put(tmp_path, "b/folder__XLDIR__", StoredVersion([b""]))
    (tmp_path / "b/plain.txt").write_bytes(b"a file")
    assert read_all(tmp_path) == {"b/empty": b"", "b/plain.txt": b"a file"}


@pytest.mark.parametrize(
    ("system", "named"),
    [
        ({"X-Minio-Internal-Server-Side-Encryption-Iv": b"x"}, "encrypted"),
        ({"X-Minio-Internal-compression": b"klauspost/compress/s2"}, "klauspost/compress/s2"),
        ({"X-Minio-Internal-transition-status": b"complete", "X-Minio-Internal-transition-tier": b"ICE"}, "ICE"),
    ],
)
def test_what_is_not_stored_as_it_is_is_unsupported(tmp_path: Path, system: dict[str, bytes], named: str) -> None:
    put(tmp_path, "b/k", StoredVersion([SMALL], system=system))
    storage = Storage()
    (file,) = storage.find(tmp_path)
    with pytest.raises(UnsupportedError, match=named):
        storage.open(file)


def test_a_newer_version_is_unsupported(tmp_path: Path) -> None:
    meta = put(tmp_path, "b/k", StoredVersion([SMALL]))
    meta.write_bytes(b"XL2 \2\0\0\0" + meta.read_bytes()[8:])
    storage = Storage()
    (file,) = storage.find(tmp_path)
    with pytest.raises(UnsupportedError, match=r"version 2\.0 of xl.meta"):
        storage.read(file)


def test_a_missing_part_is_incomplete(tmp_path: Path) -> None:
    meta = put(tmp_path, "b/k", StoredVersion([SMALL, SMALL], inline=False))
    next(meta.parent.glob("*/part.2")).unlink()
    storage = Storage()
    (file,) = storage.find(tmp_path)
    assert file.size <= 1001
    with pytest.raises(IncompleteError, match=r"missing of the object in MinIO: .*/part\.2"):
        storage.open(file)


def test_bitrot_names_file_and_offset(tmp_path: Path) -> None:
    meta = put(tmp_path, "b/k", StoredVersion([BYTES], inline=False))
    part = next(meta.parent.glob("*/part.1"))
    data = bytearray(part.read_bytes())
    data[(32 + (1 << 20)) + 32 + 5] ^= 1
    part.write_bytes(data)
    storage = Storage()
    source = storage.open(*storage.find(tmp_path))
    assert source.read_window(0, 1 << 20).tobytes() == BYTES[: 1 << 20]
    assert source.read_window(2 << 20, 1 << 20).tobytes() == BYTES[2 << 20 :]
    with pytest.raises(BitrotError, match=rf"{part}: HighwayHash of 1048576 bytes at byte 1048640 ") as caught:
        source.read_window((1 << 20) - 1, 2)
    damage = caught.value.damage
    assert (damage.path, damage.offset, damage.length) == (str(meta.parent), 1 << 20, 1 << 20)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.damage) == (BitrotError, damage)


def test_a_cut_part_is_read_up_to_its_last_whole_block(tmp_path: Path) -> None:
    meta = put(tmp_path, "b/k", StoredVersion([BYTES], inline=False))
    part = next(meta.parent.glob("*/part.1"))
    for stored, size in ((32 + (1 << 20), (1 << 20) + 1), (2_000_000, 2_000_000 - 63)):
        part.write_bytes(part.read_bytes()[:stored] if stored < 2_000_000 else StoredVersion().shard(BYTES, 1)[:stored])
        storage = Storage()
        (file,) = storage.find(tmp_path)
        assert file.size == size
        source = storage.open(file)
        assert source.read_window(0, 1 << 20).tobytes() == BYTES[: 1 << 20]
        with pytest.raises(BitrotError, match="are there"):
            source.read_window(0, file.size)


def test_drives_of_one_set_are_joined(tmp_path: Path) -> None:
    drives = [tmp_path / f"d{number}" for number in (1, 2, 3, 4)]
    format_drives(drives)
    put_on_all(drives, "b/inline", StoredVersion([SMALL], data=2, parity=2))
    put_on_all(drives, "b/parts", StoredVersion([BYTES, SMALL], data=2, parity=2, inline=False))
    put_on_all(drives, "b/three", StoredVersion([BYTES[:100_001]], data=3, parity=1, inline=False))
    expected = {"b/inline": SMALL, "b/parts": BYTES + SMALL, "b/three": BYTES[:100_001]}
    assert read_all(tmp_path) == {f"d1/{key}": data for key, data in expected.items()}
    assert read_all(tmp_path / "d3") == expected
    assert read_all(tmp_path / "d3" / "b") == {key[2:]: data for key, data in expected.items()}
    several = Storage().find([tmp_path / "d3", tmp_path / "d2/b"])
    assert {file.path for file in several} == {str(tmp_path / "d2" / key) for key in expected}


def test_other_processes_open_what_is_on_no_first_drive(tmp_path: Path) -> None:
    drives = [tmp_path / f"d{number}" for number in (1, 2, 3, 4)]
    format_drives(drives)
    for number, drive in enumerate(drives[1:], 1):
        put(drive, "b/k", StoredVersion([SMALL], data=2, parity=2), number=number)
    storage = Storage()
    (file,) = storage.find(tmp_path)
    assert file.path == str(tmp_path / "d1/b/k")
    assert pickle.loads(pickle.dumps(storage)).read(file) == SMALL


def test_drives_in_several_places_are_named_together(tmp_path: Path) -> None:
    drives = [tmp_path / f"m{number}" / "data" for number in (1, 2)]
    format_drives(drives)
    put_on_all(drives, "b/k", StoredVersion([SMALL], data=2))
    alone = Storage()
    (file,) = alone.find(drives[1])
    with pytest.raises(IncompleteError, match="missing of the object in MinIO: shard 1, on no drive"):
        alone.read(file)
    together = Storage()
    (file,) = together.find(drives)
    assert together.read(file) == SMALL
    assert read_all(tmp_path) == {"m1/data/b/k": SMALL}


def test_a_version_that_too_few_drives_have_does_not_count(tmp_path: Path) -> None:
    drives = [tmp_path / f"d{number}" for number in (1, 2, 3, 4)]
    format_drives(drives)
    put_on_all(drives, "b/k", StoredVersion([SMALL], data=2, parity=2))
    put(drives[3], "b/k", StoredVersion([BYTES[:500]], data=2, parity=2, modified=MODIFIED + 9), number=4)
    put(drives[0], "b/new", StoredVersion([SMALL], data=2, parity=2))
    storage = Storage()
    old, new = storage.find(tmp_path)
    assert storage.read(old) == SMALL
    with pytest.raises(IncompleteError, match="shard 2, on no drive"):
        storage.read(new)


def test_directories_above_a_path_end_at_its_root() -> None:
    assert list(walk_upwards("/a/b")) == ["/a/b", "/a", "/"]
    assert list(walk_upwards("a/b")) == ["a/b", "a", ""]
    assert list(walk_upwards(".")) == [".", ""]
    assert list(walk_upwards("s3://bucket/a")) == ["s3://bucket/a", "s3://bucket"]
    assert list(walk_upwards("memory:///a/b")) == ["memory:///a/b", "memory:///a"]


def test_paths_that_cannot_be_looked_at_hold_no_objects(tmp_path: Path) -> None:
    storage = Storage()
    assert not storage.exists(tmp_path / ("x" * 250))
    assert not storage.exists(f"{tmp_path}/a\0b")
    with pytest.raises(FileNotFoundError):
        storage.read(tmp_path / "none")
