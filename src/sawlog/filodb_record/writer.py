"""Writing FiloDB's containers: byte for byte what FiloDB's own builder makes of the same rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from sawlog.damage import FileReport, Findings
from sawlog.errors import SchemaError
from sawlog.filodb_record import layout
from sawlog.filodb_record.container import check_container_size
from sawlog.filodb_record.fields import RECORDS_KEY, SCHEMAS_KEY
from sawlog.filodb_record.options import Layout, ReadOptions
from sawlog.filodb_record.reader import whole_file
from sawlog.filodb_record.schemas import Schema, Schemas
from sawlog.format import Writer
from sawlog.storage import File, Staged, Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA_COLUMN = "_schema"
SCHEMA_ID_COLUMN = "_schema_id"
HASH_COLUMN = "_hash"
TIME_COLUMN = "_container_timestamp"
RECORD_COLUMN = "_record"
SPECIAL_COLUMNS = (SCHEMA_COLUMN, SCHEMA_ID_COLUMN, HASH_COLUMN, TIME_COLUMN, RECORD_COLUMN)
OUT_BYTES = 2 << 20
"""Bytes laid out before they are written, besides two containers."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing FiloDB's containers.

    Attributes:
        schemas: The known schemas, as for reading. If not given, those that came with the data, or the built-in ones.
        schema: The schema of all rows. Not needed where a column `_schema` says it row by row, where the data was read
            from containers, or where only one schema has such columns.
        records: Whether to write samples or part keys; as the data was read, or else samples, if not given.
        container_size: Bytes that a container has at most: a multiple of 4.
        whole: Whether full containers take that many bytes, as FiloDB ships them; else all are trimmed.
        container_timestamp: Timestamp of the containers, in milliseconds since the epoch; now, if not given. A column
            `_container_timestamp` goes before.
    """

    schemas: Schemas | None = None
    schema: str | None = None
    records: Literal["ingestion", "partkeys"] | None = None
    container_size: int = layout.DEFAULT_CONTAINER_SIZE
    whole: bool = False
    container_timestamp: int | None = None


@dataclass(frozen=True)
class Target:
    """What rows are written as.

    Attributes:
        layouts: The layouts that rows can have.
        by_name: Whether a column says which.
        raw: Whether rows are whole records.
    """

    layouts: tuple[Layout, ...]
    by_name: bool
    raw: bool

    @classmethod
    def of(cls, schema: pa.Schema, options: WriteOptions) -> Target:
        """Settle the target by the options, by what the data says of itself, or by its columns.

        Raises:
            SchemaError: When that does not settle it, or columns are missing or unknown.
        """
        metadata = schema.metadata or {}
        if RECORD_COLUMN in schema.names:
            others = [name for name in schema.names if name not in (RECORD_COLUMN, TIME_COLUMN)]
            if others:
                raise SchemaError(f"column {others[0]!r}: whole records ({RECORD_COLUMN}) are written without others")
            return cls((), by_name=False, raw=True)
        known = options.schemas
        carried = Schemas.parse(metadata[SCHEMAS_KEY].decode()) if SCHEMAS_KEY in metadata else None
        known = known or carried or Schemas.built_in()
        records = options.records or metadata.get(RECORDS_KEY, b"ingestion").decode()
        by_name = SCHEMA_COLUMN in schema.names and options.schema is None
        if by_name:
            chosen = known.select(("all",))
        elif options.schema is not None:
            chosen = (known.get_schema(options.schema),)
        else:
            chosen = (_by_columns(carried or known, schema, part_keys=records == "partkeys"),)
        layouts = tuple(_layout(one, part_keys=records == "partkeys") for one in chosen)
        target = cls(layouts, by_name, raw=False)
        target._check_columns(schema)
        return target

    def _check_columns(self, schema: pa.Schema) -> None:
        known = {column.name for one in self.layouts for column in one.record.columns}
        for name in schema.names:
            if name not in known and name not in SPECIAL_COLUMNS:
                raise SchemaError(f"column {name!r}: there is none in {', '.join(one.name for one in self.layouts)}")
            if schema.names.count(name) > 1:
                raise SchemaError(f"column {name!r}: there are two of that name")
        if not self.by_name:
            missing = [c.name for c in self.layouts[0].record.columns if c.name not in schema.names]
            if missing:
                raise SchemaError(f"schema {self.layouts[0].name!r}: columns are missing: {', '.join(missing)}")


def _layout(schema: Schema, *, part_keys: bool) -> Layout:
    if schema.partition is None:
        return Layout(schema.name, None, schema.ingestion)
    return Layout(schema.name, schema.schema_id, schema.part_key if part_keys else schema.ingestion)


def _by_columns(known: Schemas, schema: pa.Schema, *, part_keys: bool) -> Schema:
    """The one schema whose columns these are."""
    names = {name for name in schema.names if name not in SPECIAL_COLUMNS}
    fitting = [
        one for one in known.values() if {c.name for c in _layout(one, part_keys=part_keys).record.columns} == names
    ]
    if len(fitting) != 1:
        found = " or ".join(one.name for one in fitting) or "none of the known schemas"
        raise SchemaError(f"columns {', '.join(schema.names)}: these are {found}; name one with schema=")
    return fitting[0]


class ContainerWriter(Writer):
    """Writes one file of containers.

    Raises:
        SchemaError: When the columns are not those of a schema.
        OptionError: For a container size that cannot be.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> None:
        from sawlog.filodb_record.layer import Layer

        check_container_size(options.container_size)
        self.storage = storage
        self._options = options
        self._layer = Layer(Target.of(schema, options), options, OUT_BYTES, self._write)
        self._file = storage.stage(path)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer.write`."""
        self._layer.add(batch, container_time(self._options))

    def finish(self) -> list[Staged]:
        """See `Writer.finish`."""
        self._layer.finish()
        return [self._file.finish()]

    def abort(self) -> None:
        """See `Writer.abort`."""
        self._file.discard(self.storage)

    def _write(self, data: NDArray[Any]) -> None:
        self._file.write(data)


def container_time(options: WriteOptions) -> int:
    """The timestamp of a container that begins now."""
    given = options.container_timestamp
    return time.time_ns() // 1_000_000 if given is None else given


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Write the intact records of one file, byte for byte, to trimmed containers. See `Format.repair`."""
    fragment = whole_file(file, options, storage)
    findings = Findings("skip")
    names = [RECORD_COLUMN, TIME_COLUMN]
    schema = pa.schema([fragment.projection.schema.field(name) for name in names])
    biggest = max([layout.DEFAULT_CONTAINER_SIZE, *(one.record.max_record_size for one in fragment.selection.layouts)])
    size = layout.align(biggest + layout.CONTAINER_HEADER_SIZE)
    with ContainerWriter(target, schema, WriteOptions(container_size=size), storage) as writer:
        for batch in fragment.to_batches(findings):
            writer.write(batch.select(names))
    return FileReport.of(file.path, file.size, [findings])
