"""Passes over the containers of a file: what the shared walk over a chain needs of this format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import constant_string
from sawlog.chain.kernels import FULL, Window
from sawlog.chain.walk import ChainWalk, Event, Span
from sawlog.filodb_record import layout
from sawlog.filodb_record.assemble import Gatherer, Marks, Rows
from sawlog.filodb_record.columns import PROVENANCE_FIELDS, TIMESTAMP, ViewField
from sawlog.filodb_record.judge import PLAIN_WORD
from sawlog.filodb_record.kernels import chain as k
from sawlog.filodb_record.kernels import state as s
from sawlog.filodb_record.kernels.columns import BLOCK
from sawlog.filodb_record.kernels.hidden import Events, hunts, read_hidden
from sawlog.filodb_record.kernels.maps import PRESENT, UNSURE
from sawlog.filodb_record.kernels.records import Out
from sawlog.filodb_record.kernels.settle import LOOK
from sawlog.filodb_record.layout import DETAIL, Kind
from sawlog.format import OFFSET_COLUMN
from sawlog.query import conditions
from sawlog.storage import sources

if TYPE_CHECKING:
    from sawlog.damage import Findings
    from sawlog.filodb_record.fragments import ContainerRange
    from sawlog.filodb_record.options import ReadOptions
    from sawlog.filodb_record.schemas.record import RecordSchema
    from sawlog.filodb_record.selection import Layout, Selection
    from sawlog.query import Condition
    from sawlog.storage import Source

WINDOW_BYTES = 4 * sources.WINDOW_BYTES
"""Bytes of the file that the kernel sees at a time. The rows of a window make a batch, and few batches cost least."""
BATCH_ROWS = 128 << 10
LARGEST_UNKNOWN = 16 << 20
"""Bytes that a record of an unknown schema can have."""
USUAL_RECORD = 128
"""Bytes that records have at least, mostly: batches of shorter ones have no more rows."""
BATCH_BYTES = 16 << 20
"""Payload bytes behind which a batch takes no more rows."""
BATCH_BUCKETS = 1 << 20
"""Histogram buckets behind which a batch takes no more rows."""
EVENT_ROOM = 4096
"""Damages that the kernel writes down before it hands over."""
MANY_HIDDEN = 20_000
"""Hidden containers of a walk behind which it is worth compiling a kernel that reads them with the others."""

UNPROVEN = "containers taken for whole by their size alone"
"""Note: nothing behind them proves that what follows their records is unused."""

_NO_BOUNDS = np.zeros(0, np.int64)
_TORN = {
    s.TORN_HEADER: "the file ends inside a container's header",
    s.TORN_CONTAINER: "the file ends inside a container",
    s.TORN_REST: "the file ends behind the records of a container, in what may be its unused rest",
}


def meanings_of(selection: Selection) -> Any:
    """What each schema ID means to the kernel."""
    raw = len(selection.layouts)
    meanings = np.full(1 << 16, raw if selection.raw else s.UNKNOWN, np.int16)
    meanings[list(selection.known)] = s.NOT_WANTED if selection.chosen else s.UNEXPECTED
    for number, one in enumerate(selection.layouts):
        meanings[one.schema_id or 0] = number
    return meanings


def sizes_of(layouts: Sequence[RecordSchema | None], *, plain: bool) -> list[tuple[int, int]]:
    """How many bytes the records of each layout have. Those of unknown schemas are as long as a window can be."""
    least = layout.LENGTH_SIZE + (0 if plain else layout.SCHEMA_ID_SIZE)
    return [
        (one.variable_area_start, one.max_record_size) if one is not None else (least, LARGEST_UNKNOWN)
        for one in layouts
    ]


class Walk(ChainWalk):
    """What all passes share: the rules by which containers and records are judged, and how the file ends.

    Args:
        fragment: What is read.
        source: Its bytes.
        schema: The columns to deliver.
        findings: Where damage, rows and bytes are told.
        layouts: The layouts that records can have; None for those of unknown schemas, which are only bytes.
        meanings: What each schema ID means to the kernel.
        bounds: Where each value begins, and the last one ends, where the bytes are those of a column of values.
        records: Whether records are read.
    """

    kinds: ClassVar = Kind
    details: ClassVar = DETAIL
    unsupported: ClassVar = frozenset({Kind.UNKNOWN_SCHEMA, Kind.UNKNOWN_VERSION, Kind.UNKNOWN_HISTOGRAM})
    events_per_step: ClassVar = BLOCK
    window_passes: ClassVar = True

    def __init__(
        self,
        fragment: ContainerRange,
        source: Source,
        schema: pa.Schema,
        findings: Findings,
        layouts: Sequence[RecordSchema | None],
        meanings: Any,
        *,
        bounds: Any = None,
        records: bool = True,
    ) -> None:
        options: ReadOptions = fragment.scan.options
        self._fragment = fragment
        self._schema = schema
        self._layouts = layouts
        plain = fragment.selection.plain
        sizes = sizes_of(layouts, plain=plain)
        smallest = min(least for least, _ in sizes)
        span = fragment.end - fragment.start
        capacity = max(1, min(BATCH_ROWS, WINDOW_BYTES // max(smallest, USUAL_RECORD), span // smallest + 1))
        room = min(EVENT_ROOM, span // layout.LENGTH_SIZE + 1)
        owned = Span(fragment.file, fragment.start, fragment.end)
        super().__init__(owned, source, findings, s.STATE, max_rows=capacity, event_room=room)
        self._hunts = 0
        self.state.step = fragment.step
        self.state.clear_from = self.state.clear_to = self.state.broken = self.state.hider = -1
        self.starts = np.zeros(capacity, np.int64)
        flagged = _first_word(source, fragment.file.size)
        if bounds is None:
            # Containers begin in these words, and records with their lower halves as schema IDs.
            doubted = [word & layout.MAX_SCHEMA_ID for word in {PLAIN_WORD, flagged}]
            meanings[doubted] = s.DOUBTED - meanings[doubted]
        self.rules = s.Rules(
            plain,
            meanings,
            s.schema_table(sizes),
            options.container_size is not None,
            np.int64(flagged),
            np.int64(fragment.start if fragment.resumed else -1),
            np.uint64(WINDOW_BYTES // 4),
            _NO_BOUNDS if bounds is None else bounds,
            records,
            np.int64(BATCH_BYTES),
            np.int64(BATCH_BUCKETS),
        )

    def walked(self, read: Callable[[], int], window: Window) -> int:
        """What a kernel ends with, while another one opens the containers that are hidden from it."""
        state = self.state
        status = read()
        while status == FULL and hunts(state) and state.rows < state.max_rows and state.events < state.max_events:
            self._hunts += 1
            status = int(read_hidden(window, state, Events(self.events), self.rules))
            if status == FULL and not hunts(state):
                status = read()
        return status

    @property
    def hides_many(self) -> bool:
        """Whether so many containers are hidden that one kernel had better read them with the others."""
        return self._hunts > MANY_HIDDEN

    def window_length(self, position: int) -> int:
        """See `ChainWalk.window_length`. Behind the range, what settles its last container is looked at."""
        return min(WINDOW_BYTES, max(self.span.end - position, 0) + LOOK)

    def pending(self) -> tuple[int, ...]:
        """See `ChainWalk.pending`: a container that is being settled, or what is hidden in it."""
        state = self.state
        if state.phase in (s.AT_HEADER, s.READING):
            return (-1,)
        return (int(state.broken if state.phase == s.HUNTING else state.container),)

    @property
    def torn(self) -> str:  # type: ignore[override]
        """See `ChainWalk.torn`."""
        return _TORN[int(self.state.ending)]

    def _account(self) -> None:
        guesses = int(self.state.guesses)
        if guesses:
            self.findings.notes[UNPROVEN] += guesses
        super()._account()


class RecordsWalk(Walk):
    """What passes over records share: the columns that are gathered of them."""

    def __init__(
        self, fragment: ContainerRange, source: Source, schema: pa.Schema, findings: Findings, *, bounds: Any = None
    ) -> None:
        selection = fragment.selection
        layouts: list[RecordSchema | None] = [one.record for one in selection.layouts]
        if selection.raw:
            layouts.append(None)
        super().__init__(fragment, source, schema, findings, layouts, meanings_of(selection), bounds=bounds)
        capacity = len(self.starts)
        self._named: tuple[Layout, ...] = selection.layouts
        self._gatherer = Gatherer(
            self._gathered(), layouts, capacity, fragment.scan.options, [one.name for one in self._named]
        )
        self._which = np.zeros(capacity, np.uint8)
        self._picked = np.tile(np.arange(BLOCK, dtype=np.uint64), (2, 1))

    @abstractmethod
    def _gathered(self) -> Sequence[ViewField]:
        """The fields that are gathered of each record."""

    @abstractmethod
    def _batch(self, rows: Rows, marks: Marks) -> pa.RecordBatch:
        """The columns of the schema, if there are any, and marks of the rows that turn out damaged."""

    def read(self, window: Window) -> int:
        """See `ChainWalk.read`."""
        self._window_data = window.data
        self._base = int(window.base)
        out = Out(self.starts, self._which, self._gatherer.memory, self._picked, self.events)
        return self.walked(lambda: self._read(window, out), window)

    def _read(self, window: Window, out: Out) -> int:
        files = k.read_all_records if self.hides_many else k.read_records
        read = k.read_values if len(self.rules.bounds) else files
        return int(read(window, self.state, out, self.rules))

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See `ChainWalk.deliver`."""
        if not rows:
            return
        marks = Marks()
        chosen = self._chosen(Rows(self._window_data, rows, self.starts, self._which, self.path))
        batch = self._batch(chosen, marks)
        if marks.found:
            keep = np.ones(chosen.count, np.bool_)
            keep[list(marks.found)] = False
            for row, found in marks.found.items():
                self._complain(row, *found)
            if self.fails:
                keep[min(marks.found) :] = False
            rows -= chosen.count - int(keep.sum())
            batch = batch.filter(pa.array(keep)) if len(self._schema) else batch
        yield rows, batch

    def _chosen(self, rows: Rows) -> Rows:
        """The rows that filters leave, as far as they are decided before anything is decoded."""
        return rows

    def _complain(self, row: int, kind: int, name: str, place: int) -> None:
        start = int(self.starts[row])
        at = start - self._base
        size = layout.LENGTH.of(self._window_data, at) + layout.LENGTH_SIZE
        self.complain(Kind(kind), start, layout.align(size), DETAIL[Kind(kind)].format(name, place))

    def renew(self) -> None:
        """See `ChainWalk.renew`."""
        self._gatherer.renew()
        self.state.payload_bytes = self.state.buckets = 0

    def describe(self, event: Event) -> str:
        """See `ChainWalk.describe`: what is wrong in a column is told by its name."""
        if event.kind == Kind.BAD_POINTER:
            return DETAIL[Kind.BAD_POINTER].format(self._gatherer.fields[event.one].name, event.two)
        return super().describe(event)


