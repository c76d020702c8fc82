"""The grouping metadata of a column: which rows have which value, and whether they do."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import fill_null, find_index, make_array, make_fixed_array
from sawlog.deephaven.table.columns import ColumnReader
from sawlog.deephaven.table.groups.java_output import BOXES, STRING_TYPE, map_stream
from sawlog.deephaven.table.groups.java_stream import read_stream
from sawlog.deephaven.table.groups.java_values import JavaArray, JavaMap, JavaObject, RangeMap
from sawlog.deephaven.table.layout import MAX_ROWS
from sawlog.deephaven.types import BOXED, ColumnType
from sawlog.errors import FormatError, SchemaError

KEY_TYPES: Final = {**BOXED, ColumnType.STRING: STRING_TYPE}
"""Classes of the keys, for the types of columns that can be grouped."""

_RANGES = ("I", "J")
_INSTANT = 2
"""First byte of an Instant as java.time.Ser writes it; then i64 seconds, i32 nanoseconds."""
_NANOS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one value: from `first` up to, not including, `end`."""

    value: Any
    first: int
    end: int


@dataclass(frozen=True)
class Grouping:
    """The groups of a column, by their first rows.

    Attributes:
        key_type: Class of the values, such as `java.lang.String`; empty when all are null or it is unknown.
        values: Values of the groups: str, int, float, bool or None. Times are nanoseconds since 1970, characters the
            numbers of their UTF-16 units.
        firsts: int64, the first row of each.
        ends: int64, the row after the last of each.
    """

    key_type: str
    values: Sequence[Any]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, key_type: str, groups: Sequence[Group]) -> Grouping:
        """Return groups one by one."""
        numbers = np.array([(group.first, group.end) for group in groups], np.int64).reshape(-1, 2)
        return cls(key_type, [group.value for group in groups], numbers[:, 0], numbers[:, 1])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Every group."""
        return self.slice(0, len(self))

    def slice(self, start: int, end: int) -> tuple[Group, ...]:
        """Return a range of the groups."""
        columns = (self.values[start:end], self.firsts[start:end].tolist(), self.ends[start:end].tolist())
        return tuple(map(Group, *columns))

    def find(self, value: Any) -> list[Group]:
        """Return the groups whose value equals the given one. Two only for 0.0 and -0.0, which Java distinguishes."""
        places = [place for place, key in enumerate(self.values) if key == value]
        return [group for place in places for group in self.slice(place, place + 1)]

    def check(self, rows: int, context: str) -> None:
        """Make sure that the groups hold every row of the column exactly once.

        Raises:
            FormatError: When they do not.
        """
        expected = np.concatenate([np.zeros(1, np.int64), self.ends])
        wrong = np.flatnonzero((self.firsts != expected[:-1]) | (self.ends > rows))
        if len(wrong):
            place = int(wrong[0])
            (group,) = self.slice(place, place + 1)
            raise FormatError(
                f"{context}: grouping: the rows of {group.value!r} are {group.first} to {group.end}; expected them"
                f" to begin at {expected[place]} and to end by {rows}"
            )
        if expected[-1] != rows:
            raise FormatError(f"{context}: grouping: the groups end at row {expected[-1]}; the column has {rows}")


def read_grouping(data: bytes, context: str) -> Grouping | None:
    """Return the grouping in the metadata of a column, header and overflow; None where it says that there is none.

    Raises:
        FormatError: When the bytes cannot be read, or hold no map of ranges where one is expected.
    """
    if not data:
        return None
    stream = read_stream(data, context, _parse_key)
    if stream.root is None:
        return None
    if not isinstance(stream.root, JavaMap | RangeMap | JavaObject):
        raise FormatError(f"{context}: expected a map of ranges or null, found {type(stream.root).__name__}")
    candidates = stream.maps if isinstance(stream.root, JavaObject) else [stream.root]
    for candidate in candidates:
        if isinstance(candidate, RangeMap):
            return _convert_ranges(candidate, context)
        if all(isinstance(value, JavaArray) and value.kind in _RANGES for _, value in candidate.entries):
            return _convert_map(candidate, context)
    if isinstance(stream.root, JavaObject):  # a column of the oldest product, without groups
        return None
    raise FormatError(f"{context}: expected a map of int[] or long[], found a map of something else")


def encode_grouping(kind: ColumnType, groups: Iterable[Group], column: str) -> bytes:
    """Return the metadata of a grouped column, of every value once with its rows.

    Raises:
        SchemaError: For types whose grouping cannot be written.
    """
    return map_stream(find_key_type(kind, column), ((group.value, group.first, group.end) for group in groups))


def find_key_type(kind: ColumnType, column: str) -> str:
    """Return Java's class of the values of a column that is grouped.

    Raises:
        SchemaError: For types whose class was never published.
    """
    if kind not in KEY_TYPES:
        type_names = ", ".join(KEY_TYPES)
        raise SchemaError(
            f"column {column!r} is {kind}, which cannot be grouped: Java's class of its values was never published;"
            f" types that can be: {type_names}"
        )
    return KEY_TYPES[kind]


def _convert_map(java_map: JavaMap, context: str) -> Grouping:
    ranges = RangeMap()
    for key, rows in java_map.entries:
        if len(rows) != 2:
            raise FormatError(f"{context}: grouping: a range of {len(rows)} numbers; expected first and end")
        name, value = _convert_key(key, context)
        if not ranges.add(name, value, rows):
            raise FormatError(f"{context}: grouping: values of {ranges.key_type} and of {name}")
    return _convert_ranges(ranges, context)


def _convert_ranges(range_map: RangeMap, context: str) -> Grouping:
    numbers = np.frombuffer(range_map.ranges, np.int64).reshape(-1, 2)
    firsts, ends = numbers[:, 0], numbers[:, 1]
    wrong = np.flatnonzero((firsts < 0) | (firsts > ends) | (ends > MAX_ROWS))
    if len(wrong):
        place = int(wrong[0])
        raise FormatError(
            f"{context}: grouping: the rows of {range_map.keys[place]!r} are {firsts[place]} to {ends[place]}"
        )
    order = np.lexsort((ends, firsts))
    return Grouping(range_map.key_type, [range_map.keys[place] for place in order], firsts[order], ends[order])


def _parse_key(key: Any) -> tuple[str, Any] | None:
    """Return class and value of a map's key; None when it is of an unknown class."""
    try:
        return _convert_key(key, "")
    except FormatError:
        return None


