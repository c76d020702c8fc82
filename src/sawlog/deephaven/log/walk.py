"""Passes over a range of a log's entries: as rows, as a list, and in search of cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.chain.kernels import END, FULL, MORE, Window
from sawlog.chain.walk import ChainWalk, Span, WalkEvent
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.batches import RowBatch, describe_columns
from sawlog.deephaven.log.header import Header
from sawlog.deephaven.log.kernels import digest, gather, rows, scan
from sawlog.deephaven.log.kernels import judge as k
from sawlog.deephaven.log.layout import BinaryLogDamageKind
from sawlog.deephaven.log.options import ReadOptions
from sawlog.errors import SawlogError
from sawlog.format.damage import MAX_LISTED, UNSUPPORTED, Damage, Findings, Tail, TailStatus
from sawlog.storage import Source

SUSPICIOUS_BYTES = 4 * k.REACH
"""Bytes of a file that the kernel sees while it searches, so that chains of entries can be followed far ahead."""
_NEARBY_BYTES = k.REACH + (1 << 20)
"""Likewise where an entry is thought to be near."""
_ENTRY_ROWS = 64 << 10
"""Entries that are listed at a time."""
_NOTES = {
    "orphan_rows": "orphan_rows",
    "aborted_rows": "aborted_rows",
    "deleted_rows": "deleted_rows",
    "commands_without_digest": "undigested",
}
"""Notes of a report, and the fields of the state that count them."""


def locate_values(header: Header, body: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield, for each value in the body of an intact row, the place of its stored column, its start and its end."""
    position = header.presence_bytes
    for place, column in enumerate(header.stored):
        byte, bit = divmod(place, layout.PRESENCE_BITS)
        if body[byte] >> bit & 1:
            start = position
            position = start + column.width if column.width else layout.VALUE.find_ends(body, start)[1]
            yield place, start, position


class DeletionFoundError(SawlogError):
    """A reader that expected none has found a DELETE_PARTITION."""


@dataclass(frozen=True, slots=True)
class Remarkable:
    """A set of rows that is no damage and yet not as it should be.

    Attributes:
        salvaged: Whether its rows were delivered although it lacks a member; else it was aborted.
        start: Its first byte.
        end: The byte after it.
    """

    salvaged: bool
    start: int
    end: int


class Entries(NamedTuple):
    """Range of entries that is walked, its bytes, its header and its options.

    Attributes:
        span: The range: from the end of the header, or an entry that begins a set, to another one, or the file's end.
        source: The bytes of the file.
        header: Its header.
        options: How entries are judged.
    """

    span: Span
    source: Source
    header: Header
    options: ReadOptions


class LogWalk(ChainWalk):
    """Pass over a range of entries.

    Args:
        entries: Those of the range.
        findings: Receives what is found.
        columns: What kernels know of the stored columns; by default that none is wanted.
        max_rows: Rows, entries or cuts that are found before a hand-over.
        event_room: See `ChainWalk`.
        live_from: Rows before this byte were deleted by a later DELETE_PARTITION.
        verify: Whether digests are verified; None: as the options say.
    """

    kinds: ClassVar = BinaryLogDamageKind
    torn: ClassVar = "the file ends inside an entry"

    def __init__(
        self,
        entries: Entries,
        findings: Findings,
        *,
        columns: Any = None,
        max_rows: int,
        event_room: int | None = None,
        live_from: int = 0,
        verify: bool | None = None,
    ) -> None:
        span, source, header, options = entries
        fields = dict.fromkeys(("following", "origin", "set_start", "last_delete", "cut"), -1)
        fields["target"] = span.file.size
        super().__init__(span, source, findings, k.STATE, max_rows=max_rows, event_room=event_room, **fields)
        if source.size < span.file.size:
            raise SawlogError(f"{self.path}: the file shrank from {span.file.size} to {source.size} bytes")
        self.header = header
        self._force = "unknown_versions" in options.salvage
        stored = describe_columns(header) if columns is None else columns
        self._rules = k.Rules(
            longest=np.uint64(options.max_item_bytes),
            verify=options.verify_checksums if verify is None else verify,
            vouched=options.verify_checksums,
            strict=options.strict,
            presence=np.int64(header.presence_bytes),
            columns=stored,
            places=np.zeros((len(stored) + 1) * gather.CHUNK, np.uint32),
            totals=np.zeros(1, np.uint64),
            weights=np.zeros(1, np.uint64),
            live_from=np.uint64(live_from),
            emit="incomplete" in options.salvage,
            applies_deletes=options.deletes == "apply",
            notes_aborted=findings.drained,
        )

    def prepare_rules(self) -> k.Rules:
        """Return rules of the kernel. Once a file has shown damage, there is room for the sums that bound its cost."""
        if self.state.sums_wanted and len(self._rules.totals) < 2:
            steps = min(digest.SUMMED_BYTES, max(self.span.file.size, 1)) // digest.STEP + 2
            self._rules = self._rules._replace(totals=np.zeros(steps, np.uint64), weights=np.zeros(steps, np.uint64))
        return self._rules

    def choose_window_length(self, position: int) -> int:
        length = super().choose_window_length(position)
        return max(length, SUSPICIOUS_BYTES) if self.state.lost >= 0 else length

    def reset(self) -> None:
        """Do nothing: no rows are in memory."""

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        if self.span.start == self.header.size:
            self._account_for_header()
        yield from super().read_batches()

    def _account_for_header(self) -> None:
        """Report records of unknown types as unsupported; a wrong digest as damage where listed, else a warning."""
        length = layout.DIGEST_SIZE if not self.header.digest and not self.fails else 0
        places = () if self._force else self.header.places
        self.state.header_bytes = self.header.size - length - sum(size for _, size in places)
        for (kind, _), (offset, size) in zip(self.header.unknown, places, strict=False):
            detail = (
                f"a header record of type {kind}; types 1 to 3 are known: what it says of the rows is not applied;"
                ' salvage="unknown_versions" takes it for nothing that they need'
            )
            self.findings.add_damage(Damage(self.path, offset, size, UNSUPPORTED, detail))
        if length:
            offset, damage_kind = self.header.size - length, BinaryLogDamageKind.HEADER_DIGEST.label
            self.findings.add_damage(Damage(self.path, offset, length, damage_kind, self.header.notes[0]))


