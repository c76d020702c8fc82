"""The containers of a file, or of a part of it, as a fragment, and the passes over them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, fill_null, make_array, make_fixed_array, unpack_booleans
from sawlog.chain.kernels import END, FULL, MORE, Window
from sawlog.chain.walk import ChainWalk, Span, WalkEvent
from sawlog.filodb import layout
from sawlog.filodb.assemble import BatchRows, ColumnBuilder, RowErrors
from sawlog.filodb.columns import POINTED, ViewField
from sawlog.filodb.framing import Container, Framing, Header
from sawlog.filodb.judge import LOOK, PLAIN_WORD, is_whole
from sawlog.filodb.kernels import chain as k
from sawlog.filodb.kernels import state as s
from sawlog.filodb.kernels.columns import BLOCK
from sawlog.filodb.kernels.maps import PRESENT, UNSURE
from sawlog.filodb.kernels.records import Out
from sawlog.filodb.layout import ContainerDamageKind
from sawlog.filodb.options import ReadOptions
from sawlog.filodb.selection import Pool, RecordLayout, Selection, Tables
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, FileRange, assemble
from sawlog.format.damage import Findings
from sawlog.format.query import Condition, iterate_conditions
from sawlog.storage import Source, sources

WINDOW_BYTES = 4 * sources.WINDOW_BYTES
"""Bytes of the file that the kernel sees at a time. The rows of a window make a batch, and few batches cost least."""
BATCH_ROWS = 128 << 10
_USUAL_RECORD = 128
"""Bytes that records have at least, mostly: batches of shorter ones have no more rows."""
BATCH_BYTES = 16 << 20
"""Payload bytes after which a batch takes no more rows."""
BATCH_BUCKETS = 1 << 20
"""Histogram buckets after which a batch takes no more rows."""
EVENT_ROOM = 4096
"""Damaged ranges that the kernel records before it hands over."""

_UNPROVEN = "containers taken for whole only by their size"
"""Note: nothing after them proves that what follows their records is unused."""

_NO_BOUNDS = np.zeros(0, np.int64)
_TORN = {
    s.TORN_HEADER: "the file ends inside a container's header",
    s.TORN_CONTAINER: "the file ends inside a container",
    s.TORN_REST: "the file ends after the records of a container, in what may be its unused rest",
}


class Sight:
    """The window, and bytes of the file outside of it. No walk: one that its framing leads to would live on."""

    def __init__(self, source: Source, size: int) -> None:
        self.data: Any = np.zeros(0, np.uint8)
        self.base = 0
        self._source = source
        self._size = size

    def peek(self, offset: int, length: int) -> Any:
        """Return bytes of the file: those in sight, or others."""
        inside = offset - self.base
        if inside >= 0 and inside + length <= len(self.data):
            return self.data[inside : inside + length]
        return self._source.read_window(offset, min(length, self._size - offset))


class Walk(ChainWalk):
    """Pass over containers, which are framed one after the other, while a kernel walks the records of each.

    Args:
        fragment: What is read.
        source: Its bytes.
        schema: The columns to deliver.
        findings: Receives damage, rows and bytes.
        tables: What records there can be.
        bounds: Where each value begins, and the last one ends, where the bytes are those of a column of values.
    """

    kinds: ClassVar = ContainerDamageKind
    events_per_step: ClassVar = BLOCK
    window_passes: ClassVar = True

    def __init__(
        self,
        fragment: ContainerRange,
        source: Source,
        schema: pa.Schema,
        findings: Findings,
        tables: Tables,
        *,
        bounds: Any = None,
    ) -> None:
        options: ReadOptions = fragment.scan.options
        self._fragment = fragment
        self._schema = schema
        self._layouts = tables.layouts
        span = fragment.end - fragment.start
        # A power of two where files are small, so that memory for one fits the next.
        fitting = 1 << (span // tables.smallest).bit_length()
        self.capacity = min(BATCH_ROWS, WINDOW_BYTES // max(tables.smallest, _USUAL_RECORD), fitting)
        room = min(EVENT_ROOM, span // layout.LENGTH_SIZE + 1)
        owned = Span(fragment.file, fragment.start, fragment.end)
        fields = {"broken": -1, "expected": -1, "step": fragment.step}
        super().__init__(owned, source, findings, s.STATE, max_rows=self.capacity, event_room=room, **fields)
        head = layout.VERSION_WORD.end  # of the file's first container
        flagged = (
            layout.VERSION_WORD.of(source.read_window(0, head).tobytes()) if fragment.file.size >= head else PLAIN_WORD
        )
        self._sight = Sight(source, fragment.file.size)
        self.framing = Framing(
            self._sight.peek,
            fragment.file.size,
            flagged=flagged,
            step=fragment.step,
            is_step_known=options.container_size is not None,
            resumed=fragment.start if fragment.resumed else -1,
            doubts=fragment.doubts,
        )
        self._expected = -1  # where the next hidden container begins
        self._hider: Container | None = None  # the container whose length is wrong, until that is reported
        self.rules = s.Rules(
            fragment.selection.plain,
            tables.find_meanings(flagged) if bounds is None else tables.meanings,
            tables.schemas,
            options.container_size is not None,
            np.int64(flagged),
            _NO_BOUNDS if bounds is None else bounds,
            np.int64(BATCH_BYTES),
            np.int64(BATCH_BUCKETS),
        )

    @abstractmethod
    def _run_kernel(self, window: Window) -> int:
        """Walk on: MORE, FULL, or END, where `state.tail` is set, or the framing is to say how to go on."""

    def read(self, window: Window) -> int:
        """Run the kernel over a window. Containers that it finds doubtful are judged here."""
        state = self.state
        self._sight.data, self._sight.base = window.data, int(window.base)
        limit = self._sight.base + len(window.data)
        while state["position"] <= limit:
            status = self._run_kernel(window)
            if status != END or state["tail"] >= 0 or len(self.rules.bounds):
                return status
            if state["rows"] >= len(self.starts) or state["events"] >= state["max_events"]:
                return FULL
            offset = int(state["position"])
            if state["inside"]:
                self._look_for_hidden(offset)
            elif not self._open_frame(offset):
                return END
        return MORE

    def _open_frame(self, offset: int) -> bool:
        """Open the container at a place, or account for what is there instead; return whether the walk goes on."""
        state, size = self.state, self.span.file.size
        if state["bound"] and offset < state["bound"]:
            self._open(self._find_hidden(offset))
            return True
        state["bound"] = 0
        if not state["ending"] and offset >= min(self.span.end, size):
            return False
        if not state["ending"] and size - offset < layout.CONTAINER_HEADER_SIZE:
            state["ending"] = s.TORN_HEADER
        if state["ending"]:
            state["tail"] = offset
            return False
        self._open(self.framing.judge(offset))
        return True

    def _find_hidden(self, offset: int) -> Container:
        """Return the container at a place among hidden ones."""
        has_header = self.span.file.size - offset >= layout.CONTAINER_HEADER_SIZE
        head = self.framing.read_header(offset) if has_header else Header(0, 0, 0, 0)
        if offset != self._expected:
            bound = int(self.state["bound"])
            kind = int(ContainerDamageKind.BAD_HEADER)
            return Container(kind, offset, bound, bound, bound, head, one=head.length, two=head.word)
        end, first = offset + layout.LENGTH_SIZE + head.length, offset + layout.CONTAINER_HEADER_SIZE
        hider, self._hider = self._hider, None
        if hider is None:
            return Container(s.INTACT, offset, first, end, end, head)
        kind = int(ContainerDamageKind.HIDDEN_CONTAINER)
        return Container(kind, offset, first, end, end, head, one=hider.header.length, two=hider.start)

    def _open(self, container: Container) -> None:
        """Begin with the records of a container, after its header, which is accounted for."""
        state = self.state
        state["container"], state["first"], state["end"], state["next"] = (
            container.start,
            container.first,
            container.end,
            container.next,
        )
        state["time"], state["step"], state["counted"] = container.header.time, self.framing.step, 0
        state["ending"] = container.ending or state["ending"]
        begins_inside = container.kind in (s.INTACT, int(ContainerDamageKind.HIDDEN_CONTAINER))
        state["inside"] = container.end > container.first or begins_inside
        state["position"] = container.first
        length = container.first - container.start
        if container.kind == s.UNUSED:
            state["padding_bytes"] += length
            state["zeros"] = container.start if state["zeros"] < 0 else state["zeros"]
        elif container.kind == s.INTACT:
            state["header_bytes"] += length
            state["zeros"] = -1
        else:
            event = container.kind, container.start, length, -1, container.one, container.two
            self.events[int(state["events"])] = event
            state["events"] += 1

    def _look_for_hidden(self, offset: int) -> None:
        """Go on, after a container's records have ended or are broken, to another one that it hides, if it does."""
        state = self.state
        start, end, bound = int(state["container"]), int(state["end"]), int(state["bound"])
        head = self.framing.read_header(start)
        container = Container(s.INTACT, start, int(state["first"]), end, int(state["next"]), head)
        state["broken"] = offset
        ends_here = offset < end and state["kind"] == ContainerDamageKind.HIDDEN_CONTAINER
        hidden_start = self.framing.find_hidden(container, offset, bound, ends_here=ends_here)
        if hidden_start is not None:
            if offset < end:
                self._hider = container
            state["bound"] = bound or container.next
            state["end"], state["next"] = offset, hidden_start
            self._expected = hidden_start
        elif offset >= end:
            is_empty = is_whole(bound - start, 0, layout.EMPTY_CONTAINER, 0, self.framing.step)
            state["next"] = bound if is_empty else end

    def choose_window_length(self, position: int) -> int:
        """Return the length of a window. Past the range, what follows its last container is looked at."""
        return min(WINDOW_BYTES, max(self.span.end - position, 0) + LOOK)

    @property
    def torn(self) -> str:  # type: ignore[override]
        return _TORN[int(self.state["ending"])]

    def _account(self) -> None:
        if self.framing.guesses:
            self.findings.notes[_UNPROVEN] += self.framing.guesses
        super()._account()


