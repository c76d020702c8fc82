"""Rows to values: containers of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import compute_offsets, fill_null, make_bitmap, unpack_booleans, view_values
from sawlog.errors import SchemaError
from sawlog.filodb import layout
from sawlog.filodb.options import WriteOptions
from sawlog.filodb.target import Target
from sawlog.filodb.writer import choose_container_time


@dataclass(frozen=True)
class ValueEncoder:
    """Makes containers of rows: each list of structs becomes one container, each struct one of a single record.

    Attributes:
        options: As for files; `schema` is needed unless rows say theirs in `_schema`.
    """

    options: WriteOptions

    def encode(self, rows: pa.Array) -> pa.Array:
        """Return a container per value; null where the value is null.

        Raises:
            SchemaError: For anything that cannot be represented.
        """
        lists = pa.types.is_list(rows.type) or pa.types.is_large_list(rows.type)
        valid = unpack_booleans(rows.is_valid())
        if lists:
            structs = rows.flatten()
            counts = view_values(fill_null(rows.value_lengths(), 0).cast(pa.int64()), np.int64)
        else:
            structs = rows.filter(rows.is_valid()) if rows.null_count else rows
            counts = valid.astype(np.int64)
        if not pa.types.is_struct(structs.type):
            raise SchemaError(f"expected structs, or lists of them, found {rows.type}")
        if structs.null_count:
            raise SchemaError("a row is null; FiloDB has no nulls")
        batch = pa.RecordBatch.from_struct_array(structs)
        data, sizes = self._build_containers(batch, np.repeat(np.arange(len(rows)), counts), len(rows))
        buffers = [make_bitmap(valid), pa.py_buffer(compute_offsets(sizes)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), len(rows), buffers).cast(pa.binary())

    def _build_containers(
        self, batch: pa.RecordBatch, groups: NDArray[np.int64], count: int
    ) -> tuple[bytes, NDArray[np.int64]]:
        """Return the containers of all groups back to back, and how many bytes those of each have."""
        from sawlog.filodb.layer import Layer

        parts: list[bytes] = []
        target = Target.of(batch.schema, self.options)
        size = _measure_largest(batch, groups)
        layer = Layer(target, replace(self.options, container_size=size), 0, lambda data: parts.append(data.tobytes()))
        sizes = layer.measure_groups(count)
        layer.add(batch, choose_container_time(self.options), groups)
        layer.finish()
        return b"".join(parts), np.asarray(sizes[:count])


def _measure_largest(batch: pa.RecordBatch, groups: NDArray[np.int64]) -> int:
    """Return the size of a container in which the rows of any group find room."""
    rows = int(np.bincount(groups).max(initial=0))
    fixed = 64 * (batch.num_columns + 2) * rows
    plain = (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns)
    need = layout.align(fixed + 2 * sum(column.nbytes for column in plain) + layout.CONTAINER_HEADER_SIZE)
    return max(layout.MIN_CONTAINER_SIZE, min(need, layout.MAX_CONTAINER_SIZE - 3))
