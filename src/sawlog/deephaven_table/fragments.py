"""Fragments: ranges of rows of a location, its columns and groups as views, and the check of one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import constant_string, fixed_array
from sawlog.damage import Damage, Findings
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.checkpoint import Rows
from sawlog.deephaven_table.columns import ColumnReader
from sawlog.deephaven_table.layout import Kind
from sawlog.deephaven_table.location import Headers, Location, plain_count, read_checkpoint
from sawlog.deephaven_table.types import PARTITION_KEY, ColumnSpec
from sawlog.errors import SchemaError
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Fragment

if TYPE_CHECKING:
    from sawlog.deephaven_table.location import ColumnFiles
    from sawlog.deephaven_table.options import ReadOptions
    from sawlog.query import Condition

BATCH_ROWS = 256 << 10
"""Rows per batch: a column of them stays in the cache between the search for nulls and its use."""
BATCH_BYTES = 32 << 20
"""Bytes per batch of what is in primary files, so that tables of many columns make no huge batches."""


def bad_metadata(column: ColumnFiles, headers: Headers, detail: str) -> Damage:
    """What is wrong with the groups of a column."""
    data, header = column.data, headers.of(column, layout.DATA)
    assert data is not None
    length = min(header.prefix_size, data.size - layout.HEADER_SIZE) if header is not None else 0
    return Damage(data.path, layout.HEADER_SIZE, length, Kind.BAD_METADATA.name.lower(), detail)


def headers_of(location: Location, fragment: Fragment) -> Headers:
    """How the files of a location begin, by the options of a fragment's scan."""
    options: ReadOptions = fragment.scan.options
    return Headers(location, fragment.scan.storage, options.told)


@dataclass(frozen=True)
class RowRange(Fragment):
    """Rows of one location.

    Attributes:
        location: The location.
        specs: Its columns' types.
        rows: How many rows it has.
        start: The first row.
        end: After the last row.
        grouped: Filters by whose groups the rows were chosen: every one of them has to satisfy these.
    """

    location: Location
    specs: Mapping[str, ColumnSpec]
    rows: Rows
    start: int
    end: int
    grouped: tuple[Condition, ...] = ()

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        self._report_lost(findings)
        end = self._committed_end()
        headers = headers_of(self.location, self)
        readers = self._readers(schema, headers, findings)
        columns = [(field, readers.get(field.name)) for field in schema]
        width = sum(reader.width for reader in readers.values())
        most = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))
        row = self.start
        try:
            while row < end:
                count = min(most, end - row)
                for reader in readers.values():
                    count = min(count, reader.fit(row, count))
                arrays = [
                    self._converted(reader.read(row, count), field)
                    if reader is not None
                    else self._told(field, row, count)
                    for field, reader in columns
                ]
                batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                self._check_groups(batch, row, headers, findings)
                findings.rows += count
                row += count
                yield batch
        finally:
            for reader in readers.values():
                reader.close()

    def _check_groups(self, batch: pa.RecordBatch, row: int, headers: Headers, findings: Findings) -> None:
        """Tell of rows that are not what their groups say: then rows of other groups may be what is looked for."""
        for condition in self.grouped:
            if condition.column in batch.schema.names:
                place = condition.met(batch.column(condition.column)).index(False).as_py()
                if place >= 0:
                    value = batch.column(condition.column)[place]
                    detail = f"grouping: row {row + place} is {value}, and in the group of another value"
                    findings.damage(bad_metadata(self.location.columns[condition.column], headers, detail))

    def _readers(self, schema: pa.Schema, headers: Headers, findings: Findings) -> dict[str, ColumnReader]:
        readers = {}
        for field in schema:
            column = self.location.columns.get(field.name)
            if (
                _partition(field) is None
                and column is not None
                and column.data is not None
                and field.name in self.specs
            ):
                spec, rows = self.specs[field.name], self.rows.count
                readers[field.name] = ColumnReader(column, spec, rows, headers, self.scan, findings)
        return readers

    def _converted(self, array: pa.Array, field: pa.Field) -> pa.Array:
        """The values as the table's column has them, where the location's is of another type.

        Raises:
            SchemaError: When a value is not one of that type.
        """
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

    def _told(self, field: pa.Field, row: int, count: int) -> pa.Array:
        """A column that is in no file."""
        if field.name == FILE_COLUMN:
            return constant_string(self.path, count)
        if field.name == OFFSET_COLUMN:
            return fixed_array(pa.int64(), np.arange(row, row + count, dtype=np.int64))
        partition = _partition(field)
        if partition is None:
            return pa.nulls(count, field.type)
        value = self.location.column_partition if partition == b"column" else self.location.internal_partition
        return pa.nulls(count, field.type) if value is None else constant_string(value, count)

    def _committed_end(self) -> int:
        """The end of the range, or of the rows: a location may have been truncated since."""
        if self.rows.source != "table.size":
            return self.end
        count = plain_count(read_checkpoint(self.location, self.scan.storage.read_found))
        return self.end if count is None else min(self.end, count)

    def _report_lost(self, findings: Findings) -> None:
        checkpoint = self.location.other(layout.TABLE_SIZE)
        if self.rows.stated is not None and checkpoint is not None and self.start == 0:
            detail = f"expected columns of {self.rows.stated} rows, found {self.rows.count} in the longest"
            findings.damage(Damage(checkpoint.path, 0, checkpoint.size, Kind.SHORT_FILE.name.lower(), detail))


def _partition(field: pa.Field) -> bytes | None:
    """Which partition a column names, if it is not out of files."""
    value: bytes | None = (field.metadata or {}).get(PARTITION_KEY)
    return value
