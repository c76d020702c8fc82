"""Following the values of a column that gets grouping metadata: the rows of each must follow one another."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa

from sawlog.deephaven.table.groups.grouping import Group, encode_grouping, find_key_type
from sawlog.deephaven.table.groups.java_stream import MAX_BYTES, MAX_ELEMENTS
from sawlog.deephaven.table.layout import JAVA_NULL
from sawlog.deephaven.table.values import ArrayPlace, convert_views
from sawlog.deephaven.types import ColumnType
from sawlog.errors import SchemaError

_MAX_GROUPS = MAX_ELEMENTS // 4
_NONE_YET = object()


class GroupTracker:
    """Collects the groups of a column.

    Raises:
        SchemaError: For types whose groups cannot be written.
    """

    def __init__(self, column: str, kind: ColumnType) -> None:
        find_key_type(kind, column)
        self._column = column
        self._kind = kind
        self._groups: list[Group] = []
        self._identities: set[Any] = set()
        self._value: Any = None
        self._identity: Any = _NONE_YET
        self._first = 0

    def add(self, array: pa.Array, row: int) -> None:
        """Take in values.

        Raises:
            SchemaError: For a value that was there before, with others between.
        """
        first = 0
        for value, end in _find_runs(array):
            identity = _make_identity(value)
            if identity != self._identity:
                if identity in self._identities:
                    raise ArrayPlace(self._column, row).make_error(
                        first, f"{value!r} again, after other values: the rows of a group must follow one another"
                    )
                self._close(row + first)
                if len(self._groups) == _MAX_GROUPS:
                    raise ArrayPlace(self._column, row).make_error(
                        first, f"more than {_MAX_GROUPS} groups, which nobody would read"
                    )
                self._identities.add(identity)
                self._value, self._identity, self._first = value, identity, row + first
            first = end

    def encode_metadata(self, rows: int) -> bytes:
        """Return the metadata of the column, which has so many rows.

        Raises:
            SchemaError: When there are more groups than readers take.
        """
        self._close(rows)
        if not self._groups:
            return JAVA_NULL
        data = encode_grouping(self._kind, self._groups, self._column)
        if len(data) > MAX_BYTES:
            raise SchemaError(
                f"column {self._column!r}: its groups take {len(data)} bytes; at most {MAX_BYTES} are read"
            )
        return data

    def _close(self, end: int) -> None:
        if self._identity is not _NONE_YET:
            character = self._kind is ColumnType.CHAR and isinstance(self._value, str)
            value = ord(self._value) if character else self._value
            self._groups.append(Group(value, self._first, end))
            self._identity = _NONE_YET


def _find_runs(array: pa.Array) -> list[tuple[Any, int]]:
    """Return values that repeat, once, with the row after them. Neighbours may still be equal."""
    import pyarrow.compute as pc

    if pa.types.is_null(array.type):
        return [(None, len(array))] if len(array) else []
    if pa.types.is_dictionary(array.type):
        runs = pc.run_end_encode(array.indices)
        values = convert_views(array.dictionary).take(runs.values)
    else:
        runs = pc.run_end_encode(convert_views(array))
        values = runs.values
    return list(zip(values.to_pylist(), runs.run_ends.to_pylist(), strict=True))


def _make_identity(value: Any) -> Any:
    """Return a key that is equal where values are the same to Java: floats by their bits, but every NaN as one."""
    if not isinstance(value, float):
        return value
    return "NaN" if math.isnan(value) else struct.pack(">d", value)
