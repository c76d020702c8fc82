"""Arrow arrays from buffers, and buffers of arrays.

`pa.array` of a list or an ndarray, `to_numpy` and `np.asarray` of an array, and functions of Arrow's that are given
Python's values import pandas where it is installed, which takes longer than most reads.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.errors import SchemaError
from sawlog.guard import count_microseconds

_SMALL_BYTES = 64 << 10
"""Columns up to this are made of memory of NumPy's."""
_ROOMS = 4
"""So many columns that are filled have room in the memory of a reel, where there is more than one."""
_ALIGNMENT = 64
"""Bytes; Arrow's buffers begin at multiples of it."""


class Column:
    """A buffer of one fixed-width type that a kernel writes and an Arrow array takes over.

    Memory comes from Arrow's pool, so that what consumers release is used again at once; for small columns from NumPy,
    which takes a third of the time; or from a reel.

    Attributes:
        values: NumPy view of the whole buffer, to write into.
    """

    def __init__(self, dtype: Any, capacity: int, reel: Reel | None = None) -> None:
        self._dtype = dtype = np.dtype(dtype)
        size = capacity * dtype.itemsize
        self._start = 0
        if size <= _SMALL_BYTES:
            self._buffer = self._reel = None
            self.values: NDArray[Any] = np.empty(capacity, dtype)
            return
        self._reel = reel
        if reel is None:
            self._buffer = pa.allocate_buffer(size)
        else:
            self._buffer, self._start = reel.reserve_room(size)
        self.values = np.frombuffer(self._buffer, dtype, capacity, self._start)

    def take(self, length: int) -> pa.Buffer:
        """Return the first `length` values as an Arrow buffer, which owns the memory from then on."""
        used = length * self._dtype.itemsize
        if self._buffer is None:  # to copy what is small takes no longer than to hand it over
            return pa.py_buffer(self.values[:length].tobytes())
        if self._reel is not None:
            self._reel.cut(self._start + used)
        elif used < self._buffer.size // 2:
            # Little was used of much: do not keep the rest alive with the batch. Bytes would be copied under the GIL.
            column = Column(self._dtype, length)
            np.copyto(column.values, self.values[:length])
            return column.take(length)
        return self._buffer.slice(self._start, used)


class Reel:
    """Memory for columns, one after the other: what one of them leaves unused is the next one's.

    For columns of which nobody knows beforehand how much of them is used; one of them is written at a time.
    """

    def __init__(self) -> None:
        self._buffer: pa.Buffer | None = None
        self._used = 0

    def reserve_room(self, size: int) -> tuple[pa.Buffer, int]:
        """Return a buffer, and from where on it has room for so many bytes."""
        if self._buffer is None:
            self._buffer = pa.allocate_buffer(size)
        elif self._buffer.size - self._used < size:
            self._buffer = pa.allocate_buffer(_ROOMS * size)
            self._used = 0
        return self._buffer, self._used

    def cut(self, end: int) -> None:
        """Give the next column what follows that offset in the buffer."""
        self._used = -(-end // _ALIGNMENT) * _ALIGNMENT


def find_value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column; dictionaries are looked through."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds strings."""
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def make_fixed_array(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    """Return an array of a fixed-width type over NumPy values, without a copy and without nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def make_batch(arrays: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch of so many rows, be it without a single column."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    batch = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None], children=[]))
    return batch.replace_schema_metadata(schema.metadata) if schema.metadata else batch


def make_binary_array(ends: NDArray[np.int32], data: Column) -> pa.Array:
    """Return binary values: value i is `data[ends[i] : ends[i + 1]]`. Copies `ends`, takes `data` over."""
    if ends.nbytes <= _SMALL_BYTES:
        offsets = pa.py_buffer(ends.tobytes())
    else:
        copied_ends = Column(ends.dtype, len(ends))
        copied_ends.values[:] = ends
        offsets = copied_ends.take(len(ends))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, data.take(int(ends[-1]))])


def make_constant(value: Any, kind: pa.DataType, length: int) -> pa.Array:
    """Return the same value `length` times; None is null."""
    return pa.repeat(make_scalar(value, kind), length)


def make_constant_string(value: str, length: int) -> pa.Array:
    """Return the same string `length` times."""
    return make_constant(value, pa.string(), length)


def evaluate_expressions(table: pa.Table, expressions: Mapping[str, Any], context: str) -> pa.Table:
    """Return what expressions make of the rows of a table.

    Acero works in the calling thread. How many threads decode is for the reader to say, and those of Arrow's own may
    hold Python's memory still when the call has come back.

    Raises:
        SchemaError: When they do not fit the columns, or a value cannot be computed.
    """
    from pyarrow import _acero as acero  # what is public imports pyarrow.dataset, and that imports pandas

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    projection = acero.ProjectNodeOptions(list(expressions.values()), list(expressions))
    try:
        return acero.Declaration("project", projection, inputs=[rows]).to_table(use_threads=False)
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(f"{context}: {str(error).splitlines()[0]}") from error


def call_function(function: str, *values: Any, options: tuple[Any, ...] | None = None) -> Any:
    """Return what one of Arrow's functions makes of values.

    `pyarrow.compute` writes a Python function for each of them when it is imported, which takes a tenth of what `cat`
    does with a small file. `options` are the name of pyarrow's class of its options, and their values.
    """
    from pyarrow import _compute

    function_options = None if options is None else getattr(_compute, options[0])(*options[1:])
    return _compute.call_function(function, list(values), function_options)


def cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as another type that holds all of them."""
    return call_function("cast", values, options=("CastOptions", kind))


def list_schema_metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the metadata of a schema in their order, keys that repeat included, which pyarrow's dictionaries lose.

    Read by Arrow's C data interface: a count, then keys and values, each after its length; all int32, native order.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = schema.__arrow_c_schema__()
    _format, _name, address = (ctypes.c_size_t * 3).from_address(pointer(capsule, b"arrow_schema"))
    texts = []
    for _ in range(2 * ctypes.c_int32.from_address(address).value if address else 0):
        length = ctypes.c_int32.from_address(address + 4).value
        texts.append(ctypes.string_at(address + 8, length).decode())
        address += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))


