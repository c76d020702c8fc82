"""Options for reading and writing tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sawlog.errors import OptionError
from sawlog.options import renamed

MAX_BLOCK_BYTES = 1 << 30
"""What 32-bit offsets reach, twice over."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading tables.

    Attributes:
        verify_checksums: Whether the checksum of every block is verified.
        max_item_bytes: Blocks that expand to more are described as damage and skipped.
        keys: `internal`: keys end in sequence number and operation, as databases write them; `raw`: they do not, as in
            tables that programs write with only LevelDB's table library; `stamped`: a timestamp of eight bytes comes
            before these, and is delivered as a column.
        comparator: The name of the order of keys, of tables that do not say it, as LevelDB's:
            `leveldb.BytewiseComparator` is that of their bytes. Filters on the key then use the index, and a key that
            is where the index does not expect it is damage.
    """

    verify_checksums: bool = True
    max_item_bytes: int = 32 << 20
    keys: Literal["internal", "stamped", "raw"] = "internal"
    comparator: str = ""

    old: ClassVar = {"max_block_bytes": renamed("max_item_bytes")}

    def __post_init__(self) -> None:
        if not 0 < self.max_item_bytes <= MAX_BLOCK_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 1 to {MAX_BLOCK_BYTES}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing tables.

    Attributes:
        dialect: `leveldb`, or `rocksdb` for its block-based tables, with the properties that let it ingest them.
        compression: Of blocks; those that do not become smaller by an eighth are stored as they are. LevelDB's dialect
            has `none`, `snappy` and `zstd`.
        block_bytes: Blocks are complete at this size.
        restart_interval: Every so many entries, a key is stored whole.
    """

    dialect: Literal["leveldb", "rocksdb"] = "leveldb"
    compression: Literal["none", "snappy", "zlib", "lz4", "zstd"] = "snappy"
    block_bytes: int = 4096
    restart_interval: int = 16

    def __post_init__(self) -> None:
        if self.dialect == "leveldb" and self.compression in ("zlib", "lz4"):
            raise OptionError(f'writing leveldb_table: compression="{self.compression}" needs dialect="rocksdb"')
        if not 0 < self.block_bytes <= MAX_BLOCK_BYTES:
            raise OptionError(f"writing leveldb_table: block_bytes={self.block_bytes}: expected 1 to {MAX_BLOCK_BYTES}")
        if self.restart_interval < 1:
            raise OptionError(f"writing leveldb_table: restart_interval={self.restart_interval}: expected 1 or more")
