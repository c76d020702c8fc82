"""The pass that tells series apart: one row for each, where it is seen first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog.chain.kernels import Window
from sawlog.filodb.assemble import BatchRows, ColumnBuilder, RowErrors
from sawlog.filodb.columns import ViewField
from sawlog.filodb.kernels import series as t
from sawlog.filodb.kernels.records import Out
from sawlog.filodb.walk import ContainerRange, RecordsWalk
from sawlog.format.contract import Fragment
from sawlog.format.damage import Findings
from sawlog.storage import File, Source

FIRST_SERIES = 2 << 10
"""Series for which a table has room to begin with, a power of two."""


class SeriesTable:
    """The series seen so far, by the bytes of their partition columns. Layouts must be the same in all files."""

    def __init__(self) -> None:
        self._progress = np.zeros(1, t.TABLE)[0]
        self._secret = np.uint64(int.from_bytes(os.urandom(4), "little"))
        self._slots = np.zeros(2 * FIRST_SERIES * t.SLOT_SIZE, np.uint8)
        self._key_starts = np.zeros(FIRST_SERIES, np.int64)
        self._keys = np.zeros(128 * FIRST_SERIES, np.uint8)

    def read(
        self, window: Window, state: Any, out: Out, rules: Any, builder: ColumnBuilder, keys: Sequence[ViewField]
    ) -> int:
        """Read records, and keep the rows whose series is new; it is not from then on.

        Returns:
            What the walk ends with.
        """
        partition, all_columns = (t.Columns(*builder.find_places(fields)) for fields in (keys, builder.fields))
        hashes = np.uint64(builder.find_place("partition_hash"))
        self._progress.row = self._progress.kept = state.rows
        while True:
            table = t.Table(self._slots, self._key_starts, self._keys, self._secret, hashes, partition, all_columns)
            status = t.read_series(window, state, out, rules, table, self._progress)
            if status != t.NEEDS_ROOM:
                return int(status)
            self._grow(table)

    def _grow(self, table: t.Table) -> None:
        self._keys = np.concatenate((self._keys, np.zeros_like(self._keys)))
        self._key_starts = np.concatenate((self._key_starts, np.zeros_like(self._key_starts)))
        slots, self._slots = self._slots, np.zeros(2 * len(self._slots), np.uint8)
        t.rebuild(table._replace(slots=self._slots, key_starts=self._key_starts, keys=self._keys), slots)


class SeriesWalk(RecordsWalk):
    """Walk that makes a row per series that is seen for the first time."""

    def __init__(
        self, fragment: ContainerRange, source: Source, schema: pa.Schema, findings: Findings, table: SeriesTable
    ) -> None:
        super().__init__(fragment, source, schema, findings)
        self._table = table
        self._keys = [field for field in fragment.fields if field.sources]

    def _choose_fields(self) -> Sequence[ViewField]:
        return self._fragment.fields

    def _read(self, window: Window, out: Out) -> int:
        return self._table.read(window, self.state, out, self.rules, self._builder, self._keys)

    def _make_columns(self, rows: BatchRows, marks: RowErrors) -> dict[str, pa.Array]:
        names = (field.name for field in self._builder.fields)
        return dict(zip(names, self._builder.make_field_arrays(rows, marks), strict=True))


@dataclass(frozen=True)
class SeriesScan(Fragment):
    """The distinct series of all files. One fragment: what is distinct cannot be known from a part."""

    ranges: tuple[ContainerRange, ...]

    @property
    def about(self) -> str:
        """The file, in warnings; of several the directory that all are in."""
        paths = [range_.path for range_ in self.ranges]
        return self.path if len(paths) < 2 else os.path.dirname(os.path.commonprefix(paths)) or "."  # noqa: RUF071 - up to a slash

    @property
    def extents(self) -> Iterator[tuple[File, int, int]]:
        return ((container.file, *container.extent) for container in self.ranges)

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield batches of series. Each is delivered where it is seen first."""
        table = SeriesTable()
        for range_ in self.ranges:
            with closing(self.scan.storage.open(range_.path)) as source:
                yield from SeriesWalk(range_, source, schema, findings, table).read_batches()