def validate_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches from outside after every offset, index, bitmap and text of them was checked.

    Kernels and pyarrow's writers believe these: an offset past the data ends the process. Buffers that come through
    Arrow's C interface carry no sizes: that they are as long as the offsets say is the producer's word.

    Raises:
        SchemaError: For an array that is not valid; names column and row, counted from 0 over all batches.
    """
    first_row = 0
    for batch in batches:
        _validate_batch(batch, first_row)
        yield batch
        first_row += batch.num_rows


def _validate_batch(batch: pa.RecordBatch, first_row: int) -> None:
    """Check one batch as `validate_batches` does.

    Raises:
        SchemaError: For an array that is not valid.
    """
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if (message := _find_fault(array)) is not None:
            row = _find_faulty_row(array)
            place = "" if row is None else f", row {first_row + row}"
            raise SchemaError(f"column {name!r}{place}: not a valid Arrow array of type {array.type}: {message}")


def check_times(schema: pa.Schema, format_name: str) -> None:
    """Refuse times without a zone, which would come back as instants.

    Raises:
        SchemaError: For a column that is, or has in it, such times.
    """
    for field in schema:
        if _has_local_time(field.type):
            raise SchemaError(
                f"column {field.name!r} is {field.type}, and {format_name} holds no times without a zone:"
                ' give it one, as cast(pa.timestamp("us", "UTC")) does'
            )


def _has_local_time(kind: pa.DataType) -> bool:
    """Return whether values of a type are, or have in them, times without a zone."""
    if pa.types.is_dictionary(kind):
        return _has_local_time(kind.value_type)
    inner_types = (kind.field(index).type for index in range(kind.num_fields))
    return (pa.types.is_timestamp(kind) and kind.tz is None) or any(map(_has_local_time, inner_types))


def _find_fault(array: pa.Array) -> str | None:
    """Return why an array is not valid; `None` for a valid one."""
    try:
        array.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        return " ".join(str(error).split())
    return None


def _find_faulty_row(array: pa.Array) -> int | None:
    """Return the first row with which an array is not valid; `None` where it is not the rows, as in a dictionary."""
    low, high = 0, len(array)  # the first `low` rows are valid, the first `high` are not
    if not high or _find_fault(array.slice(0, 0)) is not None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _find_fault(array.slice(0, middle)) is None:
            low = middle
        else:
            high = middle
    return low


def combine_table(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else make_batch_from_rows([], table.schema)


def combine_column(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as one array; `combine_chunks` of no chunk pulls pandas in."""
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


class GrowingDictionary:
    """Dictionary for batches that each bring their own, for takers that want it to grow and never to change."""

    def __init__(self) -> None:
        self._values: pa.Array | None = None

    def take(self, array: pa.DictionaryArray) -> pa.DictionaryArray:
        """Return the same values, by indices into a dictionary that begins with that of the batch before."""
        import pyarrow.compute as pc

        if self._values is None or array.dictionary.equals(self._values):
            self._values = array.dictionary
            return array
        new = array.dictionary.filter(pc.invert(pc.is_in(array.dictionary, value_set=self._values)))
        if len(new):
            self._values = pa.concat_arrays([self._values, new.unique()])
        places = pc.index_in(array.dictionary, value_set=self._values).cast(array.type.index_type)
        indices = places.take(array.indices)
        return pa.DictionaryArray.from_arrays(indices, self._values, ordered=array.type.ordered, safe=False)


