"""Fragments: the containers of one file, or a part of them, and the distinct series of all files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.filodb_record.columns import ViewField
from sawlog.filodb_record.selection import Selection
from sawlog.format import Fragment
from sawlog.ranges import FileRange

if TYPE_CHECKING:
    from sawlog.filodb_record.walk import ContainersWalk
    from sawlog.storage import Source


@dataclass(frozen=True)
class ContainerRange(FileRange):
    """The containers of one file that start in `[start, end)`.

    Attributes:
        file: The file; its size is where this scan takes it to end.
        start: Where a container starts.
        end: Where one starts, or the size of the file.
        step: Bytes of whole containers; 0 while unknown.
        selection: Which schemas are read.
        fields: The columns of the view, and those that can be asked for besides.
        resumed: Whether an earlier pass has read up to `start`, when the file held no more.
        doubts: How many doubtful containers are before `start`; see `sawlog.filodb_record.framing`.
    """

    step: int
    selection: Selection
    fields: tuple[ViewField, ...]
    resumed: bool = False
    doubts: int = 0

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. With all columns, or none, every byte of a record is checked, else only theirs."""
        from sawlog.filodb_record.walk import ContainersWalk, RowsWalk

        with closing(self.scan.storage.open(self.path)) as source:
            walk = ContainersWalk if self.scan.view == "containers" else RowsWalk
            yield from walk(self, source, schema, findings).batches()

    def containers(self, source: Source) -> ContainersWalk:
        """A walk over only the containers: their records are skipped."""
        from sawlog.filodb_record.walk import ContainersWalk

        return ContainersWalk(self, source, pa.schema([]), Findings("skip"), records=False)


@dataclass(frozen=True)
class SeriesScan(Fragment):
    """The distinct series of all files. One fragment: a part does not show what is distinct.

    Attributes:
        ranges: The files.
    """

    ranges: tuple[ContainerRange, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. A series is delivered where it is found first."""
        from sawlog.filodb_record.series import SeriesTable, SeriesWalk

        table = SeriesTable()
        for one in self.ranges:
            with closing(self.scan.storage.open(one.path)) as source:
                yield from SeriesWalk(one, source, schema, findings, table).batches()
