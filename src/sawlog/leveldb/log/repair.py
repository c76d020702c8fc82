"""Writing the intact records of a damaged log to a new one."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.format import OFFSET_COLUMN, PROBE_BYTES
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.columns import RECORD_COLUMN, ROWS_SCHEMA
from sawlog.leveldb.log.head import LogHead, read_head, settle_dialect
from sawlog.leveldb.log.options import ReadOptions, WriteOptions
from sawlog.leveldb.log.walk import LogRange, Metadata, Walk, whole_log
from sawlog.leveldb.log.writer import LogWriter
from sawlog.storage import File, Source, Storage


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> None:
    """Write the intact records of one log to a new log, with RocksDB's metadata in its place. See `Format.repair`.

    The new log is a plain one, whatever headers and compression the old one had. Where nobody says whose it is, the
    first piece of metadata precedes all records, so that the new log is known for RocksDB's as well.
    """
    findings = Findings("skip")
    metadata: list[Metadata] = []
    schema = pa.schema([*ROWS_SCHEMA, pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)])
    with LogWriter(target, ROWS_SCHEMA, WriteOptions(), storage) as writer, closing(storage.open(file.path)) as source:
        head = read_head(
            storage.read(file.path, 0, PROBE_BYTES), file, settle_dialect(file, options.dialect, storage), storage
        )
        log = whole_log(file, options, storage)
        ahead = None
        if options.dialect == "auto" and head.dialect == "rocksdb":
            ahead = _first(log, source, head)
        if ahead is not None:
            _carry_over(ahead, file, writer, storage)
        for batch in Walk(log, source, head, schema, findings, metadata).batches():
            offsets = batch.column(OFFSET_COLUMN).to_numpy()
            records = batch.select([RECORD_COLUMN])
            first = 0
            while metadata and len(offsets) and metadata[0].offset < offsets[-1]:
                last = int(offsets.searchsorted(metadata[0].offset))
                writer.write(records.slice(first, last - first))
                if (one := metadata.pop(0)) != ahead:
                    _carry_over(one, file, writer, storage)
                first = last
            writer.write(records.slice(first))
        for one in metadata:
            if one != ahead:
                _carry_over(one, file, writer, storage)


def _first(log: LogRange, source: Source, head: LogHead) -> Metadata | None:
    """The first piece of metadata of a log that is carried over."""
    found: list[Metadata] = []
    for _ in Walk(log, source, head, pa.schema([]), Findings("skip"), found).batches():
        if carried := [one for one in found if one.type != layout.Type.SET_COMPRESSION]:
            return carried[0]
    return None


def _carry_over(metadata: Metadata, file: File, writer: LogWriter, storage: Storage) -> None:
    if metadata.type == layout.Type.SET_COMPRESSION:
        return
    payload = storage.read(file.path, metadata.offset + metadata.header_size, metadata.length)
    writer.write_metadata(layout.LEGACY_METADATA.get(metadata.type, metadata.type), payload)
