"""Driving a walker over a file: windows, hand-over of batches, damage, the tail, and the account of bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, make_constant_string, make_fixed_array
from sawlog.chain import kernels as k
from sawlog.errors import DiskError
from sawlog.format.damage import DAMAGE_SCHEMA, Damage, DamageKind, Findings, Tail, TailStatus
from sawlog.storage import Bytes, File, Source
from sawlog.storage.sources import LEAST_BYTES, WINDOW_BYTES

REST_BYTES = 64 << 10
"""Bytes that a kernel sees past the end of a range, where at most the rest of one thing is to be read."""
EVENT_ROOM = 4096
"""Events that a kernel writes down before it hands over."""


class Span(NamedTuple):
    """Range of a file that a walk owns, and the file's size at the time of the scan."""

    file: File
    start: int
    end: int


class WalkEvent(NamedTuple):
    """Record of a kernel about a place in the file, see `sawlog.chain.kernels.EVENT`."""

    kind: int
    offset: int
    length: int
    dropped: int
    one: int
    two: int


class ChainWalk(ABC):
    """A pass over a range of a file.

    A format's walk sets up what its kernel needs, and implements `read`, `deliver` and `reset`; the other methods may
    be overridden where the format knows better.

    Attributes:
        kinds: The format's kinds of damage; one of them is `READ_ERROR`.
        torn: What is said of a tail that the end of the file cuts off.
        events_per_step: How many events one step of the kernel may record past the limit.
        window_passes: Whether what the kernel writes down points into the window, which then must be handed over first.
        state: The kernel's state, a record. Items of it, as here, are got at in a tenth of the time of attributes.
        events: The kernel's events, an array of records.
        starts: File offset of each row in hand, ascending; the format's to set.
    """

    kinds: ClassVar[type[DamageKind]]
    torn: ClassVar[str] = "the file ends inside a record"
    events_per_step: ClassVar[int] = 4
    window_passes: ClassVar[bool] = False
    starts: NDArray[np.int64]

    def __init__(
        self,
        span: Span,
        source: Source,
        findings: Findings,
        state_type: np.dtype[np.void],
        *,
        max_rows: int,
        event_room: int | None = None,
        **fields: int,
    ) -> None:
        self.span = span
        self.source = source
        self.findings = findings
        # The first damage must stop the kernel where rows after it must not be delivered.
        room = 1 if self.fails else min(event_room or EVENT_ROOM, span.end - span.start + 1)
        self.state = k.make_state(state_type, position=span.start, max_rows=max_rows, max_events=room, **fields)
        self.events = np.zeros(room + self.events_per_step, k.EVENT)
        self._complaints: list[Damage] = []
        self._complained_bytes = 0

    # What a format implements.

    @abstractmethod
    def read(self, window: k.Window) -> int:
        """Call the kernel: MORE, FULL or END.

        Raises:
            DiskError: When it looks at more of the file, which a disk cannot read.
        """

    @abstractmethod
    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return the first `rows` rows in hand as batches, each with the number of its rows.

        A row that cannot be delivered is reported to `complain`; where damage fails, rows after it are not delivered.
        """

    @abstractmethod
    def reset(self) -> None:
        """Take fresh memory for the rows to come, once those in hand are delivered."""

    # What it may override.

    def grow(self) -> None:
        """Take more memory: not even one row has found room."""
        raise AssertionError("a kernel that never asks for more room")

    def close(self) -> bool:
        """Return whether the kernel, which has reached the end, must go on all the same, from `state.position`."""
        return False

    def note_event(self, event: WalkEvent) -> None:
        """Take in what the kernel wrote down that is no damage; called before the rows in hand are delivered."""
        del event

    def describe(self, event: WalkEvent) -> str:
        """Return the detail of an event's damage; it depends on the event's kind and its two numbers only."""
        return self.kinds(event.kind).detail.format(event.one, event.two)

    def choose_window_length(self, position: int) -> int:
        """Return how many bytes from `position` on the kernel needs to see."""
        return min(WINDOW_BYTES, self.span.end - position) if position < self.span.end else REST_BYTES

    def find_pending(self) -> tuple[int, ...]:
        """Return the start of a record that was read in part, -1 for none: unreadable bytes are damage from there."""
        return (int(self.state.lost),)

    def judge_tail(self) -> Tail | None:
        """Return the tail of the file; `None` if the walk has ended before."""
        state, size = self.state, self.span.file.size
        torn, zeros, position = int(state["tail"]), int(state["zeros"]), int(state["position"])
        if torn >= 0:
            return Tail(TailStatus.TORN, torn, size - torn, self.torn)
        if position < size:
            return None
        if zeros >= 0:
            return Tail(TailStatus.PADDING, zeros, size - zeros, "unused space")
        return Tail(TailStatus.CLEAN, size, 0)

    # What all walks share.

    @property
    def fails(self) -> bool:
        """Whether damage raises, and rows after the first damage are not delivered."""
        return self.findings.on_damage == "fail"

    @property
    def path(self) -> str:
        """The file's name, for messages."""
        return self.span.file.path

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range; the findings are complete when they are all taken.

        Raises:
            DamageError: At the first damage, after the rows before it, if damage fails.
        """
        state = self.state
        window = None
        status = k.MORE
        while status != k.END:
            try:
                if window is None or status == k.MORE:
                    window = self._read_window()
                status = self.read(window)
            except DiskError as error:
                yield from self._hand_over()
                self._report_disk_error(error)
                return
            if status == k.FULL and not state["rows"] and not state["events"]:
                self.grow()
            elif status != k.MORE or (self.window_passes and state["rows"]):
                yield from self._hand_over()
            if status == k.END and self.close():
                status = k.MORE
        self._account()

    def complain(self, kind: DamageKind, offset: int, length: int, detail: str) -> None:
        """Report a row that the kernel took and that cannot be delivered; no byte past the end of the file."""
        available = min(length, self.span.file.size - offset)
        self._complaints.append(Damage(self.path, offset, available, kind.label, detail))

    def _read_window(self) -> k.Window:
        position, size = int(self.state["position"]), self.span.file.size
        need = int(self.state["need"])
        length = min(max(self.choose_window_length(position), need), size - position)
        self.state["need"] = 0
        try:
            data = self.source.read_window(position, length)
        except DiskError:  # up to where it cannot be read it is
            data = self._read_longest_window(position, max(need, LEAST_BYTES), length)
        return k.Window(data, np.uint64(position), np.uint64(self.span.end), np.uint64(size))

    def _read_longest_window(self, position: int, min_length: int, length: int) -> Bytes:
        """Return the longest window that can be read of one that cannot, halved until it can.

        Raises:
            DiskError: When its first bytes cannot be read.
        """
        while length // 2 > min_length:
            length //= 2
            with suppress(DiskError):
                return self.source.read_window(position, length)
        return self.source.read_window(position, min(min_length, length))

    def _hand_over(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, then report the damage so far."""
        state = self.state
        rows = int(state["rows"])
        events = self.events[: int(state["events"])]
        if len(events):
            remarks = events["kind"] < 0
            for event in map(WalkEvent._make, events[remarks].tolist()):
                self.note_event(event)
            events = events[~remarks]
        if len(events) and self.fails:
            rows = int((self.starts[:rows] < events["offset"].min()).sum())
        for count, batch in self.deliver(rows):
            self.findings.rows += count
            yield batch
        self.reset()
        state["rows"] = 0
        complaints, self._complaints = self._complaints, []
        if len(events) or complaints:
            self._report(events, complaints)
        state["events"] = 0

    def _report(self, events: Any, complaints: list[Damage]) -> None:
        """Report the damage that the kernel found and the rows that could not be delivered, in reading order."""
        self._complained_bytes += sum(complaint.length for complaint in complaints)
        if self.findings.columns is not None and len(events) and not complaints:
            self.findings.columns.append(self._make_damage_batch(events))
            self._tally(events)
            return
        waiting = sorted(complaints, key=lambda complaint: complaint.offset)
        for index, event in enumerate(map(WalkEvent._make, events.tolist())):
            while waiting and waiting[0].offset < event.offset:
                self.findings.add_damage(waiting.pop(0))
            if not self.findings.listing and not waiting:
                self._tally(events[index:])
                return
            dropped = event.dropped if event.dropped >= 0 else None
            kind, detail = self.kinds(event.kind).label, self.describe(event)
            self.findings.add_damage(Damage(self.path, event.offset, event.length, kind, detail, dropped))
        for complaint in waiting:
            self.findings.add_damage(complaint)

    def _make_damage_batch(self, events: Any) -> pa.RecordBatch:
        """Return events as columns of `DAMAGE_SCHEMA`; what many of them say is put into words once."""
        codes = np.zeros(len(events), np.int64)
        for name in ("kind", "one", "two"):
            distinct, code = np.unique(events[name], return_inverse=True)
            codes = codes * len(distinct) + code
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        described_events = list(map(WalkEvent._make, events[first].tolist()))
        kinds = make_array([self.kinds(event.kind).label for event in described_events], pa.string())
        details = make_array([self.describe(event) for event in described_events], pa.string())
        rows, dropped = make_fixed_array(pa.int64(), places), events["dropped"]
        arrays = [
            make_constant_string(self.path, len(events)),
            make_fixed_array(pa.int64(), events["offset"].copy()),  # the kernel writes there again
            make_fixed_array(pa.int64(), events["length"].copy()),
            kinds.take(rows),
            details.take(rows),
            make_array(dropped, pa.int64(), dropped < 0),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=DAMAGE_SCHEMA)

    def _tally(self, events: Any) -> None:
        for kind in np.unique(events["kind"]):
            lengths = events["length"][events["kind"] == kind]
            self.findings.tally(self.kinds(int(kind)).label, len(lengths), int(lengths.sum()))

    def _report_disk_error(self, error: DiskError) -> None:
        """Report as damage what the disk cannot read, up to the end of the range, and what was read after it."""
        self._account()
        position = int(self.state["position"])
        offset = min(place for place in (*self.find_pending(), position) if place >= 0)
        end = max(position, self.span.end)
        if end > offset:
            kind = self.kinds["READ_ERROR"].label
            self.findings.add_damage(
                Damage(self.path, offset, end - offset, kind, str(error), self.count_lost_bytes(end - offset))
            )

    def count_lost_bytes(self, length: int) -> int | None:
        """Return what the original system's reader counts as lost for so many unreadable bytes; see `Damage`."""
        del length
        return None

    def _account(self) -> None:
        """Enter the bytes read into the ledger, and, at the end of the file, the state of its tail."""
        state, account = self.state, self.findings.account
        account.record += int(state["record_bytes"]) - self._complained_bytes
        account.header += int(state["header_bytes"])
        account.padding += int(state["padding_bytes"])
        tail = self.judge_tail()
        self.findings.tail = tail
        if tail is not None and tail.status is not TailStatus.PADDING:
            account.tail += tail.length
