"""Fragments: ranges of logs as rows, as entries, and as commands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, make_fixed_array
from sawlog.chain.walk import Span
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.batches import RowBatch
from sawlog.deephaven.log.counting import LogCounter
from sawlog.deephaven.log.header import Header
from sawlog.deephaven.log.layout import BinaryLogDamageKind, Flag
from sawlog.deephaven.log.walk import Entries, RowWalk
from sawlog.deephaven.text import make_utf8_array
from sawlog.errors import ChangedError
from sawlog.format.contract import PROBE_BYTES, Fragment, Projection, Scan, assemble
from sawlog.format.damage import Damage, Findings, Tail, TailStatus
from sawlog.storage import File, Source, Storage
from sawlog.storage.names import is_remote

ENTRIES_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("flags", pa.uint8(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
    ]
)
"""Schema of the view `frames`: `size` is that of the whole entry in bytes, `kind` what the flags say."""
COMMANDS_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("record_type", pa.int32()),
        pa.field("record_version", pa.int32()),
        pa.field("command_id", pa.int32()),
        pa.field("data", pa.binary()),
    ]
)
"""Schema of the view `commands`: one row per non-row record; `command_id` is null for records that are no commands."""

_recent = threading.local()
"""Of each thread: `kind`, how the last log was counted, and its header; `counter`, which counts more of that kind."""
_KINDS = {0: "row", 1: "first", 2: "last", 3: "single"}


@dataclass(frozen=True)
class LogFragment(Fragment):
    """A range of one log.

    Attributes:
        file: The log; its size is where this scan takes the file to end.
        header: Its header.
        start: The end of the header, or the start of an entry that begins a set.
        end: Likewise, or the size of the file.
        live_from: Rows before this byte were deleted by a later DELETE_PARTITION.
        partition: Value of the partitioning column.
        optimistic: Whether nobody has looked for a later DELETE_PARTITION: then the first one found ends the reading.
    """

    file: File
    header: Header
    start: int
    end: int
    live_from: int = 0
    partition: str | None = None
    optimistic: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        return self.end - self.size, self.size

    def open_source(self) -> Source:
        """Return the log, whose header is the one that the range was planned by, wherever that was found.

        Raises:
            ChangedError: When it is not.
        """
        source = self.scan.storage.open(self.file, self.end)
        if self.start == self.header.size and source.read_window(0, self.start).tobytes() != self.header.raw:
            source.close()
            raise ChangedError(
                f"{self.path}: the header is not the one that the read was planned by: the file was replaced, or an"
                " index is wrong; make that again"
            )
        return source

    def make_entries(self, source: Source) -> Entries:
        """Return what a walk over the range goes by."""
        return Entries(Span(self.file, self.start, self.end), source, self.header, self.scan.options)


@dataclass(frozen=True)
class RowRange(LogFragment):
    """The sets of rows (a stand-alone row is one) that begin in the range."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        with closing(self.open_source()) as source:
            yield from self.walk(source, schema, findings).read_batches()

    def scan_into(self, findings: Findings) -> Findings:
        counter = self._find_counter(findings)
        is_counted = counter is not None and counter.count_into(self.file, findings)
        return findings if is_counted else super().scan_into(findings)

    def _find_counter(self, findings: Findings) -> LogCounter | None:
        """Return what counts small logs of this header, near and whole, of which no row was deleted by another one.

        There is none for the first of them: it would take as long as a walk.
        """
        is_whole = self.start == self.header.size and self.end == self.file.size > self.start
        if not is_whole or self.end > PROBE_BYTES or self.live_from or findings.drained or is_remote(self.path):
            return None
        header, scan, on_damage = getattr(_recent, "kind", (None, None, ""))
        if header is not self.header or scan is not self.scan or on_damage != findings.on_damage:
            _recent.kind, _recent.counter = (self.header, self.scan, findings.on_damage), None
        elif _recent.counter is None:
            batch = self._make_batch(pa.schema([]), PROBE_BYTES)
            with closing(self.open_source()) as source:
                _recent.counter = LogCounter(self._walk_into(batch, source, findings), batch, self.scan.storage)
        counter: LogCounter | None = _recent.counter
        return counter

    def walk(self, source: Source, schema: pa.Schema, findings: Findings) -> RowWalk:
        """Return a pass over the range as the options ask for it."""
        return self._walk_into(self._make_batch(schema, self.end - self.start), source, findings)

    def _walk_into(self, batch: RowBatch, source: Source, findings: Findings) -> RowWalk:
        return RowWalk(self.make_entries(source), findings, batch, self.live_from, optimistic=self.optimistic)

    def _make_batch(self, schema: pa.Schema, span: int) -> RowBatch:
        """Return buffers for the rows of so many bytes."""
        options = self.scan.options
        facts = (self.header, schema, self.path, self.partition, span)
        return RowBatch(*facts, sentinels=options.sentinels_as_null, strict=options.strict)