def unpack_booleans(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return a Boolean array as one byte per value; those of nulls are arbitrary."""
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].view(np.bool_)


_PLAIN: Mapping[str, set[type]] = {
    "integer": {int},
    "floating": {float, int},
    "boolean": {bool},
    "string": {str},
    "large_string": {str},
    "binary": {bytes},
    "large_binary": {bytes},
    "timestamp": {int, dt.datetime},
    "duration": {int},
    "date": {int},
    "time": {int},
}
"""Types of Python's values that buffers are made of, by the name of Arrow's test for the type."""
_OUTSIDE = "the Arrow array is invalid: offsets outside its data"
_PAIR = struct.Struct("<2i")
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Parts of a second that Arrow's types of times count in, by unit."""


def make_array(
    values: Sequence[Any] | NDArray[Any], kind: pa.DataType, missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return an array as `pa.array` makes it, without the import of pandas for all but rare values.

    Args:
        values: NumPy's values, or Python's or Arrow's, of which None is null.
        kind: The type.
        missing: Which of NumPy's values are null.
    """
    if isinstance(values, np.ndarray):
        value_buffers = [
            pack_bits(values)
            if pa.types.is_boolean(kind)
            else pa.py_buffer(np.ascontiguousarray(values, _choose_dtype(kind)))
        ]
        validity = None if missing is None else make_bitmap(~missing)
        return pa.Array.from_buffers(kind, len(values), [validity, *value_buffers])
    if pa.types.is_dictionary(kind):
        return make_array(values, kind.value_type).cast(kind)
    values = list(values)
    value_types = set(map(type, values))
    has_nulls = None.__class__ in value_types
    validity = make_bitmap(np.fromiter((value is not None for value in values), np.bool_)) if has_nulls else None
    value_types.discard(None.__class__)
    if not value_types:
        return pa.nulls(len(values), kind)
    if all(issubclass(value_type, pa.Scalar) for value_type in value_types):
        return pa.concat_arrays([pa.nulls(1, kind) if value is None else pa.repeat(value, 1) for value in values])
    children: list[pa.Array] = []
    buffers: list[Any] = []
    if pa.types.is_list(kind) and value_types <= {list, tuple}:
        buffers = [_make_offsets([value or () for value in values])]
        children = [make_array([item for value in values for item in value or ()], kind.value_type)]
    elif pa.types.is_map(kind) and value_types <= {list, tuple}:
        buffers = [_make_offsets([value or () for value in values])]
        keys, items = ([pair[side] for value in values for pair in value or ()] for side in (0, 1))
        arrays = [make_array(keys, kind.key_type), make_array(items, kind.item_type)]
        children = [pa.StructArray.from_arrays(arrays, fields=[kind.key_field, kind.item_field])]
    elif pa.types.is_struct(kind) and value_types <= {dict}:
        children = [make_array([(value or {}).get(field.name) for value in values], field.type) for field in kind]
    elif not any(value_types <= types and getattr(pa.types, f"is_{name}")(kind) for name, types in _PLAIN.items()):
        return pa.array(values, kind)
    elif value_types <= {str, bytes}:
        empty: Any = "" if str in value_types else b""
        texts = [value or empty for value in values]
        joined = empty.join(texts)
        data = joined.encode() if str in value_types else joined
        if len(data) != len(joined):
            texts = [text.encode() for text in texts]
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        buffers = [_make_offsets(texts, np.int64 if wide else np.int32), pa.py_buffer(data)]
    else:
        stored = values
        if dt.datetime in value_types:
            ticks = Fraction(TICKS_PER_SECOND[kind.unit], TICKS_PER_SECOND["us"])
            stored = [
                math.floor(count_microseconds(value) * ticks) if isinstance(value, dt.datetime) else value
                for value in values
            ]
        try:
            with np.errstate(over="ignore"):
                numbers = np.array([0 if value is None else value for value in stored], _choose_dtype(kind))
        except OverflowError:  # Arrow says which
            return pa.array(values, kind)
        buffers = [pack_bits(numbers) if pa.types.is_boolean(kind) else pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], children=children)


def _choose_dtype(kind: pa.DataType) -> Any:
    """Return NumPy's type of the values of a type of fixed width; times are integers."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype() if number else f"i{kind.bit_width // 8}")


def pack_bits(values: NDArray[Any]) -> pa.Buffer:
    """Return booleans, or bytes that are not zero, as the bits that Arrow has for them."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def make_bitmap(valid: NDArray[Any] | None) -> pa.Buffer | None:
    """Return the validity of an Arrow array; None where everything is valid."""
    return None if valid is None or valid.all() else pack_bits(valid)


def compute_offsets(lengths: NDArray[Any] | Sequence[int], dtype: Any = np.int64) -> NDArray[Any]:
    """Return the offsets of values that follow each other: where each begins, and the last one ends."""
    ends = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _make_offsets(items: Sequence[Any], dtype: Any = np.int32) -> pa.Buffer:
    """Return where each item begins, and the last one ends."""
    ends = compute_offsets(np.fromiter(map(len, items), np.int64, len(items)))
    if ends[-1] > np.iinfo(dtype).max:
        raise SchemaError(f"{ends[-1]} bytes or items in one Arrow array, which holds {np.iinfo(dtype).max}")
    return pa.py_buffer(ends.astype(dtype))


def make_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as Arrow's, without pandas; see `make_array`."""
    if type(value) is str and pa.types.is_string(kind):  # paths and partitions: one or more per file
        data = value.encode()
        ends = pa.py_buffer(_PAIR.pack(0, len(data)))
        return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(data)])[0]
    return make_array([value], kind)[0]


