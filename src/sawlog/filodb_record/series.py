"""The pass that tells series apart: one row for each, where it is met first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.filodb_record.assemble import Gatherer, Marks
from sawlog.filodb_record.columns import PROVENANCE_FIELDS, ViewField
from sawlog.filodb_record.kernels import records as k
from sawlog.filodb_record.kernels import series as t
from sawlog.filodb_record.walk import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.damage import Findings
    from sawlog.filodb_record.fragments import ContainerRange
    from sawlog.filodb_record.schemas import RecordSchema
    from sawlog.storage import Source

FIRST_SERIES = 2 << 10
"""Series for which a table has room to begin with, a power of two."""


class SeriesTable:
    """The series met so far, by the bytes of their partition columns. Layouts must be the same in all files."""

    def __init__(self) -> None:
        self._state = np.zeros(t.STATE_SIZE, np.int64)
        self._secret = np.uint64(int.from_bytes(os.urandom(4), "little"))
        self._slots = np.zeros(2 * FIRST_SERIES * t.SLOT_SIZE, np.uint8)
        self._key_starts = np.zeros(FIRST_SERIES, np.int64)
        self._keys = np.zeros(128 * FIRST_SERIES, np.uint8)

    def read(self, arguments: tuple[Any, ...], gatherer: Gatherer, keys: Sequence[ViewField]) -> int:
        """Read records, and keep the rows whose series is new; it is not from then on.

        Args:
            arguments: Those of `read_records`.
            gatherer: What it gathers to.
            keys: The partition columns.

        Returns:
            As `read_records`.
        """
        fixed, payloads = gatherer.places(keys)
        self._state[[t.ROW, t.KEPT]] = 0
        while True:
            status = t.read_series(
                *arguments,
                np.uint64(gatherer.place("partition_hash")),
                fixed,
                payloads,
                *gatherer.places(gatherer.fields),
                self._secret,
                self._slots,
                self._key_starts,
                self._keys,
                self._state,
            )
            if status != t.NEEDS_ROOM:
                return int(status)
            self._grow(fixed, payloads)

    def _grow(self, fixed: NDArray[np.int64], payloads: NDArray[np.int64]) -> None:
        self._keys = np.concatenate((self._keys, np.zeros_like(self._keys)))
        self._key_starts = np.concatenate((self._key_starts, np.zeros_like(self._key_starts)))
        slots, self._slots = self._slots, np.zeros(2 * len(self._slots), np.uint8)
        t.rebuild(fixed, payloads, self._secret, slots, self._slots, self._key_starts, self._keys)


class SeriesWalk(Walk):
    """One row per series that is met for the first time."""

    def __init__(
        self, fragment: ContainerRange, source: Source, schema: pa.Schema, findings: Findings, table: SeriesTable
    ) -> None:
        super().__init__(fragment, source, schema, findings)
        self._table = table
        self._keys = [one for one in fragment.fields if one.sources]

    def _record_layouts(self) -> list[RecordSchema | None]:
        return [one.record for one in self._named()]

    def _gathered(self) -> Sequence[ViewField]:
        return (*self._fragment.fields, *PROVENANCE_FIELDS)

    def _read_window(self, window: NDArray[np.uint8], base: int, frames: Any) -> int:
        """See `Walk._read_window`."""
        return self._table.read(self._arguments(window, base, frames), self._gatherer, self._keys)

    def contents(self, frames: Any) -> Iterator[pa.RecordBatch]:
        """See `Walk.contents`."""
        for rows in self._read(frames):
            if not rows.count and not self._state[k.EVENTS]:
                yield pa.RecordBatch.from_pylist([], self._schema)
                continue
            marks = Marks()
            fields = [one.name for one in self._gatherer.fields]
            found = dict(zip(fields, self._gatherer.arrays(rows, marks), strict=True))
            keep, events = self._settle(rows, marks)
            batch = pa.RecordBatch.from_arrays([found[name] for name in self._schema.names], schema=self._schema)
            if keep is not None:
                batch = batch.filter(pa.array(keep)) if len(self._schema) else batch
                self._uncount(events, marks)
            self._findings.rows += rows.count if keep is None else int(keep.sum())
            yield batch
            self._report(events)
