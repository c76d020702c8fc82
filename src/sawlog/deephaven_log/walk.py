"""Driving the kernels over a file: windows, running sums, damage, tail and the account of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.deephaven_log.layout import DETAIL, Kind
from sawlog.errors import SawlogError
from sawlog.sources import WINDOW_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.deephaven_log.header import Header
    from sawlog.storage import File, Source

SUSPICIOUS_BYTES = 32 << 20
"""Bytes seen at a time in a file that has shown damage, so that chains of entries can be followed far ahead."""
EVENT_ROOM = 4096
"""Damages that a kernel writes down before it hands over."""


class Walk:
    """One pass over a range of a log's entries.

    Args:
        file: The log; its size is where this scan takes the file to end.
        source: Its bytes.
        header: Its header.
        start: Where to begin: the end of the header, or the start of an entry that begins a set.
        end: Where to end, likewise, or the size of the file.
        verify: Whether digests are verified.
        strict: Whether reserved bits, orphans and bytes behind the last column are damage.
        max_entry: Longest entry that is believed, in bytes.
        findings: Told of what is met.

    Attributes:
        remarkable: Where damages are drained: `SALVAGED` and `GIVEN_UP` ranges, with their start and end.
    """

    def __init__(
        self,
        file: File,
        source: Source,
        header: Header,
        start: int,
        end: int,
        *,
        verify: bool,
        strict: bool,
        max_entry: int,
        findings: Findings,
    ) -> None:
        import numpy as np

        from sawlog.deephaven_log.kernels import chain, rows

        if source.size < file.size:
            raise SawlogError(f"{file.path}: the file shrank from {file.size} to {source.size} bytes")
        self.kernels = rows
        self.chain = chain
        self.file = file
        self.source = source
        self.header = header
        self.start = start
        self.end = end
        self.findings = findings
        self.remarkable: list[tuple[int, int, int]] = []
        state = np.zeros(rows.STATE_SIZE, np.int64)
        state[chain.POSITION] = start
        state[chain.SIZE] = file.size
        state[chain.END] = end
        state[chain.MAX_ENTRY] = max_entry
        state[chain.VERIFY] = verify
        state[chain.STRICT] = strict
        state[chain.TARGET] = file.size
        for field in (chain.TAIL, chain.ZEROS, chain.BAD_AT, chain.BAD_NEXT, chain.ORIGIN, chain.LAST_DELETE):
            state[field] = -1
        state[rows.SET_START] = -1
        self.state = state
        self.totals = np.zeros(1, np.uint64)
        self.weights = np.zeros(1, np.uint64)
        # The first damage must stop the kernel where rows behind it must not be delivered.
        room = 1 if findings.on_damage == "fail" else EVENT_ROOM
        self.events = np.zeros((room, chain.EVENT_FIELDS), np.int64)

    def window(self) -> NDArray[np.uint8]:
        """The bytes that the kernel asks for."""
        usual = WINDOW_BYTES if len(self.totals) < 2 else SUSPICIOUS_BYTES
        length = max(usual, int(self.state[self.chain.NEED]))
        self.state[self.chain.NEED] = 0
        position = int(self.state[self.chain.POSITION])
        return self.source.window(position, min(length, self.file.size - position))

    def suspect(self) -> None:
        """The file has shown damage: make room for the running sums that bound the cost of passing over it."""
        import numpy as np

        steps = min(self.chain.TABLE_BYTES, max(self.file.size, 1)) // self.chain.STEP + 2
        self.totals = np.zeros(steps, np.uint64)
        self.weights = np.zeros(steps, np.uint64)

    def report(self) -> None:
        """Enter the damages that the kernel wrote down into the ledger."""
        events = self.events[: int(self.state[self.chain.EVENTS])]
        self.state[self.chain.EVENTS] = 0
        for index, (kind, offset, length, one, two) in enumerate(events.tolist()):
            if kind < 0:
                if kind == self.kernels.SALVAGED:
                    self.findings.notes["salvaged_rows"] += one
                if self.findings.drained:
                    self.remarkable.append((kind, offset, offset + length))
                continue
            if not self.findings.listing:
                self._tally(events[index:])
                return
            self.damage(Kind(kind), offset, length, DETAIL[Kind(kind)].format(one, two))

    def damage(self, kind: Kind, offset: int, length: int, detail: str) -> None:
        """Enter one damage into the ledger."""
        self.findings.damage(Damage(self.file.path, offset, length, kind.name.lower(), detail))

    def _tally(self, events: NDArray[np.int64]) -> None:
        import numpy as np

        for kind in np.unique(events[:, 0]):
            chosen = events[events[:, 0] == kind]
            if kind == self.kernels.SALVAGED:
                self.findings.notes["salvaged_rows"] += int(chosen[:, 3].sum())
            elif kind > 0:
                self.findings.tally(Kind(kind).name.lower(), len(chosen), int(chosen[:, 2].sum()))

    def read_error(self, error: OSError) -> None:
        """What cannot be read is damage up to the end of the range."""
        k = self.kernels
        starts = [int(self.state[field]) for field in (k.SET_START, self.chain.BAD_AT, self.chain.ZEROS)]
        offset = min([start for start in starts if start >= 0] or [int(self.state[self.chain.POSITION])])
        self.account(finished=False)
        self.damage(Kind.READ_ERROR, offset, self.end - offset, str(error))

    def account(self, *, finished: bool = True) -> None:
        """Enter the bytes that were read, the counts, and, at the end of the file, its tail."""
        k = self.kernels
        state = self.state
        account = self.findings.account
        account.record += int(state[k.RECORD_BYTES])
        if self.start == self.header.size:
            damaged = min(self.header.size, self._header_damage())
            account.header += self.header.size - damaged
        names = {
            "orphan_rows": k.ORPHANS,
            "aborted_rows": k.ABORTED,
            "deleted_rows": k.DELETED,
            "incomplete_rows": k.UNFINISHED,
            "commands_without_digest": self.chain.UNDIGESTED,
        }
        for name, field in names.items():
            if state[field]:
                self.findings.notes[name] += int(state[field])
        if finished and self.end == self.file.size:
            tail = self._tail()
            self.findings.tail = tail
            if tail.status is TailStatus.PADDING:
                account.padding += tail.length
            else:
                account.tail += tail.length

    def report_header(self) -> None:
        """A digest of the header that does not match is damage where damage is listed, and else a warning."""
        length = self._header_damage()
        if length:
            offset = self.header.size - length
            self.damage(Kind.HEADER_DIGEST, offset, length, self.header.notes[0])

    def _header_damage(self) -> int:
        from sawlog.deephaven_log.layout import DIGEST_SIZE

        fails = self.findings.on_damage == "fail"
        return 0 if self.header.digest or fails or self.start != self.header.size else DIGEST_SIZE

    def _tail(self) -> Tail:
        chain, k = self.chain, self.kernels
        size = self.file.size
        start, torn, zeros = (int(self.state[field]) for field in (k.SET_START, chain.TAIL, chain.ZEROS))
        if start >= 0:
            rows = int(self.state[k.SET_ROWS])
            return Tail(TailStatus.OPEN, start, size - start, f"a set of {rows} rows so far has no end")
        if torn >= 0:
            return Tail(TailStatus.TORN, torn, size - torn, "the file ends inside an entry")
        if zeros >= 0:
            return Tail(TailStatus.PADDING, zeros, size - zeros, "unused space")
        return Tail(TailStatus.CLEAN, size, 0)
