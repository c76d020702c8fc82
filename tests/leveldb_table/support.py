"""Tables that the original systems write."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import rocksdict
from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict

import sawlog
from tests.bytes import mask_crc

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_table" / "rocksdb"
GOLDEN_ROWS = {b"user/%04d" % number: b"value %d " % number * (number % 5) for number in range(300)}
"""What the tables there hold."""


def pairs(count: int, seed: int = 1, *, width: int = 40) -> dict[bytes, bytes]:
    """Keys that share prefixes, and values of any length."""
    dice = random.Random(seed)
    return {
        b"user/%05d/%s" % (dice.randrange(10**5), dice.choice((b"name", b"mail", b"age"))): dice.randbytes(
            dice.randrange(width)
        )
        * dice.randrange(1, 4)
        for _ in range(count)
    }


def leveldb_tables(directory: Path, data: dict[bytes, bytes], **options: object) -> list[Path]:
    """Tables of a LevelDB that holds the data, compacted."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    with plyvel.DB(str(directory), create_if_missing=True, error_if_exists=True, **options) as database:
        for key, value in data.items():
            database.put(key, value)
        database.compact_range()
    return sorted(directory.glob("*.ldb"))


def rocksdb_tables(
    directory: Path,
    data: dict[bytes, bytes],
    *,
    version: int = 5,
    checksum: str = "crc32c",
    compression: str = "none",
    deletes: list[bytes] | None = None,
    ranges: list[tuple[bytes, bytes]] | None = None,
    dictionary: str = "",
    table: dict[str, object] | None = None,
) -> list[Path]:
    """Tables of a RocksDB that holds the data, flushed; and compacted, to have a `raw` or `trained` dictionary."""
    options = Options(raw_mode=True)
    options.set_compression_type(getattr(DBCompressionType, compression)())
    if dictionary:
        options.set_compression_options(-14, 3, 0, 16 << 10)
        options.set_zstd_max_train_bytes(1 << 20 if dictionary == "trained" else 0)
    block = BlockBasedOptions()
    block.set_format_version(version)
    block.set_checksum_type(getattr(ChecksumType, checksum)())
    for name, value in (table or {}).items():
        getattr(block, name)(*value if isinstance(value, tuple) else (value,))
    options.set_block_based_table_factory(block)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(directory), options)
    for key, value in data.items():
        database[key] = value
    for key in deletes or ():
        del database[key]
    for start, end in ranges or ():
        database.delete_range(start, end)
    database.flush()
    if dictionary:
        compact = rocksdict.CompactOptions()
        compact.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        database.compact_range(None, None, compact)
    database.close()
    return sorted(directory.glob("*.sst"))


def make_put(table) -> list[tuple[bytes, bytes]]:
    rows = table.to_pylist()
    return [(row["key"], row["value"]) for row in rows if row["operation"] == "put"]


def assert_holds(files: list[Path], data: dict[bytes, bytes]) -> None:
    paths = [str(file) for file in files]
    assert make_put(sawlog.read(paths, format="leveldb_table")) == sorted(data.items())
    report = sawlog.verify(paths, format="leveldb_table")
    assert not report.damaged
    assert report.account.total == sum(file.stat().st_size for file in files)
    assert report.account.padding == report.account.damage == 0


FORMAT = "leveldb_table"


TRAILER = 5


def append_block(data: bytes, number: int, content: bytes | None, code: int) -> bytes:
    """A table with other content and compression of its n-th data block, whose CRC-32C is made good."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "a.sst")
        path.write_bytes(data)
        blocks = sawlog.read(path, format=FORMAT, view="frames").to_pylist()
    block = [block for block in blocks if block["name"] == "data"][number]
    start, end = block["offset"], block["offset"] + block["length"]
    body = (content or data[start : end - TRAILER]) + bytes([code])
    return data[:start] + body + mask_crc(body).to_bytes(4, "little") + data[end:]
