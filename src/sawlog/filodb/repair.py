"""Repair: the intact records of a damaged file, byte for byte, in a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.filodb import layout
from sawlog.filodb.columns import make_row_fields
from sawlog.filodb.options import ReadOptions, WriteOptions
from sawlog.filodb.selection import find_schema_records, select
from sawlog.filodb.target import RECORD_COLUMN, TIME_COLUMN
from sawlog.filodb.walk import ContainerRange
from sawlog.filodb.writer import ContainerWriter
from sawlog.format.contract import PROBE_BYTES, Projection, Scan
from sawlog.format.damage import Findings
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.filodb.dataset import ContainerContents

_NAMES = (RECORD_COLUMN, TIME_COLUMN)


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> None:
    """Write the intact records of one file, byte for byte, to trimmed containers. See `Format.repair`.

    Records of unknown schemas are kept: all that can be known of them is that they are whole.
    """
    fragment = _make_file_range(file, options, storage)
    schema = pa.schema([fragment.projection.schema.field(name) for name in _NAMES])
    biggest = max(
        [layout.DEFAULT_CONTAINER_SIZE, *(layout.record.max_record_size for layout in fragment.selection.layouts)]
    )
    size = layout.align(biggest + layout.CONTAINER_HEADER_SIZE)
    with ContainerWriter(target, schema, WriteOptions(container_size=size), storage) as writer:
        for batch in fragment.to_batches(Findings("skip")):
            writer.write(batch.select(list(_NAMES)))


def make_options(dataset: ContainerContents) -> ReadOptions:
    """The read options that name what a dataset takes its records for: the start of the repaired files may show less.

    Where the user names schemas, records of the others that are known are kept, too.
    """
    options: ReadOptions = dataset.scan.options
    tables: tuple[str, ...] = ("all",) if options.known.select(("all",)) else options.table
    table = tables if options.table else tuple(layout.name for layout in dataset.selection.layouts)
    return replace(options, table=table, records="partkeys" if dataset.part_keys else "ingestion")


def _make_file_range(file: File, options: ReadOptions, storage: Storage) -> ContainerRange:
    """Return a range over all of a file: records that a reader takes, and those of unknown schemas, as they are."""
    read_options = replace(options, salvage=("unknown_schemas",), extras=("container_timestamp", "record"))
    scan = Scan(options=read_options, on_damage="skip", storage=storage)
    selection = select(read_options, [find_schema_records(storage.read(file.path, 0, PROBE_BYTES), read_options.known)])
    fields = make_row_fields(selection, read_options, apart=True)
    projection = Projection.of(pa.schema([field.arrow for field in fields]), scan)
    step = options.container_size or 0
    return ContainerRange(scan, projection, file.path, file.size, file, 0, file.size, step, selection, fields)
