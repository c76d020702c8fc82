"""Helpers for tests of databases."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa
import pytest
import rocksdict
from rocksdict import BlockBasedOptions, CompactOptions, DBCompressionType, Options, Rdict

import sawlog
from sawlog.leveldb.database.layout import COCKROACH_NAME
from sawlog.leveldb.database.order import ORDERS
from sawlog.testing import Sample
from sawlog.testing.sample import Files
from tests.bytes import encode_varint, mask_crc
from tests.leveldb_log.fragments import write
from tests.leveldb_log.support import length_prefixed
from tests.support import write_records


def state_new_size(table: Path, size_before: int) -> None:
    """Have the MANIFEST next to a table of RocksDB's say its size, which was another one when it was written."""
    (manifest,) = table.parent.glob("MANIFEST-*")
    number, size = encode_varint(int(table.stem)), table.stat().st_size
    records = sawlog.read(manifest, format="leveldb_log").column("record").to_pylist()
    before, after = number + encode_varint(size_before), number + encode_varint(size)
    assert sum(record.count(before) for record in records) == 1
    assert len(before) == len(after)
    changed = pa.table({"record": pa.array([record.replace(before, after) for record in records], pa.binary())})
    sawlog.write(changed, manifest, format="leveldb_log")


def rename_comparator(database: Path, name: str, replacement: str) -> None:
    """Give a database an order of keys with another name, of the same length."""
    (manifest,) = database.glob("MANIFEST-*")
    records = sawlog.read(manifest, format="leveldb_log").column("record").to_pylist()
    renamed = [record.replace(name.encode(), replacement.encode()) for record in records]
    assert renamed != records
    write_records(manifest, renamed)


GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_database"


def read_answers(path: Path) -> dict[bytes, bytes]:
    """What the engine answered: keys, with their timestamps if they have any, and values."""
    data = path.read_bytes()
    state, offset = {}, 0
    while offset < len(data):
        key, value = struct.unpack_from("<II", data, offset)
        offset += 8
        state[data[offset : offset + key]] = data[offset + key : offset + key + value]
        offset += key + value
    return state


def read_live_state(path: Path, table: str, **options: object) -> dict[bytes, bytes]:
    """What `live` delivers; operands of merges are appended to what precedes them, at the newest time."""
    values: dict[bytes, list[bytes]] = {}
    stamps: dict[bytes, bytes] = {}
    rows = sawlog.read(path, format="leveldb_database", view="live", table=table, **options).to_pylist()
    for row in rows:
        stamp = row["timestamp"].to_bytes(8, "little") if "timestamp" in row else b""
        stamps.setdefault(row["key"], stamp)
        values.setdefault(row["key"], []).append(row["value"])
    return {key + stamps[key]: b"".join(reversed(parts)) for key, parts in values.items()}


APPLICATIONS = Path(__file__).parents[1] / "golden" / "leveldb_database"


PROFILE = Path(os.environ.get("SAWLOG_PROFILE", APPLICATIONS / "chromium-156"))
"""`tests/interop/test_chromium.py` has a browser make another one."""


APPLICATION_PATHS = {
    "local_storage": PROFILE / "Local Storage" / "leveldb",
    "session_storage": PROFILE / "Session Storage",
    "indexed_db": PROFILE / "IndexedDB" / "http_127.0.0.1_8123.indexeddb.leveldb",
}


APPLICATION_OPTIONS = {area: PROFILE / f"{area.title()} Extension Settings" for area in ("local", "sync")}


@cache
def read_application_truth() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PROFILE / "truth.json").read_text())
    return document


COW = bytes.fromhex(
    "0a0000080a006964656e7469666965720d006d696e6563726166743a636f77090300506f7305030000000000c03f000000c0000050400408"
    "00556e69717565494401000000ffffffff0108004f6e47726f756e64010203004169722c01090400546167730a0100000003010061070000"
    "000007050042797465730200000001ff0b0400496e74730200000001000000feffffff0c05004c6f6e6773020000000100000000000000fe"
    "ffffffffffffff060100649a9999999999b93f0804006e616d6506004b756820c3a40904006e6f6e65000000000000"
)
"""A compound by nbtlib 2.0.4, with every kind of tag."""


