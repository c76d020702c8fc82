"""Target of a writer: the layouts that rows are written in."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sawlog.errors import SchemaError
from sawlog.filodb.columns import RECORDS_KEY, SCHEMAS_KEY
from sawlog.filodb.options import WriteOptions
from sawlog.filodb.schemas import Schema, Schemas
from sawlog.filodb.selection import RecordLayout

SCHEMA_COLUMN = "_schema"
SCHEMA_ID_COLUMN = "_schema_id"
HASH_COLUMN = "_hash"
TIME_COLUMN = "_container_timestamp"
RECORD_COLUMN = "_record"
_SPECIAL_COLUMNS = (SCHEMA_COLUMN, SCHEMA_ID_COLUMN, HASH_COLUMN, TIME_COLUMN, RECORD_COLUMN)


@dataclass(frozen=True)
class Target:
    """Layouts that rows are written in, and how they are chosen."""

    layouts: tuple[RecordLayout, ...]
    by_name: bool
    raw: bool

    @classmethod
    def of(cls, schema: pa.Schema, options: WriteOptions) -> Target:
        """Resolve the target by the options, by what the data says of itself, or by its columns.

        Raises:
            SchemaError: When that does not resolve it, or columns are missing or unknown.
        """
        metadata = schema.metadata or {}
        if RECORD_COLUMN in schema.names:
            other_names = [name for name in schema.names if name not in (RECORD_COLUMN, TIME_COLUMN)]
            if other_names:
                raise SchemaError(
                    f"column {other_names[0]!r}: whole records ({RECORD_COLUMN}) are written without others"
                )
            return cls((), by_name=False, raw=True)
        schemas = options.schema
        carried = Schemas.parse(metadata[SCHEMAS_KEY].decode()) if SCHEMAS_KEY in metadata else None
        schemas = schemas or carried or Schemas.built_in()
        records = options.records or metadata.get(RECORDS_KEY, b"ingestion").decode()
        by_name = SCHEMA_COLUMN in schema.names and options.table is None
        if by_name:
            selected = schemas.select(("all",))
        elif options.table is not None:
            selected = (schemas.get_schema(options.table),)
        else:
            selected = (_find_schema(carried or schemas, schema, part_keys=records == "partkeys"),)
        layouts = tuple(_make_layout(selected_schema, part_keys=records == "partkeys") for selected_schema in selected)
        target = cls(layouts, by_name, raw=False)
        target._check_columns(schema)
        return target

    def _check_columns(self, schema: pa.Schema) -> None:
        known_names = {column.name for layout in self.layouts for column in layout.record.columns}
        for name in schema.names:
            if name not in known_names and name not in _SPECIAL_COLUMNS:
                raise SchemaError(
                    f"column {name!r}: there is none in {', '.join(layout.name for layout in self.layouts)}"
                )
            if schema.names.count(name) > 1:
                raise SchemaError(f"column {name!r}: there are two of that name")
        if not self.by_name:
            missing = [c.name for c in self.layouts[0].record.columns if c.name not in schema.names]
            if missing:
                raise SchemaError(f"schema {self.layouts[0].name!r}: columns are missing: {', '.join(missing)}")


def _make_layout(schema: Schema, *, part_keys: bool) -> RecordLayout:
    if schema.partition is None:
        return RecordLayout(schema.name, None, schema.ingestion)
    return RecordLayout(schema.name, schema.schema_id, schema.part_key if part_keys else schema.ingestion)


def _find_schema(schemas: Schemas, schema: pa.Schema, *, part_keys: bool) -> Schema:
    """Return the only schema whose columns these are."""
    names = {name for name in schema.names if name not in _SPECIAL_COLUMNS}
    fitting = [
        candidate
        for candidate in schemas.values()
        if {c.name for c in _make_layout(candidate, part_keys=part_keys).record.columns} == names
    ]
    if len(fitting) != 1:
        fitting_names = " or ".join(candidate.name for candidate in fitting) or "none of the known schemas"
        raise SchemaError(f"columns {', '.join(schema.names)}: these are {fitting_names}; name one with table=")
    return fitting[0]
