"""Reading FiloDB's containers: files to fragments, fragments to record batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.filodb import layout
from sawlog.filodb.columns import CONTAINERS_SCHEMA, ViewColumns, make_columns
from sawlog.filodb.fields import parse_parts
from sawlog.filodb.kernels.state import TORN_CONTAINER, TORN_HEADER
from sawlog.filodb.pictures import Charts
from sawlog.filodb.selection import HeadRecord, Pool, Selection, find_schema_records, join_records, select, split
from sawlog.filodb.series import SeriesScan
from sawlog.filodb.walk import ContainerRange
from sawlog.format.capabilities import Counting, make_follow_error
from sawlog.format.charts import Picture
from sawlog.format.contract import CUT_BYTES, PROBE_BYTES, PROVENANCE, BoundScan, Contents, Fragment, Range, View
from sawlog.format.damage import Findings
from sawlog.format.fields import FieldParser
from sawlog.format.planning import bind_scan, list_available_columns, make_question, plan_fragments
from sawlog.storage import File, Source, find_answer, is_remote, map_files, note_answer
from sawlog.storage.index import pack_numbers, unpack_numbers
from sawlog.storage.workers import PIECE_BYTES

_CUTS = "cuts"


class _Cut(NamedTuple):
    """Start of a range, and what is known of the file in front of it; see `ContainerRange`."""

    start: int
    step: int
    doubts: int


class ContainerContents(Contents):
    """Files of containers, one after the other."""

    files_are_independent: ClassVar[bool] = True
    threads_split_files = False  # where a file can be cut is known once its records were walked, by one thread

    def _plan_ranges(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield ranges that begin and end at containers.

        A file that is to be cut is walked, header by header, for that.
        """
        for file in self.files:
            if task_bytes is None or file.size <= task_bytes:
                yield self._make_whole_range(request, file)
            else:
                yield from self._cut(request, file, task_bytes)

    def _plan_series(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        del task_bytes
        ranges = tuple(self._make_whole_range(request, file) for file in self.files)
        first = self.files[0].path if self.files else ""
        yield SeriesScan(*request, first, sum(file.size for file in self.files), ranges)

    views: ClassVar = {
        "rows": View(lambda self: self._columns.schema, _plan_ranges, lambda self: (*PROVENANCE, *self._columns.extra)),
        "partkeys": View(lambda self: self._columns.schema, _plan_series),
        "frames": View(CONTAINERS_SCHEMA, _plan_ranges),
    }

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Return the end of the complete containers, as `Followable.find_committed_end` says."""
        if self.scan.view == "partkeys":
            raise make_follow_error(self)

        remaining = replace(self._make_range(request, file, position, file.size, self._step), resumed=position > 0)
        with closing(self.scan.storage.open(file.path)) as source:
            walk = remaining.walk_containers(source)
            for _ in walk.read_batches():
                pass
        state = walk.state
        # What follows the records of a container need not be there yet, but for the view that shows it.
        rows = self.scan.view != "frames"
        if state.ending == TORN_CONTAINER or (state.ending and not rows):
            return int(state.position if state.ending == TORN_HEADER else state.container)
        return int(next(place for place in (state.tail, state.zeros, state.position) if place >= 0))

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Return fragments of new ranges, as `Followable.list_fragments` says."""
        return [
            replace(self._make_range(request, replace(file, size=end), start, end, self._step), resumed=start > 0)
            for file, start, end in ranges
        ]

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return containers and records."""
        del file
        return lambda offset: parse_parts(source, offset, self.selection)

    def draw_pictures(self, request: BoundScan) -> Iterator[Picture]:
        """Yield records by schema, series by metric and time."""
        if self.scan.view == "containers" or not self.files:
            return
        scan = replace(request.scan, view="rows", columns=None, filters=(), expression=None, on_damage="skip")
        contents = type(self)(self.format, self.files, scan)
        charts = Charts(list_available_columns(contents))
        chart_request = bind_scan(contents, replace(scan, columns=tuple(charts.columns)))
        for fragment in plan_fragments(contents, chart_request, PIECE_BYTES):
            for batch in fragment.to_batches(Findings("skip")):
                charts.add(batch)
        yield from charts.draw_pictures()

    def make_counting(self, request: BoundScan) -> Counting | None:
        """Return what counts records, where all of them are read; else None."""
        scan = request.scan
        is_plain = scan.view == "rows" and scan.columns is None and not scan.filters and scan.expression is None
        return Charts(list_available_columns(self)) if is_plain and self.files else None

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return schemas and the kind of records at the start of the data."""
        del request
        if not self.files:
            return {}
        layouts = self.selection.layouts
        facts: dict[str, Any] = {"schemas": ", ".join(layout.name for layout in layouts)}
        if not self.selection.plain:
            facts["schema IDs"] = ", ".join(str(layout.schema_id) for layout in layouts)
            facts["records"] = "part keys" if self.selection.part_keys else "samples"
        return facts

    @cached_property
    def selection(self) -> Selection:
        """The schemas that are read: those named, or those of the records at the start of the files."""
        work = partial(self._read_heads, np.zeros(layout.MAX_SCHEMA_ID + 1, np.uint8))
        return select(self.scan.options, map_files(work, [file for file in self.files if file.size]))

    def _read_heads(self, complete: NDArray[np.uint8] | None, file: File) -> list[HeadRecord]:
        """Return the records that show the schemas of a file, but for IDs of which files before have shown enough."""
        storage, schemas = self.scan.storage, self.scan.options.known_schemas
        question = f"schemas {schemas.digest}"
        if (known_heads := find_answer(storage, file, question)) is not None:
            return split(known_heads, schemas)
        if storage.index is not None or is_remote(file.path):  # an index has those of each file by itself
            complete = None
        records = find_schema_records(storage.read(file, 0, PROBE_BYTES), schemas, complete)
        note_answer(storage, file, question, join_records(records))
        return records

    @cached_property
    def _columns(self) -> ViewColumns:
        return make_columns(self.selection, self.scan.options, self.scan.view)

    @cached_property
    def _pool(self) -> Pool:
        return Pool()

    @property
    def _step(self) -> int:
        return self.scan.options.container_size or 0

    def _make_whole_range(self, request: BoundScan, file: File) -> ContainerRange:
        return self._make_range(request, file, 0, file.size, self._step)

    def _make_range(self, request: BoundScan, file: File, start: int, end: int, step: int) -> ContainerRange:
        fields = self._columns.fields
        return ContainerRange(
            *request, file.path, end - start, file, start, end, step, self.selection, fields, self._pool
        )

    def _cut(self, request: BoundScan, file: File, task_bytes: int) -> Iterator[ContainerRange]:
        begin = _Cut(0, self._step, 0)
        for cut in itertools.chain(self._cuts(request, file, task_bytes), (_Cut(file.size, 0, 0),)):
            yield replace(self._make_range(request, file, begin.start, cut.start, begin.step), doubts=begin.doubts)
            begin = cut

    def _cuts(self, request: BoundScan, file: File, distance: int) -> Iterator[_Cut]:
        """Yield where an intact file is cut by an index, or any by a walk from its start."""
        indexed = self._load_cuts(file, distance)
        last = 0
        for cut in self._find_beginnings(request, file) if indexed is None else indexed:
            if last + distance <= cut.start < file.size:
                yield cut
                last = cut.start

    def _find_beginnings(self, request: BoundScan, file: File) -> Iterator[_Cut]:
        """Yield where the containers of a file begin."""
        step = self._step
        with closing(self.scan.storage.open(file.path)) as source:
            walk = self._make_whole_range(request, file).walk_containers(source)
            for container in walk.iterate_containers():
                begin, following = int(container["start"]), int(container["following"])
                yield _Cut(begin, step, walk.framing.count_doubts(begin))
                if following > container["end"]:
                    step = following - begin

    def _load_cuts(self, file: File, distance: int) -> Iterable[_Cut] | None:
        """Return where containers begin by an index: of one in `CUT_BYTES`; None without an index."""
        answer = find_answer(self.scan.storage, file, make_question(self, _CUTS)) if distance >= CUT_BYTES else None
        if answer is None:
            return None
        numbers = unpack_numbers(answer)
        return map(_Cut, numbers[::3], numbers[1::3], numbers[2::3])

    def needs_scan(self, file: File, task_bytes: int) -> bool:
        """Say whether a scan is needed: where containers begin is known only of those in front of them."""
        return self._load_cuts(file, task_bytes) is None

    def scan_for_splits(self, request: BoundScan) -> bool:
        """Note where containers begin, as `ScansForSplits.scan_for_splits` says."""
        for file in self.files:
            if file.size > CUT_BYTES:
                cuts = itertools.chain.from_iterable(self._cuts(request, file, CUT_BYTES))
                note_answer(self.scan.storage, file, make_question(self, _CUTS), pack_numbers(list(cuts)))
        return True
