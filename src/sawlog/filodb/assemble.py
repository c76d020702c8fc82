"""From what the kernels gathered to Arrow arrays, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, make_array, make_fixed_array, pack_bits
from sawlog.filodb.arrays import pack_texts
from sawlog.filodb.columns import POINTED, SCALARS, ViewField
from sawlog.filodb.kernels import columns as k
from sawlog.filodb.kernels import gather, histograms, maps
from sawlog.filodb.kernels.series import FIXED, PAYLOADS
from sawlog.filodb.layout import ContainerDamageKind, HistogramFormat
from sawlog.filodb.options import ReadOptions
from sawlog.filodb.schemas.record import RecordSchema
from sawlog.kernels.columns import gather_bytes

_GROWTH = 1.1
"""Room for entries is what the last batch took, and this much more."""


@dataclass
class RowErrors:
    """Rows that turned out damaged while their payloads were gathered.

    Attributes:
        errors_by_row: Per row: kind, column name, and the number that explains it; the first finding counts.
    """

    errors_by_row: dict[int, tuple[int, str, int]] = field(default_factory=dict)

    def add(self, name: str, bad: gather.PayloadErrors) -> None:
        """Take in what a kernel marked in one column."""
        for row in np.flatnonzero(bad.kinds).tolist():
            kind, offset = int(bad.kinds[row]), int(bad.where[row])
            is_histogram = kind == ContainerDamageKind.BAD_HISTOGRAM and offset >= 0
            if is_histogram and offset not in HistogramFormat.__members__.values():
                kind = int(ContainerDamageKind.UNKNOWN_HISTOGRAM)
            self.errors_by_row.setdefault(row, (kind, name, offset))


@dataclass(frozen=True)
class BatchRows:
    """Rows of a batch, and where they are.

    Attributes:
        window: The bytes that positions refer to.
        count: Number of rows.
        starts: File offset of each row's record.
        layout_numbers: Number of each row's layout.
    """

    window: NDArray[np.uint8]
    count: int
    starts: NDArray[np.int64]
    layout_numbers: NDArray[np.uint8]


class ColumnBuilder:
    """The operations that gather some fields, the memory they gather to, and the arrays made of it.

    Args:
        fields: What to gather.
        layouts: The layouts that rows can have; None for records of unknown schemas, which are only bytes.
        capacity: Rows.
        options: How columns are delivered.
    """

    def __init__(
        self,
        fields: Sequence[ViewField],
        layouts: Sequence[RecordSchema | None],
        capacity: int,
        options: ReadOptions,
        names: Sequence[str | None] = (),
    ) -> None:
        self.fields = fields
        self.capacity = capacity
        self._layouts = layouts
        self._layout_names = names
        self._options = options
        self._ratios: dict[str, tuple[float, float, float]] = {}
        self._memos: dict[str, maps.Memo] = {}
        self._places: dict[str, tuple[int, int]] = {}
        fixed = payloads = 0
        for view_field in fields:
            if view_field.kind in SCALARS:
                self._places[view_field.name] = fixed, 0
                fixed += SCALARS[view_field.kind].width * capacity
            elif view_field.kind in POINTED:
                self._places[view_field.name] = payloads, payloads + 8 * capacity
                payloads += 8 * capacity + -(-4 * capacity // 8) * 8  # all of them aligned
        self._fixed = fixed
        self._scratch = Column(np.uint8, max(payloads, 1)).values
        self._ops = self._make_operations()
        self._failures = np.zeros(k.BLOCK, k.FAILURE)
        self.reset()

    def reset(self) -> None:
        """Take fresh memory: arrays that were made own the old."""
        self._arena = Column(np.uint8, max(self._fixed, 1))

    @property
    def memory(self) -> k.Memory:
        """Memory that kernels gather to."""
        return k.Memory(self._ops, self._arena.values, self._scratch, self._failures)

    def make_field_arrays(self, rows: BatchRows, marks: RowErrors) -> list[pa.Array]:
        """Return an array per field. Rows that turn out damaged are reported to `marks`, and hold anything."""
        return [self._make_array(field, rows, marks) for field in self.fields]

    def make_arrays(self, schema: pa.Schema, rows: BatchRows, marks: RowErrors) -> dict[str, pa.Array]:
        """Return the arrays of the fields among some columns.

        Other parts of records are judged as if they were asked for, in their order: the same rows are damaged, and for
        the same reason, whichever fields are asked for.
        """
        arrays: dict[str, pa.Array] = {}
        for view_field in self.fields:
            if view_field.name in schema.names:
                arrays[view_field.name] = self._make_array(view_field, rows, marks)
            elif view_field.kind in POINTED and view_field.sources:
                self._judge(view_field, rows, marks)
        return arrays

    def _judge(self, field: ViewField, rows: BatchRows, marks: RowErrors) -> None:
        """Report rows to `marks` whose payload cannot be decoded as the field wants it."""
        if pa.types.is_binary(field.arrow.type):
            return
        if field.kind not in ("string", "map"):
            self._make_array(field, rows, marks)
            return
        bad = gather.PayloadErrors(np.zeros(rows.count, np.uint8), np.empty(rows.count, np.int64))
        payloads = gather.Payloads(rows.window, *self.view_payloads(field.name, rows.count))
        if field.kind == "string":
            gather.judge_texts(payloads, int(ContainerDamageKind.INVALID_UTF8), bad)
        else:
            text = pa.types.is_string(field.arrow.type.key_type)
            memo = self._memos.get(field.name) or self._memos.setdefault(field.name, maps.make_memo())
            maps.judge_maps(payloads, len(self._predefined_keys.ends) - 1, text, memo, bad)
        if np.count_nonzero(bad.kinds):
            marks.add(field.name, bad)

    def view_payloads(self, name: str, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return positions and lengths of a payload field."""
        first, second = self._places[name]
        return (
            self._scratch[first : first + 8 * count].view(np.uint64),
            self._scratch[second : second + 4 * count].view(np.uint32),
        )

    def view_values(self, name: str, dtype: Any, count: int) -> NDArray[Any]:
        """Return the values of a fixed-width field."""
        start = self._places[name][0]
        return self._arena.values[start : start + np.dtype(dtype).itemsize * count].view(dtype)

    def gather_labels(self, name: str, key: bytes, rows: BatchRows) -> tuple[pa.Array, NDArray[np.uint8]]:
        """Return the values of one key of a column of maps, as bytes, none of it decoded.

        Returns:
            The values, empty where there are none; and per row ABSENT, PRESENT or UNSURE, of
            `sawlog.filodb.kernels.maps`.
        """
        texts = self._predefined_keys
        spans = pairwise(texts.ends.tolist())
        numbers = np.array([texts.data[start:end].tobytes() == key for start, end in spans], np.uint8)
        payloads = gather.Payloads(rows.window, *self.view_payloads(name, rows.count))
        label_payloads = payloads._replace(
            positions=np.zeros(rows.count, np.uint64), lengths=np.zeros(rows.count, np.uint32)
        )
        state = np.zeros(rows.count, np.uint8)
        maps.find_labels(payloads, np.frombuffer(key, np.uint8), numbers, label_payloads, state)
        return pa.Array.from_buffers(pa.binary(), rows.count, [None, *_gather_slices(label_payloads)]), state

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Leave rows out of what was gathered."""
        rows = len(mask)
        count = int(mask.sum())
        for view_field in self.fields:
            if view_field.kind in POINTED:
                for values in self.view_payloads(view_field.name, rows):
                    values[:count] = values[mask]
            elif view_field.kind in SCALARS:
                values = self.view_values(view_field.name, SCALARS[view_field.kind].bits, rows)
                values[:count] = values[mask]

    def find_place(self, name: str) -> int:
        """Return the place of a fixed-width field in the arena."""
        return self._places[name][0]

    def find_places(self, fields: Sequence[ViewField]) -> tuple[Any, Any]:
        """Return where fields are: `FIXED` and `PAYLOADS` records of `sawlog.filodb.kernels.series`."""
        fixed = [(self._places[field.name][0], SCALARS[field.kind].width) for field in fields if field.kind in SCALARS]
        payloads = [self._places[field.name] for field in fields if field.kind in POINTED]
        return np.array(fixed, FIXED), np.array(payloads, PAYLOADS)

    def _make_operations(self) -> Any:
        table = []
        for number, schema in enumerate(self._layouts):
            places = [index for index, field in enumerate(self.fields) if field.name in self._places]
            operations = [self._make_operation(self.fields[index], number, schema, index) for index in places]
            # Where every payload is looked at, so is the end of the record.
            gathered = {field.sources[number] for field in self.fields if number < len(field.sources)}
            has_all_pointers = schema is not None and all(
                index in gathered for index, column in enumerate(schema.columns) if column.pointer
            )
            table.append([*operations, (k.END if has_all_pointers else k.SKIP, 0, 0, 0, 0)])
        return np.array(table, k.OPERATION)

    def _make_operation(
        self, field: ViewField, number: int, schema: RecordSchema | None, index: int
    ) -> tuple[int, ...]:
        first, second = self._places[field.name]
        if field.kind == "record":
            return k.WHOLE, 0, first, second, index
        if field.kind == "container_timestamp":
            return k.CONTAINER_TIME, 0, first, second, index
        # Of unknown schemas only records are known to have an ID, not what is nested.
        if field.kind == "schema_id" and (schema.has_partition if schema is not None else not field.sources):
            return k.SCHEMA_ID, 0, first, second, index
        if field.kind == "hash" and schema is not None and schema.hash_offset is not None:
            return k.COPY_4, schema.hash_offset, first, second, index
        source = field.sources[number] if schema is not None and number < len(field.sources) else None
        if field.kind in POINTED:
            if source is None or schema is None:
                return k.NO_PAYLOAD, 0, first, second, index
            code = k.HISTOGRAM if field.kind == "hist" else k.PAYLOAD
            return code, schema.field_offsets[source], first, second, index
        wide = SCALARS[field.kind].width == 8
        if source is None or schema is None:
            return k.NOTHING_8 if wide else k.NOTHING_4, 0, first, second, index
        return k.COPY_8 if wide else k.COPY_4, schema.field_offsets[source], first, second, index

    def _make_array(self, field: ViewField, rows: BatchRows, marks: RowErrors) -> pa.Array:
        if field.kind == "schema":
            return self._names.take(make_fixed_array(pa.uint8(), rows.layout_numbers[: rows.count]))
        validity = self._make_validity(field, rows)
        if field.kind in SCALARS:
            start = self._places[field.name][0]
            values = self._slice(start, SCALARS[field.kind].width * rows.count, rows.count)
            return pa.Array.from_buffers(field.arrow.type, rows.count, [validity, values])
        bad = gather.PayloadErrors(np.zeros(rows.count, np.uint8), np.empty(rows.count, np.int64))
        array = self._make_payload_array(field, rows, validity, bad, marks)
        if np.count_nonzero(bad.kinds):
            marks.add(field.name, bad)
        return array

    def _slice(self, start: int, size: int, rows: int) -> pa.Buffer:
        """Return a part of the arena; a copy where few rows would keep all of it alive."""
        part = self._arena.take(self._fixed).slice(start, size)
        return pa.py_buffer(part.to_pybytes()) if 4 * rows < self.capacity else part

    def _make_validity(self, field: ViewField, rows: BatchRows) -> pa.Buffer | None:
        """Return the validity bitmap of a column: rows have a value if their layout has the column."""
        if not field.arrow.nullable:
            return None
        if field.kind in ("hash", "schema_id"):
            have = [schema is not None and schema.has_partition for schema in self._layouts]
        elif not field.sources:
            return None
        else:
            have = [
                number < len(field.sources) and field.sources[number] is not None
                for number in range(len(self._layouts))
            ]
        if all(have):
            return None
        return pack_bits(np.array(have)[rows.layout_numbers[: rows.count]])

    def _make_payload_array(
        self, field: ViewField, rows: BatchRows, validity: pa.Buffer | None, bad: gather.PayloadErrors, marks: RowErrors
    ) -> pa.Array:
        payloads = gather.Payloads(rows.window, *self.view_payloads(field.name, rows.count))
        if field.kind == "map":
            return self._make_map_array(field, payloads, validity, bad)
        if field.kind == "hist" and self._options.histograms == "struct":
            return self._make_histogram_array(field, payloads, validity, bad)
        if field.nested_schema is not None:
            return self._make_nested_array(field, rows, payloads, validity, bad, marks)
        ends, data = _gather_slices(payloads)
        if pa.types.is_string(field.arrow.type):
            texts = gather.Texts(np.frombuffer(data, np.uint8), np.frombuffer(ends, np.int32))
            _check_text(texts, np.arange(rows.count + 1, dtype=np.int32), bad)
        return pa.Array.from_buffers(field.arrow.type, rows.count, [validity, ends, data])

    def _make_map_array(
        self, field: ViewField, payloads: gather.Payloads, validity: pa.Buffer | None, bad: gather.PayloadErrors
    ) -> pa.Array:
        names = self._predefined_keys
        count = len(payloads.positions)
        total = int(payloads.lengths.sum(dtype=np.int64))
        ends = _make_ends(count)
        # Per payload byte: entries, bytes of keys, bytes of values.
        ratios = self._ratios.get(field.name, (0.1, 0.5, 1.0))
        memo = self._memos.get(field.name) or self._memos.setdefault(field.name, maps.make_memo())
        room = [int(total * ratio * _GROWTH) + 64 for ratio in ratios]
        status = maps.FULL
        while status == maps.FULL:
            key_ends, value_ends = _make_ends(room[0]), _make_ends(room[0])
            keys, values = Column(np.uint8, room[1]), Column(np.uint8, room[2])
            bad.kinds[:] = 0
            used = np.zeros(1, maps.ROOM)[0]
            parts = ((keys, key_ends), (values, value_ends))
            texts = (gather.TextRoom(data.values, into.values.view(np.uint8)) for data, into in parts)
            labels = gather.LabelRoom(ends.values, *texts)
            status = maps.gather_maps(payloads, names, memo, labels, used, bad)
            room = [2 * size for size in room]
        entries, key_bytes, value_bytes = int(used.entries), int(used.key_bytes), int(used.value_bytes)
        if total:
            self._ratios[field.name] = (entries / total, key_bytes / total, value_bytes / total)
        text = field.arrow.type.key_type
        if pa.types.is_string(text) and used.beyond_ascii:
            for data, into in parts:
                _check_text(gather.Texts(data.values, into.values[: entries + 1]), ends.values, bad)
        children = [
            pa.Array.from_buffers(text, entries, [None, places.take(entries + 1), data.take(size)])
            for places, data, size in ((key_ends, keys, key_bytes), (value_ends, values, value_bytes))
        ]
        kind = field.arrow.type
        pairs = pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, count, [validity, ends.take(count + 1)], children=[pairs])

    def _make_histogram_array(
        self, field: ViewField, payloads: gather.Payloads, validity: pa.Buffer | None, bad: gather.PayloadErrors
    ) -> pa.Array:
        count = len(payloads.positions)
        sizes = histograms.Sizes(np.zeros(count + 1, np.int32), np.zeros(count + 1, np.int32))
        histograms.measure_histograms(payloads, sizes, bad)
        ends, definition_ends = sizes
        tops, values = np.zeros(int(ends[-1])), np.zeros(int(ends[-1]))
        definitions = np.zeros(int(definition_ends[-1]), np.uint8)
        buckets = histograms.Buckets(tops, tops.view(np.uint64), values, values.view(np.uint64), definitions)
        with np.errstate(all="ignore"):  # hostile definitions, where kernels are plain Python
            histograms.gather_histograms(payloads, sizes, buckets, bad)
        lists = pa.py_buffer(ends)
        columns: dict[str, pa.Array] = {
            name: pa.Array.from_buffers(
                pa.list_(pa.float64()), count, [None, lists], children=[make_fixed_array(pa.float64(), data)]
            )
            for name, data in (("tops", tops), ("values", values))
        }
        columns["buckets"] = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(definition_ends), pa.py_buffer(definitions)]
        )
        columns.update(self._compute_statistics(ends, definition_ends, definitions, tops, values))
        kind = field.arrow.type
        return pa.Array.from_buffers(kind, count, [validity], children=[columns[child.name] for child in kind])

    def _compute_statistics(
        self,
        ends: NDArray[np.int32],
        definition_ends: NDArray[np.int32],
        definitions: NDArray[np.uint8],
        tops: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> dict[str, pa.Array]:
        rows = len(ends) - 1
        columns: dict[str, pa.Array] = {}
        with np.errstate(all="ignore"):
            if self._options.statistics:
                counts, sums = np.zeros(rows), np.zeros(rows)
                histograms.compute_totals(ends, tops, values, counts, sums)
                for name, data in (("count", counts), ("sum", sums)):
                    columns[name] = make_fixed_array(pa.float64(), data)
            if self._options.quantiles:
                quantiles = np.array(self._options.quantiles, np.float64)
                out = np.zeros(rows * len(quantiles))
                exponential = np.zeros(rows, np.uint8)
                histograms.mark_exponential(definition_ends, definitions, exponential)
                decoded_histograms = histograms.Histograms(ends, tops, values, exponential)
                histograms.compute_quantiles(
                    decoded_histograms, quantiles, np.array([-np.inf]), np.array([np.inf]), out
                )
                offsets = np.arange(0, len(out) + 1, len(quantiles), dtype=np.int32)
                children = [make_fixed_array(pa.float64(), out)]
                buffers = [None, pa.py_buffer(offsets)]
                columns["quantiles"] = pa.Array.from_buffers(pa.list_(pa.float64()), rows, buffers, children=children)
        return columns

    def _make_nested_array(
        self,
        field: ViewField,
        rows: BatchRows,
        payloads: gather.Payloads,
        validity: pa.Buffer | None,
        bad: gather.PayloadErrors,
        marks: RowErrors,
    ) -> pa.Array:
        schema = field.nested_schema
        assert schema is not None
        inner = ColumnBuilder(field.nested, [schema, None], max(rows.count, 1), self._options)
        min_length = np.uint64(schema.variable_area_start)
        k.read_nested(payloads, min_length, inner.memory, np.zeros(1, np.uint64), np.zeros(1, k.TALLY)[0], bad)
        inside = RowErrors()
        layout_numbers = np.zeros(rows.count, np.uint8)
        arrays = inner.make_field_arrays(BatchRows(rows.window, rows.count, rows.starts, layout_numbers), inside)
        for row, (_, _, place) in inside.errors_by_row.items():
            marks.errors_by_row.setdefault(row, (int(ContainerDamageKind.BAD_NESTED_RECORD), field.name, place))
        return pa.Array.from_buffers(field.arrow.type, rows.count, [validity], children=arrays)

    @cached_property
    def _names(self) -> pa.Array:
        """The names of layouts; the last one is for records of unknown schemas."""
        return make_array([*self._layout_names, None], pa.string())

    @cached_property
    def _predefined_keys(self) -> gather.Texts:
        """The predefined keys. All layouts of a set share them."""
        keys = next((schema.predefined for schema in self._layouts if schema is not None), ())
        return pack_texts(keys)


def _make_ends(count: int) -> Column:
    """Return the ends of `count` things, the first of which begins at 0."""
    ends = Column(np.int32, count + 1)
    ends.values[0] = 0
    return ends


def _gather_slices(payloads: gather.Payloads) -> tuple[pa.Buffer, pa.Buffer]:
    """Return the ends and the bytes of payloads, as Arrow has them."""
    return gather_bytes(payloads.data, payloads.positions.view(np.int64), payloads.lengths.astype(np.int64))


def _check_text(texts: gather.Texts, groups: NDArray[np.int32], bad: gather.PayloadErrors) -> None:
    """Mark rows whose text is not UTF-8."""
    if not _is_text(texts):
        gather.check_text(texts, groups, int(ContainerDamageKind.INVALID_UTF8), bad)


def _is_text(texts: gather.Texts) -> bool:
    """Return whether all is UTF-8: as one text by Arrow's judgement, and no text begins inside of a character."""
    size = int(texts.ends[-1])
    data = texts.data[:size]
    if not size or data.max() < 0x80:
        return True
    buffers = [None, pa.py_buffer(np.array([0, size], np.int64)), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    starts = texts.ends[:-1]
    return not (data[starts[starts < size]] & 0xC0 == 0x80).any()
