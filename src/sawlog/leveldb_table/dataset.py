"""Tables as datasets: rows, blocks, properties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.anatomy import Dissector
from sawlog.format import Dataset
from sawlog.leveldb_table.anatomy import parts
from sawlog.leveldb_table.columns import SCHEMAS
from sawlog.leveldb_table.fragments import TableRange, table_map
from sawlog.leveldb_table.meta import TableMap
from sawlog.leveldb_table.pruning import SPARED, on_keys, told
from sawlog.leveldb_table.spans import Role
from sawlog.storage import File, Source


class LevelDBTableDataset(Dataset):
    """Tables, one after the other."""

    range_type: ClassVar[type[TableRange]] = TableRange
    """What the ranges of the view are; datasets of other views put their own here."""
    splits: ClassVar[bool] = True
    """Whether ranges may be less than a table."""

    def view_schema(self) -> pa.Schema:
        """`rows`: sequence, operation, key and value; with `keys=` also timestamps, or key and value alone."""
        return SCHEMAS[self.scan.options.keys]

    def plan(self, task_bytes: int | None) -> Iterator[TableRange]:
        """Ranges that begin at data blocks. Where the index cannot be read, one per file."""
        for file in self.files:
            cut = self.splits and task_bytes is not None and file.size > task_bytes
            table = table_map(file, self.scan) if cut else None
            starts = [0] if table is None else [0, *_cuts(table, task_bytes or file.size)]
            for start, end in zip(starts, [*starts[1:], file.size], strict=True):
                yield self.range_type(
                    self.scan, self.projection, file.path, end - start, file, start, end, self._pruned, table
                )

    @property
    def _pruned(self) -> bool:
        return self.scan.view == "rows" and on_keys(self.projection)

    def dissector(self, file: File, source: Source) -> Dissector:
        """See `Dataset.dissector`: blocks and footer."""
        table = table_map(file, self.scan)
        return lambda offset: parts(source, offset, table) if table is not None else iter(())

    def facts(self) -> dict[str, Any]:
        """Dialect, format version, comparator and counts of the first table; of all of them what filters spare."""
        table = table_map(self.files[0], self.scan) if self.files else None
        if table is None:
            return {}
        facts: dict[str, Any] = {"dialect": table.footer.dialect, "checksum": table.footer.checksum.name.lower()}
        if table.footer.version:
            facts["format version"] = table.footer.version
        if table.comparator is not None:
            facts["comparator"] = table.comparator
        facts["data blocks"] = len(table.handles)
        if self._pruned:
            facts[SPARED] = told((table_map(file, self.scan) for file in self.files), self.projection)
        return facts


def _cuts(table: TableMap, task_bytes: int) -> Iterator[int]:
    spans = table.spans
    following = task_bytes
    for offset in spans["offset"][spans["role"] == Role.DATA].tolist():
        if offset >= following:
            yield offset
            following = offset + task_bytes
