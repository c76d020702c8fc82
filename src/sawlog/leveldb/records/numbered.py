"""Operations of logs with the sequence numbers that RocksDB gives them, where all operations of a batch share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_fixed_array
from sawlog.format.damage import Findings
from sawlog.leveldb.columns import MARKED_SCHEMA, SEQUENCE
from sawlog.leveldb.records.transactions import Numbering, compute_sequences, has_marks
from sawlog.leveldb.records.writes import Decoder, WriteRange


@dataclass(frozen=True)
class NumberedRange(WriteRange):
    """A range of a log whose operations are numbered as the database does.

    Attributes:
        shared: See `Numbering.shared`; `None`: what the records show decides, or the log.
    """

    shared: bool | None = None

    @classmethod
    def of(cls, log: WriteRange, *, shared: bool) -> NumberedRange:
        """Return all of a log of a database of which it is known."""
        log_range = cls.cover_file(log.file, log.scan, log.projection, log.dialect, numbered=log.numbered)
        return replace(log_range, shared=shared)

    def _read_batches(self, decoder: Decoder, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers: NDArray[np.int64] | None = None
        done = 0
        for batch in decoder.read_batches(records):
            sequence_index = batch.schema.get_field_index(SEQUENCE)
            if sequence_index >= 0 and decoder.marked:
                if numbers is None:
                    numbers = self._read_numbers(records)
                batch_numbers = numbers[done : done + batch.num_rows]
                yield batch.set_column(
                    sequence_index, batch.schema.field(sequence_index), make_fixed_array(pa.int64(), batch_numbers)
                )
            else:
                yield batch
            done += batch.num_rows

    def _read_numbers(self, records: pa.RecordBatch) -> NDArray[np.int64]:
        rows = pa.concat_batches(list(self._make_decoder(MARKED_SCHEMA, Findings("skip")).read_batches(records)))
        shared = self.shared
        if shared is None:
            numbering = Numbering()
            numbering.add(rows)
            shared = numbering.decided
        return compute_sequences(rows, shared=self._has_shared_numbers if shared is None else shared)

    @cached_property
    def _has_shared_numbers(self) -> bool:
        """The values that all of the log has."""
        return _find_numbering([self]).shared


def _find_numbering(logs: Iterable[WriteRange]) -> Numbering:
    numbering = Numbering()
    for log in logs:
        log_range = WriteRange.cover_file(log.file, log.scan, log.projection, log.dialect, numbered=log.numbered)
        batches = list(log_range.decode(MARKED_SCHEMA, Findings("skip", drained=True)))
        if any(map(has_marks, batches)):
            numbering.add(pa.concat_batches(batches))
    return numbering


def enumerate_logs(logs: Iterable[NumberedRange]) -> tuple[NumberedRange, ...]:
    """Return all logs of a database with what they show together of its numbers."""
    logs = tuple(logs)
    shared = _find_numbering(logs).shared
    return tuple(replace(log, shared=shared) for log in logs)
