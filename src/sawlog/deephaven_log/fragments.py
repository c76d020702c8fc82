"""Fragments: ranges of logs as rows, as entries, and as commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.arrow import constant
from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.deephaven.text import encoded_array
from sawlog.deephaven_log import layout
from sawlog.deephaven_log.batches import RowBatch
from sawlog.deephaven_log.header import Header
from sawlog.deephaven_log.layout import Flag, Kind
from sawlog.deephaven_log.walk import Walk
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Fragment, Projection, Scan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.storage import File, Storage

ENTRIES_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("flags", pa.uint8(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
    ]
)
"""Schema of the view `entries`: `size` is that of the whole entry in bytes, `kind` what the flags say."""
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

_KINDS = {0: "row", 1: "first", 2: "last", 3: "single"}
_ENTRY_ROWS = 64 << 10
_INCOMPLETE = {"drop": 0, "emit": 1, "error": 2}


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
    """

    file: File
    header: Header
    start: int
    end: int
    live_from: int = 0
    partition: str | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """See `Fragment.extent`."""
        return self.end - self.size, self.size

    def walk(self, source: Any, findings: Findings) -> Walk:
        """A pass over the range as the options ask for it."""
        options = self.scan.options
        return Walk(
            self.file,
            source,
            self.header,
            self.start,
            self.end,
            verify=options.verify_checksums,
            strict=options.strict,
            max_entry=options.max_entry_bytes,
            findings=findings,
        )


@dataclass(frozen=True)
class RowRange(LogFragment):
    """The sets of rows (a stand-alone row is one) that begin in the range."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        with closing(self.scan.storage.open(self.path)) as source:
            yield from RowWalk(self, self.walk(source, findings), schema, findings).batches()

    def find_end(self) -> int:
        """Where the last complete set ends; behind damage, where the next set begins, or else before that damage."""
        findings = Findings("skip")
        with closing(self.scan.storage.open(self.path)) as source:
            walk = self.walk(source, findings)
            for _ in RowWalk(self, walk, pa.schema([]), findings).batches():
                pass
            if walk.state[walk.kernels.LOST]:
                return int(walk.state[walk.kernels.LOST_FROM])
        tail = findings.tail
        return self.file.size if tail is None or tail.status is TailStatus.CLEAN else tail.offset


class RowWalk:
    """One pass over a range of rows: drives the kernel, makes batches, reports findings."""

    def __init__(self, fragment: RowRange, walk: Walk, schema: pa.Schema, findings: Findings) -> None:
        import numpy as np

        self._walk = walk
        self._findings = findings
        options = fragment.scan.options
        k = walk.kernels
        walk.state[k.LIVE_FROM] = fragment.live_from
        walk.state[k.INCOMPLETE] = _INCOMPLETE[options.incomplete]
        walk.state[k.APPLY_DELETES] = options.deletes == "apply"
        span = fragment.end - fragment.start
        self._batch = RowBatch(
            fragment.header,
            schema,
            fragment.path,
            fragment.partition,
            span,
            sentinels=options.sentinels_as_null,
            strict=options.strict,
            complain=self._complain,
        )
        self._bad: list[tuple[int, str]] = []
        columns = len(fragment.header.stored)
        self._fixed = np.zeros(columns + 1, np.int64)
        self._places = np.zeros((columns + 1) * k.CHUNK, np.uint32)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of bounded size; the findings are complete when they are all taken."""
        walk, chain = self._walk, self._walk.chain
        walk.report_header()
        status = chain.MORE
        while status != chain.FINISHED:
            try:
                window = walk.window()
            except OSError as error:
                yield from self._hand_over()
                walk.read_error(error)
                return
            status = self._decode(window)
            if status == chain.TABLE:
                walk.suspect()
            elif status in (chain.FULL, chain.FINISHED):
                yield from self._hand_over()
        walk.account()

    def _decode(self, window: NDArray[np.uint8]) -> int:
        import numpy as np

        batch, walk = self._batch, self._walk
        return int(
            walk.kernels.decode_rows(
                window,
                walk.state,
                np.int64(walk.header.presence_bytes),
                np.int64(batch.max_rows),
                batch.cols,
                self._fixed,
                self._places,
                batch.arena,
                batch.scratch,
                batch.starts,
                walk.events,
                walk.totals,
                walk.weights,
            )
        )

    def _hand_over(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, then report the damage so far."""
        walk = self._walk
        rows = int(walk.state[walk.chain.ROWS])
        batch = self._batch.build(rows)
        for offset, what in self._bad:
            walk.damage(Kind.BAD_VALUE, offset, 0, what)
        self._bad.clear()
        self._findings.rows += rows
        if rows:
            yield batch
        if rows or not walk.state[walk.chain.EVENTS]:
            self._batch.adapt(rows)
        self._batch.allocate()
        walk.state[walk.chain.ROWS] = 0
        walk.report()

    def _complain(self, offsets: NDArray[np.int64], what: str) -> None:
        self._bad += [(int(offset), what) for offset in offsets]


def whole_log(file: File, header: Header, options: Any, storage: Storage) -> RowRange:
    """One range over all of a log that delivers no columns: to check it, to repair it, to go on writing it."""
    scan = Scan(options=options, on_damage="skip", storage=storage)
    projection = Projection(pa.schema([]), pa.schema([]), ())
    return RowRange(scan, projection, file.path, file.size, file, header, header.size, file.size)


@dataclass(frozen=True)
class EntryRange(LogFragment):
    """The entries of a range, as the views `entries` and `commands` show them."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        with closing(self.scan.storage.open(self.path)) as source:
            walk = self.walk(source, findings)
            walk.report_header()
            for entries in _list(walk):
                if self.scan.view == "commands":
                    chosen = entries[entries[:, 2] & layout.KNOWN_FLAGS >= Flag.RECORD]
                    batch = self._commands(chosen, self.scan.storage)
                else:
                    chosen = entries
                    batch = self._entries(chosen)
                findings.rows += len(chosen)
                yield self._deliver(batch, schema, chosen[:, 0])

    def _deliver(self, batch: pa.RecordBatch, schema: pa.Schema, offsets: NDArray[np.int64]) -> pa.RecordBatch:
        arrays = {name: batch.column(name) for name in batch.schema.names}
        arrays[FILE_COLUMN] = constant(self.path, pa.string(), len(offsets))
        arrays[OFFSET_COLUMN] = pa.Array.from_buffers(pa.int64(), len(offsets), [None, pa.py_buffer(offsets.tobytes())])
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)

    def _entries(self, entries: NDArray[np.int64]) -> pa.RecordBatch:
        checked = "ok" if self.scan.options.verify_checksums else "unchecked"
        kinds = [_KINDS.get(flags, "record").encode() for flags in (entries[:, 2] & layout.KNOWN_FLAGS).tolist()]
        checksums = [(b"mismatch" if bad else checked.encode()) for bad in entries[:, 3].tolist()]
        arrays = [
            _integers(entries[:, 0], pa.int64()),
            _integers(entries[:, 1], pa.int32()),
            _integers(entries[:, 2], pa.uint8()),
            encoded_array(kinds),
            encoded_array(checksums),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=ENTRIES_SCHEMA)

    def _commands(self, entries: NDArray[np.int64], storage: Any) -> pa.RecordBatch:
        trailer = layout.DIGEST_SIZE
        rows: list[tuple[int | None, int | None, int | None, bytes | None]] = []
        for offset, total, _, bad in entries.tolist():
            rows.append(_command(storage.read(self.path, offset, total)[:-trailer]) if not bad else (None,) * 4)
        numbers = [pa.array([row[i] for row in rows], pa.int32()) for i in range(3)]
        data = encoded_array([row[3] for row in rows], pa.binary())
        return pa.RecordBatch.from_arrays(
            [_integers(entries[:, 0], pa.int64()), *numbers, data], schema=COMMANDS_SCHEMA
        )


