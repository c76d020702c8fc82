"""Tables as datasets: rows, blocks (the view `frames`), properties."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.arrow import make_batch_from_rows
from sawlog.format.charts import MOST_LANES, BarChart, Picture
from sawlog.format.contract import CUT_BYTES, FILE_COLUMN, OFFSET_COLUMN, BoundScan, Contents, View, space_offsets
from sawlog.format.damage import Findings
from sawlog.format.fields import FieldParser
from sawlog.guard import Undecodable, call_decoder
from sawlog.kernels.varints import read_varint
from sawlog.leveldb.columns import SCHEMAS
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import make_block_damage
from sawlog.leveldb.table.fields import DATA_BLOCK, iterate_spans, parse_parts
from sawlog.leveldb.table.layout import Role
from sawlog.leveldb.table.meta import (
    EVERY_KEY,
    SPARED,
    BoundsReader,
    TableMap,
    describe_spared_blocks,
    find_key_interval,
    make_separators,
)
from sawlog.leveldb.table.rows import SpanWalk, TableRange, read_table_map
from sawlog.storage import File, Source, find_answer, note_answer
from sawlog.storage.index import pack_numbers, unpack_numbers
from sawlog.storage.workers import ReadOnce

_BLOCKS_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("compression", pa.string()),
        pa.field("expanded", pa.int64()),
        pa.field("last_key", pa.binary()),
    ]
)
"""One row per intact block, in file order: its purpose, its bytes with the trailer, how it is compressed, the bytes
that it expands to, and for data blocks the separator of the index: no key in the block is greater."""
_PROPERTIES_SCHEMA = pa.schema(
    [pa.field("name", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=False)]
)
"""One row per property: numbers in decimal, texts as they are, other bytes as hexadecimal digits."""


CUTS = "cuts"
"""What an index is asked of a table: offsets of data blocks."""

BATCH_ROWS = 4096
BATCH_BYTES = 4 << 20
"""Bytes of separators per batch, unless one is larger."""


@dataclass(frozen=True)
class MapRange(TableRange):
    """A table of which not the entries are read."""

    def read(self, table: TableMap, source: Source, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        waiting: list[dict[str, Any]] = []
        size = 0
        walk = SpanWalk(self, table, source, findings)
        for row in self.iterate_rows(walk):
            if row is not None:
                waiting.append({FILE_COLUMN: self.path, OFFSET_COLUMN: 0, **row})
                size += len(row.get("last_key") or b"")
            if waiting and (row is None or len(waiting) == BATCH_ROWS or size >= BATCH_BYTES):
                findings.rows += len(waiting)
                yield make_batch_from_rows(waiting, schema)
                waiting, size = [], 0
        findings.rows += len(waiting)
        yield make_batch_from_rows(waiting, schema)

    @abstractmethod
    def iterate_rows(self, walk: SpanWalk) -> Iterator[dict[str, Any] | None]:
        """Return the rows of the view; `None` before damage is reported, so that they are handed over before."""


@dataclass(frozen=True)
class BlocksRange(MapRange):
    """The intact blocks of a table, a row each."""

    def iterate_rows(self, walk: SpanWalk) -> Iterator[dict[str, Any] | None]:
        table = walk.table
        names = {handle.offset: name for name, handle in table.other_blocks}
        index = BoundsReader(make_separators(table, stamped=table.has_stamp_column and not table.has_stripped_keys))
        for span in walk.spans:
            offset, length, role = int(span["offset"]), int(span["length"]), span["role"]
            if role in (Role.GAP, Role.OVERLAP) or (offset not in names and role == Role.HEADER):
                yield None
                walk.enter(span)
                continue
            stored = length - layout.TRAILER_SIZE
            content, compression = table.rules.read(walk.source, offset, stored, of_entries=role == Role.DATA)
            if isinstance(content, tuple):
                yield None
                walk.findings.add_damage(make_block_damage(self.path, offset, length, content))
                continue
            if role == Role.HEADER:
                yield None
                walk.enter(span)
            else:
                walk.findings.account.record += length
            number = int(span["number"])
            yield {
                "name": names.get(offset, "data"),
                "offset": offset,
                "length": length,
                "compression": None if compression is None else compression.name.lower(),
                "expanded": content.size,
                "last_key": index.read_separator(number) if 0 <= number < len(table.separators) else None,
                OFFSET_COLUMN: offset,
            }


@dataclass(frozen=True)
class PropertiesRange(MapRange):
    """The properties of a table, a row each."""

    def iterate_rows(self, walk: SpanWalk) -> Iterator[dict[str, Any] | None]:
        yield from (
            {"name": name.decode(errors="replace"), "value": render_value(name, value)}
            for name, value in sorted(walk.table.properties.items())
        )
        yield None
        for span in walk.spans:
            if span["role"] in (Role.DATA, Role.RANGE_DELETES):
                walk.findings.account.record += int(span["length"])
            else:
                walk.enter(span)


def render_value(name: bytes, value: bytes) -> str:
    """Return a property's value for people: a number in decimal, a text as it is, other bytes as hexadecimal digits."""
    if name in layout.FIXED_PROPERTIES:
        return str(int.from_bytes(value, "little"))
    if not layout.TEXT_PROPERTIES.match(name):
        number, end = read_varint(value) or (0, 0)
        if end == len(value) > 0:
            return str(number)
    text = call_decoder(bytes.decode, value)
    return value.hex() if isinstance(text, Undecodable) else text


