"""Views that decode what one application puts into keys and values; packages add them by entry points."""

from __future__ import annotations

import itertools
import posixpath
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, make_array, make_fixed_array
from sawlog.kernels.varints import ByteCursor, read_varint
from sawlog.storage import Storage


class UnknownBytesError(Exception):
    """Why a key or a value is delivered as bytes only; the message becomes the reason."""


class Entry(NamedTuple):
    """Entry of a database: key, value and sequence number.

    Attributes:
        key: Its key.
        value: Its value; `None` for a deletion.
        sequence: Its sequence number.
    """

    key: bytes
    value: bytes | None
    sequence: int


class Entries(Iterable[Entry]):
    """Entries of a database, as columns and one by one.

    Attributes:
        keys: Their keys.
        values: Their values; null for deletions.

    Args:
        keys: Their keys.
        values: Their values.
        sequences: Their sequence numbers.
    """

    def __init__(self, keys: pa.Array, values: pa.Array, sequences: pa.Array) -> None:
        self.keys = keys
        self.values = values
        self._sequences = sequences

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Entries:
        """Put entries into columns."""
        columns = list(zip(*entries, strict=True)) or [(), (), ()]
        kinds = pa.binary(), pa.binary(), pa.int64()
        return cls(*(make_array(column, kind) for column, kind in zip(columns, kinds, strict=True)))

    def filter(self, are_selected: pa.BooleanArray) -> Entries:
        """Return some of them."""
        return Entries(*(column.filter(are_selected) for column in (self.keys, self.values, self._sequences)))

    def __iter__(self) -> Iterator[Entry]:
        columns = (column.to_pylist() for column in (self.keys, self.values, self._sequences))
        yield from map(Entry, *columns)


@dataclass(frozen=True)
class Home:
    """Directory of a database, for applications that keep files next to it.

    Attributes:
        path: Its directory.
        storage: Where the directory is.
        longest: Bytes that are read of a file, or made of a compressed value, at most.
    """

    path: str
    storage: Storage
    longest: int

    def read(self, path: str) -> bytes:
        """Return a file next to the directory, by its path relative to that which both are in.

        Raises:
            UnknownBytesError: When there is none, or it is too large.
        """
        path = posixpath.join(posixpath.dirname(self.path), path)
        try:
            content = self.storage.read(path, 0, self.longest + 1)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UnknownBytesError(f"the value is in {posixpath.basename(path)}, a file that is not there") from error
        if len(content) > self.longest:
            raise UnknownBytesError(f"{posixpath.basename(path)} has more than {self.longest} bytes")
        return content


class PlainRows(NamedTuple):
    """Rows of entries that hold nothing out of the ordinary, decoded without an object for each.

    Attributes:
        is_plain: Which of the entries are such.
        columns: By name, `reason` among them; those that are null in all rows are left out. What they have for other
            entries is arbitrary.
    """

    is_plain: NDArray[np.bool_]
    columns: Mapping[str, pa.Array]


class TextColumn:
    """Texts or bytes that a kernel writes, one after the other.

    Attributes:
        buffers: Room for the bytes of all, and where each ends: text i is `bytes[ends[i] : ends[i + 1]]`.

    Args:
        rows: How many there are.
        room: How many bytes they have at most.
    """

    def __init__(self, rows: int, room: int) -> None:
        self._column = Column(np.uint8, room)
        self._ends = np.zeros(rows + 1, np.int32)
        self.buffers = self._column.values, self._ends

    def take(self, kind: pa.DataType, is_there: NDArray[np.bool_] | None = None) -> pa.Array:
        """Return the texts as an array, which owns the memory from then on; null where a text is not there."""
        return make_text_array(kind, self._column, self._ends, is_there)


_ROW_BYTES = 16
_MARGIN = 9 / 8
_MIN_GROWTH = 1 / 8


class TextRoom:
    """Room for the texts that kernels make of values: somewhat more than the last ones took, by their size.

    Args:
        room: Bytes of text that there is room for at most, for each byte of values.
        row_room: The same for each value besides.
    """

    def __init__(self, room: int, row_room: int) -> None:
        self._room = room
        self._row_room = row_room
        self._last_sizes = 2.0, 1.0  # bytes of text, and of values with `_ROW_BYTES` for each; older ones count half

    def write(self, size: int, ends: NDArray[np.int32], render: Callable[[NDArray[np.uint8], int], Any]) -> Column:
        """Return texts, one after the other. Those for which there is no room are left to Python.

        Args:
            size: How many bytes the values have.
            ends: `ends[i + 1]` becomes the end of text i; all are 0.
            render: Writes texts from a row on, and returns the row for which there was no room, or how many there are.
        """
        rows = len(ends) - 1
        basis, limit = size + _ROW_BYTES * rows, self._room * size + self._row_room * (rows + 1)
        last_text, last_basis = self._last_sizes
        growth = _MARGIN * max(last_text / last_basis, _MIN_GROWTH)
        out, row = Column(np.uint8, min(int(growth * basis) + self._row_room, limit)), 0
        while (row := render(out.values, row)) < rows:
            used, room = int(ends[row]), len(out.values)
            if room == limit:
                row += 1
                ends[row] = used
            else:
                full, out = out, Column(np.uint8, min(max(2 * room, int(_MARGIN * used * rows / max(row, 1))), limit))
                out.values[:used] = full.values[:used]
        self._last_sizes = last_text / 2 + int(ends[-1]), last_basis / 2 + max(basis, 1)
        return out


