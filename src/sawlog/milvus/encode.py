"""From Arrow arrays to payload columns, and from these to files: envelope, descriptor, events. Sections 3.2 and 7."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import fill_null, find_index, make_array, make_scalar, unpack_booleans, view_offsets, view_values
from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, decode_json
from sawlog.milvus import kernels, layout
from sawlog.milvus.columns import _SHAPES, _make_validity, split_binary
from sawlog.milvus.deletes.log import render_delta_cells
from sawlog.milvus.kernels import Elements, Messages
from sawlog.milvus.layout import DataType, EventType
from sawlog.milvus.types import ARRAY_ELEMENTS, SCALARS, SPARSE, VECTOR_BYTES, VECTOR_ELEMENTS, Field

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_DIM_KEY = b"dim"
"""Field metadata, in the stored Arrow schema, of vectors whose width the Parquet type does not say."""
_ELEMENT_TYPE_KEY = b"elementType"


def encode(field: Field, array: pa.Array, row: int = 0) -> pa.Array:
    """Return values as the payload column of their field.

    Args:
        field: What they are values of.
        array: The values, of the field's Arrow type or one that can be cast to it without loss.
        row: Number of the first value, for messages.

    Raises:
        SchemaError: For values that Milvus does not hold; names column and row.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count and not field.nullable:
        bad_row = row + find_index(array.is_null(), True)
        raise SchemaError(f"column {field.name!r}, row {bad_row}: null in a field that is not nullable")
    try:
        return _encode(field, array, row)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"column {field.name!r}: {array.type} is not {field.type.name}: {error}") from None


