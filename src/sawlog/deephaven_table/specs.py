"""The types of the columns of a table: what options, schema files and the locations themselves say, or let guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from sawlog.deephaven.schema_xml import MAX_BYTES as MAX_SCHEMA
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.deephaven.types import FLOATS, INTEGERS
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.checkpoint import Verdict, committed_rows, row_width
from sawlog.deephaven_table.gaps import find_gaps, promised_by_others
from sawlog.deephaven_table.infer import (
    MAX_DEFINITION,
    Evidence,
    definition_specs,
    infer,
    known_rows,
    schema_spec,
)
from sawlog.deephaven_table.location import Headers, Location, plain_count, read_checkpoint
from sawlog.deephaven_table.options import ReadOptions
from sawlog.deephaven_table.schema_file import declared
from sawlog.deephaven_table.types import ColumnSpec, parse_type
from sawlog.errors import FormatError, OptionError, SchemaError, warn
from sawlog.storage import File, Storage, each_file, read_indexed


class TableSpecs:
    """What is known of the columns of a table.

    A location that says itself what its columns are is read as it says, and converted to what the table's columns are:
    the types of a table change with time.

    Args:
        locations: Its locations.
        options: What the reader says.
        storage: Where they are.
        required: Whether it is an error when the width of a column cannot be inferred.

    Attributes:
        locations: The locations, with what they say of how their files begin.
    """

    def __init__(
        self, locations: Sequence[Location], options: ReadOptions, storage: Storage, *, required: bool
    ) -> None:
        self._options = options
        self._storage = storage
        self._required = required
        self._headers: dict[str, Headers] = {}
        self._parsed: dict[bytes, TableSchema | None] = {}
        self._own: dict[int, dict[str, ColumnSpec]] = {}
        self._left: dict[str, TableSchema] = {}
        self._unreadable: dict[str, str] = {}
        self.locations = self._declared(locations)
        if options.types:
            _ = self._named  # refuses columns that there are not

    @cached_property
    def partition_column(self) -> str:
        """Name of the partitioning column; empty when it is left out."""
        given = self._options.partition_column
        return given if given is not None else self.table.partition_column or layout.DEFAULT_PARTITION_COLUMN

    @cached_property
    def table(self) -> TableSchema:
        """The schema file that is given, or the first in a location."""
        if self._options.schema is not None:
            return parse_schema(self._options.schema, self._storage.read(self._options.schema))
        return next(iter(self._left.values()), TableSchema())

    @cached_property
    def specs(self) -> dict[str, ColumnSpec]:
        """What is known of every column, in the order of the schema file, then of the option, then by name."""
        found = dict(self._named)
        names = {**self._defined, **found, **self._stored}
        missing = [name for name in names if name not in found]
        found |= self._inferred(missing, found)
        guessed = {name: found[name].guessed for name in missing if name in found and found[name].guessed}
        if guessed:
            guesses = "; ".join(f"{name} ({guess})" for name, guess in guessed.items())
            warn(f"{self.locations[0].directory}: types were inferred: {guesses}; name them with types= or schema=")
        return {name: self._of_files(name, found[name], name in self._defined) for name in names if name in found}

    def of(self, location: Location) -> Mapping[str, ColumnSpec]:
        """The columns as the files of a location have them."""
        left = self._left.get(location.directory)
        if left is None:
            return self.specs
        own = {name: spec for name, spec in self._owned(left).items() if name in self.specs}
        return {**self.specs, **own}

    def judge(self, location: Location) -> Verdict:
        """What a location is."""
        specs, headers = self.of(location), self.headers_of(location)
        rows = committed_rows(location, headers, specs, self._options.num_rows, self._storage)
        if location.columns:
            _ = headers.version  # found out before copies of it go to other processes
        left = self._left.get(location.directory)
        defined = () if left is None else [one.name for one in left.columns if one.name != left.partition_column]
        typed = self._options.schema is not None or location.columns.keys() <= self._options.types.keys()
        schema = (defined, "" if typed else self._unreadable.get(location.directory, ""))
        others = self._promised.get(location.directory, frozenset()) if left is None else ()
        return Verdict(location, specs, headers, rows, find_gaps(location, rows, headers, specs, schema, others))

    def headers_of(self, location: Location) -> Headers:
        """How the files of a location begin."""
        if location.directory not in self._headers:
            left = self._left.get(location.directory)
            specs = self._named if left is None else {**self._named, **self._owned(left)}
            widths = {
                name: width
                for name, spec in specs.items()
                if name in location.columns and (width := row_width(spec, location.columns[name])) is not None
            }
            self._headers[location.directory] = Headers(location, self._storage, self._options.declared, widths)
        return self._headers[location.directory]

    def tell_generation(self) -> None:
        """Say so where nothing proves the generation, or the byte order. The first location speaks for all."""
        first = self.locations[0]
        if not first.columns:
            return
        headers = self.headers_of(first)
        if headers.assumes_version:
            warn(
                f"{first.directory}: nothing proves that these files have headers, which they are taken to have;"
                " column_version= says otherwise"
            )
        if headers.assumes_order:
            warn(
                f"{first.directory}: the byte order of these headerless files is unknown, taken for little endian;"
                " byteorder= says otherwise"
            )

    @cached_property
    def _promised(self) -> dict[str, frozenset[str]]:
        return promised_by_others(self.locations)

    @cached_property
    def _stored(self) -> dict[str, None]:
        """Names of the columns that have files."""
        return {name: None for location in self.locations for name in location.columns}

    @cached_property
    def _defined(self) -> dict[str, ColumnSpec]:
        """The columns of the schema file that is given, or of those in locations: the widest of their types."""
        if self._options.schema is not None:
            columns = [one for one in self.table.columns if one.name != self.partition_column]
            return {one.name: schema_spec(one, self._options.schema) for one in columns}
        found: dict[str, ColumnSpec] = {}
        whole = {id(self._left[one.directory]) for one in self.locations if one.whole and one.directory in self._left}
        for left in {id(left): left for left in self._left.values()}.values():
            for name, spec in self._owned(left).items():
                if name in self._stored or id(left) in whole:
                    found[name] = _wider(found[name], spec) if name in found else spec
        return found

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

    def _inferred(self, names: Sequence[str], known: Mapping[str, ColumnSpec]) -> dict[str, ColumnSpec]:
        """Types of columns that nobody names, from the first location that shows them."""
        found: dict[str, ColumnSpec] = {}
        for location in self.locations if names else ():
            wanted = [name for name in names if name not in found and name in location.columns]
            if not wanted:
                continue
            left = self._left.get(location.directory)
            owned = {} if left is None else self._owned(left)
            found |= {name: owned[name] for name in wanted if name in owned}
            wanted = [name for name in wanted if name not in owned]
            definition = location.other(layout.TABLE_DEFINITION)
            if definition is not None and definition.size <= MAX_DEFINITION:
                known_ones = definition_specs(read_indexed(self._storage, definition, 0, definition.size), wanted)
                found |= known_ones
                wanted = [name for name in wanted if name not in known_ones]
            headers = self.headers_of(location)
            rows = self._options.num_rows
            if rows is None:
                rows = plain_count(read_checkpoint(location, partial(read_indexed, self._storage)))
            if rows is None:
                rows = known_rows(location, headers, {**known, **found})
            evidence = Evidence(location, headers, rows)
            for name in wanted:
                try:
                    spec = infer(location.columns[name], evidence, self._storage)
                except SchemaError:
                    if self._required:
                        raise
                    continue
                if spec is not None:
                    found[name] = spec
        return found

    def _of_files(self, name: str, spec: ColumnSpec, defined: bool) -> ColumnSpec:
        """The spec of a String with or without symbols, as the first location has it."""
        columns = [location.columns[name] for location in self.locations if name in location.columns]
        return spec.stored(columns[0].files) if columns and not (defined and spec.symbols) else spec

    def _owned(self, left: TableSchema) -> dict[str, ColumnSpec]:
        """The columns that a schema file in a location defines, but for those whose types the reader gives."""
        if id(left) not in self._own:
            columns = [one for one in left.columns if one.name not in (left.partition_column, *self._options.types)]
            self._own[id(left)] = {one.name: schema_spec(one, layout.TABLE_SCHEMA) for one in columns}
        return self._own[id(left)]

    def _declared(self, locations: Sequence[Location]) -> list[Location]:
        """Locations with what the `.schema` files say that sawlog's writer has left in them."""
        left = {location.directory: location.other(layout.TABLE_SCHEMA) for location in locations}
        files = {place: file for place, file in left.items() if file is not None and file.size <= MAX_SCHEMA}
        large = {place: file.size for place, file in left.items() if file is not None and place not in files}
        self._unreadable |= {place: f"larger than a schema file can be ({size} bytes)" for place, size in large.items()}
        read = each_file(lambda file: read_indexed(self._storage, file, 0, file.size), files.values())
        data = dict(zip(files, read, strict=True))
        return [
            self._with_schema(location, files[location.directory], data[location.directory])
            if location.directory in data
            else location
            for location in locations
        ]

    def _with_schema(self, location: Location, file: File, data: bytes) -> Location:
        if data not in self._parsed:
            try:
                self._parsed[data] = parse_schema(file.path, data)
            except (FormatError, SchemaError) as error:
                self._unreadable[location.directory] = str(error).removeprefix(f"{file.path}: ")
                self._parsed[data] = None
        left = self._parsed[data]
        if left is None:
            self._unreadable.setdefault(location.directory, "it is no schema file")
            return location
        self._left[location.directory] = left
        return replace(location, declared=declared(data))


def _wider(one: ColumnSpec, other: ColumnSpec) -> ColumnSpec:
    """Of two types that a column had, the one that has all values; the first where there is none."""
    for ladder in (INTEGERS, FLOATS):
        if one.type in ladder and other.type in ladder:
            return max(one, other, key=lambda spec: ladder.index(spec.type))
    return one
