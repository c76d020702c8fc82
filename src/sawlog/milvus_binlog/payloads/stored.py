"""What a stored column says about its field where no schema does: dimensions, element types, types of bare Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from sawlog.milvus_binlog.layout import FIELD_ID_KEY, DataType
from sawlog.milvus_binlog.types import INFERRED_ELEMENTS, SCALARS, VECTOR_BYTES, Field, data_type

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


def settle(field: Field, stored: pa.Field, values: Sequence[pa.Array] = ()) -> Field:
    """Complete a field by how it is stored.

    Args:
        field: With a type; dimensions and element type are filled in where they are missing.
        stored: The column of the payload.
        values: Some of its values, by which the element type of arrays is told.
    """
    metadata = stored.metadata or {}
    dim, element = field.dim, field.element
    if not dim and _DIM_KEY in metadata and metadata[_DIM_KEY].isdigit():
        dim = int(metadata[_DIM_KEY])
    if not element and _ELEMENT_KEY in metadata and metadata[_ELEMENT_KEY].isdigit():
        element = data_type(int(metadata[_ELEMENT_KEY]))
    if not dim and pa.types.is_fixed_size_binary(stored.type):
        width = stored.type.byte_width
        dim = width * 8 if field.type is DataType.BinaryVector else width // VECTOR_BYTES.get(field.type, 1)
    if not dim and field.type in VECTOR_BYTES and pa.types.is_list(stored.type):
        dim = next((len(value) for array in values for value in array if value.is_valid), 0)
    if not element and field.type is DataType.Array:
        element = element_of(values)
    known = field.type in VECTOR_BYTES or field.type in (DataType.BinaryVector, DataType.ArrayOfVector)
    return replace(field, dim=dim if known else 0, element=element)


def element_of(values: Sequence[pa.Array]) -> DataType:
    """The element type that array cells name; `None_` where there is not one cell that does."""
    for array in values:
        if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
            continue
        for cell in array.cast(pa.binary()):
            if cell.is_valid and cell.as_py():
                return INFERRED_ELEMENTS.get(cell.as_py()[0] >> 3, DataType.None_)
    return DataType.None_


def bare_field(stored: pa.Field, position: int) -> Field:
    """The field of a column of a Storage V2 file, as far as it tells: vectors are not told apart there."""
    metadata = stored.metadata or {}
    raw = metadata.get(FIELD_ID_KEY, b"")
    id = int(raw) if raw.isdigit() else position
    kind = next((known for known in _PHYSICAL if SCALARS[known] == stored.type), DataType.None_)
    if pa.types.is_list(stored.type) and stored.type.value_type == pa.float32():
        kind = DataType.FloatVector
    return Field(id, stored.name or str(id), kind, nullable=stored.nullable)
