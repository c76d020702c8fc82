"""Every number that names a version or a kind, raised to one that nobody knows, is unsupported: no damage, not clean.

One case for each such number of each layout. What a format cannot know, because nothing in it names a version, its page
in the documentation says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pytest

import sawlog
from sawlog.testing.newer import Newer
from sawlog.testing.sample import Sample
from tests.bytes import encode_varint, mask_crc
from tests.deephaven_log import reference as deephaven
from tests.filodb_record import golden as filodb
from tests.filodb_record.support import trim_container
from tests.leveldb_log.fragments import fragment, write
from tests.leveldb_log.support import MANIFEST, batch, length_prefixed, put
from tests.leveldb_table.mutators import places

GOLDEN = Path(__file__).parents[1] / "golden"
TABLES = GOLDEN / "leveldb_table"
DATABASES = GOLDEN / "leveldb_database"
ADVISORY = ["bad_blob_part", "*.blob: unsupported"]
"""What `verify` says of a blob file as a whole, besides what is said of each value in it."""
Cases = Iterator[Newer]


class Change(NamedTuple):
    """Bytes to be put at an offset."""

    offset: int
    data: bytes


def with_bytes(data: bytes, *changes: Change) -> bytes:
    """The same bytes with some changed."""
    changed = bytearray(data)
    for offset, piece in changes:
        changed[offset : offset + len(piece)] = piece
    return bytes(changed)


def logs() -> Cases:
    """Types of fragments, compressions, tags of operations and of version edits."""
    records = [batch(1, 1, put(b"a", b"1")), batch(2, 1, put(b"b", b"2")), batch(3, 1, put(b"c", b"3"))]
    fragments = [fragment(1, record) for record in records]
    changed_fragments = [fragments[0], fragment(13, records[1]), fragments[2]]
    for dialect in ("leveldb", "rocksdb", "pebble"):
        sample = Sample(dialect, "leveldb_log", b"".join(fragments), "000007.log", options={"dialect": dialect})
        yield Newer(
            f"type of a fragment of {dialect}", sample, {"000007.log": b"".join(changed_fragments)}, "type 13", 2
        )
    plain = Sample("compressed", "leveldb_log", fragment(9, struct.pack("<I", 0)) + write(*records, start=11), "7.log")
    data = with_bytes(plain.content["7.log"], Change(0, fragment(9, struct.pack("<I", 8))))
    yield Newer("compression of records", plain, {"7.log": data}, "type 8")
    for dialect, tag in (("leveldb", 0x1A), ("rocksdb", 0x1A), ("pebble", 0x1B)):
        options = {"dialect": dialect}
        sample = Sample("writes", "leveldb_log", write(*records), "7.log", view="writes", options=options)
        other_batch = batch(2, 1, bytes([tag]) + length_prefixed(b"b") + length_prefixed(b"2"))
        newer = write(records[0], other_batch, records[2])
        yield Newer(f"tag of an operation of {dialect}", sample, {"7.log": newer}, f"tag {tag:#04x}", 2)
    edits = [MANIFEST, b"\x02\x05", b"\x03\x07"]
    sample = Sample("edits", "leveldb_log", write(*edits), "MANIFEST-000001", view="edits")
    for tag in (109, 204, 301, 402):
        newer = write(MANIFEST, encode_varint(tag) + b"\x01", edits[2])
        yield Newer(f"tag {tag} of a version edit", sample, {"MANIFEST-000001": newer}, f"tag {tag} at", 2)


def table(name: str, path: Path) -> Callable[..., Newer]:
    """Makes cases of a table."""
    data = path.read_bytes()
    sample = Sample(name, "leveldb_table", data, path.name, blocks=True)

    def case(number: str, message: str, *changes: Change, row_count: int = 0) -> Newer:
        changed = with_bytes(data, *(Change(change.offset % len(data), change.data) for change in changes))
        return Newer(f"{number} of {name}", sample, {path.name: changed}, message, row_count)

    return case


def block(data: bytes, offset: int, length: int, *changes: Change, code: int | None = None) -> Change:
    """A block with other bytes, and perhaps compressed otherwise, under a checksum that matches."""
    content = with_bytes(data[offset : offset + length], *changes)
    kind = data[offset + length : offset + length + 1] if code is None else bytes([code])
    return Change(offset, content + kind + mask_crc(content + kind).to_bytes(4, "little"))


def tables() -> Cases:
    """Versions, checksum types, compressions, flags, indexes and kinds of keys and columns of sorted tables."""
    of_rocksdb = TABLES / "rocksdb" / "zlib.sst"
    data = of_rocksdb.read_bytes()
    rocksdb = table("a table of RocksDB", of_rocksdb)
    yield rocksdb("format version", "format version 8", Change(-12, struct.pack("<I", 8)))
    yield rocksdb("checksum type", "checksum type 5", Change(-53, b"\x05"))
    first, *_ = places(data)
    yield rocksdb("compression", "compression type 0x09", block(data, *first, code=9), row_count=1)
    yield rocksdb("magic number", "a plain table", Change(-8, struct.pack("<Q", 0x8242229663BF9564)))
    for place in places(data):
        content = data[place[0] : sum(place)]
        type_offset = content.find(b"block.based.table.index.type")
        if type_offset >= 0:
            value = type_offset + len(b"block.based.table.index.type")
            newer = block(data, *place, Change(value, struct.pack("<I", 4)))
            yield rocksdb("index type", "an index of type 4", newer, row_count=1)
    yield from keys()
    yield from columns()


def keys() -> Cases:
    """Kinds of keys, and flags of blocks."""
    rows = pa.table({"key": [b"a", b"b", b"c"], "value": [b"1", b"2", b"3"]})
    for dialect in ("leveldb", "rocksdb"):
        with TemporaryDirectory() as directory:
            path = Path(directory, "7.sst")
            sawlog.write(rows, path, format="leveldb_table", dialect=dialect, compression="none")
            data = path.read_bytes()
            case = table(f"a table of {dialect}", path)
        place = places(data)[0]
        kind, flags = data.index(b"b\x01"), place[1] - 1
        yield case("kind of a key", "has the type 0x19", block(data, *place, Change(kind + 1, b"\x19")), row_count=2)
        yield case("flag of a block", "with the flags 0x4", block(data, *place, Change(flags, b"\x40")))


def columns() -> Cases:
    """Versions and kinds of columns of Pebble's tables, kinds of keys and places of values in them."""
    path = DATABASES / "pebble-master-26-blobs" / "db" / "000007.sst"
    data = path.read_bytes()
    case = table("a table of Pebble", path)
    place = places(data)[0]
    header = 4  # of a block of entries, before that of its columns
    yield case("version of columns", "columns in version 2", block(data, *place, Change(header, b"\x02")))
    yield case("kind of a column", "the kind or width 5", block(data, *place, Change(header + 7, b"\x05")))
    small = TABLES / "pebble" / "small.sst"
    data = small.read_bytes()
    case = table("an earlier table of Pebble", small)
    yield case("format version", "format version 9", Change(-12, struct.pack("<I", 9)))
    yield case("checksum type", "checksum type 5", Change(-53, b"\x05"))