def fill_null(values: pa.Array | pa.ChunkedArray, value: Any) -> pa.Array | pa.ChunkedArray:
    """Return what `pc.fill_null` makes of a Python value, without the import of pandas."""
    return values.fill_null(make_scalar(value, values.type)) if values.null_count else values


def find_index(values: pa.Array, value: Any) -> int:
    """Return where a value first is in an array; -1 if it is not there."""
    place: int = values.index(make_scalar(value, values.type)).as_py()
    return place


def group_rows(batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows by the values of all columns; Arrow's own `group_by` pulls pandas in.

    Returns:
        The first row of each group, in order, and the number of the group that each row is in.
    """
    group_numbers = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        count = len(encoded.dictionary)
        codes = group_numbers * (count + 1) + view_values(fill_null(encoded.indices.cast(pa.int64()), count), np.int64)
        group_numbers = view_values(make_fixed_array(pa.int64(), codes).dictionary_encode().indices, np.int32).astype(
            np.int64
        )
    return np.flatnonzero(np.diff(np.maximum.accumulate(group_numbers), prepend=-1)), group_numbers


def make_batch_from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return what `pa.RecordBatch.from_pylist` makes of rows, without the import of pandas."""
    return make_batch(
        [make_array([row.get(field.name) for row in rows], field.type) for field in schema], schema, len(rows)
    )


def view_values(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """Return the values of a fixed-width array, which are not copied; those of nulls are arbitrary."""
    if not len(array):  # whose buffer may be of any length
        return np.empty(0, dtype)
    values: NDArray[Any] = np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]
    if len(values) != len(array):
        raise SchemaError(f"an Arrow array of {len(array)} values whose buffer holds {len(values)}")
    return values


_WIDE_TYPES = {kind.id for kind in (pa.large_binary(), pa.large_string(), pa.large_list(pa.null()))}


def view_offsets(array: pa.Array, *, is_own: bool = False) -> NDArray[Any]:
    """Return the offsets of bytes, texts, lists or maps, read-only: one more than there are values.

    The first may be above 0.

    Args:
        array: The array.
        is_own: Whether this package has made it, so that its offsets ascend.

    Raises:
        SchemaError: When offsets are missing, or they do not ascend.
    """
    dtype = np.int64 if array.type.id in _WIDE_TYPES else np.int32
    if not len(array):  # whose buffer may be of any length
        return np.zeros(1, dtype)
    start, end = array.offset, array.offset + len(array) + 1
    offsets: NDArray[Any] = np.frombuffer(array.buffers()[1] or b"", dtype)[start:end]
    if len(offsets) != len(array) + 1 or offsets[0] < 0 or (not is_own and (offsets[1:] < offsets[:-1]).any()):
        raise SchemaError(_OUTSIDE)
    offsets.flags.writeable = False
    return offsets


def view_binary(array: pa.Array, *, is_own: bool = False) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return the bytes and offsets of an array of bytes or texts, read-only. See `view_offsets`.

    Raises:
        SchemaError: When the offsets do not ascend within the bytes.
    """
    offsets = view_offsets(array, is_own=is_own)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    if offsets[-1] > len(data):
        raise SchemaError(_OUTSIDE)
    data.flags.writeable = False
    return data, offsets
