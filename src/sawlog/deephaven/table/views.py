"""Views of what a location is made of: its columns, and the groups of grouped columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.arrow import make_array
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import LocationVerdict
from sawlog.deephaven.table.groups.grouping import Grouping, read_grouping
from sawlog.deephaven.table.location import ColumnFiles, read_metadata
from sawlog.deephaven.table.symbols import load_symbols
from sawlog.errors import FormatError
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, Fragment
from sawlog.format.damage import Findings
from sawlog.storage import Storage

_PLACE = (
    pa.field("location", pa.string(), nullable=False),
    pa.field("internal_partition", pa.string()),
    pa.field("column_partition", pa.string()),
    pa.field("column", pa.string(), nullable=False),
)
COLUMNS_SCHEMA = pa.schema(
    [
        *_PLACE,
        pa.field("type", pa.string()),
        pa.field("guessed", pa.string()),
        pa.field("encoding", pa.string()),
        pa.field("codec", pa.string()),
        pa.field("files", pa.list_(pa.string()), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("column_version", pa.int8()),
        pa.field("byte_order", pa.string()),
        pa.field("data_start", pa.int64()),
        pa.field("metadata_size", pa.int64()),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("row_count_source", pa.string(), nullable=False),
        pa.field("symbols", pa.int64()),
        pa.field("distinct_symbols", pa.int64()),
        pa.field("groups", pa.int64()),
    ]
)
GROUPS_SCHEMA = pa.schema(
    [
        *_PLACE,
        pa.field("value", pa.string()),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)
_BATCH_GROUPS = 64 << 10


def read_column_grouping(column: ColumnFiles, verdict: LocationVerdict, storage: Storage) -> Grouping | None:
    """Return the grouping of a column; None when it has none.

    Raises:
        FormatError: When the metadata cannot be read, or its groups are not the rows of the location.
    """
    data = column.data
    header = verdict.headers.of(column, layout.DATA) if data is not None else None
    if data is None or header is None or not header.metadata_size:
        return None
    metadata = read_metadata(data, column.files.get(layout.OVERFLOW), header, storage)
    grouping = read_grouping(metadata, data.path)
    if grouping is not None:
        grouping.check(verdict.rows.count, data.path)
    return grouping


@dataclass(frozen=True)
class LocationView(Fragment):
    """Fragment of a view that describes one location."""

    verdict: LocationVerdict

    def _describe_place(self, name: str) -> dict[str, Any]:
        location = self.verdict.location
        return {
            "location": location.directory,
            "internal_partition": location.internal_partition,
            "column_partition": location.column_partition,
            "column": name,
            FILE_COLUMN: location.directory,
            OFFSET_COLUMN: 0,
        }

    def _make_batch(self, rows: list[dict[str, Any]], schema: pa.Schema, findings: Findings) -> pa.RecordBatch:
        findings.rows += len(rows)
        arrays = [make_array([row[field.name] for row in rows], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class LocationColumns(LocationView):
    """The view `columns`."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        names = {**self.verdict.location.columns, **self.verdict.specs}
        yield self._make_batch([self._describe_column(name, findings) for name in names], schema, findings)

    def _describe_column(self, name: str, findings: Findings) -> dict[str, Any]:
        headers, rows = self.verdict.headers, self.verdict.rows
        spec = self.verdict.specs.get(name)
        column = self.verdict.location.columns.get(name)
        facts: dict[str, Any] = {
            **dict.fromkeys(COLUMNS_SCHEMA.names),
            **self._describe_place(name),
            "files": [],
            "size": 0,
            "rows": rows.count,
            "row_count_source": rows.source,
        }
        if spec is not None:
            spec = spec.adapt_to_files(column.files) if column is not None else spec
            facts |= {"type": spec.type.value, "guessed": spec.guessed or None, "codec": spec.arguments}
            facts["encoding"] = spec.charset if spec.type.value == "String" else None
        if column is None:
            return facts
        facts |= {"files": [file.name for file in column.files.values()], "size": column.size}
        header = headers.of(column, layout.DATA) if column.data is not None else None
        if header is not None:
            facts |= {
                "column_version": header.version,
                "byte_order": "little" if headers.is_little(header) else "big",
                "data_start": header.data_start,
                "metadata_size": header.metadata_size,
            }
            grouping = _try_column_grouping(column, self.verdict, self.scan.storage, findings)
            facts["groups"] = None if grouping is None else len(grouping)
        if layout.SYMBOL_OFFSETS in column.files:
            table = load_symbols(
                column, headers, spec.charset if spec is not None else layout.DEFAULT_CHARSET, self.scan.storage
            )
            facts |= {"symbols": table.count, "distinct_symbols": len(table.strings)}
        return facts


@dataclass(frozen=True)
class LocationGroups(LocationView):
    """The view `groups`."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        for name, column in self.verdict.location.columns.items():
            grouping = _try_column_grouping(column, self.verdict, self.scan.storage, findings)
            for first in range(0, len(grouping) if grouping is not None else 0, _BATCH_GROUPS):
                rows = [
                    {
                        **self._describe_place(name),
                        "value": None if group.value is None else str(group.value),
                        "first": group.first,
                        "end": group.end,
                        "rows": group.end - group.first,
                    }
                    for group in (grouping.slice(first, first + _BATCH_GROUPS) if grouping is not None else ())
                ]
                yield self._make_batch(rows, schema, findings)


def _try_column_grouping(
    column: ColumnFiles, verdict: LocationVerdict, storage: Storage, findings: Findings
) -> Grouping | None:
    """Return the grouping of a column.

    Metadata that cannot be read is optional, so it is counted and does no other harm.
    """
    try:
        return read_column_grouping(column, verdict, storage)
    except FormatError:
        findings.notes["unreadable groupings"] += 1
        return None
