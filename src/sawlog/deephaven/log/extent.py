"""Extent of a log: how far it is committed, where it may be cut, and what is deleted, found in one walk."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from sawlog.deephaven.log.fragments import RowRange
from sawlog.format.damage import Findings, TailStatus

_STEPS_PER_CUT = 64
"""How often a walk looks for a cut on the way to one."""
_ROW_BYTES = 32
"""Bytes of a small row."""


@dataclass(frozen=True, slots=True)
class RangeExtent:
    """Committed end, cuts and deletions that a walk has found.

    Attributes:
        end: Where the last complete set of rows ends, or where the walk was to stop.
        cuts: Places between sets, ascending: what follows does not depend on what came before.
        live_from: End of the last DELETE_PARTITION; -1 when there is none.
        stopped: Whether the walk stopped where it was to, in front of the end.
    """

    end: int
    cuts: tuple[int, ...]
    live_from: int
    stopped: bool = False


def measure_range(
    fragment: RowRange, step: int | None = None, max_bytes: int | None = None, *, last: bool
) -> RangeExtent:
    """Walk a range up to the end of its log, over damage.

    Args:
        fragment: The range; without columns.
        step: Bytes between cuts, about; None: there are to be none.
        max_bytes: Bytes after which to stop at the next cut; None: never.
        last: Whether the log may still grow: then damage at its end may be an entry on its way, and what damage may
            have broken is left out as well.
    """
    findings = Findings("skip")
    cuts: list[int] = []
    last_cut = fragment.start
    limit = None if max_bytes is None else fragment.start + max_bytes
    with closing(fragment.scan.storage.open(fragment.path)) as source:
        walk = fragment.walk(source, pa.schema([]), findings)
        if step is not None:
            walk.most_rows = max(1, min(step, max_bytes or step) // _STEPS_PER_CUT // _ROW_BYTES)
        for _ in walk.read_batches():
            position = int(walk.state.position)
            if not walk.between_sets:
                continue
            if limit is not None and position >= limit and position < fragment.file.size:
                return RangeExtent(position, tuple(cuts), int(walk.state.last_delete), stopped=True)
            if step is not None and position - last_cut >= step:
                cuts.append(position)
                last_cut = position
    tail = findings.tail
    end = fragment.file.size if tail is None or tail.status is TailStatus.CLEAN else tail.offset
    if last and walk.state.orphaned:
        end = int(walk.state.orphaned_from)
    return RangeExtent(end, tuple(cuts), int(walk.state.last_delete))