def _convert_key(key: Any, context: str) -> tuple[str, Any]:
    """Return class and value of a map's key."""
    if key is None:
        return "", None
    if isinstance(key, str):
        return STRING_TYPE, key
    if isinstance(key, int):  # of the product's own stream
        return "java.lang.Number", key
    if isinstance(key, JavaObject):
        name = key.type.name
        if name in BOXES and isinstance(key.values.get("value"), int | float):
            return name, key.values["value"]
        nanos = _read_nanoseconds(key)
        if nanos is not None:
            return name, nanos
        raise FormatError(f"{context}: grouping: values of the unknown class {name}")
    raise FormatError(f"{context}: grouping: {type(key).__name__} as a value")


def _read_nanoseconds(key: JavaObject) -> int | None:
    """Return a point in time: java.time.Instant, or a class of the product that holds one long."""
    block = b"".join(piece for piece in key.written if isinstance(piece, bytes))
    if key.type.name == "java.time.Ser" and len(block) == 13 and block[0] == _INSTANT:
        seconds, nanos = struct.unpack(">qi", block[1:])
        return int(seconds * _NANOS + nanos)
    if not key.type.name.endswith("DateTime"):
        return None
    if len(block) == 8:
        return int.from_bytes(block, "big", signed=True)
    if len(key.values) == 1 and all(code == "J" for code, _ in key.type.fields):
        return int(next(iter(key.values.values())))
    return None


class GroupComparison:
    """Compares rows with the groups they are said to be in."""

    def __init__(self, grouping: Grouping, kind: ColumnType, target: pa.DataType) -> None:
        values = list(grouping.values)
        if pa.types.is_dictionary(target):
            target = target.value_type
        if kind is ColumnType.CHAR and pa.types.is_string(target):
            values = [None if value is None else chr(value) for value in values]
        self.type = target
        self._values = make_array(values, target)
        self._ends = grouping.ends

    def find_differing(self, first: int, array: pa.Array) -> int | None:
        """Return the first of the rows from `first` on whose value is not that of its group; None if there is none."""
        rows = np.arange(first, first + len(array))
        place = self._differs(
            array, self._values.take(make_fixed_array(pa.int64(), np.searchsorted(self._ends, rows, side="right")))
        )
        return None if place is None else first + place

    def find_beginning(self, reader: ColumnReader) -> int | None:
        """Return the first row of the first group whose first row has another value; None if there is none."""
        rows = np.concatenate([np.zeros(1, np.int64), self._ends[:-1]])[: len(self._ends)]
        place = self._differs(reader.sample(rows), self._values)
        return None if place is None else int(rows[place])

    def _differs(self, array: pa.Array, expected: pa.Array) -> int | None:
        import pyarrow.compute as pc

        values = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        equal = pc.or_(fill_null(pc.equal(values, expected), False), pc.and_(values.is_null(), expected.is_null()))
        if pa.types.is_floating(self.type):
            nan = pc.and_(pc.is_nan(values), pc.is_nan(expected))
            equal = pc.or_(equal, fill_null(nan, False))
        place = find_index(equal, False)
        return None if place < 0 else place


def is_comparable(grouping: Grouping | None, kind: ColumnType) -> bool:
    """Return whether the values of the groups are of the column's type, so that filters may use them."""
    return grouping is not None and (KEY_TYPES.get(kind) == grouping.key_type or kind is ColumnType.DATE_TIME)
