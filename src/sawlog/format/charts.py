"""Charts that formats declare of what they hold, as plain data: lanes of boxes over one axis."""

from __future__ import annotations

import contextlib
import datetime as dt
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.guard import EPOCH

Axis = Literal["number", "bytes", "time", "keys"]
"""What the axis counts: things, bytes, milliseconds since 1970, or nothing: a place in the order of keys."""

MAX_BOXES = 800
"""Of one chart; the longest are drawn."""
MOST_LANES = 40
_MAX_LANE_ROWS = 8
"""Of boxes that overlap in one lane; others are drawn in the last one."""
_MAX_TEXT = 300
_MAX_KEY_BYTES = 40
"""Of a key that are shown."""
TIME_BUCKETS = 240
"""Of a time."""


class LaneBox(NamedTuple):
    """A box in a lane.

    Attributes:
        start: Where it begins on the axis.
        end: Where it ends.
        text: What it says when it is pointed at.
        series: What it counts as: boxes of one series have one colour.
        height: Its share of the height of the lane.
        path: The file that it leads to; empty for none.
        offset: The byte of that file.
    """

    start: float
    end: float
    text: str
    series: str = ""
    height: float = 1
    path: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart.

    Attributes:
        title: What it shows.
        axis: What the axis counts.
        lanes: Boxes by the names of lanes, in order. Those that overlap are drawn in rows, one below the other.
        note: What else is to be known.
        ends: What is at the left and right end, where the axis counts nothing.
        tall: Whether heights matter.
    """

    title: str
    axis: Axis
    lanes: Mapping[str, Sequence[LaneBox]]
    note: str = ""
    ends: tuple[str, str] = ("", "")
    tall: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: boxes as lists of their attributes, the series as its place in `series`."""
        lanes = dict(list(self.lanes.items())[:MOST_LANES])
        boxes = [box for lane_boxes in lanes.values() for box in lane_boxes]
        longest = set(heapq.nlargest(MAX_BOXES, range(len(boxes)), lambda index: boxes[index].end - boxes[index].start))
        series = list(dict.fromkeys(box.series for box in boxes))
        paths = list(dict.fromkeys(box.path for box in boxes))
        number = itertools.count()
        drawn = []
        for label, lane_boxes in lanes.items():
            rows = [
                [
                    [*box[:2], _escape_text(box.text), series.index(box.series), round(box.height, 3)]
                    + ([paths.index(box.path), box.offset] if box.path else [])
                    for box in row
                ]
                for row in _pack_boxes([box for box in lane_boxes if next(number) in longest])
            ]
            drawn.append({"label": _escape_text(label), "rows": rows})
        notes = [self.note] if self.note else []
        if (total_length := sum(map(len, self.lanes.values()))) > len(longest):
            notes.append(f"Drawn are {len(longest):,} of {total_length:,}.")
        return {
            "title": _escape_text(self.title),
            "axis": self.axis,
            "note": _escape_text(" ".join(notes)),
            "ends": [*map(_escape_text, self.ends)],
            "tall": self.tall,
            "series": [*map(_escape_text, series)],
            "paths": paths,
            "lanes": drawn,
        }


def _pack_boxes(boxes: Sequence[LaneBox]) -> list[list[LaneBox]]:
    """Return boxes in at most `_MAX_LANE_ROWS` rows; only in the last one may they overlap."""
    rows: list[list[LaneBox]] = [[]]
    for box in sorted(boxes):
        free = (row for row in rows if not row or (row[-1].end <= box.start and row[-1].start < box.start))
        row = next(free, None)
        if row is None and len(rows) < _MAX_LANE_ROWS:
            rows.append(row := [])
        (rows[-1] if row is None else row).append(box)
    return rows


@dataclass(slots=True)
class BarChart:
    """Amounts by lane and series, drawn as bars that are put together.

    Attributes:
        unit: What is counted, for people.
        amounts: Amounts by series, by lane.
        places: A place in a file of each that has one, by lane and series.
    """

    unit: str
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    places: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def add(self, lane: str, series: str, amount: int, path: str = "", offset: int = 0) -> None:
        """Count something, at a place of a file if it has one; bars lead to the first place of theirs."""
        lanes = self.amounts.setdefault(lane, {})
        lanes[series] = lanes.get(series, 0) + amount
        self.places.setdefault((lane, series), (path, offset))

    def draw_picture(self, title: str, note: str = "", order: Iterable[str] = ()) -> Picture:
        """Return the chart."""
        lanes = {}
        for lane, sums in self.amounts.items():
            total = sum(sums.values())
            boxes, position = [], 0
            for series in dict.fromkeys([*(name for name in order if name in sums), *sums]):
                if total and not sums[series]:
                    continue
                share = f", {sums[series] / total:.1%}" if total and len(sums) > 1 else ""
                text = f"{lane}: {render_count(sums[series], self.unit)}{f' {series}' if series else ''}{share}"
                path, offset = self.places[lane, series]
                boxes.append(LaneBox(position, position + sums[series], text, series, 1, path, offset))
                position += sums[series]
            lanes[lane] = boxes
        axis: Axis = "bytes" if self.unit == "bytes" else "number"
        return Picture(title, axis, lanes, note)


