"""Repair: the intact records of a damaged file, byte for byte, in a new one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from sawlog.damage import FileReport, Findings
from sawlog.errors import SawlogError
from sawlog.filodb_record import layout
from sawlog.filodb_record.columns import row_fields
from sawlog.filodb_record.fragments import ContainerRange
from sawlog.filodb_record.options import ReadOptions, WriteOptions
from sawlog.filodb_record.selection import select
from sawlog.filodb_record.target import RECORD_COLUMN, TIME_COLUMN
from sawlog.filodb_record.writer import ContainerWriter
from sawlog.format import PROBE_BYTES, Projection, Scan
from sawlog.storage import File, Storage

_NAMES = (RECORD_COLUMN, TIME_COLUMN)


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Write the intact records of one file, byte for byte, to trimmed containers. See `Format.repair`.

    Records of unknown schemas are kept: all that can be known of them is that they are whole.

    Raises:
        SawlogError: When what was written and the damage do not make up the file; then nothing is written.
    """
    fragment = _whole_file(file, options, storage)
    findings = Findings("skip")
    schema = pa.schema([fragment.projection.schema.field(name) for name in _NAMES])
    biggest = max([layout.DEFAULT_CONTAINER_SIZE, *(one.record.max_record_size for one in fragment.selection.layouts)])
    size = layout.align(biggest + layout.CONTAINER_HEADER_SIZE)
    written = 0
    with ContainerWriter(target, schema, WriteOptions(container_size=size), storage) as writer:
        for batch in fragment.to_batches(findings):
            writer.write(batch.select(list(_NAMES)))
            written += batch.num_rows
        if written != findings.rows or findings.account.total != file.size:
            raise SawlogError(
                f"{file.path}: of {findings.rows} records {written} were to be written, and {findings.account.total} of"
                f" {file.size} bytes are accounted for; nothing was written"
            )
    return FileReport.of(file.path, file.size, [findings])


def _whole_file(file: File, options: ReadOptions, storage: Storage) -> ContainerRange:
    """One range over all of a file: all records of any schema, as they stand."""
    every: tuple[str, ...] = ("all",) if options.known.select(("all",)) else options.schema
    wanted = replace(options, schema=every, unknown_schemas="raw", extras=("container_timestamp", "record"))
    scan = Scan(options=wanted, on_damage="skip", storage=storage)
    selection = select(wanted, [storage.read(file.path, 0, PROBE_BYTES)])
    fields = row_fields(selection, wanted, apart=True)
    projection = Projection.of(pa.schema([one.arrow for one in fields]), scan)
    step = options.container_size or 0
    return ContainerRange(scan, projection, file.path, file.size, file, 0, file.size, step, selection, fields)