class RowsWalk(RecordsWalk):
    """One row per record."""

    def _gathered(self) -> Sequence[ViewField]:
        """The wanted fields; for the ledger alone, all columns of the records."""
        options: ReadOptions = self._fragment.scan.options
        self._hidden = self._hash_fields() if options.verify_hashes and not self.rules.plain else ()
        self._conditions: list[Condition] = []
        if not len(self._schema):
            return (*(one for one in self._fragment.fields if one.sources), *self._hidden)
        every = {one.name: one for one in (*self._fragment.fields, *PROVENANCE_FIELDS)}
        if not self._hidden:
            query = self._fragment.projection.query
            maps = {name for name in self._schema.names if every[name].kind == "map"}
            self._conditions = [
                one
                for one in conditions(query)
                if one.key is not None and one.column in maps and one.op != "is null" and None not in one.values
            ]
        return (*(every[name] for name in self._schema.names), *self._hidden)

    def _chosen(self, rows: Rows) -> Rows:
        """See `RecordsWalk._chosen`: by single labels. Maps that are damaged are left to be told."""
        for condition in self._conditions:
            values, state = self._gatherer.labels(condition.column, (condition.key or "").encode(), rows)
            distinct = values.dictionary_encode()
            try:
                met = condition.met(distinct.dictionary.cast(self._schema.field(condition.column).type.item_type))
            except pa.ArrowInvalid:
                continue  # values that are not UTF-8, which decoding tells
            wanted = np.asarray(met.fill_null(False).take(distinct.indices)) & (state == PRESENT) | (state == UNSURE)
            kept = int(wanted.sum())
            if kept < rows.count:
                self._gatherer.keep(wanted)
                for one in (self.starts, self._which):
                    one[:kept] = one[: rows.count][wanted]
                rows = replace(rows, count=kept)
        return rows

    def _batch(self, rows: Rows, marks: Marks) -> pa.RecordBatch:
        if self._hidden:
            self._verify_hashes(rows, marks)
        if not len(self._schema):
            self._gatherer.check(rows, marks)
            return pa.RecordBatch.from_pylist([], self._schema)
        arrays = self._gatherer.arrays(rows, marks)[: len(self._schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _hash_fields(self) -> tuple[ViewField, ...]:
        """Payloads that make up the hash, per layout, and the stored hash."""
        count = max(len(schema.hashed_columns) for schema in self._layouts if schema is not None)
        fields = [ViewField("#hash", "hash", (), pa.field("#hash", pa.int32()))]
        for i in range(count):
            sources = tuple(
                one.record.hashed_columns[i] if i < len(one.record.hashed_columns) else None for one in self._named
            )
            fields.append(ViewField(f"#{i}", "string", sources, pa.field(f"#{i}", pa.binary())))
        return tuple(fields)

    def _verify_hashes(self, rows: Rows, marks: Marks) -> None:
        stored = self._gatherer.fixed("#hash", np.int32, rows.count)
        hidden = self._hidden[1:]
        for number, one in enumerate(self._named):
            mine = np.flatnonzero(self._which[: rows.count] == number)
            hashes = np.full(len(mine), layout.HASH_INIT, np.uint64)
            for field, index in zip(hidden, one.record.hashed_columns, strict=False):
                positions, lengths = self._gatherer.payloads(field.name, rows.count)
                is_map = one.record.columns[index].type == "map"
                k.hash_payloads(rows.window, positions[mine], lengths[mine], is_map, hashes)
            computed = hashes.astype(np.uint32).view(np.int32)
            for at in np.flatnonzero(computed != stored[mine]).tolist():
                found = (int(Kind.HASH_MISMATCH), str(stored[mine[at]]), int(computed[at]))
                marks.found.setdefault(int(mine[at]), found)


class ContainersWalk(Walk):
    """One row per container."""

    def __init__(
        self,
        fragment: ContainerRange,
        source: Source,
        schema: pa.Schema,
        findings: Findings,
        *,
        records: bool = True,
    ) -> None:
        meanings = np.zeros(1 << 16, np.int16)
        super().__init__(fragment, source, schema, findings, [None], meanings, records=records)
        self.containers = np.zeros(len(self.starts), k.CONTAINER)

    def read(self, window: Window) -> int:
        """See `ChainWalk.read`."""
        out = k.Containers(self.containers, self.starts, self.events)

        def read() -> int:
            kernel = k.read_all_containers if self.hides_many else k.read_containers
            return int(kernel(window, self.state, out, self.rules))

        return self.walked(read, window)

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See `ChainWalk.deliver`."""
        one = self.containers[:rows]
        columns = {
            "timestamp": (TIMESTAMP, one["time"]),
            "num_bytes": (pa.int64(), one["end"] - one["start"] - layout.LENGTH_SIZE),
            "num_records": (pa.int64(), one["records"]),
            "unused_bytes": (pa.int64(), one["following"] - one["end"]),
            OFFSET_COLUMN: (pa.int64(), one["start"]),
        }
        arrays = []
        for name in self._schema.names:
            if name in columns:
                kind, values = columns[name]
                arrays.append(pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values.copy())]))
            else:
                arrays.append(constant_string(self.path, rows))
        yield rows, pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def renew(self) -> None:
        """See `ChainWalk.renew`: batches hold copies."""

    def each(self) -> Iterator[Any]:
        """The containers, as `CONTAINER` records."""
        for _ in self.batches():
            yield from self.containers[: int(self.state.rows)]


def _first_word(source: Source, size: int) -> int:
    """The version word of the file's first container."""
    if size < layout.VERSION_WORD.end:
        return PLAIN_WORD
    return layout.VERSION_WORD.of(source.window(0, layout.VERSION_WORD.end).tobytes())
