"""What every byte of a table is for: its blocks in file order, and what lies between them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from sawlog.leveldb_table import layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb_table.meta import TableMap


class Role(IntEnum):
    """What a span is."""

    DATA = 0
    RANGE_DELETES = 1
    VALUES = 2
    """Values that entries lead to."""
    HEADER = 3
    """Whatever leads to the data, with the footer."""
    GAP = 4
    """No block that anything leads to."""
    OVERLAP = 5
    """Named as a data block, but other blocks lie there, or it reaches beyond the blocks."""


SPAN = np.dtype([("offset", np.int64), ("length", np.int64), ("role", np.int64), ("number", np.int64)], align=True)
"""File offset and bytes, trailers included; a `Role`; the number of the data block in the index, or -1."""


def spans_of(table: TableMap) -> NDArray[np.void]:
    """All of a table as spans, in order and without overlap: their lengths add up to the file's size."""
    limit = table.rules.limit
    data = np.zeros(len(table.handles), SPAN)
    # What reaches beyond the file is cut off here, and found out by its handle.
    data["offset"] = np.minimum(table.handles["offset"], np.uint64(limit))
    room = limit - data["offset"]
    lengths = np.minimum(table.handles["stored"], np.uint64(limit)).astype(np.int64) + layout.TRAILER_SIZE
    data["role"] = np.where(lengths > room, Role.OVERLAP, Role.DATA)
    data["length"] = np.minimum(lengths, room)
    data["number"] = np.arange(len(data))
    others = np.zeros(len(table.others), SPAN)
    for span, (name, handle) in zip(others, table.others, strict=True):
        offset = min(handle.offset, limit)
        role = Role.VALUES if name == layout.VALUE_BLOCK else Role.HEADER
        role = Role.RANGE_DELETES if handle == table.range_deletes else role
        length = min(handle.size + layout.TRAILER_SIZE, limit - offset)
        span["offset"], span["length"], span["role"], span["number"] = offset, length, role, -1
    found = np.concatenate([others, data])
    found = found[np.argsort(found["offset"], kind="stable")]
    return _without_overlap(found, limit, table.footer.size)


def _without_overlap(found: NDArray[np.void], limit: int, footer: int) -> NDArray[np.void]:
    ends = found["offset"] + found["length"]
    covered = np.maximum.accumulate(np.concatenate([np.zeros(1, np.int64), ends]))[: len(found)]
    overlapping = found["offset"] < covered
    found["role"] = np.where(overlapping & (found["role"] <= Role.VALUES), Role.OVERLAP, found["role"])
    starts = np.maximum(found["offset"], covered)
    found["offset"] = starts
    found["length"] = np.maximum(ends - starts, 0)
    gaps = np.zeros(len(found) + 1, SPAN)
    gaps["offset"] = np.concatenate([covered, np.full(1, max(int(ends.max(initial=0)), 0))])
    gaps["length"] = np.concatenate([starts, np.full(1, limit)]) - gaps["offset"]
    gaps["role"] = Role.GAP
    gaps["number"] = -1
    end = np.zeros(1, SPAN)
    end["offset"], end["length"], end["role"], end["number"] = limit, footer, Role.HEADER, -1
    kept = np.concatenate(
        [found[(found["length"] > 0) | (found["role"] == Role.OVERLAP)], gaps[gaps["length"] > 0], end]
    )
    ordered: NDArray[np.void] = kept[np.argsort(kept["offset"], kind="stable")]
    return ordered
