"""Writing logs of version 3: what Deephaven's tailer and import server accept."""

from __future__ import annotations

import os
import posixpath
import tempfile
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from sawlog.damage import DamageWarning, Findings, TailStatus
from sawlog.deephaven_log import layout
from sawlog.deephaven_log.encoder import SINGLE_FLAGS, Encoder
from sawlog.deephaven_log.fragments import whole_log
from sawlog.deephaven_log.layout import Flag
from sawlog.deephaven_log.names import parse_name
from sawlog.deephaven_log.reader import MAX_ENTRY_BYTES, ReadOptions, open_log
from sawlog.errors import OptionError
from sawlog.format import Writer
from sawlog.storage import File, Staged, StagedFile, Storage, is_remote, normalize

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SET_FLAGS = (int(Flag.START), 0, int(Flag.END))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing Deephaven logs.

    Attributes:
        application_version: The number of the schema's listener; None: as the schema's metadata says, or none.
        charset: Of strings whose field metadata names none: `UTF-8`, `ISO-8859-1`, `US-ASCII`, `UTF-16` (BE, LE).
        constants: Columns that are stored once, in the header; every row must hold the same value.
        timestamp_unit: Unit in which times are logged (as Long); None: that of each column's Arrow type.
        transactions: `batch` makes every record batch a set of rows that appears whole or not at all.
        max_entry_bytes: Longest entry. Deephaven's own limit is 1 MiB by default.
        append: Continue an existing log behind its last complete set; an unfinished end is cut off first.
    """

    application_version: int | None = None
    charset: str = "UTF-8"
    constants: tuple[str, ...] = ()
    timestamp_unit: Literal["s", "ms", "us", "ns"] | None = None
    transactions: Literal["none", "batch"] = "none"
    max_entry_bytes: int = layout.VENDOR_MAX_ENTRY
    append: bool = False

    def __post_init__(self) -> None:
        if not layout.MIN_ENTRY_SIZE <= self.max_entry_bytes <= MAX_ENTRY_BYTES:
            raise OptionError(f"max_entry_bytes={self.max_entry_bytes}: expected 5 to {MAX_ENTRY_BYTES}")

    def encoder(self, schema: pa.Schema, path: str, constants: Mapping[str, Any] | None = None) -> Encoder:
        """The encoder for a file."""
        return Encoder(
            schema,
            charset=self.charset,
            unit=self.timestamp_unit,
            constants=dict.fromkeys(self.constants) if constants is None else constants,
            application_version=self.application_version,
            partition=parse_name(posixpath.basename(path)).column_partition,
            max_entry=self.max_entry_bytes,
        )


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
        self._encoder = options.encoder(schema, self._path)
        self._flags = SET_FLAGS if options.transactions == "batch" else SINGLE_FLAGS
        self._file: StagedFile | AppendedLog | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer.write`."""
        if self._file is None:
            if batch.num_rows == 0:
                return
            self._file = self._begin(batch)
        flags = SINGLE_FLAGS if batch.num_rows == 1 else self._flags
        for piece in self._encoder.encode(batch, flags):
            self._file.write(piece)

    def finish(self) -> list[Staged]:
        """See `Writer.finish`."""
        if self._file is None:
            self._file = self._begin(None)
        return [self._file.finish()]

    def abort(self) -> None:
        """See `Writer.abort`."""
        if self._file is not None:
            self._file.discard(self.storage)

    def _begin(self, batch: pa.RecordBatch | None) -> StagedFile | AppendedLog:
        header = self._encoder.header(batch)
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

    Args:
        path: The log.
        header: The header that it must have.
        storage: Where it is.

    Raises:
        OptionError: On remote storage, when another process writes the log, or when its header is another one.
        DamageError: When it is damaged: repair it first.
    """

    def __init__(self, path: str, header: bytes, storage: Storage) -> None:
        if is_remote(path):
            raise OptionError(f"{path}: append=True needs a local file; object stores cannot change one in place")
        self.path = path
        self._file = open(path, "r+b", buffering=0)
        try:
            lock(self._file.fileno(), path)
            self.start = committed_end(path, header, storage)
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


def lock(descriptor: int, path: str) -> None:
    """Keep other writers of this library out: two processes must never write one log.

    Raises:
        OptionError: When another one holds it.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OptionError(f"{path}: another process is writing this log") from error


def committed_end(path: str, header: bytes, storage: Storage) -> int:
    """Where the last complete set of a log ends.

    Raises:
        OptionError: When its header is not the one given.
        DamageError: When it is damaged.
    """
    options = ReadOptions()
    file = File(path, os.path.getsize(path))
    found = open_log(file, options, storage)
    if found.raw != header:
        raise OptionError(f"{path}: append=True: the log has another header: other columns, constants or versions")
    findings = Findings("fail")
    whole = whole_log(file, found, options, storage)
    for _ in whole.decode(pa.schema([]), findings):
        pass
    tail = findings.tail
    return file.size if tail is None or tail.status is TailStatus.CLEAN else tail.offset


def warm_up() -> None:
    """Compile every kernel: write a small damaged log, read every view of it, repair it."""
    from sawlog import api

    table = pa.table({"Sym": ["A", "B", None], "Px": [1.0, 2.0, None], "Ok": [True, None, False]})
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        log, copy = (os.path.join(directory, name) for name in ("log.bin", "copy.bin"))
        api.write(table, log, format="deephaven_log", transactions="batch")
        api.write(table, log, format="deephaven_log", append=True)
        with open(log, "ab") as file:
            file.write(b"damage")
        for view in ("rows", "entries", "commands", "damage"):
            api.read(log, format="deephaven_log", view=view, on_damage="skip", provenance=True)
        api.open(log, format="deephaven_log", on_damage="skip").fragments(64)
        api.repair(log, copy, format="deephaven_log")