@dataclass(frozen=True)
class Workspace:
    """Memory of a walk over records; the walk over the next file takes it over.

    Attributes:
        builder: What gathers records, and the maps that it has seen.
        starts: Where each row begins.
        layout_numbers: The number of each row's layout.
        picked: See `sawlog.filodb.kernels.records.Out`.
        small_rows: Workspaces for so few rows are left to other datasets, too, as those of files opened one by one.
        small_pool: What is left to other datasets.
    """

    small_rows: ClassVar[int] = 4096
    small_pool: ClassVar[Pool] = Pool(limit=8)
    builder: ColumnBuilder
    starts: Any
    layout_numbers: Any
    picked: Any

    @classmethod
    def of(cls, fields: Sequence[ViewField], fragment: ContainerRange, capacity: int) -> Workspace:
        """Return a workspace with room for so many rows."""
        selection = fragment.selection
        names = [record_layout.name for record_layout in selection.layouts]
        builder = ColumnBuilder(fields, selection.tables.layouts, capacity, fragment.scan.options, names)
        picked = np.tile(np.arange(BLOCK, dtype=np.uint64), (2, 1))
        return cls(builder, Column(np.int64, capacity).values, Column(np.uint8, capacity).values, picked)


class RecordsWalk(Walk):
    """Pass over records, with the columns that are gathered of them."""

    def __init__(
        self, fragment: ContainerRange, source: Source, schema: pa.Schema, findings: Findings, *, bounds: Any = None
    ) -> None:
        selection = fragment.selection
        super().__init__(fragment, source, schema, findings, selection.tables, bounds=bounds)
        self._named: tuple[RecordLayout, ...] = selection.layouts
        fields = self._choose_fields()
        self._pool = Workspace.small_pool if self.capacity <= Workspace.small_rows else fragment.pool
        self._place = (selection, fragment.scan.options, self.capacity, fields, tuple(schema.names))
        workspace = self._pool.take(self._place)
        if workspace is None:
            workspace = Workspace.of(fields, fragment, self.capacity)
        self._workspace: Workspace = workspace
        self._builder, self.starts, self._layout_numbers = workspace.builder, workspace.starts, workspace.layout_numbers

    @abstractmethod
    def _choose_fields(self) -> Sequence[ViewField]:
        """Return the fields that are gathered of each record."""

    @abstractmethod
    def _make_columns(self, rows: BatchRows, marks: RowErrors) -> dict[str, pa.Array]:
        """Return the fields of the schema, and marks of the rows that turn out damaged."""

    def _run_kernel(self, window: Window) -> int:
        space = self._workspace
        out = Out(space.starts, space.layout_numbers, space.builder.memory, space.picked, self.events)
        return self._read(window, out)

    def _read(self, window: Window, out: Out) -> int:
        read = k.read_values if len(self.rules.bounds) else k.read_records
        return int(read(window, self.state, out, self.rules))

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and leave the memory to the walk over another file once all of them are delivered."""
        yield from super().read_batches()
        self._pool.give(self._place, self._workspace)

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not rows:
            return
        marks = RowErrors()
        selected = self._choose_rows(BatchRows(self._sight.data, rows, self.starts, self._layout_numbers))
        columns = self._make_columns(selected, marks)
        absent = (field for field in self._schema if field.name not in (*columns, FILE_COLUMN, OFFSET_COLUMN))
        columns |= {field.name: pa.nulls(selected.count, field.type) for field in absent}  # which a stream may name
        starts = self.starts[: selected.count]
        batch = assemble(
            self._schema, selected.count, columns, self.path, lambda: make_fixed_array(pa.int64(), starts.copy())
        )
        if marks.errors_by_row:
            keep = np.ones(selected.count, np.bool_)
            keep[list(marks.errors_by_row)] = False
            for row, (code, name, place) in marks.errors_by_row.items():
                kind, start = ContainerDamageKind(code), int(self.starts[row])
                size = layout.LENGTH.of(self._sight.data, start - self._sight.base) + layout.LENGTH_SIZE
                self.complain(kind, start, layout.align(size), kind.detail.format(name, place))
            if self.fails:
                keep[min(marks.errors_by_row) :] = False
            rows -= selected.count - int(keep.sum())
            batch = batch.filter(make_array(keep, pa.bool_())) if len(self._schema) else batch.slice(0, rows)
        yield rows, batch

    def _choose_rows(self, rows: BatchRows) -> BatchRows:
        """Return the rows that filters leave, as far as they are decided before anything is decoded."""
        return rows

    def reset(self) -> None:
        self._builder.reset()
        state = self.state
        state["payload_bytes"] = state["buckets"] = 0

    def describe(self, event: WalkEvent) -> str:
        """Return the detail of an event's damage, with the name of the column that it is in."""
        if event.kind == ContainerDamageKind.BAD_POINTER:
            return ContainerDamageKind.BAD_POINTER.detail.format(self._builder.fields[event.one].name, event.two)
        return super().describe(event)