class RateChart:
    """Things and their bytes along a time: in equal buckets, which double as times spread."""

    def __init__(self) -> None:
        self._shift = 0
        self._first = 0
        self._sums = np.zeros((2, 0), np.int64)

    def add(self, values: NDArray[np.int64], sizes: NDArray[np.int64] | None = None) -> None:
        """Take in times, and the bytes of the things that have them."""
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        while True:
            first, last = low >> self._shift, high >> self._shift
            if self._sums.shape[1]:
                first, last = min(first, self._first), max(last, self._first + self._sums.shape[1] - 1)
            if last - first < TIME_BUCKETS:
                break
            self._widen_buckets()
        sums = np.zeros((2, last - first + 1), np.int64)
        sums[:, self._first - first :][:, : self._sums.shape[1]] = self._sums
        places = (values >> self._shift) - first
        sums[0] += np.bincount(places, minlength=sums.shape[1])
        if sizes is not None:
            np.add.at(sums[1], places, sizes)
        self._sums, self._first = sums, first

    def _widen_buckets(self) -> None:
        places = ((self._first + np.arange(self._sums.shape[1])) >> 1) - (self._first >> 1)
        sums = np.zeros((2, int(places[-1]) + 1 if len(places) else 0), np.int64)
        for kind in range(2):
            np.add.at(sums[kind], places, self._sums[kind])
        self._sums, self._first, self._shift = sums, self._first >> 1, self._shift + 1

    @property
    def bucket_width(self) -> int:
        """Width of a bucket in the unit of the values, a power of two."""
        return 1 << self._shift

    @property
    def mean(self) -> float:
        """The step from one thing to the next, on average."""
        return self.bucket_width * self._sums.shape[1] / max(1, int(self._sums[0].sum()))

    def iterate_buckets(self, kind: int = 0) -> Iterator[tuple[int, int, int, float]]:
        """Start, end, amount, and its share of the largest, of each bucket that has some; kind 0 things, 1 bytes."""
        largest = int(self._sums[kind].max(initial=0))
        for bucket, amount in enumerate(self._sums[kind].tolist()):
            if amount:
                start = (self._first + bucket) << self._shift
                yield start, start + self.bucket_width, amount, amount / largest


class KeySpan(NamedTuple):
    """A range between two keys."""

    lane: str
    smallest: bytes
    end: bytes
    size: int
    box: LaneBox


def draw_key_ranges(title: str, spans: Sequence[KeySpan], note: str = "") -> Picture:
    """Return a chart of ranges of keys: a stretch between two neighbouring bounds is as wide as its bytes."""
    bounds = sorted({key for span in spans for key in (span.smallest, span.end)})
    place = {key: number for number, key in enumerate(bounds)}
    steps = [0.0] * (len(bounds) + 1)
    for span in spans:  # the bytes of a range, evenly over its stretches
        first, after = place[span.smallest], place[span.end]
        if after > first:
            steps[first] += (span.size + 1) / (after - first)
            steps[after] -= (span.size + 1) / (after - first)
    edges, width = [0.0], 0.0
    for step in steps[: max(0, len(bounds) - 1)]:
        width += step
        edges.append(edges[-1] + max(width, 0))
    full_width = edges[-1] or 1
    lanes: dict[str, list[LaneBox]] = {}
    for span in spans:
        start, end = (round(edges[place[key]] / full_width, 5) for key in (span.smallest, span.end))
        lanes.setdefault(span.lane, []).append(span.box._replace(start=start, end=end))
    ends = (render_key(bounds[0]), render_last_key(bounds[-1])) if bounds else ("", "")
    return Picture(title, "keys", lanes, note, ends)


def render_count(number: int, units: str) -> str:
    """Return a number of things, which are named in the plural."""
    return f"{number:,} {units.removesuffix('s') if number == 1 else units}"


def render_time(milliseconds: float) -> str:
    """Return a moment for people, in UTC; a number where no calendar has it."""
    try:
        return f"{EPOCH + dt.timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except OverflowError:
        return f"{milliseconds:,.0f} ms"


def _escape_text(text: str) -> str:
    """Return a text, cut at `_MAX_TEXT` characters, and escaped if some of them are not printable."""
    cut = text[:_MAX_TEXT]
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


def render_key(key: bytes) -> str:
    """Return a key as text that harms nobody, cut where it is long; as hexadecimal digits where it is none."""
    cut, ellipsis = key[:_MAX_KEY_BYTES], "…" if len(key) > _MAX_KEY_BYTES else ""
    for end in range(len(cut), max(len(cut) - 4, 0) if ellipsis else len(cut) - 1, -1):  # a character may be cut, too
        with contextlib.suppress(UnicodeDecodeError):
            text = cut[:end].decode()
            return (text if text.isprintable() else f"0x{cut.hex()}") + ellipsis
    return f"0x{cut.hex()}{ellipsis}" if cut else ""


def render_last_key(end: bytes) -> str:
    """Return the last key before a bound, where that is its successor."""
    return render_key(end.removesuffix(b"\0"))
