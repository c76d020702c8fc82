"""Which entries of a table stand where a database looks for them: the one judgement of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.arrow import array_of, fixed_array, scalar_of, values_of
from sawlog.damage import Damage
from sawlog.leveldb.database import kernels as k
from sawlog.leveldb.database.columns import RANGE, STRAY
from sawlog.leveldb.database.state import binary_parts
from sawlog.leveldb.table.columns import KEY, OPERATION, VALUE
from sawlog.leveldb.table.layout import Kind

if TYPE_CHECKING:
    from sawlog.damage import Findings
    from sawlog.leveldb.database.version import LiveTable


_BEFORE = -1
"""Instead of the entry after which another one is given: those before the batch."""
_BEHIND = -2
"""Instead of it: all that the table should hold."""


class Judge:
    """Judges the entries of one table, in the order of the file.

    The key of each must lie in the range that the MANIFEST names, and not before that of another one. Where it does
    not, the entry is kept apart, as if it followed the last one that is in its place. So entries are given in the
    order of the file, and every range of keys has its share of them, whatever their keys are.

    Args:
        live: What the MANIFEST says of the table.
        begins: Which share is wanted: entries from this key on.
        ends: Entries before this key; `None`: all that follow.
    """

    def __init__(self, live: LiveTable, begins: bytes, ends: bytes | None) -> None:
        self._live = live
        self._begins = begins
        self._ends = ends
        self._place = live.smallest
        self._told: bytes | None = None
        self._waiting: list[Damage] = []

    def entries(self, batch: pa.RecordBatch, offset: int) -> Iterator[pa.RecordBatch]:
        """The share in a batch of data blocks: entries in their places, and those that are not, with `STRAY`.

        Args:
            batch: With `key` and `operation`.
            offset: Of the first block.
        """
        keys, rows = batch.column(KEY), batch.num_rows
        before, end = self._place, self._live.end
        own, places = np.arange(rows), np.full(rows, _BEFORE)
        first = _first(pc.greater_equal(keys, scalar_of(before, pa.binary()))) if keys[0].as_py() < before else 0
        if first < rows:
            self._place = keys[int(k.find_places(*binary_parts(keys), first, places))].as_py()
        if self._place >= end:
            places[
                _first(
                    pc.and_(pc.greater_equal(keys, scalar_of(end, pa.binary())), array_of(places == own, pa.bool_()))
                ) :
            ] = _BEHIND
            self._place = end
        # Range deletions have blocks of their own.
        lost = (places != own) | (values_of(batch.column(OPERATION), np.uint8) == RANGE)
        if lost.any():
            known = pa.concat_arrays([keys, array_of([before, end], pa.binary())])
            found = np.where(places < 0, rows - 1 - places, places)[lost]
            yield from self._strays(
                batch.filter(array_of(lost, pa.bool_())), known.take(fixed_array(pa.int64(), found)), offset
            )
            batch = batch.filter(array_of(~lost, pa.bool_()))
        kept = self._share(batch)
        if kept.num_rows:
            yield kept

    def deletions(self, batch: pa.RecordBatch, offset: int) -> Iterator[pa.RecordBatch]:
        """Range deletions: they hold as far as the range of their table, and are no damage where they reach beyond."""
        found = values_of(batch.column(OPERATION), np.uint8) == RANGE
        if VALUE in batch.schema.names and found.any():
            yield from self._clipped(batch.filter(array_of(found, pa.bool_())), offset)
        if not found.all():
            self._told = None
            yield from self._strays(*self._placed(batch.filter(array_of(~found, pa.bool_()))), offset)

    def _clipped(self, batch: pa.RecordBatch, offset: int) -> Iterator[pa.RecordBatch]:
        smallest, end = self._live.smallest, self._live.end
        keys, values = (batch.column(name).to_pylist() for name in (KEY, VALUE))
        inside = [key < end and (key >= smallest or value > smallest) for key, value in zip(keys, values, strict=True)]
        if not all(inside) and not self._live.part:
            outside = batch.filter(array_of([not one for one in inside], pa.bool_()))
            yield from self._strays(*self._placed(outside), offset, told=False)
        cut = {KEY: [max(key, smallest) for key in keys], VALUE: [min(value, end) for value in values]}
        columns = [
            array_of(cut[name], pa.binary()) if name in cut else batch.column(name) for name in batch.schema.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema).filter(array_of(inside, pa.bool_()))

    def _placed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Entries that no order is known of, in that of their keys, each in the place that is nearest to its key."""
        batch = batch.sort_by(KEY)
        smallest, end = self._live.smallest, self._live.end
        return batch, array_of([min(max(key, smallest), end) for key in batch.column(KEY).to_pylist()], pa.binary())

    def _strays(
        self, batch: pa.RecordBatch, places: pa.Array, offset: int, *, told: bool = True
    ) -> Iterator[pa.RecordBatch]:
        keys = batch.column(KEY)
        at = batch.schema.get_field_index(KEY)
        strays = batch.set_column(at, batch.schema.field(at), places).append_column(STRAY, keys)
        if self._live.part:
            inside = pc.and_(
                pc.greater_equal(keys, scalar_of(self._live.smallest, pa.binary())),
                pc.less(keys, scalar_of(self._live.end, pa.binary())),
            )
            strays = strays.filter(inside)
        strays = self._share(strays)
        if told:
            for key, place in zip(*(strays.column(name).to_pylist() for name in (STRAY, KEY)), strict=True):
                if place != self._told:
                    self._told = place
                    self._waiting.append(self._damage(key, offset))
        if strays.num_rows:
            yield strays

    def _damage(self, key: bytes, offset: int) -> Damage:
        live = self._live
        detail = (
            f"the key {key[:40]!r} is where a database does not look for it:"
            f" after larger keys, or not between {live.smallest[:40]!r} and {live.end[:40]!r}, as the MANIFEST has it"
        )
        return Damage(live.file.path, offset, 0, Kind.MISPLACED_KEY.name.lower(), detail)

    def _share(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return share(batch, self._begins, self._ends)

    def tell(self, findings: Findings) -> None:
        """Report the first entry of each place that is not its own, once what precedes it is given."""
        waiting, self._waiting = self._waiting, []
        for damage in waiting:
            findings.damage(damage)


def _first(found: pa.Array) -> int:
    """The first place that is true; how many there are if none is."""
    at = pc.index(found, True).as_py()
    return len(found) if at < 0 else int(at)


def share(batch: pa.RecordBatch, low: bytes, high: bytes | None) -> pa.RecordBatch:
    """The entries on keys in `[low, high)`, of such as are in key order."""
    keys = batch.column(KEY)
    first = count_below(keys, low) if low else 0
    last = len(keys) if high is None else count_below(keys, high)
    return batch.slice(first, max(last - first, 0))


def count_below(keys: pa.Array, limit: bytes) -> int:
    """How many of the keys, which are sorted, are below one."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < limit:
            low = middle + 1
        else:
            high = middle
    return low