class RowsWalk(RecordsWalk):
    """Pass that makes a row per record."""

    def _choose_fields(self) -> Sequence[ViewField]:
        """Return the wanted fields, and all payloads of the records, which are judged even if they are not wanted."""
        options: ReadOptions = self._fragment.scan.options
        self._hidden = self._hash_fields() if options.verify_hashes and not self.rules.plain else ()
        self._conditions: list[Condition] = []
        all_fields = self._fragment.fields
        names = set(self._schema.names)
        if self._fragment.projection.query.parts and not self._hidden and names:
            maps = {field.name for field in all_fields if field.kind == "map" and field.name in names}
            self._conditions = [
                condition
                for condition in iterate_conditions(self._fragment.projection.query)
                if condition.key is not None
                and condition.column in maps
                and condition.op != "is null"
                and None not in condition.values
            ]
        gathered = [field for field in all_fields if field.name in names or (field.kind in POINTED and field.sources)]
        return (*gathered, *self._hidden)

    def _choose_rows(self, rows: BatchRows) -> BatchRows:
        """Choose rows by single labels. Those with damaged maps are kept, to be reported."""
        for condition in self._conditions:
            values, state = self._builder.gather_labels(condition.column, (condition.key or "").encode(), rows)
            distinct = values.dictionary_encode()
            try:
                matching = condition.mask_values(
                    distinct.dictionary.cast(self._schema.field(condition.column).type.item_type)
                )
            except pa.ArrowInvalid:
                continue  # values that are not UTF-8, which decoding reports
            mask = unpack_booleans(fill_null(matching, False).take(distinct.indices)) & (state == PRESENT) | (
                state == UNSURE
            )
            count = int(mask.sum())
            if count < rows.count:
                self._builder.keep(mask)
                for array in (self.starts, self._layout_numbers):
                    array[:count] = array[: rows.count][mask]
                rows = replace(rows, count=count)
        return rows

    def _make_columns(self, rows: BatchRows, marks: RowErrors) -> dict[str, pa.Array]:
        if self._hidden:
            self._verify_hashes(rows, marks)
        columns: dict[str, pa.Array] = self._builder.make_arrays(self._schema, rows, marks)
        return columns

    def _hash_fields(self) -> tuple[ViewField, ...]:
        """Return payloads that make up the hash, per layout, and the stored hash."""
        count = max(len(schema.hashed_columns) for schema in self._layouts if schema is not None)
        fields = [ViewField("#hash", "hash", (), pa.field("#hash", pa.int32()))]
        for i in range(count):
            sources = tuple(
                layout.record.hashed_columns[i] if i < len(layout.record.hashed_columns) else None
                for layout in self._named
            )
            fields.append(ViewField(f"#{i}", "string", sources, pa.field(f"#{i}", pa.binary())))
        return tuple(fields)

    def _verify_hashes(self, rows: BatchRows, marks: RowErrors) -> None:
        stored = self._builder.view_values("#hash", np.int32, rows.count)
        hidden = self._hidden[1:]
        for number, record_layout in enumerate(self._named):
            mine = np.flatnonzero(self._layout_numbers[: rows.count] == number)
            hashes = np.full(len(mine), layout.HASH_INIT, np.uint64)
            for hash_field, index in zip(hidden, record_layout.record.hashed_columns, strict=False):
                positions, lengths = self._builder.view_payloads(hash_field.name, rows.count)
                is_map = record_layout.record.columns[index].type == "map"
                k.hash_payloads(rows.window, positions[mine], lengths[mine], is_map, hashes)
            computed = hashes.astype(np.uint32).view(np.int32)
            for row in np.flatnonzero(computed != stored[mine]).tolist():
                damage = (int(ContainerDamageKind.HASH_MISMATCH), str(stored[mine[row]]), int(computed[row]))
                marks.errors_by_row.setdefault(int(mine[row]), damage)


