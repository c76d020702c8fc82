"""Writing logs of version 3: what Deephaven's tailer and import server accept."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from sawlog.deephaven.log.dataset import open_log
from sawlog.deephaven.log.encode import SINGLE_FLAGS, Encoder
from sawlog.deephaven.log.fragments import make_log_range
from sawlog.deephaven.log.layout import Flag
from sawlog.deephaven.log.options import ReadOptions, WriteOptions
from sawlog.errors import OptionError
from sawlog.format.contract import Writer
from sawlog.format.damage import Findings, TailStatus
from sawlog.storage import File, Staged, StagedFile, Storage, is_remote, normalize
from sawlog.storage.staging import lock_file

SET_FLAGS = (int(Flag.START), 0, int(Flag.END))


class LogWriter(Writer):
    """Writes one log.

    Raises:
        SchemaError: When a log cannot hold the columns.
        OptionError: For an unknown charset.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> None:
        self.storage = storage
        self._options = options
        self._path = normalize(path)
        self._encoder = Encoder.of(options, schema, self._path, dict.fromkeys(options.constants))
        self._flags = SET_FLAGS if options.transactions == "batch" else SINGLE_FLAGS
        self._file: StagedFile | AppendedLog | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._file is None:
            if batch.num_rows == 0:
                return
            self._file = self._begin(batch)
        flags = SINGLE_FLAGS if batch.num_rows == 1 else self._flags
        for piece in self._encoder.encode(batch, flags):
            self._file.write(piece)

    def finish(self) -> list[Staged]:
        if self._file is None:
            self._file = self._begin(None)
        return [self._file.finish()]

    def abort(self) -> None:
        if self._file is not None:
            self._file.discard(self.storage)

    def _begin(self, batch: pa.RecordBatch | None) -> StagedFile | AppendedLog:
        header = self._encoder.encode_header(batch)
        if self._options.append and self.storage.exists(self._path):
            return AppendedLog(self._path, header, self.storage)
        file = self.storage.stage(self._path)
        try:
            file.write(header)
        except BaseException:
            file.discard(self.storage)
            raise
        return file


class AppendedLog:
    """An existing log that is continued in place. An entry shows as a torn tail until all of it is there.

    Raises:
        OptionError: On remote storage, when another process writes the log, or when its header is another one.
        DamageError: When it is damaged: repair it first.
    """

    def __init__(self, path: str, header: bytes, storage: Storage) -> None:
        if is_remote(path):
            raise OptionError(f"{path}: append=True needs a local file; object stores cannot change one in place")
        self.path = path
        self._file = open(path, "r+b", buffering=0)
        if not lock_file(self._file.fileno(), waits=False):
            self._file.close()
            raise OptionError(f"{path}: another process is writing this log")
        try:
            self.start = find_committed_end(path, header, storage)
            self._file.truncate(self.start)
            self._file.seek(self.start)
        except BaseException:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._file.tell()

    def write(self, data: Any) -> None:
        """Append bytes."""
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self._file.write(view) :]

    def sync(self) -> None:
        """Have the bytes safe on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def finish(self) -> Staged:
        """Close the file, its bytes safe on disk."""
        self.sync()
        size = self.size
        self.close()
        return Staged(self.path, self.path, size)

    def discard(self, storage: Storage) -> None:
        """Take back what was appended."""
        del storage
        self._file.truncate(self.start)
        self._file.close()


def find_committed_end(path: str, header: bytes, storage: Storage) -> int:
    """Return where the last complete set of a log ends.

    Raises:
        OptionError: When its header is not the one given.
        DamageError: When it is damaged.
    """
    options = ReadOptions()
    file = File(path, os.path.getsize(path))
    log_header = open_log(file, options, storage)
    if log_header.raw != header:
        raise OptionError(f"{path}: append=True: the log has another header: other columns, constants or versions")
    findings = Findings("fail")
    log_range = make_log_range(file, log_header, options, storage)
    for _ in log_range.decode(pa.schema([]), findings):
        pass
    tail = findings.tail
    return file.size if tail is None or tail.status is TailStatus.CLEAN else tail.offset
