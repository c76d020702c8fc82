"""Field types: what Milvus calls them, how payloads store them, and the Arrow types they become. Section 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.arrow import is_text
from sawlog.errors import SchemaError
from sawlog.milvus import layout
from sawlog.milvus.layout import DataType

TYPE_KEY = b"sawlog.milvus.type"
_ELEMENT_KEY = b"sawlog.milvus.element_type"
ID_KEY = b"sawlog.milvus.field_id"
_DIM_KEY = b"sawlog.milvus.dim"
_MAX_LENGTH_KEY = b"sawlog.milvus.max_length"
_PRIMARY_KEY = b"sawlog.milvus.primary_key"
DYNAMIC_KEY = b"sawlog.milvus.dynamic"
NULLABLE_KEY = b"sawlog.milvus.nullable"

SCALARS: dict[DataType, pa.DataType] = {
    DataType.Bool: pa.bool_(),
    DataType.Int8: pa.int8(),
    DataType.Int16: pa.int16(),
    DataType.Int32: pa.int32(),
    DataType.Int64: pa.int64(),
    DataType.Float: pa.float32(),
    DataType.Double: pa.float64(),
    DataType.String: pa.string(),
    DataType.VarChar: pa.string(),
    DataType.JSON: pa.string(),
    DataType.Text: pa.string(),
    DataType.Timestamptz: pa.timestamp("us", "UTC"),
    DataType.Geometry: pa.binary(),
    DataType.Date: pa.date32(),
    DataType.Time: pa.int64(),
    DataType.UUID: pa.binary(16),
}
"""Types that become one Arrow scalar."""

VECTOR_BYTES = {DataType.FloatVector: 4, DataType.Float16Vector: 2, DataType.BFloat16Vector: 2, DataType.Int8Vector: 1}
"""Bytes per dimension of dense vectors; binary vectors have eight dimensions per byte."""

VECTOR_ELEMENTS: dict[DataType, pa.DataType] = {
    DataType.FloatVector: pa.float32(),
    DataType.Float16Vector: pa.float16(),
    DataType.BFloat16Vector: pa.float32(),
    DataType.Int8Vector: pa.int8(),
}
"""What dense vectors are lists of in Arrow. Every bfloat16 is exactly a float32."""

SPARSE = pa.map_(pa.uint32(), pa.float32())

ARRAY_ELEMENTS = {
    DataType.Bool: 1,
    DataType.Int8: 2,
    DataType.Int16: 2,
    DataType.Int32: 2,
    DataType.Int64: 3,
    DataType.Float: 4,
    DataType.Double: 5,
    DataType.String: 6,
    DataType.VarChar: 6,
    DataType.Timestamptz: 11,
}
"""Element type of an array, and the field of the protobuf `ScalarField` that holds its elements."""

INFERRED_ELEMENTS = {
    1: DataType.Bool,
    2: DataType.Int32,
    3: DataType.Int64,
    4: DataType.Float,
    5: DataType.Double,
    6: DataType.VarChar,
}
"""The other way round, for files without a schema: int8 and int16 look like int32."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a collection.

    Attributes:
        id: Field id: 0 and 1 are the system's, the user's begin at 100.
        name: Its name; the decimal id where no schema says better.
        type: Its type.
        element: Element type of arrays and of arrays of vectors.
        dim: Dimensions of dense vectors; 0 where unknown.
        nullable: Whether nulls are allowed.
        primary: Whether it is the primary key.
        auto_id: Whether Milvus makes the keys.
        dynamic: Whether it is the dynamic field, `$meta`.
        default: What a missing value reads as; `None` for no default.
        max_length: Longest value of a varchar, in bytes; 0 where unknown.
        computed: Whether a function makes the values.
    """

    id: int
    name: str
    type: DataType
    element: DataType = DataType.None_
    dim: int = 0
    nullable: bool = False
    primary: bool = False
    auto_id: bool = False
    dynamic: bool = False
    default: Any = None
    max_length: int = 0
    computed: bool = False

    @property
    def is_optional(self) -> bool:
        """Whether Milvus reads a file that lacks this field."""
        return self.nullable or self.dynamic or self.computed or self.default is not None

    @property
    def has_dimension(self) -> bool:
        """Whether values are vectors of one number of dimensions."""
        return self.type in VECTOR_BYTES or self.type in (DataType.BinaryVector, DataType.ArrayOfVector)

    @property
    def storage(self) -> pa.DataType | None:
        """Arrow type of the payload column; `None` where it cannot be known."""
        if self.type in VECTOR_BYTES and self.dim:
            return pa.binary(self.dim * VECTOR_BYTES[self.type])
        if self.type is DataType.BinaryVector and self.dim:
            return pa.binary(self.dim // 8)
        if self.type is DataType.Timestamptz:
            return pa.int64()
        if self.type in (DataType.JSON, DataType.Array, DataType.SparseFloatVector):
            return pa.binary()
        return SCALARS.get(self.type)

    @property
    def is_writable(self) -> bool:
        """Whether its type says all that a payload needs."""
        return self.storage is not None or self.type is DataType.ArrayOfVector

    @property
    def key_type(self) -> pa.DataType | None:
        """Arrow type of the keys that it has as the primary key; `None` where no file of it can be read."""
        return None if self.type is DataType.None_ else self.choose_arrow_type()

    def to_arrow(self) -> pa.Field:
        """Return the field in Arrow, with metadata by which it can be written again."""
        metadata = {TYPE_KEY: self.type.name.encode(), ID_KEY: str(self.id).encode()}
        if self.element:
            metadata[_ELEMENT_KEY] = self.element.name.encode()
        if self.dim:
            metadata[_DIM_KEY] = str(self.dim).encode()
        if self.max_length:
            metadata[_MAX_LENGTH_KEY] = str(self.max_length).encode()
        flags = {_PRIMARY_KEY: self.primary, DYNAMIC_KEY: self.dynamic, NULLABLE_KEY: self.nullable}
        metadata |= {key: b"true" for key, flag in flags.items() if flag}
        required = self.primary or self.id in layout.SYSTEM_FIELDS
        return pa.field(self.name, self.choose_arrow_type(), nullable=not required, metadata=metadata)

    def choose_arrow_type(self) -> pa.DataType:
        """Return Arrow type of the values."""
        if self.type in VECTOR_ELEMENTS:
            return pa.list_(VECTOR_ELEMENTS[self.type], self.dim) if self.dim else pa.binary()
        if self.type is DataType.BinaryVector:
            return pa.binary(self.dim // 8) if self.dim else pa.binary()
        if self.type is DataType.SparseFloatVector:
            return SPARSE
        if self.type is DataType.Array:
            return pa.list_(SCALARS[self.element]) if self.element in ARRAY_ELEMENTS else pa.binary()
        if self.type is DataType.ArrayOfVector:
            has_dim = self.element in VECTOR_ELEMENTS and self.dim
            return pa.list_(pa.list_(VECTOR_ELEMENTS[self.element], self.dim)) if has_dim else pa.list_(pa.binary())
        return SCALARS.get(self.type, pa.binary())


ROW_ID = Field(layout.ROW_ID_FIELD, "RowID", DataType.Int64)
TIMESTAMP = Field(layout.TIMESTAMP_FIELD, "Timestamp", DataType.Int64)
SYSTEM = (ROW_ID, TIMESTAMP)

PLACE = tuple(
    pa.field(name, pa.int64(), nullable=False)
    for name in (layout.COLLECTION_COLUMN, layout.PARTITION_COLUMN, layout.SEGMENT_COLUMN)
)
"""Columns that say where in the collection a row is: ids of collection, partition and segment."""

INSERTED = pa.field("_inserted", pa.int64(), nullable=False)
DELETED = pa.field("_deleted", pa.int64())
"""When a version of a row began, and when it ended: TSOs, null for one that has not ended."""


def parse_data_type(value: Any) -> DataType:
    """Return a type by code or by name, as pymilvus and Milvus' JSON spell it (`FLOAT_VECTOR`, `FloatVector`, 101).

    Raises:
        SchemaError: When there is no such type.
    """
    if isinstance(value, int) and value in DataType.__members__.values():
        return DataType(value)
    name = str(value).replace("_", "").lower()
    for candidate in DataType:
        if name in (candidate.name.rstrip("_").lower(), str(candidate.value)):
            return candidate
    raise SchemaError(
        f"{value!r} is not a Milvus data type; types: {', '.join(candidate.name for candidate in DataType)}"
    )


def make_field(field: pa.Field, id: int) -> Field:
    """Return the Milvus field for an Arrow field: by its metadata where it has any, by its type otherwise.

    Raises:
        SchemaError: When Milvus has nothing like it.
    """
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    kind, element, dim = _infer_types(field)
    if TYPE_KEY in metadata:
        kind = parse_data_type(metadata[TYPE_KEY].decode())
    if _ELEMENT_KEY in metadata:
        element = parse_data_type(metadata[_ELEMENT_KEY].decode())
    if kind is DataType.None_:
        raise SchemaError(
            f"column {field.name!r} is {field.type}, which no Milvus type holds; say which one is meant with field"
            f" metadata {TYPE_KEY.decode()!r}"
        )
    result = Field(
        id=int(metadata.get(ID_KEY, str(id).encode())),
        name=field.name,
        type=kind,
        element=element,
        dim=int(metadata.get(_DIM_KEY, str(dim).encode())),
        nullable=metadata.get(NULLABLE_KEY) == b"true",
        primary=metadata.get(_PRIMARY_KEY) == b"true",
        dynamic=metadata.get(DYNAMIC_KEY) == b"true" or field.name == layout.DYNAMIC_NAME,
        max_length=int(metadata.get(_MAX_LENGTH_KEY, b"0")),
    )
    if not _fits(field.type, result):
        raise SchemaError(
            f"column {field.name!r} is {field.type}; expected {result.choose_arrow_type()} for {kind.name}"
        )
    return result


def _infer_types(field: pa.Field) -> tuple[DataType, DataType, int]:
    """Return the type, element type and dimensions that an Arrow type stands for by itself."""
    kind = field.type
    none = DataType.None_
    if field.name == layout.DYNAMIC_NAME or (
        isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"
    ):
        return DataType.JSON, none, 0
    if pa.types.is_fixed_size_list(kind):
        for vector, element in reversed(VECTOR_ELEMENTS.items()):
            if element == kind.value_type and vector is not DataType.BFloat16Vector:
                return vector, none, kind.list_size
    if pa.types.is_fixed_size_binary(kind):
        return DataType.BinaryVector, none, kind.byte_width * 8
    if pa.types.is_map(kind) and pa.types.is_integer(kind.key_type) and pa.types.is_floating(kind.item_type):
        return DataType.SparseFloatVector, none, 0
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner, _, dim = _infer_types(pa.field(field.name, kind.value_type))
        if inner in VECTOR_ELEMENTS:
            return DataType.ArrayOfVector, inner, dim
        return (DataType.Array, inner, 0) if inner in ARRAY_ELEMENTS else (none, none, 0)
    if is_text(kind):
        return DataType.VarChar, none, 0
    if pa.types.is_timestamp(kind):
        return DataType.Timestamptz, none, 0
    plain = (DataType.Bool, DataType.Int8, DataType.Int16, DataType.Int32, DataType.Int64, DataType.Float)
    for candidate in (*plain, DataType.Double):
        if SCALARS[candidate] == kind:
            return candidate, none, 0
    return none, none, 0


def _fits(kind: pa.DataType, field: Field) -> bool:
    """Return whether values of an Arrow type can be tried as values of a field."""
    target = field.choose_arrow_type()
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    if pa.types.is_string(target):
        return any(test(kind) for test in texts)
    if pa.types.is_map(target):
        return bool(pa.types.is_map(kind))
    if pa.types.is_timestamp(target):
        return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))
    if pa.types.is_list(target) or pa.types.is_fixed_size_list(target):
        return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind))
    if pa.types.is_fixed_size_binary(target):
        return bool(pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind))
    return bool(kind == target or (pa.types.is_integer(kind) and pa.types.is_integer(target)))