class ContainersWalk(Walk):
    """Pass that makes a row per container."""

    def __init__(
        self, fragment: ContainerRange, source: Source, schema: pa.Schema, findings: Findings, *, records: bool = True
    ) -> None:
        tables = Tables([None], np.zeros(layout.MAX_SCHEMA_ID + 1, np.int16), plain=fragment.selection.plain)
        super().__init__(fragment, source, schema, findings, tables)
        self.starts = Column(np.int64, self.capacity).values
        self.containers = np.zeros(len(self.starts), k.CONTAINER)
        self._counts = records

    def _run_kernel(self, window: Window) -> int:
        out = k.Containers(self.containers, self.starts, self.events, self._counts)
        return int(k.read_containers(window, self.state, out, self.rules))

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        containers = self.containers[:rows]
        columns = {
            "timestamp": containers["time"],
            "num_bytes": containers["end"] - containers["start"] - layout.LENGTH_SIZE,
            "num_records": containers["records"],
            "unused_bytes": containers["following"] - containers["end"],
        }
        requested = (field for field in self._schema if field.name in columns)
        arrays = {field.name: make_fixed_array(field.type, columns[field.name].copy()) for field in requested}
        starts = containers["start"]
        yield (
            rows,
            assemble(self._schema, rows, arrays, self.path, lambda: make_fixed_array(pa.int64(), starts.copy())),
        )

    def reset(self) -> None:
        """Do nothing: batches hold copies."""

    def iterate_containers(self) -> Iterator[Any]:
        """Yield the containers, as `CONTAINER` records."""
        for _ in self.read_batches():
            yield from self.containers[: int(self.state.rows)]


