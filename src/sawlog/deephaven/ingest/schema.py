"""The columns of the locations that logs become: as a schema file says, or as the logs themselves say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import fill_null, find_value_type, is_text, view_binary
from sawlog.deephaven.schema_xml import SchemaColumn
from sawlog.deephaven.table.column_specs import choose_spec, fits
from sawlog.deephaven.table.infer import make_schema_spec
from sawlog.deephaven.table.types import CHARSET_KEY, PARTITION_KEY, ColumnSpec
from sawlog.deephaven.types import BY_COLUMN, FIXED, NUMBERS, ColumnType
from sawlog.errors import SchemaError

_PARTITIONING = "partitioning"


def make_location_schema(
    logged: pa.Schema, columns: Sequence[SchemaColumn], charset: str, description: str
) -> pa.Schema:
    """Return the columns that every location of a table has, and the partitioning one, which its path gives.

    Args:
        logged: The columns of the logs.
        columns: Those of a schema file: its columns, in its order, whether they are logged or not. Without them, the
            columns of the logs.
        charset: Of Strings that neither describes.
        description: The schema file, for messages.

    Raises:
        SchemaError: When a column is logged as something that its type cannot be made from.
    """
    if not columns:
        return pa.schema([_convert_field(field, charset) for field in logged])
    fields = []
    for column in columns:
        if column.kind.lower() == _PARTITIONING:
            fields += [field for field in logged if field.name == column.name and _is_partition(field)]
            continue
        spec = make_schema_spec(column, description)
        field = spec.make_field(column.name)
        if column.name in logged.names:
            kind = logged.field(column.name).type
            if fits(spec, kind):
                field = field.with_type(kind)
            elif not _can_become(spec, kind):
                raise SchemaError(f"{description}: column {column.name!r} is {spec.type.value}; it is logged as {kind}")
        fields.append(field)
    return pa.schema(fields)


def merge_schemas(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of logs that do not agree on them: by name, of the type that all of them can become.

    Numbers are as wide as the widest, everything that is text is text; else the first log decides.
    """
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            existing_field = fields.get(field.name)
            fields[field.name] = field if existing_field is None else _merge_fields(existing_field, field)
    return pa.schema(list(fields.values()))


def _merge_fields(first: pa.Field, second: pa.Field) -> pa.Field:
    if first.type == second.type:
        return first
    ladder = [BY_COLUMN[kind].arrow for kind in NUMBERS]
    if first.type in ladder and second.type in ladder:
        if pa.types.is_floating(first.type) != pa.types.is_floating(second.type):
            return first.with_type(pa.float64()).remove_metadata()
        return max(first, second, key=lambda field: ladder.index(field.type))
    if _is_text(first.type) and _is_text(second.type):
        return second if pa.types.is_dictionary(first.type) else first
    return first


def _is_text(kind: pa.DataType) -> bool:
    return is_text(find_value_type(kind))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a logged batch with the columns of locations: by name, missing ones null.

    Raises:
        SchemaError: When a value does not fit; names the column.
    """
    arrays = []
    for field in schema:
        if field.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        arrays.append(convert(batch.column(field.name), field))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def convert(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a logged column as one of a location.

    Raises:
        SchemaError: When a value does not fit; names the column.
    """
    if column.type == field.type:
        return column
    spec = ColumnSpec.of_metadata(field.metadata)
    if spec is None or not pa.types.is_binary(column.type):
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(f"column {field.name!r}: a value does not fit {field.type}: {error}") from error
    values, bad = _decode(spec, column, field.type)
    if bad.any():
        raise SchemaError(
            f"column {field.name!r}: the blob in row {int(bad.argmax())} of a batch is no {spec.type.value}"
        )
    return values


def _decode(spec: ColumnSpec, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return objects that were logged as the bytes of their codec, and which of them are none; no byte is null."""
    from sawlog.deephaven.table.codecs import decode_objects
    from sawlog.deephaven.table.values import Slices

    data, ends = view_binary(fill_null(column, b""))
    values = data[ends[0] : ends[-1]]
    return decode_objects(spec, Slices(values, ends - ends[0], np.zeros(len(column), np.bool_)), kind)


def _is_partition(field: pa.Field) -> bool:
    """Return whether a column comes from names, and is not stored."""
    return PARTITION_KEY in (field.metadata or {})


def _convert_field(field: pa.Field, charset: str) -> pa.Field:
    if _is_partition(field):
        return field
    stored = (field.metadata or {}).get(CHARSET_KEY)
    spec = choose_spec(field, {}, charset if stored is None else stored.decode())
    return spec.make_field(field.name).with_type(field.type)


def _can_become(spec: ColumnSpec, kind: pa.DataType) -> bool:
    """Return whether values of a logged type can become a column's: wider or narrower numbers, objects from blobs."""
    if pa.types.is_binary(kind):
        return spec.type not in FIXED and spec.type is not ColumnType.STRING
    return spec.type in NUMBERS and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
