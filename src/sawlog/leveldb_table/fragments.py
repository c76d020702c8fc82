"""Ranges of a table's blocks, each decoded by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.errors import ChangedError, DamageError, DiskError, UnsupportedError
from sawlog.leveldb_table.layout import Kind
from sawlog.ranges import FileRange
from sawlog.scan import Scan
from sawlog.storage import File, Source

if TYPE_CHECKING:
    from sawlog.leveldb_table.meta import TableMap


@dataclass(frozen=True)
class TableRange(FileRange):
    """Those blocks of one table that begin in `[start, end)`.

    Attributes:
        file: The table.
        start: A file offset.
        end: A file offset, or the size of the file.
        pruned: Whether blocks that filters on the key exclude may be passed over.
        map: The table's map, where planning has read it; other processes read it again.
    """

    pruned: bool
    map: TableMap | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "map": None}

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        from sawlog.leveldb_table.meta import MapReader

        with closing(self.scan.storage.open(self.file, self.end)) as source:
            if source.size < self.file.size:
                raise ChangedError.shorter(self.path, self.file.size, source.size)
            try:
                table = self.map or MapReader(self.file, source, self.scan.options).read()
            except (DamageError, UnsupportedError) as error:
                yield from self._lost(error.damage, findings)
                return
            except DiskError as error:
                yield from self._lost(self._unreadable(error), findings)
                return
            yield from self.read(table, source, schema, findings)
            if self.end == self.file.size:
                findings.tail = Tail(TailStatus.CLEAN, self.file.size, 0)

    def read(self, table: TableMap, source: Source, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """The rows of the view, and the findings."""
        from sawlog.leveldb_table.rows import RowReader

        yield from RowReader(self, table, source, schema, findings).batches()

    def _unreadable(self, error: DiskError) -> Damage:
        return Damage(self.path, self.start, self.end - self.start, Kind.READ_ERROR.label, str(error))

    def _lost(self, damage: Damage, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Nothing leads to the blocks: all of the range is lost."""
        detail = damage.detail
        findings.damage(Damage(self.path, self.start, self.end - self.start, damage.kind, detail))
        yield from ()


def table_map(file: File, scan: Scan) -> TableMap | None:
    """The map of a table, for planning and for what is shown of it; `None` where its end is damaged."""
    from sawlog.leveldb_table.meta import MapReader

    with closing(scan.storage.open(file.path)) as source:
        try:
            return MapReader(file, source, scan.options).read()
        except (DamageError, UnsupportedError):
            return None
