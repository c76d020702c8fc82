"""Ranges of a table as fragments, and the passes over them: judges and expands blocks, makes batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, Reel, make_fixed_array
from sawlog.chain.kernels import make_record
from sawlog.errors import FINDING_ERRORS, ChangedError, DiskError
from sawlog.format.contract import OFFSET_COLUMN, FileRange, assemble
from sawlog.format.damage import UNSUPPORTED, Damage, Findings, Tail, TailStatus
from sawlog.format.scan import Projection, Scan
from sawlog.kernels.snappy import SLACK
from sawlog.leveldb.columns import (
    KEY,
    OPERATION,
    OPERATION_NAMES,
    RANGE,
    SEQUENCE,
    SIZE,
    STAMP,
    TIMED,
    VALUE,
    convert_codes,
    split_stamps,
    strip_times,
)
from sawlog.leveldb.log.head import find_encryption
from sawlog.leveldb.records.layout import TIMED_SUFFIX
from sawlog.leveldb.table import entries as e
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import Expanded, join_values, make_block_damage
from sawlog.leveldb.table.layout import Role, TableDamageKind
from sawlog.leveldb.table.meta import EVERY_KEY, Bounds, BoundsReader, MapReader, TableMap, find_block_range
from sawlog.storage import File, Source
from sawlog.storage.workers import ReadOnce

_RUN_BYTES = 4 << 20
"""Stored bytes of blocks that are judged and expanded at a time, unless one is larger."""
_NO_KEYS = np.zeros(0, np.int64)


class SpanWalk:
    """A pass over the spans of a range.

    Attributes:
        spans: They, in the order of the file.
    """

    def __init__(self, fragment: FileRange, table: TableMap, source: Source, findings: Findings) -> None:
        self.fragment = fragment
        self.table = table
        self.source = source
        self.findings = findings
        spans = table.spans
        first, last = spans["offset"].searchsorted((fragment.start, fragment.end))
        self.spans: NDArray[np.void] = spans[first:last]
        self._damaged = {damage.offset: damage for damage in table.damages}

    def add_damage(self, kind: TableDamageKind, offset: int, length: int, detail: str) -> None:
        """Enter a damage into the ledger."""
        self.findings.add_damage(Damage(self.fragment.path, offset, length, kind.label, detail))

    def enter(self, span: np.void) -> None:
        """Enter what holds no rows into the ledger."""
        offset, length, role, _ = span.item()
        if role == Role.HEADER and offset in self._damaged:
            damage = self._damaged.pop(offset)
            self.findings.add_damage(Damage(damage.path, offset, length, damage.kind, damage.detail))
        elif role == Role.HEADER:
            self.findings.account.header += length
        elif role == Role.VALUES:
            self._judge(offset, length)
        elif role == Role.OVERLAP:
            detail = "the index names a block there that overlaps others or is past the end"
            self.add_damage(TableDamageKind.BAD_HANDLE, offset, length, detail)
        elif self._is_zero(offset, length):
            self.findings.account.padding += length
        elif (lost_end := self.table.lost_end) is not None:
            detail = f"{lost_end.detail}; what could be checked was read"
            self.findings.add_damage(Damage(self.fragment.path, offset, length, lost_end.kind, detail))
        elif any(flaw.kind == UNSUPPORTED for flaw in self.table.damages):
            detail = "bytes that only blocks lead to that this version of sawlog does not know"
            self.findings.add_damage(Damage(self.fragment.path, offset, length, UNSUPPORTED, detail))
        else:
            detail = "bytes that belong to no block that anything leads to"
            self.add_damage(TableDamageKind.UNREFERENCED, offset, length, detail)

    def _judge(self, offset: int, length: int) -> None:
        """Check a block of values; the entries that lead to it are reported where they are."""
        content, _ = self.table.rules.read(self.source, offset, length - layout.TRAILER_SIZE)
        if isinstance(content, tuple):
            self.findings.add_damage(make_block_damage(self.fragment.path, offset, length, content))
        else:
            self.findings.account.record += length

    def _is_zero(self, offset: int, length: int) -> bool:
        for start in range(offset, offset + length, _RUN_BYTES):
            if self.source.read_window(start, min(_RUN_BYTES, offset + length - start)).any():
                return False
        return True


BATCH_ROWS = 64 << 10
BATCH_BYTES = 4 << 20
"""Bytes of values per batch, unless one is larger; those of keys likewise."""
EVENT_ROOM = 1024
_KEY_ROOM = 1 << 10
"""Room for a key to begin with."""
_SCRATCH_BYTES = 64 << 10
"""Room for an expanded block to begin with."""
_OF_ROWS = (Role.DATA, Role.RANGE_DELETES)
_COLUMNS = ("keys", "key_ends", "values", "value_ends", "value_sizes", "sequences", "offsets")


@cache
def _make_operation_table(pebble: int) -> NDArray[np.uint8]:
    """Return the number of each type's operation, 255 where there is none; of a version of Pebble's, or 0."""
    operations = layout.PEBBLE_OPERATIONS if pebble else {**layout.OPERATIONS, **layout.OTHER_OPERATIONS}
    types = np.full(256, 255, np.uint8)
    for code, name in operations.items():
        types[code] = OPERATION_NAMES.index(name)
        if pebble >= layout.OBSOLETE_VERSION:
            types[code | layout.OBSOLETE] = types[code]
    return types


def make_reels() -> dict[str, Reel]:
    """Return memory for the columns of readers, by their names in `entries.Rows`: one reader reads at a time."""
    return {name: Reel() for name in _COLUMNS}


class RowReader(SpanWalk):
    """Reads the rows of a range.

    Attributes:
        damaged: Offsets of blocks that cannot be decoded as a whole.
        flaws: Details of misplaced keys in the current batch, by the offsets of their blocks: the caller's findings.
    """

    def __init__(
        self,
        fragment: TableRange,
        table: TableMap,
        source: Source,
        schema: pa.Schema,
        findings: Findings,
        reels: Mapping[str, Reel] | None = None,
        *,
        in_place: bool = False,
    ) -> None:
        super().__init__(fragment, table, source, findings)
        self._range = fragment
        self._schema = schema
        types = _make_operation_table(table.footer.version if table.footer.dialect == "pebble" else 0)
        internal = fragment.scan.options.keys != "raw"
        types = types if internal else np.zeros(256, np.uint8)
        self._bounds = None if table.bounds is None else BoundsReader(table.bounds)
        stamp = np.uint64(0 if table.bounds is None else table.bounds.stamp)
        self._names = schema.names
        requested = VALUE in self._names, OFFSET_COLUMN in self._names
        self._take = e.Take(internal, *requested, types, np.zeros(0, np.uint8), stamp)
        self._rule = table.rules.rule
        self._layer = table.make_layer(source)
        self._can_refer = in_place and VALUE in self._names and self._layer is None and not table.has_stamp_column
        self._window: NDArray[np.uint8] | None = None
        self._record, self._state = make_record(e.STATE)
        # The first damage stops the kernel: up to there, both policies do the same.
        self._events = np.zeros(2, e.EVENT)
        self._reels: Mapping[str, Reel] = reels or {}
        self._last = np.empty(_KEY_ROOM, np.uint8)
        self._scratch = np.empty(_SCRATCH_BYTES, np.uint8)
        span = fragment.end - fragment.start
        self._max_rows = min(BATCH_ROWS, span + 1)
        self._operations = np.empty(self._max_rows, np.uint8)
        self.damaged: set[int] = set()
        self._reported: set[int] = set()
        self.flaws: dict[int, str] = {}
        self._room = min(BATCH_BYTES, max(4 * span, 1))
        self._is_full = True

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and what is found, in the order of the file."""
        self.spans = spans = self._prune(self.spans)
        roles = spans["role"].tolist()
        for first, last in _find_runs(spans, self.table.bounds):
            if roles[first] in _OF_ROWS:
                yield from self._read(spans[first:last])
                continue
            if self._state.rows or self._state.events:
                yield from self._hand_over()
            self.enter(spans[first])
        yield from self._hand_over()

    @property
    def is_ascending(self) -> bool:
        """Whether no key of the batch that was read last is below the one before it."""
        return not self._state.descents

    def _prune(self, spans: NDArray[np.void]) -> NDArray[np.void]:
        low, high = find_block_range(self.table, self._range.interval)
        if not low and high == len(self.table.handles):
            return spans
        data = spans["role"] == Role.DATA
        spared = data & ((spans["number"] < low) | (spans["number"] >= high))
        if spared.any():
            self.findings.notes["blocks_spared"] += int(spared.sum())
        kept_spans: NDArray[np.void] = spans[~spared]
        return kept_spans

    def _read(self, spans: NDArray[np.void]) -> Iterator[pa.RecordBatch]:
        """Yield adjacent blocks of rows."""
        base = int(spans["offset"][0])
        length = int(spans["offset"][-1] + spans["length"][-1]) - base
        try:
            window = self.source.read_window(base, length)
        except DiskError as error:
            yield from self._hand_over()
            self.add_damage(TableDamageKind.READ_ERROR, base, length, str(error))
            return
        blocks = np.empty(len(spans), e.BLOCK)
        ends, before = _NO_KEYS, 0
        if self._bounds is not None and spans["role"][0] == Role.DATA:
            before = max(int(spans["number"][0]) - 1, 0)
            separators, ends = self._bounds.take(before, int(spans["number"][-1]) + 1)
            self._take = self._take._replace(separators=separators)
        self.findings.account.record += e.lay_blocks(spans, ends, before, len(self.table.handles) - 1, blocks)
        if self._can_refer and spans["role"][0] == Role.DATA and self._are_stored(window, blocks, base):
            yield from self._hand_over()
            self._set_window(window)
        state = self._state
        state.block = 0
        status = e.FULL
        while status != e.DONE:
            if self._is_full:
                self._reset(self._room)
            status = e.read_blocks(
                window, np.uint64(base), blocks, self._rule, self._take, self._record, self._make_rows()
            )
            if status == e.GROW:
                larger = np.zeros(2 * len(self._last), np.uint8)
                larger[: len(self._last)] = self._last
                self._last = larger
            elif status == e.SCRATCH:
                self._scratch = np.empty(max(state.length + SLACK, _SCRATCH_BYTES), np.uint8)
            elif status == e.UNUSUAL and self._window is not None:
                yield from self._hand_over(blocks)
                self._set_window(None)
            elif status == e.EXPAND:
                self._expand(window, base, blocks)
            elif status == e.UNUSUAL:
                data = window if state.open == e.IN_WINDOW else self._scratch
                self._go_on(join_values(pa.py_buffer(data[state.start : state.start + state.length])))
            elif status == e.FULL and not state.rows and not state.events:
                self._reset(2 * self._room)
            elif status == e.FULL or state.events:
                yield from self._hand_over(blocks)
        if self._window is not None:
            yield from self._hand_over(blocks)
            self._set_window(None)

    def _are_stored(self, window: NDArray[np.uint8], blocks: NDArray[np.void], base: int) -> bool:
        """Return whether blocks are in a window as they are, and offsets of a column reach all of it."""
        ends = (blocks["offset"] + blocks["stored"]).astype(np.int64) - base
        is_whole = int(ends[-1]) < len(window) <= np.iinfo(np.int32).max
        return is_whole and bool((self._rule.codecs[window[ends]] == k.AS_IS).all())

    def _set_window(self, window: NDArray[np.uint8] | None) -> None:
        """Leave the values of rows to come in a window; `None`: copy them."""
        self._window, self._is_full = window, True
        self._take = self._take._replace(values=window is None)

    def _expand(self, window: NDArray[np.uint8], base: int, blocks: NDArray[np.void]) -> None:
        state = self._state
        block = blocks[state.block]
        start = int(block["offset"]) - base
        stored = pa.py_buffer(window[start : start + int(block["stored"])])
        content = self.table.rules.expand(stored, state.compression, of_entries=True)
        if self._layer is not None and not isinstance(content, tuple):
            deletions = self.table.range_deletes == (int(block["offset"]), int(block["stored"]))
            content, loss = self._layer.convert_block(content, deletions=deletions)
            if loss:
                self._events[state.events] = (TableDamageKind.LOST_VALUE, state.block, loss, 0, state.rows)
                state.events += 1
        self._go_on(content)

    def _go_on(self, content: Expanded) -> None:
        """Have the kernel go on in the next block, of which this is the content; or after it, if it is damaged."""
        state = self._state
        if isinstance(content, tuple):
            kind, number, second_number = content
            self._events[state.events] = (kind, state.block, number, second_number, state.rows)
            state.events += 1
            state.block += 1
            state.open = e.NOT_OPEN
            return
        if content.size > len(self._scratch):
            self._scratch = np.empty(max(2 * content.size, _SCRATCH_BYTES), np.uint8)
        self._scratch[: content.size] = np.frombuffer(content, np.uint8)
        state.open, state.start, state.length = e.IN_SCRATCH, 0, content.size

    def _make_rows(self) -> e.Rows:
        expanded = self._scratch.view()
        expanded.flags.writeable = False
        keys, values = (self._keys.values, self._key_ends.values), (self._values.values, self._value_ends.values)
        numbers = self._value_sizes.values, self._sequences.values, self._operations, self._offsets.values
        return e.Rows(*keys, *values, *numbers, self._events, self._last, self._scratch, expanded)

    def _reset(self, room: int) -> None:
        """Make fresh columns for the next batch; the kernel carries over what follows the rows so far."""
        self._room, self._is_full = room, False
        rows, reel = self._max_rows, self._reels.get
        self._keys = Column(np.uint8, room + e.KEY_SLACK, reel("keys"))
        self._values = Column(np.uint8, room if self._take.values else 0, reel("values"))
        self._key_ends = Column(np.int32, rows + 1, reel("key_ends"))
        self._value_ends = Column(np.int32, rows + 1, reel("value_ends"))
        self._value_sizes = Column(np.int32, 0 if self._window is None else rows, reel("value_sizes"))
        self._sequences = Column(np.int64, rows, reel("sequences"))
        self._offsets = Column(np.int64, rows if self._take.offsets else 0, reel("offsets"))
        self._key_ends.values[0] = self._value_ends.values[0] = 0
        self._state.rows = self._state.keys = self._state.values = self._state.descents = 0

    def _hand_over(self, blocks: NDArray[np.void] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, then report the damage so far."""
        rows, event_count = self._state.rows, self._state.events
        if not rows and not event_count:
            return
        events = self._events[:event_count].copy() if event_count else self._events[:0]
        if event_count and self.findings.on_damage == "fail":
            rows = int(events["row"][0])
        if rows:
            batch = self._make_batch(rows)
            self.findings.rows += rows
            self._room = BATCH_BYTES if self._room > 4 * BATCH_BYTES else self._room
            yield batch
        self._is_full = True
        self._state.rows = self._state.events = 0
        if event_count or self.flaws:
            self._report(events, blocks)

    def _report(self, events: NDArray[np.void], blocks: NDArray[np.void] | None) -> None:
        """Report the damage of the rows that were handed over, in the order of their blocks."""
        if len(events) and len(self._events) < EVENT_ROOM:
            self._events = np.zeros(EVENT_ROOM, e.EVENT)
        path, spans = self.fragment.path, self.table.spans
        damages = []
        for offset, detail in self.flaws.items():
            length = int(spans["length"][int(spans["offset"].searchsorted(offset))])
            damages.append(Damage(path, offset, length, TableDamageKind.MISPLACED_KEY.label, detail))
        self.flaws = {}
        for event in events:
            assert blocks is not None, "events are those of blocks"
            block = blocks[int(event["block"])]
            flaw = TableDamageKind(int(event["kind"])), int(event["one"]), int(event["two"])
            self.damaged.add(int(block["offset"]))
            damages.append(make_block_damage(path, int(block["offset"]), int(block["length"]), flaw))
        for damage in sorted(damages, key=lambda damage: damage.offset):
            # Entries have no places of their own in the file: the first damage of a block takes all of it.
            if damage.offset not in self._reported:
                self._reported.add(damage.offset)
                self.findings.account.record -= damage.length
                self.findings.add_damage(damage)

    def _make_batch(self, rows: int) -> pa.RecordBatch:
        keys = _make_binary(rows, self._key_ends, self._keys)
        values = _make_binary(rows, self._value_ends, self._values, self._window) if VALUE in self._names else None
        if self.table.has_stamp_column:
            widths = np.full(rows, 0 if self.table.has_stripped_keys else layout.STAMP_WIDTH)
            keys, stamps = split_stamps(keys, widths, self.fragment.path)
            ranges = self._operations[:rows] == RANGE
            if values is not None and ranges.any():
                values, _ = split_stamps(values, np.where(ranges, widths, 0), self.fragment.path)
        columns = {KEY: keys}
        for name in self._names:
            if name == STAMP:
                columns[name] = stamps
            elif name == VALUE:
                codes = self._operations[:rows]
                # Bytes are searched in a tenth of the time of an array.
                is_timed = not self._range.stored and TIMED in codes.tobytes()
                columns[name] = strip_times(values, codes == TIMED) if is_timed and self._window is None else values
                if is_timed and self._window is not None:
                    sizes = self._value_sizes.values[:rows]
                    sizes[(codes == TIMED) & (sizes >= TIMED_SUFFIX)] -= TIMED_SUFFIX
            elif name == SEQUENCE:
                columns[name] = self._make_sequence(rows)
            elif name == OPERATION:
                codes = self._operations[:rows]
                numbered = pa.types.is_integer(self._schema.field(name).type)
                columns[name] = (
                    make_fixed_array(pa.uint8(), codes.copy()) if numbered else convert_codes(codes, OPERATION_NAMES)
                )

        def take_offsets() -> pa.Array:
            return pa.Array.from_buffers(pa.int64(), rows, [None, self._offsets.take(rows)])

        batch = assemble(self._schema, rows, columns, self.fragment.path, take_offsets)
        if self._window is None:
            return batch
        return batch.append_column(SIZE, pa.Array.from_buffers(pa.int32(), rows, [None, self._value_sizes.take(rows)]))

    def _make_sequence(self, rows: int) -> pa.Array:
        sequence = self.table.global_sequence
        if sequence is None:
            return pa.Array.from_buffers(pa.int64(), rows, [None, self._sequences.take(rows)])
        sequences = self._sequences.values[:rows]
        return make_fixed_array(pa.int64(), np.where(sequences == 0, sequence, sequences))


def _make_binary(rows: int, ends: Column, data: Column, window: NDArray[np.uint8] | None = None) -> pa.Array:
    content = data.take(int(ends.values[rows])) if window is None else pa.py_buffer(window)
    return pa.Array.from_buffers(pa.binary(), rows, [None, ends.take(rows + 1), content])


def _find_runs(spans: NDArray[np.void], bounds: Bounds | None) -> Iterator[tuple[int, int]]:
    """Return spans that are read together: blocks of rows, one after the other, of about `_RUN_BYTES`.

    Each of the others.

    The separators of a run are expanded for it: of these, too, there are about `_RUN_BYTES`.
    """
    ends = np.zeros(len(spans), np.int64)
    limit = np.int64(_RUN_BYTES)
    count = k.find_runs(spans, _NO_KEYS if bounds is None else bounds.ends, limit, limit, ends)
    return pairwise([0, *ends[:count].tolist()])


@dataclass(frozen=True)
class TableRange(FileRange):
    """The blocks of a table that begin in `[start, end)`.

    Attributes:
        file: The table.
        start: A file offset.
        end: A file offset, or the size of the file.
        interval: The least key that is wanted, and the first one after them: blocks without any of these are skipped.
        map: The map that the ranges of the table share in this process; other processes read it again.
        stored: Whether timed puts have the times after their values.
    """

    interval: tuple[bytes | None, bytes | None]
    map: ReadOnce[TableMap] | None = field(default=None, repr=False, compare=False)
    stored: bool = False

    @classmethod
    def cover_file(cls, file: File, scan: Scan, projection: Projection, **fields: Any) -> Self:
        """Return a range over all of a table."""
        return cls(scan, projection, file.path, file.size, file, 0, file.size, **{"interval": EVERY_KEY, **fields})

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "map": None}

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        with closing(self.scan.storage.open(self.file, self.end)) as source:
            if source.size < self.file.size:
                raise ChangedError.from_sizes(self.path, self.file.size, source.size)
            try:
                read = partial(_read_map, self.file, source, self.scan)
                table = read() if self.map is None else self.map.get(read)
            except FINDING_ERRORS as error:
                yield from self._drop_range(find_encryption(self.file, self.scan.storage) or error.damage, findings)
                return
            except DiskError as error:
                kind, length = TableDamageKind.READ_ERROR.label, self.end - self.start
                yield from self._drop_range(Damage(self.path, self.start, length, kind, str(error)), findings)
                return
            yield from self.read(table, source, schema, findings)
            if self.end == self.file.size:
                findings.tail = Tail(TailStatus.CLEAN, self.file.size, 0)

    def read(self, table: TableMap, source: Source, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the view, and the findings."""
        yield from RowReader(self, table, source, schema, findings).read_batches()

    def _drop_range(self, damage: Damage, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Report all of the range as lost, since nothing leads to its blocks; yield no rows."""
        detail = damage.detail
        findings.add_damage(Damage(self.path, self.start, self.end - self.start, damage.kind, detail))
        yield from ()


def read_table_map(file: File, scan: Scan) -> TableMap | None:
    """Return the map of a table, for planning and for what is shown of it; `None` where its end is damaged."""
    with closing(scan.storage.open(file.path)) as source:
        try:
            return _read_map(file, source, scan)
        except FINDING_ERRORS:
            return None


def _read_map(file: File, source: Source, scan: Scan) -> TableMap:
    return MapReader(file, source, scan.options).read()