def make_log_range(file: File, header: Header, options: Any, storage: Storage) -> RowRange:
    """Return a range over all of a log that delivers no columns: to check, to repair, to go on writing it."""
    scan = Scan(options=options, on_damage="skip", storage=storage)
    projection = Projection(pa.schema([]), pa.schema([]))
    return RowRange(scan, projection, file.path, file.size, file, header, header.size, file.size)


@dataclass(frozen=True)
class EntryRange(LogFragment):
    """The entries of a range, as the views `frames` and `commands` show them."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        from sawlog.deephaven.log.walk import EntryWalk

        with closing(self.open_source()) as source, closing(self.scan.storage.open(self.path)) as again:

            def show(entries: Any) -> pa.RecordBatch:
                if self.scan.view == "commands":
                    entries = entries[entries["role"] & layout.KNOWN_FLAGS >= Flag.RECORD]
                    return self._deliver(self._make_command_batch(entries, again), schema, entries["offset"])
                return self._deliver(self._make_entry_batch(entries), schema, entries["offset"])

            yield from EntryWalk(self.make_entries(source), findings, show).read_batches()

    def _deliver(self, batch: pa.RecordBatch, schema: pa.Schema, offsets: NDArray[np.int64]) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        return assemble(schema, len(offsets), columns, self.path, lambda: _make_integers(offsets, pa.int64()))

    def _make_entry_batch(self, entries: Any) -> pa.RecordBatch:
        checked = b"ok" if self.scan.options.verify_checksums else b"unchecked"
        kinds = [_KINDS.get(flags, "record").encode() for flags in (entries["role"] & layout.KNOWN_FLAGS).tolist()]
        arrays = [
            _make_integers(entries["offset"], pa.int64()),
            _make_integers(entries["length"], pa.int32()),
            _make_integers(entries["role"], pa.uint8()),
            make_utf8_array(kinds),
            make_utf8_array([b"mismatch" if bad else checked for bad in entries["mismatch"].tolist()]),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=ENTRIES_SCHEMA)

    def _make_command_batch(self, entries: Any, source: Source) -> pa.RecordBatch:
        rows: list[Command] = []
        for entry in entries:
            command = Command(None, None, None, None)
            if not entry.mismatch:
                command = Command.of(bytes(source.read_window(int(entry.offset), int(entry.length))))
            rows.append(command)
        numbers = [make_array([row[i] for row in rows], pa.int32()) for i in range(3)]
        data = make_array([row.data for row in rows], pa.binary())
        return pa.RecordBatch.from_arrays(
            [_make_integers(entries["offset"], pa.int64()), *numbers, data], schema=COMMANDS_SCHEMA
        )


class Command(NamedTuple):
    """Fields of a record that is no row; None for what it is too short for."""

    record_type: int | None
    record_version: int | None
    command_id: int | None
    data: bytes | None

    @classmethod
    def of(cls, entry: bytes) -> Command:
        """Return the record that a whole entry holds. A command without room for a digest has none."""

        def read_number(offset: int) -> int | None:
            piece = body[offset : offset + layout.COUNT_SIZE]
            return int.from_bytes(piece, "big", signed=True) if len(piece) == layout.COUNT_SIZE else None

        body = entry
        if read_number(layout.RECORD_TYPE_OFFSET) != layout.COMMAND_RECORD or len(entry) != layout.BARE_COMMAND_SIZE:
            body = entry[: -layout.DIGEST_SIZE]
        kind = read_number(layout.RECORD_TYPE_OFFSET)
        command = read_number(layout.RECORD_DATA_OFFSET) if kind == layout.COMMAND_RECORD else None
        data = body[layout.RECORD_DATA_OFFSET + (layout.COUNT_SIZE if command is not None else 0) :]
        return cls(kind, read_number(layout.RECORD_VERSION_OFFSET), command, data)


def _make_integers(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    wide = make_fixed_array(pa.int64(), values.astype(np.int64))  # a copy: the kernel writes there again
    return wide if kind == pa.int64() else wide.cast(kind)


@dataclass(frozen=True)
class UnreadableFile(Fragment):
    """A file among others whose header is damaged, or not all there yet."""

    reason: str
    incomplete: bool
    newer: Damage | None = None

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield no rows; report why the file has none that can be read."""
        del schema
        if self.incomplete:
            findings.account.tail += self.size
            findings.tail = Tail(TailStatus.TORN, 0, self.size, "the file ends inside its header")
        elif self.newer is not None:
            findings.add_damage(replace(self.newer, offset=0, length=self.size))
        else:
            findings.add_damage(Damage(self.path, 0, self.size, BinaryLogDamageKind.BAD_HEADER.label, self.reason))
        yield from ()
