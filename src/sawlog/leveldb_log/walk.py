"""One pass over a range of a log: drives the kernels, makes record batches, reports what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, binary_array, constant_string, fixed_array
from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.format import OFFSET_COLUMN
from sawlog.leveldb_log import kernels as k
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.layout import DETAIL, Kind, Role
from sawlog.leveldb_log.reader import END_COLUMN, RECORD_COLUMN, LogHead, LogRange, ReadOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.storage import Source

WINDOW_BYTES = 8 << 20
"""Bytes of the file that the kernel sees at a time; a multiple of the block size."""
REST_BYTES = 1 << 20
"""The same behind the end of a range."""
BATCH_BYTES = 4 << 20
"""Payload per batch, unless one record is larger."""
BATCH_ROWS = 64 << 10
EVENT_ROOM = 4096
"""Events that the kernel writes down before it hands over."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """A fragment that tells something about the records behind it. Offset of its header in the file, type, sizes."""

    offset: int
    type: int
    header_size: int
    length: int


class Walk:
    """One pass over a range.

    Attributes:
        metadata: Where metadata fragments are collected, each before the rows behind it are yielded; `None`: nowhere.
    """

    def __init__(
        self,
        fragment: LogRange,
        source: Source,
        head: LogHead,
        schema: pa.Schema,
        findings: Findings,
        metadata: list[Metadata] | None = None,
    ) -> None:
        self.metadata = metadata
        self._fragment = fragment
        self._source = source
        self._head = head
        self._schema = schema
        self._findings = findings
        self._options: ReadOptions = fragment.scan.options
        self._compressed = head.compression != layout.COMPRESSION_NONE
        self._gather = RECORD_COLUMN in schema.names or self._compressed
        longest = self._options.max_record_bytes
        # What ZSTD cannot make smaller grows by less than this.
        self._longest = longest + (longest >> 8) + (1 << 10) if self._compressed else longest
        self._roles = np.zeros(256, np.uint8)
        self._headers = np.full(256, layout.HEADER_SIZE, np.uint8)
        for code, known in layout.TYPES[head.dialect].items():
            self._roles[code] = known.role
            self._headers[code] = known.header_size
        self._recycled = int(self._headers.max()) if head.recycled else 0
        self._state = np.zeros(k.STATE_SIZE, np.int64)
        self._state[k.POSITION] = fragment.start
        self._state[k.SYNCED] = fragment.synced
        self._state[k.NOTE_METADATA] = metadata is not None
        self._state[[k.RECORD_START, k.SUSPECT, k.ZEROS]] = -1
        # The first damage must stop the kernel where rows behind it must not be delivered.
        room = 3 if findings.on_damage == "fail" else EVENT_ROOM
        self._events = np.zeros((room, k.EVENT_FIELDS), np.int64)
        span = fragment.end - fragment.start
        self._usual = min(BATCH_BYTES, max(span, 1)) if self._gather else 0
        self._capacity = self._usual
        max_rows = min(BATCH_ROWS, span // layout.HEADER_SIZE + 1)
        self._ends = np.zeros(max_rows + 1, np.int32)
        self._starts = np.zeros(max_rows, np.int64)
        self._stops = np.zeros(max_rows, np.int64)
        self._data = Column(np.uint8, self._capacity)
        self._failed_bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the range."""
        state = self._state
        window = np.empty(0, np.uint8)
        base = 0
        status = k.MORE
        while status != k.END:
            position = int(state[k.POSITION])
            if status == k.MORE:
                base = position
                try:
                    window = self._source.window(base, self._window_length())
                except OSError as error:
                    yield from self._hand_over()
                    self._read_error(error)
                    return
            status = self._read(window[position - base :])
            if status == k.FULL and state[k.ROWS] == 0 and state[k.EVENTS] == 0:
                self._renew(2 * self._capacity)
            elif status != k.MORE:
                yield from self._hand_over()
        self._account()

    def _window_length(self) -> int:
        """Up to a block boundary, so that no fragment is cut."""
        position, end = int(self._state[k.POSITION]), self._fragment.end
        # Behind the range stands no more than the rest of one record.
        most = min(position + WINDOW_BYTES, end) if position < end else position + REST_BYTES
        return min(layout.block_end(most), self._fragment.file.size) - position

    def _read(self, window: NDArray[np.uint8]) -> int:
        return int(
            k.read_fragments(
                window,
                np.uint64(self._fragment.file.size),
                np.uint64(self._fragment.end),
                self._roles,
                self._headers,
                np.int64(self._head.log_number),
                np.uint64(self._recycled),
                self._options.verify_checksums,
                self._gather,
                np.int64(self._longest),
                self._state,
                self._data.values,
                self._ends,
                self._starts,
                self._stops,
                self._events,
            )
        )

    def _renew(self, capacity: int) -> None:
        """Take a fresh column for payloads, and carry the bytes of the open record over."""
        length = 0
        if self._gather and self._state[k.RECORD_START] >= 0 and not self._state[k.OVERSIZE]:
            length = int(self._state[k.RECORD_LENGTH])
        self._capacity = max(capacity, length)
        data = Column(np.uint8, self._capacity)
        committed = int(self._state[k.COMMITTED])
        data.values[:length] = self._data.values[committed : committed + length]
        self._data = data
        self._state[[k.ROWS, k.COMMITTED]] = 0

    def _next_capacity(self) -> int:
        """Room that one large record needed is kept only while others use it."""
        return self._capacity if self._state[k.COMMITTED] > self._capacity // 4 else self._usual

    def _hand_over(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, then report the damage so far."""
        rows = int(self._state[k.ROWS])
        events = self._events[: int(self._state[k.EVENTS])]
        if self.metadata is not None:
            events = self._collect_metadata(self.metadata, events)
        if len(events) and self._findings.on_damage == "fail":
            rows = int((self._starts[:rows] < events[:, 1].min()).sum())
        failed: list[Damage] = []
        if self._compressed:
            yield from self._expanded(rows, failed)
            self._renew(self._next_capacity())
        else:
            records = binary_array(self._ends[: rows + 1], self._data) if self._gather else None
            batch = self._batch(slice(0, rows), records)
            self._renew(self._next_capacity())
            self._findings.rows += rows
            yield batch
        self._report(events, failed)
        self._state[k.EVENTS] = 0

    def _expanded(self, rows: int, failed: list[Damage]) -> Iterator[pa.RecordBatch]:
        """The rows so far, expanded; those that cannot be are entered into `failed`. Stops there under `fail`."""
        from sawlog.leveldb_log.compression import expand

        longest = self._options.max_record_bytes
        if not rows:
            yield self._batch(slice(0, 0), pa.array([], pa.binary()))
        for group in expand(self._data.values, self._ends[: rows + 1], longest):
            kept = len(group.rows)
            if group.failed and self._findings.on_damage == "fail":
                kept = int(np.searchsorted(group.rows, min(group.failed)))
            records = pa.Array.from_buffers(pa.binary(), kept, [None, pa.py_buffer(group.ends), group.data])
            self._findings.rows += kept
            yield self._batch(group.rows[:kept], records)
            for row, size in sorted(group.failed.items()):
                start, stop = int(self._starts[row]), int(self._stops[row])
                kind = Kind.BAD_COMPRESSION if size is None else Kind.RECORD_TOO_LARGE
                detail = DETAIL[kind].format(size, longest)
                failed.append(Damage(self._fragment.path, start, stop - start, kind.name.lower(), detail))
            if failed and self._findings.on_damage == "fail":
                return

    def _batch(self, rows: slice | NDArray[np.int64], records: pa.Array | None) -> pa.RecordBatch:
        starts = self._starts[rows]
        arrays = []
        for name in self._schema.names:
            if name == RECORD_COLUMN:
                arrays.append(records)
            elif name == OFFSET_COLUMN:
                arrays.append(fixed_array(pa.int64(), starts.copy()))
            elif name == END_COLUMN:
                arrays.append(fixed_array(pa.int64(), self._stops[rows].copy()))
            else:
                arrays.append(constant_string(self._fragment.path, len(starts)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _collect_metadata(self, metadata: list[Metadata], events: NDArray[np.int64]) -> NDArray[np.int64]:
        """Take the metadata fragments out of the events; what is left is damage."""
        noted = events[:, 0] == k.METADATA
        for _, offset, length, _, code, header in events[noted].tolist():
            metadata.append(Metadata(offset, code, header, length - header))
        damage: NDArray[np.int64] = events[~noted]
        return damage

    def _report(self, events: NDArray[np.int64], failed: list[Damage]) -> None:
        """Tell of the damage that the kernel met and of the records that could not be expanded, in reading order."""
        waiting = iter(failed)
        next_failed = next(waiting, None)
        for index, (kind, offset, length, dropped, one, two) in enumerate(events.tolist()):
            while next_failed is not None and next_failed.offset < offset:
                self._fail_record(next_failed)
                next_failed = next(waiting, None)
            if not self._findings.listing and next_failed is None:
                self._tally(events[index:])
                return
            detail = DETAIL[Kind(kind)].format(one, Role(two).name if kind == Kind.MISSING_START else two)
            self._damage(Kind(kind), offset, length, detail, dropped if dropped >= 0 else None)
        while next_failed is not None:
            self._fail_record(next_failed)
            next_failed = next(waiting, None)

    def _fail_record(self, damage: Damage) -> None:
        self._failed_bytes += damage.length
        self._findings.damage(damage)

    def _tally(self, events: NDArray[np.int64]) -> None:
        for kind in np.unique(events[:, 0]):
            lengths = events[events[:, 0] == kind, 2]
            self._findings.tally(Kind(kind).name.lower(), len(lengths), int(lengths.sum()))

    def _damage(self, kind: Kind, offset: int, length: int, detail: str, dropped: int | None) -> None:
        self._findings.damage(Damage(self._fragment.path, offset, length, kind.name.lower(), detail, dropped))

    def _read_error(self, error: OSError) -> None:
        """What cannot be read is damage up to the end of the range; LevelDB counts one block."""
        position, start, suspect = (int(self._state[field]) for field in (k.POSITION, k.RECORD_START, k.SUSPECT))
        self._account()
        offset = next(place for place in (start, suspect, position) if place >= 0)
        # Behind the range, what the open record has read is its own, the rest that of later ranges.
        end = max(position, self._fragment.end)
        if end > offset:
            self._damage(Kind.READ_ERROR, offset, end - offset, str(error), layout.BLOCK_SIZE)

    def _account(self) -> None:
        """Enter the bytes read into the ledger, and, at the end of the file, the state of its tail."""
        state = self._state
        account = self._findings.account
        account.record += int(state[k.RECORD_BYTES]) - self._failed_bytes
        account.padding += int(state[k.PADDING_BYTES])
        account.header += int(state[k.METADATA_BYTES])
        size = self._fragment.file.size
        if state[k.SYNCED] and (state[k.POSITION] >= size or state[k.TORN]):
            tail = self._tail(size)
            self._findings.tail = tail
            if tail.status is not TailStatus.PADDING:
                account.tail += tail.length

    def _tail(self, size: int) -> Tail:
        position, start, suspect, zeros = (
            int(self._state[field]) for field in (k.POSITION, k.RECORD_START, k.SUSPECT, k.ZEROS)
        )
        if suspect >= 0:
            offset = start if start >= 0 else suspect
            return Tail(TailStatus.STALE, offset, size - offset, "no fragment of this log stands behind this byte")
        if start >= 0:
            length = int(self._state[k.RECORD_LENGTH])
            return Tail(TailStatus.OPEN, start, size - start, f"a record of {length} bytes so far has no end")
        if position < size:
            return Tail(TailStatus.TORN, position, size - position, "the file ends inside a fragment")
        if zeros >= 0:
            return Tail(TailStatus.PADDING, zeros, size - zeros, "unused space")
        return Tail(TailStatus.CLEAN, size, 0)