@dataclass(frozen=True)
class ContainerRange(FileRange):
    """The containers of one file that start in `[start, end)`.

    Attributes:
        file: The file; its size is where this scan takes it to end.
        start: Where a container starts.
        end: Where one starts, or the size of the file.
        step: Bytes of whole containers; 0 while unknown.
        selection: Which schemas are read.
        fields: The columns of the view, and those that can be asked for besides.
        pool: Memory that walks over ranges leave to those over others.
        resumed: Whether an earlier pass has read up to `start`, when the file held no more.
        doubts: How many doubtful containers are before `start`; see `sawlog.filodb.framing`.
    """

    step: int
    selection: Selection
    fields: tuple[ViewField, ...]
    pool: Pool = field(default_factory=Pool, repr=False, compare=False)
    resumed: bool = False
    doubts: int = 0

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Decode rows. With all columns, or none, every byte of a record is checked, else only theirs."""
        with closing(self.scan.storage.open(self.path)) as source:
            if self.scan.view == "frames":
                yield from ContainersWalk(self, source, schema, findings).read_batches()
                return
            yield from RowsWalk(self, source, schema, findings).read_batches()

    def walk_containers(self, source: Source) -> ContainersWalk:
        """Return a walk over the containers only: their records are skipped."""
        return ContainersWalk(self, source, pa.schema([]), Findings("skip"), records=False)
