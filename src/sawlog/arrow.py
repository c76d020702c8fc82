"""Arrow arrays from buffers. `pa.array` of a list or an ndarray pulls pandas in, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

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


def executed(table: pa.Table, node: str, options: Any) -> pa.Table:
    """What a node of Acero makes of a table.

    It works in the calling thread. How many threads decode is for the reader to say, and those of Arrow's own may hold
    Python's memory still when the call has come back.
    """
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    return acero.Declaration(node, options, inputs=[rows]).to_table(use_threads=False)


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
