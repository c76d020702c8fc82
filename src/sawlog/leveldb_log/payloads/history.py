"""The logs of a database as its history; with `latest=true`, folded to the last state of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.damage import FileReport, Findings
from sawlog.errors import OptionError
from sawlog.format import Fragment
from sawlog.leveldb_log.dataset import LevelDBLogDataset
from sawlog.leveldb_log.fragments import LogRange
from sawlog.leveldb_log.payloads import layout
from sawlog.leveldb_log.payloads.writes import BATCH_ROWS, WRITES_SCHEMA, WriteRange
from sawlog.storage import File

FOLD_ROWS = 1 << 20
"""Operations that are gathered before they are folded, unless there are more keys than that."""
FOLD_BYTES = 256 << 20

_BEGINS = ("begin_prepare", "begin_persisted_prepare", "begin_unprepare")
_COMMITS = ("commit", "commit_with_timestamp")
_DELETE = layout.NAMES[layout.DELETE]
_DELETE_RANGE = layout.NAMES[layout.DELETE_RANGE]
_KEYED = tuple(
    operation.name
    for operation in layout.OPERATIONS
    if operation.key and operation.shape & layout.Field.COUNTED and operation.name != _DELETE_RANGE
)


@dataclass(frozen=True)
class LatestWrites(Fragment):
    """The whole history of a database, folded. It cannot be split.

    Attributes:
        ranges: All logs, in order.
    """

    ranges: tuple[LogRange, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. Rows come in the order of their sequence numbers."""
        needed = pa.schema([*WRITES_SCHEMA, *(f for f in schema if f.name not in WRITES_SCHEMA.names)])
        fold = _Fold(needed)
        unfinished = None
        for one in self.ranges:
            findings.tail = None
            for batch in one.decode(needed, findings):
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


class _Fold:
    """The last state of each key, in memory that grows with the keys, not with the operations."""

    def __init__(self, schema: pa.Schema) -> None:
        # Folded values may add up to more than 32-bit offsets reach.
        wide = [f.with_type(pa.large_binary()) if pa.types.is_binary(f.type) else f for f in schema]
        self._schema = pa.schema(wide)
        self._folded = self._schema.empty_table()
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._ranges: list[dict[str, Any]] = []
        self._section: list[pa.Table] | None = None
        self._prepared: dict[bytes, list[pa.Table]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next operations."""
        import pyarrow.compute as pc

        table = pa.Table.from_batches([batch]).cast(self._schema)
        names = table.column("operation")
        keyed = pc.is_in(names, pa.array(_KEYED))
        if self._section is None and pc.all(keyed).as_py():
            self._keep(table)
            return
        # Markers are few: go from one to the next.
        begin = 0
        for row in pc.indices_nonzero(pc.invert(keyed)).to_pylist():
            self._take(table.slice(begin, row - begin))
            self._mark(table.slice(row, 1))
            begin = row + 1
        self._take(table.slice(begin))

    def finish(self) -> pa.Table:
        """The last state of all keys, in the order of their sequence numbers."""
        self._fold()
        return self._folded

    def _take(self, table: pa.Table) -> None:
        if self._section is not None:
            self._section.append(table)
        elif table.num_rows:
            self._keep(table)

    def _mark(self, row: pa.Table) -> None:
        """An operation that is not about one key."""
        (mark,) = row.to_pylist()
        name = mark["operation"]
        if name == _DELETE_RANGE:
            if self._section is not None:
                self._section.append(row)
            else:
                self._ranges.append(mark)
        elif name in _BEGINS:
            self._section = []
        elif name == "end_prepare":
            self._prepared.setdefault(mark["key"], []).extend(self._section or [])
            self._section = None
        elif name in _COMMITS:
            self._commit(self._prepared.pop(mark["key"], []), mark["sequence"])
        elif name == "rollback":
            self._prepared.pop(mark["key"], None)

    def _commit(self, tables: list[pa.Table], sequence: int) -> None:
        """The operations of a prepared transaction take effect where it is committed."""
        import numpy as np

        for table in tables:
            place = table.schema.get_field_index("sequence")
            numbers = pa.array(np.arange(sequence, sequence + table.num_rows))
            renumbered = table.set_column(place, self._schema.field(place), numbers)
            sequence += table.num_rows
            if table.num_rows and table.column("operation")[0].as_py() == _DELETE_RANGE:
                self._ranges += renumbered.to_pylist()
            else:
                self._keep(renumbered)

    def _keep(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows > max(FOLD_ROWS, self._folded.num_rows) or self._bytes > max(FOLD_BYTES, self._folded.nbytes):
            self._fold()

    def _fold(self) -> None:
        import numpy as np

        table = pa.concat_tables([self._folded, *self._waiting])
        self._waiting.clear()
        self._rows = self._bytes = 0
        order = np.argsort(table.column("sequence").to_numpy(), kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        keys = table.select(["column_family", "key"]).append_column("rank", pa.array(ranks))
        last = keys.group_by(["column_family", "key"]).aggregate([("rank", "max")]).column("rank_max").to_numpy()
        self._folded = self._delete_ranges(table.take(pa.array(order[np.sort(last)])))

    def _delete_ranges(self, table: pa.Table) -> pa.Table:
        """States that a later `delete_range` covers become deletions."""
        import pyarrow.compute as pc

        for deleted in self._ranges:
            key, family = table.column("key"), table.column("column_family")
            inside = pc.and_(pc.greater_equal(key, deleted["key"]), pc.less(key, deleted["value"]))
            older = pc.less(table.column("sequence"), deleted["sequence"])
            covered = pc.and_(pc.and_(inside, older), pc.equal(family, deleted["column_family"]))
            if not pc.any(covered).as_py():
                continue
            states = {**deleted, "operation": _DELETE, "value": None}
            for place, field in enumerate(table.schema):
                if field.name not in ("column_family", "key"):
                    state = pa.scalar(states[field.name], field.type)
                    table = table.set_column(place, field, pc.if_else(covered, state, table.column(place)))
            table = table.sort_by("sequence")
        return table


class WritesDataset(LevelDBLogDataset):
    """The operations of logs, in the order in which they were written."""

    range_type: ClassVar[type[LogRange]] = WriteRange

    def view_schema(self) -> pa.Schema:
        """See `WRITES_SCHEMA`."""
        return WRITES_SCHEMA

    def plan(self, task_bytes: int | None) -> Iterator[Any]:
        """See `Dataset.plan`. With `latest`, one fragment for all logs: only the whole history tells."""
        if not self.scan.options.latest:
            yield from super().plan(task_bytes)
            return
        ranges = tuple(one for file in self.files for one in self._cut(file, 0, file.size, True, None))
        if ranges:
            size = sum(one.size for one in ranges)
            yield LatestWrites(self.scan, self.projection, ranges[0].path, size, ranges)

    def frontier(self, file: File, position: int) -> int:
        """See `FollowedDataset.frontier`."""
        if self.scan.options.latest:
            raise OptionError("latest=true cannot be followed as a stream: it is one answer about the whole history")
        return super().frontier(file, position)

    def verify(
        self, task_bytes: int | None = None, advance: Callable[[int], None] | None = None, *, every: bool = False
    ) -> Iterator[FileReport]:
        """See `Dataset.verify`; `latest` makes no difference."""
        if not self.scan.options.latest:
            return super().verify(task_bytes, advance, every=every)
        history = replace(self.scan, options=replace(self.scan.options, latest=False))
        return WritesDataset(self.format, self.files, history).verify(task_bytes, advance, every=every)
