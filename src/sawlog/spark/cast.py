"""The one place where batches become what Spark wants, and what Spark hands over becomes what a format wants.

Spark compares schemas exactly and reads buffers by them: no unsigned integers, dictionaries, views or large offsets,
timestamps in microseconds UTC.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as arrow

from sawlog.arrow import compute_offsets, make_fixed_array
from sawlog.errors import SchemaError
from sawlog.spark.schema import has_integers, is_list

_SPARK_UNIT = "us"


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly the columns and types of a schema.

    Columns are taken by name; what fits is not copied.

    Timestamps and durations in nanoseconds are rounded down to Spark's microseconds. Nothing else is ever lost.

    Raises:
        SchemaError: When a value does not fit, or is null where the schema has none; names the column.
    """
    arrays = []
    for field in schema:
        column = batch.column(field.name)
        try:
            arrays.append(cast_array(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SchemaError(f"column {field.name!r}: cannot turn {column.type} into {field.type}: {error}") from error
        if not field.nullable and arrays[-1].null_count:
            raise SchemaError(
                f"column {field.name!r} holds nulls; its schema says NOT NULL: without a schema start again, for files"
                " have been added that lack the column; else leave NOT NULL out of it"
            )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of the type `kind`: the same values, coarser only where `cast_batch` says so.

    Raises:
        pa.ArrowInvalid: When a value does not fit.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, cast_array(array, kind.storage_type))
    if isinstance(array.type, pa.BaseExtensionType):
        return cast_array(array.storage, kind)
    if array.type == kind:
        return array
    if arrow.is_dictionary(array.type):
        return cast_array(array.dictionary_decode(), kind)
    if arrow.is_run_end_encoded(array.type):
        import pyarrow.compute as pc

        return cast_array(pc.run_end_decode(array), kind)
    if is_list(array.type) and is_list(kind):
        return _cast_list(array, kind)
    if arrow.is_map(array.type) and arrow.is_map(kind):
        entries = [kind.key_field, kind.item_field]
        columns = [cast_array(array.keys, kind.key_type), cast_array(array.items, kind.item_type)]
        return _with_child(array, kind, pa.StructArray.from_arrays(columns, fields=entries))
    if arrow.is_struct(array.type) and arrow.is_struct(kind):
        children = [cast_array(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if has_integers(array.type) and arrow.is_int64(kind):
        return array.view(kind)
    if arrow.is_timestamp(array.type) and arrow.is_timestamp(kind):
        return _change_unit(array.view(pa.timestamp(array.type.unit)), kind.unit).view(kind)
    if arrow.is_duration(array.type) and arrow.is_duration(kind):
        return _change_unit(array.view(pa.timestamp(array.type.unit)), kind.unit).view(kind)
    return array.cast(kind)


def _change_unit(array: pa.Array, unit: str) -> pa.Array:
    """Return timestamps in another unit. For Spark's they are rounded down; any other loss is an error."""
    if unit == _SPARK_UNIT and array.type.unit == "ns":
        import pyarrow.compute as pc

        array = pc.floor_temporal(array, unit="microsecond")
    return array.cast(pa.timestamp(unit))


def _cast_list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return lists of any kind as lists of another: first the layout is changed, then the elements."""
    if arrow.is_list_view(array.type) or arrow.is_large_list_view(array.type):
        array = _pack(array)
    elif not arrow.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if arrow.is_list(kind):
        return _with_child(array, kind, cast_array(array.values, kind.value_type))
    plain = pa.list_(kind.value_field)
    return _with_child(array, plain, cast_array(array.values, kind.value_type)).cast(kind)


def _pack(array: pa.Array) -> pa.ListArray:
    """Return a list view as a list. Arrow's own cast of list views to lists leaves offsets unset."""
    import numpy as np
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    offsets = compute_offsets(sizes, np.int32)
    return pa.ListArray.from_arrays(make_fixed_array(pa.int32(), offsets), array.flatten(), mask=array.is_null())


def _with_child(array: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """Return a list or map with the same validity and offsets and another child."""
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[child]
    )
