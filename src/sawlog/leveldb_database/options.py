"""Options for reading databases."""

from __future__ import annotations

from dataclasses import dataclass

from sawlog.leveldb_database.layout import DEFAULT_FAMILY
from sawlog.leveldb_log.options import RecoveryMode
from sawlog.leveldb_table.options import ReadOptions as TableOptions


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading databases.

    Attributes:
        column_family: Of which column family, by name; LevelDB has one.
        orphans: Whether view `all` has the entries of tables and logs that the MANIFEST does not name, too: what
            compactions have merged into others, or what never became part of the database. Column `orphan` marks them.
            Tables do not say their column family: those of all are read.
        history: Whether views of applications have every entry, as view `all` does: older versions and deletions, too.
        verify_checksums: Whether the checksums of tables and logs are verified.
        recovery: How damaged logs are taken: what RocksDB would keep of them when it opens the database in this mode.
            Without it, `on_damage` decides, as everywhere.
        max_blob_bytes: Values in blob files that expand to more are described as damage, and their entries skipped.
            Views of applications deliver larger ones as bytes.
        max_block_bytes: Blocks of tables that expand to more are described as damage and skipped.
    """

    column_family: str = DEFAULT_FAMILY
    orphans: bool = False
    history: bool = False
    verify_checksums: bool = True
    recovery: RecoveryMode | None = None
    max_block_bytes: int = 32 << 20
    max_blob_bytes: int = 1 << 30

    @property
    def table(self) -> TableOptions:
        """The same for tables."""
        return TableOptions(verify_checksums=self.verify_checksums, max_block_bytes=self.max_block_bytes)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Databases are not written."""