class TableContents(Contents):
    """Tables, one after the other."""

    files_are_independent: ClassVar[bool] = True

    def _plan_ranges(self, kind: type[TableRange], request: BoundScan, task_bytes: int | None) -> Iterator[TableRange]:
        """Yield ranges that begin at data blocks.

        Where the index cannot be read, or without `task_bytes`, one per file.
        """
        interval = self._choose_interval(request)
        for file in self.files:
            table = ReadOnce[TableMap]() if task_bytes is not None and file.size > task_bytes else None
            starts = [0, *(self._choose_cuts(file, task_bytes or 0, table) if table is not None else ())]
            for start, end in zip(starts, [*starts[1:], file.size], strict=True):
                yield kind(*request, file.path, end - start, file, start, end, interval, table)

    def _choose_cuts(self, file: File, task_bytes: int, table: ReadOnce[TableMap]) -> Iterator[int]:
        """Yield offsets at which a table is cut: at data blocks, of which an index knows one per `CUT_BYTES`."""
        storage = self.scan.storage
        known_cuts = find_answer(storage, file, CUTS)
        if known_cuts is not None and task_bytes >= CUT_BYTES:
            yield from space_offsets(unpack_numbers(known_cuts), task_bytes)
            return
        table.value = read_table_map(file, self.scan)
        if table.value is not None:
            spans = table.value.spans
            blocks = spans["offset"][spans["role"] == Role.DATA].tolist()
            cuts = list(space_offsets(blocks, CUT_BYTES))
            note_answer(storage, file, CUTS, pack_numbers(cuts))
            yield from space_offsets(blocks, task_bytes)

    def prefetch_headers(self, request: BoundScan) -> None:
        """Ask where large tables may be cut."""
        for file in self.files:
            if file.size > CUT_BYTES:
                deque(self._choose_cuts(file, CUT_BYTES, ReadOnce[TableMap]()), 0)

    views: ClassVar = {
        "rows": View(
            lambda self: SCHEMAS[self.scan.options.keys],
            lambda self, request, size: self._plan_ranges(TableRange, request, size),
        ),
        "frames": View(_BLOCKS_SCHEMA, lambda self, request, size: self._plan_ranges(BlocksRange, request, size)),
        "properties": View(
            _PROPERTIES_SCHEMA, lambda self, request, _: self._plan_ranges(PropertiesRange, request, None)
        ),
    }

    def _choose_interval(self, request: BoundScan) -> tuple[bytes | None, bytes | None]:
        return find_key_interval(request.projection) if self.scan.view == "rows" else EVERY_KEY

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return blocks and footer."""
        table = read_table_map(file, self.scan)
        return lambda offset: parse_parts(source, offset, table) if table is not None else iter(())

    def draw_pictures(self, request: BoundScan) -> Iterator[Picture]:
        """Yield bytes of the first tables by kind of block."""
        del request
        sums = BarChart("bytes")
        for file in self.files[:MOST_LANES]:
            table = read_table_map(file, self.scan)
            for start, length, _, name in iterate_spans(table) if table is not None else ():
                sums.add(file.name, name, length, file.path, start)
        if sums.amounts:
            yield sums.draw_picture("Bytes by kind of block", order=(DATA_BLOCK,))

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return the dialect, format version, comparator and counts of the first table.

        Of all of them what filters spare.
        """
        table = read_table_map(self.files[0], self.scan) if self.files else None
        if table is None:
            return {}
        facts: dict[str, Any] = {"dialect": table.footer.dialect, "checksum": table.footer.checksum.name.lower()}
        if table.footer.version:
            facts["format version"] = table.footer.version
        if table.comparator is not None:
            facts["comparator"] = table.comparator
        facts["data blocks"] = len(table.handles)
        if (interval := self._choose_interval(request)) != EVERY_KEY:
            facts[SPARED] = describe_spared_blocks((read_table_map(file, self.scan) for file in self.files), interval)
        return facts
