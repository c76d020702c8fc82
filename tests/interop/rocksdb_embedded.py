"""Writes tables with values between their blocks, by the C functions of RocksDB's Java library and two of its methods.

python rocksdb_embedded.py LIBRARY DIRECTORY SEED

A database takes in such tables; where it is compacted, their values go to blob files. What the tables hold is printed,
a line for each value, with the name of its column in entities; and what the database answers.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterator, Sequence
from ctypes import addressof, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_void_p, sizeof

OPTIONS = (
    "create_if_missing=true;disable_auto_compactions=true;enable_blob_files=true;min_blob_size=50;"
    "compression={codec};block_based_table_factory={{format_version=7;checksum={checksum};block_size=300;"
    "index_type={index};separate_key_value_in_data_block={apart};data_block_index_type=kDataBlockBinaryAndHash}}"
)
CODECS = ["kNoCompression", "kSnappyCompression", "kZlibCompression", "kBZip2Compression", "kLZ4Compression", "kZSTD"]
CHECKSUMS = ["kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"]
INDEXES = ["kBinarySearch", "kTwoLevelIndexSearch", "kBinarySearchWithFirstKey"]
EMBEDDED_FROM = 100
"""Smaller values stay in their blocks."""
OPEN = (
    "_ZN7rocksdb13SstFileWriter21OpenWithEmbeddedBlobsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    "RKNS_32SstFileWriterEmbeddedBlobOptionsENS_11TemperatureE"
)
PUT_ENTITY = "_ZN7rocksdb13SstFileWriter9PutEntityERKNS_5SliceERKSt6vectorINS_10WideColumnESaIS5_EE"
Columns = Sequence[tuple[bytes, bytes]]


class Slice(ctypes.Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))


class WideColumn(ctypes.Structure):
    _fields_ = (("name", Slice), ("value", Slice))


class Vector(ctypes.Structure):
    _fields_ = (("begin", c_void_p), ("end", c_void_p), ("room", c_void_p))


class String(ctypes.Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t), ("rest", c_uint64 * 2))


class Status(ctypes.Structure):
    _fields_ = (("code", c_ubyte), ("rest", c_ubyte * 63))


class RocksDB:
    """A RocksDB; for each of its functions, what it needs."""

    def __init__(self, library: str, options: str) -> None:
        self._library = ctypes.CDLL(library)
        self._error = c_char_p()
        empty = self._make("options_create")
        self._options = self._make("options_create")
        self._call("get_options_from_string", empty, options.encode(), self._options)

    def _make(self, name: str, *arguments: object) -> c_void_p:
        function = getattr(self._library, f"rocksdb_{name}")
        function.restype = c_void_p
        handle = c_void_p(function(*arguments))
        assert self._error.value is None, self._error.value
        return handle

    def _call(self, name: str, *arguments: object) -> None:
        getattr(self._library, f"rocksdb_{name}")(*arguments, byref(self._error))
        assert self._error.value is None, self._error.value

    def _method(self, name: str, *arguments: object) -> None:
        """Call a method that returns a status, for which the caller has the room."""
        status = Status()
        function = getattr(self._library, name)
        function.restype = None
        function(byref(status), *arguments)
        assert status.code == 0, (name, status.code)

    def write_table(self, path: str, rows: dict[bytes, bytes | Columns]) -> None:
        """Write a table whose larger values are between its blocks."""
        table = self._make("sstfilewriter_create", self._make("envoptions_create"), self._options)
        writer = c_void_p.from_address(table.value or 0)
        limits = (c_uint64 * 64)(EMBEDDED_FROM)
        self._method(OPEN, writer, byref(String(path.encode(), len(path))), limits, c_int(0))
        for key, value in sorted(rows.items()):
            if isinstance(value, bytes):
                self._call("sstfilewriter_put", table, key, c_size_t(len(key)), value, c_size_t(len(value)))
                continue
            columns = (WideColumn * len(value))(*((Slice(n, len(n)), Slice(v, len(v))) for n, v in value))
            end = addressof(columns) + sizeof(columns)
            self._method(PUT_ENTITY, writer, byref(Slice(key, len(key))), byref(Vector(addressof(columns), end, end)))
        self._call("sstfilewriter_finish", table)
        self._library.rocksdb_sstfilewriter_destroy(table)

    def open(self, path: str) -> None:
        self._database = self._make("open", self._options, path.encode(), byref(self._error))

    def put(self, key: bytes, value: bytes) -> None:
        sizes = c_size_t(len(key)), c_size_t(len(value))
        self._call("put", self._database, self._make("writeoptions_create"), key, sizes[0], value, sizes[1])

    def flush(self) -> None:
        self._call("flush", self._database, self._make("flushoptions_create"))

    def ingest(self, path: str) -> None:
        options = self._make("ingestexternalfileoptions_create")
        self._call("ingest_external_file", self._database, (c_char_p * 1)(path.encode()), c_size_t(1), options)

    def compact(self) -> None:
        """Rewrite all tables: values go to blob files, those of entities included."""
        forced = self._make("compactoptions_create")
        self._library.rocksdb_compactoptions_set_bottommost_level_compaction(forced, c_ubyte(2))
        self._library.rocksdb_compact_range_opt(self._database, forced, None, c_size_t(0), None, c_size_t(0))

    def answers(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values; of entities, the value of the column without a name."""
        place = self._make("create_iterator", self._database, self._make("readoptions_create"))
        self._library.rocksdb_iter_seek_to_first(place)
        size = c_size_t()
        while self._library.rocksdb_iter_valid(place) & 255:
            key = ctypes.string_at(self._make("iter_key", place, byref(size)), size.value)
            yield key, ctypes.string_at(self._make("iter_value", place, byref(size)), size.value)
            self._library.rocksdb_iter_next(place)
        self._call("iter_get_error", place)
        self._library.rocksdb_iter_destroy(place)

    def close(self) -> None:
        self._library.rocksdb_close(self._database)


