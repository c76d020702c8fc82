"""A logger: rows, sets of rows and commands appended to logs as they come, for readers that follow at once."""

from __future__ import annotations

import contextlib
import os
import struct
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Self

import pyarrow as pa

from sawlog.arrow import check_times, validate_batches
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.columns import read_enum_table
from sawlog.deephaven.log.encode import SINGLE_FLAGS, Encoder
from sawlog.deephaven.log.layout import Flag
from sawlog.deephaven.log.names import LogName, format_name
from sawlog.deephaven.log.options import WriteOptions
from sawlog.deephaven.log.writer import SET_FLAGS, AppendedLog
from sawlog.errors import OptionError, SchemaError
from sawlog.storage import Storage, is_remote, normalize

_BUFFER_BYTES = 2 << 20


class Logger:
    """Appends to a log, or to one log after the other in a directory; a context manager.

    Entries are written whole and in order, and every byte that precedes an entry is there before it, so that a reader
    at work never takes half of one for data. A log appears with its header complete.

    Args:
        path: A file; or, when `namespace` and `table` are given, a directory for logs with the vendor's file names.
        schema: The columns, constant ones included; field metadata as `sawlog.read` gives it is honoured.
        namespace: Namespace of the table.
        table: Name of the table.
        internal_partition: Who writes: no two processes may share one. By default the host's name and the process id.
        column_partition: Value of the partitioning column; by default the date (UTC) on which a file is begun.
        namespace_set: `System` or `User`.
        constants: Columns that are stored once per log, in its header, and their values; batches need not have them.
        application_version: The number of the schema's listener.
        charset: Of strings whose field metadata names none.
        timestamp_unit: Unit in which times are logged; None: that of each column's Arrow type.
        roll_bytes: Begin a new file when the next rows would take one beyond about this size; sets are never torn.
            Needs a directory.
        roll_seconds: Begin a new file after so many seconds. Needs a directory.
        flush: `write` hands entries to the operating system with every call; `buffer` when 2 MiB are there.
        fsync: When the bytes are made safe on disk: with every call (`write`), on `close`, or `never`.
        append: Continue an existing file after its last complete set, as after a crash.
        max_entry_bytes: Longest entry. Deephaven's own limit is 1 MiB by default.
        clock: Seconds since the epoch; for tests.

    Raises:
        OptionError: When the file exists and `append` is not set, or options contradict each other.
        SchemaError: When a log cannot hold the columns, as times without a zone.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        namespace: str | None = None,
        table: str | None = None,
        internal_partition: str | None = None,
        column_partition: str | None = None,
        namespace_set: Literal["System", "User"] = "System",
        constants: Mapping[str, Any] | None = None,
        application_version: int | None = None,
        charset: str = "UTF-8",
        timestamp_unit: Literal["s", "ms", "us", "ns"] | None = None,
        roll_bytes: int | None = None,
        roll_seconds: float | None = None,
        flush: Literal["write", "buffer"] = "write",
        fsync: Literal["write", "close", "never"] = "close",
        append: bool = False,
        max_entry_bytes: int = layout.VENDOR_MAX_ENTRY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_times(schema, "deephaven_log")
        self._path = normalize(path)
        self._schema = schema
        self._constants = dict(constants or {})
        self._named = namespace is not None and table is not None
        if (namespace is None) != (table is None):
            raise OptionError("namespace and table go together")
        if not self._named and (roll_bytes is not None or roll_seconds is not None):
            raise OptionError("roll_bytes and roll_seconds make several files: give a directory, namespace and table")
        if self._named and append:
            raise OptionError("append continues one file; in a directory every start begins a new one")
        if is_remote(self._path):
            raise OptionError(f"{self._path}: a logger appends, which object stores cannot; write whole files there")
        internal = internal_partition or f"{os.uname().nodename.replace('.', '_')}_{os.getpid()}"
        self._name = LogName(namespace, table, namespace_set, internal, column_partition)
        self._options = WriteOptions(
            application_version=application_version,
            charset=charset,
            timestamp_unit=timestamp_unit,
            max_item_bytes=max_entry_bytes,
        )
        self._roll_bytes = roll_bytes
        self._roll_seconds = roll_seconds
        self._flush_each = flush == "write"
        self._fsync = fsync
        self._append = append
        self._clock = clock
        self._buffer = bytearray()
        self._start_time = 0.0
        self._file: AppendedLog | None = None
        self.files: list[str] = []
        """Logs that were written to, in order."""
        self._open_enums = any(pa.types.is_dictionary(field.type) and not self._has_table(field) for field in schema)
        if not self._open_enums:
            self._begin(None)

    def write(self, data: Any) -> None:
        """Append rows, each of them on its own: a record batch, a table, or anything with an Arrow stream.

        Raises:
            SchemaError: For a value that cannot be represented; names column and row. Rows before it are written.
        """
        for batch in self._conform_batches(data):
            self._roll(batch)
            self._encode(batch, SINGLE_FLAGS)
        self._commit()

    def transaction(self, data: Any) -> None:
        """Append rows that readers see all at once or not at all. Arguments and errors are those of `write`.

        When it raises, the set is left without its end, and no reader returns any of it.
        """
        before = None
        first = True
        for batch in self._conform_batches(data):
            if before is not None:
                self._encode(before, (SET_FLAGS[0] if first else 0, 0, 0))
                first = False
            else:
                self._roll(batch)
            before = batch
        if before is not None:
            opening = SET_FLAGS[0] if first else 0
            if before.num_rows == 1:
                only = opening | SET_FLAGS[2]
                self._encode(before, (only, only, only))
            else:
                self._encode(before, (opening, 0, SET_FLAGS[2]))
        self._commit()

    def command(self, command_id: int, data: bytes = b"") -> None:
        """Append a command.

        Args:
            command_id: `sawlog.deephaven.log.DELETE_PARTITION`, or another one that your readers know.
            data: What belongs to it.
        """
        if self._file is None:
            self._begin(None)
        kind, version = layout.COMMAND_RECORD, layout.RECORD_VERSION
        body = struct.pack(">Biii", Flag.RECORD, kind, version, command_id) + data
        size = len(body) + layout.DIGEST_SIZE
        if layout.SIZE_SIZE + size > self._options.max_item_bytes:
            raise SchemaError(f"a command of {size} bytes is longer than max_entry_bytes")
        entry = struct.pack(">i", size) + body
        self._buffer += entry + struct.pack(">I", zlib.adler32(entry))
        self._commit()

    def delete_partition(self) -> None:
        """Append DELETE_PARTITION: all rows of the partition so far are gone, those of its earlier files too."""
        self.command(layout.DELETE_PARTITION)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._file is not None and self._buffer:
            buffer, self._buffer = self._buffer, bytearray()
            self._file.write(buffer)

    def close(self) -> None:
        """Flush, make the bytes safe on disk unless `fsync="never"`, and close the log."""
        if self._file is None and not self.files:
            self._begin(None)
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None or self._file is not None:
            self.close()

    @staticmethod
    def _has_table(field: pa.Field) -> bool:
        return bool(read_enum_table(field))

    def _conform_batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        column_names = [name for name in self._schema.names if name not in self._constants]
        if not isinstance(data, pa.RecordBatch) and not hasattr(data, "__arrow_c_stream__"):
            raise SchemaError(f"cannot log {type(data).__name__}: expected a record batch, a table or an Arrow stream")
        pieces = [data] if isinstance(data, pa.RecordBatch) else pa.RecordBatchReader.from_stream(data)
        for batch in validate_batches(pieces):
            missing = [name for name in column_names if name not in batch.schema.names]
            unknown = [name for name in batch.schema.names if name not in self._schema.names]
            if missing or unknown:
                raise SchemaError(f"columns {missing or unknown}: expected {', '.join(column_names)}")
            batch_names = [name for name in self._schema.names if name in batch.schema.names]
            for name in batch_names:
                actual_type, expected = batch.schema.field(name).type, self._schema.field(name).type
                if actual_type != expected:
                    raise SchemaError(f"column {name!r} is {actual_type}; the logger's schema says {expected}")
            if batch.num_rows:
                yield batch.select(batch_names)

    def _encode(self, batch: pa.RecordBatch, flags: tuple[int, int, int]) -> None:
        if self._file is None:
            self._begin(batch)
        for piece in self._encoder.encode(batch, flags):
            self._buffer += piece.tobytes()
            if len(self._buffer) >= _BUFFER_BYTES:
                self.flush()

    def _commit(self) -> None:
        if self._flush_each or self._fsync == "write":
            self.flush()
        if self._fsync == "write" and self._file is not None:
            self._file.sync()

    def _roll(self, batch: pa.RecordBatch) -> None:
        """Begin a new file when the current one is full or old, between sets of rows."""
        if self._file is None or (self._roll_bytes is None and self._roll_seconds is None):
            return
        expected = self._file.size + len(self._buffer) + batch.nbytes
        full = self._roll_bytes is not None and expected > self._roll_bytes and self._file.size > self._file.start
        old = self._roll_seconds is not None and self._clock() - self._start_time >= self._roll_seconds
        if full or old:
            self._end()
            self._begin(batch)

    def _end(self) -> None:
        if self._file is None:
            return
        file = self._file
        self.flush()
        self._file = None
        if self._fsync != "never":
            file.sync()
        file.close()

    def _begin(self, batch: pa.RecordBatch | None) -> None:
        """Open the log, or the next one."""
        self._start_time = self._clock()
        path = self._choose_path() if self._named else self._path
        self._encoder = Encoder.of(self._options, self._schema, path, self._constants)
        header = self._encoder.encode_header(batch)
        if self._append and os.path.exists(path):
            self._file = AppendedLog(path, header, Storage())
        else:
            _create(path, header)
            self._file = AppendedLog(path, header, Storage())
        self.files.append(path)

    def _choose_path(self) -> str:
        """Return a name that no log in the directory has yet."""
        millis = int(self._start_time * 1000)
        while True:
            start_time = datetime.fromtimestamp(millis / 1000, UTC)
            name = self._name._replace(start_time=start_time)
            if name.column_partition is None:
                name = name._replace(column_partition=f"{start_time:%Y-%m-%d}")
            try:
                path = os.path.join(self._path, format_name(name))
            except ValueError as error:
                raise OptionError(str(error)) from error
            if not os.path.exists(path):
                return path
            millis += 1


def _create(path: str, header: bytes) -> None:
    """Make a log that has its header from the first moment on."""
    directory, name = os.path.split(path)
    os.makedirs(directory or ".", exist_ok=True)
    temporary = os.path.join(directory, f".{name}.{uuid.uuid4().hex[:12]}")
    try:
        with open(temporary, "xb") as file:
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        raise OptionError(f"{path}: the log exists; append=True continues it") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
