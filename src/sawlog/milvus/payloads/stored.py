"""Facts of fields from stored columns: dimensions, element types, types of bare Parquet; and which fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from sawlog.milvus.layout import FIELD_ID, FIELD_ID_KEY, BinlogDamageKind, DataType
from sawlog.milvus.log import Descriptor
from sawlog.milvus.payloads.payload import Payload, UnreadableError, read_first_values
from sawlog.milvus.types import INFERRED_ELEMENTS, SCALARS, VECTOR_BYTES, Field, parse_data_type

_DIM_KEY = b"dim"
_ELEMENT_KEY = b"elementType"
_PHYSICAL = (
    DataType.Bool,
    DataType.Int8,
    DataType.Int16,
    DataType.Int32,
    DataType.Int64,
    DataType.Float,
    DataType.Double,
    DataType.VarChar,
)


_SAMPLE_VALUES = 256
"""Values from which the element type of an array is inferred."""


def make_fields(payload: Payload, descriptor: Descriptor | None, id: int) -> list[Field]:
    """Return the fields of a payload: the one of an event, or those of a column group in bare Parquet.

    Args:
        payload: The payload.
        descriptor: The descriptor of its file; `None` for bare Parquet.
        id: The field's id, where there is a descriptor.

    Raises:
        UnreadableError: When the payload does not say.
    """
    if descriptor is None:
        fields = []
        for index, stored in enumerate(payload.schema):
            field = make_bare_field(stored, index)
            fields.append(resolve(field, stored, _peek(payload, index) if field.type is DataType.FloatVector else []))
        return fields
    if not payload.schema:
        raise payload.make_error("the payload has no column")
    field = make_event_field(descriptor, id)
    values = _peek(payload, 0) if field.type is DataType.Array else []
    return [resolve(field, payload.schema.field(0), values)]


def make_event_field(descriptor: Descriptor, id: int) -> Field:
    """Return the field of a file as far as its descriptor describes it."""
    is_known = descriptor.payload_type in DataType.__members__.values()
    kind = DataType(descriptor.payload_type) if is_known else DataType.None_
    return Field(id, str(id), kind, nullable=descriptor.is_nullable)


def _peek(payload: Payload, index: int) -> list[pa.Array]:
    """Return the first values of a column; where these cannot be read, the first that can.

    Raises:
        UnreadableError: When there are none.
    """
    try:
        return [array for array, _ in zip(payload.read_column_batches(index, _SAMPLE_VALUES), range(1), strict=False)]
    except UnreadableError:
        intact = read_first_values(payload, index, _SAMPLE_VALUES)
        if not intact:
            raise
        return intact


_EXACT = (DataType.Bool, DataType.Float, DataType.Double)
_INTEGERS = (DataType.Int8, DataType.Int16, DataType.Int32, DataType.Int64, DataType.Timestamptz)
_BYTES = (DataType.String, DataType.VarChar, DataType.Text, DataType.JSON, DataType.Array, DataType.Geometry)


def check_stored(field: Field, payload: Payload, index: int) -> None:
    """Refuse a column that cannot hold the values of its field.

    Raises:
        UnreadableError: Says what it holds.
    """
    stored = payload.schema.types[index]
    fits = True
    if field.type in _EXACT:
        fits = stored == SCALARS[field.type]
    elif field.type in _INTEGERS:
        fits = pa.types.is_integer(stored) or (field.type is DataType.Timestamptz and pa.types.is_timestamp(stored))
    elif field.type in _BYTES or field.type is DataType.SparseFloatVector:
        fits = _is_bytes(stored) or (field.type is DataType.Array and pa.types.is_list(stored))
    elif field.type in VECTOR_BYTES or field.type is DataType.BinaryVector:
        lists = pa.types.is_list(stored) or pa.types.is_fixed_size_list(stored)
        fits = lists or pa.types.is_fixed_size_binary(stored) or _is_bytes(stored)
    if not fits:
        detail = f"field {field.id} ({field.name}) is {field.type.name}, its file holds {stored}"
        raise payload.make_error(detail, BinlogDamageKind.TYPE_MISMATCH.label)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def resolve(field: Field, stored: pa.Field, values: Sequence[pa.Array] = ()) -> Field:
    """Complete a field by how it is stored; the element type of arrays is inferred from some values."""
    metadata = stored.metadata or {}
    dim, element = field.dim, field.element
    if not dim and _DIM_KEY in metadata and metadata[_DIM_KEY].isdigit():
        dim = int(metadata[_DIM_KEY])
    if not element and _ELEMENT_KEY in metadata and metadata[_ELEMENT_KEY].isdigit():
        element = parse_data_type(int(metadata[_ELEMENT_KEY]))
    if not dim and pa.types.is_fixed_size_binary(stored.type):
        width = stored.type.byte_width
        dim = width * 8 if field.type is DataType.BinaryVector else width // VECTOR_BYTES.get(field.type, 1)
    if not dim and field.type in VECTOR_BYTES and pa.types.is_list(stored.type):
        dim = next((len(value) for array in values for value in array if value.is_valid), 0)
    if not element and field.type is DataType.Array:
        element = _infer_element(values)
    has_dim = field.type in VECTOR_BYTES or field.type in (DataType.BinaryVector, DataType.ArrayOfVector)
    return replace(field, dim=dim if has_dim else 0, element=element)


def _infer_element(values: Sequence[pa.Array]) -> DataType:
    """Return the element type that array cells name; `None_` where there is not one cell that does."""
    for array in values:
        if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
            continue
        for cell in array.cast(pa.binary()):
            if cell.is_valid and cell.as_py():
                return INFERRED_ELEMENTS.get(cell.as_py()[0] >> 3, DataType.None_)
    return DataType.None_


def find_field_id(stored: pa.Field) -> int | None:
    """Return the id of a column of bare Parquet, by its metadata or, in Storage V3, by its name; `None` for none."""
    named = (stored.metadata or {}).get(FIELD_ID_KEY, stored.name.encode())
    return int(named) if FIELD_ID.match(named) else None


def make_bare_field(stored: pa.Field, position: int) -> Field:
    """Return the field of a column of a Storage V2 file, as far as it says: vectors are not told apart there."""
    named = find_field_id(stored)
    id = position if named is None else named
    kind = next((candidate for candidate in _PHYSICAL if SCALARS[candidate] == stored.type), DataType.None_)
    if pa.types.is_list(stored.type) and stored.type.value_type == pa.float32():
        kind = DataType.FloatVector
    return Field(id, stored.name or str(id), kind, nullable=stored.nullable)
