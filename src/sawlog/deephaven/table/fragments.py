"""Fragments: ranges of rows of a location, its columns and groups as views, and the check of one file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import find_index, make_constant_string, make_fixed_array
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import LocationVerdict, compute_row_width
from sawlog.deephaven.table.columns import ColumnReader
from sawlog.deephaven.table.layout import ColumnDamageKind
from sawlog.deephaven.table.location import ColumnFiles, Headers, decode_count, read_checkpoint
from sawlog.deephaven.table.symbols import SymbolTable
from sawlog.deephaven.table.types import PARTITION_KEY
from sawlog.errors import FINDING_ERRORS, SchemaError
from sawlog.format.contract import PROVENANCE, Fragment, assemble
from sawlog.format.damage import Damage, Findings
from sawlog.format.query import Condition
from sawlog.storage import File
from sawlog.storage.workers import ReadOnce

BATCH_ROWS = 256 << 10
"""Rows per batch: a column of them stays in the cache between the search for nulls and its use."""
BATCH_BYTES = 32 << 20
"""Bytes per batch of what is in primary files, so that tables of many columns make no huge batches."""


def make_metadata_damage(column: ColumnFiles, headers: Headers, detail: str) -> Damage:
    """Return the damage of the groups of a column."""
    data, header = column.data, headers.of(column, layout.DATA)
    assert data is not None
    length = min(header.prefix_size, data.size - layout.HEADER_SIZE) if header is not None else 0
    return Damage(data.path, layout.HEADER_SIZE, length, ColumnDamageKind.BAD_METADATA.label, detail)


@dataclass(frozen=True)
class RowRange(Fragment):
    """Rows of one location.

    Attributes:
        verdict: What the location is.
        start: The first row.
        end: After the last row.
        group_conditions: Filters by whose groups the rows were chosen: every one of them has to satisfy these.
        symbols: The symbol tables that ranges of the location share in this process, by column; others read them again.
    """

    verdict: LocationVerdict
    start: int
    end: int
    group_conditions: tuple[Condition, ...] = ()
    symbols: Mapping[str, ReadOnce[SymbolTable]] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "symbols": {}}

    @property
    def extents(self) -> Iterator[tuple[File, int, int]]:
        """The ranges of the files of its columns that hold its rows, about: where values begin, only headers say."""
        rows, names = max(1, self.verdict.rows.count), self.projection.decoded.names
        for name in names:
            column = self.verdict.location.columns.get(name)
            width = compute_row_width(self.verdict.specs.get(name), column) if column is not None else None
            for suffix, file in column.files.items() if column is not None and width else ():
                if suffix == layout.DATA and width:
                    first = self.start * width if self.start else 0
                    yield file, first, self.end * width + layout.MAX_DATA_START - first
                elif suffix == layout.BINARY:
                    first = file.size * self.start // rows
                    yield file, first, file.size * self.end // rows - first
                elif suffix in (layout.SYMBOL_OFFSETS, layout.SYMBOL_BINARY):
                    yield file, 0, file.size if not self.start else 0

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        self._report_lost(schema.names or self.projection.decoded.names, findings)
        end = self._find_committed_end()
        readers = self._open_readers(schema, findings)
        fields = [field for field in schema if field.name in readers or field not in PROVENANCE]
        width = sum(reader.width for reader in readers.values())
        max_rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))
        row = self.start

        def make_offsets() -> pa.Array:
            return make_fixed_array(pa.int64(), np.arange(row, row + count, dtype=np.int64))

        try:
            while row < end:
                count = min(max_rows, end - row)
                for reader in readers.values():
                    count = min(count, reader.count_batch_rows(row, count))
                try:
                    columns = {
                        field.name: self._convert(readers[field.name].read(row, count), field)
                        if field.name in readers
                        else self._fill(field, count)
                        for field in fields
                    }
                    batch = assemble(schema, count, columns, self.path, make_offsets)
                    self._check_groups(batch, row, findings)
                except FINDING_ERRORS as error:  # the policy is `fail`: the rows before are delivered
                    yield from replace(self, start=row, end=row + count)._decode_until(error, schema, findings)
                findings.rows += count
                row += count
                yield batch
        finally:
            for reader in readers.values():
                reader.close()

    def _decode_until(self, error: Exception, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the rows before the first damaged one, which is searched for by halves, and raise the error of all."""
        middle = (self.start + self.end) // 2
        try:
            if self.start < middle:
                for half in (replace(self, end=middle), replace(self, start=middle)):
                    yield from half.decode(schema, findings)
        except FINDING_ERRORS:
            pass
        raise error

    def _check_groups(self, batch: pa.RecordBatch, row: int, findings: Findings) -> None:
        """Report rows that are not what their groups say: then rows of other groups may be what is looked for."""
        for condition in self.group_conditions:
            if condition.column in batch.schema.names:
                place = find_index(condition.mask_values(batch.column(condition.column)), False)
                if place >= 0:
                    value = batch.column(condition.column)[place]
                    detail = f"grouping: row {row + place} is {value}, and in the group of another value"
                    column = self.verdict.location.columns[condition.column]
                    findings.add_damage(make_metadata_damage(column, self.verdict.headers, detail))

    def _open_readers(self, schema: pa.Schema, findings: Findings) -> dict[str, ColumnReader]:
        columns, specs = self.verdict.location.columns, self.verdict.specs
        names = [field.name for field in schema if _find_partition(field) is None and field.name in specs]
        return {
            name: ColumnReader(name, self.verdict, self.scan, findings, self.symbols.get(name), self.end)
            for name in names
            if name in columns and columns[name].data is not None
        }

    def _convert(self, array: pa.Array, field: pa.Field) -> pa.Array:
        """Return the values as the table's column has them, where the location's is of another type."""
        if array.type == field.type:
            return array
        try:
            plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            return plain.dictionary_encode() if pa.types.is_dictionary(field.type) else plain.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"{self.path}: column {field.name!r} is {array.type} here and {field.type} in the table: {error};"
                " types= names another type, columns= leaves it out"
            ) from error

    def _fill(self, field: pa.Field, count: int) -> pa.Array:
        """Return a column that is in no file."""
        partition = _find_partition(field)
        if partition is None:
            return pa.nulls(count, field.type)
        location = self.verdict.location
        value = location.column_partition if partition == b"column" else location.internal_partition
        return pa.nulls(count, field.type) if value is None else make_constant_string(value, count)

    def _find_committed_end(self) -> int:
        """Return the end of the range, or of the rows: a location may have been truncated since."""
        if self.verdict.rows.source != "table.size":
            return self.end
        count = decode_count(read_checkpoint(self.verdict.location, self.scan.storage.read))
        return self.end if count is None else min(self.end, count)

    def _report_lost(self, names: Collection[str], findings: Findings) -> None:
        for gap in self.verdict.select_gaps(names) if self.start == 0 else ():
            findings.add_damage(gap)
        rows, checkpoint = self.verdict.rows, self.verdict.location.find_other_file(layout.TABLE_SIZE)
        if rows.stated is not None and checkpoint is not None and self.start == 0:
            detail = f"expected columns of {rows.stated} rows, found {rows.count} in the longest"
            findings.add_damage(Damage(checkpoint.path, 0, checkpoint.size, ColumnDamageKind.SHORT_FILE.label, detail))


def _find_partition(field: pa.Field) -> bytes | None:
    """Return the partition that a column names, if it is not out of files."""
    value: bytes | None = (field.metadata or {}).get(PARTITION_KEY)
    return value
