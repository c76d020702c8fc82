"""Charts of collections: segments by partition and time, rows and deletes, and which of them are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from sawlog.arrow import view_values
from sawlog.format.charts import BarChart, LaneBox, Picture, RateChart, render_time
from sawlog.milvus import layout

READ, LEFT_OUT = "read", "not read"
_APPLIED, _LATER = "deletes", "deletes after as_of"


def make_segment_pictures(
    segments: pa.Table, files: Mapping[int, str], read: frozenset[int] | None, until: int | None
) -> Iterator[Picture]:
    """Yield segments by partition and time, and rows by partition.

    Args:
        segments: The view `segments`.
        files: A file of each segment, by id.
        read: The segments whose rows are read; `None` where that is not known.
        until: The TSO of `as_of`, if there is one.
    """
    lanes: dict[str, list[LaneBox]] = {}
    sums = BarChart("rows")
    for row in segments.to_pylist():
        fate = "" if read is None else READ if row["segment"] in read else LEFT_OUT
        sums.add(row["partition_name"], fate or "rows", row["rows"] or 0)
        if row["min_timestamp"] is None:
            continue
        labels = (f"state {row['state']}" if row["state"] else "", f"level {row['level']}" if row["level"] else "")
        text = f"segment {row['segment']}: {row['rows'] or 0:,} rows, {row['deletes'] or 0:,} deletes of its own"
        text = ", ".join((text, f"{row['bytes']:,} bytes", *filter(None, labels)))
        start, end = (row[f"{bound}_timestamp"] >> layout.LOGICAL_BITS for bound in ("min", "max"))
        text += f"; {render_time(start)} to {render_time(end)}"
        box = LaneBox(start, end, text, fate, path=files.get(row["segment"], ""))
        lanes.setdefault(row["partition_name"], []).append(box)
    if lanes:
        first = min(box.start for boxes in lanes.values() for box in boxes)
        if until is not None:
            end = until >> layout.LOGICAL_BITS
            lanes["as_of"] = [LaneBox(min(first, end), end, f"what as_of sees: up to {render_time(end)}", "as_of")]
        note = "From the first row of a segment to its last, as their timestamps have it."
        yield Picture("Segments by partition and time", "time", lanes, note)
    yield sums.draw_picture("Rows by partition", "Before deletes are applied.", (READ, LEFT_OUT))


def make_delete_pictures(batches: Iterable[pa.RecordBatch], until: int | None) -> Iterator[Picture]:
    """Yield deletes over time, of the column `timestamp`; those after the TSO `until` are not applied."""
    rates = RateChart()
    for batch in batches:
        rates.add(view_values(batch.column("timestamp"), "i8") >> layout.LOGICAL_BITS)
    last = None if until is None else until >> layout.LOGICAL_BITS
    boxes = []
    for start, end, amount, height in rates.iterate_buckets():
        series = _APPLIED if last is None or start <= last else _LATER
        text = f"{amount:,} {series} in {end - start:,} ms from {render_time(start)}"
        boxes.append(LaneBox(start, end, text, series, height))
    if boxes:
        yield Picture("Deletes over time", "time", {"deletes": boxes}, tall=True)
