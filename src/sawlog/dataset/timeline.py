"""The timeline of a dataset: the newest times in its rows, and how many there are on each day."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import TICKS_PER_SECOND, call_function, make_fixed_array, view_values
from sawlog.dataset.dataset import Dataset
from sawlog.format.printing import encode_texts

MAX_EVENTS = 100
"""Times of a dataset that are kept; the others are counted."""
MAX_DAYS = 1000
"""Days of a column that are counted apart; those before the last of them are counted together."""

_LABELS = 4
"""Columns that say of what a time is."""
_LABEL_LENGTH = 80
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A time in a row.

    Attributes:
        time: The time, in ISO 8601; in UTC where its column has a zone.
        zone: `UTC`, or empty where its column has no zone.
        part: Path of the dataset.
        view: The view that has the row, with the table where the dataset has several.
        column: The column of the time.
        label: The first columns of the row, as text.
        nanoseconds: The time since 1970, by which events are sorted; without a zone, as if it were UTC.
    """

    time: str
    zone: str
    part: str
    view: str
    column: str
    label: str
    nanoseconds: int

    def to_dict(self) -> dict[str, str]:
        """Return plain data for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "nanoseconds"}


@dataclass(frozen=True, slots=True)
class Day:
    """Times of a column on one day.

    Attributes:
        day: The day; `before` and the first day that is counted apart, where there are too many days.
        part: Path of the dataset.
        view: The view that has the rows.
        column: The column of the times.
        count: How many there are.
        order: Days since 1970, by which they are sorted.
    """

    day: str
    part: str
    view: str
    column: str
    count: int
    order: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "order"}


class Timeline:
    """Times of the rows of a dataset, of which it keeps the newest, and counts per day.

    Args:
        part: Path of the dataset.
    """

    def __init__(self, part: str) -> None:
        self._part = part
        self._newest: list[tuple[int, int, TimelineEvent]] = []
        self._days: dict[tuple[str, str], Counter[int]] = {}
        self._added = 0

    @property
    def events(self) -> list[TimelineEvent]:
        """The newest times, in order."""
        return [event for _, _, event in sorted(self._newest)]

    @property
    def days(self) -> list[Day]:
        """Counts by day, in order, of each column."""
        return [
            Day(
                f"before {_render_date(first)}" if day < first else _render_date(day),
                self._part,
                view,
                column,
                counts[day],
                day,
            )
            for (view, column), counts in self._days.items()
            for first in [sorted(counts)[-MAX_DAYS:][0]]
            for day in sorted(counts)
        ]

    def read(self, dataset: Dataset, view: str) -> int | None:
        """Add the times of rows, and return how many rows there are; `None` where no column is a time."""
        schema = dataset.schema
        times = [column.name for column in schema if pa.types.is_timestamp(column.type)]
        if not times:
            return None
        labels = [f.name for f in schema if f.name not in times and not pa.types.is_nested(f.type)][:_LABELS]
        rows = 0
        for batch in dataset.to_batches(columns=[*times, *labels]):
            rows += batch.num_rows
            for place, column in enumerate(times):
                self._add(view, column, batch.column(place), batch.select(labels))
        return rows

    def _add(self, view: str, column: str, times: pa.Array, labels: pa.RecordBatch) -> None:
        per_second = TICKS_PER_SECOND[times.type.unit]
        places: NDArray[np.int64] = np.flatnonzero(np.asarray(times.is_valid()))
        if not len(places):
            return
        ticks = view_values(times, np.int64)[places]
        self._count(view, column, ticks // (per_second * _DAY))
        if len(self._newest) == MAX_EVENTS:
            is_newer = ticks > self._newest[0][0] * per_second // 10**9
            places, ticks = places[is_newer], ticks[is_newer]
        if len(ticks) > MAX_EVENTS:
            latest = np.argpartition(ticks, -MAX_EVENTS)[-MAX_EVENTS:]
            places, ticks = places[latest], ticks[latest]
        rows = make_fixed_array(pa.int64(), places)
        zone = "UTC" if times.type.tz else ""
        columns = ticks.tolist(), encode_texts(call_function("take", times, rows)), _render_rows(labels, rows)
        for tick, time, label in zip(*columns, strict=True):
            nanoseconds = tick * (10**9 // per_second)
            self._added += 1
            entry = (
                nanoseconds,
                self._added,
                TimelineEvent(str(time), zone, self._part, view, column, label, nanoseconds),
            )
            (heapq.heappush if len(self._newest) < MAX_EVENTS else heapq.heappushpop)(self._newest, entry)

    def _count(self, view: str, column: str, days: NDArray[np.int64]) -> None:
        counts = self._days.setdefault((view, column), Counter())
        for day, count in zip(*np.unique(days, return_counts=True), strict=True):
            counts[int(day)] += int(count)
        if len(counts) > MAX_DAYS + 1:
            first, *other_days = sorted(counts)[:-MAX_DAYS]
            counts[first] += sum(counts.pop(day) for day in other_days)


def _render_rows(columns: pa.RecordBatch, rows: pa.Array) -> list[str]:
    """Return some rows of columns as text, without nulls."""
    labels = [""] * len(rows)
    for name, values in zip(columns.schema.names, columns.columns, strict=True):
        for place, text in enumerate(encode_texts(call_function("take", values, rows))):
            if text:
                label = text if len(text) <= _LABEL_LENGTH else f"{text[:_LABEL_LENGTH]}\u2026"
                labels[place] += f"{', ' if labels[place] else ''}{name}={label}"
    return labels


def _render_date(day: int) -> str:
    return str(np.datetime64(day, "D"))
