"""Containers and records as values of a binary column: decoded to rows, made of rows; and the hashes of series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Damage, Findings, OnDamage
from sawlog.errors import SchemaError
from sawlog.filodb_record import hashing, layout
from sawlog.filodb_record.columns import ViewField, extra_fields, row_fields
from sawlog.filodb_record.fragments import ContainerRange
from sawlog.filodb_record.options import ReadOptions, WriteOptions
from sawlog.filodb_record.schemas import PartitionSchema, Schema
from sawlog.filodb_record.selection import Selection, select
from sawlog.filodb_record.target import Target
from sawlog.filodb_record.writer import container_time
from sawlog.format import OFFSET_COLUMN, PROVENANCE, Projection, Scan
from sawlog.storage import File

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WHERE = "value"
"""What stands for the file in messages."""


@dataclass(frozen=True)
class ValueDecoder:
    """Decodes values: containers, trimmed or whole, or single records such as part keys. Picklable.

    Attributes:
        options: As for files; `schema` is needed, since values are not looked at beforehand.
        on_damage: `fail` raises at the first damage, `skip` delivers what is intact.
    """

    options: ReadOptions
    on_damage: OnDamage = "fail"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([one.arrow for one in row_fields(self._selection, self.options)])

    def decode(self, values: pa.Array) -> pa.Array:
        """The rows of each value, as a list of structs; null where the value is null.

        Raises:
            DamageError: At the first damage, if `on_damage` is `fail`; offsets count from the first value.
        """
        import numpy as np

        from sawlog.filodb_record.walk import RowsWalk

        values = values.cast(pa.binary())
        starts, data = _bounds(values)
        schema = pa.schema([*self.schema, PROVENANCE[1]])
        fragment = self._fragment(len(data))
        findings = Findings(self.on_damage)
        frames = _frames(data, starts, np.array(values.is_valid()))
        for start, end, one in frames[frames.one > 0][["start", "end", "one"]].tolist():
            detail = f"the container's length is {one}; the value ends at byte {end}"
            findings.damage(Damage(WHERE, start, layout.CONTAINER_HEADER_SIZE, "bad_container_length", detail))
        batches = list(RowsWalk(fragment, _Memory(data), schema, findings).contents(frames))
        table = pa.Table.from_batches(batches, schema).combine_chunks()
        offsets = np.asarray(table[OFFSET_COLUMN], np.int64)
        ends = np.zeros(len(values) + 1, np.int32)
        ends[1:] = np.cumsum(np.bincount(np.searchsorted(starts, offsets, "right") - 1, minlength=len(values)))
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns[:-1]]
        rows = pa.StructArray.from_arrays(columns, fields=list(self.schema))
        validity = None if not values.null_count else values.is_valid().buffers()[1]
        kind = pa.list_(pa.field("element", rows.type))
        return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(ends)], children=[rows])

    @cached_property
    def _selection(self) -> Selection:
        if not self.options.schema:
            raise SchemaError('name the schemas of the records, or "all" for all known ones')
        return select(self.options)

    def _fragment(self, size: int) -> ContainerRange:
        fields: tuple[ViewField, ...] = row_fields(self._selection, self.options)
        named = {one.name for one in fields}
        every = (*fields, *(one for one in extra_fields(self._selection) if one.name not in named))
        scan = Scan(options=self.options, on_damage=self.on_damage)
        projection = Projection.of(self.schema, scan)
        file = File(WHERE, size)
        return ContainerRange(scan, projection, WHERE, size, file, 0, size, 0, self._selection, every)


class _Memory:
    """Bytes as a source."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self.size = len(data)

    def window(self, offset: int, length: int) -> NDArray[np.uint8]:
        return self._data[offset : offset + length]

    def close(self) -> None:
        """Nothing is held."""


