"""One pass over spans of a table: judges and expands blocks, makes batches of rows, tells what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, constant_string, fixed_array
from sawlog.damage import Findings
from sawlog.format import OFFSET_COLUMN
from sawlog.leveldb_table import kernels as k
from sawlog.leveldb_table import layout
from sawlog.leveldb_table.layout import DETAIL, Compression, Kind
from sawlog.leveldb_table.spans import Role
from sawlog.leveldb_table.walk import RUN_BYTES, SpanWalk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb_table.fragments import TableRange
    from sawlog.leveldb_table.meta import TableMap
    from sawlog.storage import Source

BATCH_ROWS = 64 << 10
BATCH_BYTES = 4 << 20
"""Bytes of values per batch, unless one is larger; those of keys likewise."""
EVENT_ROOM = 1024
LONGEST_KEY = 1 << 10
"""Room for a key to begin with."""

KEY, VALUE, SEQUENCE, OPERATION = "key", "value", "sequence", "operation"
ROWS_SCHEMA = pa.schema(
    [
        pa.field(SEQUENCE, pa.int64(), nullable=False),
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field(KEY, pa.binary(), nullable=False),
        pa.field(VALUE, pa.binary(), nullable=False),
    ]
)
"""One row per entry. Of a `delete_range` the key is the first one that it deletes, the value the first one behind."""
RAW_SCHEMA = pa.schema([ROWS_SCHEMA.field(KEY), ROWS_SCHEMA.field(VALUE)])
"""Where keys have no sequence number and operation."""


@cache
def _operations() -> tuple[NDArray[np.uint8], pa.Array]:
    """The number of each type's operation, 255 where there is none, and their names."""
    types = np.full(256, 255, np.uint8)
    types[list(layout.OPERATIONS)] = np.arange(len(layout.OPERATIONS))
    return types, pa.array(list(layout.OPERATIONS.values()), pa.string())


