"""Passes over the containers of a file: they drive the kernels, make batches, and report findings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import constant_string
from sawlog.damage import DAMAGE_SCHEMA, Damage, Findings, Tail, TailStatus
from sawlog.filodb_record import layout
from sawlog.filodb_record.assemble import Gatherer, Marks, Rows
from sawlog.filodb_record.columns import PROVENANCE_FIELDS, TIMESTAMP, ViewField
from sawlog.filodb_record.framing import WINDOW_BYTES, Framing
from sawlog.filodb_record.kernels import frames as f
from sawlog.filodb_record.kernels import records as k
from sawlog.filodb_record.kernels.columns import BLOCK
from sawlog.filodb_record.layout import DETAIL, Kind
from sawlog.format import OFFSET_COLUMN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.filodb_record.fragments import ContainerRange
    from sawlog.filodb_record.options import ReadOptions
    from sawlog.filodb_record.schemas.record import RecordSchema
    from sawlog.filodb_record.selection import Layout, Selection
    from sawlog.storage import Source

BATCH_ROWS = 128 << 10
LARGEST_UNKNOWN = 16 << 20
"""Bytes that a record of an unknown schema can have."""
USUAL_RECORD = 64
"""Bytes that records have at least, mostly: batches of shorter ones have no more rows."""
BATCH_BYTES = 16 << 20
"""Payload bytes per batch, unless one record has more."""
BATCH_BUCKETS = 1 << 20
"""Histogram buckets per batch, unless one record has more."""
EVENT_ROOM = 4096
"""Damages that the kernel writes down before it hands over."""

UNPROVEN = "containers taken for whole by their size alone"
"""Note: nothing behind them proves that what follows their records is unused."""

Event = tuple[int, int, Kind, str]
"""Damage: offset, length, kind, detail."""


def meanings_of(selection: Selection) -> NDArray[np.int16]:
    """What each schema ID means to the kernel."""
    raw = len(selection.layouts)
    meanings = np.full(1 << 16, raw if selection.raw else k.UNKNOWN, np.int16)
    meanings[list(selection.known)] = k.NOT_WANTED if selection.chosen else k.UNEXPECTED
    for number, one in enumerate(selection.layouts):
        meanings[one.schema_id or 0] = number
    return meanings


def schema_table(layouts: Sequence[RecordSchema | None], *, plain: bool) -> NDArray[np.int64]:
    """What the kernel knows of each layout. Records of unknown schemas are as long as a window can hold."""
    least = layout.LENGTH_SIZE + (0 if plain else layout.SCHEMA_ID_SIZE)
    rows = [
        (one.variable_area_start, one.max_record_size) if one is not None else (least, LARGEST_UNKNOWN)
        for one in layouts
    ]
    return np.array(rows, np.int64)


class Walk(ABC):
    """What all passes share: containers, records, damage, and the account of bytes."""

    def __init__(self, fragment: ContainerRange, source: Source, schema: pa.Schema, findings: Findings) -> None:
        self._fragment = fragment
        self._source = source
        self._schema = schema
        self._findings = findings
        self._options: ReadOptions = fragment.scan.options
        self._plain = fragment.selection.plain
        self._framing = Framing(
            source,
            fragment.file.size,
            fragment.start,
            fragment.end,
            fragment.step,
            given=self._options.container_size is not None,
            resumed=fragment.resumed,
        )
        self._layouts = self._record_layouts()
        self._schemas = schema_table(self._layouts, plain=self._plain)
        self._meanings = meanings_of(fragment.selection)
        smallest = int(self._schemas[:, k.SMALLEST].min())
        span = fragment.end - fragment.start
        self._capacity = max(1, min(BATCH_ROWS, WINDOW_BYTES // max(smallest, USUAL_RECORD), span // smallest + 1))
        self._gatherer = Gatherer(
            self._gathered(), self._layouts, self._capacity, self._options, [one.name for one in self._named()]
        )
        self._state = np.zeros(k.STATE_SIZE, np.int64)
        self._starts = np.zeros(self._capacity, np.int64)
        self._which = np.zeros(self._capacity, np.uint8)
        room = 1 if findings.on_damage == "fail" else min(EVENT_ROOM, span // layout.LENGTH_SIZE + 1)
        self._events = np.zeros((room + BLOCK + 1, k.EVENT_FIELDS), np.int64)
        self._failed = np.zeros(2 * BLOCK, np.int64)
        self._picked = np.tile(np.arange(BLOCK, dtype=np.uint64), (2, 1))
        self._window_bytes = max(2 * WINDOW_BYTES, int(self._schemas[:, k.LARGEST].max()) + 64)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches of the pass."""
        try:
            for frames in self._framing.tables():
                yield from self.contents(self._until_damage(frames))
                self._report_frames(frames)
        except OSError as error:
            self._read_error(error)
            return
        self._end()

    # What passes do differently.

    def _record_layouts(self) -> list[RecordSchema | None]:
        layouts: list[RecordSchema | None] = [one.record for one in self._fragment.selection.layouts]
        return [*layouts, None] if self._fragment.selection.raw else layouts

    def _named(self) -> tuple[Layout, ...]:
        return self._fragment.selection.layouts

    @abstractmethod
    def _gathered(self) -> Sequence[ViewField]:
        """The fields that are gathered of each record."""

    @abstractmethod
    def contents(self, frames: Any) -> Iterator[pa.RecordBatch]:
        """The batches of some containers."""

    # Containers.

    def _until_damage(self, frames: Any) -> Any:
        """The containers in front of the first damaged one, where that one ends the pass; else all."""
        damaged = np.flatnonzero(frames.kind)
        return frames[: damaged[0]] if len(damaged) and self._findings.on_damage == "fail" else frames

    def _report_frames(self, frames: Any) -> None:
        """Enter containers into the ledger: headers and unused space, and damage."""
        intact = frames[frames.kind == 0]
        self._findings.account.header += layout.CONTAINER_HEADER_SIZE * len(intact)
        self._findings.account.padding += int((intact.next - intact.end).sum())
        guesses = int(intact.guess.sum())
        if guesses:
            self._findings.notes[UNPROVEN] += guesses
        damaged = frames[frames.kind != 0]
        if not len(damaged):
            return
        # The records of a container may be read, though its header is damaged.
        stops = np.where(damaged.end > damaged.first, damaged.first, damaged.next)
        columns = (
            damaged.kind,
            damaged.start,
            stops - damaged.start,
            np.full(len(damaged), -1),
            damaged.one,
            damaged.two,
        )
        events = np.stack(columns, axis=1)
        if self._take_in_bulk(events):
            return
        for kind, offset, length, *rest in events.tolist():
            self._damage(Kind(kind), offset, length, self._words(kind, *rest)[1])

    # Records.

    def _read(self, frames: Any) -> Iterator[Rows]:
        """Rows of some containers, a batch at a time; they are in the gatherer's memory until the next one."""
        state = self._state
        state[[k.FRAME, k.ROWS, k.EVENTS, k.BYTES, k.BUCKETS]] = 0
        state[[k.POSITION, k.TORN_AT]] = -1
        status = k.MORE
        end = int(frames.end.max(initial=0))
        while status != k.DONE and len(frames):
            base = int(state[k.POSITION])
            base = base if base >= 0 else int(frames.first[int(state[k.FRAME])])
            window = self._source.window(base, min(self._window_bytes, end - base))
            status = self._read_window(window, base, frames)
            yield Rows(window, int(state[k.ROWS]), self._starts, self._which, self._fragment.path)
            state[[k.ROWS, k.EVENTS, k.BYTES, k.BUCKETS]] = 0
            self._gatherer.renew()

    def _read_window(self, window: NDArray[np.uint8], base: int, frames: Any) -> int:
        """Read a batch of records from a window; what `read_records` returns."""
        return int(k.read_records(*self._arguments(window, base, frames)))

    def _arguments(self, window: NDArray[np.uint8], base: int, frames: Any) -> tuple[Any, ...]:
        return (
            window,
            np.uint64(base),
            f.handed(frames),
            self._plain,
            self._meanings,
            self._schemas,
            self._gatherer.ops,
            np.int64(BATCH_BYTES),
            np.int64(BATCH_BUCKETS),
            self._state,
            self._starts,
            self._which,
            self._gatherer.arena,
            self._gatherer.scratch,
            self._events,
            self._failed,
            self._picked,
        )

    def _events_of(self, marks: Marks) -> list[Event]:
        """Damage of a batch in order: offset, length, kind, detail."""
        found: list[Event] = []
        for kind, offset, length, column, one, two in self._events[: int(self._state[k.EVENTS])].tolist():
            found.append((offset, length, *self._words(kind, column, one, two)))
        for row, (kind, name, place) in marks.found.items():
            start = int(self._starts[row])
            size = int.from_bytes(self._source.window(start, layout.LENGTH_SIZE), "little") + layout.LENGTH_SIZE
            found.append((start, layout.align(size), Kind(kind), DETAIL[Kind(kind)].format(name, place)))
        return sorted(found)

    def _take_in_bulk(self, events: NDArray[np.int64]) -> bool:
        """Tell of what the kernel met without a word for each, where nobody wants one; whether that was done."""
        findings = self._findings
        if findings.columns is None and findings.listing:
            return False
        if findings.columns is not None:
            findings.columns.append(self._damage_columns(events))
        for kind in np.unique(events[:, 0]).tolist():
            lengths = events[events[:, 0] == kind, 2]
            findings.tally(Kind(kind).name.lower(), len(lengths), int(lengths.sum()))
        return True

    def _damage_columns(self, events: NDArray[np.int64]) -> pa.RecordBatch:
        """Events as columns of `DAMAGE_SCHEMA`; what many of them say is put into words once."""
        said, places = np.unique(events[:, [0, 3, 4, 5]], axis=0, return_inverse=True)
        words = [self._words(*one) for one in said.tolist()]
        indices = pa.array(places.reshape(-1))
        arrays = [
            constant_string(self._fragment.path, len(events)),
            pa.array(events[:, 1]),
            pa.array(events[:, 2]),
            pa.array([kind.name.lower() for kind, _ in words], pa.string()).take(indices),
            pa.array([detail for _, detail in words], pa.string()).take(indices),
            pa.nulls(len(events), pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=DAMAGE_SCHEMA)

    def _words(self, kind: int, column: int, one: int, two: int) -> tuple[Kind, str]:
        """The kind of an event, and what it says."""
        if kind == Kind.BAD_RECORD_LENGTH:
            two = self.place(two)
        given = (self._gatherer.fields[column].name, one) if column >= 0 else (one, two)
        return Kind(kind), DETAIL[Kind(kind)].format(*given)

    def place(self, offset: int) -> int:
        """How an offset is told."""
        return offset

    def _settle(self, rows: Rows, marks: Marks) -> tuple[NDArray[np.bool_] | None, list[Event]]:
        """Which rows to deliver (None: all), and the damage to report behind them."""
        if not marks.found and self._state[k.EVENTS] and self._take_in_bulk(self._events[: int(self._state[k.EVENTS])]):
            return None, []
        events = self._events_of(marks) if marks.found or self._state[k.EVENTS] else []
        if not events:
            return None, events
        keep = np.ones(rows.count, np.bool_)
        keep[list(marks.found)] = False
        if self._findings.on_damage == "fail":
            keep &= self._starts[: rows.count] < events[0][0]
        return keep, events

    def _uncount(self, events: list[Event], marks: Marks) -> None:
        """Bytes of records that turned out damaged are no record bytes."""
        starts = {int(self._starts[row]) for row in marks.found}
        self._state[k.RECORD_BYTES] -= sum(length for offset, length, *_ in events if offset in starts)

    def _report(self, events: list[Event]) -> None:
        for offset, length, kind, detail in events:
            self._damage(kind, offset, length, detail)

    def _damage(self, kind: Kind, offset: int, length: int, detail: str) -> None:
        self._findings.damage(Damage(self._fragment.path, offset, length, kind.name.lower(), detail))

    def _read_error(self, error: OSError) -> None:
        """What cannot be read is damage up to the end of the range."""
        position = max(int(self._state[k.POSITION]), self._fragment.start)
        self._damage(Kind.READ_ERROR, position, self._fragment.end - position, str(error))

    def _end(self) -> None:
        """Enter the bytes of records, and, at the end of the file, the state of its tail."""
        account = self._findings.account
        account.record += int(self._state[k.RECORD_BYTES])
        account.padding += self._framing.skipped
        size = self._fragment.file.size
        position = self._framing.position
        if self._framing.tail == f.NO_TAIL and position < size:
            return
        tail = Tail(TailStatus.CLEAN, size, 0)
        if self._framing.tail == f.TORN_HEADER:
            tail = Tail(TailStatus.TORN, position, size - position, "the file ends inside a container's header")
        elif self._framing.tail == f.TORN_CONTAINER:
            torn = int(self._state[k.TORN_AT])
            torn = torn if torn >= 0 else size
            tail = Tail(TailStatus.TORN, torn, size - torn, "the file ends inside a container")
        elif self._framing.tail == f.TORN_REST:
            detail = "the file ends behind the records of a container, in what may be its unused rest"
            tail = Tail(TailStatus.TORN, position, size - position, detail)
        elif self._framing.tail == f.UNUSED:
            tail = Tail(TailStatus.PADDING, position, size - position, "unused space")
            account.padding += tail.length
        if tail.unfinished:
            account.tail += tail.length
        self._findings.tail = tail


class RowsWalk(Walk):
    """One row per record."""

    def _gathered(self) -> Sequence[ViewField]:
        """The wanted fields; for the ledger alone, all columns of the records."""
        self._hidden = self._hash_fields() if self._options.verify_hashes and not self._plain else ()
        if not len(self._schema):
            return (*(one for one in self._fragment.fields if one.sources), *self._hidden)
        every = {one.name: one for one in (*self._fragment.fields, *PROVENANCE_FIELDS)}
        self._wanted = [every[name] for name in self._schema.names]
        return (*self._wanted, *self._hidden)

    def contents(self, frames: Any) -> Iterator[pa.RecordBatch]:
        """See `Walk.contents`."""
        for rows in self._read(frames):
            marks = Marks()
            if self._hidden:
                self._verify_hashes(rows, marks)
            if len(self._schema):
                arrays = self._gatherer.arrays(rows, marks)[: len(self._schema)]
                batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            else:
                self._gatherer.check(rows, marks)
                batch = pa.RecordBatch.from_pylist([], self._schema)
            keep, events = self._settle(rows, marks)
            delivered = rows.count
            if keep is not None:
                delivered = int(keep.sum())
                if len(self._schema):
                    batch = batch.filter(pa.array(keep))
                self._uncount(events, marks)
            self._findings.rows += delivered
            yield batch
            self._report(events)

    def _hash_fields(self) -> tuple[ViewField, ...]:
        """Payloads that make up the hash, per layout, and the stored hash."""
        count = max(len(schema.hashed_columns) for schema in self._record_layouts() if schema is not None)
        fields = [ViewField("#hash", "hash", (), pa.field("#hash", pa.int32()))]
        for i in range(count):
            sources = tuple(
                one.record.hashed_columns[i] if i < len(one.record.hashed_columns) else None for one in self._named()
            )
            fields.append(ViewField(f"#{i}", "string", sources, pa.field(f"#{i}", pa.binary())))
        return tuple(fields)

    def _verify_hashes(self, rows: Rows, marks: Marks) -> None:
        stored = self._gatherer.fixed("#hash", np.int32, rows.count)
        hidden = self._hidden[1:]
        for number, one in enumerate(self._named()):
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

    def _record_layouts(self) -> list[RecordSchema | None]:
        return [None]

    def _named(self) -> tuple[Layout, ...]:
        return ()

    def _gathered(self) -> Sequence[ViewField]:
        return ()

    def contents(self, frames: Any) -> Iterator[pa.RecordBatch]:
        """See `Walk.contents`."""
        self._meanings[:] = 0
        counts = np.zeros(len(frames), np.int64)
        events: list[Event] = []
        for rows in self._read(frames):
            k.count_records(self._starts[: rows.count], f.handed(frames), counts)
            events += self._settle(rows, Marks())[1]
            if events and self._findings.on_damage == "fail":
                break
        # Whether a container is complete is only known at its end.
        wanted = (frames.torn == 0) & ((frames.kind == 0) | (frames.end > frames.first))
        if events and self._findings.on_damage == "fail":
            wanted &= frames.start < events[0][0]
        frames, counts = frames[wanted], counts[wanted]
        self._findings.rows += len(frames)
        columns = {
            "timestamp": (TIMESTAMP, frames.time),
            "num_bytes": (pa.int64(), frames.end - frames.start - layout.LENGTH_SIZE),
            "num_records": (pa.int64(), counts),
            "unused_bytes": (pa.int64(), frames.next - frames.end),
            OFFSET_COLUMN: (pa.int64(), frames.start),
        }
        arrays = []
        for name in self._schema.names:
            if name in columns:
                kind, values = columns[name]
                arrays.append(pa.Array.from_buffers(kind, len(frames), [None, pa.py_buffer(values.copy())]))
            else:
                arrays.append(pa.repeat(pa.scalar(self._fragment.path, pa.string()), len(frames)))
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._report(events)
