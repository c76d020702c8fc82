"""Writing LevelDB logs: byte for byte what LevelDB's own writer makes; RocksDB's recyclable headers on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from sawlog.damage import FileReport, Findings
from sawlog.errors import OptionError, SchemaError
from sawlog.format import PROBE_BYTES, Writer
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.reader import RECORD_COLUMN, ROWS_SCHEMA, ReadOptions, read_head, whole_log
from sawlog.storage import File, Staged, StagedFile, Storage, is_remote, normalize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OUT_BYTES = 2 << 20
"""Bytes laid out before they are written; at least two blocks."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing LevelDB logs.

    Attributes:
        dialect: `leveldb`, or `rocksdb` for recyclable headers that carry `log_number`.
        log_number: The number of the log, as in its file name; only for `rocksdb`.
        append: Continue an existing log behind its last complete record; a torn tail is cut off first.
    """

    dialect: Literal["leveldb", "rocksdb"] = "leveldb"
    log_number: int | None = None
    append: bool = False


class LogWriter(Writer):
    """Writes one log. See section 2 of the format.

    Raises:
        SchemaError: When the data is anything but one binary (or string) column named `record`.
        OptionError: When a log number is missing or out of place.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> None:
        import numpy as np

        from sawlog.leveldb_log import kernels

        _check_schema(schema)
        if (options.dialect == "rocksdb") != (options.log_number is not None):
            raise OptionError('writing leveldb_log: dialect="rocksdb" and log_number go together')
        self.storage = storage
        self._kernels = kernels
        self._rows = 0
        recyclable = options.dialect == "rocksdb"
        self._header = np.uint64(layout.RECYCLABLE_HEADER_SIZE if recyclable else layout.HEADER_SIZE)
        self._log = np.uint64((options.log_number or 0) & 0xFFFFFFFF)
        self._out = np.empty(OUT_BYTES, np.uint8)
        self._state = np.zeros(kernels.WRITER_STATE_SIZE, np.int64)
        self._file: StagedFile | _Appended
        if options.append and storage.exists(path):
            self._file = _Appended.open(path, options, storage)
            self._state[kernels.IN_BLOCK] = self._file.start % layout.BLOCK_SIZE
        else:
            self._file = storage.stage(path)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer.write`."""
        column = batch.column(RECORD_COLUMN)
        if column.null_count:
            row = self._rows + column.is_null().index(True).as_py()
            raise SchemaError(f"column {RECORD_COLUMN!r}, row {row}: a log cannot hold null")
        self._rows += batch.num_rows
        for piece in _as_binary(column):
            self._write_piece(piece)

    def finish(self) -> list[Staged]:
        """See `Writer.finish`."""
        self._flush()
        return [self._file.finish()]

    def abort(self) -> None:
        """See `Writer.abort`."""
        self._file.discard(self.storage)

    def _write_piece(self, piece: pa.BinaryArray) -> None:
        import numpy as np

        k = self._kernels
        _, offset_buffer, data_buffer = piece.buffers()
        offsets = np.frombuffer(offset_buffer, np.int32)[piece.offset : piece.offset + len(piece) + 1]
        data: NDArray[np.uint8] = np.frombuffer(data_buffer or b"", np.uint8)
        offsets.flags.writeable = data.flags.writeable = False
        self._state[k.RECORD] = 0
        self._state[k.DONE] = -1
        while (status := k.write_fragments(data, offsets, self._header, self._log, self._state, self._out)) != k.END:
            if status == k.INVALID:
                raise SchemaError(f"column {RECORD_COLUMN!r}: the Arrow array is invalid: offsets outside its data")
            self._flush()
        if self._state[k.USED] > OUT_BYTES // 2:
            self._flush()

    def _flush(self) -> None:
        k = self._kernels
        self._file.write(self._out[: int(self._state[k.USED])])
        self._state[k.USED] = 0


class _Appended:
    """An existing log that is continued in place. What is written shows as a torn tail until it is complete."""

    def __init__(self, path: str, start: int) -> None:
        self.path = path
        self.start = start
        self._file = open(path, "r+b", buffering=0)
        self._file.truncate(start)
        self._file.seek(start)

    @classmethod
    def open(cls, path: str, options: WriteOptions, storage: Storage) -> _Appended:
        """Find the end of the last complete record, and go on behind it.

        Raises:
            OptionError: On remote storage, or when the options do not fit the log.
        """
        name = normalize(path)
        if is_remote(name):
            raise OptionError(f"{path}: append=True needs a local file; object stores cannot change one in place")
        file = File(name, os.path.getsize(name))
        head = read_head(storage.read(name, 0, PROBE_BYTES), file, "auto")
        if head.compression != layout.COMPRESSION_NONE:
            raise OptionError(f"{path}: append=True cannot continue a compressed log")
        if head.recycled and head.log_number != (options.log_number or -1) & 0xFFFFFFFF:
            raise OptionError(f"{path}: append=True: the log's number is {head.log_number}; give it as log_number")
        tail = whole_log(file, ReadOptions(), storage).inspect().tail
        return cls(name, tail.offset if tail is not None else file.size)

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self._file.write(view) :]

    def finish(self) -> Staged:
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return Staged(self.path, self.path, size)

    def discard(self, storage: Storage) -> None:
        self._file.truncate(self.start)
        self._file.close()


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Write the intact records of one log to a new log. See `Format.repair`."""
    findings = Findings("skip")
    with LogWriter(target, ROWS_SCHEMA, WriteOptions(), storage) as writer:
        for batch in whole_log(file, options, storage).to_batches(findings):
            writer.write(batch)
    return FileReport.of(file.path, file.size, [findings])


def _check_schema(schema: pa.Schema) -> None:
    if schema.names != [RECORD_COLUMN]:
        found = ", ".join(schema.names) or "none"
        raise SchemaError(f"a leveldb_log holds one column, {RECORD_COLUMN!r}; found: {found}")
    kind = schema.field(RECORD_COLUMN).type
    known = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    views = (pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_fixed_size_binary)
    if not any(test(kind) for test in (*known, *views)):
        raise SchemaError(f"column {RECORD_COLUMN!r} is {kind}; a log holds binary")


def _as_binary(column: pa.Array) -> Iterator[pa.BinaryArray]:
    """The column as arrays with 32-bit offsets; more than one where the payload is larger than they reach."""
    try:
        yield column.cast(pa.binary())
    except pa.ArrowInvalid:
        if len(column) < 2:
            raise SchemaError(f"column {RECORD_COLUMN!r}: a record of 2 GiB or more") from None
        half = len(column) // 2
        yield from _as_binary(column.slice(0, half))
        yield from _as_binary(column.slice(half))
