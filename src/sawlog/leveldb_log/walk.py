"""One pass over a range of a log: records as batches, and what the log says besides them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, array_of, binary_array, constant, constant_string, fixed_array
from sawlog.chain.kernels import Window
from sawlog.chain.walk import ChainWalk, Event, Span
from sawlog.damage import Findings, Tail, TailStatus
from sawlog.format import OFFSET_COLUMN
from sawlog.leveldb_log import kernels as k
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.columns import END_COLUMN, RECORD_COLUMN, RECOVERED_COLUMN, STALE_COLUMN
from sawlog.leveldb_log.judge import rules_of
from sawlog.leveldb_log.layout import DETAIL, GIVEN_UP, Kind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb_log.fragments import LogRange
    from sawlog.leveldb_log.head import LogHead
    from sawlog.leveldb_log.options import ReadOptions
    from sawlog.storage import Source

BATCH_BYTES = 4 << 20
"""Payload per batch, unless one record is larger."""
BATCH_ROWS = 64 << 10


@dataclass(frozen=True, slots=True)
class Metadata:
    """A fragment that tells something about the records behind it. Offset of its header in the file, type, sizes."""

    offset: int
    type: int
    header_size: int
    length: int


class Walk(ChainWalk):
    """One pass over a range.

    Attributes:
        head: What the beginning of the file says.
        metadata: Where metadata fragments are collected, each before the rows behind it are yielded; `None`: nowhere.
    """

    kinds: ClassVar = Kind
    details: ClassVar = DETAIL
    torn: ClassVar = "the file ends inside a fragment"

    def __init__(
        self,
        fragment: LogRange,
        source: Source,
        head: LogHead,
        schema: pa.Schema,
        findings: Findings,
        metadata: list[Metadata] | None = None,
        *,
        stale: bool = False,
    ) -> None:
        options: ReadOptions = fragment.scan.options
        size = fragment.end - fragment.start
        max_rows = min(BATCH_ROWS, size // layout.HEADER_SIZE + 1)
        super().__init__(
            Span(fragment.file, fragment.start, fragment.end), source, findings, k.STATE, max_rows=max_rows
        )
        self.metadata = metadata
        self._fragment = fragment
        self.head = head
        self._schema = schema
        self._stale = stale
        self._longest = options.max_item_bytes
        self._compressed = head.compression != layout.COMPRESSION_NONE
        gather = RECORD_COLUMN in schema.names or self._compressed
        # What ZSTD cannot make smaller grows by less than this.
        longest = self._longest + (self._longest >> 8) + (1 << 10) if self._compressed else self._longest
        self._rules = rules_of(
            head.dialect,
            log=head.log_number,
            recycled=head.recycled,
            verify=options.verify_checksums,
            gather=gather,
            longest=longest,
            resync="damaged" in options.salvage,
        )
        self.state.synced = fragment.synced
        self.state.note_metadata = metadata is not None
        self.state.open = self.state.suspect = -1
        self._usual = min(BATCH_BYTES, max(size, 1)) if gather else 0
        self._capacity = self._usual
        self.starts = Column(np.int64, max_rows).values
        self._stops = Column(np.int64, max_rows).values
        self._ends = Column(np.int32, max_rows + 1).values
        self._ends[0] = 0
        self._recovered = np.zeros(max_rows if "damaged" in options.salvage else 0, np.uint8)
        self._data = Column(np.uint8, self._capacity)

    def read(self, window: Window) -> int:
        """See `ChainWalk.read`."""
        out = k.Out(self._data.values, self._ends, self.starts, self._stops, self._recovered, self.events)
        return int(k.read_fragments(window, self.state, out, self._rules))

    def grow(self) -> None:
        """See `ChainWalk.grow`."""
        self._allocate(2 * self._capacity)

    def renew(self) -> None:
        """See `ChainWalk.renew`. Room that one large record needed is kept only while others use it."""
        self._allocate(self._capacity if self.state.committed > self._capacity // 4 else self._usual)
        self._recovered[:] = 0

    def _allocate(self, capacity: int) -> None:
        """Take a fresh column for payloads, and carry the bytes of the open record over."""
        state = self.state
        length = int(state.open_bytes) if self._rules.gather and state.open >= 0 and not state.oversize else 0
        self._capacity = max(capacity, length)
        data = Column(np.uint8, self._capacity)
        committed = int(state.committed)
        data.values[:length] = self._data.values[committed : committed + length]
        self._data = data
        state.committed = 0

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See `ChainWalk.deliver`."""
        if self._compressed:
            yield from self._expanded(rows)
            return
        records = binary_array(self._ends[: rows + 1], self._data) if self._rules.gather else None
        yield rows, self._batch(slice(0, rows), records)

    def _expanded(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows in hand, expanded. Stops at one that cannot be, where damage fails."""
        from sawlog.leveldb_log.compression import expand

        if not rows:
            yield 0, self._batch(slice(0, 0), array_of([], pa.binary()))
        for group in expand(self._data.values, self._ends[: rows + 1], self._longest):
            kept = len(group.rows)
            if group.failed and self.fails:
                kept = int(np.searchsorted(group.rows, min(group.failed)))
            records = pa.Array.from_buffers(pa.binary(), kept, [None, pa.py_buffer(group.ends), group.data])
            yield kept, self._batch(group.rows[:kept], records)
            for row, size in sorted(group.failed.items()):
                start, stop = int(self.starts[row]), int(self._stops[row])
                kind = Kind.BAD_COMPRESSION if size is None else Kind.RECORD_TOO_LARGE
                self.complain(kind, start, stop - start, DETAIL[kind].format(size, self._longest))
            if group.failed and self.fails:
                return

    def _batch(self, rows: slice | NDArray[np.int64], records: pa.Array | None) -> pa.RecordBatch:
        starts = self.starts[rows]
        arrays = []
        for name in self._schema.names:
            if name == RECORD_COLUMN:
                arrays.append(records)
            elif name == OFFSET_COLUMN:
                arrays.append(fixed_array(pa.int64(), starts.copy()))
            elif name == END_COLUMN:
                arrays.append(fixed_array(pa.int64(), self._stops[rows].copy()))
            elif name == RECOVERED_COLUMN:
                bits = pa.py_buffer(np.packbits(self._recovered[rows], bitorder="little"))
                arrays.append(pa.Array.from_buffers(pa.bool_(), len(starts), [None, bits]))
            elif name == STALE_COLUMN:
                arrays.append(constant(self._stale, pa.bool_(), len(starts)))
            else:
                arrays.append(constant_string(self.path, len(starts)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def remark(self, event: Event) -> None:
        """See `ChainWalk.remark`: a metadata fragment."""
        if self.metadata is not None:
            self.metadata.append(Metadata(event.offset, event.one, event.two, event.length - event.two))

    def describe(self, event: Event) -> str:
        """See `ChainWalk.describe`."""
        two = Role(event.two).name if event.kind == Kind.MISSING_START else event.two
        detail = DETAIL[Kind(event.kind)].format(event.one, two)
        return detail.removesuffix(GIVEN_UP) if self._rules.resync else detail

    def pending(self) -> tuple[int, ...]:
        """See `ChainWalk.pending`."""
        return int(self.state.open), self.doubtful

    @property
    def doubtful(self) -> int:
        """Where a recycled log ends, or is damaged: no fragment of it was met behind that byte; -1 for nowhere."""
        return int(self.state.suspect)

    def unread(self, length: int) -> int:
        """See `ChainWalk.unread`: LevelDB counts one block."""
        return layout.BLOCK_SIZE

    def tail(self) -> Tail | None:
        """See `ChainWalk.tail`."""
        state, size = self.state, self.span.file.size
        open_, suspect = int(state.open), int(state.suspect)
        if not state.synced or (state.position < size and state.tail < 0):
            return None
        if suspect >= 0:
            offset = open_ if open_ >= 0 else suspect
            return Tail(TailStatus.STALE, offset, size - offset, "no fragment of this log stands behind this byte")
        if open_ >= 0:
            detail = f"a record of {int(state.open_bytes)} bytes so far has no end"
            return Tail(TailStatus.OPEN, open_, size - open_, detail)
        if state.zeros == self.span.start and not self._fragment.synced:
            return self._padding()
        return super().tail()

    def _padding(self) -> Tail | None:
        """The unused space at the end, of which all of this range is a part: the whole file tells where it begins."""
        whole = Walk(
            replace(self._fragment, start=0, synced=True), self.source, self.head, pa.schema([]), Findings("skip")
        )
        for _ in whole.batches():
            pass
        return whole.findings.tail
