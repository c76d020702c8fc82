"""Reading trees of locations: files to locations, locations to fragments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Damage, DamageWarning, Findings
from sawlog.deephaven.schema_xml import MAX_BYTES as MAX_SCHEMA
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.checkpoint import Rows, committed_rows, plain_count, read_checkpoint, row_width
from sawlog.deephaven_table.checks import FileCheck
from sawlog.deephaven_table.columns import SAMPLED_ONE_BY_ONE, ColumnReader
from sawlog.deephaven_table.fragments import BATCH_ROWS, RowRange
from sawlog.deephaven_table.groups.check import GroupComparison, comparable
from sawlog.deephaven_table.infer import (
    MAX_DEFINITION,
    Evidence,
    adjust,
    definition_specs,
    infer,
    known_rows,
    schema_spec,
)
from sawlog.deephaven_table.layout import ColumnType, Kind
from sawlog.deephaven_table.location import Headers, Location
from sawlog.deephaven_table.tree import check_links, find_locations
from sawlog.deephaven_table.types import PARTITION_KEY, TYPE_KEY, ColumnSpec, parse_type
from sawlog.deephaven_table.views import (
    COLUMNS_SCHEMA,
    GROUPS_SCHEMA,
    LocationColumns,
    LocationGroups,
    column_grouping,
)
from sawlog.errors import DamageError, FormatError, OptionError, SawlogError, SchemaError
from sawlog.format import PROVENANCE, Dataset, Fragment, Scan
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.deephaven_table.groups.grouping import Grouping
    from sawlog.deephaven_table.location import ColumnFiles
    from sawlog.deephaven_table.options import ReadOptions
    from sawlog.filters import Filter
    from sawlog.format import Format

_INTERNAL = pa.field(layout.INTERNAL_PARTITION, pa.string(), metadata={PARTITION_KEY: b"internal"})


class DeephavenTableDataset(Dataset):
    """Locations of one table, by column partition and internal partition."""

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._options: ReadOptions = scan.options
        self._storage = scan.storage
        self._counted: dict[str, Rows] = {}
        self._headers: dict[str, Headers] = {}
        found = self._choose(find_locations(files, self._options.layout, scan.storage))
        every = [file for location in found for file in location.files]
        self._links = dict(check_links([one.directory for one in found], every, scan.roots))
        self.locations = [
            location.with_files(file for file in location.files if file.path not in self._links) for location in found
        ]
        if self._links and scan.on_damage == "fail":
            raise DamageError(_link_damage(*next(iter(self._links.items()))))
        for path, target in self._links.items():
            warnings.warn(str(_link_damage(path, target)), DamageWarning, stacklevel=4)
        listed = {file.path for file in every}
        linked = [File(path, 0) for path in self._links if path not in listed]
        super().__init__(format, every + linked, scan)

    def view_schema(self) -> pa.Schema:
        """The columns of all locations by name, the partitioning column included."""
        if self.scan.view == "columns":
            return COLUMNS_SCHEMA
        if self.scan.view == "groups":
            return GROUPS_SCHEMA
        return self.rows_schema

    def extra_columns(self) -> Sequence[pa.Field]:
        """Provenance, and the internal partition."""
        return (*PROVENANCE, _INTERNAL) if self.scan.view == "rows" else PROVENANCE

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """Schema of the view `rows`."""
        fields = [spec.field(name, self._options.char, self._options.decimal) for name, spec in self.specs.items()]
        names = list(self.specs)
        name = self.partition_column
        if name and name not in names and any(location.column_partition for location in self.locations):
            order = self._table.order
            at = order.index(name) if name in order else len(fields)
            fields.insert(min(at, len(fields)), pa.field(name, pa.string(), metadata={PARTITION_KEY: b"column"}))
        return pa.schema(fields)

    @property
    def partition_column(self) -> str:
        """Name of the partitioning column; empty when it is left out."""
        given = self._options.partition_column
        return given if given is not None else self._table.partition_column or layout.DEFAULT_PARTITION_COLUMN

    @cached_property
    def _stored(self) -> dict[str, None]:
        """Names of the columns that have files."""
        return {name: None for location in self.locations for name in location.columns}

    @cached_property
    def _defined(self) -> dict[str, ColumnSpec]:
        """The columns of the schema file."""
        return {
            column.name: schema_spec(column, self._options.schema or layout.TABLE_SCHEMA)
            for column in self._table.columns
            if column.name != self.partition_column
            and (self._options.schema is not None or column.name in self._stored)
        }

    @cached_property
    def _named(self) -> dict[str, ColumnSpec]:
        """Columns whose types the option or the schema file names."""
        given = {name: parse_type(text, f"types: column {name!r}") for name, text in self._options.types.items()}
        defined = self._defined
        for name in given:
            if name not in self._stored and name not in defined:
                known = ", ".join({**defined, **self._stored})
                raise OptionError(f"types: there is no column {name!r}; columns: {known}")
        known_groupings = {
            name: replace(spec, grouping=defined[name].grouping) if name in defined else spec
            for name, spec in given.items()
        }
        return {**defined, **known_groupings}

    @cached_property
    def specs(self) -> dict[str, ColumnSpec]:
        """What is known of every column, in the order of the schema file, then of the option, then by name."""
        found = dict(self._named)
        names = {**self._defined, **found, **self._stored}
        missing = [name for name in names if name not in found]
        found |= self._inferred(missing, found)
        guessed = {name: found[name].guessed for name in missing if name in found and found[name].guessed}
        if guessed:
            told = "; ".join(f"{name} ({guess})" for name, guess in guessed.items())
            warnings.warn(
                f"{self.locations[0].directory}: types were inferred: {told}; name them with types= or schema=",
                stacklevel=8,
            )
        self._tell_generation()
        return {name: self._of_files(name, found[name], name in self._defined) for name in names if name in found}

    def _tell_generation(self) -> None:
        """Say so where nothing proves the generation, or the byte order. The first location speaks for all."""
        first = self.locations[0]
        if not first.columns:
            return
        headers = self._headers_of(first)
        if headers.assumes_version:
            warnings.warn(
                f"{first.directory}: nothing proves that these files have headers, which they are taken to have;"
                " column_version= says otherwise",
                stacklevel=9,
            )
        if headers.assumes_order:
            warnings.warn(
                f"{first.directory}: nothing tells the byte order of these headerless files, taken for little endian;"
                " byteorder= says otherwise",
                stacklevel=9,
            )

    def plan(self, task_bytes: int | None) -> Iterator[Fragment]:
        """See `Dataset.plan`. Ranges of rows, fewer where a filter names groups."""
        if self.scan.view == "damage":
            yield from self._checks()
            return
        for location in self.locations:
            if self.scan.view != "rows":
                kind = LocationColumns if self.scan.view == "columns" else LocationGroups
                size = sum(file.size for file in location.files)
                yield kind(
                    self.scan,
                    self.projection,
                    location.directory,
                    size,
                    self._judged(location),
                    self.specs,
                    self._rows(location),
                )
            elif self._possible(location):
                yield from self._ranges(self._judged(location), task_bytes)

    def verify(self, task_bytes: int | None = None, advance: Any = None, *, every: bool = False) -> Iterator[Any]:
        """See `Dataset.verify`: one report per file of every location."""
        checked = DeephavenTableDataset.__new__(DeephavenTableDataset)
        checked.__dict__.update(self.__dict__)
        checked.scan = replace(self.scan, view="damage")
        yield from Dataset.verify(checked, task_bytes, advance, every=every)

    def info(self) -> dict[str, Any]:
        """Layout, table, partitions and columns."""
        first = self.locations[0]
        facts: dict[str, Any] = {"layout": first.layout}
        if first.table:
            facts["table"] = f"{first.namespace}.{first.table}" if first.namespace else first.table
        facts["locations"] = len(self.locations)
        if first.layout != "splayed":
            facts["internal partitions"] = len({location.internal_partition for location in self.locations})
            facts["column partitions"] = len({location.column_partition for location in self.locations})
        rows = [self._rows(location) for location in self.locations]
        facts["rows"] = sum(one.count for one in rows)
        facts["row count from"] = ", ".join(sorted({one.source for one in rows}))
        grouping = [name for name, spec in self.specs.items() if spec.grouping]
        if grouping:
            facts["grouping columns"] = ", ".join(grouping)
        return facts

    @cached_property
    def _table(self) -> TableSchema:
        if self._options.schema is not None:
            return parse_schema(self._options.schema, self._storage.read(self._options.schema))
        return next((left for one in self.locations if (left := self._left_schema(one)) is not None), TableSchema())

    def _left_schema(self, location: Location) -> TableSchema | None:
        """What the `.schema` file says that sawlog's writer has left in a location."""
        file = location.other(layout.TABLE_SCHEMA)
        if file is None or file.size > MAX_SCHEMA:
            return None
        try:
            return parse_schema(file.path, self._storage.read(file.path))
        except SawlogError as error:
            warnings.warn(f"{error}; it is not used", DamageWarning, stacklevel=6)
            return None

    def _choose(self, locations: Sequence[Location]) -> list[Location]:
        if not locations:
            raise FormatError("there is no location of column files")
        wanted = {"namespace": self._options.namespace, "table": self._options.table}
        chosen = [
            location
            for location in locations
            if all(value is None or getattr(location, part) in (None, value) for part, value in wanted.items())
        ]
        if not chosen:
            raise FormatError(f"none of the {len(locations)} locations is of the namespace and table asked for")
        tables = {(location.namespace, location.table) for location in chosen if location.layout != "splayed"}
        if len(tables) > 1:
            found = ", ".join(sorted(f"{namespace}.{table}" for namespace, table in tables))
            raise OptionError(f"locations of several tables: {found}; choose one with namespace= and table=")
        return chosen

    def _inferred(self, names: Sequence[str], known: Mapping[str, ColumnSpec]) -> dict[str, ColumnSpec]:
        """Types of columns that nobody names, from the first location that tells."""
        found: dict[str, ColumnSpec] = {}
        for location in self.locations if names else ():
            wanted = [name for name in names if name not in found and name in location.columns]
            if not wanted:
                continue
            left = self._left_schema(location) if self._options.schema is None else None
            for column in left.columns if left is not None else ():
                if column.name in wanted:
                    found[column.name] = schema_spec(column, location.directory)
                    wanted.remove(column.name)
            definition = location.other(layout.TABLE_DEFINITION)
            if definition is not None and definition.size <= MAX_DEFINITION:
                told = definition_specs(self._storage.read(definition.path), wanted)
                found |= told
                wanted = [name for name in wanted if name not in told]
            headers = self._headers_of(location)
            rows = self._options.num_rows
            if rows is None:
                rows = plain_count(read_checkpoint(location, self._storage))
            if rows is None:
                rows = known_rows(location, headers, {**known, **found})
            evidence = Evidence(location, headers, rows)
            for name in wanted:
                try:
                    spec = infer(location.columns[name], evidence, self._storage)
                except SchemaError:
                    if self.scan.view == "rows":
                        raise
                    continue
                if spec is not None:
                    found[name] = spec
        return found

    def _of_files(self, name: str, spec: ColumnSpec, defined: bool) -> ColumnSpec:
        """The spec of a String with or without symbols, as the first location has it."""
        columns = [location.columns[name] for location in self.locations if name in location.columns]
        return adjust(spec, columns[0]) if columns and not (defined and spec.symbols) else spec

    def _headers_of(self, location: Location) -> Headers:
        if location.directory not in self._headers:
            widths = {
                name: width
                for name, spec in self._named.items()
                if name in location.columns and (width := row_width(spec, location.columns[name])) is not None
            }
            self._headers[location.directory] = Headers(location, self._storage, self._options.told, widths)
        return self._headers[location.directory]

    def _judged(self, location: Location) -> Location:
        """The location with the judgement of its generation, so that no fragment makes another one."""
        return replace(location, told=self._headers_of(location).told) if location.columns else location

    def _rows(self, location: Location) -> Rows:
        if location.directory not in self._counted:
            headers = self._headers_of(location)
            rows = committed_rows(location, headers, self.specs, self._options.num_rows, self._storage)
            if rows.remark:
                warnings.warn(rows.remark, DamageWarning, stacklevel=6)
            self._counted[location.directory] = rows
        return self._counted[location.directory]

    def _possible(self, location: Location) -> bool:
        """Whether filters on partitions let any row of a location through."""
        told = {self.partition_column: location.column_partition, _INTERNAL.name: location.internal_partition}
        for condition in self.projection.filters:
            if condition.column in told and condition.column not in self.specs:
                value = pa.array([told[condition.column]], pa.string())
                batch = pa.RecordBatch.from_arrays([value], names=[condition.column])
                if not condition.mask(batch)[0].as_py():
                    return False
        return True

    def _ranges(self, location: Location, task_bytes: int | None) -> Iterator[RowRange]:
        rows = self._rows(location)
        size = self._size(location)
        step = max(rows.count, 1)
        if task_bytes is not None and size > task_bytes:
            # Cuts lie between batches, so that all fragments together make the batches of one.
            step = max(BATCH_ROWS, rows.count * task_bytes // size // BATCH_ROWS * BATCH_ROWS)
        ranges, grouped = self._grouped(location, rows)
        for first, end in ranges:
            for begin in range(first, end, step):
                behind = min(end, begin + step)
                share = size * (behind - begin) // max(rows.count, 1)
                yield RowRange(
                    self.scan,
                    self.projection,
                    location.directory,
                    share,
                    location,
                    self.specs,
                    rows,
                    begin,
                    behind,
                    grouped,
                )
        if not rows.count and rows.stated:
            yield RowRange(self.scan, self.projection, location.directory, 0, location, self.specs, rows, 0, 0)

    def _size(self, location: Location) -> int:
        """Bytes of the columns that are wanted."""
        names = set(self.projection.decoded.names)
        return sum(column.size for name, column in location.columns.items() if name in names)

    def _grouped(self, location: Location, rows: Rows) -> tuple[list[tuple[int, int]], tuple[Filter, ...]]:
        """Ranges of rows that filters on grouped columns leave, and these filters."""
        used = []
        ranges = [(0, rows.count)] if rows.count else []
        for condition in self.projection.filters:
            column = location.columns.get(condition.column)
            if column is None or condition.op not in ("=", "==", "in") or not rows.count:
                continue
            try:
                grouping = self._trusted(column, location, rows)
            except FormatError as error:
                warnings.warn(f"{error}; all rows are read", DamageWarning, stacklevel=6)
                continue
            if grouping is not None:
                ranges = _intersection(ranges, self._group_ranges(grouping, condition))
                used.append(condition)
        return ranges, tuple(used)

    def _trusted(self, column: ColumnFiles, location: Location, rows: Rows) -> Grouping | None:
        """The groups of a column, if filters can use them.

        Raises:
            FormatError: When a group does not begin with a row of its value.
        """
        headers, spec = self._headers_of(location), self.specs[column.name]
        grouping = column_grouping(column, headers, rows.count, self._storage)
        if grouping is None or not comparable(grouping, spec.type):
            return None
        if spec.variable and len(grouping.groups) > SAMPLED_ONE_BY_ONE:
            return None
        field = self.rows_schema.field(column.name)
        sentinels = self._options.sentinels_as_null
        reader = ColumnReader(
            column, spec, field, rows.count, headers, self._storage, Findings("skip"), sentinels=sentinels
        )
        try:
            wrong = GroupComparison(grouping, spec.type, field.type).beginning(reader)
        finally:
            reader.close()
        if wrong is not None:
            assert column.data is not None
            raise FormatError(f"{column.data.path}: grouping: row {wrong} is in the group of another value")
        return grouping

    def _group_ranges(self, grouping: Any, condition: Filter) -> list[tuple[int, int]]:
        field = self.rows_schema.field(condition.column)
        values = condition.value if condition.op == "in" else [condition.value]
        found = [
            (group.first, group.end)
            for value in values
            if value is not None
            for group in grouping.find(_key(value, field))
        ]
        return sorted(set(found))

    def _every(self, location: Location) -> list[File]:
        """The files of a location; with the first, the links that lead out of the tree."""
        links = [file for file in self.files if file.path in self._links]
        return location.files + (links if location is self.locations[0] else [])

    def _checks(self) -> Iterator[FileCheck]:
        for location in self.locations:
            rows = self._rows(location)
            judged = self._judged(location)
            counted = False
            for file in self._every(location):
                parts = layout.split_name(file.name)
                counts = not counted and parts is not None and parts[1] == layout.DATA
                counted |= counts
                yield FileCheck(
                    self.scan,
                    self.projection,
                    file.path,
                    file.size,
                    judged,
                    self.specs,
                    rows,
                    file,
                    counts,
                    self._links.get(file.path, ""),
                )


def _link_damage(path: str, target: str) -> Damage:
    detail = f"a link to {target}, outside of what was named: not followed; name its target, to read it too"
    return Damage(path, 0, 0, Kind.UNSAFE_PATH.name.lower(), detail)


def _intersection(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What two lists of ranges, each in order, have in common; ranges that touch become one."""
    found: list[tuple[int, int]] = []
    one = other = 0
    while one < len(some) and other < len(others):
        low = max(some[one][0], others[other][0])
        high = min(some[one][1], others[other][1])
        if low < high:
            if found and found[-1][1] == low:
                low = found.pop()[0]
            found.append((low, high))
        if some[one][1] < others[other][1]:
            one += 1
        else:
            other += 1
    return found


def _key(value: Any, field: pa.Field) -> Any:
    """A value of a filter as groups name it: of the column's precision, times as nanoseconds, characters as numbers."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    scalar = pa.scalar(value, kind)
    if pa.types.is_timestamp(kind):
        return scalar.value
    text = scalar.as_py()
    character = (field.metadata or {}).get(TYPE_KEY) == ColumnType.CHAR.value.encode()
    return ord(text) if character and isinstance(text, str) and len(text) == 1 else text