def footer(data: bytes, size: int, *changes: Change) -> bytes:
    """The end of a blob file of Pebble's with other bytes, under a checksum that matches."""
    end = with_bytes(data[-size:], *changes)
    return data[:-size] + mask_crc(end[4:]).to_bytes(4, "little") + end[4:]


def databases() -> Cases:
    """Blob files, tags of the MANIFEST."""
    for name, size, view in (("pebble-master-26-blobs", 70, "live"),):
        directory = DATABASES / name / "db"
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        sample = Sample(name, "leveldb_database", files, view=view, ordered=False, repaired="rows", advisory=ADVISORY)
        blob = "000011.blob"
        for number, offset, value in (("version", 21, 3), ("checksum type", 20, 5)):
            changed = {blob: footer(files[blob], size, Change(offset, bytes([value])))}
            yield Newer(f"{number} of a blob file of Pebble", sample, changed, f"{number} {value} of a blob file", 1)
        older = Sample("marker", "leveldb_database", files, view=view, ordered=False, repaired="rows")
        newer = {"marker.format-version.000014.031": b""}
        yield Newer("format major version of Pebble", older, newer, "format major version 31", 20)
        (manifest,) = (name for name in files if name.startswith("MANIFEST"))
        changed = {manifest: files[manifest] + write(encode_varint(109) + b"\x01", start=len(files[manifest]))}
        yield Newer("tag of the MANIFEST", sample, changed, "tag 109 at")
    directory = DATABASES / "rocksdb-11.8.1-entities" / "db"
    files = {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith("OPTIONS")}
    sample = Sample("entities", "leveldb_database", files, view="live", ordered=False, advisory=ADVISORY)
    for blob in (name for name in files if name.endswith(".blob")):
        changed = {blob: with_bytes(files[blob], Change(4, struct.pack("<I", 2)))}
        yield Newer(f"version of {blob} of RocksDB", sample, changed, "version 2 of a blob file")


