"""Values to rows: containers, and single records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    combine_table,
    compute_offsets,
    fill_null,
    make_array,
    make_batch_from_rows,
    make_bitmap,
    unpack_booleans,
    view_binary,
    view_values,
)
from sawlog.chain.walk import WalkEvent
from sawlog.errors import SchemaError
from sawlog.filodb.columns import ViewColumns, make_columns
from sawlog.filodb.layout import ContainerDamageKind
from sawlog.filodb.options import ReadOptions
from sawlog.filodb.selection import Selection, select
from sawlog.filodb.walk import ContainerRange, RowsWalk
from sawlog.format.contract import OFFSET_COLUMN, PROVENANCE, Projection, Scan
from sawlog.format.damage import Damage, Findings, OnDamage, take_listed_damage
from sawlog.storage import File
from sawlog.storage.sources import MemorySource

MAX_VALUE_BYTES = 64 << 20
"""Bytes of rows that one value may make, where they cannot be spread over several results."""
_MAX_KINDS = 16
"""Kinds of damage that a result reports of one value; there are hardly more."""
_LAST_MILLISECOND = (1 << 63) // 1000 - 1
"""The latest time that microseconds can express, as Spark does."""

_BAD_CONTAINER_LENGTH = "the container's length is {0}; the value ends at byte {1}"

_DAMAGE = pa.struct(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""Damage of a value: the first of each kind, with its offset in the value, and how many of the kind there are."""


@dataclass
class ValueDamage:
    """The damage of one value so far: per kind the first one, and how many."""

    first: dict[str, Damage] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, damage: Damage) -> None:
        """Take in one."""
        self.counts[damage.kind] += 1
        if len(self.first) < _MAX_KINDS:
            self.first.setdefault(damage.kind, damage)

    def list_rows(self) -> list[dict[str, Any]]:
        """Return the damage as rows of `_DAMAGE`."""
        return [
            {
                "kind": kind,
                "offset": damage.offset,
                "length": damage.length,
                "detail": damage.detail,
                "count": self.counts[kind],
            }
            for kind, damage in self.first.items()
        ]


