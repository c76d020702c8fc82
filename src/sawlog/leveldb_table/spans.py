"""What every byte of a table is for: its blocks in file order, and what is between them."""

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
    count, others = len(table.handles), len(table.others)
    offsets, sizes, roles, numbers = np.zeros((4, others + count), np.int64)
    for place, (name, handle) in enumerate(table.others):
        role = Role.VALUES if name == layout.VALUE_BLOCK else Role.HEADER
        roles[place] = Role.RANGE_DELETES if handle == table.range_deletes else role
        offsets[place], sizes[place] = min(handle.offset, limit), min(handle.size, limit)
    # What reaches beyond the file is cut off here, and found out by its handle.
    offsets[others:] = np.minimum(table.handles["offset"], np.uint64(limit))
    sizes[others:] = np.minimum(table.handles["stored"], np.uint64(limit))
    sizes += layout.TRAILER_SIZE
    roles[others:] = np.where(sizes[others:] > limit - offsets[others:], Role.OVERLAP, Role.DATA)
    numbers[:others], numbers[others:] = -1, np.arange(count)
    order = np.argsort(offsets, kind="stable")
    ends = offsets + np.minimum(sizes, limit - offsets)
    return _without_overlap(offsets[order], ends[order], roles[order], numbers[order], table)


def _without_overlap(
    offsets: NDArray[np.int64],
    ends: NDArray[np.int64],
    roles: NDArray[np.int64],
    numbers: NDArray[np.int64],
    table: TableMap,
) -> NDArray[np.void]:
    """Spans in the order of their offsets, each without what is in those before; gaps and the footer with them."""
    limit = table.rules.limit
    covered = np.maximum.accumulate(np.concatenate([np.zeros(1, np.int64), ends]))
    starts = np.maximum(offsets, covered[:-1])
    roles = np.where((offsets < covered[:-1]) & (roles <= Role.VALUES), Role.OVERLAP, roles)
    kept = (starts < ends) | (roles == Role.OVERLAP)
    gaps = np.append(starts, limit) - covered
    empty = np.flatnonzero(gaps > 0)
    found = np.zeros(int(kept.sum()) + len(empty) + 1, SPAN)
    columns = (
        (starts, covered, limit),
        (np.maximum(ends - starts, 0), gaps, table.footer.size),
        (roles, np.full(len(gaps), Role.GAP), Role.HEADER),
        (numbers, np.full(len(gaps), -1), -1),
    )
    for name, (own, between, last) in zip(SPAN.names or (), columns, strict=True):
        found[name] = np.concatenate([own[kept], between[empty], np.full(1, last)])
    if len(empty) or (np.diff(found["offset"]) < 0).any():
        found = found[np.argsort(found["offset"], kind="stable")]
    return found
