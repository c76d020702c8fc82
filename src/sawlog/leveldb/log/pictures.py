"""Charts of logs of write batches: operations along the log, and sequence numbers that are missing."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.arrow import view_values
from sawlog.format.charts import LaneBox, Picture
from sawlog.format.contract import OFFSET_COLUMN, Fragment
from sawlog.format.damage import Findings
from sawlog.leveldb.columns import make_name_array
from sawlog.leveldb.records.layout import NAMES, BatchDamageKind
from sawlog.storage import File

COUNTED = ("sequence", "operation", OFFSET_COLUMN)
_SLICES = 120
SHOWN = 40
"""Of the places where numbers are missing, or go back."""
_BAD_BATCHES = frozenset(kind.label for kind in BatchDamageKind)


class _Jump(NamedTuple):
    """A place where sequence numbers do not follow each other."""

    size: int
    step: int
    path: str
    offset: int

    @property
    def text(self) -> str:
        change = f"{self.step - 1:,} are missing" if self.step > 0 else f"they go back by {-self.step:,}"
        return f"sequence numbers: {change} before byte {self.offset:,}"


class _Operations:
    """Operations of logs, one after the other, counted by slices of their bytes."""

    def __init__(self, files: Sequence[File]) -> None:
        ends = np.cumsum([0, *(file.size for file in files)])
        self._begins = {file.path: int(start) for file, start in zip(files, ends, strict=False)}
        self._total = int(ends[-1])
        self._width = max(1, -(-self._total // _SLICES))
        self._counts = np.zeros((len(NAMES), _SLICES), np.int64)
        self._firsts: dict[int, tuple[str, int]] = {}
        self._jumps: list[_Jump] = []
        self._last: int | None = None

    def add(self, path: str, batch: pa.RecordBatch) -> None:
        """Take in operations of a log, in columns `COUNTED`."""
        offsets = view_values(batch.column(OFFSET_COLUMN), np.int64)
        sequences = view_values(batch.column("sequence"), np.int64)
        codes = view_values(pc.index_in(batch.column("operation"), make_name_array(NAMES)), np.int32)
        slices = (offsets + self._begins[path]) // self._width
        np.add.at(self._counts, (codes, slices), 1)
        for row in np.unique(slices, return_index=True)[1].tolist():
            self._firsts.setdefault(int(slices[row]), (path, int(offsets[row])))
        steps = np.diff(sequences, prepend=sequences[0] if self._last is None else self._last)
        jump_rows = np.flatnonzero((steps > 1) | (steps < 0))
        largest = jump_rows[np.argsort(-np.abs(steps[jump_rows]), kind="stable")[:SHOWN]].tolist()
        jumps = (_Jump(abs(int(steps[row])), int(steps[row]), path, int(offsets[row])) for row in largest)
        self._jumps = heapq.nlargest(SHOWN, [*self._jumps, *jumps])
        self._last = int(sequences[-1])

    def draw_picture(self) -> Picture:
        highest = int(self._counts.max(initial=1))
        lanes: dict[str, list[LaneBox]] = {}
        for name, row in zip(NAMES, self._counts.tolist(), strict=True):
            for place, count in enumerate(row):
                if count:
                    start, end = place * self._width, min((place + 1) * self._width, self._total)
                    path, offset = self._firsts[place]
                    text = f"{count:,} {name} from byte {offset:,}"
                    lanes.setdefault(name, []).append(LaneBox(start, end, text, name, count / highest, path, offset))
        for jump in sorted(self._jumps, key=lambda item: self._begins[item.path] + item.offset):
            start = self._begins[jump.path] + jump.offset
            box = LaneBox(start, start + self._width / 2, jump.text, "jump", 1, jump.path, jump.offset)
            lanes.setdefault("sequence", []).append(box)
        note = "At the places in the lane sequence, numbers are missing, or go back." if self._jumps else ""
        return Picture("Operations along the log", "bytes", lanes, note, tall=True)


def draw_pictures(files: Sequence[File], fragments: Iterable[Fragment], *, certain: bool) -> Iterator[Picture]:
    """Yield one chart over all logs, one after the other.

    Args:
        files: The logs, in reading order.
        fragments: Their operations, in columns `COUNTED`.
        certain: Whether the records are write batches; otherwise there is no chart where one of them is not.
    """
    operations = _Operations(files)
    any_rows = False
    for fragment in fragments:
        findings = Findings("skip", drained=True)
        for batch in fragment.to_batches(findings):
            if batch.num_rows:
                operations.add(fragment.path, batch)
                any_rows = True
        if not certain and not _BAD_BATCHES.isdisjoint(findings.kinds):
            return
    if any_rows:
        yield operations.draw_picture()
