"""The types of the columns of a table: what options, schema files and the locations themselves say, or let guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

from sawlog.deephaven.schema_xml import MAX_BYTES as MAX_SCHEMA
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import LocationVerdict, compute_row_width, find_committed_rows
from sawlog.deephaven.table.gaps import find_gaps, find_lost_columns
from sawlog.deephaven.table.infer import MAX_DEFINITION, Evidence, count_rows, infer, make_schema_spec, parse_definition
from sawlog.deephaven.table.location import Headers, Location, decode_count, read_checkpoint
from sawlog.deephaven.table.options import ReadOptions
from sawlog.deephaven.table.schema_file import parse_declaration
from sawlog.deephaven.table.types import ColumnSpec, parse_type
from sawlog.deephaven.types import FLOATS, INTEGERS
from sawlog.errors import FormatError, OptionError, SchemaError, warn
from sawlog.storage import File, Storage, map_files, read_indexed

_NO_WIDTHS: Mapping[str, int] = {}
"""Of columns whose version is declared: nobody asks for them."""


class TableSpecs:
    """Specs of the columns of a table, from schemas, options and a look at files.

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
        self._declared = options.declared
        self._storage = storage
        self._required = required
        self._headers: dict[str, Headers] = {}
        self._parsed: dict[bytes, TableSchema | None] = {}
        self._own: dict[int, dict[str, ColumnSpec]] = {}
        self._combined: dict[int, dict[str, ColumnSpec]] = {}
        self._schemas_by_directory: dict[str, TableSchema] = {}
        self._unreadable: dict[str, str] = {}
        self.locations = self._apply_declarations(locations)
        if options.types:
            _ = self._typed_names  # refuses columns that there are not

    @cached_property
    def partition_column(self) -> str:
        """Name of the partitioning column; empty when it is left out."""
        name = self._options.partition_column
        return name if name is not None else self.table.partition_column or layout.DEFAULT_PARTITION_COLUMN

    @cached_property
    def table(self) -> TableSchema:
        """The schema file that is given, or the first in a location."""
        if self._options.schema is not None:
            return parse_schema(self._options.schema, self._storage.read(self._options.schema))
        return next(iter(self._schemas_by_directory.values()), TableSchema())

    @cached_property
    def specs(self) -> dict[str, ColumnSpec]:
        """Specs of all columns, in the order of the schema file, then of the option, then by name."""
        specs = dict(self._typed_names)
        names = {**self._schema_columns, **specs, **self._stored_names}
        missing = [name for name in names if name not in specs]
        specs |= self._infer_types(missing, specs)
        guessed = {name: specs[name].guessed for name in missing if name in specs and specs[name].guessed}
        if guessed:
            guesses = "; ".join(f"{name} ({guess})" for name, guess in guessed.items())
            warn(f"{self.locations[0].directory}: types were inferred: {guesses}; name them with types= or schema=")
        return {
            name: self._find_string_spec(name, specs[name], name in self._schema_columns)
            for name in names
            if name in specs
        }

    def of(self, location: Location) -> Mapping[str, ColumnSpec]:
        """Return the columns as the files of a location have them."""
        schema = self._schemas_by_directory.get(location.directory)
        if schema is None:
            return self.specs
        if id(schema) not in self._combined:
            owned = {name: spec for name, spec in self._find_owned_columns(schema).items() if name in self.specs}
            self._combined[id(schema)] = {**self.specs, **owned}
        return self._combined[id(schema)]

    def judge(self, location: Location) -> LocationVerdict:
        """Judge a location."""
        specs, headers = self.of(location), self.read_headers(location)
        rows = find_committed_rows(location, headers, specs, self._options.num_rows, self._storage)
        if location.columns:
            _ = headers.version  # found out before copies of it go to other processes
        left_schema = self._schemas_by_directory.get(location.directory)
        defined = (
            ()
            if left_schema is None
            else [column.name for column in left_schema.columns if column.name != left_schema.partition_column]
        )
        typed = self._options.schema is not None or location.columns.keys() <= self._options.types.keys()
        schema = (defined, "" if typed else self._unreadable.get(location.directory, ""))
        promised = self._promised_columns.get(location.directory, frozenset()) if left_schema is None else ()
        return LocationVerdict(
            location, specs, headers, rows, find_gaps(location, rows, headers, specs, schema, promised)
        )

    def read_headers(self, location: Location) -> Headers:
        """Return the headers of the files of a location."""
        if location.directory not in self._headers:
            widths = self._measure_rows(location) if location.declared.version is None else _NO_WIDTHS
            self._headers[location.directory] = Headers(location, self._storage, self._declared, widths)
        return self._headers[location.directory]

    def _measure_rows(self, location: Location) -> dict[str, int]:
        """Return the bytes per row of the columns of a location whose types are given."""
        schema = self._schemas_by_directory.get(location.directory)
        specs = self._typed_names if schema is None else {**self._typed_names, **self._find_owned_columns(schema)}
        return {
            name: width
            for name, spec in specs.items()
            if name in location.columns and (width := compute_row_width(spec, location.columns[name])) is not None
        }

    def tell_generation(self) -> None:
        """Say so where nothing proves the generation, or the byte order. The first location speaks for all."""
        first = self.locations[0]
        if not first.columns:
            return
        headers = self.read_headers(first)
        if headers.assumes_version:
            warn(
                f"{first.directory}: nothing shows that these files have headers, which they are taken to have;"
                " column_version= says otherwise"
            )
        if headers.assumes_order:
            warn(
                f"{first.directory}: the byte order of these headerless files is unknown, taken for little endian;"
                " byteorder= says otherwise"
            )

    @cached_property
    def _promised_columns(self) -> dict[str, frozenset[str]]:
        return find_lost_columns(self.locations)

    @cached_property
    def _stored_names(self) -> dict[str, None]:
        """Names of the columns that have files."""
        return {name: None for location in self.locations for name in location.columns}

    @cached_property
    def _schema_columns(self) -> dict[str, ColumnSpec]:
        """The columns of the schema file that is given, or of those in locations: the widest of their types."""
        if self._options.schema is not None:
            columns = [column for column in self.table.columns if column.name != self.partition_column]
            return {column.name: make_schema_spec(column, self._options.schema) for column in columns}
        specs: dict[str, ColumnSpec] = {}
        complete_schemas = {
            id(self._schemas_by_directory[location.directory])
            for location in self.locations
            if location.has_all_columns and location.directory in self._schemas_by_directory
        }
        for schema in {id(schema): schema for schema in self._schemas_by_directory.values()}.values():
            for name, spec in self._find_owned_columns(schema).items():
                if name in self._stored_names or id(schema) in complete_schemas:
                    specs[name] = _choose_wider(specs[name], spec) if name in specs else spec
        return specs

    @cached_property
    def _typed_names(self) -> dict[str, ColumnSpec]:
        """Columns whose types the option or the schema file names."""
        types = {name: parse_type(text, f"types: column {name!r}") for name, text in self._options.types.items()}
        defined = self._schema_columns
        for name in types:
            if name not in self._stored_names and name not in defined:
                column_names = ", ".join({**defined, **self._stored_names})
                raise OptionError(f"types: there is no column {name!r}; columns: {column_names}")
        known_groupings = {
            name: replace(spec, grouping=defined[name].grouping) if name in defined else spec
            for name, spec in types.items()
        }
        return {**defined, **known_groupings}

    def _infer_types(self, names: Sequence[str], known_specs: Mapping[str, ColumnSpec]) -> dict[str, ColumnSpec]:
        """Return types of columns that nobody names, from the first location that shows them."""
        inferred: dict[str, ColumnSpec] = {}
        for location in self.locations if names else ():
            missing = [name for name in names if name not in inferred and name in location.columns]
            if not missing:
                continue
            schema = self._schemas_by_directory.get(location.directory)
            owned = {} if schema is None else self._find_owned_columns(schema)
            inferred |= {name: owned[name] for name in missing if name in owned}
            missing = [name for name in missing if name not in owned]
            definition = location.find_other_file(layout.TABLE_DEFINITION)
            if definition is not None and definition.size <= MAX_DEFINITION:
                recovered = parse_definition(read_indexed(self._storage, definition, 0, definition.size), missing)
                recovered = {name: spec for name, spec in recovered.items() if not _find_conflict(location, name, spec)}
                inferred |= recovered
                missing = [name for name in missing if name not in recovered]
            headers = self.read_headers(location)
            rows = self._options.num_rows
            if rows is None:
                rows = decode_count(read_checkpoint(location, partial(read_indexed, self._storage)))
            if rows is None:
                rows = count_rows(location, headers, {**known_specs, **inferred})
            evidence = Evidence(location, headers, rows)
            for name in missing:
                try:
                    spec = infer(location.columns[name], evidence, self._storage)
                except SchemaError:
                    if self._required:
                        raise
                    continue
                if spec is not None:
                    inferred[name] = spec
        return inferred

    def _find_string_spec(self, name: str, spec: ColumnSpec, defined: bool) -> ColumnSpec:
        """Return the spec of a String with or without symbols, as the first location has it."""
        columns = [location.columns[name] for location in self.locations if name in location.columns]
        return spec.adapt_to_files(columns[0].files) if columns and not (defined and spec.symbols) else spec

    def _find_owned_columns(self, schema: TableSchema) -> dict[str, ColumnSpec]:
        """Return the columns that a schema file in a location defines, but for those whose types the reader gives."""
        if id(schema) not in self._own:
            columns = [
                column
                for column in schema.columns
                if column.name not in (schema.partition_column, *self._options.types)
            ]
            self._own[id(schema)] = {column.name: make_schema_spec(column, layout.TABLE_SCHEMA) for column in columns}
        return self._own[id(schema)]

    def _apply_declarations(self, locations: Sequence[Location]) -> list[Location]:
        """Return locations with what the `.schema` files say that sawlog's writer has left in them."""
        schema_files = {location.directory: location.find_other_file(layout.TABLE_SCHEMA) for location in locations}
        files = {place: file for place, file in schema_files.items() if file is not None and file.size <= MAX_SCHEMA}
        large = {place: file.size for place, file in schema_files.items() if file is not None and place not in files}
        self._unreadable |= {place: f"larger than a schema file can be ({size} bytes)" for place, size in large.items()}
        read = map_files(lambda file: read_indexed(self._storage, file, 0, file.size), files.values())
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
                self._parsed[data] = _parse_own_schema(data)
            except (FormatError, SchemaError) as error:
                self._unreadable[location.directory] = str(error).removeprefix(f"{file.name}: ")
                self._parsed[data] = None
        schema = self._parsed[data]
        if schema is None:
            self._unreadable.setdefault(location.directory, "it is no schema file")
            return location
        for name, spec in self._find_owned_columns(schema).items():
            if conflict := _find_conflict(location, name, spec):
                self._unreadable[location.directory] = conflict
                return location
        self._schemas_by_directory[location.directory] = schema
        return replace(location, declared=parse_declaration(data))


@lru_cache(maxsize=16)
def _parse_own_schema(data: bytes) -> TableSchema:
    """Return the schema file that sawlog's writer leaves in a location: most locations of a table have the same."""
    return parse_schema(layout.TABLE_SCHEMA, data)


def _find_conflict(location: Location, name: str, spec: ColumnSpec) -> str:
    """Return why the files of a column are not those of a column of its type, as a phrase; empty where they are."""
    files = location.columns[name].files if name in location.columns else {}
    foreign_file = spec.adapt_to_files(files).find_foreign_file(files)
    return f"column {name!r} is {spec.type.value}, yet it has a {foreign_file} file" if foreign_file else ""


def _choose_wider(current: ColumnSpec, candidate: ColumnSpec) -> ColumnSpec:
    """Return the type, of two that a column had, that holds all values of both; the first where neither does."""
    for ladder in (INTEGERS, FLOATS):
        if current.type in ladder and candidate.type in ladder:
            return max(current, candidate, key=lambda spec: ladder.index(spec.type))
    return current