COLUMNS = [deephaven.Col("N", "Int"), deephaven.Col("S", "EnhancedString")]


def deephaven_logs() -> Cases:
    """The version of the file, types of header records and of columns, and flags of entries."""
    rows = [deephaven.row(COLUMNS, {"N": number, "S": "x"}) for number in range(3)]
    sample = Sample("log", "deephaven_log", deephaven.header(COLUMNS) + b"".join(rows), "a.bin")
    yield Newer("version", sample, {"a.bin": deephaven.header(COLUMNS, version=4) + b"".join(rows)}, "version 4")
    columns = [deephaven.Col("N", "Int"), deephaven.Col("S", "Newer")]
    deephaven.CODES["Newer"] = 12
    head = deephaven.header(columns)
    del deephaven.CODES["Newer"]
    yield Newer("type of a column", sample, {"a.bin": head + b"".join(rows)}, "type 12")
    head = deephaven.header(COLUMNS, extra=struct.pack(">ii", 3, 4) + b"abc")
    yield Newer("type of a header record", sample, {"a.bin": head + b"".join(rows)}, "header record of type 4", 3)
    data = bytearray(rows[1][:-4])
    data[4] |= 8
    flagged = bytes(data) + struct.pack(">I", deephaven.zlib.adler32(bytes(data)))
    strict = Sample("strict", "deephaven_log", sample.files, "a.bin", options={"strict": True})
    changed = {"a.bin": deephaven.header(COLUMNS) + rows[0] + flagged + rows[2]}
    yield Newer("flags of an entry", strict, changed, "flags 0x0b", 2)


def containers() -> Cases:
    """The version of a container."""
    first_trimmed, second_trimmed = (
        trim_container(filodb.data(f"gauge_100_small_0{number}"), 13) for number in range(2)
    )
    data = first_trimmed + second_trimmed
    sample = Sample("containers", "filodb_record", data, "a.container", options={"table": "gauge"})
    newer = with_bytes(data, Change(len(first_trimmed) + 7, b"\x02"))
    yield Newer("version of a container", sample, {"a.container": newer}, "version 2", 1)
    first, two, three = (filodb.data(f"gauge_100_small_0{number}") for number in range(3))
    assert len(first) == len(two) == len(three)
    changed = with_bytes(two, Change(7, b"\x02"))
    for name, parts in {
        "last": (first, changed),
        "inner": (first, changed, three),
        "first": (changed, first, three),
    }.items():
        plain = b"".join(with_bytes(part, Change(7, b"\x01")) for part in parts)
        first_trimmed = Sample(f"whole, {name}", "filodb_record", plain, "a.container", options={"table": "gauge"})
        newer = {"a.container": b"".join(parts)}
        yield Newer(
            f"version of a container with an unused rest, {name}", first_trimmed, newer, "version 2", len(parts) - 1
        )


def binlogs() -> Cases:
    """Types of events."""
    path = GOLDEN / "milvus" / "synthetic" / "multi_event_insert"
    data = path.read_bytes()
    first = 4 + struct.unpack_from("<I", data, 4 + 9)[0]
    sample = Sample("insert log", "milvus_binlog", data, path.name)
    yield Newer("type of an event", sample, {path.name: with_bytes(data, Change(first + 8, b"\x08"))}, "type code 8", 1)


CASES = [case for make in (logs, tables, databases, deephaven_logs, containers, binlogs) for case in make()]


@pytest.mark.parametrize("newer", CASES, ids=str)
def test_what_is_newer_is_unsupported(newer: Newer) -> None:
    assert newer.find_complaints() == []