class RowWalk(LogWalk):
    """Pass over a range as rows.

    Args:
        batch: Where rows go.
        optimistic: Whether to raise `DeletionFoundError` at the first DELETE_PARTITION.

    Attributes:
        most_rows: Rows before a hand-over, if not as many as the batch has room for.
        remarkable: Where damage is drained: ranges that are not to be copied as they are, in order.
        bad_values: Likewise: values that could not be decoded: offset of the row, place among the stored columns.
    """

    def __init__(
        self, entries: Entries, findings: Findings, batch: RowBatch, live_from: int = 0, *, optimistic: bool = False
    ) -> None:
        super().__init__(entries, findings, columns=batch.columns, max_rows=batch.max_rows, live_from=live_from)
        if self.fails:
            # Neighbouring rows of a broken set are one event, which is complete when another one follows.
            self.state.max_events = 2
        options = entries.options
        self._incomplete = "emit" if "incomplete" in options.salvage else options.incomplete
        self._batch = batch
        self._optimistic = optimistic
        self._fixed = np.zeros(len(entries.header.stored) + 1, np.int64)
        self._unfinished = 0
        self._rows_before: int | None = None
        self._complaints_left = MAX_LISTED
        self.starts = batch.starts
        self.most_rows: int | None = None
        self.remarkable: list[Remarkable] = []
        self.bad_values: list[tuple[int, int]] = []

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        self._reset_batch()
        yield from super().read_batches()

    @property
    def between_sets(self) -> bool:
        """Whether the walk is where another one may begin, and finds what this one does."""
        state = self.state
        inside = state.set_start >= 0 or state.position < max(state.trusted, state.doomed)
        return not (inside or state.orphaned or state.lost >= 0)

    def read(self, window: Window) -> int:
        batch = self._batch
        if self._rows_before is not None:  # not before there is more to read
            batch.adapt(self._rows_before)
            self._rows_before = None
            self._reset_batch()
        out = rows.Out(batch.arena, batch.scratch, batch.starts, self._fixed, self.events)
        status = int(rows.decode_rows(window, self.state, out, self.prepare_rules()))
        if self._optimistic and self.state.last_delete >= 0:
            raise DeletionFoundError(f"{self.path}: a DELETE_PARTITION ends at byte {self.state.last_delete}")
        return status

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not rows:
            return
        # All that was gathered, though rows after damage may not be wanted.
        batch = self._batch.build(int(self.state.rows))
        for bad in self._batch.bad_values:
            row_start = int(self.starts[bad.row])
            if self.fails:
                rows = min(rows, bad.row)
            if self.findings.drained:
                self.bad_values.append((row_start, bad.place))
            elif self._complaints_left == 0:
                self.findings.tally(BinaryLogDamageKind.BAD_VALUE.label, 1, bad.length)
                self._complained_bytes += bad.length
                continue
            else:
                self._complaints_left -= 1
            size = int.from_bytes(self.source.read_window(row_start, layout.SIZE_SIZE).tobytes(), "big")
            body_start = row_start + layout.SIZE_SIZE + layout.FLAGS_SIZE
            body = self.source.read_window(body_start, size - layout.FLAGS_SIZE).tobytes()
            offset = next(start for place, start, _ in locate_values(self.header, body) if place == bad.place)
            self.complain(BinaryLogDamageKind.BAD_VALUE, body_start + offset, bad.length, bad.reason)
        yield rows, batch.slice(0, rows)

    def grow(self) -> None:
        self._batch.grow()
        self._reset_batch()

    def reset(self) -> None:
        self._rows_before = int(self.state.rows)

    def _reset_batch(self) -> None:
        room = self._batch.max_rows
        self.state.max_rows = room if self.most_rows is None else min(room, self.most_rows)
        self.starts = self._batch.starts

    def note_event(self, event: WalkEvent) -> None:
        """Note what became of a set."""
        if event.kind == rows.SALVAGED:
            self.findings.notes["salvaged_rows"] += event.one
        if self.findings.drained:
            self.remarkable.append(Remarkable(event.kind == rows.SALVAGED, event.offset, event.offset + event.length))

    def close(self) -> bool:
        """Decide what becomes of a set that has no end; return whether the walk goes on."""
        state = self.state
        start, count = int(state.set_start), int(state.set_rows)
        if start < 0:
            return False
        end = int(state.position)
        if self.span.end < self.span.file.size:
            # The next range begins with an entry that begins a set.
            self._remember(False, start, end)
            state.aborted_rows += count
            state.record_bytes += end - start
            state.set_start = -1
            return False
        end = next((int(place) for place in (state.tail, state.zeros) if place >= 0), end)
        if self._incomplete == "drop":
            self._unfinished = count
            return False
        state.set_start = -1
        if self._incomplete == "error":
            kind = BinaryLogDamageKind.INCOMPLETE_SET
            self.findings.add_damage(Damage(self.path, start, end - start, kind.label, kind.detail.format(count)))
            return False
        self._remember(True, start, end)
        self.findings.notes["salvaged_rows"] += count
        state.position, state.trusted = start, end
        state.tail = state.zeros = -1
        state.padding_bytes = 0
        return True

    def _remember(self, salvaged: bool, start: int, end: int) -> None:
        if self.findings.drained:
            self.remarkable.append(Remarkable(salvaged, start, end))

    def find_pending(self) -> tuple[int, ...]:
        return int(self.state.set_start), int(self.state.lost)

    def judge_tail(self) -> Tail | None:
        state, size = self.state, self.span.file.size
        if state.set_start >= 0 and (state.position >= size or state.tail >= 0):
            start = int(state.set_start)
            end = int(state.zeros) if state.zeros >= 0 else size
            return Tail(TailStatus.OPEN, start, end - start, f"a set of {int(state.set_rows)} rows so far has no end")
        return super().judge_tail()

    def _account(self) -> None:
        super()._account()
        counts = {note: int(self.state[field]) for note, field in _NOTES.items()}
        self.findings.notes.update({note: count for note, count in counts.items() if count})
        if self._unfinished:
            self.findings.notes["incomplete_rows"] += self._unfinished


