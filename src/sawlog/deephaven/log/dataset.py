"""Reading logs: files to partitions, partitions to fragments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_constant
from sawlog.deephaven.log.columns import PARTITION_KEY, Rendering, unite
from sawlog.deephaven.log.extent import measure_range
from sawlog.deephaven.log.fields import parse_parts
from sawlog.deephaven.log.fragments import (
    COMMANDS_SCHEMA,
    ENTRIES_SCHEMA,
    EntryRange,
    LogFragment,
    RowRange,
    UnreadableFile,
    make_log_range,
)
from sawlog.deephaven.log.header import Header, IncompleteHeaderError, measure_header, read_header
from sawlog.deephaven.log.kernels.scan import may_delete
from sawlog.deephaven.log.names import LogName, order_key, parse_name
from sawlog.deephaven.log.options import ReadOptions
from sawlog.deephaven.log.plan import NO_CUTS, CutLayout, find_cut, find_cuts, recall, scan, walk_stretch
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.errors import FormatError, OptionError, UnsupportedError, warn
from sawlog.format.contract import (
    CUT_BYTES,
    PROBE_BYTES,
    BoundScan,
    Contents,
    Format,
    Fragment,
    Range,
    Scan,
    View,
    space_offsets,
)
from sawlog.format.damage import Damage, DamageWarning
from sawlog.format.fields import FieldParser
from sawlog.format.planning import count_threads, plan
from sawlog.format.query import can_match
from sawlog.storage import File, Source, Storage, find_answer, map_files, note_answer
from sawlog.storage.index import pack_numbers, unpack_numbers
from sawlog.storage.names import is_remote

DEFAULT_PARTITION_COLUMN = "Date"
HEADER = "header"
LAYOUT = "layout"
"""What an index is asked of a log; what of one that was read whole: where its last DELETE_PARTITION ends, and cuts."""
_STRETCHES = "stretches"
"""What is asked of a log that was read in stretches: of each, `_STRETCH_NUMBERS`, and cuts in it."""
_STRETCH_NUMBERS = 6
"""Bytes past which a stretch was to begin and end, where it does, the end of its last deletion, number of cuts."""
FEW_ROWS_BYTES = 2 << 20
"""Bytes at the end of a partition that are read first where some rows, whichever these are, will do."""
_GROWTH_FACTOR = 4
"""By which those bytes become more, where they were not enough."""


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """File of a dataset: its name's parts, its header, or why it has none; whether that was seen to delete nothing."""

    file: File
    name: LogName
    header: Header | None
    reason: str = ""
    incomplete: bool = False
    newer: Damage | None = None
    deletes_nothing: bool = False

    @property
    def partition(self) -> tuple[str, ...]:
        """Key that the logs of one partition share; a log whose name does not say it is a partition of its own."""
        partition = self.name.partition
        return partition if all(partition) else (self.file.path,)


def open_log(file: File, options: ReadOptions, storage: Storage, headers: dict[bytes, Header] | None = None) -> Header:
    """Return the header of a file; arguments and errors are those of `_read_head`."""
    return _read_head(file, options, storage, headers)[0]


def _read_head(
    file: File, options: ReadOptions, storage: Storage, headers: dict[bytes, Header] | None = None
) -> tuple[Header, bytes]:
    """Return the header of a file, and the bytes that were read for it, none if an index knows it.

    Files that begin with the same bytes share one of `headers`.

    Raises:
        IncompleteHeaderError: When the file ends inside the header.
        FormatError: When it is no log of a known version, or its header is damaged.
    """
    force = "unknown_versions" in options.salvage

    def parse_head(head: bytes) -> Header:
        size = measure_header(head)
        if headers is not None and size <= file.size and (parsed_header := headers.get(head[:size])) is not None:
            return parsed_header
        header = read_header(file.path, file.size, storage, head, strict=options.strict, force=force)
        return header if headers is None else headers.setdefault(header.raw, header)

    if (head := find_answer(storage, file, HEADER)) is not None:
        with suppress(FormatError):  # an index is not believed when it says that a file is bad
            return parse_head(head), b""
    head = storage.read(file, 0, min(PROBE_BYTES, file.size))
    header = parse_head(head)
    note_answer(storage, file, HEADER, header.raw)
    return header, head


