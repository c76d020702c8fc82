"""Writes a RocksDB whose keys have timestamps, by the C functions of its Java library; prints what it answers.

python rocksdb_timestamps.py LIBRARY DIRECTORY
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_size_t, c_void_p

OPTIONS = b"comparator=leveldb.BytewiseComparator.u64ts;create_if_missing=true;disable_auto_compactions=true"
NEWEST = (1 << 64) - 1


class Database:
    """A RocksDB; for each of its functions, what it needs."""

    def __init__(self, library: str, path: str) -> None:
        self._library = ctypes.CDLL(library)
        self._error = c_char_p()
        options, parsed = self._make("options_create"), self._make("options_create")
        self._call("get_options_from_string", options, OPTIONS, parsed)
        self._database = self._make("open", parsed, path.encode(), byref(self._error))
        self._write = self._make("writeoptions_create")

    def _make(self, name: str, *arguments: object) -> c_void_p:
        function = getattr(self._library, f"rocksdb_{name}")
        function.restype = c_void_p
        handle = c_void_p(function(*arguments))
        assert self._error.value is None, self._error.value
        return handle

    def _call(self, name: str, *arguments: object) -> None:
        getattr(self._library, f"rocksdb_{name}")(*arguments, byref(self._error))
        assert self._error.value is None, self._error.value

    def put(self, key: bytes, stamp: int, value: bytes) -> None:
        timestamp = struct.pack("<Q", stamp)
        sizes = [c_size_t(len(part)) for part in (key, timestamp, value)]
        self._call("put_with_ts", self._database, self._write, key, sizes[0], timestamp, sizes[1], value, sizes[2])

    def delete(self, key: bytes, stamp: int) -> None:
        timestamp = struct.pack("<Q", stamp)
        self._call("delete_with_ts", self._database, self._write, key, c_size_t(len(key)), timestamp, c_size_t(8))

    def flush(self) -> None:
        self._call("flush", self._database, self._make("flushoptions_create"))

    def close(self) -> None:
        self._library.rocksdb_close(self._database)

    def answers(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Key, timestamp and value of all that it holds."""
        reading = self._make("readoptions_create")
        newest = ctypes.create_string_buffer(struct.pack("<Q", NEWEST), 8)
        self._library.rocksdb_readoptions_set_timestamp(reading, newest, c_size_t(8))
        place = self._make("create_iterator", self._database, reading)
        self._library.rocksdb_iter_seek_to_first(place)
        size = c_size_t()
        while self._library.rocksdb_iter_valid(place) & 255:
            key, stamp, value = (
                ctypes.string_at(self._make(f"iter_{name}", place, byref(size)), size.value)
                for name in ("key", "timestamp", "value")
            )
            yield key, int.from_bytes(stamp, "little"), value
            self._library.rocksdb_iter_next(place)


def main(library: str, path: str) -> None:
    database = Database(library, path)
    for turn in range(3):
        for number in range(200):
            key, stamp = b"key%03d" % number + bytes(number % 3), 10 * (turn + 1) + number % 5
            if number % 7 != turn:
                database.put(key, stamp, b"v%d.%d" % (number, turn))
            elif turn:
                database.delete(key, stamp)
        if turn < 2:
            database.flush()
    for key, stamp, value in database.answers():
        print(key.hex(), stamp, value.hex(), sep="\t")
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
