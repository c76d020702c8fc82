"""The logs of a database as its history; with `latest=true`, folded to the last state of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.damage import FileReport, Findings
from sawlog.errors import OptionError
from sawlog.format import OFFSET_COLUMN, Fragment, Request, View
from sawlog.leveldb.log.columns import marked
from sawlog.leveldb.log.dataset import LogContents
from sawlog.leveldb.log.walk import LogRange
from sawlog.leveldb.records.fold import Fold
from sawlog.leveldb.records.recovery import Replay, ReplayedWrites
from sawlog.leveldb.records.writes import BATCH_ROWS, WRITES_SCHEMA, WriteRange
from sawlog.storage import File


@dataclass(frozen=True)
class LatestWrites(Fragment):
    """The whole history of a database, folded. It cannot be split.

    Attributes:
        ranges: All logs, in order.
    """

    ranges: tuple[WriteRange, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. Rows come in the order of their sequence numbers."""
        known = [*WRITES_SCHEMA.names, OFFSET_COLUMN]
        offset = pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)
        needed = pa.schema([*WRITES_SCHEMA, offset, *(f for f in schema if f.name not in known)])
        fold = Fold(needed)
        unfinished = None
        mode = self.scan.options.recovery
        replay = Replay(mode, findings) if mode is not None else None
        for one in self.ranges:
            findings.tail = None
            fold.begin_log()
            for batch in one.decode(needed, findings) if replay is None else replay.batches(one, needed):
                findings.rows -= batch.num_rows
                fold.add(batch)
            if findings.tail is not None and findings.tail.unfinished:
                unfinished = findings.tail
        findings.tail = unfinished or findings.tail
        states = fold.finish()
        findings.rows += states.num_rows
        for start in range(0, states.num_rows, BATCH_ROWS):
            rows = states.slice(start, BATCH_ROWS).select(schema.names).cast(schema)
            yield from rows.combine_chunks().to_batches() if schema.names else ()


class WritesContents(LogContents):
    """The operations of logs, in the order in which they were written."""

    range_type: ClassVar[type[LogRange]] = WriteRange

    def _operations(self, request: Request, task_bytes: int | None) -> Iterator[Any]:
        """Ranges; with `latest` or `recovery`, one fragment for all logs: the whole history is needed."""
        options = request.scan.options
        if not options.latest and options.recovery is None:
            yield from self._ranges(request, task_bytes)
            return
        ranges: tuple[Any, ...] = tuple(
            one for file in self.files for one in self._cut(request, file, 0, file.size, True, None)
        )
        if ranges:
            kind = LatestWrites if options.latest else ReplayedWrites
            yield kind(*request, ranges[0].path, sum(one.size for one in ranges), ranges)

    views: ClassVar = {"writes": View(lambda self: marked(WRITES_SCHEMA, self.scan.options), _operations)}

    def committed_end(self, request: Request, file: File, position: int) -> int:
        """See `Contents.committed_end`."""
        if self.scan.options.latest:
            raise OptionError("latest=true cannot be followed as a stream: it is one answer about the whole history")
        return super().committed_end(request, file, position)

    def verify(
        self, request: Request, task_bytes: int | None, advance: Callable[[int], None] | None, *, every: bool
    ) -> Iterator[FileReport]:
        """See `Contents.verify`; `latest` and `recovery` make no difference."""
        options = replace(request.scan.options, latest=False, recovery=None)
        history = request._replace(scan=replace(request.scan, options=options))
        return super().verify(history, task_bytes, advance, every=every)
