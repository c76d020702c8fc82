"""Repair: the intact records of a damaged file, byte for byte, in a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_fixed_array, view_values
from sawlog.filodb import layout
from sawlog.filodb.columns import make_columns
from sawlog.filodb.options import ReadOptions, RecordLayout, WriteOptions
from sawlog.filodb.selection import find_schema_records, select
from sawlog.filodb.target import RECORD_COLUMN, TIME_COLUMN
from sawlog.filodb.walk import ContainerRange
from sawlog.filodb.writer import ContainerWriter
from sawlog.format.contract import OFFSET_COLUMN, PROBE_BYTES, Projection, Scan
from sawlog.format.damage import Findings
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.filodb.dataset import ContainerContents

_NAMES = (RECORD_COLUMN, TIME_COLUMN)


def repair(file: File, target: str, readings: Sequence[ReadOptions], storage: Storage) -> None:
    """Write the intact records of one file, byte for byte, to trimmed containers. See `Format.repair`.

    Records of unknown schemas are kept: all that can be known of them is that they are whole.
    """
    ranges = [_make_file_range(file, options, storage) for options in readings]
    schema = pa.schema([ranges[0].projection.schema.field(name) for name in _NAMES])
    layouts = [layout for fragment in ranges for layout in fragment.selection.layouts]
    biggest = max([layout.DEFAULT_CONTAINER_SIZE, *(schema.record.max_record_size for schema in layouts)])
    size = layout.align(biggest + layout.CONTAINER_HEADER_SIZE)
    with ContainerWriter(target, schema, WriteOptions(container_size=size), storage) as writer:
        for batch in _merge_batches([fragment.to_batches(Findings("skip")) for fragment in ranges]):
            writer.write(batch.select(list(_NAMES)))


def _merge_batches(readers: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all readers in the order of their offsets, each once."""
    waiting = [(next(reader, None), reader) for reader in readers]
    while pending := [(batch, reader) for batch, reader in waiting if batch is not None]:
        offsets = [view_values(batch.column(OFFSET_COLUMN), np.int64) for batch, _ in pending]
        limit = min(column[-1] for column in offsets)
        counts = [int(column.searchsorted(limit, "right")) for column in offsets]
        parts = [batch.slice(0, count) for (batch, _), count in zip(pending, counts, strict=True)]
        _, rows = np.unique(np.concatenate([view_values(part.column(OFFSET_COLUMN), np.int64) for part in parts]), True)
        yield pa.concat_batches(parts).take(make_fixed_array(pa.int64(), rows))
        waiting = [
            (batch.slice(count) if count < batch.num_rows else next(reader, None), reader)
            for (batch, reader), count in zip(pending, counts, strict=True)
        ]


def make_readings(dataset: ContainerContents) -> list[ReadOptions]:
    """Return the read options that name what a dataset takes its records for, as the repaired files may show less.

    Where the user names schemas, records of the others that are known are kept, too, by options of their own: they
    find damage that the user's pass over.
    """
    options: ReadOptions = dataset.scan.options
    table = options.table or tuple(layout.name for layout in dataset.selection.layouts)
    tables = dict.fromkeys([table, ("all",)] if options.table and options.known_schemas.select(("all",)) else [table])
    records: RecordLayout = "partkeys" if dataset.selection.part_keys else "ingestion"
    return [replace(options, table=names, records=records) for names in tables]


def _make_file_range(file: File, options: ReadOptions, storage: Storage) -> ContainerRange:
    """Return a range over all of a file: records that a reader takes, and those of unknown schemas, as they are."""
    read_options = replace(options, salvage=("unknown_schemas",), extras=("container_timestamp", "record"))
    scan = Scan(columns=(*_NAMES, OFFSET_COLUMN), options=read_options, on_damage="skip", storage=storage)
    head = storage.read(file.path, 0, PROBE_BYTES)
    selection = select(read_options, [find_schema_records(head, read_options.known_schemas)])
    columns = make_columns(selection, read_options, by_type=True)
    projection = Projection.of(columns.schema.remove_metadata(), scan)
    step = options.container_size or 0
    return ContainerRange(scan, projection, file.path, file.size, file, 0, file.size, step, selection, columns.fields)
