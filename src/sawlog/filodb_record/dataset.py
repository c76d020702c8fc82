"""Reading FiloDB's containers: files to fragments, fragments to record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from sawlog.anatomy import Dissector
from sawlog.filodb_record.anatomy import parts
from sawlog.filodb_record.columns import (
    CONTAINERS_SCHEMA,
    RECORDS_KEY,
    SCHEMAS_KEY,
    ViewField,
    extra_fields,
    row_fields,
    series_fields,
)
from sawlog.filodb_record.fragments import ContainerRange, SeriesScan
from sawlog.filodb_record.options import ReadOptions
from sawlog.filodb_record.selection import Selection, select
from sawlog.follow import Range
from sawlog.format import PROBE_BYTES, Dataset, Fragment
from sawlog.storage import File, Source

if TYPE_CHECKING:
    from sawlog.filodb_record.schemas import Schemas


class FiloDBRecordDataset(Dataset):
    """Files of containers, one after the other."""

    walked: ClassVar[bool] = True

    @property
    def shared(self) -> bool:
        """See `Dataset.shared`: where a file can be cut is known once its records were walked, by one thread."""
        return False

    def view_schema(self) -> pa.Schema:
        """The columns of the schemas that are read, or those of the view."""
        if self.scan.view == "containers":
            return CONTAINERS_SCHEMA
        return pa.schema([one.arrow for one in self._fields], metadata=self._metadata())

    def extra_columns(self) -> Sequence[pa.Field]:
        """See `Dataset.extra_columns`: schema, hash and bytes of a record, and the timestamp of its container."""
        return (*super().extra_columns(), *(one.arrow for one in self._extra_fields))

    def plan(self, task_bytes: int | None) -> Iterator[Fragment]:
        """Ranges that begin and end at containers; a file that is to be cut is walked, header by header, for that."""
        if self.scan.view == "partkeys":
            ranges = tuple(self._whole(file) for file in self.files)
            first = self.files[0].path if self.files else ""
            yield SeriesScan(self.scan, self.projection, first, sum(file.size for file in self.files), ranges)
            return
        for file in self.files:
            if task_bytes is None or file.size <= task_bytes:
                yield self._whole(file)
            else:
                yield from self._cut(file, task_bytes)

    def frontier(self, file: File, position: int) -> int:
        """See `Dataset.frontier`. Positions stand at the end of complete containers."""
        if self.scan.view not in ("rows", "containers", "damage"):
            return super().frontier(file, position)
        from sawlog.filodb_record.kernels.state import TORN_CONTAINER, TORN_HEADER

        one = replace(self._range(file, position, file.size, self._step), resumed=position > 0)
        with closing(self.scan.storage.open(file.path)) as source:
            walk = one.containers(source)
            for _ in walk.batches():
                pass
        state = walk.state
        # What follows the records of a container need not be there yet, but for the view that tells of it.
        rows = self.scan.view != "containers"
        if state.ending == TORN_CONTAINER or (state.ending and not rows):
            return int(state.position if state.ending == TORN_HEADER else state.container)
        return int(next(place for place in (state.tail, state.zeros, state.position) if place >= 0))

    def between(self, ranges: Sequence[Range]) -> list[Fragment]:
        """See `Dataset.between`."""
        return [
            replace(self._range(replace(file, size=end), start, end, self._step), resumed=start > 0)
            for file, start, end in ranges
        ]

    def dissector(self, file: File, source: Source) -> Dissector:
        """See `Dataset.dissector`: containers and records."""
        del file
        return lambda offset: parts(source, offset, self.selection)

    def facts(self) -> dict[str, Any]:
        """Schemas and the kind of records at the start of the data."""
        if not self.files:
            return {}
        one = self.selection.layouts
        facts: dict[str, Any] = {"schemas": ", ".join(layout.name for layout in one)}
        if not self.selection.plain:
            facts["schema IDs"] = ", ".join(str(layout.schema_id) for layout in one)
            facts["records"] = "part keys" if self.part_keys else "samples"
        return facts

    @cached_property
    def selection(self) -> Selection:
        """The schemas that are read: those named, or those of the records at the start of the files."""
        storage = self.scan.storage
        heads = storage.each(
            lambda file: storage.read(file.path, 0, PROBE_BYTES), [file for file in self.files if file.size]
        )
        return select(self.scan.options, heads)

    @cached_property
    def _fields(self) -> tuple[ViewField, ...]:
        options: ReadOptions = self.scan.options
        if self.scan.view == "partkeys":
            return series_fields(self.selection, options)
        return row_fields(self.selection, options)

    @cached_property
    def _extra_fields(self) -> tuple[ViewField, ...]:
        return extra_fields(self.selection) if self.scan.view == "rows" else ()

    @property
    def part_keys(self) -> bool:
        """Whether records are part keys, not samples."""
        return not self.selection.plain and self.selection.layouts[0].record.partition_field_start == 0

    @property
    def _step(self) -> int:
        return self.scan.options.container_size or 0

    def _metadata(self) -> dict[bytes, bytes]:
        """What the writer needs to make the same records again."""
        known: Schemas = self.scan.options.known
        names = [one.name for one in self.selection.layouts]
        records = "partkeys" if self.part_keys or self.scan.view == "partkeys" else "ingestion"
        return {SCHEMAS_KEY: known.to_json(names).encode(), RECORDS_KEY: records.encode()}

    def _whole(self, file: File) -> ContainerRange:
        return self._range(file, 0, file.size, self._step)

    def _range(self, file: File, start: int, end: int, step: int) -> ContainerRange:
        named = {one.name for one in self._fields}
        fields = (*self._fields, *(one for one in self._extra_fields if one.name not in named))
        return ContainerRange(
            self.scan, self.projection, file.path, end - start, file, start, end, step, self.selection, fields
        )

    def _cut(self, file: File, task_bytes: int) -> Iterator[ContainerRange]:
        """Ranges of about `task_bytes`, that begin where a walk from the start of the file finds containers."""
        start, step, doubts = 0, self._step, 0
        found = step
        with closing(self.scan.storage.open(file.path)) as source:
            walk = self._whole(file).containers(source)
            for one in walk.each():
                begin, following = int(one["start"]), int(one["following"])
                if begin - start >= task_bytes:
                    yield replace(self._range(file, start, begin, step), doubts=doubts)
                    start, step, doubts = begin, found, walk.framing.doubts(begin)
                if following > one["end"]:
                    found = following - begin
        yield replace(self._range(file, start, file.size, step), doubts=doubts)