def block_of(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Entries that share nothing, with a restart at each."""
    out, restarts = b"", []
    for key, value in entries:
        restarts.append(len(out))
        out += b"\0" + encode_varint(len(key)) + encode_varint(len(value)) + key + value
    restarts = restarts or [0]
    return out + b"".join(struct.pack("<I", number) for number in (*restarts, len(restarts)))


def bedrock_world(path: Path, entries: Mapping[bytes, bytes], code: int) -> Path:
    """A database with one table whose blocks are compressed by Mojang's codes: 2 with zlib's header, 4 without."""
    path.mkdir()
    compress = zlib.compressobj(wbits=15 if code == 2 else -15)
    internal = [
        (key + struct.pack("<Q", (index + 1) << 8 | 1), entries[key]) for index, key in enumerate(sorted(entries))
    ]
    table = b""

    def add(content: bytes, kind: int) -> bytes:
        nonlocal table
        handle = encode_varint(len(table)) + encode_varint(len(content))
        table += content + bytes([kind]) + struct.pack("<I", mask_crc(content + bytes([kind])))
        return handle

    data = add(compress.compress(block_of(internal)) + compress.flush(), code)
    meta, index = add(block_of([]), 0), add(block_of([(internal[-1][0], data)]), 0)
    table += (meta + index).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    (path / "000005.ldb").write_bytes(table)
    edit = b"\1" + length_prefixed(b"leveldb.BytewiseComparator") + b"\2\6\3\7\4" + encode_varint(len(entries))
    edit += b"\7\0\5" + encode_varint(len(table)) + length_prefixed(internal[0][0]) + length_prefixed(internal[-1][0])
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
    numbers = [1 if index % 8 == 0 else 0 for index in range(4096)]
    for first in range(0, 4096, 10):
        words += struct.pack("<I", sum(number << 3 * index for index, number in enumerate(numbers[first : first + 10])))
    return b"\x09\1\xfc" + bytes([3 << 1]) + words + struct.pack("<I", 2) + named_block("air") + named_block("stone")


BEDROCK_ENTRIES = {
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


OBFUSCATION_KEY = bytes.fromhex("b12dcefd8f872536")


OBFUSCATION = {b"\x0e\0obfuscate_key": b"\x08" + OBFUSCATION_KEY}


TXID = bytes(range(32))


COINS = {
    "97f23c835800816115944e077fe7c803cfa57f29b36bf87c1d35": (
        203998,
        False,
        60000000000,
        "76a914816115944e077fe7c803cfa57f29b36bf87c1d3588ac",
    ),
    "8ddf77bbd123008c988f1a4a4de2161e0f50aac7f17e7f9555caa4": (
        120891,
        True,
        110397,
        "76a9148c988f1a4a4de2161e0f50aac7f17e7f9555caa488ac",
    ),
}
"""`ccoins_serialization` in Bitcoin Core's `coins_tests.cpp`."""


def obfuscate(value: bytes) -> bytes:
    return bytes(byte ^ OBFUSCATION_KEY[index % 8] for index, byte in enumerate(value))


def make_bitcoin_database(path: Path, entries: Mapping[bytes, bytes | None]) -> Path:
    """A database with some entries more, or fewer where there is no value."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    with plyvel.DB(str(path), create_if_missing=True) as database:
        for key, value in entries.items():
            database.delete(key) if value is None else database.put(key, value)
    return path


COCKROACH = ORDERS[COCKROACH_NAME]


def read_cockroach_live(path: Path, **options: object) -> list[tuple[bytes, bytes]]:
    """What `live` delivers, in order; operands of merges are appended to the value before them."""
    rows: list[tuple[bytes, bytes]] = []
    for row in sawlog.read(path, format="leveldb_database", view="live", **options).to_pylist():
        if rows and COCKROACH.compute_place(rows[-1][0]) == COCKROACH.compute_place(row["key"]):
            rows[-1] = rows[-1][0], row["value"] + rows[-1][1]
        else:
            rows.append((row["key"], row["value"]))
    return rows


def read_pebble_answers(lines: Path) -> dict[bytes, bytes]:
    """What Pebble has written down."""
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    return {bytes.fromhex(row["key"]): bytes.fromhex(row["value"]) for row in rows}


def read_pebble_live(path: Path, **arguments: object) -> dict[bytes, bytes]:
    """The live state; merged as Pebble merges by default, the newest last."""
    state: dict[bytes, bytes] = {}
    for row in sawlog.read(path, format="leveldb_database", view="live", **arguments).to_pylist():
        state[row["key"]] = row["value"] + state.get(row["key"], b"")
    return state


GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f61"
    "7fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)


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
    state = dict(opened.items())
    opened.close()
    return state


NAMES = ("CURRENT", "MANIFEST", ".ldb", ".log")


@cache
def make_small_database(before: bytes = b"", value: bytes = b"") -> dict[str, bytes]:
    """A small database: two tables that overlap, and a log; keys and values begin as is asked for."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    with TemporaryDirectory() as directory:
        for keys in (b"abcd", b"cde", b"ef"):
            with plyvel.DB(directory, create_if_missing=True, compression=None) as database:
                for key in keys:
                    database.put(before + bytes([key]), value + keys)
                database.delete(before + (b"a" if keys != b"abcd" else b"z"))
        contents = {path.name: path.read_bytes() for path in Path(directory).iterdir()}
    return {name: data for name, data in contents.items() if any(part in name for part in NAMES)}


@cache
def make_unordered_database() -> dict[str, bytes]:
    """A small database of Local Storage's in an order of keys that nobody knows."""
    with TemporaryDirectory() as directory:
        for name, data in make_small_database(b"_http://a\0\1", b"\1").items():
            Path(directory, name).write_bytes(data)
        rename_comparator(Path(directory), "leveldb.BytewiseComparator", "leveldb.BytewiseComparatoX")
        return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def _files_of_engine(directory: str) -> dict[str, bytes]:
    """The files of a closed database that have all of it, by name."""
    parts = ("CURRENT", "IDENTITY", "MANIFEST", ".sst", ".blob")
    paths = [path for path in Path(directory).iterdir() if any(part in path.name for part in parts)]
    return {path.name: path.read_bytes() for path in paths}


def _blob_options() -> Options:
    """Options of a RocksDB that keeps long values in blob files, and merges nothing by itself."""
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_disable_auto_compactions(True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(10)
    return options


@cache
def rocksdb_files(value: bytes = b"v") -> dict[str, bytes]:
    """A RocksDB whose tables have a block for each key: some of a deeper level, one of level 0 above them.

    They say by which order their keys are sorted, so that filters and ranges of keys go by their indexes.
    """
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_disable_auto_compactions(True)
    options.set_target_file_size_base(100)
    block = BlockBasedOptions()
    block.set_block_size(1)
    block.set_format_version(5)
    block.set_checksum_type(rocksdict.ChecksumType.crc32c())
    options.set_block_based_table_factory(block)
    with TemporaryDirectory() as directory:
        database = Rdict(directory, options)
        for key in b"abcdefghijkl":
            database[bytes([key]) * 3] = value
        database.flush()
        down = CompactOptions()
        down.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        database.compact_range(None, None, down)
        database[b"ccc"] = b"w"
        del database[b"eee"]
        database.delete_range(b"hh", b"j")
        database.close()
        return _files_of_engine(directory)


@cache
def blob_files(size: int = 20) -> dict[str, bytes]:
    """A RocksDB that keeps most values in two blob files, compressed."""
    options = _blob_options()
    options.set_blob_compression_type(DBCompressionType.snappy())
    with TemporaryDirectory() as directory:
        database = Rdict(directory, options)
        for key in b"abcdef":
            database[bytes([key]) * 3] = bytes([key]) * (2 if key == ord("d") else size)
        database.flush()
        database[b"ccc"] = b"w" * 30
        del database[b"eee"]
        database.flush()
        database.close()
        return _files_of_engine(directory)


@cache
def family_files(size: int = 20) -> dict[str, bytes]:
    """A RocksDB with two column families, both of which keep long values in blob files; nothing is in its log."""
    options = _blob_options()
    with TemporaryDirectory() as directory:
        database = Rdict(directory, options)
        other_family = database.create_column_family("others", options)
        for family, keys in ((database, b"abc"), (other_family, b"bcd")):
            for key in keys:
                family[bytes([key]) * 3] = bytes([key]) * (2 if key == ord("c") else size)
            family.flush()
        other_family.close()
        database.close()
        return _files_of_engine(directory)


def sample(name: str, files: Files, view: str, **settings: Any) -> Sample:
    """A sample; a repaired database has none of the older versions, and nothing of which entry was in which file."""
    repaired: Literal["rows", "no"] = "no" if view == "all" or settings.get("options", {}).get("history") else "rows"
    return Sample(name, "leveldb_database", files, view=view, ordered=False, repaired=repaired, **settings)


def pickled(parent: int, data_path: bytes, name: bytes, time: int) -> bytes:
    """A file or a directory as the database of a site's files has it."""
    texts = b"".join(struct.pack("<I", len(part)) + part + bytes(-len(part) % 4) for part in (data_path, name))
    record = struct.pack("<q", parent) + texts + struct.pack("<q", time)
    return struct.pack("<I", len(record)) + record
