"""Changes to the files of databases below their checksums, which are made good again."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from random import Random

from sawlog.leveldb.records.edit import EditError, parse_edit
from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import change_file
from tests.bytes import mask_crc
from tests.leveldb_log.fragments import reference, write
from tests.leveldb_log.mutators import MUTATORS as OF_LOGS
from tests.leveldb_table.mutators import MUTATORS as OF_TABLES

TRAILER = 8
BLOB_MAGIC = bytes.fromhex("378f2400")
BLOB_HEADER, BLOB_RECORD, BLOB_FOOTER = 30, 32, 32
VALUE_FOOTER = 38
SIDES = ("smallest_key", "largest_key")


def edited(manifest: bytes) -> list[tuple[bytes, list[dict[str, object]]]]:
    """The records of a MANIFEST, each with the tables that it adds."""
    edits = []
    for record in reference(manifest).records:
        tables: list[dict[str, object]] = []
        with suppress(EditError):
            tables = parse_edit(record)["new_files"]
        edits.append((record, tables))
    return edits


def with_ranges(manifest: bytes, ranges: dict[int, tuple[bytes, bytes]]) -> bytes:
    """A MANIFEST that gives tables other ranges of keys, by their numbers; keys are shorter than 120 bytes."""
    records = []
    for record, tables in edited(manifest):
        changed = record
        for table in tables:
            range_of_table = ranges.get(int(str(table["file"])))
            if range_of_table is None:
                continue
            # One key follows the other, each after its length, with sequence number and type at the end.
            old = [bytes([len(key) + TRAILER]) + key for key in (bytes(table[side]) for side in SIDES)]  # type: ignore[call-overload]
            new = [bytes([len(key) + TRAILER]) + key for key in range_of_table]
            first = changed.index(old[0])
            second = changed.index(old[1], first + len(old[0]) + TRAILER)
            trailer = changed[first + len(old[0]) : second]
            changed = changed[:first] + new[0] + trailer + new[1] + changed[second + len(old[1]) :]
        records.append(changed)
    return write(*records)


def table_range(sample: Sample, dice: Random) -> Mutation:
    """A table to whose range of keys the MANIFEST gives another beginning or end, or that of another table."""
    name = next((file for file in sorted(sample.content) if "MANIFEST-" in file), "")
    tables = [table for _, added in edited(sample.content.get(name, b"")) for table in added]
    keys = sorted({bytes(table[side]) for table in tables for side in SIDES})  # type: ignore[call-overload]
    if not keys:
        return Mutation("no table", sample.content)
    keys += [b"", b"\xff", *(key + b"\0" for key in keys), *(key[:-1] for key in keys), dice.randbytes(2)]
    table = dice.choice(tables)
    sides = [bytes(table[side]) for side in SIDES]  # type: ignore[call-overload]
    for ends in dice.choice(((0,), (1,), (0, 1))):
        sides[ends] = dice.choice(keys)
    number = int(str(table["file"]))
    try:
        data = with_ranges(sample.content[name], {number: (sides[0], sides[1])})
    except ValueError:  # its keys are not there as they are read, or too long
        return Mutation(f"{name} as it is", sample.content)
    return change_file(sample, name, data, f"table {number} from {sides[0]!r} to {sides[1]!r}")


def blob_record(data: bytes, dice: Random) -> bytes:
    """One bit of a record in a blob file of RocksDB's is changed; both checksums of it are right."""
    records, offset = [], BLOB_HEADER
    while offset + BLOB_RECORD <= len(data) - BLOB_FOOTER:
        sizes = struct.unpack_from("<QQ", data, offset)
        records.append((offset, offset + BLOB_RECORD + sum(sizes)))
        offset = records[-1][1]
    start, end = dice.choice(records)
    record = bytearray(data[start:end])
    places = [*range(24), *range(BLOB_RECORD, len(record))]
    record[dice.choice(places)] ^= 1 << dice.randrange(8)
    struct.pack_into("<II", record, 24, mask_crc(bytes(record[:24])), mask_crc(bytes(record[BLOB_RECORD:])))
    return data[:start] + bytes(record) + data[end:]


def value_index(data: bytes, dice: Random) -> bytes:
    """One bit of the index, or of the footer, of a blob file of Pebble's is changed; its checksum is right."""
    footer = bytearray(data[-VALUE_FOOTER:])
    start, size = struct.unpack_from("<QQ", footer, 4)
    block = bytearray(data[start : start + size + 1])
    changed, places = dice.choice(((block, range(len(block))), (footer, range(4, len(footer) - 8))))
    changed[dice.choice(places)] ^= 1 << dice.randrange(8)
    footer[:4] = mask_crc(bytes(footer[4:])).to_bytes(4, "little")
    index = bytes(block) + mask_crc(bytes(block)).to_bytes(4, "little")
    return data[:start] + index + data[start + len(index) : -VALUE_FOOTER] + bytes(footer)


def blob_file(sample: Sample, dice: Random) -> Mutation:
    """A blob file changed below its checksums."""
    names = [name for name, data in sorted(sample.content.items()) if name.endswith(".blob") and data]
    if not names:
        return Mutation("no blob file", sample.content)
    name = dice.choice(names)
    data = sample.content[name]
    of_rocksdb = data.startswith(BLOB_MAGIC)
    try:
        mutated = (blob_record if of_rocksdb else value_index)(data, dice)
    except (IndexError, ValueError, struct.error):  # what a change before this one has left of it
        return Mutation(f"{name} as it is", sample.content)
    return change_file(sample, name, mutated, f"a {'record' if of_rocksdb else 'index or footer'} below its checksums")


def one_file(sample: Sample, dice: Random) -> Mutation:
    """A log, a MANIFEST or a table changed as a standalone one would be."""
    names = [name for name, data in sorted(sample.content.items()) if data and name != "CURRENT"]
    if not names:
        return Mutation("nothing left", sample.content)
    name = dice.choice(names)
    kind = dice.choice(OF_TABLES if name.endswith((".ldb", ".sst")) else OF_LOGS)
    mutated = kind(replace(sample, files=sample.content[name], file_name=name), dice)
    return change_file(sample, name, dict(mutated.files)[name], mutated.label)


MUTATORS = (one_file, table_range, blob_file)