def _encode(field: Field, array: pa.Array, row: int) -> pa.Array:
    if field.type in VECTOR_ELEMENTS:
        return _cast_slots(field, _encode_dense(field, array, row))
    if field.type is DataType.BinaryVector:
        return _cast_slots(field, array.cast(pa.binary(field.dim // 8)))
    if field.type is DataType.SparseFloatVector:
        return _encode_sparse(field, array, row)
    if field.type is DataType.Array:
        return _encode_cells(field, array)
    if field.type is DataType.ArrayOfVector:
        return _encode_vectors(field, array, row)
    if field.type is DataType.Timestamptz:
        return array.cast(pa.timestamp("us", "UTC") if pa.types.is_timestamp(array.type) else pa.int64()).view(
            pa.int64()
        )
    if field.type in (DataType.VarChar, DataType.String, DataType.Text):
        text = array.cast(pa.string())
        text.validate(full=True)
        _check_length(field, text, row)
        return text
    if field.type is DataType.JSON:
        return _encode_json(field, array, row)
    return array if array.type == field.storage else array.cast(field.storage or pa.binary())


def _check_length(field: Field, text: pa.Array, row: int) -> None:
    import pyarrow.compute as pc

    if not field.max_length or not len(text):
        return
    lengths = pc.binary_length(text)
    if (pc.max(lengths).as_py() or 0) > field.max_length:
        bad_row = find_index(pc.greater(lengths, make_scalar(field.max_length, lengths.type)), True)
        length = lengths[bad_row].as_py()
        raise SchemaError(
            f"column {field.name!r}, row {row + bad_row}: {length} bytes; max_length is {field.max_length}"
        )


def _encode_json(field: Field, array: pa.Array, row: int) -> pa.Array:
    binary = array.cast(pa.binary())
    for cell_row, cell in enumerate(binary.to_pylist()):
        parsed = None if cell is None else decode_json(cell)
        if isinstance(parsed, Undecodable):
            raise SchemaError(f"column {field.name!r}, row {row + cell_row}: not JSON: {cell[:60]!r}: {parsed.detail}")
        if field.dynamic and not isinstance(parsed, dict | None):
            raise SchemaError(
                f"column {field.name!r}, row {row + cell_row}: dynamic fields are a JSON object: {cell[:60]!r}"
            )
    return binary


def _encode_dense(field: Field, array: pa.Array, row: int) -> pa.Array:
    """Return dense vectors as slots of fixed-width bytes."""
    element = VECTOR_ELEMENTS[field.type]
    width = field.dim * VECTOR_BYTES[field.type]
    if pa.types.is_fixed_size_binary(array.type):
        return array.cast(pa.binary(width))
    if not pa.types.is_fixed_size_list(array.type) or array.type.list_size != field.dim:
        array = array.cast(pa.list_(array.type.value_type, field.dim))
    mask = _make_validity(array)
    start = array.offset * field.dim
    values = array.values.slice(start, len(array) * field.dim)
    if values.null_count:
        # A null vector may have null elements; a null within a vector is an error.
        filled = array.flatten()
        if filled.null_count:
            bad_row = find_index(filled.is_null(), True) // field.dim
            raise SchemaError(f"column {field.name!r}, row {row + bad_row}: a vector holds null")
        values = fill_null(values, 0)
    values = values if values.type == element else values.cast(element)
    data = values.buffers()[1]
    size = VECTOR_BYTES[field.type]
    if field.type is DataType.BFloat16Vector:
        data, first = pa.py_buffer(_encode_bfloat16(field, values, row)), 0
    else:
        first = values.offset
    data = data.slice(first * size, len(values) * size) if data is not None else pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(width), len(array), [mask, data], array.null_count)


def _encode_bfloat16(field: Field, values: pa.Array, row: int) -> NDArray[np.uint16]:
    """Return the upper halves of float32s; the bits in their lower halves would be lost."""
    wide = view_values(values, np.uint32)
    lossy = wide & 0xFFFF != 0
    if lossy.any():
        bad_row = int(np.argmax(lossy))
        raise SchemaError(
            f"column {field.name!r}, row {row + bad_row // field.dim}: "
            f"{values[bad_row].as_py()!r} is no bfloat16; round it first"
        )
    return (wide >> 16).astype(np.uint16)


def _cast_slots(field: Field, slots: pa.Array) -> pa.Array:
    """Return slots as they are stored: nullable vectors as variable binary."""
    return slots.cast(pa.binary()) if field.nullable else slots


def _encode_sparse(field: Field, array: pa.Array, row: int) -> pa.Array:
    if pa.types.is_binary(array.type):
        return array
    maps = array.cast(SPARSE)
    offsets = view_offsets(maps).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    keys, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    if items.null_count:
        raise SchemaError(f"column {field.name!r}: a sparse vector holds null")
    pairs = np.empty(last - first, np.dtype([("index", "<u4"), ("value", "<f4")]))
    pairs["index"], pairs["value"] = view_values(keys, np.uint32), view_values(items, np.float32)
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    order = np.lexsort((pairs["index"], rows))
    pairs = pairs[order]
    twice = (np.diff(pairs["index"].astype(np.int64)) == 0) & (np.diff(rows) == 0)
    if twice.any():
        bad_row = int(rows[np.argmax(twice)])
        raise SchemaError(f"column {field.name!r}, row {row + bad_row}: an index occurs twice in a sparse vector")
    ends = ((offsets - first) * pairs.itemsize).astype(np.int32)
    buffers = [_make_validity(maps), pa.py_buffer(ends), pa.py_buffer(pairs.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(maps), buffers, maps.null_count)


def _encode_cells(field: Field, array: pa.Array) -> pa.Array:
    lists = array.cast(pa.list_(SCALARS[field.element])) if array.type != field.choose_arrow_type() else array
    tag = ARRAY_ELEMENTS[field.element]
    cells = view_offsets(lists).astype(np.int64)
    values = lists.values.slice(int(cells[0]), int(cells[-1] - cells[0]))
    if values.null_count:
        raise SchemaError(f"column {field.name!r}: an array holds null")
    cells -= cells[0]
    numbers, starts, data = np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.uint8)
    if _SHAPES[tag] == kernels.BYTES:
        starts, data = split_binary(values)
    else:
        numbers = _convert_numbers(field, values)
    for part in (numbers, starts, data):
        part.flags.writeable = False  # as all input of kernels, so that there is one version of each
    offsets = np.zeros(len(lists) + 1, np.int64)
    out = np.empty(0, np.uint8)
    shape = _SHAPES[tag]
    elements = Elements(numbers, starts, data)
    size = kernels.make_cells(cells, tag, shape, elements, False, Messages(offsets, out))
    if size > layout.MAX_FILE_SIZE:
        raise SchemaError(f"column {field.name!r}: {size} bytes of arrays in one batch; write smaller batches")
    out = np.empty(int(size), np.uint8)
    kernels.make_cells(cells, tag, shape, elements, True, Messages(offsets, out))
    buffers = [_make_validity(lists), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(lists), buffers, lists.null_count)


def _convert_numbers(field: Field, values: pa.Array) -> NDArray[np.uint64]:
    if field.element is DataType.Bool:
        return unpack_booleans(values).astype(np.uint64)
    if field.element is DataType.Float:
        return view_values(values, np.float32).view(np.uint32).astype(np.uint64)
    if field.element is DataType.Double:
        return view_values(values, np.uint64)
    plain = values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values.cast(pa.int64())
    return view_values(plain, np.uint64)


def _encode_vectors(field: Field, array: pa.Array, row: int) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = array.cast(field.choose_arrow_type())
    offsets = view_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    element = Field(field.id, field.name, field.element, dim=field.dim)
    slots = _encode_dense(element, array.values.slice(first, last - first), row)
    buffers = [_make_validity(array), pa.py_buffer((offsets - first).astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(slots.type), len(array), buffers, array.null_count, 0, [slots])


def encode_payload(field: Field, column: pa.Array | pa.ChunkedArray, name: str = layout.PAYLOAD_COLUMN) -> bytes:
    """Return a column as the Parquet file that Milvus 2.0 to 2.6 accepts as a payload.

    Milvus reads no data pages of version 2, and expects one column. Its own Go writers make one row group.
    """
    metadata = {}
    if field.type is DataType.ArrayOfVector:
        metadata = {_ELEMENT_TYPE_KEY: str(int(field.element)).encode(), _MAX_DIM_KEY: str(field.dim).encode()}
    elif field.nullable and (field.type in VECTOR_BYTES or field.type is DataType.BinaryVector):
        metadata = {_MAX_DIM_KEY: str(field.dim).encode()}
    stored = pa.field(name, column.type, nullable=field.nullable, metadata=metadata or None)
    # Values that hardly ever come twice: a dictionary would cost time on both sides, and save nothing.
    unique = field.primary or field.type in VECTOR_BYTES or field.id in (layout.ROW_ID_FIELD, layout.DELTA_FIELD)
    table = pa.Table.from_arrays([column], schema=pa.schema([stored]))
    return encode_parquet(table, store_schema=bool(metadata), dictionary=not unique)


def encode_parquet(table: pa.Table, *, store_schema: bool = False, dictionary: bool = True) -> bytes:
    """Return a table as Parquet bytes, in one row group. Section 3.2 of the format."""
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(1, table.num_rows),
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        store_schema=store_schema,
        use_dictionary=dictionary,
    )
    return bytes(sink.getvalue().to_pybytes())


def measure_column(column: pa.Array | pa.ChunkedArray) -> int:
    """Return the in-memory size of a column in bytes, for the `original_size` extra."""
    return int(column.get_total_buffer_size())


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Place of a log: ids of collection, partition and segment."""

    collection: int
    partition: int
    segment: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be written: its type, the range of its timestamps, and its payload."""

    type: EventType
    first: int
    last: int
    payload: bytes


def encode_log(
    place: LogPlace, field: int, type: DataType, events: Sequence[NewEvent], extra: dict[str, Any], target_place: str
) -> bytes:
    """Return a whole file.

    Args:
        place: Where it belongs.
        field: Field id; -1 in delta and DDL logs.
        type: Type of its payloads.
        events: Its events, in order; timestamps must not be 0.
        extra: The JSON object of the descriptor.
        target_place: What it is, for messages.

    Raises:
        SchemaError: When the file would be larger than its positions can say.
    """
    first, last = min(event.first for event in events), max(event.last for event in events)
    fixed = layout.DESCRIPTOR.pack(
        place.collection, place.partition, place.segment, field, first, last, type, layout.POST_HEADER_LENGTHS
    )
    parts = [layout.MAGIC, encode_descriptor(_compute_creation(last), fixed, extra)]
    position = sum(map(len, parts))
    for event in events:
        position += layout.HEADER.size + layout.EVENT_DATA.size + len(event.payload)
        if position > layout.MAX_FILE_SIZE:
            raise SchemaError(
                f"{target_place}: {position} bytes; a binlog has less than 2 GiB: make binlog_bytes smaller"
            )
        parts += [encode_event(event, _compute_creation(event.last), position), event.payload]
    return b"".join(parts)


def encode_descriptor(created: int, fixed: bytes, extra: dict[str, Any]) -> bytes:
    """Return the descriptor event, from its fixed part (`layout.DESCRIPTOR`) and its extras."""
    text = json.dumps(extra, ensure_ascii=False, separators=(",", ":")).encode()
    length = layout.HEADER.size + len(fixed) + layout.EXTRA_LENGTH.size + len(text)
    header = layout.HEADER.pack(created, EventType.DESCRIPTOR, length, len(layout.MAGIC) + length)
    return b"".join((header, fixed, layout.EXTRA_LENGTH.pack(len(text)), text))


def encode_event(event: NewEvent, created: int, end: int) -> bytes:
    """Return the bytes in front of an event's payload; the event ends at byte `end` of its file."""
    length = layout.HEADER.size + layout.EVENT_DATA.size + len(event.payload)
    return layout.HEADER.pack(created, event.type, length, end) + layout.EVENT_DATA.pack(event.first, event.last)


def _compute_creation(timestamp: int) -> int:
    """Return the time of writing: that of the last row, so that the same rows give the same bytes."""
    return timestamp >> layout.LOGICAL_BITS << layout.LOGICAL_BITS


def encode_insert_log(place: LogPlace, field: Field, column: pa.ChunkedArray, first: int, last: int) -> bytes:
    """Return the insert log of one field of one binlog batch."""
    extra: dict[str, Any] = {layout.ORIGINAL_SIZE: str(measure_column(column))}
    if field.nullable:
        extra["nullable"] = True
    event = NewEvent(EventType.INSERT, first, last, encode_payload(field, column))
    return encode_log(place, field.id, field.type, [event], extra, f"field {field.name!r}")


def encode_empty_log(place: LogPlace, field: Field, timestamp: int = 1) -> bytes:
    """Return the insert log of a field of a batch without rows."""
    values = encode(field, pa.nulls(0, field.choose_arrow_type()))
    return encode_insert_log(place, field, pa.chunked_array([values]), timestamp, timestamp)


def encode_delta_log(place: LogPlace, keys: pa.Array, times: pa.Array) -> bytes:
    """Return the delta log of some deletes, in JSON."""
    import pyarrow.compute as pc

    limits = pc.min_max(times)
    first, last = limits["min"].as_py(), limits["max"].as_py()
    column = pa.chunked_array([make_array(render_delta_cells(keys, times), pa.string())])
    text = Field(layout.DELTA_FIELD, "delta", DataType.String)
    event = NewEvent(EventType.DELETE, first, last, encode_payload(text, column))
    extra = {layout.ORIGINAL_SIZE: str(measure_column(column))}
    return encode_log(place, layout.DELTA_FIELD, DataType.String, [event], extra, "a delta log")


def encode_ddl_logs(
    collection: int, types: Sequence[EventType], times: Sequence[int], requests: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """Return two files of DDL requests: their timestamps, and the requests themselves, an event each. Section 3.5."""
    place = LogPlace(collection, layout.ALL_PARTITIONS, -1)
    stamps = pa.chunked_array([make_array(times, pa.int64())])
    numbers = Field(layout.DELTA_FIELD, "ts", DataType.Int64)
    event = NewEvent(EventType.CREATE_COLLECTION, min(times), max(times), encode_payload(numbers, stamps))
    extra = {layout.ORIGINAL_SIZE: str(measure_column(stamps))}
    first = encode_log(place, layout.DELTA_FIELD, DataType.Int64, [event], extra, "a DDL log")
    text = Field(layout.DELTA_FIELD, "ddl", DataType.String)
    events = [
        NewEvent(kind, time, time, encode_payload(text, pa.chunked_array([make_array([request], pa.binary())])))
        for kind, time, request in zip(types, times, requests, strict=True)
    ]
    extra = {layout.ORIGINAL_SIZE: str(sum(map(len, requests)))}
    return first, encode_log(place, layout.DELTA_FIELD, DataType.String, events, extra, "a DDL log")
