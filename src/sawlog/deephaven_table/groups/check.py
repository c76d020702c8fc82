"""Whether the rows of a group have its value: a filter that trusts a wrong grouping would lose rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.deephaven.types import ColumnType
from sawlog.deephaven_table.groups.grouping import KEY_TYPES

if TYPE_CHECKING:
    from sawlog.deephaven_table.columns import ColumnReader
    from sawlog.deephaven_table.groups.grouping import Grouping


class GroupComparison:
    """Compares rows with the groups they are said to be in.

    Args:
        grouping: Groups that hold every row exactly once.
        kind: The type of the column.
        target: Its Arrow type.
    """

    def __init__(self, grouping: Grouping, kind: ColumnType, target: pa.DataType) -> None:
        values = list(grouping.values)
        if pa.types.is_dictionary(target):
            target = target.value_type
        if kind is ColumnType.CHAR and pa.types.is_string(target):
            values = [None if value is None else chr(value) for value in values]
        self.type = target
        self._values = pa.array(values, target)
        self._ends = grouping.ends

    def differing(self, first: int, array: pa.Array) -> int | None:
        """The first of the rows from `first` on whose value is not that of its group; None if there is none."""
        rows = np.arange(first, first + len(array))
        place = self._differs(array, self._values.take(pa.array(np.searchsorted(self._ends, rows, side="right"))))
        return None if place is None else first + place

    def beginning(self, reader: ColumnReader) -> int | None:
        """The first row of the first group whose first row has another value; None if there is none."""
        rows = np.concatenate([np.zeros(1, np.int64), self._ends[:-1]])[: len(self._ends)]
        place = self._differs(reader.sample(rows), self._values)
        return None if place is None else int(rows[place])

    def _differs(self, array: pa.Array, expected: pa.Array) -> int | None:
        import pyarrow.compute as pc

        found = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        same = pc.or_(pc.fill_null(pc.equal(found, expected), False), pc.and_(found.is_null(), expected.is_null()))
        if pa.types.is_floating(self.type):
            nan = pc.and_(pc.is_nan(found), pc.is_nan(expected))
            same = pc.or_(same, pc.fill_null(nan, False))
        place = int(same.index(False).as_py())
        return None if place < 0 else place


def comparable(grouping: Grouping | None, kind: ColumnType) -> bool:
    """Whether the values of the groups are of the column's type, so that filters may use them."""
    return grouping is not None and (KEY_TYPES.get(kind) == grouping.key_type or kind is ColumnType.DATE_TIME)
