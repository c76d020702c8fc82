"""Charts of records: how many there are by schema, and when each series of a metric begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import group_rows, make_fixed_array, view_values
from sawlog.format.charts import MAX_BOXES, BarChart, LaneBox, Picture, render_count, render_time
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN

SCHEMA, HASH = "_schema", "_hash"
METRIC, TIME = "_metric_", "timestamp"
_PICTURED = (SCHEMA, HASH, METRIC, TIME, FILE_COLUMN, OFFSET_COLUMN)
_MAX_SERIES = 100_000
"""Series that are counted one by one."""
_RECORDS_AT_ONCE = 1 << 17
"""Records that are grouped at a time."""


@dataclass(slots=True)
class _Series:
    """Series of one partition key: its records, first and last time in milliseconds, and place of the first."""

    rows: int
    first: int
    last: int
    path: str
    offset: int


class Charts:
    """The charts, and what they count: see `sawlog.format.capabilities.Counting`."""

    def __init__(self, available: pa.Schema) -> None:
        self.columns = [name for name in _PICTURED if name in available.names]
        self._timed = TIME in self.columns and pa.types.is_timestamp(available.field(TIME).type)
        self._schemas = BarChart("records")
        self._series_by_key: dict[tuple[str, Any], _Series] = {}
        self._left_out = 0
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Count records, many at a time."""
        self._waiting.append(batch.select(self.columns))
        if sum(batch.num_rows for batch in self._waiting) >= _RECORDS_AT_ONCE:
            self._count()

    def _count(self) -> None:
        batch = pa.concat_batches(self._waiting)
        self._waiting.clear()
        firsts, groups = group_rows(batch.select([SCHEMA]))
        for row, count in zip(firsts.tolist(), np.bincount(groups).tolist(), strict=True):
            self._schemas.add(str(batch.column(SCHEMA)[row].as_py()), "", count)
        if self._timed:
            self._left_out += _add(batch, self._series_by_key)

    def draw_pictures(self) -> Iterator[Picture]:
        """Yield records by schema, and series by metric and time."""
        if self._waiting:
            self._count()
        series_by_key = self._series_by_key
        if self._schemas.amounts:
            yield self._schemas.draw_picture("Records by schema")
        if series_by_key:
            lanes: dict[str, list[LaneBox]] = {}
            largest = sorted(series_by_key.items(), key=lambda item: (-item[1].rows, str(item[0])))[:MAX_BOXES]
            for (metric, number), series in largest:
                times = f"{render_time(series.first)} to {render_time(series.last)}"
                text = f"{metric}, partition hash {number}: {render_count(series.rows, 'records')}, {times}"
                box = LaneBox(series.first, max(series.last, series.first), text, "", 1, series.path, series.offset)
                lanes.setdefault(metric, []).append(box)
            note = f"{len(series_by_key):,} series"
            note += "; those with most records are drawn." if len(series_by_key) > len(largest) else "."
            note += f" {self._left_out:,} records of further series are not counted." if self._left_out else ""
            yield Picture("Series by metric and time", "time", lanes, note)


def _add(batch: pa.RecordBatch, series_by_key: dict[tuple[str, Any], _Series]) -> int:
    """Count the series of some records; return how many records are of further series."""
    if batch.column(TIME).null_count:
        batch = batch.filter(batch.column(TIME).is_valid())
    stamps = batch.column(TIME)
    times = view_values(stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False).cast(pa.int64()), np.int64)
    keys = [name for name in (METRIC, HASH) if name in batch.schema.names]
    firsts, groups = group_rows(batch.select(keys))
    begins, ends = times[firsts], times[firsts]
    np.minimum.at(begins, groups, times)
    np.maximum.at(ends, groups, times)
    rows = batch.select([*keys, FILE_COLUMN, OFFSET_COLUMN]).take(make_fixed_array(pa.int64(), firsts)).to_pylist()
    left_out = 0
    for row, count, begin, end in zip(rows, np.bincount(groups).tolist(), begins.tolist(), ends.tolist(), strict=True):
        key = str(row.get(METRIC, "records")), row.get(HASH, "")
        series = series_by_key.get(key)
        if series is None and len(series_by_key) < _MAX_SERIES:
            series_by_key[key] = _Series(count, begin, end, row[FILE_COLUMN], row[OFFSET_COLUMN])
        elif series is None:
            left_out += count
        else:
            series.rows += count
            series.first, series.last = min(series.first, begin), max(series.last, end)
    return left_out
