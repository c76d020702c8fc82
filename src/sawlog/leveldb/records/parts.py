"""Logs that Pebble has written in parts, to two directories in turn: each batch of theirs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, make_scalar, view_values
from sawlog.format.contract import OFFSET_COLUMN
from sawlog.format.damage import Findings
from sawlog.leveldb.columns import TRANSACTION_SCHEMA, WRITES_SCHEMA
from sawlog.leveldb.log.layout import LOG_NAME
from sawlog.leveldb.records.history import Replay
from sawlog.leveldb.records.writes import WriteRange
from sawlog.storage import File


class LogParts:
    """Reads logs one after the other, and of parts of a log what the parts before do not have.

    What was written when the first directory became slow may be at the end of a part and at the beginning of the next.
    Pebble knows such batches by their sequence numbers, which never decrease within a log.

    Args:
        logs: The logs, those of a number next to each other, in the order of their parts.
    """

    def __init__(self, logs: Iterable[File]) -> None:
        numbers = {file: _parse_number(file) for file in logs}
        self._several = {number for number, count in Counter(numbers.values()).items() if count > 1}
        self._last_parts = {number: file for file, number in numbers.items()}
        self._number = self._last = -1

    def has_next(self, file: File) -> bool:
        """Return whether another part of its log follows: then a record without an end is there once more."""
        return self._last_parts[_parse_number(file)] != file

    def read_batches(self, log: WriteRange, replay: Replay | None, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield operations of the next log, or part of it; parts are replayed as Pebble does, which has no modes."""
        number = _parse_number(log.file)
        if number not in self._several:
            yield from log.to_batches(findings) if replay is None else replay.read_batches(log, log.projection.decoded)
            return
        if number != self._number:
            self._number, self._last = number, -1
        place, is_kept = -1, False
        for batch in log.decode(TRANSACTION_SCHEMA, findings):
            rows, place, is_kept = self._select_new(batch, place, is_kept=is_kept)
            yield rows

    def _select_new(self, batch: pa.RecordBatch, place: int, *, is_kept: bool) -> tuple[pa.RecordBatch, int, bool]:
        """Return the operations of write batches that were not there yet.

        Args:
            batch: Operations; those of a write batch have the same offset.
            place: The offset of the operation before them.
            is_kept: Whether that one was not there yet.

        Returns:
            These operations, the offset of the last one of all, and whether it is one of them.
        """
        import pyarrow.compute as pc

        counted = pc.not_equal(batch.column("operation"), make_scalar("log_data", pa.string()))
        batch = batch.filter(counted)
        offsets = view_values(batch.column(OFFSET_COLUMN), np.int64)
        if not len(offsets):
            return batch.select(WRITES_SCHEMA.names), place, is_kept
        begins = np.flatnonzero(np.diff(offsets, prepend=place))
        first = view_values(batch.column("sequence"), np.int64)[begins]
        before = np.maximum.accumulate(np.append(self._last, first))
        new = np.append(is_kept, first > before[:-1])
        self._last = int(before[-1])
        runs = np.diff(np.concatenate(([0], begins, [len(offsets)])))
        keeps = make_array(np.repeat(new, runs), pa.bool_())
        return batch.filter(keeps).select(WRITES_SCHEMA.names), int(offsets[-1]), bool(new[-1])


def _parse_number(file: File) -> int:
    name = LOG_NAME.match(file.name)
    return int(name[1]) if name else -1