_MOST_RUNS = 64
"""Runs of rows up to which they are put into a column by slices."""


def put_rows(column: pa.Array, places: NDArray[np.int64], rows: pa.Array) -> pa.Array:
    """Return a column with others of its rows at some places, which ascend."""
    if not len(rows):
        return column
    edges = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    if len(edges) > _MOST_RUNS:
        indices = np.arange(len(column))
        indices[places] = np.arange(len(column), len(column) + len(rows))
        return pa.concat_arrays([column, rows]).take(make_fixed_array(pa.int64(), indices))
    parts, end = [], 0
    for first, last in itertools.pairwise(edges):
        place = int(places[first])
        parts += [column.slice(end, place - end), rows.slice(first, last - first)]
        end = place + last - first
    return pa.concat_arrays([*parts, column.slice(end)])


def make_text_array(
    kind: pa.DataType, data: Column, ends: NDArray[np.int32], is_there: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return the array of which text i is `data[ends[i] : ends[i + 1]]`; null where it is not there."""
    validity = None if is_there is None or is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(kind, len(ends) - 1, [validity, pa.py_buffer(ends), data.take(int(ends[-1]))])


_TYPES = {
    "": pa.string(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "int": pa.int64(),
    "int32": pa.int32(),
    "texts": pa.list_(pa.string()),
    "time": pa.timestamp("us", "UTC"),
}


def make_columns(names: str) -> pa.Schema:
    """Return columns by their names, with spaces between them: of text, unless a colon and another type follow."""
    return pa.schema([(name, _TYPES[kind]) for name, _, kind in (column.partition(":") for column in names.split())])


class ApplicationView(ABC):
    """View of an application: a row per entry: decoded columns, then `reason`, the bytes, and the entry's columns."""

    title: ClassVar[str]
    """One line about it."""
    columns: ClassVar[pa.Schema]
    """What it decodes; all of it may be null."""
    directory: ClassVar[str] = "(?!)"
    """A regular expression: how paths of its databases end."""
    own_key: ClassVar[bytes] = b"(?!)"
    """A regular expression of keys that only its databases have."""
    names: ClassVar[tuple[bytes, bytes | None] | None] = None
    """Between which keys there is what other entries are explained by; `None`: each explains itself."""

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """Return whether a database looks like one of the application's: by `directory`, or by one of `own_key`.

        Args:
            path: Its directory.
            comparator: The name of the order of its keys.
            keys: Some of its keys, such as the first and last ones of tables.
        """
        del comparator
        is_named = re.search(rf"({self.directory})\Z", path) is not None
        return is_named or any(re.fullmatch(self.own_key, key, re.DOTALL) for key in keys)

    def make_context(self, entries: Entries, home: Home) -> Any:
        """Return what explains other entries, made of those in the range `names`, deleted and older ones included.

        Args:
            entries: By key, newest first.
            home: Where the database is.
        """
        del entries, home

    def are_names(self, keys: pa.Array) -> NDArray[np.bool_] | None:
        """Return which of many keys are of entries that `context` makes anything of; `None`: all may be."""
        del keys
        return None

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> PlainRows | None:
        """Return the rows of many entries at a time, as far as they are what `decode` says; the others are left to it.

        Args:
            keys: Their keys.
            values: Their values; those of deletions are arbitrary, and so is what is made of them.
            context: See `context`.

        Returns:
            `None`: all are left to it.
        """
        del keys, values, context
        return None

    @abstractmethod
    def decode(self, entry: Entry, context: Any) -> Mapping[str, Any]:
        """Return columns of an entry; those that are not there are null. `reason` says what is not known of it.

        Raises:
            UnknownBytesError: When nothing is known of the entry.
        """


class Cursor(ByteCursor):
    """Bytes of a value; those that are not there are an `UnknownBytesError`.

    Attributes:
        reasons: Why parts of what was read are shown as bytes, in order.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        super().__init__(data, position)
        self.reasons: list[str] = []

    def make_missing_error(self, label: str, length: int) -> UnknownBytesError:
        return UnknownBytesError(f"{label} of {length} bytes at byte {self.position}, where {self.remaining} are left")

    def peek(self) -> int:
        """Return the next byte, which stays; -1 at the end."""
        return self.data[self.position] if self.remaining else -1

    def take_unsigned(self, length: int) -> int:
        """Return an unsigned integer, little endian."""
        return int.from_bytes(self.take(length, "integer"), "little")

    def take_last_integer(self) -> int:
        """Return all bytes that are left as an unsigned integer, little endian.

        Raises:
            UnknownBytesError: When there are none, or more than 8.
        """
        if not 0 < self.remaining <= 8:
            raise UnknownBytesError(f"an integer of {self.remaining} bytes")
        return self.take_unsigned(self.remaining)

    def take_double(self) -> float:
        """Return a float64, little endian."""
        number: float = struct.unpack("<d", self.take(8, "double"))[0]
        return number

    def take_varint(self, bits: int = 64) -> int:
        """Return an unsigned integer, seven bits per byte, low ones first.

        Raises:
            UnknownBytesError: When it has more bits, or does not end.
        """
        start, longest = self.position, -(-bits // 7)
        number = read_varint(self.data, start, longest)
        if number is None and self.remaining < longest:
            self.position = len(self.data)
            self.take_byte()  # which is not there
        value, self.position = number or (1 << bits, start)
        if value >> bits:
            raise UnknownBytesError(f"varint of more than {bits} bits at byte {start}")
        return value

    def explain(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row that was read with the reason why it is not all, if there is one: the first that was noted."""
        after_end = [f"{self.remaining} bytes after the end, at byte {self.position}"] if self.remaining else []
        reasons = [*self.reasons, *after_end]
        return {**row, "reason": reasons[0]} if reasons else row

    def check_end(self) -> None:
        """Make sure that nothing is left.

        Raises:
            UnknownBytesError: When something is.
        """
        if self.remaining:
            raise UnknownBytesError(f"{self.remaining} bytes after the end, at byte {self.position}")


def read_columns(value: bytes | None, read: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    """Return columns that a value gives, and why it does not give all of them. A deletion has no value."""
    try:
        row = {} if value is None else read(value)
    except UnknownBytesError as unknown:
        row = {"reason": str(unknown)}
    reason = row.get("reason")
    return row if reason is None else {**row, "reason": f"value: {reason}"}


def make_row(columns: Mapping[str, Any], wrong: str | None, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of a key and of its value, with what is wrong with the key, or else with the value."""
    return {**value, **columns, "reason": wrong or value.get("reason")}


EPOCH = 11_644_473_600_000_000
"""Microseconds from 1601 to 1970."""
_LATEST = (1 << 63) - 1
"""The largest number of a column of times."""


def convert_time(value: int | None, unit: int = 1, epoch: int = EPOCH) -> int | None:
    """Return microseconds since 1970; `None` where the time is not set, or has no place in a column.

    Args:
        value: The time as it is stored; 0 and less are not set.
        unit: Its microseconds.
        epoch: Microseconds from its beginning to 1970; 0 if it counts from there.
    """
    time = (value or 0) * unit - epoch
    return time if value and value > 0 and abs(time) <= _LATEST else None


_INTEGER = re.compile(rb"-?[0-9]{1,20}")


def parse_integer(digits: bytes) -> int:
    """Return the integer of 64 bits that decimal digits say.

    Raises:
        UnknownBytesError: When they say none, or a larger one.
    """
    value = int(digits) if _INTEGER.fullmatch(digits) else None
    if value is None or not -(1 << 63) <= value < 1 << 63:
        raise UnknownBytesError(f"{digits[:40]!r}, expected an integer in decimal digits")
    return value


def decode_text(data: bytes, encoding: str) -> tuple[str, str | None]:
    """Return a text, and why it is not exactly what is stored, where Unicode has no place for it."""
    try:
        return data.decode(encoding), None
    except UnicodeDecodeError as error:
        replaced = data.decode(encoding, "replace")
        return replaced, f"not {encoding} at byte {error.start} of the text: shown with U+FFFD"


def read_text(column: str, value: bytes) -> dict[str, Any]:
    """Return a column that is the text of a value."""
    plain, wrong = decode_text(value, "utf-8")
    return {column: plain, "reason": wrong}


def read_integer(column: str, value: bytes) -> dict[str, Any]:
    """Return a column that is the integer that a value has digits of."""
    return {column: parse_integer(value)}