@dataclass(frozen=True)
class ValueDecoder:
    """Decodes values: containers, trimmed or whole, or single records such as part keys. Picklable.

    Attributes:
        options: As for files; `table` is needed, since values are not looked at beforehand.
        on_damage: `fail` raises at the first damage, `skip` delivers what is intact.
    """

    options: ReadOptions
    on_damage: OnDamage = "fail"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._columns.schema.remove_metadata()

    @property
    def result(self) -> pa.DataType:
        """The type of results: rows, damage, and whether there is none."""
        return pa.struct(
            [
                pa.field("rows", self._list, nullable=False),
                pa.field("damage", pa.list_(_DAMAGE), nullable=False),
                pa.field("ok", pa.bool_(), nullable=False),
            ]
        )

    def decode(self, values: pa.Array) -> pa.Array:
        """Return the rows of each value, as a list of structs; null where the value is null.

        Raises:
            DamageError: At the first damage, if `on_damage` is `fail`; it names the value by its number in `values`,
                and the offset in it.
            UnsupportedError: Likewise, for records of unknown schemas.
        """
        rows, damaged = self._limit_rows(values)
        if damaged and self.on_damage == "fail":
            number = min(damaged)
            Findings("fail").add_damage(min(damaged[number].first.values(), key=lambda damage: damage.offset))
        return rows

    def decode_results(self, values: pa.Array) -> pa.Array:
        """Return a result of each value: its rows, its damage, and whether there is none; null where the value is null.

        A value that makes more than `MAX_VALUE_BYTES` of rows is cut short, which is reported as damage.
        """
        rows, damaged = self._limit_rows(values)
        return self._make_results(rows, damaged)

    def decode_parts(self, values: pa.Array) -> Iterator[tuple[NDArray[np.int64], pa.Array]]:
        """Yield results in bounded portions: numbers of values, and a result for each of them.

        A value of many rows is in several portions; every value that is not null is in one at least.
        """
        is_null = unpack_booleans(values.is_null())
        for batch, owners, damaged in self._walk_values(values):
            numbers = np.union1d(owners, np.array(sorted(damaged), np.int64)).astype(np.int64)
            if not len(numbers):
                continue
            is_null[numbers] = True
            counts = np.bincount(np.searchsorted(numbers, owners), minlength=len(numbers))
            places = {number: place for place, number in enumerate(numbers.tolist())}
            rows = self._make_lists(batch, counts, None)
            yield numbers, self._make_results(rows, {places[number]: damage for number, damage in damaged.items()})
        null_numbers = np.flatnonzero(~is_null)
        if len(null_numbers):
            rows = self._make_lists(make_batch_from_rows([], self.schema), np.zeros(len(null_numbers), np.int64), None)
            yield null_numbers, self._make_results(rows, {})

    def _limit_rows(self, values: pa.Array) -> tuple[pa.Array, dict[int, ValueDamage]]:
        """Return rows of each value, no more than `MAX_VALUE_BYTES` of each, and what is to be reported about them."""
        bytes_made = np.zeros(len(values), np.float64)
        counts = np.zeros(len(values), np.int64)
        damaged: dict[int, ValueDamage] = {}
        kept_batches: list[pa.RecordBatch] = []
        for batch, owners, damages in self._walk_values(values):
            for number, value_damage in damages.items():
                mine = damaged.setdefault(number, ValueDamage())
                for damage in value_damage.first.values():
                    mine.first.setdefault(damage.kind, damage)
                mine.counts += value_damage.counts
            if not batch.num_rows:
                continue
            full = bytes_made[owners] >= MAX_VALUE_BYTES
            for number in np.unique(owners[full]).tolist():
                detail = f"the value makes more than {MAX_VALUE_BYTES} bytes of rows: the rest is left out"
                damage = Damage(_describe_value(number), 0, 0, "too_large", detail)
                damaged.setdefault(number, ValueDamage()).add(damage)
            if full.any():
                batch, owners = batch.filter(make_array(~full, pa.bool_())), owners[~full]  # noqa: PLW2901
            kept_batches.append(batch)
            counts += np.bincount(owners, minlength=len(values))
            if batch.num_rows:
                bytes_made += np.bincount(owners, minlength=len(values)) * (batch.nbytes / batch.num_rows)
        all_rows = combine_table(pa.Table.from_batches(kept_batches, self.schema))
        return self._make_lists(all_rows, counts, values), damaged

    def _walk_values(
        self, values: pa.Array
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64], dict[int, ValueDamage]]]:
        """Yield rows some at a time, the number of the value that each is of, and the damage found with them."""
        data, edges = view_binary(fill_null(values.cast(pa.binary()), b""))
        data = data[edges[0] : edges[-1]]
        starts = edges.astype(np.int64) - int(edges[0])
        findings = Findings("skip", drained=True)
        ends = starts[1:]

        class ValueWalk(RowsWalk):
            def describe(self, event: WalkEvent) -> str:
                if event.kind in (ContainerDamageKind.BAD_RECORD_LENGTH, ContainerDamageKind.BAD_CONTAINER_LENGTH):
                    # The end of a container, or of its value, counts from the value's start.
                    start = int(starts[np.searchsorted(ends, event.offset, "right")])
                    event = event._replace(two=event.two - start)
                if event.kind == ContainerDamageKind.BAD_CONTAINER_LENGTH:
                    return _BAD_CONTAINER_LENGTH.format(event.one, event.two)
                return super().describe(event)

        schema = pa.schema([*self.schema, PROVENANCE[1]])
        walk = ValueWalk(self._make_fragment(len(data)), MemorySource(data), schema, findings, bounds=starts)
        for batch in walk.read_batches():
            owners = np.searchsorted(ends, view_values(batch.column(OFFSET_COLUMN), np.int64), "right")
            rows = batch.select(self.schema.names)
            damaged = _group_damage(take_listed_damage(findings), starts)
            bad = _find_beyond(rows)
            for row in np.flatnonzero(bad).tolist():
                number = int(owners[row])
                offset = int(batch.column(OFFSET_COLUMN)[row].as_py() - starts[number])
                detail = f"a timestamp later than {_LAST_MILLISECOND} ms, or as much earlier, cannot be expressed"
                damage = Damage(_describe_value(number), offset, 0, ContainerDamageKind.BAD_TIMESTAMP.label, detail)
                damaged.setdefault(number, ValueDamage()).add(damage)
            if bad.any():
                rows, owners = rows.filter(make_array(~bad, pa.bool_())), owners[~bad]
            yield rows, owners, damaged
        yield (
            make_batch_from_rows([], self.schema),
            np.zeros(0, np.int64),
            _group_damage(take_listed_damage(findings), starts),
        )

    def _make_lists(self, rows: pa.RecordBatch, counts: NDArray[np.int64], values: pa.Array | None) -> pa.Array:
        """Return rows as lists of so many each; null where `values` are."""
        ends = compute_offsets(counts, np.int32)
        structs = pa.StructArray.from_arrays(rows.columns, fields=list(self.schema))
        validity = None if values is None else make_bitmap(unpack_booleans(values.is_valid()))
        return pa.Array.from_buffers(self._list, len(counts), [validity, pa.py_buffer(ends)], children=[structs])

    def _make_results(self, rows: pa.Array, damaged: dict[int, ValueDamage]) -> pa.Array:
        ok = np.ones(len(rows), np.bool_)
        ok[list(damaged)] = False
        damage = [damaged[number].list_rows() if number in damaged else [] for number in range(len(rows))]
        validity = rows.is_null() if rows.null_count else None
        filled = fill_null(rows, [])
        arrays = [filled.cast(self._list), make_array(damage, pa.list_(_DAMAGE)), make_array(ok, pa.bool_())]
        return pa.StructArray.from_arrays(arrays, fields=list(self.result), mask=validity)

    @property
    def _list(self) -> pa.DataType:
        return pa.list_(pa.field("element", pa.struct(list(self.schema))))

    @cached_property
    def _selection(self) -> Selection:
        if not self.options.table:
            raise SchemaError('name the schemas of the records, or "all" for all known ones')
        return select(self.options)

    @property
    def _columns(self) -> ViewColumns:
        return make_columns(self._selection, self.options)

    def _make_fragment(self, size: int) -> ContainerRange:
        scan = Scan(options=self.options, on_damage="skip")
        projection = Projection.of(self.schema, scan)
        file, fields = File("value", size), self._columns.fields
        return ContainerRange(scan, projection, "value", size, file, 0, size, 0, self._selection, fields)


def _describe_value(number: int) -> str:
    """Return the text that stands for the file in messages."""
    return f"value {number} of the batch"


def _group_damage(damages: list[Damage], starts: NDArray[np.int64]) -> dict[int, ValueDamage]:
    """Return the damaged ranges by the number of their value, with offsets in it."""
    damage_by_value: dict[int, ValueDamage] = {}
    for damage in damages:
        number = int(np.searchsorted(starts[1:], damage.offset, "right"))
        detail = damage.detail
        mine = Damage(
            _describe_value(number),
            damage.offset - int(starts[number]),
            damage.length,
            damage.kind,
            detail,
            damage.dropped,
        )
        damage_by_value.setdefault(number, ValueDamage()).add(mine)
    return damage_by_value


def _find_beyond(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return rows with a timestamp that microseconds cannot hold."""
    bad = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ms":
            values = view_values(column, np.int64)
            wrong = (values > _LAST_MILLISECOND) | (values < -_LAST_MILLISECOND)
            if wrong.any():
                bad |= wrong & unpack_booleans(column.is_valid())
    return bad
