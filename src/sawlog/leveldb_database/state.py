"""The entries of a range of keys, from tables and logs, put in order and settled."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.leveldb_database import kernels as k

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY, SEQUENCE, OPERATION = "key", "sequence", "operation"
RANGE = "delete_range"
_DELETES = ("delete", "single_delete", "delete_sized")


@dataclass(frozen=True, slots=True)
class Settled:
    """Entries in key order, newest first where keys are equal.

    Attributes:
        rows: The entries, with all of their columns.
        live: Whether a database would answer with each.
    """

    rows: pa.Table
    live: NDArray[np.bool_]


def settle(runs: Iterable[pa.Table], *, bytewise: bool) -> Settled:
    """Put runs in order, and tell what of them is alive.

    Args:
        runs: Tables with `key`, `sequence` and `operation`, and the same other columns; each in the order in which a
            database keeps it, or not.
        bytewise: Whether that order is the bytes'; otherwise all is sorted anew.
    """
    tables = [run for run in runs if run.num_rows]
    if not tables:
        empty = pa.table({KEY: pa.array([], pa.binary())})
        return Settled(empty, np.zeros(0, np.bool_))
    every = pa.concat_tables(tables)
    lengths = [run.num_rows for run in tables]
    ranges = pc.equal(every.column(OPERATION), RANGE)
    entries = _entries(every)
    order = _merged(entries, lengths) if bytewise else _sorted(every)
    covers = _covers(every.filter(ranges).select([KEY, "value", SEQUENCE]))
    fates = np.zeros(len(order), np.uint8)
    k.settle(entries, order, covers, fates)
    live = (fates == k.SHOWN) & ~np.asarray(ranges)[order]
    return Settled(every.take(pa.array(order)), live)


@cache
def _effects() -> pa.Array:
    return pa.array([*_DELETES, "merge", RANGE])


def _entries(table: pa.Table) -> k.Entries:
    """The columns as kernels take them."""
    column = table.column(KEY).cast(pa.large_binary()).combine_chunks()
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    keys = np.frombuffer(data or b"", np.uint8)
    places = pc.fill_null(pc.index_in(table.column(OPERATION), value_set=_effects()), -1)
    codes = np.asarray(places.combine_chunks())
    effects = np.where(codes == len(_DELETES), k.MERGES, k.PUTS)
    effects = np.where((codes >= 0) & (codes < len(_DELETES)), k.DELETES, effects).astype(np.uint8)
    # A range deletion is no entry of its first key: it neither hides nor shows it.
    effects[codes == len(_DELETES) + 1] = k.MERGES
    sequences = np.asarray(table.column(SEQUENCE).combine_chunks())
    found = (keys, offsets[:-1], offsets[1:], sequences, effects)
    for array in found:
        array.flags.writeable = False
    return k.Entries(*found)


def _merged(entries: k.Entries, lengths: list[int]) -> NDArray[np.int64]:
    """Runs merged by twos, as long as there are more than one; runs that are none are sorted before."""
    edges = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    order = np.arange(edges[-1])
    for first, last in itertools.pairwise(edges):
        if not k.sorted_so(entries, first, last):
            order[first:last] = first + _sorted_slice(entries, first, last)
    while len(edges) > 2:
        merged = order.copy()
        for first, middle, last in zip(edges[0:-2:2], edges[1:-1:2], edges[2::2], strict=True):
            k.merge_runs(entries, order, first, middle, last, merged)
        order = merged
        edges = [*edges[0:-1:2], edges[-1]]
    return order


def _sorted_slice(entries: k.Entries, first: int, last: int) -> NDArray[np.int64]:
    starts, ends = entries.starts[first:last], entries.ends[first:last]
    offsets = np.concatenate([starts, ends[-1:]])
    keys = pa.Array.from_buffers(
        pa.large_binary(), last - first, [None, pa.py_buffer(offsets), pa.py_buffer(entries.keys)]
    )
    return _sorted(pa.table({KEY: keys, SEQUENCE: pa.array(entries.sequences[first:last])}))


def _sorted(table: pa.Table) -> NDArray[np.int64]:
    keys = [(KEY, "ascending"), (SEQUENCE, "descending")]
    return np.asarray(pc.sort_indices(table.select([KEY, SEQUENCE]), sort_keys=keys)).astype(np.int64)


def _covers(ranges: pa.Table) -> k.Covers:
    """Range deletions as disjoint ranges, each with the newest that covers it."""
    rows = [(key, end, sequence) for key, end, sequence in zip(*ranges.to_pydict().values(), strict=True) if key < end]
    edges = sorted({edge for row in rows for edge in row[:2]})
    rows.sort()
    active: list[tuple[int, bytes]] = []
    waiting = 0
    sequences = []
    for edge in edges:
        while waiting < len(rows) and rows[waiting][0] <= edge:
            _, end, sequence = rows[waiting]
            heapq.heappush(active, (-sequence, end))
            waiting += 1
        while active and active[0][1] <= edge:
            heapq.heappop(active)
        sequences.append(-active[0][0] if active else -1)
    starts = np.concatenate([[0], np.cumsum([len(edge) for edge in edges])]).astype(np.int64)
    keys = np.frombuffer(b"".join(edges), np.uint8)
    return k.Covers(keys, starts, np.array(sequences, np.int64))
