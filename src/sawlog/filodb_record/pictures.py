"""Charts of records: how many there are by schema, and when each series of a metric begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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
        table = pa.Table.from_batches([batch])
        by_schema = table.group_by(SCHEMA).aggregate([([], "count_all")]).to_pylist()
        for row in by_schema:
            schemas.add(str(row[SCHEMA]), "", row["count_all"])
        if TIME in table.column_names and pa.types.is_timestamp(table.schema.field(TIME).type):
            left_out += _add(table, found)
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


def _add(table: pa.Table, found: dict[tuple[str, Any], _Series]) -> int:
    """Count the series of some records; how many are of further ones."""
    keys = [name for name in (METRIC, HASH) if name in table.column_names]
    milliseconds = table.column(TIME).cast(pa.timestamp("ms", table.schema.field(TIME).type.tz), safe=False)
    table = table.set_column(table.column_names.index(TIME), TIME, milliseconds.cast(pa.int64()))
    sums = [(TIME, "min"), (TIME, "max"), (OFFSET_COLUMN, "min"), (FILE_COLUMN, "min"), ([], "count_all")]
    left_out = 0
    for row in table.group_by(keys).aggregate(sums).to_pylist():
        if row[f"{TIME}_min"] is None:
            continue
        key = str(row.get(METRIC, "records")), row.get(HASH, "")
        one = found.get(key)
        if one is None and len(found) < _MOST_SERIES:
            path, offset = row[f"{FILE_COLUMN}_min"], row[f"{OFFSET_COLUMN}_min"]
            found[key] = _Series(row["count_all"], row[f"{TIME}_min"], row[f"{TIME}_max"], path, offset)
        elif one is None:
            left_out += row["count_all"]
        else:
            one.rows += row["count_all"]
            one.first, one.last = min(one.first, row[f"{TIME}_min"]), max(one.last, row[f"{TIME}_max"])
    return left_out
