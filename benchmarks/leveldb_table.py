"""Sorted tables and whole databases: rows into Arrow, beside the iterators of LevelDB and RocksDB."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

import sawlog
from benchmarks.harness import Case, Settings, Side
from sawlog.kernels.crc32c import crc32c
from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.protobuf import read_varint
from sawlog.kernels.signature import Bool, Bytes, Int64s, OutBytes, UInt64
from sawlog.kernels.snappy import expand_snappy

LENGTHS = {"small": (100, "100-byte"), "large": (1000, "1,000-byte")}
KEY_BYTES = 16
WRITE_BUFFER = 64 << 20
PAUSE = 0.3
"""Seconds in which LevelDB, when it rewrites its files, writes more of them."""


def cases(settings: Settings) -> Iterator[Case]:
    for name, (length, spoken) in LENGTHS.items():
        for compression in (None, "snappy"):
            stem = f"{name}_{compression or 'plain'}"
            if settings.wanted(f"rows_{stem}") or settings.wanted(f"live_{stem}"):
                yield from of_values(settings, stem, length, f"{spoken} values, {compression or 'not compressed'}")


def of_values(settings: Settings, stem: str, length: int, spoken: str) -> Iterator[Case]:
    """Values of which half can be compressed away, in a LevelDB and in a RocksDB."""
    count = settings.size // (KEY_BYTES + length)
    compression = "snappy" if stem.endswith("snappy") else None
    database = fill_leveldb(settings.place / stem, count, length, compression)
    # Opening a database may rewrite its files: the tables are read from a copy.
    tables = settings.place / f"{stem}-tables"
    shutil.copytree(database, tables)
    rocks = fill_rocksdb(settings.place / f"{stem}-rocks", count, length, compression)
    size = count * (KEY_BYTES + length)
    source = np.ones(size, np.uint8)
    files = sorted(tables.glob("*.ldb"))
    blocks = Blocks(files)
    entries = partial(read, files, "leveldb_table", columns=["sequence"], verify_checksums=False)
    unproven = partial(read, files, "leveldb_table", verify_checksums=False)
    merged = partial(read, tables, "leveldb_database")
    yield Case(
        f"rows_{stem}",
        f"entries of sorted tables into Arrow, one core: {spoken}",
        (
            Side("sawlog", partial(read, files, "leveldb_table"), size, count),
            Side("plyvel", partial(iterate_leveldb, database), size, count, "objects of all; checksums verified"),
            Side("rocksdict", partial(iterate_rocksdb, rocks), size, count, "likewise"),
            Side("sawlog, no checksums", unproven, size, count, "verify_checksums=False"),
            Side("plyvel, no checksums", partial(iterate_leveldb, database, proven=False), size, count, "its default"),
            Side("memcpy", partial(np.copyto, np.empty_like(source), source), size, note="of what is delivered"),
            Side("sawlog, entries alone", entries, size, count, "read and taken apart; no checksums, no values"),
            Side("checksums alone", blocks.sum, size, note="of blocks in memory"),
            Side("blocks expanded alone", blocks.expand, size, note="or copied, where they are not compressed"),
            Side("bytes read", partial(floor, tables, 0), size, note="1 MiB at a time, and nothing else: a limit"),
            Side("bytes read, checksums", partial(floor, tables, 1), size, note="of 4 KiB each, and nothing else"),
            Side("bytes read, checksums, copied", partial(floor, tables, 2), size, note="once, and nothing else"),
        ),
        headline=stem.startswith("small"),
    )
    yield Case(
        f"live_{stem}",
        f"the live state of a database into Arrow, one core: {spoken}",
        (
            Side("sawlog", merged, size, count, "tables merged, keys settled"),
            Side("plyvel", partial(iterate_leveldb, database), size, count),
            Side("rocksdict", partial(iterate_rocksdb, rocks), size, count),
            Side("sawlog, rows of its tables", partial(read, files, "leveldb_table"), size, count, "not merged"),
        ),
        headline=stem.startswith("small"),
    )


def batches(count: int, length: int) -> Iterator[list[tuple[bytes, bytes]]]:
    dice = np.random.default_rng(1)
    pool = dice.integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
    half = length // 2
    for part in np.array_split(dice.permutation(count), max(1, count // 2000)):
        starts = part * 7919 % (len(pool) - length)
        yield [
            (b"%016d" % number, pool[start : start + half] * 2)
            for number, start in zip(part.tolist(), starts.tolist(), strict=True)
        ]


def fill_leveldb(path: Path, count: int, length: int, compression: str | None, table: int = WRITE_BUFFER) -> Path:
    import plyvel

    options = {"write_buffer_size": WRITE_BUFFER, "max_file_size": table, "compression": compression}
    with plyvel.DB(str(path), create_if_missing=True, **options) as database:
        for pairs in batches(count, length):
            with database.write_batch() as batch:
                for key, value in pairs:
                    batch.put(key, value)
        database.compact_range()
    settle(path, options)
    return path


def settle(path: Path, options: dict[str, Any]) -> None:
    """Let LevelDB finish what it does to its files by itself: a copy has no tables then that are only begun."""
    import plyvel

    with plyvel.DB(str(path), **options):
        sizes: list[int] | None = None
        while sizes != (sizes := [file.stat().st_size for file in sorted(path.iterdir())]):
            time.sleep(PAUSE)


def fill_rocksdb(path: Path, count: int, length: int, compression: str | None) -> Path:
    from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.snappy() if compression else DBCompressionType.none())
    database = Rdict(str(path), options)
    for pairs in batches(count, length):
        batch = WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        database.write(batch)
    database.flush()
    database.compact_range(None, None)
    database.close()
    return path


def read(path: Path | list[Path], format: str, **options: Any) -> None:
    for _ in sawlog.open(path, format=format, use_threads=False, **options).to_batches():
        pass


class Blocks:
    """The blocks of rows of some tables, in memory."""

    def __init__(self, files: list[Path]) -> None:
        pieces = []
        for path in files:
            content = path.read_bytes()
            table = sawlog.read(path, format="leveldb_table", view="frames")
            table = table.filter(pc.equal(table.column("name"), "data"))
            places = zip(*(table.column(name).to_pylist() for name in ("offset", "length")), strict=True)
            # Behind each block are the number of its compression and its checksum.
            pieces += [content[offset : offset + length - 5] for offset, length in places]
        self._ends = np.cumsum([0, *map(len, pieces)]).astype(np.int64)
        self._data = np.frombuffer(b"".join(pieces), np.uint8)
        self._out = np.zeros(1 << 20, np.uint8)
        self._snappy = table.column("compression")[0].as_py() == "snappy"

    def sum(self) -> None:
        checksums_of(self._data, self._ends)

    def expand(self) -> None:
        expand_all(self._data, self._ends, self._snappy, self._out)


@kernel
def checksums_of(data: Bytes, ends: Int64s) -> UInt64:
    """The CRC-32C of all blocks, added up."""
    total = np.uint64(0)
    for i in range(len(ends) - 1):
        total += crc32c(data, np.uint64(ends[i]), np.uint64(ends[i + 1] - ends[i]))
    return total


@kernel
def expand_all(data: Bytes, ends: Int64s, snappy: Bool, out: OutBytes) -> None:
    """Put each block where the one before was, expanded if it is compressed."""
    for i in range(len(ends) - 1):
        start, stop = np.uint64(ends[i]), np.uint64(ends[i + 1])
        if snappy:
            size, start = read_varint(data, start, stop)
            expand_snappy(data, start, stop, out, size)
        else:
            copy_bytes(out, np.uint64(0), data, start, stop - start)


@kernel
def checksums(window: Bytes, size: UInt64) -> UInt64:
    """The CRC-32C of all blocks of a size, added up."""
    total = offset = np.uint64(0)
    while offset + size <= np.uint64(len(window)):
        total += crc32c(window, offset, size)
        offset += size
    return total


def floor(directory: Path, passes: int) -> None:
    """What no reader of tables can do without: the bytes are read, summed (1) and copied into memory in use (2)."""
    window, batch = np.zeros(1 << 20, np.uint8), np.zeros(4 << 20, np.uint8)
    offset = 0
    for path in sorted(directory.glob("*.ldb")):
        with path.open("rb", buffering=0) as file:
            while read := file.readinto(window):
                if passes:
                    checksums(window[:read], np.uint64(4096))
                if passes > 1:
                    offset = 0 if offset + read > len(batch) else offset
                    batch[offset : offset + read] = window[:read]
                    offset += read


def iterate_leveldb(path: Path, *, proven: bool = True) -> None:
    import plyvel

    with plyvel.DB(str(path)) as database:
        for _ in database.iterator(fill_cache=False, verify_checksums=proven):
            pass


def iterate_rocksdb(path: Path) -> None:
    from rocksdict import Options, Rdict

    database = Rdict(str(path), Options(raw_mode=True))
    for _ in database.items():
        pass
    database.close()
