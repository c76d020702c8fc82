"""The pictures of any format: rows along their time, gaps, the largest rows, nulls."""

from __future__ import annotations

import heapq
import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.format.charts import BarChart, LaneBox, Picture, RateChart, render_count
from sawlog.map.content import ColumnStatistics
from sawlog.map.order import RowOrder

_MAX_SHOWN = 12
"""Of the largest rows, and of the longest gaps."""
_GAP_FACTOR = 5
"""A gap is so many times as long as the mean step from row to row."""


class Large(NamedTuple):
    """A row among the largest, or a row after one of the longest gaps.

    Attributes:
        size: Its bytes, or the length of the gap.
        path: The file.
        offset: Where it begins.
        length: Its bytes.
        start: When the gap begins.
    """

    size: int
    path: str
    offset: int
    length: int
    start: int = 0


class Highlights:
    """The largest rows, the longest gaps, and rows along their time, of all files."""

    def __init__(self, order: RowOrder | None) -> None:
        self._order = order if order is not None and order.kind == "time" else None
        self._rates = RateChart()
        self._rows: list[Large] = []
        self._smallest = 1 << 62
        self._gaps: list[Large] = []
        self._last: tuple[str, int] = "", 0

    def add(
        self,
        path: str,
        places: tuple[NDArray[np.int64], NDArray[np.int64]],
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        values: NDArray[np.int64],
    ) -> None:
        """Take in rows of a file."""
        large_rows = (Large(size, path, start, size) for size, start in _find_largest(places[1], places[0]))
        self._rows = heapq.nlargest(_MAX_SHOWN, [*self._rows, *large_rows], lambda large: (large.size, -large.offset))
        self._smallest = min(self._smallest, int(places[1].min(initial=self._smallest)))
        if self._order is None or not len(values):
            return
        self._rates.add(values, sizes)
        before = self._last[1] if self._last[0] == path else int(values[0])
        steps = np.diff(values, prepend=before)
        gaps = (
            Large(step, path, int(starts[row]), int(sizes[row]), int(values[row]) - step)
            for step, row in _find_largest(steps, np.arange(len(steps)))
        )
        self._gaps = heapq.nlargest(_MAX_SHOWN, [*self._gaps, *gaps])
        self._last = path, int(values[-1])

    def list_places(self, path: str) -> list[tuple[int, int]]:
        """Return the offset and bytes of the rows of a file that charts lead to."""
        return [(large.offset, large.length) for large in (*self._rows, *self._gaps) if large.path == path]

    def draw_pictures(self, columns: Sequence[ColumnStatistics]) -> Iterator[Picture]:
        """Yield the pictures of the rows seen so far."""
        order = self._order
        if order is not None and (rows := list(self._draw_boxes(0, "rows", order))):
            min_gap_size = max(self._rates.bucket_width, _GAP_FACTOR * self._rates.mean)
            gaps = [self._draw_gap(gap, order) for gap in self._gaps if gap.size > min_gap_size]
            lanes = {"rows": rows, "bytes": list(self._draw_boxes(1, "bytes", order))}
            note = f"One bar is {order.render_length(self._rates.bucket_width)}." + (
                " Gaps are the longest times without rows, in the order of the file." if gaps else ""
            )
            filled_lanes = {name: boxes for name, boxes in lanes.items() if boxes} | ({"gaps": gaps} if gaps else {})
            yield Picture(f"Rate along {order.column}", "time", filled_lanes, note, tall=True)
        if self._rows and self._rows[0].size > self._smallest:
            several = len({row.path for row in self._rows}) > 1
            lanes = {
                f"{posixpath.basename(row.path)}: {row.offset:,}" if several else f"at {row.offset:,}": [
                    LaneBox(0, row.size, f"{row.size:,} bytes", path=row.path, offset=row.offset)
                ]
                for row in self._rows
            }
            yield Picture("Largest rows", "bytes", lanes, "Each up to the next row, or the end of what was read.")
        if any(column.nulls for column in columns):
            sums = BarChart("rows")
            for column in columns:
                sums.add(column.field.name, "with values", column.rows - column.nulls)
                sums.add(column.field.name, "null", column.nulls)
            yield sums.draw_picture("Nulls by column")

    def _draw_boxes(self, kind: int, unit: str, order: RowOrder) -> Iterator[LaneBox]:
        for start, end, amount, height in self._rates.iterate_buckets(kind):
            text = (
                f"{render_count(amount, unit)} in {order.render_length(end - start)} from {order.render_value(start)}"
            )
            yield LaneBox(order.convert_value(start), order.convert_value(end), text, unit, height)

    def _draw_gap(self, gap: Large, order: RowOrder) -> LaneBox:
        text = f"{order.render_length(gap.size)} without rows, from {order.render_value(gap.start)}"
        return LaneBox(
            order.convert_value(gap.start),
            order.convert_value(gap.start + gap.size),
            text,
            "gap",
            path=gap.path,
            offset=gap.offset,
        )


def _find_largest(sizes: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Return the size and place of the few largest above zero."""
    largest = np.argpartition(-sizes, _MAX_SHOWN)[:_MAX_SHOWN] if len(sizes) > _MAX_SHOWN else np.arange(len(sizes))
    return ((int(sizes[index]), int(places[index])) for index in largest if sizes[index] > 0)
