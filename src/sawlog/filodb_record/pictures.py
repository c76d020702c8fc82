"""Charts of records: how many there are by schema, and when each series of a metric begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array, grouped, values_of
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN
from sawlog.pictures import MOST_BOXES, Box, Picture, Sums, counted, time_text

SCHEMA, HASH = "_schema", "_hash"
METRIC, TIME = "_metric_", "timestamp"
PICTURED = (SCHEMA, HASH, METRIC, TIME, FILE_COLUMN, OFFSET_COLUMN)
_MOST_SERIES = 100_000
"""Series that are counted one by one."""


@dataclass(slots=True)
class _Series:
    """One partition key: its records, their first and last time in milliseconds, and the place of the first."""

    rows: int
    first: int
    last: int
    path: str
    offset: int


def pictures(batches: Iterable[pa.RecordBatch]) -> Iterator[Picture]:
    """Records by schema, and series by metric and time.

    Args:
        batches: Records with those columns of `PICTURED` that there are.
    """
    schemas = Sums("records")
    found: dict[tuple[str, Any], _Series] = {}
    left_out = 0
    for batch in batches:
        firsts, which = grouped(batch.select([SCHEMA]))
        for row, count in zip(firsts.tolist(), np.bincount(which).tolist(), strict=True):
            schemas.add(str(batch.column(SCHEMA)[row].as_py()), "", count)
        if TIME in batch.schema.names and pa.types.is_timestamp(batch.schema.field(TIME).type):
            left_out += _add(batch, found)
    if schemas.found:
        yield schemas.picture("Records by schema")
    if found:
        lanes: dict[str, list[Box]] = {}
        largest = sorted(found.items(), key=lambda one: (-one[1].rows, str(one[0])))[:MOST_BOXES]
        for (metric, number), one in largest:
            times = f"{time_text(one.first)} to {time_text(one.last)}"
            text = f"{metric}, partition hash {number}: {counted(one.rows, 'records')}, {times}"
            box = Box(one.first, max(one.last, one.first), text, "", 1, one.path, one.offset)
            lanes.setdefault(metric, []).append(box)
        note = f"{len(found):,} series"
        note += "; those with most records are drawn." if len(found) > len(largest) else "."
        note += f" {left_out:,} records of further series are not counted." if left_out else ""
        yield Picture("Series by metric and time", "time", lanes, note)


def _add(batch: pa.RecordBatch, found: dict[tuple[str, Any], _Series]) -> int:
    """Count the series of some records; how many are of further ones."""
    if batch.column(TIME).null_count:
        batch = batch.filter(batch.column(TIME).is_valid())
    stamps = batch.column(TIME)
    times = values_of(stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False).cast(pa.int64()), np.int64)
    keys = [name for name in (METRIC, HASH) if name in batch.schema.names]
    firsts, which = grouped(batch.select(keys))
    begins, ends = times[firsts], times[firsts]
    np.minimum.at(begins, which, times)
    np.maximum.at(ends, which, times)
    rows = batch.select([*keys, FILE_COLUMN, OFFSET_COLUMN]).take(fixed_array(pa.int64(), firsts)).to_pylist()
    left_out = 0
    for row, count, begin, end in zip(rows, np.bincount(which).tolist(), begins.tolist(), ends.tolist(), strict=True):
        key = str(row.get(METRIC, "records")), row.get(HASH, "")
        one = found.get(key)
        if one is None and len(found) < _MOST_SERIES:
            found[key] = _Series(count, begin, end, row[FILE_COLUMN], row[OFFSET_COLUMN])
        elif one is None:
            left_out += count
        else:
            one.rows += count
            one.first, one.last = min(one.first, begin), max(one.last, end)
    return left_out
