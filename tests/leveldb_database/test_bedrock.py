"""Worlds of Minecraft's Bedrock Edition, whose LevelDB compresses blocks with zlib."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import sawlog
from tests.leveldb_log.fragments import masked, varint, write

COW = bytes.fromhex(
    "0a0000080a006964656e7469666965720d006d696e6563726166743a636f77090300506f7305030000000000c03f000000c0000050400408"
    "00556e69717565494401000000ffffffff0108004f6e47726f756e64010203004169722c01090400546167730a0100000003010061070000"
    "000007050042797465730200000001ff0b0400496e74730200000001000000feffffff0c05004c6f6e6773020000000100000000000000fe"
    "ffffffffffffff060100649a9999999999b93f0804006e616d6506004b756820c3a40904006e6f6e65000000000000"
)
"""A compound by nbtlib 2.0.4, with every kind of tag."""
COW_JSON = {
    "identifier": "minecraft:cow",
    "Pos": [1.5, -2, 3.25],
    "UniqueID": -4294967295,
    "OnGround": 1,
    "Air": 300,
    "Tags": [{"a": 7}],
    "Bytes": [1, -1],
    "Ints": [1, -2],
    "Longs": [1, -2],
    "d": 0.1,
    "name": "Kuh ä",
    "none": [],
}


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def block_of(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Entries that share nothing, with a restart at each."""
    out, restarts = b"", []
    for key, value in entries:
        restarts.append(len(out))
        out += b"\0" + varint(len(key)) + varint(len(value)) + key + value
    restarts = restarts or [0]
    return out + b"".join(struct.pack("<I", one) for one in (*restarts, len(restarts)))


def world(path: Path, entries: Mapping[bytes, bytes], code: int) -> Path:
    """A database with one table whose blocks are compressed by Mojang's codes: 2 with zlib's header, 4 without."""
    path.mkdir()
    compress = zlib.compressobj(wbits=15 if code == 2 else -15)
    internal = [(key + struct.pack("<Q", (at + 1) << 8 | 1), entries[key]) for at, key in enumerate(sorted(entries))]
    table = b""

    def add(content: bytes, kind: int) -> bytes:
        nonlocal table
        handle = varint(len(table)) + varint(len(content))
        table += content + bytes([kind]) + struct.pack("<I", masked(content + bytes([kind])))
        return handle

    data = add(compress.compress(block_of(internal)) + compress.flush(), code)
    meta, index = add(block_of([]), 0), add(block_of([(internal[-1][0], data)]), 0)
    table += (meta + index).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    (path / "000005.ldb").write_bytes(table)
    edit = b"\1" + sized(b"leveldb.BytewiseComparator") + b"\2\6\3\7\4" + varint(len(entries))
    edit += b"\7\0\5" + varint(len(table)) + sized(internal[0][0]) + sized(internal[-1][0])
    (path / "MANIFEST-000004").write_bytes(write(edit))
    (path / "CURRENT").write_bytes(b"MANIFEST-000004\n")
    (path / "000006.log").touch()
    return path


def key_of(x: int, z: int, tag: int, dimension: int = 0, subchunk: int | None = None) -> bytes:
    place = struct.pack("<ii", x, z) + (struct.pack("<i", dimension) if dimension else b"")
    return place + bytes([tag]) + (b"" if subchunk is None else struct.pack("b", subchunk))


def named_block(name: str) -> bytes:
    return b"\x0a\0\0\x08\4\0name" + struct.pack("<H", len(name)) + name.encode() + b"\0"


def subchunk() -> bytes:
    """Version 9 at height -4: air, but for every eighth block, which is stone; three bits for each."""
    words = b""
    numbers = [1 if at % 8 == 0 else 0 for at in range(4096)]
    for first in range(0, 4096, 10):
        words += struct.pack("<I", sum(number << 3 * at for at, number in enumerate(numbers[first : first + 10])))
    return b"\x09\1\xfc" + bytes([3 << 1]) + words + struct.pack("<I", 2) + named_block("air") + named_block("stone")


ENTRIES = {
    key_of(25, -3, 47, subchunk=-4): subchunk(),
    key_of(25, -3, 44): b"\x29",
    key_of(25, -3, 49, dimension=1): COW + COW,
    key_of(0, 0, 45): bytes(768),
    b"actorprefix\0\0\0\1\0\0\0\2": COW,
    b"digp" + struct.pack("<ii", 25, -3): b"\0\0\0\1\0\0\0\2",
    b"~local_player": COW,
    b"portals": b"\x0a\0\0\0",
    b"something else": b"?",
}


