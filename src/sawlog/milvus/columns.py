"""From payload columns to the Arrow arrays of their fields."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import find_index, make_fixed_array, pack_bits, unpack_booleans, view_binary, view_offsets
from sawlog.errors import SchemaError
from sawlog.milvus import kernels
from sawlog.milvus.kernels import Elements, Messages
from sawlog.milvus.layout import LARGE_TEXT, LOB_INLINE, LOB_REFERENCE, TIMESTAMP_FIELD, BinlogDamageKind, DataType
from sawlog.milvus.types import ARRAY_ELEMENTS, SPARSE, VECTOR_BYTES, VECTOR_ELEMENTS, Field

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = {
    1: kernels.VARINT,
    2: kernels.VARINT,
    3: kernels.VARINT,
    4: kernels.FIXED32,
    5: kernels.FIXED64,
    6: kernels.BYTES,
    11: kernels.VARINT,
}
"""How `ScalarField` stores the elements of each of its fields."""


def decode(field: Field, array: pa.Array) -> pa.Array:
    """Return the values of a payload column as the field's Arrow type.

    Raises:
        SchemaError: For values that are none of the field's; names the field, and the row within the array.
    """
    if (field.primary or field.id == TIMESTAMP_FIELD) and array.null_count:
        role = "primary key" if field.primary else "timestamp"
        raise SchemaError(f"field {field.name!r}, row {find_index(array.is_null(), True)}: a {role} is null")
    try:
        return _decode(field, array)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"field {field.name!r}: {array.type} is not {field.type.name}: {error}") from None


def _decode(field: Field, array: pa.Array) -> pa.Array:
    target = field.choose_arrow_type()
    if field.type in VECTOR_ELEMENTS:
        return _decode_dense(field, array) if field.dim else _cast_binary(array)
    if field.type is DataType.BinaryVector:
        return _make_slots(array, field.dim // 8) if field.dim else _cast_binary(array)
    if field.type is DataType.SparseFloatVector:
        return _decode_sparse(field, array)
    if field.type is DataType.Array and not pa.types.is_list(array.type):
        return _decode_cells(field, array) if field.element in ARRAY_ELEMENTS else _cast_binary(array)
    if field.type is DataType.ArrayOfVector:
        return _decode_vectors(field, array)
    if field.type is DataType.Text and pa.types.is_binary(array.type):
        return _decode_large_text(field, array)
    if pa.types.is_string(target):
        return _cast_text(array)
    if pa.types.is_timestamp(target) and pa.types.is_int64(array.type):
        return array.view(target)
    if pa.types.is_dictionary(array.type):
        raise SchemaError(f"field {field.name!r}: expected {target}, found {array.type}")
    return array if array.type == target else array.cast(target)


def _cast_binary(array: pa.Array) -> pa.Array:
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def _cast_text(array: pa.Array) -> pa.Array:
    """Return strings that are proven to be UTF-8."""
    if pa.types.is_string(array.type):
        array.validate(full=True)
        return array
    return array.cast(pa.string())


class LargeTextError(SchemaError):
    """Texts in a file of large texts, which is not read."""


def find_damage_kind(error: SchemaError) -> str:
    """Return the kind of damage of values that cannot be decoded."""
    return BinlogDamageKind.UNSUPPORTED.label if isinstance(error, LargeTextError) else BinlogDamageKind.BAD_VALUE.label


def _decode_large_text(field: Field, array: pa.Array) -> pa.Array:
    """Return texts of Storage V3: a byte that says what follows, and the text. Section 5.4 of the format.

    Raises:
        LargeTextError: For references to files of large texts, which are not read.
        SchemaError: For what is neither a text nor one.
    """
    offsets, data = split_binary(array)
    filled = unpack_booleans(array.is_valid())
    if (filled & (np.diff(offsets) == 0)).any():
        row = int(np.argmax(filled & (np.diff(offsets) == 0)))
        raise SchemaError(f"field {field.name!r}, row {row}: a text without the byte that says where it is")
    flags = data[offsets[:-1][filled]]
    if (flags != LOB_INLINE).any():
        row = int(np.flatnonzero(filled)[np.argmax(flags != LOB_INLINE)])
        kind = int(flags[flags != LOB_INLINE][0])
        description = f"field {field.name!r}, row {row}: its text is"
        cell = array[row].as_py()
        if kind == LOB_REFERENCE and len(cell) == LARGE_TEXT.size:
            _, file, place = LARGE_TEXT.unpack(cell)
            name = f"lobs/{field.id}/_data/{uuid.UUID(bytes=file)}.vx"
            raise LargeTextError(
                f"{description} row {place} of a file of large texts, {name} (Vortex), which is not read"
            )
        if kind == LOB_REFERENCE:
            raise SchemaError(f"{description} in a file that {len(cell)} bytes name; expected {LARGE_TEXT.size}")
        raise SchemaError(f"{description} of kind {kind}")
    starts = offsets[:-1][filled]
    texts = np.delete(data[offsets[0] : offsets[-1]], starts - offsets[0])
    ends = (offsets - offsets[0] - np.concatenate([[0], np.cumsum(filled)])).astype(np.int32)
    buffers = [_make_validity(array), pa.py_buffer(ends), pa.py_buffer(texts)]
    return _cast_text(pa.Array.from_buffers(pa.binary(), len(array), buffers, array.null_count))


def _decode_dense(field: Field, array: pa.Array) -> pa.Array:
    """Return a dense vector column as a list of its elements; not copied, but for bfloat16."""
    width = field.dim * VECTOR_BYTES[field.type]
    if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        # Storage V2 test data, and early array shapes: lists of numbers.
        return array.cast(pa.list_(VECTOR_ELEMENTS[field.type], field.dim))
    slots = _make_slots(array, width)
    _, data = slots.buffers()
    element = VECTOR_ELEMENTS[field.type]
    count = len(slots) * field.dim
    start = slots.offset * field.dim
    if field.type is DataType.BFloat16Vector:
        halves = np.frombuffer(data or b"", np.uint16)[start : start + count]
        wide = halves.astype(np.uint32)
        wide <<= 16
        child = make_fixed_array(element, wide.view(np.float32))
    else:
        child = pa.Array.from_buffers(element, count, [None, data], 0, start)
    mask = _make_validity(slots)
    return pa.Array.from_buffers(pa.list_(element, field.dim), len(slots), [mask], slots.null_count, 0, [child])


def _make_validity(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap of an array as one that begins at its first value."""
    if not array.null_count:
        return None
    return pack_bits(unpack_booleans(array.is_valid()))