class EntryWalk(LogWalk):
    """Pass over a range as a list of its entries.

    Args:
        show: Makes a batch of entries, of `sawlog.deephaven.log.kernels.scan.ENTRY`.
    """

    def __init__(self, entries: Entries, findings: Findings, show: Callable[[Any], pa.RecordBatch]) -> None:
        super().__init__(entries, findings, max_rows=_ENTRY_ROWS)
        self._entries = np.zeros(_ENTRY_ROWS, scan.ENTRY)
        self._show = show
        self.starts = self._entries["offset"]

    def read(self, window: Window) -> int:
        return int(scan.walk_entries(window, self.state, scan.Out(self._entries, self.events), self.prepare_rules()))

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        batch = self._show(self._entries[:rows])
        yield batch.num_rows, batch


class CutWalk(LogWalk):
    """A walk for cuts and deletions, from entry to entry that begins a set.

    Args:
        verify: Whether digests are verified; where damage raises, a plan that leads up to it, or past it, will do.
        stops: Whether to stop after damage.

    Attributes:
        stopped: Whether it has stopped there; then `state.position` is after the damage.
    """

    def __init__(self, entries: Entries, *, verify: bool, stops: bool) -> None:
        super().__init__(entries, Findings("skip"), max_rows=1, event_room=1 if stops else None, verify=verify)
        self._stops = stops
        self._near = False
        self.stopped = False
        self._window: Window | None = None
        self._out = scan.Out(np.zeros(0, scan.ENTRY), self.events)

    def choose_window_length(self, position: int) -> int:
        """Return a search for an entry that is near needs no more than its kernel asks for."""
        return _NEARBY_BYTES if self._near and self.state.lost >= 0 else super().choose_window_length(position)

    def search(self) -> None:
        """Begin with a search for the first good entry, as after damage."""
        self._near = True
        self.state.lost = self.span.start
        self.state.sums_wanted = 1

    def read(self, window: Window) -> int:
        return int(scan.walk_entries(window, self.state, self._out, self.prepare_rules()))

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield nothing: there are no rows."""
        del rows
        yield from ()

    def go_on(self, target: int) -> int | None:
        """Go on to the first entry at or past `target` that begins a set; None if it has stopped before, or ended."""
        state = self.state
        state.target = min(target, self.span.file.size)
        state.cut = -1
        self.stopped = False
        status = MORE if self._window is None else FULL
        while status != END and not self.stopped:
            if status == MORE:
                self._window = self._read_window()
            state.events = 0
            assert self._window is not None
            status = self.read(self._window)
            self.stopped = self._stops and bool(state.events)
        return int(state.cut) if state.cut >= 0 else None
