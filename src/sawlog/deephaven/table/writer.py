"""Writing locations: a directory with the files of all columns, the count of its rows, and what else belongs to it."""

from __future__ import annotations

import os
from dataclasses import replace as altered

import pyarrow as pa

from sawlog.arrow import check_times, fill_null, find_index, make_scalar
from sawlog.deephaven.schema_xml import parse_schema
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.column_specs import choose_spec
from sawlog.deephaven.table.column_writer import ColumnWriter
from sawlog.deephaven.table.groups.tracker import GroupTracker
from sawlog.deephaven.table.infer import make_schema_spec
from sawlog.deephaven.table.options import WriteOptions
from sawlog.deephaven.table.schema_file import build_schema_file
from sawlog.deephaven.table.tree import parse_location
from sawlog.deephaven.table.types import PARTITION_KEY, ColumnSpec
from sawlog.deephaven.table.values import ArrayPlace
from sawlog.errors import OptionError, SchemaError
from sawlog.format.contract import Writer
from sawlog.storage import Staged, StagedDirectory, Storage, discard_staged
from sawlog.storage.staging import find_published_path


class LocationWriter(Writer):
    """Writes one location. It becomes visible as a whole: its directory is renamed when everything is in it.

    Args:
        directory: The location. Its parents are made; nothing is written into an existing one.
        schema: The columns. Those that come from the names of directories are left out where `directory` names them.
        options: How to write.
        storage: Where the directory is. On object stores, which cannot rename, its files appear one by one.
        replace: Whether the location takes the place of one that is there; otherwise that is an error.
        marker: What the temporary name contains.

    Raises:
        SchemaError: When column files cannot hold the columns, as times without a zone.
        OptionError: For columns to group, or to give a type, that there are not; for a directory that is no location.
    """

    def __init__(
        self,
        directory: str,
        schema: pa.Schema,
        options: WriteOptions,
        storage: Storage,
        *,
        replace: bool = False,
        marker: str = "",
    ) -> None:
        check_times(schema, "deephaven_table")
        self.storage = storage
        self._path = directory.rstrip("/") or directory
        self._replace = replace
        self._marker = marker
        self._generation = options.generation
        self._implied = _list_implied(schema, self._path)
        self._schema = schema
        stored = [field for field in schema if field.name not in self._implied]
        if not stored or len(set(schema.names)) < len(schema.names):
            raise SchemaError("the columns of a location must have different names, and there must be one at least")
        for name in (*options.types, *options.group):
            if name not in schema.names:
                raise OptionError(f"there is no column {name!r}; columns: {', '.join(schema.names)}")
        path = options.schema
        columns = () if path is None else parse_schema(path, storage.read(path)).columns
        defined = {column.name: make_schema_spec(column, path or "") for column in columns}
        self.specs = {
            field.name: choose_spec(field, options.types, options.charset, defined.get(field.name)) for field in stored
        }
        self._groups = {name: GroupTracker(name, self.specs[name].type) for name in options.group if name in self.specs}
        self._check_target()
        self._rows = 0
        self._torn = False
        self._extra: dict[str, bytes] = {}
        self._open: tuple[StagedDirectory, list[ColumnWriter]] | None = None
        self._staged: list[Staged] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch, as `Writer.write` says. After an error the location can only be aborted."""
        if self._rows + batch.num_rows > layout.MAX_COUNTED_ROWS:
            raise SchemaError(f"a location holds at most {layout.MAX_COUNTED_ROWS} rows; write several")
        _, columns = self._begin()
        self._torn = True
        for name, value in self._implied.items():
            _check_implied(batch.column(name), value, ArrayPlace(name, self._rows))
        for column in columns:
            array = batch.column(column.name)
            column.write(array, self._rows)
            if column.name in self._groups:
                self._groups[column.name].add(array, self._rows)
        self._rows += batch.num_rows
        self._torn = False

    def add_file(self, name: str, data: bytes) -> None:
        """Have a file of another kind published with the location.

        Raises:
            OptionError: When it is called like a file of a location.
        """
        if os.path.basename(name) != name or layout.is_member(name):
            raise OptionError(f"{name!r}: expected a name that no file of a location has")
        self._extra[name] = data

    def finish(self) -> list[Staged]:
        """Publish the location, as `Writer.finish` says. The count of the rows is written last.

        Raises:
            SchemaError: When a batch was refused: a part of it is in the files.
        """
        if self._torn:
            raise SchemaError(f"{self._path}: a batch was refused, so that its location cannot be finished")
        if not self._staged:
            directory, columns = self._begin()
            for column in columns:
                groups = self._groups.get(column.name)
                column.finish(layout.JAVA_NULL if groups is None else groups.encode_metadata(self._rows))
            for name, data in self._extra.items():
                _put(directory, name, data)
            _put(directory, layout.TABLE_SCHEMA, self._build_schema_file())
            _put(directory, layout.TABLE_SIZE, self._rows.to_bytes(layout.ROW_COUNT_SIZE, "big"))
            self._staged = [directory.finish(self.storage, exclusive=not self._replace)]
        return self._staged

    def abort(self) -> None:
        if self._staged:
            discard_staged(self.storage, self._staged)
        elif self._open is not None:
            self._open[0].discard(self.storage)

    def _begin(self) -> tuple[StagedDirectory, list[ColumnWriter]]:
        if self._open is None:
            directory = self.storage.directories.stage_directory(self._path, self._marker)
            columns: list[ColumnWriter] = []
            self._open = directory, columns
            for name, spec in self.specs.items():
                columns.append(ColumnWriter(directory.work, name, spec, self._generation))
        return self._open

    def _build_schema_file(self) -> bytes:
        location = parse_location(find_published_path(self._path), "auto")
        columns: dict[str, ColumnSpec | None] = {}
        for field in self._schema:
            if field.name in self.specs:
                spec = self.specs[field.name]
                columns[field.name] = altered(spec, grouping=spec.grouping or field.name in self._groups)
            elif (field.metadata or {}).get(PARTITION_KEY) == b"column":
                columns[field.name] = None
        return build_schema_file(columns, location.namespace, location.table, self._generation)

    def _check_target(self) -> None:
        """Keep out of an existing location, or of a directory that is none."""
        if not self.storage.exists(self._path):
            return
        if not self._replace:
            raise OptionError(f"{self._path} exists; a location is written as a whole, into a directory of its own")
        if not self.storage.is_directory(self._path):
            raise OptionError(f"{self._path} is a file; a location is a directory")
        strange = self.storage.directories.list_directories(self._path)
        strange += [file.name for file in self.storage.list_files(self._path) if not layout.is_member(file.name)]
        if strange:
            raise OptionError(
                f"{self._path} holds {strange[0]!r}, which does not belong to a location: it is not replaced"
            )


def _put(directory: StagedDirectory, name: str, data: bytes) -> None:
    with open(os.path.join(directory.work, name), "wb") as file:
        file.write(data)


def _list_implied(schema: pa.Schema, path: str) -> dict[str, str]:
    """Return columns whose values are in the names of directories, and these values."""
    location = parse_location(find_published_path(path), "auto")
    named = {b"column": location.column_partition, b"internal": location.internal_partition}
    partition_values = {field.name: named.get((field.metadata or {}).get(PARTITION_KEY, b"")) for field in schema}
    return {name: value for name, value in partition_values.items() if value is not None}


def _check_implied(array: pa.Array, value: str, place: ArrayPlace) -> None:
    import pyarrow.compute as pc

    wrong = find_index(fill_null(pc.equal(array, make_scalar(value, array.type)), False), False)
    if wrong >= 0:
        raise place.make_error(wrong, f"{array[wrong]} does not belong into a location of {value!r}")