class DeephavenLogContents(Contents):
    """Logs of one table, partition by partition, each in the order in which its files were begun."""

    files_are_independent: ClassVar[bool] = True

    _optimistic = False
    _wants_few = False
    """Whether a reader ends when it has enough rows, whichever these are."""
    _stretch: tuple[int, int] | None = None
    """The bytes of its only log that are read: from the first cut after one to the first after the other."""

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._options: ReadOptions = scan.options
        self.logs = self._open_all(files, scan)
        super().__init__(format, [log.file for log in self.logs], scan)
        # To walk a remote log to its cuts takes all of its bytes, which would be fetched again to be read.
        self.threads_split_files = self._options.split == "resync" or not self._has_remote_logs

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """Schema of the view `rows`."""
        readable = [(log.file.path, log.header) for log in self.logs if log.header is not None]
        schema = unite(readable, self._rendering)
        name = self.partition_column
        if name and name not in schema.names and any(log.name.column_partition for log in self.logs):
            place = self._table.order.index(name) if name in self._table.order else len(schema)
            field = pa.field(name, pa.string(), metadata={PARTITION_KEY: b"column"})
            schema = schema.insert(min(place, len(schema)), field)
        return schema

    @property
    def _has_remote_logs(self) -> bool:
        return any(is_remote(log.file.path) for log in self.logs)

    @property
    def partition_column(self) -> str:
        """Name of the partitioning column; empty when it is left out."""
        name = self._options.partition_column
        return name if name is not None else self._table.partition_column or DEFAULT_PARTITION_COLUMN

    def _plan_ranges(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield ranges of logs; the logs of a partition are scanned before its first range, where that is needed."""
        threads = count_threads(self, request)
        for partition in self._group_logs(request):
            if self._begins_at_the_end(partition):
                yield from self._from_the_end(request, partition)
                continue
            layouts = [self._find_layout(log, task_bytes, threads) for log in partition]
            last_deleting = _find_last_deleting([layout.live_from for layout in layouts])
            for index, (log, layout) in enumerate(zip(partition, layouts, strict=True)):
                dead = index < last_deleting
                if log.header is None:
                    yield self._make_unreadable_file(request, log)
                    continue
                start, size = self._ends(log.file, log.header)
                if self._stretch is not None and start >= size:
                    continue
                cuts = (cut for cut in layout.cuts if start < cut < size)
                bounds = itertools.chain((start,), cuts, (max(size, start),))
                live_from = (size if dead else max(layout.live_from, 0)) if self._applies else 0
                for begin, end in itertools.pairwise(bounds):
                    yield self._make_range(request, log, begin, end, live_from)

    views: ClassVar = {
        "rows": View(lambda self: self.rows_schema, _plan_ranges),
        "frames": View(ENTRIES_SCHEMA, _plan_ranges),
        "commands": View(COMMANDS_SCHEMA, _plan_ranges),
    }

    def split_groups(self, request: BoundScan, task_bytes: int) -> Iterator[Contents | Fragment]:
        """Yield partitions, where remote logs have to be walked, or stretches of long ones."""
        if self._wants_few:
            for logs in self._group_logs(request):
                part = self.with_files([log.file for log in logs])
                yield from plan(part, request, task_bytes) if self._has_layouts(logs, task_bytes) else [part]
            return
        large = any(log.file.size > task_bytes for log in self.logs)
        if not self._has_remote_logs or not (self._applies or large) or self._has_layouts(self.logs, task_bytes):
            return
        for logs in self._group_logs(request):
            part = self.with_files([log.file for log in logs])
            if self._options.split == "resync":
                yield from itertools.chain.from_iterable(self._split_log(log, task_bytes) for log in logs)
            elif self._has_layouts(logs, task_bytes):
                yield from plan(part, request, task_bytes)
            else:
                yield part

    def list_unscanned_parts(self, request: BoundScan, task_bytes: int) -> Iterator[Contents]:
        """Yield logs of partitions with a long one: tasks find where those may be cut, and what all of them delete."""
        if self.threads_split_files:
            return
        for logs in self._group_logs(request):
            if any(is_remote(log.file.path) and log.file.size > task_bytes for log in logs):
                for log in logs:
                    if not self._has_layouts([log], task_bytes):
                        yield from self._split_log(log, task_bytes)

    def _has_layouts(self, logs: Sequence[BinaryLog], task_bytes: int | None) -> bool:
        """Return whether the layouts of logs are known, so that they are planned without reading them."""

        def is_known(log: BinaryLog, header: Header) -> bool:
            if self._recall_layout(log, header, task_bytes) is not None:
                return True
            distance = _compute_distance(log.file.size - header.size, task_bytes)
            return self._applies and recall(log.file, self.scan, header.size, distance) is not None

        return all(log.header is None or is_known(log, log.header) for log in logs)

    def _split_log(self, log: BinaryLog, task_bytes: int) -> Iterator[DeephavenLogContents]:
        """Yield a log, in as many parts as there are to be tasks; they find their ends themselves."""
        contents = self.with_files([log.file])
        distance = _compute_distance(log.file.size - log.header.size, task_bytes) if log.header is not None else None
        if log.header is None or distance is None:
            yield contents
            return
        for target in range(log.header.size, log.file.size, distance):
            part = copy(contents)
            part._stretch = (target, target + distance)
            yield part

    def _ends(self, file: File, header: Header) -> tuple[int, int]:
        """Return where a log is read: from the header's end, or an entry that begins a set, to another or the end."""
        if self._stretch is None:
            return header.size, file.size
        first, last = self._stretch
        ends = []
        for target in self._stretch:
            cut = header.size if target == header.size else None
            while cut is None and target < file.size:
                cut = find_cut(file, header, self.scan, target)
                target += last - first  # noqa: PLW2901
            ends.append(file.size if cut is None else cut)
        return ends[0], ends[1]

    def with_files(self, files: Sequence[File]) -> Self:
        contents = super().with_files(files)
        contents.logs = [self.logs[place] for place in sorted(self._places[file.path] for file in files)]
        for name in ("_logs_by_path", "_places"):
            vars(contents).pop(name, None)
        return contents

    def plan_whole_read(self) -> Self | None:
        """Plan one walk, as `PlansWholeReads` says: enough as long as there is no DELETE_PARTITION, and no damage.

        A reader that wants rows one after the other must know beforehand which were deleted; one that wants them all
        may find out.
        """
        if not self._applies or self._optimistic:
            return None
        contents = copy(self)
        contents._optimistic = True
        return contents

    def plan_few_rows(self) -> Self | None:
        """Plan a search for deletions from the end on, as `PlansFewRows` says: no row after the last one is deleted."""
        if not self._applies or self.scan.view != "rows":
            return None
        contents = copy(self)
        contents._wants_few = True
        return contents

    def _begins_at_the_end(self, logs: Sequence[BinaryLog]) -> bool:
        """Return whether some rows of a partition are found sooner at its end than by a search of all of it."""
        if not self._wants_few or sum(log.file.size for log in logs) <= FEW_ROWS_BYTES:
            return False
        return not self._has_layouts(logs, None)

    def _from_the_end(self, request: BoundScan, logs: Sequence[BinaryLog]) -> Iterator[Fragment]:
        """Yield ranges of a partition, the last one first, until all are read or a DELETE_PARTITION is found."""
        for log in reversed(logs):
            if log.header is None:
                yield self._make_unreadable_file(request, log)
                continue
            end, length = log.file.size, FEW_ROWS_BYTES
            while end > log.header.size:
                begin, live_from = self._find_stretch(log, log.header, end, length)
                yield self._make_range(request, log, begin, end, max(live_from, 0))
                if live_from >= 0:
                    return
                end, length = begin, length * _GROWTH_FACTOR

    def _find_stretch(self, log: BinaryLog, header: Header, end: int, length: int) -> tuple[int, int]:
        """Return where a stretch of about some bytes begins that ends at a cut, and the end of its last deletion.

        It is all that is in front of that cut, where no cut is found or there is damage.
        """
        target = end - length
        begin = find_cut(log.file, header, self.scan, target) if target > header.size else header.size
        stretch = None
        if begin is not None and begin < end:
            stretch = walk_stretch(log.file, header, self.scan, begin, end, log.file.size)
        if begin is None or stretch is None or stretch[1] != end:
            return header.size, self._find_live_start(log, header.size, end, 1)
        return begin, stretch[0].live_from

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Walk the new bytes once, to find where the last complete set ends, as `Followable.find_committed_end` says.

        What follows damage may be the rest of a set that damage has broken, until a set begins; it waits as well.
        """
        del request
        log = self._logs_by_path[file.path]
        if log.header is None:
            return position
        start = max(position, log.header.size)
        if file.size < start:
            return position
        options = self._options.without_incomplete()
        log_range = make_log_range(file, log.header, options, self.scan.storage)
        return measure_range(replace(log_range, start=start), last=True).end

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Return fragments of new ranges, as `Followable.list_fragments` says.

        A DELETE_PARTITION takes back what comes with it; rows that were delivered before cannot be taken back.
        """
        ranges_by_path = {requested_range.file.path: requested_range for requested_range in ranges}
        fragments: list[Fragment] = []
        threads = count_threads(self, request)
        for partition in self._group_logs(request):
            news: list[tuple[BinaryLog, int, int, int]] = []
            for log in partition:
                if log.file.path in ranges_by_path and log.header is not None:
                    file, begin, end = ranges_by_path[log.file.path]
                    start = max(begin, log.header.size)
                    live_from = self._find_live_start(log, start, end, threads) if self._applies else -1
                    news.append((replace(log, file=file), start, end, live_from))
            last_deleting = _find_last_deleting([live_from for *_, live_from in news])
            for index, (log, start, end, live_from) in enumerate(news):
                dead = index < last_deleting
                fragments.append(self._make_range(request, log, start, end, end if dead else max(live_from, 0)))
        return fragments

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return the header and entries."""
        header = self._logs_by_path[file.path].header if file.path in self._logs_by_path else None
        return lambda offset: parse_parts(source, offset, header)

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return the version, table, partitions and columns of the logs."""
        del request
        headers = [log.header for log in self.logs if log.header is not None]
        facts: dict[str, Any] = {"version": ", ".join(sorted({str(header.version) for header in headers}))}
        tables = sorted({f"{log.name.namespace}.{log.name.table}" for log in self.logs if log.name.table})
        if tables:
            facts["table"] = ", ".join(tables)
            facts["internal partitions"] = len({log.name.internal_partition for log in self.logs})
            facts["column partitions"] = len({log.name.column_partition for log in self.logs})
        versions = sorted({header.application_version or 0 for header in headers})
        facts["application version"] = ", ".join(map(str, versions))
        constants = sorted({column.name for header in headers for column in header.columns if column.constant})
        if constants:
            facts["constant columns"] = ", ".join(constants)
        unknown = sorted({(kind, len(payload)) for header in headers for kind, payload in header.unknown})
        if unknown:
            facts["unknown header records"] = ", ".join(f"type {kind} ({size} bytes)" for kind, size in unknown)
        return facts

    @cached_property
    def _logs_by_path(self) -> dict[str, BinaryLog]:
        return {log.file.path: log for log in self.logs}

    @cached_property
    def _places(self) -> dict[str, int]:
        """Places of the logs in their order, by path: parts of many logs are taken one after the other."""
        return {log.file.path: place for place, log in enumerate(self.logs)}

    @property
    def _applies(self) -> bool:
        return self._options.deletes == "apply" and self.scan.view in ("rows", "damage")

    @cached_property
    def _table(self) -> TableSchema:
        if self._options.schema is None:
            return TableSchema()
        return parse_schema(self._options.schema, self.scan.storage.read(self._options.schema))

    @cached_property
    def _rendering(self) -> Rendering:
        units = {**self._table.units, **self._options.timestamp_columns}
        names = {column.name for log in self.logs if log.header is not None for column in log.header.columns}
        for name in self._options.timestamp_columns:
            if name not in names:
                raise OptionError(
                    f"timestamp_columns: there is no column {name!r}; columns: {', '.join(sorted(names))}"
                )
        defined = {column.name: column for column in self._table.columns}
        # A stream has its types already, which must hold those of all logs.
        widen = self._options.widen or self.scan.schema is not None
        return Rendering(units, self._options.char, widen, self._table.order, defined)

    def _open_all(self, files: Sequence[File], scan: Scan) -> list[BinaryLog]:
        # A stream opens those logs that have grown: that there is one of them says nothing.
        followed = scan.schema is not None
        single = len(files) == 1 and not followed
        parts = ("namespace", "table", "internal_partition", "column_partition")
        options = {part: value for part in parts if (value := getattr(self._options, part)) is not None}
        names = {}
        for file in files:
            name = parse_name(file.name)
            if single or all(getattr(name, part) in (None, value) for part, value in options.items()):
                names[file.path] = name._replace(**options) if options else name
        if not names and not followed:
            raise FormatError(f"none of the {len(files)} logs is of the namespace, table and partition asked for")
        tables = {(name.namespace, name.table) for name in names.values() if name.table}
        if len(tables) > 1:
            table_names = ", ".join(sorted(f"{namespace}.{table}" for namespace, table in tables))
            raise OptionError(f"logs of several tables: {table_names}; choose one with namespace= and table=")
        named_files = [file for file in files if file.path in names]
        named_files.sort(key=lambda file: order_key(names[file.path], file.path))
        headers: dict[bytes, Header] = {}
        single = len(named_files) == 1 and not followed
        logs = list(
            map_files(lambda file: self._open(file, names[file.path], scan, headers, single=single), named_files)
        )
        if all(log.header is None for log in logs) and not followed:
            raise FormatError(f"{logs[0].reason} (and no other log is readable)")
        return logs

    def _open(self, file: File, name: LogName, scan: Scan, headers: dict[bytes, Header], *, single: bool) -> BinaryLog:
        try:
            header, head = _read_head(file, self._options, scan.storage, headers)
        except FormatError as error:
            incomplete = isinstance(error, IncompleteHeaderError)
            if single or not (incomplete or scan.on_damage == "skip"):
                raise
            newer = error.damage if isinstance(error, UnsupportedError) else None
            return BinaryLog(file, name, None, str(error), incomplete, newer)
        for note in header.notes:
            if header.digest or scan.on_damage == "fail" or note != header.notes[0]:
                warn(f"{file.path}: {note}", DamageWarning)
        is_whole = self._options.deletes == "apply" and len(head) == file.size
        deletes_nothing = is_whole and not may_delete(np.frombuffer(head, np.uint8, offset=header.size))
        return BinaryLog(file, name, header, deletes_nothing=deletes_nothing)

    def _group_logs(self, request: BoundScan) -> list[list[BinaryLog]]:
        partitions: dict[tuple[str, ...], list[BinaryLog]] = {}
        has_filters = bool(request.projection.query.parts)
        for log in self.logs:
            if not has_filters or self._can_match(request, log):
                partitions.setdefault(log.partition, []).append(log)
        return list(partitions.values())

    def _can_match(self, request: BoundScan, log: BinaryLog) -> bool:
        """Return whether filters on the partitioning column let any row of a log through."""
        name = self.partition_column
        if not name or self.scan.view != "rows" or name not in self.rows_schema.names:
            return True
        field = self.rows_schema.field(name)
        if log.header is not None and name in {column.name for column in log.header.columns}:
            return True
        value = make_constant(log.name.column_partition, field.type, 1)
        return can_match(request.projection.query, pa.RecordBatch.from_arrays([value], schema=pa.schema([field])))

    def _find_layout(self, log: BinaryLog, task_bytes: int | None, threads: int) -> CutLayout:
        if log.header is None:
            return NO_CUTS
        distance = _compute_distance(log.file.size - log.header.size, task_bytes)
        known_layout = self._recall_layout(log, log.header, task_bytes)
        if known_layout is not None:
            return known_layout
        if distance is None and log.deletes_nothing:
            return NO_CUTS
        if distance is not None and self._options.split == "resync":
            return CutLayout(self._resync_cuts(log, log.header, distance))
        if self._applies and not self._optimistic:
            return self._scan(log, log.header.size, distance, threads, is_read_again=True)
        if distance is not None:
            return CutLayout(find_cuts(log.file, log.header, self.scan, task_bytes=distance))
        return NO_CUTS

    def _find_live_start(self, log: BinaryLog, start: int, end: int, threads: int) -> int:
        assert log.header is not None
        indexed = self._load_layout(log) if start == log.header.size and end == log.file.size else None
        layout = indexed or self._scan(replace_size(log, end), start, None, threads)
        return layout.live_from

    def _recall_layout(self, log: BinaryLog, header: Header, task_bytes: int | None) -> CutLayout | None:
        """Return the layout by an index of an intact log, or by tasks whose stretches end where the next begin."""
        distance = _compute_distance(log.file.size - header.size, task_bytes)
        stretches = find_answer(self.scan.storage, log.file, _STRETCHES)
        joined = _join_layouts(unpack_numbers(stretches), header.size, log.file.size) if stretches else None
        if joined is not None and joined[0] == distance:
            return joined[1]
        if distance is None or distance >= CUT_BYTES:
            indexed = self._load_layout(log) or (joined[2] if joined is not None else None)
            if indexed is not None:
                return replace(indexed, cuts=space_offsets(indexed.cuts, distance) if distance is not None else ())
        return None

    def _load_layout(self, log: BinaryLog) -> CutLayout | None:
        answer = find_answer(self.scan.storage, log.file, LAYOUT)
        live_from, *cuts = unpack_numbers(answer) if answer else (None,)
        return CutLayout(cuts, live_from) if live_from is not None else None

    def scan_for_splits(self, request: BoundScan) -> bool:
        """Note cuts, and what is deleted. Files before it are read with a log that has a DELETE_PARTITION."""
        independent = True
        threads = count_threads(self, request)
        for log in self.logs:
            if log.header is not None and self._stretch is not None:
                self._measure_stretch(log.file, log.header, *self._stretch)
            elif log.header is not None:
                layout = self._scan(log, log.header.size, CUT_BYTES, threads)
                note_answer(self.scan.storage, log.file, LAYOUT, pack_numbers([layout.live_from, *layout.cuts]))
                independent = independent and layout.live_from < 0
        return independent

    def _measure_stretch(self, file: File, header: Header, first: int, last: int) -> None:
        """Note what is between the first cuts at or past two places, and where they are."""
        begin = first if first == header.size else find_cut(file, header, self.scan, first)
        if begin is None:
            return
        stretch = walk_stretch(file, header, self.scan, begin, min(max(begin, last), file.size), CUT_BYTES)
        if stretch is not None:
            layout, end = stretch
            cuts = list(layout.cuts)[1:]
            numbers = [first, last, begin, end, layout.live_from, len(cuts), *cuts]
            note_answer(self.scan.storage, file, _STRETCHES, pack_numbers(numbers))

    def _resync_cuts(self, log: BinaryLog, header: Header, task_bytes: int) -> Iterator[int]:
        target = header.size + task_bytes
        while target < log.file.size:
            cut = find_cut(log.file, header, self.scan, target)
            if cut is not None:
                yield cut
            target = max(target, cut or 0) + task_bytes

    def _scan(
        self, log: BinaryLog, start: int, task_bytes: int | None, threads: int, *, is_read_again: bool = False
    ) -> CutLayout:
        assert log.header is not None
        threads = 1 if is_remote(log.file.path) else threads
        return scan(
            log.file,
            log.header,
            self.scan,
            start=start,
            task_bytes=task_bytes,
            threads=threads,
            is_read_again=is_read_again,
        )

    @staticmethod
    def _make_unreadable_file(request: BoundScan, log: BinaryLog) -> UnreadableFile:
        return UnreadableFile(*request, log.file.path, log.file.size, log.reason, log.incomplete, log.newer)

    def _make_range(self, request: BoundScan, log: BinaryLog, start: int, end: int, live_from: int) -> LogFragment:
        assert log.header is not None
        kind = EntryRange if self.scan.view in ("frames", "commands") else RowRange
        path = log.file.path
        size = end - start
        partition = log.name.column_partition
        scan, projection = request
        parts = (log.file, log.header, start, end, live_from, partition)
        return kind(scan, projection, path, size, *parts, self._optimistic)


def _join_layouts(numbers: Sequence[int], start: int, size: int) -> tuple[int, CutLayout, CutLayout] | None:
    """Return the layout of a log by notes on its stretches: with cuts between these, and with all cuts.

    Returns:
        How long the stretches were to be, and both layouts; None where the notes are not on the whole log.
    """
    place, target, begin = 0, start, start
    bounds: list[int] = []
    cuts: list[int] = []
    live_from, length = -1, 0
    while place + _STRETCH_NUMBERS <= len(numbers):
        first, last, stretch_begin, end, deleted_to, count = numbers[place : place + _STRETCH_NUMBERS]
        place += _STRETCH_NUMBERS
        if first != target or stretch_begin != begin or not 0 <= count <= len(numbers) - place:
            return None
        bounds.append(begin)
        cuts += [begin, *numbers[place : place + count]]
        live_from, length = max(live_from, deleted_to), max(length, last - first)
        place, target, begin = place + count, last, end
    if begin != size:
        return None
    between, within = (CutLayout(sorted(set(places) - {start}), live_from) for places in (bounds, cuts))
    return length, between, within


def _find_last_deleting(live_from: Sequence[int]) -> int:
    """Return the place of the last log with a DELETE_PARTITION, which deletes the rows of those before it; else -1."""
    return max((place for place, offset in enumerate(live_from) if offset >= 0), default=-1)


def _compute_distance(span: int, task_bytes: int | None) -> int | None:
    """Return the distance of cuts that makes tasks of one size, none much over `task_bytes`; None for no cuts."""
    if task_bytes is None or span <= task_bytes:
        return None
    tasks = -(-span // task_bytes)
    return -(-span // tasks)


def replace_size(log: BinaryLog, size: int) -> BinaryLog:
    """Return the log as if its file ended at `size`."""
    return replace(log, file=replace(log.file, size=size))
