"""Repair: the intact records of a damaged file, byte for byte, in a new one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from sawlog.damage import FileReport, Findings
from sawlog.filodb_record import layout
from sawlog.filodb_record.columns import row_fields
from sawlog.filodb_record.fragments import ContainerRange
from sawlog.filodb_record.options import ReadOptions, WriteOptions
from sawlog.filodb_record.selection import select
from sawlog.filodb_record.target import RECORD_COLUMN, TIME_COLUMN
from sawlog.filodb_record.writer import ContainerWriter
from sawlog.format import PROBE_BYTES, Projection, Scan
from sawlog.storage import File, Storage


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Write the intact records of one file, byte for byte, to trimmed containers. See `Format.repair`."""
    fragment = whole_file(file, options, storage)
    findings = Findings("skip")
    names = [RECORD_COLUMN, TIME_COLUMN]
    schema = pa.schema([fragment.projection.schema.field(name) for name in names])
    biggest = max([layout.DEFAULT_CONTAINER_SIZE, *(one.record.max_record_size for one in fragment.selection.layouts)])
    size = layout.align(biggest + layout.CONTAINER_HEADER_SIZE)
    with ContainerWriter(target, schema, WriteOptions(container_size=size), storage) as writer:
        for batch in fragment.to_batches(findings):
            writer.write(batch.select(names))
    return FileReport.of(file.path, file.size, [findings])


def whole_file(file: File, options: ReadOptions, storage: Storage) -> ContainerRange:
    """One range over all of a file, delivering everything intact as raw records."""
    raw = replace(options, extras=("container_timestamp", "record"))
    scan = Scan(options=raw, on_damage="skip", storage=storage)
    selection = replace(select(raw, storage.read(file.path, 0, PROBE_BYTES)), chosen=True)
    fields = row_fields(selection, raw)
    schema = pa.schema([one.arrow for one in fields])
    projection = Projection.of(schema, scan)
    return ContainerRange(
        scan, projection, file.path, file.size, file, 0, file.size, options.container_size or 0, selection, fields
    )