def _make_slots(array: pa.Array, width: int) -> pa.Array:
    """Return vectors in slots of one width, which nullable ones are brought to from variable binary."""
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != width:
            raise SchemaError(f"vectors of {array.type.byte_width} bytes where {width} bytes were expected")
        return array
    return _cast_binary(array).cast(pa.binary(width))


def split_binary(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets and bytes of a binary or string array, for a kernel. Nulls are empty.

    Raises:
        SchemaError: When the offsets do not ascend within the data.
    """
    data, offsets = view_binary(array)
    return offsets.astype(np.int64), data


def _decode_sparse(field: Field, array: pa.Array) -> pa.Array:
    binary = _cast_binary(array)
    offsets, data = split_binary(binary)
    if (offsets % 8 != offsets[0] % 8).any():
        row = int(np.argmax(np.diff(offsets) % 8 != 0))
        raise SchemaError(f"field {field.name!r}, row {row}: a sparse vector takes 8 bytes per entry")
    pairs = data[offsets[0] : offsets[-1]].view(np.dtype([("index", "<u4"), ("value", "<f4")]))
    keys = make_fixed_array(pa.uint32(), np.ascontiguousarray(pairs["index"]))
    items = make_fixed_array(pa.float32(), np.ascontiguousarray(pairs["value"]))
    entries = pa.StructArray.from_arrays([keys, items], fields=[SPARSE.key_field, SPARSE.item_field])
    starts = ((offsets - offsets[0]) // 8).astype(np.int32)
    return pa.Array.from_buffers(
        SPARSE, len(binary), [_make_validity(binary), pa.py_buffer(starts)], binary.null_count, 0, [entries]
    )


def _decode_cells(field: Field, array: pa.Array) -> pa.Array:
    """Return array cells, which are protobuf messages, as lists. Section 3.3 of the format."""
    binary = _cast_binary(array)
    offsets, data = split_binary(binary)
    rows = len(binary)
    tag = ARRAY_ELEMENTS[field.element]
    cells = np.empty(rows + 1, np.int64)
    numbers, ends, out = np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.uint8)
    messages, shape = Messages(offsets, data), _SHAPES[tag]
    count, size, bad = kernels.decode_cells(messages, tag, shape, False, cells, Elements(numbers, ends, out))
    if bad != kernels.OK:
        raise SchemaError(f"field {field.name!r}, row {bad}: not an array of {field.element.name}")
    if shape == kernels.BYTES:
        ends, out = np.zeros(count + 1, np.int64), np.empty(size, np.uint8)
    else:
        numbers = np.empty(count, np.uint64)
    kernels.decode_cells(messages, tag, shape, True, cells, Elements(numbers, ends, out))
    values = _make_elements(field, numbers, ends, out)
    kind = pa.list_(values.type)
    starts = pa.py_buffer(cells.astype(np.int32))
    return pa.Array.from_buffers(kind, rows, [_make_validity(binary), starts], binary.null_count, 0, [values])


def _make_elements(
    field: Field, numbers: NDArray[np.uint64], ends: NDArray[np.int64], out: NDArray[np.uint8]
) -> pa.Array:
    element = field.element
    if element is DataType.Bool:
        return make_fixed_array(pa.uint8(), (numbers != 0).astype(np.uint8)).cast(pa.bool_())
    if element is DataType.Float:
        return make_fixed_array(pa.float32(), numbers.astype(np.uint32).view(np.float32))
    if element is DataType.Double:
        return make_fixed_array(pa.float64(), numbers.view(np.float64))
    if element in (DataType.VarChar, DataType.String):
        buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
        return _cast_text(pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers))
    wide = make_fixed_array(pa.int64(), numbers.view(np.int64))
    narrow = {DataType.Int8: pa.int8(), DataType.Int16: pa.int16(), DataType.Int32: pa.int32()}
    return wide.cast(pa.timestamp("us", "UTC") if element is DataType.Timestamptz else narrow.get(element, wide.type))


def _decode_vectors(field: Field, array: pa.Array) -> pa.Array:
    """Return arrays of vectors: a list of the stored form of its vectors."""
    if not pa.types.is_list(array.type):
        raise SchemaError(f"field {field.name!r}: expected a list of vectors, found {array.type}")
    offsets = view_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    children = array.values.slice(first, last - first)
    element: Any = Field(field.id, field.name, field.element, dim=field.dim)
    if not (field.element in VECTOR_ELEMENTS and field.dim):
        values = _cast_binary(children)
    elif pa.types.is_floating(children.type) or pa.types.is_integer(children.type):
        values = pa.FixedSizeListArray.from_arrays(children.cast(VECTOR_ELEMENTS[field.element]), field.dim)
        offsets = first + (offsets - first) // field.dim
    else:
        values = _decode_dense(element, children)
    buffers = [_make_validity(array), pa.py_buffer((offsets - first).astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(values.type), len(array), buffers, array.null_count, 0, [values])