def draw_rows(dice: random.Random, prefix: str) -> dict[bytes, bytes | Columns]:
    """Rows whose values are shorter and longer than what goes elsewhere."""
    rows: dict[bytes, bytes | Columns] = {}
    for _ in range(dice.choice([1, 10, 60])):
        key = f"{prefix}{dice.randrange(1000):04}".encode()
        values = [dice.randbytes(dice.choice([0, 5, 99, 100, 300, 5000])) for _ in range(3)]
        entity = list(zip([b"", b"a", b"long name" * 20], values, strict=True))
        rows[key] = entity[dice.randrange(2) :] if dice.random() < 0.3 else values[0]
    return rows


def main(library: str, directory: str, seed: str) -> None:
    dice = random.Random(int(seed))
    settings = {"codec": dice.choice(CODECS), "checksum": dice.choice(CHECKSUMS), "index": dice.choice(INDEXES)}
    database = RocksDB(library, OPTIONS.format(**settings, apart=dice.choice(["true", "false"])))
    database.open(f"{directory}/db")
    for number, prefix in enumerate(("a", "b", "a")):
        rows = draw_rows(dice, prefix)
        table = f"{directory}/{number}.sst"
        database.write_table(table, rows)
        database.write_table(f"{directory}/taken.sst", rows)
        database.ingest(f"{directory}/taken.sst")
        for key, value in rows.items():
            for name, content in [(None, value)] if isinstance(value, bytes) else value:
                print("row", number, key.hex(), "" if name is None else f"={name.hex()}", content.hex(), sep="\t")
        if dice.random() < 0.3:
            database.put(f"a{dice.randrange(1000):04}".encode(), dice.randbytes(80))
            database.flush()
        if dice.random() < 0.3:
            database.compact()
    for key, value in database.answers():
        print("answer", "", key.hex(), "", value.hex(), sep="\t")
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