@pytest.mark.parametrize("code", [2, 4])
def test_a_world_with_blocks_of_zlib(tmp_path: Path, code: int) -> None:
    path = world(tmp_path / "db", ENTRIES, code)
    assert not sawlog.verify(path).damaged
    assert sawlog.open(path).info()["decoded by"] == "--view bedrock"
    found = sawlog.read(path, view="bedrock").to_pylist()
    assert {row["raw_key"]: row["raw_value"] for row in found} == ENTRIES
    rows: dict[Any, dict[str, Any]] = {row["kind"] if row["kind"] != "named" else row["name"]: row for row in found}
    assert json.loads(rows["~local_player"]["value"]) == json.loads(rows["actor"]["value"]) == COW_JSON
    assert json.loads(rows["BlockEntity"]["value"]) == [COW_JSON, COW_JSON]
    assert [rows["BlockEntity"][name] for name in ("x", "z", "dimension")] == [25, -3, 1]
    assert rows["Version"]["value"] == "41"
    assert json.loads(rows["actors"]["value"]) == [rows["actor"]["name"]]
    assert rows["portals"]["value"] == "{}"
    assert [rows["SubChunkPrefix"][name] for name in ("x", "z", "dimension", "subchunk")] == [25, -3, 0, -4]
    assert json.loads(rows["SubChunkPrefix"]["value"]) == {
        "version": 9,
        "y": -4,
        "layers": [[{"block": {"name": "air"}, "count": 3584}, {"block": {"name": "stone"}, "count": 512}]],
    }
    reasons = {row["raw_key"]: row["reason"] for row in found if row["reason"]}
    assert reasons == {
        key_of(0, 0, 45): "value: 768 bytes of a kind that is not decoded",
        b"something else": "a key of 14 bytes that is neither of a chunk nor a known name",
    }


def test_a_text_that_is_not_utf_8_costs_itself(tmp_path: Path) -> None:
    """`StorageKey` of an actor is a text of 8 raw bytes since Minecraft 1.18.30."""

    def actor(storage_key: bytes) -> bytes:
        key = b"\x08\x0a\0StorageKey" + struct.pack("<H", len(storage_key)) + storage_key
        return b"\x0a\0\0\x08\x02\0id\x03\0cow" + key + b"\x02\x03\0Air\x2c\x01\0"

    raw = bytes([0, 0, 0, 1, 0, 0, 0, 0x85])
    entries = {b"actorprefix" + bytes(8): actor(b"plain"), b"actorprefix" + raw: actor(raw)}
    plain, odd = sawlog.read(world(tmp_path / "db", entries, 2), view="bedrock").to_pylist()
    assert (json.loads(plain["value"]), plain["reason"]) == ({"id": "cow", "StorageKey": "plain", "Air": 300}, None)
    assert json.loads(odd["value"]) == {"id": "cow", "StorageKey": {"$bytes": "AAAAAQAAAIU="}, "Air": 300}
    assert odd["reason"].startswith("value: a text that is not UTF-8")


@pytest.mark.parametrize(
    ("value", "shown", "reason"),
    [
        (b"\x0a\0\0\x01\x01\0a\x07\x63\x01\0bxyz", {"a": 7, "b": {"$bytes": "eHl6"}}, "tag 99 of NBT"),
        (b"\x0a\0\0\x01\x01\0a\x07\x01\x01\0a\x08\0", {"a": 7, "a#2": 8}, "a second tag 'a'"),
        (b"\x0a\0\0\x01\x01\0\xff\x07\0", {"\ufffd": 7}, "name of a tag"),
        (b"\x0a\0\0\x01\x01\0a\x07\x09\x01\0l\x08\xff\0\0\0", {"a": 7, "l": {"$bytes": "CP8AAAA="}}, "a list of"),
    ],
)
def test_tags_that_are_not_understood_keep_those_before(
    value: bytes, shown: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (row,) = sawlog.read(world(tmp_path / "db", {b"portals": value}, 2), view="bedrock").to_pylist()
    assert json.loads(row["value"]) == shown
    assert row["reason"].startswith(f"value: {reason}")


def test_the_dictionary_of_metadata_of_chunks(tmp_path: Path) -> None:
    """A count, then hashes of 8 bytes and tags; `MetaDataHash` of a chunk is one of these hashes."""
    first, second = 0x1122334455667788, 5
    tag = b"\x0a\0\0\x01\x01\0a\x07\0"
    value = struct.pack("<I", 2) + b"".join(struct.pack("<Q", one) + tag for one in (first, second))
    path = world(tmp_path / "db", {b"LevelChunkMetaDataDictionary": value}, 2)
    (row,) = sawlog.read(path, view="bedrock").to_pylist()
    assert json.loads(row["value"]) == [{"hash": first, "value": {"a": 7}}, {"hash": second, "value": {"a": 7}}]
    assert row["reason"] is None


@pytest.mark.parametrize("code", [2, 4])
def test_frames_name_the_codec_and_not_rocksdbs_of_the_same_number(tmp_path: Path, code: int) -> None:
    path = world(tmp_path / "db", ENTRIES, code)
    blocks = sawlog.read(path / "000005.ldb", view="frames").to_pylist()
    assert {one["name"]: one["compression"] for one in blocks}["data"] == "zlib"
