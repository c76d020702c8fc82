"""Reading trees of locations: files to locations, locations to fragments."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.arrow import find_value_type, make_array, make_scalar
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import LocationVerdict
from sawlog.deephaven.table.checks import FileCheck
from sawlog.deephaven.table.columns import SAMPLED_ONE_BY_ONE, ColumnReader
from sawlog.deephaven.table.fields import parse_parts
from sawlog.deephaven.table.fragments import BATCH_ROWS, RowRange
from sawlog.deephaven.table.groups.grouping import GroupComparison, Grouping, is_comparable
from sawlog.deephaven.table.layout import ColumnDamageKind
from sawlog.deephaven.table.location import ColumnFiles, Location
from sawlog.deephaven.table.options import ReadOptions
from sawlog.deephaven.table.specs import TableSpecs
from sawlog.deephaven.table.symbols import SymbolTable
from sawlog.deephaven.table.tree import TreeWalk, find_locations
from sawlog.deephaven.table.types import PARTITION_KEY, TYPE_KEY, ColumnSpec
from sawlog.deephaven.table.views import (
    COLUMNS_SCHEMA,
    GROUPS_SCHEMA,
    LocationColumns,
    LocationGroups,
    read_column_grouping,
)
from sawlog.deephaven.types import ColumnType
from sawlog.errors import DamageError, FormatError, OptionError, warn
from sawlog.format.charts import BarChart, Picture
from sawlog.format.contract import PROVENANCE, BoundScan, Contents, Format, Fragment, Scan, View
from sawlog.format.damage import DAMAGE_SCHEMA, Damage, DamageWarning, Findings
from sawlog.format.fields import FieldParser
from sawlog.format.query import EVERY_ROW, Condition, can_match, iterate_conditions
from sawlog.storage import File, Source, is_remote, map_files
from sawlog.storage.workers import ReadOnce

_INTERNAL = pa.field(layout.INTERNAL_PARTITION, pa.string(), metadata={PARTITION_KEY: b"internal"})


class DeephavenTableContents(Contents):
    """Locations of one table, by column partition and internal partition."""

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._options: ReadOptions = scan.options
        self._storage = scan.storage
        self._verdicts: dict[str, LocationVerdict] = {}
        walk = TreeWalk(scan.roots, files)
        chosen_locations = self._choose(find_locations(walk, self._options.layout, scan.storage))
        location_files = [file for location in chosen_locations for file in location.files]
        self._links = {**walk.find_escaping_files(chosen_locations), **walk.escaping}
        safe = chosen_locations
        if self._links:
            safe = [
                location.with_files(file for file in location.files if file.path not in self._links)
                for location in chosen_locations
            ]
        if self._links and scan.on_damage == "fail":
            raise DamageError(_link_damage(*next(iter(self._links.items()))))
        self._types = TableSpecs(safe, self._options, scan.storage, required=scan.view == "rows")
        self.locations = self._types.locations
        for path, target in self._links.items():
            warn(str(_link_damage(path, target)), DamageWarning)
        listed = {file.path for file in location_files}
        linked = [File(path, 0) for path in self._links if path not in listed]
        super().__init__(format, location_files + linked, scan)

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """Schema of the view `rows`: the columns of all locations by name, the partitioning column included."""
        fields = [spec.make_field(name, self._options.char, self._options.decimal) for name, spec in self.specs.items()]
        names = list(self.specs)
        name = self.partition_column
        if name and name not in names and any(location.column_partition for location in self.locations):
            order = self._types.table.order
            index = order.index(name) if name in order else len(fields)
            fields.insert(min(index, len(fields)), pa.field(name, pa.string(), metadata={PARTITION_KEY: b"column"}))
        return pa.schema(fields)

    @property
    def partition_column(self) -> str:
        """Name of the partitioning column; empty when it is left out."""
        return self._types.partition_column

    @cached_property
    def specs(self) -> dict[str, ColumnSpec]:
        """Specs of all columns, in the order of the schema file, then of the option, then by name."""
        specs = self._types.specs
        self._types.tell_generation()
        return specs

    def count_parts(self, request: BoundScan) -> int:
        """Return how many locations there are, or files to check: a thread reads all columns of one."""
        return len(self.files if request.scan.view == "damage" else self.locations)

    def _plan_columns(self, request: BoundScan, kind: type[LocationColumns | LocationGroups]) -> Iterator[Fragment]:
        for location, verdict in self._judge_all(self.locations):
            size = sum(file.size for file in location.files)
            yield kind(*request, location.directory, size, verdict)

    def _plan_rows(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield ranges of rows, fewer where a filter names groups."""
        locations = [location for location in self.locations if self._can_match(request, location)]
        for location, verdict in self._judge_all(locations):
            yield from self._plan_ranges(request, location, verdict, task_bytes)

    def prefetch_headers(self, request: BoundScan) -> None:
        """Ask how files begin, and how many rows locations have."""
        deque(self._plan_rows(request, None), 0)

    def make_verify_request(self, request: BoundScan) -> BoundScan:
        """Return the request that checks each file of every location."""
        return request._replace(scan=replace(request.scan, view="damage"))

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return the header of a column file, and values of a fixed width."""
        named = layout.split_name(file.name)
        spec = self.specs.get(named[0]) if named is not None else None
        return lambda offset: parse_parts(source, file.path, offset, spec)

    def draw_pictures(self, request: BoundScan) -> Iterator[Picture]:
        """Yield rows by partition, bytes by column and kind of file."""
        del request
        rows, sizes = BarChart("rows"), BarChart("bytes")
        shared = posixpath.commonpath([posixpath.dirname(location.directory) for location in self.locations])
        for location, verdict in self._judge_all(self.locations):
            partition = location.column_partition or location.directory.removeprefix(shared).strip("/")
            first = next((file.path for file in location.files), "")
            rows.add(partition, location.internal_partition or "", verdict.rows.count, first)
            for name, column in location.columns.items():
                type = self.specs[name].type.value if name in self.specs else "unknown"
                header = verdict.headers.of(column, layout.DATA)
                start = header.data_start if header is not None else 0
                for suffix, file in column.files.items():
                    offset = start if suffix == layout.DATA else 0
                    sizes.add(f"{name}: {type}", suffix, file.size, file.path, offset)
        yield rows.draw_picture("Rows by partition")
        yield sizes.draw_picture("Bytes by column and kind of file", order=(layout.DATA,))

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return the layout, table, partitions and columns."""
        del request
        first = self.locations[0]
        facts: dict[str, Any] = {"layout": first.layout}
        if first.table:
            facts["table"] = f"{first.namespace}.{first.table}" if first.namespace else first.table
        facts["locations"] = len(self.locations)
        if first.layout != "splayed":
            facts["internal partitions"] = len({location.internal_partition for location in self.locations})
            facts["column partitions"] = len({location.column_partition for location in self.locations})
        rows = [verdict.rows for _, verdict in self._judge_all(self.locations)]
        facts["rows"] = sum(location_rows.count for location_rows in rows)
        facts["row count from"] = ", ".join(sorted({location_rows.source for location_rows in rows}))
        grouping = [name for name, spec in self.specs.items() if spec.grouping]
        if grouping:
            facts["grouping columns"] = ", ".join(grouping)
        return facts

    def _choose(self, locations: Sequence[Location]) -> list[Location]:
        if not locations:
            raise FormatError("there is no location of column files")
        expected = {"namespace": self._options.namespace, "table": self._options.table}
        matching_locations = [
            location
            for location in locations
            if all(value is None or getattr(location, part) in (None, value) for part, value in expected.items())
        ]
        if not matching_locations:
            raise FormatError(f"none of the {len(locations)} locations is of the namespace and table asked for")
        tables = {
            (location.namespace, location.table) for location in matching_locations if location.layout != "splayed"
        }
        if len(tables) > 1:
            table_names = ", ".join(sorted(f"{namespace}.{table}" for namespace, table in tables))
            raise OptionError(f"locations of several tables: {table_names}; choose one with namespace= and table=")
        return matching_locations

    def _judge_all(self, locations: Sequence[Location]) -> Iterator[tuple[Location, LocationVerdict]]:
        """Yield locations with their verdicts; with a warning, the first time, where a row count is uncertain.

        Remote ones are judged many at a time, for each waits for the network, though not long before they are asked
        for: what is fetched of their files is kept until these are read.
        """
        waiting = {
            location.directory: location.files[0]
            for location in locations
            if is_remote(location.directory) and location.files and location.directory not in self._verdicts
        }
        by_path = {waiting[place.directory].path: place for place in locations if place.directory in waiting}
        judged = map_files(lambda file: self._types.judge(by_path[file.path]), waiting.values())
        for location in locations:
            if location.directory in waiting:
                verdict = next(judged)
            else:
                verdict = self._verdicts.get(location.directory) or self._types.judge(location)
            if verdict.rows.remark:
                warn(verdict.rows.remark, DamageWarning)
                verdict = replace(verdict, rows=replace(verdict.rows, remark=""))
            self._verdicts[location.directory] = verdict
            yield location, verdict

    def _can_match(self, request: BoundScan, location: Location) -> bool:
        """Return whether filters on partitions let any row of a location through."""
        if request.projection.query == EVERY_ROW:
            return True
        named = {self.partition_column: location.column_partition, _INTERNAL.name: location.internal_partition}
        partition_values = {
            name: make_array([value], pa.string()) for name, value in named.items() if name not in self.specs
        }
        return can_match(request.projection.query, pa.record_batch(partition_values))

    def _plan_ranges(
        self, request: BoundScan, location: Location, verdict: LocationVerdict, task_bytes: int | None
    ) -> Iterator[RowRange]:
        count = verdict.rows.count
        size = self._count_bytes(request, location)
        step = max(count, 1)
        if task_bytes is not None and size > task_bytes:
            # Cuts lie between batches, so that all fragments together make the batches of one.
            step = max(BATCH_ROWS, count * task_bytes // size // BATCH_ROWS * BATCH_ROWS)
        ranges, grouped = self._select_groups(request, verdict)
        files = location.columns.items()
        symbols = {name: ReadOnce[SymbolTable]() for name, column in files if layout.SYMBOL_OFFSETS in column.files}
        for first, end in ranges:
            for begin in range(first, end, step):
                until = min(end, begin + step)
                share = size * (until - begin) // count
                yield RowRange(*request, location.directory, share, verdict, begin, until, grouped, symbols)
        if not count:
            yield RowRange(*request, location.directory, 0, verdict, 0, 0)

    def _count_bytes(self, request: BoundScan, location: Location) -> int:
        """Return the number of bytes of the wanted columns."""
        names = set(request.projection.decoded.names)
        return sum(column.size for name, column in location.columns.items() if name in names)

    def _select_groups(
        self, request: BoundScan, verdict: LocationVerdict
    ) -> tuple[list[tuple[int, int]], tuple[Condition, ...]]:
        """Return ranges of rows that filters on grouped columns leave, and these filters."""
        used = []
        count = verdict.rows.count
        ranges = [(0, count)] if count else []
        for condition in iterate_conditions(request.projection.query):
            column = verdict.location.columns.get(condition.column)
            if column is None or condition.key is not None or not condition.values or not count:
                continue
            if None in condition.values:  # groups do not list rows without a value
                continue
            try:
                grouping = self._find_trusted(request, column, verdict)
            except FormatError as error:
                warn(f"{error}; all rows are read", DamageWarning)
                continue
            if grouping is not None:
                field = self.rows_schema.field(condition.column)
                groups = [group for value in condition.values for group in grouping.find(_make_key(value, field))]
                ranges = _intersect_ranges(ranges, sorted({(group.first, group.end) for group in groups}))
                used.append(condition)
        return ranges, tuple(used)

    def _find_trusted(self, request: BoundScan, column: ColumnFiles, verdict: LocationVerdict) -> Grouping | None:
        """Return the groups of a column, if filters can use them."""
        spec = verdict.specs[column.name]
        grouping = read_column_grouping(column, verdict, self._storage)
        if grouping is None or not is_comparable(grouping, spec.type):
            return None
        if spec.variable and len(grouping) > SAMPLED_ONE_BY_ONE:
            return None
        reader = ColumnReader(column.name, verdict, request.scan, Findings("skip"))
        try:
            wrong = GroupComparison(grouping, spec.type, reader.type).find_beginning(reader)
        finally:
            reader.close()
        if wrong is not None:
            assert column.data is not None
            raise FormatError(f"{column.data.path}: grouping: row {wrong} is in the group of another value")
        return grouping

    def _plan_checks(self, request: BoundScan, task_bytes: int | None) -> Iterator[FileCheck]:
        """Yield a check per file of every location; with those of the first, of the links that lead out of the tree."""
        del task_bytes
        links = [file for file in self.files if file.path in self._links]
        for location, verdict in self._judge_all(self.locations):
            counted = False
            for number, file in enumerate(location.files + (links if location is self.locations[0] else [])):
                parts = layout.split_name(file.name)
                counts = not counted and parts is not None and parts[1] == layout.DATA
                counted |= counts
                common = (*request, file.path, file.size, verdict, file, counts, not number)
                yield FileCheck(*common, self._links.get(file.path, ""))

    views: ClassVar = {
        "rows": View(lambda self: self.rows_schema, _plan_rows, (*PROVENANCE, _INTERNAL)),
        "columns": View(COLUMNS_SCHEMA, lambda self, request, _: self._plan_columns(request, LocationColumns)),
        "groups": View(GROUPS_SCHEMA, lambda self, request, _: self._plan_columns(request, LocationGroups)),
        "damage": View(DAMAGE_SCHEMA, _plan_checks),
    }


def _link_damage(path: str, target: str) -> Damage:
    detail = f"a link to {target}, outside of what was named: not followed; name its target, to read it too"
    return Damage(path, 0, 0, ColumnDamageKind.UNSAFE_PATH.label, detail)


def _intersect_ranges(
    ranges: Sequence[tuple[int, int]], other_ranges: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the ranges common to two lists of ranges, each in order; ranges that touch become one."""
    common: list[tuple[int, int]] = []
    index = other_index = 0
    while index < len(ranges) and other_index < len(other_ranges):
        low = max(ranges[index][0], other_ranges[other_index][0])
        high = min(ranges[index][1], other_ranges[other_index][1])
        if low < high:
            if common and common[-1][1] == low:
                low = common.pop()[0]
            common.append((low, high))
        if ranges[index][1] < other_ranges[other_index][1]:
            index += 1
        else:
            other_index += 1
    return common


def _make_key(value: Any, field: pa.Field) -> Any:
    """Return a filter's value as groups name it: in the column's precision, times in ns, characters as numbers."""
    kind = find_value_type(field.type)
    scalar = make_scalar(value, kind)
    if pa.types.is_timestamp(kind):
        return scalar.value
    text = scalar.as_py()
    character = (field.metadata or {}).get(TYPE_KEY) == ColumnType.CHAR.value.encode()
    return ord(text) if character and isinstance(text, str) and len(text) == 1 else text
