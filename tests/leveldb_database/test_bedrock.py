"""Worlds of Minecraft's Bedrock Edition, whose LevelDB compresses blocks with zlib."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

import sawlog
from tests.leveldb_database.support import BEDROCK_ENTRIES, bedrock_world, key_of

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


@pytest.mark.parametrize("code", [2, 4])
def test_a_world_with_blocks_of_zlib(tmp_path: Path, code: int) -> None:
    path = bedrock_world(tmp_path / "db", BEDROCK_ENTRIES, code)
    assert not sawlog.verify(path).damaged
    assert sawlog.open(path).info()["decoded by"] == "--view bedrock"
    values = sawlog.read(path, view="bedrock").to_pylist()
    assert {row["raw_key"]: row["raw_value"] for row in values} == BEDROCK_ENTRIES
    rows: dict[Any, dict[str, Any]] = {row["kind"] if row["kind"] != "named" else row["name"]: row for row in values}
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
    reasons = {row["raw_key"]: row["reason"] for row in values if row["reason"]}
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
    plain, strange_row = sawlog.read(bedrock_world(tmp_path / "db", entries, 2), view="bedrock").to_pylist()
    assert (json.loads(plain["value"]), plain["reason"]) == ({"id": "cow", "StorageKey": "plain", "Air": 300}, None)
    assert json.loads(strange_row["value"]) == {"id": "cow", "StorageKey": {"$bytes": "AAAAAQAAAIU="}, "Air": 300}
    assert strange_row["reason"].startswith("value: a text that is not UTF-8")


@pytest.mark.parametrize(
    ("value", "expected", "reason"),
    [
        (b"\x0a\0\0\x01\x01\0a\x07\x63\x01\0bxyz", {"a": 7, "b": {"$bytes": "eHl6"}}, "tag 99 of NBT"),
        (b"\x0a\0\0\x01\x01\0a\x07\x01\x01\0a\x08\0", {"a": 7, "a#2": 8}, "a second tag 'a'"),
        (b"\x0a\0\0\x01\x01\0\xff\x07\0", {"\ufffd": 7}, "name of a tag"),
        (b"\x0a\0\0\x01\x01\0a\x07\x09\x01\0l\x08\xff\0\0\0", {"a": 7, "l": {"$bytes": "CP8AAAA="}}, "a list of"),
    ],
)
def test_tags_that_are_not_understood_keep_those_before(
    value: bytes, expected: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (row,) = sawlog.read(bedrock_world(tmp_path / "db", {b"portals": value}, 2), view="bedrock").to_pylist()
    assert json.loads(row["value"]) == expected
    assert row["reason"].startswith(f"value: {reason}")


def test_the_dictionary_of_metadata_of_chunks(tmp_path: Path) -> None:
    """A count, then hashes of 8 bytes and tags; `MetaDataHash` of a chunk is one of these hashes."""
    first, second = 0x1122334455667788, 5
    tag = b"\x0a\0\0\x01\x01\0a\x07\0"
    value = struct.pack("<I", 2) + b"".join(struct.pack("<Q", number) + tag for number in (first, second))
    path = bedrock_world(tmp_path / "db", {b"LevelChunkMetaDataDictionary": value}, 2)
    (row,) = sawlog.read(path, view="bedrock").to_pylist()
    assert json.loads(row["value"]) == [{"hash": first, "value": {"a": 7}}, {"hash": second, "value": {"a": 7}}]
    assert row["reason"] is None


@pytest.mark.parametrize("code", [2, 4])
def test_frames_name_the_codec_and_not_rocksdbs_of_the_same_number(tmp_path: Path, code: int) -> None:
    path = bedrock_world(tmp_path / "db", BEDROCK_ENTRIES, code)
    blocks = sawlog.read(path / "000005.ldb", view="frames").to_pylist()
    assert {block["name"]: block["compression"] for block in blocks}["data"] == "zlib"
