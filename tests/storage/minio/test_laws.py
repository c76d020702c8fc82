"""Hostile drives: what is cut or flipped is read as it was or refused by a finding, in memory that files justify."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sawlog.errors import FINDING_ERRORS
from sawlog.storage import Storage
from sawlog.storage.minio.message_pack import PackError, Unpacker
from tests.storage.minio.maker import MODIFIED, StoredVersion, pack, put, put_old, xl_meta

DATA = random.Random(7).randbytes(700)
LARGEST = (1 << 63) - 1


def read_object(root: Path) -> bytes | None:
    """The one object; `None` where it is refused by a finding, or is not there."""
    storage = Storage()
    files = [file for file in storage.find(root) if file.name == "key"]
    if not files:
        return None
    try:
        return storage.read(files[0])
    except FINDING_ERRORS:
        return None


def changes(data: bytes) -> Iterator[bytes]:
    """Truncations, and flips of single bits."""
    places = random.Random(len(data))
    for end in {0, 1, 8, 9, len(data) - 1, *places.choices(range(len(data)), k=60)}:
        yield data[:end]
    for place in (*range(16), *places.choices(range(len(data)), k=160)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << places.randrange(8)
        yield bytes(flipped)


def versions(inline: bool) -> list[StoredVersion]:
    old = StoredVersion([DATA[::-1]], inline=inline, identity=bytes([1] * 16), modified=MODIFIED - 5)
    return [StoredVersion([DATA], inline=inline), old] if inline else [StoredVersion([DATA], inline=False)]


@pytest.mark.parametrize("minor", [2, 3])
@pytest.mark.parametrize("inline", [True, False])
def test_no_change_of_metadata_goes_unnoticed(tmp_path: Path, minor: int, *, inline: bool) -> None:
    meta = put(tmp_path, "b/key", *versions(inline), minor=minor)
    for changed in changes(meta.read_bytes()):
        meta.write_bytes(changed)
        assert read_object(tmp_path) in (DATA, None)


def test_no_change_of_a_part_goes_unnoticed(tmp_path: Path) -> None:
    meta = put(tmp_path, "b/key", StoredVersion([DATA], inline=False))
    part = next(meta.parent.glob("*/part.1"))
    for changed in changes(part.read_bytes()):
        part.write_bytes(changed)
        assert read_object(tmp_path) is None


def test_changes_of_old_metadata_are_refused_or_harmless(tmp_path: Path) -> None:
    """It has no checksum of its own: a size may shrink, but no byte is another."""
    meta = put_old(tmp_path, "b/key", [DATA])
    for changed in changes(meta.read_bytes()):
        meta.write_bytes(changed)
        content = read_object(tmp_path)
        assert content is None or DATA.startswith(content)


def replaced(name: str, value: bytes) -> Callable[[bytes], bytes]:
    """Puts another value in the place of a number of a version."""

    def change(data: bytes) -> bytes:
        key = pack(name)
        start = data.index(key) + len(key)
        size = 9 if data[start] == 0xD3 else 1
        return data[:start] + value + data[start + size :]

    return change


HUGE = b"\xd3" + struct.pack(">q", LARGEST)
HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "size": replaced("Size", HUGE),
    "block": replaced("EcBSize", HUGE),
    "small block": replaced("EcBSize", b"\x01"),
    "shards": replaced("EcM", b"\xcc\xff"),
    "index": replaced("EcIndex", HUGE),
    "time": replaced("MTime", HUGE),
    "no parts": lambda data: data.replace(pack("PartSizes"), pack("PartSizez")),
    "nested": lambda data: data[:-1] + b"\xdd\xff\xff\xff\xff" * 2000,
    "count": lambda data: data[:-1] + b"\xdf\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_is_what_the_files_justify(tmp_path: Path, name: str) -> None:
    data = HOSTILE[name](xl_meta([StoredVersion([DATA], inline=False)], minor=0))
    folder = put(tmp_path, "b/key", StoredVersion([DATA], inline=False)).parent
    (folder / "xl.meta").write_bytes(data)
    read_object(tmp_path)
    tracemalloc.start()
    try:
        content = read_object(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert content in (DATA, None)
    assert peak < 2_000_000
    (file,) = (file for file in Storage().find(tmp_path) if file.name == "key")
    assert file.size <= max(len(DATA) + 1, len(data))


def test_sizes_that_agree_and_are_not_there(tmp_path: Path) -> None:
    """A version of a part of eight exabytes, all numbers of which go together."""
    meta = put(tmp_path, "b/key", StoredVersion([DATA], inline=False))
    data = xl_meta([StoredVersion([DATA], inline=False)], minor=0)
    for name in ("Size", "PartSizes"):
        key = pack(name)
        data = data.replace(key + pack(len(DATA)), key + HUGE).replace(key + pack([len(DATA)]), key + pack([LARGEST]))
    meta.write_bytes(data)
    storage = Storage()
    (file,) = storage.find(tmp_path)
    assert file.size == len(DATA) + 1
    with pytest.raises(FINDING_ERRORS):
        storage.read(file)


def test_values_are_what_they_say() -> None:
    values = [None, True, False, 0, 127, -1, -32, 300, -300, 1 << 40, b"bytes", b"", [1, [2]], {b"a": [b"b"], 1: 2}]
    for value in values:
        assert Unpacker(pack(value)).take_value() == value
    assert Unpacker(b"\xcb" + struct.pack(">d", 0.5)).take_value() == 0.5
    assert Unpacker(b"\xc7\x0c\x05" + bytes(12)).take_value() == bytes(12)  # a time
    for text in (b"", b"\xc1", b"\xd9", b"\xd9\x05abc", b"\x92\x01", b"\x81\x90\x01", b"\x91" * 40):
        with pytest.raises(PackError):
            Unpacker(text).take_value()
