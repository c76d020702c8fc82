"""Walks over records that are bytes, in kernels and into Arrow; and what a format of such records imports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, make_binary_array, make_fixed_array
from sawlog.chain import kernels as k
from sawlog.chain.records import RECORD_COLUMN, RecordRange
from sawlog.chain.records import RecordFormat as RecordFormat  # noqa: PLC0414 - for formats of records
from sawlog.chain.walk import ChainWalk, Span
from sawlog.format.contract import assemble
from sawlog.format.damage import DamageKind as DamageKind  # noqa: PLC0414 - for formats of records
from sawlog.format.damage import Findings
from sawlog.kernels.jit import always_inlined
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.signature import Array, Bool, Int64, OutBytes, OutInt32s, OutInt64s, Record
from sawlog.storage.sources import Source

BATCH_ROWS = 64 << 10
BATCH_BYTES = 4 << 20

STATE = k.make_state_type("used")
"""The state of a walk: how many bytes of `Out.data` are."""
State = Annotated[Any, Record(STATE)]
"""That, as kernels take it."""


class Out(NamedTuple):
    """Destination of records: the arrays that kernels fill.

    Attributes:
        data: uint8[*], their bytes; nothing where these are not wanted.
        ends: int32[rows + 1], record `i` is `data[ends[i] : ends[i + 1]]`.
        starts: int64[rows], file offset of each.
        events: See `sawlog.chain.kernels.EVENT`.
    """

    data: OutBytes
    ends: OutInt32s
    starts: OutInt64s
    events: Annotated[Any, Array(k.EVENT, writable=True)]


class Rules(NamedTuple):
    """`RecordOptions` as kernels take them.

    Attributes:
        verify: Whether checksums of records are verified.
        gather: Whether the bytes of records are wanted.
        longest: Bytes that a record may have.
    """

    verify: Bool
    gather: Bool
    longest: Int64


@always_inlined
def take_record(window: Any, pos: Any, size: Any, header: Any, length: Any, state: Any, out: Any) -> Any:
    """Take a good thing of `size` bytes at `pos`, whose record is the `length` bytes after the first `header`."""
    if len(out.data):
        if np.uint64(len(out.data) - state.used) < length:
            return k.NO_ROOM
        copy_bytes(out.data, np.uint64(state.used), window.data, pos + header, length)
        state.used += np.int64(length)
        out.ends[state.rows + 1] = state.used
    return k.take_row(window, pos, size, state, out, None)


class RecordWalk(ChainWalk):
    """A pass over a range of records. A format's walk brings a kernel over an `Out` and `Rules`.

    Attributes:
        kernel: `kernel(window, state, out, rules)`, one line around `sawlog.chain.kernels.walk_chain`.
    """

    kernel: ClassVar[Any]

    def __init__(self, part: RecordRange, source: Source, schema: pa.Schema, findings: Findings) -> None:
        span = Span(part.file, part.start, part.end)
        super().__init__(span, source, findings, STATE, max_rows=BATCH_ROWS)
        self._schema = schema
        gather = RECORD_COLUMN in schema.names
        options = part.scan.options
        self._rules = Rules(options.verify_checksums, gather, options.max_item_bytes)
        self._room = min(BATCH_BYTES, max(1, span.end - span.start)) if gather else 0
        self.starts = np.zeros(BATCH_ROWS, np.int64)
        self.reset()

    def read(self, window: k.Window) -> int:
        out = Out(self._data.values, self._ends, self.starts, self.events)
        return int(type(self).kernel(window, self.state, out, self._rules))

    def grow(self) -> None:
        self._room *= 2
        self.reset()

    def reset(self) -> None:
        self._data, self._ends = Column(np.uint8, self._room), np.zeros(BATCH_ROWS + 1, np.int32)
        self.state.used = 0

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        columns = {}
        if RECORD_COLUMN in self._schema.names:
            columns[RECORD_COLUMN] = make_binary_array(self._ends[: rows + 1], self._data)
        starts = self.starts[:rows]
        yield (
            rows,
            assemble(self._schema, rows, columns, self.path, lambda: make_fixed_array(pa.int64(), starts.copy())),
        )
