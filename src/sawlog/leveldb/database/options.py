"""Options for reading databases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sawlog.leveldb.database.layout import DEFAULT_FAMILY
from sawlog.leveldb.log.options import RecoveryMode
from sawlog.leveldb.table.options import ReadOptions as TableOptions
from sawlog.options import moved, renamed

MAX_BLOB_BYTES = 1 << 30
"""The default of `max_item_bytes` for values in blob files; that for blocks is the one of tables."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading databases.

    Attributes:
        table: Which column family, by name; LevelDB has one.
        salvage: What is delivered that the system itself would not read. `orphans`, in view `all` and with `history`:
            the entries of tables and logs that the MANIFEST does not name, which compactions have merged into others,
            or which never became part of the database. Column `orphan` marks them. Tables do not say their column
            family: those of all are read.
        history: Whether views of applications have every entry, as view `all` does: older versions and deletions, too.
        verify_checksums: Whether the checksums of tables and logs are verified.
        recovery: How damaged logs are taken: what RocksDB would keep of them when it opens the database in this mode.
            Without it, `on_damage` decides, as everywhere.
        max_item_bytes: Blocks of tables, and values in blob files, that expand to more are described as damage and
            skipped; by default 32 MiB for blocks, and 1 GiB for values. Views of applications deliver longer values as
            bytes.
    """

    table: str = DEFAULT_FAMILY
    salvage: tuple[Literal["orphans"], ...] = ()
    history: bool = False
    verify_checksums: bool = True
    recovery: RecoveryMode | None = None
    max_item_bytes: int | None = None

    old: ClassVar = {
        "column_family": renamed("table"),
        "orphans": moved({True: {"salvage": ("orphans",)}, False: {}}),
        "max_block_bytes": renamed("max_item_bytes"),
        "max_blob_bytes": renamed("max_item_bytes"),
    }

    @property
    def of_tables(self) -> TableOptions:
        """The same for tables."""
        if self.max_item_bytes is None:
            return TableOptions(verify_checksums=self.verify_checksums)
        return TableOptions(verify_checksums=self.verify_checksums, max_item_bytes=self.max_item_bytes)

    @property
    def max_blob_bytes(self) -> int:
        """The longest value of a blob file."""
        return MAX_BLOB_BYTES if self.max_item_bytes is None else self.max_item_bytes


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Databases are not written."""
