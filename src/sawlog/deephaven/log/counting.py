"""Counts of small logs: what a walk sets up, which takes longer than a hundred rows of it, serves many of them."""

from __future__ import annotations

import numpy as np

from sawlog.chain.kernels import END, Window
from sawlog.deephaven.log.batches import RowBatch
from sawlog.deephaven.log.kernels import judge, rows
from sawlog.deephaven.log.walk import RowWalk
from sawlog.errors import SawlogError
from sawlog.format.damage import Findings, Tail, TailStatus
from sawlog.storage import File, Storage

_PLACES = {name: place for place, name in enumerate(judge.STATE.names or ())}
_MOVING = ("position", "rows", "record_bytes", "trusted", "uneven", "set_rows", "target")
"""Fields of the state that the walk over a plain log changes, or that depend on the log."""
_STILL = np.array([place for name, place in _PLACES.items() if name not in _MOVING])


class LogCounter:
    """Counts rows of small whole logs that have one header and are read alike, as long as they are plain.

    Args:
        walk: A walk over one of them.
        batch: Where its rows go: it has no columns, and room for the rows of any of them.
        storage: Where they are.
    """

    def __init__(self, walk: RowWalk, batch: RowBatch, storage: Storage) -> None:
        self._header, self._storage = walk.header, storage
        self._rules = walk.prepare_rules()
        self._is_plain = bool(walk.header.digest) and not walk.header.unknown and not batch.is_judging
        fixed = np.zeros(len(walk.header.stored) + 1, np.int64)
        self._out = rows.Out(batch.arena, batch.scratch, batch.starts, fixed, walk.events)
        walk.state.max_rows = batch.max_rows
        states = np.array([walk.state.item()], judge.STATE)
        self._state, self._numbers = states[0], states.view(np.int64)
        self._first = self._numbers.copy()
        self._still = self._first[_STILL].tobytes()

    def count_into(self, file: File, findings: Findings) -> bool:
        """Return whether a log is counted: nothing but its rows is to be said of it."""
        if not self._is_plain:
            return False
        start, end, numbers = self._header.size, file.size, self._numbers
        try:
            data = self._storage.read(file, 0, end)
        except (OSError, SawlogError):
            return False
        if len(data) != end or data[:start] != self._header.raw:
            return False
        numbers[:] = self._first
        numbers[_PLACES["target"]] = end
        window = Window(np.frombuffer(data, np.uint8, offset=start), np.uint64(start), np.uint64(end), np.uint64(end))
        status = int(rows.decode_rows(window, self._state, self._out, self._rules))
        if status != END or numbers[_PLACES["position"]] != end or numbers[_STILL].tobytes() != self._still:
            return False
        findings.rows += int(numbers[_PLACES["rows"]])
        findings.account.record += int(numbers[_PLACES["record_bytes"]])
        findings.account.header += start
        findings.tail = Tail(TailStatus.CLEAN, end, 0)
        return True