class RowReader(SpanWalk):
    """Reads the rows of a range."""

    def __init__(
        self, fragment: TableRange, table: TableMap, source: Source, schema: pa.Schema, findings: Findings
    ) -> None:
        super().__init__(fragment, table, source, findings)
        self._schema = schema
        types, self._names = _operations()
        internal = fragment.scan.options.keys == "internal"
        self._take = k.Take(internal, VALUE in schema.names, types if internal else np.zeros(256, np.uint8))
        self._state = np.zeros(1, k.STATE)
        # The first damage must stop the kernel where rows behind it must not be delivered.
        self._events = np.zeros(2 if findings.on_damage == "fail" else EVENT_ROOM, k.EVENT)
        self._last = np.zeros(LONGEST_KEY, np.uint8)
        span = fragment.end - fragment.start
        rows = min(BATCH_ROWS, span + 1)
        self._sequences = np.zeros(rows, np.int64)
        self._operations = np.zeros(rows, np.uint8)
        self._offsets = np.zeros(rows, np.int64)
        self._key_ends = np.zeros(rows + 1, np.int32)
        self._value_ends = np.zeros(rows + 1, np.int32)
        self._room = min(BATCH_BYTES, max(4 * span, 1))
        self._blamed = -1
        self._renew(self._room)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, and what is found, in the order of the file."""
        spans = self._prune(self.spans) if self.fragment.pruned else self.spans
        for first, last in _runs(spans):
            span = spans[first]
            if span["role"] in (Role.DATA, Role.RANGE_DELETES):
                yield from self._read(spans[first:last])
                continue
            yield from self._hand_over()
            self.enter(span)
        yield from self._hand_over()

    def _prune(self, spans: NDArray[np.void]) -> NDArray[np.void]:
        from sawlog.leveldb_table.pruning import block_bounds

        low, high = block_bounds(self.table, self.fragment.projection)
        data = spans["role"] == Role.DATA
        spared = data & ((spans["number"] < low) | (spans["number"] >= high))
        if spared.any():
            self.findings.notes["blocks_spared"] += int(spared.sum())
        kept: NDArray[np.void] = spans[~spared]
        return kept

    def _read(self, spans: NDArray[np.void]) -> Iterator[pa.RecordBatch]:
        """Blocks of rows that stand one behind the other."""
        base = int(spans["offset"][0])
        length = int(spans["offset"][-1] + spans["length"][-1]) - base
        try:
            window = self.source.window(base, length)
        except OSError as error:
            yield from self._hand_over()
            self.damage(Kind.READ_ERROR, base, length, str(error))
            return
        handles = np.zeros(len(spans), k.HANDLE)
        handles["offset"] = spans["offset"]
        handles["size"] = spans["length"] - layout.TRAILER_SIZE
        verdicts = self.table.rules.judge(window, base, handles)
        good = (verdicts["kind"] == 0) & (verdicts["compression"] == Compression.NONE)
        good &= handles["size"] <= self.table.rules.longest
        if good.all():
            yield from self._entries(window, spans, spans["offset"] - base, handles["size"])
            return
        yield from self._expanded(window, base, spans, verdicts)

    def _expanded(
        self, window: NDArray[np.uint8], base: int, spans: NDArray[np.void], verdicts: NDArray[np.void]
    ) -> Iterator[pa.RecordBatch]:
        """Blocks of which some are compressed, or damaged."""
        contents: list[pa.Buffer] = []
        first = 0
        for number, (span, verdict) in enumerate(zip(spans, verdicts, strict=True)):
            wrong: tuple[Kind, int, int] | None = None
            if verdict["kind"]:
                wrong = Kind(int(verdict["kind"])), int(verdict["one"]), int(verdict["two"])
            else:
                start = int(span["offset"]) - base
                stored = pa.py_buffer(window[start : start + int(span["length"]) - layout.TRAILER_SIZE])
                content = self.table.rules.expand(stored, int(verdict["compression"]))
                if isinstance(content, tuple):
                    wrong = content
                else:
                    contents.append(content)
            if wrong is not None or sum(one.size for one in contents[-1:]) > RUN_BYTES:
                yield from self._joined(contents, spans[first : first + len(contents)])
                contents, first = [], number + 1
            if wrong is not None:
                yield from self._hand_over()
                kind, one, two = wrong
                self.damage(kind, int(span["offset"]), int(span["length"]), DETAIL[kind].format(one, two))
        yield from self._joined(contents, spans[first : first + len(contents)])

    def _joined(self, contents: list[pa.Buffer], spans: NDArray[np.void]) -> Iterator[pa.RecordBatch]:
        if not contents:
            return
        sizes = np.array([content.size for content in contents], np.int64)
        data = np.frombuffer(contents[0] if len(contents) == 1 else b"".join(contents), np.uint8)
        yield from self._entries(data, spans, sizes.cumsum() - sizes, sizes)

    def _entries(
        self, data: NDArray[np.uint8], spans: NDArray[np.void], starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        """The entries of expanded blocks."""
        contents = np.zeros(len(spans), k.CONTENT)
        contents["start"] = starts
        contents["end"] = starts + sizes.astype(np.int64)
        contents["offset"] = spans["offset"]
        contents["length"] = spans["length"]
        state = self._state
        for name in ("block", "position", "last", "expanded"):
            state[name] = 0
        self.findings.account.record += int(spans["length"].sum())
        data.flags.writeable = False
        status = k.FULL
        while status != k.DONE:
            status = k.read_entries(data, contents, self._take, state[0], self._rows())
            if status == k.GROW:
                larger = np.zeros(2 * len(self._last), np.uint8)
                larger[: len(self._last)] = self._last
                self._last = larger
            elif status == k.FULL and not state["rows"][0] and not state["events"][0]:
                self._renew(2 * self._room)
            elif status == k.FULL or state["events"][0]:
                yield from self._hand_over(contents)

    def _rows(self) -> k.Rows:
        return k.Rows(
            self._keys.values,
            self._key_ends,
            self._values.values,
            self._value_ends,
            self._sequences,
            self._operations,
            self._offsets,
            self._events,
            self._last,
        )

    def _renew(self, room: int) -> None:
        self._room = room
        self._keys = Column(np.uint8, room)
        self._values = Column(np.uint8, room if self._take.values else 0)
        for name in ("rows", "keys", "values"):
            self._state[name] = 0

    def _hand_over(self, contents: NDArray[np.void] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, then tell of the damage so far."""
        rows = int(self._state["rows"][0])
        events = self._events[: int(self._state["events"][0])].copy()
        if len(events) and self.findings.on_damage == "fail":
            rows = int(events["row"][0])
        if rows:
            batch = self._batch(rows)
            self.findings.rows += rows
            self._renew(BATCH_BYTES if self._room > 4 * BATCH_BYTES else self._room)
            yield batch
        else:
            self._renew(self._room)
        self._state["events"] = 0
        if contents is not None:
            self._report(events, contents)

    def _report(self, events: NDArray[np.void], contents: NDArray[np.void]) -> None:
        for event in events:
            content = contents[int(event["block"])]
            offset = int(content["offset"])
            # Entries have no places of their own in the file: the first damage of a block takes all of it.
            length = 0 if offset == self._blamed else int(content["length"])
            self._blamed = offset
            self.findings.account.record -= length
            kind = Kind(int(event["kind"]))
            self.damage(kind, offset, length, DETAIL[kind].format(int(event["one"]), int(event["two"])))

    def _batch(self, rows: int) -> pa.RecordBatch:
        arrays = []
        for name in self._schema.names:
            if name == KEY:
                arrays.append(self._binary(self._key_ends[: rows + 1], self._keys))
            elif name == VALUE:
                arrays.append(self._binary(self._value_ends[: rows + 1], self._values))
            elif name == SEQUENCE:
                arrays.append(fixed_array(pa.int64(), self._sequence(rows)))
            elif name == OPERATION:
                arrays.append(self._names.take(fixed_array(pa.uint8(), self._operations[:rows])))
            elif name == OFFSET_COLUMN:
                arrays.append(fixed_array(pa.int64(), self._offsets[:rows].copy()))
            else:
                arrays.append(constant_string(self.fragment.path, rows))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _sequence(self, rows: int) -> NDArray[np.int64]:
        given = self.table.global_sequence
        found: NDArray[np.int64] = self._sequences[:rows].copy()
        return found if given is None else np.where(found == 0, given, found)

    def _binary(self, ends: NDArray[np.int32], data: Column) -> pa.Array:
        buffers = [None, pa.py_buffer(ends.copy()), data.take(int(ends[-1]))]
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _runs(spans: NDArray[np.void]) -> Iterator[tuple[int, int]]:
    """Spans that are read together: blocks of rows, of about `RUN_BYTES`, without anything between; others alone."""
    offsets, ends = spans["offset"], spans["offset"] + spans["length"]
    data = spans["role"] == Role.DATA
    joined = data[1:] & data[:-1] & (offsets[1:] == ends[:-1])
    edges = np.flatnonzero(np.concatenate([[True], ~joined, [True]]))[: len(spans) + 1]
    for begin, behind in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        first = begin
        while first < behind:
            fitting = int(np.searchsorted(ends[first:behind], offsets[first] + RUN_BYTES, "right"))
            yield first, first + max(fitting, 1)
            first += max(fitting, 1)
