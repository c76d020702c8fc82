"""Tables as datasets: rows, blocks, properties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from sawlog.anatomy import FieldParser
from sawlog.format import Contents, Request, View
from sawlog.leveldb.table.anatomy import DATA_BLOCK, named_spans, parts
from sawlog.leveldb.table.columns import SCHEMAS
from sawlog.leveldb.table.meta import Role, TableMap
from sawlog.leveldb.table.pruning import SPARED, on_keys, told
from sawlog.leveldb.table.rows import TableRange, table_map
from sawlog.leveldb.table.views import BLOCKS_SCHEMA, PROPERTIES_SCHEMA, BlocksRange, PropertiesRange
from sawlog.pictures import MOST_LANES, Picture, Sums
from sawlog.storage import File, Source


class TableContents(Contents):
    """Tables, one after the other."""

    def _ranges(self, kind: type[TableRange], request: Request, task_bytes: int | None) -> Iterator[TableRange]:
        """Ranges that begin at data blocks. Where the index cannot be read, or without `task_bytes`, one per file."""
        for file in self.files:
            cut = task_bytes is not None and file.size > task_bytes
            table = table_map(file, self.scan) if cut else None
            starts = [0] if table is None else [0, *_cuts(table, task_bytes or file.size)]
            for start, end in zip(starts, [*starts[1:], file.size], strict=True):
                pruned = self._prunes(request)
                yield kind(*request, file.path, end - start, file, start, end, pruned, table)

    views: ClassVar = {
        "rows": View(
            lambda self: SCHEMAS[self.scan.options.keys],
            lambda self, request, size: self._ranges(TableRange, request, size),
        ),
        "frames": View(BLOCKS_SCHEMA, lambda self, request, size: self._ranges(BlocksRange, request, size)),
        "properties": View(PROPERTIES_SCHEMA, lambda self, request, _: self._ranges(PropertiesRange, request, None)),
    }

    def _prunes(self, request: Request) -> bool:
        return self.scan.view == "rows" and on_keys(request.projection)

    def field_parser(self, file: File, source: Source) -> FieldParser:
        """See `Contents.field_parser`: blocks and footer."""
        table = table_map(file, self.scan)
        return lambda offset: parts(source, offset, table) if table is not None else iter(())

    def pictures(self, request: Request) -> Iterator[Picture]:
        """See `Contents.pictures`: bytes of the first tables by kind of block."""
        del request
        sums = Sums("bytes")
        for file in self.files[:MOST_LANES]:
            table = table_map(file, self.scan)
            for start, length, _, name in named_spans(table) if table is not None else ():
                sums.add(file.name, name, length, file.path, start)
        if sums.found:
            yield sums.picture("Bytes by kind of block", order=(DATA_BLOCK,))

    def facts(self, request: Request) -> dict[str, Any]:
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
        if self._prunes(request):
            facts[SPARED] = told((table_map(file, self.scan) for file in self.files), request.projection)
        return facts


def _cuts(table: TableMap, task_bytes: int) -> Iterator[int]:
    spans = table.spans
    following = task_bytes
    for offset in spans["offset"][spans["role"] == Role.DATA].tolist():
        if offset >= following:
            yield offset
            following = offset + task_bytes
