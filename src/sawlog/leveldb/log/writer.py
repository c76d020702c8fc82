"""Writing LevelDB logs byte for byte as LevelDB's own writer does, RocksDB's recyclable headers on request; repair."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import view_values
from sawlog.chain.kernels import make_record
from sawlog.chain.records import RecordWriter
from sawlog.errors import OptionError
from sawlog.format.contract import OFFSET_COLUMN, PROBE_BYTES
from sawlog.format.damage import Findings
from sawlog.leveldb.log import kernels as k
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.head import LogHead, read_head, resolve_dialect
from sawlog.leveldb.log.layout import RECORD_COLUMN
from sawlog.leveldb.log.walk import ROWS_SCHEMA, LogRange, MetadataFragment, Walk, make_log_range
from sawlog.leveldb.options import LogReadOptions, LogWriteOptions
from sawlog.storage import File, Source, Staged, StagedFile, Storage, is_remote, normalize

OUT_BYTES = 2 << 20
"""Bytes laid out before they are written; at least two blocks."""


class LogWriter(RecordWriter):
    """Writes one log. See section 2 of the format.

    Raises:
        SchemaError: When the data is anything but one binary (or string) column named `record`.
        OptionError: When a log cannot be continued with these options.
    """

    format_name = "leveldb_log"
    file_kind = "log"
    _file: StagedFile | _ContinuedLog  # type: ignore[assignment]

    def __init__(self, path: str, schema: pa.Schema, options: LogWriteOptions, storage: Storage) -> None:
        super().__init__(schema, storage)
        recyclable = options.dialect == "rocksdb"
        self._header = np.uint64(layout.RECYCLABLE_HEADER_SIZE if recyclable else layout.HEADER_SIZE)
        self._log = np.uint64((options.log_number or 0) & 0xFFFFFFFF)
        self._out = np.empty(OUT_BYTES, np.uint8)
        self._record, self._state = make_record(k.ENCODER)
        if options.append and storage.exists(path):
            self._file = _ContinuedLog.open(path, options, storage)
            self._state.in_block = self._file.start % layout.BLOCK_SIZE
        else:
            self._file = storage.stage(path)

    def write_metadata(self, code: int, payload: bytes) -> None:
        """Append a fragment that belongs to no record. Such fragments begin a new block rather than be split."""
        room = layout.BLOCK_SIZE - self._state.in_block
        checked = layout.TYPE.encode(code) + payload
        fragment = (
            layout.CHECKSUM.encode(k.compute_masked_checksum(checked)) + layout.LENGTH.encode(len(payload)) + checked
        )
        self._flush()
        if room < len(fragment):
            self._file.write(bytes(room))
            self._state.in_block = 0
        self._file.write(fragment)
        self._state.in_block += len(fragment)

    def _write_piece(self, offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> None:
        offsets.flags.writeable = data.flags.writeable = False
        self._state.record = 0
        self._state.done = -1
        while k.write_fragments(data, offsets, self._header, self._log, self._record, self._out) != k.WRITTEN:
            self._flush()
        if self._state.used > OUT_BYTES // 2:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._out[: self._state.used])
        self._state.used = 0


class _ContinuedLog:
    """An existing log that is appended to in place. What is written shows as a torn tail until it is complete."""

    def __init__(self, path: str, start: int) -> None:
        self.path = path
        self.start = start
        self._file = open(path, "r+b", buffering=0)
        self._cut = False

    @classmethod
    def open(cls, path: str, options: LogWriteOptions, storage: Storage) -> _ContinuedLog:
        """Find the end of the last complete record, to go on after it."""
        name = normalize(path)
        if is_remote(name):
            raise OptionError(f"{path}: append=True needs a local file; object stores cannot change one in place")
        file = File(name, os.path.getsize(name))
        # A torn first fragment does not say which record it belongs to.
        dialect = resolve_dialect(file, "rocksdb" if options.dialect == "rocksdb" else "auto", storage)
        head = read_head(storage.read(name, 0, PROBE_BYTES), file, dialect, storage)
        if head.compression != layout.Compression.NONE:
            raise OptionError(f"{path}: append=True cannot continue a compressed log")
        tail = make_log_range(file, LogReadOptions(dialect=dialect), storage).find_tail()
        start = tail.offset if tail is not None else file.size
        number = None if options.log_number is None else options.log_number & 0xFFFFFFFF
        if start and head.recycled and head.log_number != number:
            raise OptionError(
                f'{path}: append=True: the log has recyclable headers; give dialect="rocksdb", '
                f"log_number={head.log_number}"
            )
        if start and not head.recycled and number is not None:
            raise OptionError(f"{path}: append=True: the log has no recyclable headers; leave dialect and log_number")
        return cls(name, start)

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        if not self._cut:
            self._file.truncate(self.start)
            self._file.seek(self.start)
            self._cut = True
        while len(view):
            view = view[self._file.write(view) :]

    def finish(self) -> Staged:
        self.write(b"")
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return Staged(self.path, self.path, size)

    def discard(self, storage: Storage) -> None:
        self._file.close()
        if self._cut:
            os.truncate(self.path, self.start)


def repair(file: File, target: str, options: LogReadOptions, storage: Storage) -> None:
    """Write the intact records of one log to a new log, with RocksDB's metadata in its place. See `Format.repair`.

    The new log is a plain one, whatever headers and compression the old one had. Where nobody says whose it is, the
    first piece of metadata precedes all records, so that the new log is known for RocksDB's as well.
    """
    findings = Findings("skip")
    metadata: list[MetadataFragment] = []
    schema = pa.schema([*ROWS_SCHEMA, pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)])
    with (
        LogWriter(target, ROWS_SCHEMA, LogWriteOptions(), storage) as writer,
        closing(storage.open(file.path)) as source,
    ):
        head = read_head(
            storage.read(file.path, 0, PROBE_BYTES), file, resolve_dialect(file, options.dialect, storage), storage
        )
        log = make_log_range(file, options, storage)
        ahead = None
        if options.dialect == "auto" and head.dialect == "rocksdb":
            ahead = _find_first_metadata(log, source, head)
        if ahead is not None:
            _carry_over(ahead, file, writer, storage)
        for batch in Walk(log, source, head, schema, findings, metadata).read_batches():
            offsets = view_values(batch.column(OFFSET_COLUMN), np.int64)
            records = batch.select([RECORD_COLUMN])
            first = 0
            while metadata and len(offsets) and metadata[0].offset < offsets[-1]:
                last = int(offsets.searchsorted(metadata[0].offset))
                writer.write(records.slice(first, last - first))
                if (piece := metadata.pop(0)) != ahead:
                    _carry_over(piece, file, writer, storage)
                first = last
            writer.write(records.slice(first))
        for piece in metadata:
            if piece != ahead:
                _carry_over(piece, file, writer, storage)


def _find_first_metadata(log: LogRange, source: Source, head: LogHead) -> MetadataFragment | None:
    """Return the first piece of metadata of a log that is carried over."""
    pieces: list[MetadataFragment] = []
    for _ in Walk(log, source, head, pa.schema([]), Findings("skip"), pieces).read_batches():
        if carried := [piece for piece in pieces if piece.type != layout.Type.SET_COMPRESSION]:
            return carried[0]
    return None


def _carry_over(metadata: MetadataFragment, file: File, writer: LogWriter, storage: Storage) -> None:
    if metadata.type == layout.Type.SET_COMPRESSION:
        return
    payload = storage.read(file.path, metadata.offset + metadata.header_size, metadata.length)
    writer.write_metadata(layout.LEGACY_METADATA.get(metadata.type, metadata.type), payload)
