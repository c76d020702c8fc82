"""The arrangement of a date's rows: sorted, spread over internal partitions, and written by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as altered

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import view_values
from sawlog.deephaven.ingest.history import PARTS_NAME, HistoricalTable, MergeRecord, PartsWriter
from sawlog.deephaven.ingest.records import RECORD_NAME
from sawlog.deephaven.ingest.runs import Boundary, SortedRun, merge_runs
from sawlog.deephaven.table.options import WriteOptions
from sawlog.deephaven.table.writer import LocationWriter
from sawlog.errors import OptionError
from sawlog.storage import Staged, Storage

_MERGED_BYTES = 1 << 30
"""Bytes of column files per historical location, about."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The arrangement of a date's rows.

    Attributes:
        group: Columns that they are sorted by, and spread by the first of; None: those that the schema says.
        sort: Columns that they are sorted by further.
        internal_partitions: How many locations they are spread over; None: by size.
    """

    group: tuple[str, ...] | None = None
    sort: tuple[str, ...] = ()
    internal_partitions: int | None = None

    def __post_init__(self) -> None:
        if self.internal_partitions is not None and self.internal_partitions <= 0:
            raise OptionError(f"internal_partitions={self.internal_partitions}: expected 1 or more")

    def count_locations(self, size: int) -> int:
        """Return the number of locations that so many bytes are spread over."""
        return self.internal_partitions or max(1, -(-size // _MERGED_BYTES))


def find_contiguous_groups(runs: Sequence[SortedRun], groups: Sequence[str]) -> tuple[str, ...]:
    """Return the grouping columns whose rows follow one another when sorted: a value has one of each earlier column."""
    results = list(groups[:1])
    for index, name in enumerate(groups[1:]):
        pairs: NDArray[np.uint64] = np.unique(np.concatenate([run.pairs[index] for run in runs]), axis=0)
        if not (pairs[1:, 0] == pairs[:-1, 0]).any():
            results.append(name)
    return tuple(results)


def choose_ranges(runs: Sequence[SortedRun], locations: int) -> list[tuple[Boundary | None, Boundary | None]]:
    """Return boundaries at which rows are cut that are spread by their order."""
    samples = sorted((key, number, row) for number, run in enumerate(runs) for key, row in run.samples)
    cuts = [samples[len(samples) * i // locations] for i in range(1, locations)]
    return list(zip([None, *cuts], [*cuts, None], strict=True))


@dataclass(frozen=True, slots=True)
class TargetLocation:
    """A location to write.

    Attributes:
        internal: Its internal partition.
        split: Which splits of the runs are its.
        low: Only rows that are not before it.
        high: Only rows before it.
    """

    internal: int
    split: int
    low: Boundary | None = None
    high: Boundary | None = None


@dataclass(frozen=True, slots=True)
class LocationsWriter:
    """Writes locations out of runs. Picklable."""

    runs: tuple[SortedRun, ...]
    keys: tuple[str, ...]
    history: HistoricalTable
    date: str
    schema: pa.Schema
    options: WriteOptions
    record: MergeRecord

    def __call__(self, target: TargetLocation) -> list[Staged]:
        """Stage a location, if there is a row."""
        writer: LocationWriter | None = None
        parts = PartsWriter()
        rows = 0
        try:
            for batch in merge_runs(self.runs, target.split, self.keys, target.low, target.high):
                writer = writer or self._begin(str(target.internal))
                writer.write(pa.RecordBatch.from_arrays(batch.columns[:-1], names=self.schema.names))
                parts.add(view_values(batch.columns[-1], "<i4"))
                rows += batch.num_rows
            if writer is None:
                return []
            writer.add_file(RECORD_NAME, altered(self.record, rows=rows).to_json())
            if len(self.record.parts or ()) > 1:
                writer.add_file(PARTS_NAME, parts.finish())
            return writer.finish()
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def _begin(self, internal: str) -> LocationWriter:
        return LocationWriter(
            self.history.build_path(internal, self.date),
            self.schema,
            self.options,
            Storage(),
            marker=f"{self.record.job}.",
        )
