"""Arrow arrays from buffers. `pa.array` of a list or an ndarray pulls pandas in, and copies."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Column:
    """A buffer of one fixed-width type that a kernel writes and an Arrow array takes over.

    Memory comes from Arrow's pool, so that what consumers release is used again at once.

    Attributes:
        values: NumPy view of the whole buffer, to write into.
    """

    def __init__(self, dtype: Any, capacity: int) -> None:
        self._dtype = np.dtype(dtype)
        self._buffer = pa.allocate_buffer(capacity * self._dtype.itemsize)
        self.values: NDArray[Any] = np.frombuffer(self._buffer, self._dtype)

    def take(self, length: int) -> pa.Buffer:
        """The first `length` values as an Arrow buffer, which owns the memory from then on."""
        used = length * self._dtype.itemsize
        if used < self._buffer.size // 2:
            # Little was used of much: do not keep the rest alive with the batch.
            return pa.py_buffer(self._buffer.slice(0, used).to_pybytes())
        return self._buffer.slice(0, used)


def copied(values: NDArray[Any]) -> pa.Buffer:
    """The bytes of values as an Arrow buffer of its own, from Arrow's pool."""
    column = Column(values.dtype, len(values))
    column.values[:] = values
    return column.take(len(values))


def fixed_array(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    """An array of a fixed-width type over NumPy values, without a copy and without nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of so many rows, be it without a single column."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    empty = pa.Array.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(schema.metadata)


def binary_array(ends: NDArray[np.int32], data: Column) -> pa.Array:
    """Binary values: value i is `data[ends[i] : ends[i + 1]]`. Copies `ends`, takes `data` over."""
    buffers = [None, copied(ends), data.take(int(ends[-1]))]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def constant(value: Any, kind: pa.DataType, length: int) -> pa.Array:
    """The same value `length` times; None is null. For strings, binary values, Booleans and numbers.

    `pa.scalar` would pull pandas in, which costs every worker of Spark a fraction of a second.
    """
    import numpy as np

    if value is None:
        return pa.nulls(length, kind)
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    elif pa.types.is_boolean(kind):
        buffers = [None, pa.py_buffer(bytes([value]))]
    else:
        buffers = [None, pa.py_buffer(np.array([value], kind.to_pandas_dtype()))]
    return pa.repeat(pa.Array.from_buffers(kind, 1, buffers)[0], length)


def constant_string(value: str, length: int) -> pa.Array:
    """The same string `length` times."""
    return constant(value, pa.string(), length)


def computed(table: pa.Table, expressions: Mapping[str, Any], said: str) -> pa.Table:
    """What expressions make of the rows of a table.

    Acero works in the calling thread. How many threads decode is for the reader to say, and those of Arrow's own may
    hold Python's memory still when the call has come back.

    Args:
        table: The rows.
        expressions: Names of columns, and what makes them.
        said: What was asked for, for messages.

    Raises:
        SchemaError: When they do not fit the columns, or a value cannot be computed.
    """
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    made = acero.ProjectNodeOptions(list(expressions.values()), list(expressions))
    try:
        return acero.Declaration("project", made, inputs=[rows]).to_table(use_threads=False)
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(f"{said}: {str(error).splitlines()[0]}") from error


def schema_metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata of a schema in their order, keys that repeat included, which pyarrow's dictionaries lose.

    Read by Arrow's C data interface: a count, then keys and values, each after its length; all int32, native order.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = schema.__arrow_c_schema__()
    _format, _name, at = (ctypes.c_size_t * 3).from_address(pointer(capsule, b"arrow_schema"))
    texts = []
    for _ in range(2 * ctypes.c_int32.from_address(at).value if at else 0):
        length = ctypes.c_int32.from_address(at + 4).value
        texts.append(ctypes.string_at(at + 8, length).decode())
        at += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch."""
    found = table.combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], table.schema)


class GrowingDictionary:
    """One dictionary for batches that each bring their own, for takers that want it to grow and never to change."""

    def __init__(self) -> None:
        self._values: pa.Array | None = None

    def take(self, array: pa.DictionaryArray) -> pa.DictionaryArray:
        """The same values, by indices into a dictionary that begins with that of the batch before."""
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


def boolean_values(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """A Boolean array as one byte per value; those of nulls are arbitrary."""
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].view(np.bool_)