def _command(entry: bytes) -> tuple[int | None, int | None, int | None, bytes | None]:
    """Type, version, command id and data of a non-row entry without its digest; None for what it is too short for."""

    def number(at: int) -> int | None:
        piece = entry[at : at + layout.COUNT_SIZE]
        return int.from_bytes(piece, "big", signed=True) if len(piece) == layout.COUNT_SIZE else None

    kind = number(layout.RECORD_TYPE_OFFSET)
    command = number(layout.RECORD_DATA_OFFSET) if kind == layout.COMMAND_RECORD else None
    data = entry[layout.RECORD_DATA_OFFSET + (layout.COUNT_SIZE if command is not None else 0) :]
    return kind, number(layout.RECORD_VERSION_OFFSET), command, data


def _integers(values: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    wide = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values.tobytes())])
    return wide if kind == pa.int64() else wide.cast(kind)


def _list(walk: Walk) -> Iterator[NDArray[np.int64]]:
    """Entries of a range, some at a time: offset, bytes in all, flags, 1 where the digest does not match."""
    import numpy as np

    from sawlog.deephaven_log.kernels.scan import list_entries

    chain = walk.chain
    entries = np.zeros((_ENTRY_ROWS, 4), np.int64)
    status = chain.MORE
    while status != chain.FINISHED:
        try:
            window = walk.window()
        except OSError as error:
            walk.read_error(error)
            return
        status = list_entries(window, walk.state, walk.totals, walk.weights, entries, walk.events)
        if status == chain.TABLE:
            walk.suspect()
        elif status != chain.MORE:
            rows = int(walk.state[chain.ROWS])
            intact = entries[:rows][entries[:rows, 3] == 0]
            walk.state[walk.kernels.RECORD_BYTES] += intact[:, 1].sum()
            yield entries[:rows]
            walk.report()
            walk.state[chain.ROWS] = 0
    walk.account()


@dataclass(frozen=True)
class UnreadableFile(Fragment):
    """A file among others whose header is damaged, or not all there yet."""

    reason: str
    incomplete: bool

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`: there are no rows."""
        del schema
        if self.incomplete:
            findings.account.tail += self.size
            findings.tail = Tail(TailStatus.TORN, 0, self.size, "the file ends inside its header")
        else:
            findings.damage(Damage(self.path, 0, self.size, Kind.BAD_HEADER.name.lower(), self.reason))
        yield from ()