def _bounds(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each value starts and the last one ends, and the bytes."""
    import numpy as np

    from sawlog.filodb_record.arrays import binary_parts

    ends, data = binary_parts(values)
    first = int(ends[0])
    data = data[first : int(ends[-1])]
    return ends.astype(np.int64) - first, data


def _frames(data: NDArray[np.uint8], bounds: NDArray[np.int64], valid: NDArray[np.bool_]) -> Any:
    """The values as frames for the kernel: containers by their headers, anything else as one record."""
    import numpy as np

    from sawlog.filodb_record.kernels import frames as f

    starts, ends = bounds[:-1], bounds[1:]
    frames = np.zeros(len(starts), f.FRAME).view(np.recarray)
    frames.start = frames.first = starts
    frames.end = frames.next = ends
    header = layout.CONTAINER_HEADER_SIZE
    long = np.flatnonzero(ends - starts >= header)
    heads = data[starts[long, None] + np.arange(header)] if len(long) else np.zeros((0, header), np.uint8)
    words = heads.view(np.uint32).reshape(len(long), header // 4)
    is_container = words[:, 1] == layout.VERSION << layout.VERSION_SHIFT
    rows, words = long[is_container], words[is_container]
    frames.first[rows] += header
    claimed = starts[rows] + layout.LENGTH_SIZE + words[:, 0].astype(np.int64)
    frames.one[rows] = np.where(claimed > ends[rows], words[:, 0], 0)
    frames.end[rows] = np.clip(claimed, frames.first[rows], ends[rows])
    frames.time[rows] = words[:, 2:].copy().view(np.int64)[:, 0]
    return frames[valid]


@dataclass(frozen=True)
class ValueEncoder:
    """Makes containers of rows: each list of structs becomes one container, each struct one of a single record.

    Attributes:
        options: As for files; `schema` is needed unless rows say theirs in `_schema`.
    """

    options: WriteOptions

    def encode(self, rows: pa.Array) -> pa.Array:
        """One container per value; null where the value is null.

        Raises:
            SchemaError: For anything that cannot be represented.
        """
        import numpy as np

        from sawlog.filodb_record.layer import Layer

        lists = pa.types.is_list(rows.type) or pa.types.is_large_list(rows.type)
        counts = np.asarray(rows.value_lengths().fill_null(0), np.int64) if lists else np.ones(len(rows), np.int64)
        structs = rows.flatten() if lists else rows
        if not pa.types.is_struct(structs.type):
            raise SchemaError(f"expected structs, or lists of them, found {rows.type}")
        if structs.null_count and lists:
            raise SchemaError("a row is null; FiloDB has no nulls")
        batch = pa.RecordBatch.from_struct_array(structs)
        target = Target.of(batch.schema, self.options)
        made: list[bytes | None] = []
        now = container_time(self.options)
        start = 0
        for valid, count in zip(rows.is_valid().to_pylist(), counts.tolist(), strict=True):
            part = batch.slice(start, count)
            start += count
            if not valid:
                made.append(None)
                continue
            parts: list[bytes] = []
            layer = Layer(target, _sized(self.options, part), 0, _collect(parts))
            layer.add(part, now)
            layer.finish()
            made.append(b"".join(parts))
        return pa.array(made, pa.binary())


def _collect(parts: list[bytes]) -> Callable[[NDArray[np.uint8]], None]:
    def take(data: NDArray[np.uint8]) -> None:
        parts.append(data.tobytes())

    return take


def _sized(options: WriteOptions, part: pa.RecordBatch) -> WriteOptions:
    """Options under which all rows find room in one container."""
    fixed = 64 * (part.num_columns + 2) * max(part.num_rows, 1)
    need = layout.align(fixed + 2 * part.get_total_buffer_size() + layout.CONTAINER_HEADER_SIZE)
    return replace(options, container_size=max(layout.MIN_CONTAINER_SIZE, min(need, layout.MAX_CONTAINER_SIZE - 3)))


def partition_hashes(columns: dict[str, pa.Array], schema: Schema) -> pa.Array:
    """The hashes that FiloDB stores in the records of series, as int32; null where a column is null.

    Args:
        columns: The partition columns of the schema, by name.
        schema: Any schema with these partition columns.
    """
    import numpy as np

    from sawlog.filodb_record.layer import Layer

    options = WriteOptions(schema=schema.name, records="partkeys", container_size=layout.MIN_CONTAINER_SIZE)
    batch, valid = _complete(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
    target = Target((_part_key(schema),), by_name=False, raw=False)
    found = Layer(target, options, 0, lambda data: None).hashes(batch)
    return _spread(found.astype(np.uint32).view(np.int32), valid)


def shards(metric: pa.Array, labels: pa.Array, num_shards: int, spread: int, partition: PartitionSchema) -> pa.Array:
    """The shard that each series is ingested to, as int32; null where metric or labels are null.

    Args:
        metric: Metric names.
        labels: Maps of labels.
        num_shards: A power of two.
        spread: How many bits of the shard come from the labels outside the shard key.
        partition: Which labels are the shard key, and what is trimmed and ignored.

    Raises:
        OptionError: When `num_shards` is no power of two, or `spread` does not fit it.
    """
    import numpy as np

    hashing.ingestion_shard(0, 0, num_shards, spread)
    batch, valid = _complete(pa.RecordBatch.from_arrays([metric, labels], ["metric", "labels"]))
    shard, part = _label_hashes(batch.column("metric"), batch.column("labels"), partition)
    mask = np.uint32((num_shards >> spread) - 1)
    found = (shard & mask) | (part & np.uint32(num_shards - 1) & ~mask)
    return _spread(found.astype(np.int32), valid)


def _label_hashes(
    metric: pa.Array, labels: pa.Array, partition: PartitionSchema
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    import numpy as np

    from sawlog.filodb_record.arrays import binary_parts, map_parts
    from sawlog.filodb_record.kernels.shards import label_hashes

    options = partition.options
    metric_ends, metrics = binary_parts(metric.cast(pa.binary()))
    map_ends, key_ends, keys, value_ends, values = map_parts(labels, "labels", 0)
    suffixes = dict(options.ignore_shard_key_column_suffixes).get(options.metric_column, ())
    rows = len(metric)
    shard, part, doubtful = np.zeros(rows, np.uint32), np.zeros(rows, np.uint32), np.zeros(rows, np.uint8)
    most = int((map_ends[1:] - map_ends[:-1]).max(initial=0)) + 1
    texts = [
        _texts(one) for one in (options.non_metric_shard_columns, options.ignore_tags_on_partition_key_hash, suffixes)
    ]
    label_hashes(
        metrics, metric_ends, map_ends, keys, key_ends, values, value_ends,
        *texts[0], *texts[1], *texts[2], np.zeros(most, np.int32), shard, part, doubtful,
    )  # fmt: skip
    for row in np.flatnonzero(doubtful).tolist():
        hashed = hashing.sort_and_compute_hashes(labels[row].as_py())
        total = hashing.combine_hash_excluding(hashed, options.ignore_tags_on_partition_key_hash)
        part[row] = total & 0xFFFFFFFF
    return shard, part


def _texts(names: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Strings back to back, and their ends."""
    import numpy as np

    encoded = [name.encode() for name in names]
    ends = np.zeros(len(encoded) + 1, np.int64)
    ends[1:] = np.cumsum([len(one) for one in encoded])
    return np.frombuffer(b"".join(encoded) + b"\0", np.uint8), ends


def _complete(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """The rows without nulls, and which they are."""
    import numpy as np

    valid = np.ones(batch.num_rows, np.bool_)
    for column in batch.columns:
        if column.null_count:
            valid &= np.asarray(column.is_valid())
    return (batch if valid.all() else batch.filter(pa.array(valid))), valid


def _spread(found: Any, valid: NDArray[np.bool_]) -> pa.Array:
    """Values back to the rows they are of; the others are null."""
    import numpy as np

    values = np.zeros(len(valid), np.int32)
    values[valid] = found
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.int32(), len(valid), [bits, pa.py_buffer(values)])


def _part_key(schema: Schema) -> Any:
    from sawlog.filodb_record.selection import Layout

    return Layout(schema.name, schema.schema_id, schema.part_key)
