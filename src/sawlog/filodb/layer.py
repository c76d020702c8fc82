"""Laying encoded rows out in containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import view_values
from sawlog.errors import SchemaError
from sawlog.filodb import layout
from sawlog.filodb.arrays import cast
from sawlog.filodb.encode import Encoder, refuse_nulls
from sawlog.filodb.kernels import containers as c
from sawlog.filodb.options import WriteOptions
from sawlog.filodb.target import RECORD_COLUMN, SCHEMA_COLUMN, TIME_COLUMN, Target

BATCH_ROWS = 32 << 10
"""Rows that are encoded at a time: many, so that series repeat, and few enough for their payloads to stay in cache."""


class Layer:
    """Lays rows out in containers.

    Args:
        target: What rows are written as.
        options: Size and shape of containers.
        out_bytes: Bytes gathered before they are handed on, besides two containers.
        sink: Takes complete containers, back to back; what it is given is only lent.
    """

    def __init__(
        self, target: Target, options: WriteOptions, out_bytes: int, sink: Callable[[NDArray[np.uint8]], None]
    ) -> None:
        self._target = target
        self._options = options
        self._sink = sink
        self._rows = 0
        self._out = np.zeros(out_bytes + 2 * options.container_size, np.uint8)
        self._state = c.make_layer()
        self._sizes = np.zeros(1, np.int64)
        self._encoder = Encoder(target.layouts)
        self._names = {layout.name: number for number, layout in enumerate(target.layouts)}

    def add(self, batch: pa.RecordBatch, now: int, groups: NDArray[np.int64] | None = None) -> None:
        """Add the rows of a batch; containers that begin get the timestamp `now`, unless a column says otherwise.

        Args:
            batch: The rows.
            now: Milliseconds since the epoch.
            groups: Per row, ascending: what it belongs to; no container holds rows of two. All one, if not given.

        Raises:
            SchemaError: For anything that cannot be represented; names column and row.
        """
        groups = np.zeros(batch.num_rows, np.int64) if groups is None else groups
        for start in range(0, batch.num_rows, BATCH_ROWS):
            self._add(batch.slice(start, BATCH_ROWS), now, groups[start : start + BATCH_ROWS])

    def measure_groups(self, groups: int) -> NDArray[np.int64]:
        """Return the sizes of the containers of each group, counted from now on, up to `finish`."""
        self._sizes = np.zeros(max(groups, 1), np.int64)
        return self._sizes

    def compute_hashes(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        """Return the partition hashes of a batch's rows, unsigned; nothing is laid out.

        Raises:
            SchemaError: As `add`.
        """
        return self._encoder.encode(batch, self._number_layouts(batch), self._rows).hashes

    def finish(self) -> None:
        """Complete the last container, trimmed, and hand everything on."""
        c.close_container(self._out, self._sizes, self._state)
        self._flush()

    def _add(self, batch: pa.RecordBatch, now: int, groups: NDArray[np.int64]) -> None:
        layout_numbers = self._number_layouts(batch)
        encoded = self._encoder.encode(batch, layout_numbers, self._rows)
        times = self._fill_times(batch, now)
        rows = c.Rows(layout_numbers, encoded.ops, encoded.values, encoded.hashes, times, groups)
        options = self._options
        plan = c.Plan(self._encoder.layouts, self._target.raw, np.int64(options.container_size), options.whole)
        self._state.row = 0
        status = c.FLUSH
        while status == c.FLUSH:
            status = c.lay_records(rows, plan, self._state, self._out, self._sizes)
            if status == c.FLUSH:
                self._flush()
        if status != c.DONE:
            self._refuse_record(status)
        self._rows += batch.num_rows

    def _flush(self) -> None:
        """Hand complete containers on, and move the container that is being filled to the front."""
        start, end = int(self._state.start), int(self._state.end)
        complete = start if start >= 0 else end
        if complete:
            self._sink(self._out[:complete])
        rest_size = end - complete
        self._out[:rest_size] = self._out[complete:end].copy()
        self._state.start = 0 if start >= 0 else -1
        self._state.end = rest_size

    def _refuse_record(self, status: int) -> NoReturn:
        row = self._rows + int(self._state.row)
        if status == c.BAD_RECORD:
            raise SchemaError(f"column {RECORD_COLUMN!r}, row {row}: not one whole record")
        raise SchemaError(
            f"row {row}: the record is too long for containers of {self._options.container_size} bytes:"
            " give a larger container_size"
        )

    def _number_layouts(self, batch: pa.RecordBatch) -> NDArray[np.uint8]:
        """Return the number of each row's layout."""
        layout_numbers = np.zeros(batch.num_rows, np.uint8)
        if not self._target.by_name:
            return layout_numbers
        names = cast(batch.column(SCHEMA_COLUMN), pa.string(), SCHEMA_COLUMN, self._rows).dictionary_encode()
        refuse_nulls(names, SCHEMA_COLUMN, self._rows)
        numbers = np.array([self._names.get(name, -1) for name in names.dictionary.to_pylist()], np.int64)
        layout_of_row = numbers[view_values(names.indices, np.int32)]
        if (layout_of_row < 0).any():
            row = int(np.flatnonzero(layout_of_row < 0)[0])
            raise SchemaError(
                f"column {SCHEMA_COLUMN!r}, row {self._rows + row}: no schema {names[row].as_py()!r};"
                f" schemas: {', '.join(self._names)}"
            )
        layout_numbers[:] = layout_of_row
        return layout_numbers

    def _fill_times(self, batch: pa.RecordBatch, now: int) -> NDArray[np.int64]:
        if TIME_COLUMN not in batch.schema.names:
            # A container keeps the time at which it was begun.
            start_time = int(self._state.time) if self._state.start >= 0 else now
            return np.full(batch.num_rows, start_time, np.int64)
        container_times = cast(batch.column(TIME_COLUMN), layout.SCALARS["ts"].arrow, TIME_COLUMN, self._rows)
        refuse_nulls(container_times, TIME_COLUMN, self._rows)
        times = view_values(container_times, np.int64).copy()
        wrong = np.flatnonzero((times < 0) | (times > layout.MAX_TIMESTAMP))
        if len(wrong):
            raise SchemaError(
                f"column {TIME_COLUMN!r}, row {self._rows + int(wrong[0])}: {times[wrong[0]]} ms is no time at which a"
                f" container can be begun; expected 0 to {layout.MAX_TIMESTAMP}"
            )
        return times
