"""Logs as a dataset: from files to ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa

from sawlog.errors import OptionError, UnsupportedError
from sawlog.format.charts import Picture
from sawlog.format.contract import OFFSET_COLUMN, PROBE_BYTES, TASK_BYTES, BoundScan, Contents, Fragment, Range, View
from sawlog.format.fields import FieldParser
from sawlog.format.planning import bind_scan, plan_fragments
from sawlog.format.query import find_interval
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.fields import parse_parts
from sawlog.leveldb.log.head import read_head, resolve_dialect
from sawlog.leveldb.log.layout import RECOVERED_COLUMN, STALE_COLUMN, Dialect
from sawlog.leveldb.log.walk import ROWS_SCHEMA, LogRange
from sawlog.leveldb.options import LogReadOptions
from sawlog.storage import File, Source
from sawlog.storage.workers import PIECE_BYTES


def add_marks(schema: pa.Schema, options: LogReadOptions) -> pa.Schema:
    """Return a schema with the columns that mark rows which LevelDB itself would not deliver."""
    if not options.salvage:
        return schema
    columns = {STALE_COLUMN: "stale" in options.salvage, RECOVERED_COLUMN: "damaged" in options.salvage}
    return pa.schema([*schema, *(pa.field(name, pa.bool_(), nullable=False) for name in columns if columns[name])])


class LogContents(Contents):
    """LevelDB logs, one after the other in the order of their numbers."""

    range_type: ClassVar[type[LogRange]] = LogRange
    """What the ranges of the view are; datasets of other views put their own here."""

    def _plan_ranges(self, request: BoundScan, task_bytes: int | None) -> Iterator[LogRange]:
        """Yield ranges that begin and end at block boundaries; a filter on `_offset` leaves out what cannot match."""
        # Damage in front of a block may be noticed only in it.
        damage = self.scan.view == "damage"
        first, end = (None, None) if damage else find_interval(request.projection.query, OFFSET_COLUMN)
        low, high = max(first or 0, 0), 1 << 62 if end is None else end
        if "stale" in self.scan.options.salvage or self.scan.options.keys != "internal":
            # Where a log ends, and older records follow, is known from the whole file only; so are sizes of timestamps.
            low, high, task_bytes = 0, 1 << 62, None
        for file in self.files:
            start = low - low % layout.BLOCK_SIZE
            stop = min(layout.find_block_end(high), file.size)
            if start < stop or not file.size:
                yield from self._cut_log(request, file, start, stop, start == 0, task_bytes)

    views: ClassVar = {"rows": View(lambda self: add_marks(ROWS_SCHEMA, self.scan.options), _plan_ranges)}

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Return the end of the last complete record. The new bytes are walked once.

        Damage that reaches up to the end of the file may be a block that is still being written, and waits too.

        Raises:
            OptionError: For options that need the finished file.
        """
        options = self.scan.options
        if options.salvage or options.recovery is not None:
            raise OptionError("salvage and recovery cannot be followed as a stream: they ask what a finished log holds")
        if options.keys != "internal":
            raise OptionError("keys=stamped cannot be followed as a stream: only the whole log says what it is")
        (log_range,) = self._cut_log(request, file, position, file.size, True, None)
        return log_range.find_end()

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Return fragments of ranges of bytes."""
        return [
            fragment
            for file, start, end in ranges
            for fragment in self._cut_log(request, replace(file, size=end), start, end, True, TASK_BYTES)
        ]

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return fragments, write batches and version edits."""
        dialect = self._find_dialect(file)
        head = read_head(source.read_window(0, PROBE_BYTES).tobytes(), file, dialect, self.scan.storage)
        edits = layout.MANIFEST_NAME.match(file.name) is not None
        return lambda offset: parse_parts(source, offset, head, edits=edits)

    def draw_pictures(self, request: BoundScan) -> Iterator[Picture]:
        """Yield operations along logs of write batches."""
        view = self.scan.view
        if view not in ("rows", "writes"):
            return
        from sawlog.leveldb.log.pictures import COUNTED, draw_pictures

        options = replace(self.scan.options, latest=False, recovery=None)
        scan = replace(
            request.scan, view="writes", options=options, columns=COUNTED, filters=(), expression=None, on_damage="skip"
        )
        writes = self.format.open(self.files, scan)
        fragments = plan_fragments(writes, bind_scan(writes, scan), PIECE_BYTES)
        yield from draw_pictures(self.files, fragments, certain=view == "writes")

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return the dialect, log number and compression of the first file."""
        del request
        if not self.files:
            return {}
        file = self.files[0]
        try:
            return self._read_facts(file)
        except UnsupportedError as error:
            return {"unsupported": error.damage.detail}

    def _read_facts(self, file: File) -> dict[str, Any]:
        head = read_head(
            self.scan.storage.read(file, 0, PROBE_BYTES), file, self._find_dialect(file), self.scan.storage
        )
        facts: dict[str, Any] = {"dialect": head.dialect}
        if head.recycled:
            facts["recycled, log number"] = head.log_number
        if head.renamed:
            facts["renamed"] = "no fragment carries the number in the file's name"
        if head.compression == layout.Compression.ZSTD:
            facts["compression"] = "zstd"
        return facts

    def _cut_log(
        self, request: BoundScan, file: File, start: int, stop: int, synced: bool, task_bytes: int | None
    ) -> Iterator[LogRange]:
        """Yield ranges of about `task_bytes` that together are `[start, stop)`; at least one."""
        dialect = self._find_dialect(file)
        begin = start
        while True:
            end = min(layout.find_block_end(begin + task_bytes), stop) if task_bytes else stop
            first = synced and begin == start
            yield self.range_type(*request, file.path, end - begin, file, begin, end, first, dialect)
            if end >= stop:
                return
            begin = end

    def _find_dialect(self, file: File) -> Dialect | Literal["auto"]:
        directory = file.directory
        if directory not in self._dialects:
            self._dialects[directory] = resolve_dialect(file, self.scan.options.dialect, self.scan.storage)
        return self._dialects[directory]

    @cached_property
    def _dialects(self) -> dict[str, Dialect | Literal["auto"]]:
        return {}
