"""The payload interface of the first Milvus binlogs: add values of one type, get bytes; give bytes, get values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from sawlog.arrow import make_array, make_fixed_array
from sawlog.errors import FormatError, SchemaError
from sawlog.milvus.layout import DataType
from sawlog.milvus.types import SCALARS, SPARSE, VECTOR_ELEMENTS, Field, parse_data_type
from sawlog.storage.sources import MemorySource

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VECTORS = (*VECTOR_ELEMENTS, DataType.BinaryVector)
_MAX_PAGE = 1 << 30
_MAX_VALUES = (1 << 31) - 1
_VectorAdder: TypeAlias = "Callable[[PayloadWriter, Any, int], None]"


def _make_adder(type: DataType) -> Callable[[PayloadWriter, Iterable[Any]], None]:
    """Return the method that appends values of a scalar type."""

    def add(self: PayloadWriter, values: Iterable[Any]) -> None:
        self._check(type)
        self.add(values)

    add.__doc__ = f"Append {type.name} values."
    return add


def _make_vector_adder(type: DataType, dtype: str, shape: str = "`dim` of them per vector") -> _VectorAdder:
    """Return the method that appends vectors of a type."""

    def add(self: PayloadWriter, values: Any, dim: int) -> None:
        self._add_vectors(type, values, dim, dtype)

    add.__doc__ = f"Append {type.name}s: {dtype} values, {shape}; 1-D or one row per vector."
    return add


class PayloadWriter:
    """Makes the payload of one column: add values, finish, take the bytes.

    Args:
        type: Code or name of the column's type, e.g. `5`, `"Int64"` or `DataType.Int64`.
        dim: Dimensions, for vectors; otherwise those of the first vectors.
        element: Element type, for arrays.
        nullable: Whether values may be `None`.

    Raises:
        SchemaError: For a type that is none.
    """

    def __init__(
        self, type: int | str, *, dim: int = 0, element: int | str | None = None, nullable: bool = False
    ) -> None:
        elements = parse_data_type(element) if element is not None else DataType.None_
        self._field = Field(-1, "payload", parse_data_type(type), element=elements, dim=dim, nullable=nullable)
        self._columns: list[pa.Array] = []
        self._bytes: bytes | None = None

    add_bool = _make_adder(DataType.Bool)
    add_int8 = _make_adder(DataType.Int8)
    add_int16 = _make_adder(DataType.Int16)
    add_int32 = _make_adder(DataType.Int32)
    add_int64 = _make_adder(DataType.Int64)
    add_float = _make_adder(DataType.Float)
    add_double = _make_adder(DataType.Double)
    add_binary_vector = _make_vector_adder(DataType.BinaryVector, "uint8", "`dim / 8` of them per vector")
    add_float_vector = _make_vector_adder(DataType.FloatVector, "float32")
    add_float16_vector = _make_vector_adder(DataType.Float16Vector, "float16")
    add_bfloat16_vector = _make_vector_adder(DataType.BFloat16Vector, "float32", "each of them exactly a bfloat16")
    add_int8_vector = _make_vector_adder(DataType.Int8Vector, "int8")

    def add_string(self, value: str | None) -> None:
        """Append one string, or one JSON text to a JSON column."""
        if self._field.type not in (DataType.String, DataType.VarChar, DataType.JSON, DataType.Text):
            raise self._make_type_error("a string")
        self.add([value])

    def add_sparse_float_vector(self, values: Iterable[Mapping[int, float] | None]) -> None:
        """Append sparse vectors: mappings from index to value."""
        if self._field.type is not DataType.SparseFloatVector:
            raise self._make_type_error("a sparse vector")
        pairs = [None if vector is None else sorted(vector.items()) for vector in values]
        self._append(make_array(pairs, SPARSE))

    def add(self, values: Any) -> None:
        """Append values of the column's type: a sequence, or an Arrow or NumPy array.

        Raises:
            SchemaError: For values of another type, or after `finish`.
        """
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array):
            try:
                values = pa.array(values, self._field.choose_arrow_type())  # noqa: TID251 - of whatever the caller has
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
                raise SchemaError(f"a {self._field.type.name} payload cannot take these values: {error}") from None
        self._append(values)

    def finish(self) -> None:
        """Complete the payload; nothing can be added from here on."""
        from sawlog.milvus.encode import encode_payload

        if self._bytes is None:
            storage = self._columns[0].type if self._columns else self._field.storage or pa.binary()
            self._bytes = encode_payload(self._field, pa.chunked_array(self._columns, storage))

    @property
    def buffer(self) -> bytes:
        """The payload: a Parquet file of one column.

        Raises:
            SchemaError: Before `finish`.
        """
        if self._bytes is None:
            raise SchemaError("finish the payload before taking its bytes")
        return self._bytes

    def __len__(self) -> int:
        """Return how many values were added."""
        return sum(len(column) for column in self._columns)

    def _check(self, type: DataType) -> None:
        if self._field.type is not type:
            raise self._make_type_error(type.name)

    def _add_vectors(self, type: DataType, values: Any, dim: int, dtype: str) -> None:
        import numpy as np

        self._check(type)
        width = dim // 8 if type is DataType.BinaryVector else dim
        flat = np.ascontiguousarray(values, dtype).reshape(-1)
        if dim <= 0 or (type is DataType.BinaryVector and dim % 8) or len(flat) % width:
            raise SchemaError(f"{len(flat)} values are no {type.name}s of {dim} dimensions")
        if self._field.dim not in (0, dim):
            raise SchemaError(f"vectors of {dim} dimensions in a payload of {self._field.dim}")
        self._resolve_dim(dim)
        if type is DataType.BinaryVector:
            slots = pa.Array.from_buffers(pa.binary(width), len(flat) // width, [None, pa.py_buffer(flat)])
            self._append(slots)
            return
        self._append(pa.FixedSizeListArray.from_arrays(make_fixed_array(pa.from_numpy_dtype(flat.dtype), flat), dim))

    def _resolve_dim(self, dim: int) -> None:
        from dataclasses import replace

        self._field = replace(self._field, dim=dim)

    def _append(self, array: pa.Array) -> None:
        from sawlog.milvus.encode import encode

        if self._bytes is not None:
            raise SchemaError("the payload is finished; nothing can be added to it")
        if self._field.type in VECTOR_ELEMENTS and not self._field.dim and pa.types.is_fixed_size_list(array.type):
            self._resolve_dim(array.type.list_size)
        if self._field.type in _VECTORS and not self._field.dim:
            raise SchemaError(f"a {self._field.type.name} payload needs its dimensions: give dim")
        self._columns.append(encode(self._field, array, len(self)))

    def _make_type_error(self, value_type: str) -> SchemaError:
        return SchemaError(f"a {self._field.type.name} payload cannot take {value_type} values")


class PayloadReader:
    """The values of a payload.

    Args:
        type: Code or name of the column's type.
        data: The payload: a Parquet file, of which the first column counts.
        element: Element type, for arrays.

    Raises:
        FormatError: When the bytes are no Parquet file, or one that claims more memory than it may.
        SchemaError: When it holds values of another type.
    """

    def __init__(self, type: int | str, data: bytes, *, element: int | str | None = None) -> None:
        from sawlog.milvus.columns import decode
        from sawlog.milvus.payloads.stored import resolve

        arrays, stored = _read(data)
        elements = parse_data_type(element) if element is not None else DataType.None_
        self._field = resolve(
            Field(-1, "payload", parse_data_type(type), element=elements, nullable=True), stored, arrays
        )
        if self._field.type in _VECTORS and not self._field.dim:
            raise SchemaError(f"the payload holds {stored.type}; expected {self._field.type.name}")
        decoded = [decode(self._field, array) for array in arrays]
        self.array: pa.Array = pa.concat_arrays(decoded) if decoded else pa.nulls(0, self._field.choose_arrow_type())

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self.array)

    @property
    def dim(self) -> int:
        """Dimensions of vectors; 0 for other types."""
        return self._field.dim

    def numpy(self) -> NDArray[Any]:
        """Return the values as a NumPy view of the Arrow memory, read-only: 1-D for scalars, one row per vector.

        Raises:
            SchemaError: For types without a NumPy form of fixed width, and for nulls; take `array` then.
        """
        import numpy as np

        from sawlog.milvus.columns import split_binary

        array = self.array
        if array.null_count:
            raise SchemaError("NumPy has no nulls; take `array`")
        if pa.types.is_fixed_size_list(array.type):
            return np.asarray(array.flatten().to_numpy()).reshape(len(array), -1)
        if pa.types.is_fixed_size_binary(array.type):
            width = array.type.byte_width
            view = np.frombuffer(array.buffers()[1] or b"", np.uint8)
            return view[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
        if pa.types.is_boolean(array.type):
            return np.asarray(array.to_numpy(zero_copy_only=False))
        if self._field.type in SCALARS and not pa.types.is_nested(array.type) and not _is_variable_width(array.type):
            return np.asarray(array.to_numpy())
        if _is_variable_width(array.type):
            split_binary(array)
        raise SchemaError(f"{self._field.type.name} values have no fixed width; take `array`")

    def string(self, index: int) -> str:
        """Return one value of a string column.

        Raises:
            IndexError: When there is no such value.
            SchemaError: When the column holds anything but strings.
        """
        if not pa.types.is_string(self.array.type):
            raise SchemaError(f"{self._field.type.name} values are no strings")
        return str(self.array[index].as_py())


def _is_variable_width(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _read(data: bytes) -> tuple[Sequence[pa.Array], pa.Field]:
    """Return the first column of a payload, and how it is stored.

    Raises:
        FormatError: When it cannot be read.
    """
    from sawlog.milvus.payloads.payload import Extent, Payload, UnreadableError

    try:
        payload = Payload(MemorySource(data), "payload", Extent(0, len(data)), _MAX_PAGE)
        if not payload.schema:
            raise FormatError("the payload has no column")
        return payload.read_column(_MAX_VALUES), payload.schema.field(0)
    except UnreadableError as error:
        raise FormatError(str(error)) from None
