"""Values of fixed width and strings, decoded and encoded. Sections 4.1 and 4.2.

Fixed widths are Arrow arrays over the bytes of the file where their order and place allow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    TICKS_PER_SECOND,
    compute_offsets,
    fill_null,
    find_index,
    is_text,
    make_bitmap,
    make_fixed_array,
    make_scalar,
    pack_bits,
    unpack_booleans,
    view_binary,
    view_values,
)
from sawlog.deephaven.nulls import refuse_nulls
from sawlog.deephaven.table.kernels import holds
from sawlog.deephaven.table.layout import EMPTY_STRING
from sawlog.deephaven.text import CHARSETS, decode_characters, decode_text, encode_code_units, encode_string
from sawlog.deephaven.types import FIXED, NUMBERS, ColumnType
from sawlog.errors import SchemaError
from sawlog.kernels.columns import gather_slices
from sawlog.storage import Bytes

MAX_VALUE = (1 << 31) - 1
"""Bytes that the values of one Arrow array may have together."""
_BEYOND_ASCII = 0x80
_WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
_UNSIGNED = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_NULLS = {
    kind: tuple(_WORDS[facts.width].type(pattern) for pattern in (facts.null, facts.also_null) if pattern is not None)
    for kind, facts in FIXED.items()
}
"""The patterns that stand for null, as numbers that kernels take."""
_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Identifies an array among what is written, for messages."""

    column: str
    row: int

    def make_error(self, index: int, message: str) -> SchemaError:
        """Return what to raise about value `index` of the array."""
        return SchemaError(f"column {self.column!r}, row {self.row + index}: {message}")


@dataclass(frozen=True, slots=True)
class ElementPlace(ArrayPlace):
    """Identifies elements of lists: the list of element `index` is the first that ends after it."""

    ends: Any

    def make_error(self, index: int, message: str) -> SchemaError:
        return SchemaError(
            f"column {self.column!r}, row {self.row + int(self.ends.searchsorted(index, 'right'))}: {message}"
        )


def decode_words(data: Bytes, width: int, *, little: bool) -> NDArray[Any]:
    """Return bytes as unsigned integers of the machine's order: a view where that is possible, otherwise a copy.

    Args:
        data: Whole values.
        width: 1, 2, 4 or 8.
        little: Byte order of the data.
    """
    values: NDArray[Any] = data.view(_WORDS[width])
    if not values.flags.aligned:
        values = values.copy()
    if little != np.little_endian and width > 1:
        values = values.byteswap()
    values.flags.writeable = False
    return values


def make_validity(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return a mask of the values that are not null; None where all are."""
    return unpack_booleans(array.is_valid()) if array.null_count else None


def cast(array: pa.Array, kind: pa.DataType, place: ArrayPlace) -> pa.Array:
    """Cast without loss.

    Raises:
        SchemaError: Naming the first row that cannot be.
    """
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        for row in range(len(array)):
            try:
                array.slice(row, 1).cast(kind)
            except pa.ArrowInvalid as reason:
                raise place.make_error(row, f"{array[row]} cannot be written as {kind}: {reason}") from reason
        raise SchemaError(f"column {place.column!r}: {error}") from error
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(f"column {place.column!r} is {array.type}, expected {kind}") from error


def convert_views(array: pa.Array) -> pa.Array:
    """Return strings as they are, but for views of strings, which Arrow has few kernels for."""
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def make_plain_array(kind: ColumnType, values: NDArray[Any], target: pa.DataType, *, sentinels: bool) -> pa.Array:
    """Return values of a fixed width as an Arrow array.

    Args:
        kind: Type of the column.
        values: Bit patterns, unsigned.
        target: Arrow type; a char may become a string.
        sentinels: Whether the patterns that stand for null become null.
    """
    if kind is ColumnType.BOOLEAN:
        # Null has no other form among true and false, so these sentinels are always null.
        valid = (values != FIXED[kind].null) & (values != FIXED[kind].also_null)
        return pa.Array.from_buffers(pa.bool_(), len(values), [make_bitmap(valid), pack_bits(values != 0)])
    nulls = None
    if sentinels and any(holds(values, pattern) for pattern in _NULLS[kind]):
        first, *other_nulls = _NULLS[kind]
        valid = values != first
        for pattern in other_nulls:
            valid &= values != pattern
        nulls = make_bitmap(valid)
    if pa.types.is_string(target):
        return decode_characters(values, nulls)
    if nulls is None:
        return make_fixed_array(target, values)
    return pa.Array.from_buffers(target, len(values), [nulls, pa.py_buffer(values)])


def encode_fixed(kind: ColumnType, array: pa.Array, place: ArrayPlace) -> NDArray[Any]:
    """Return the bit patterns of values of fixed width, little endian; nulls are the type's sentinel.

    Raises:
        SchemaError: For a value that is the sentinel, or that the type does not reach.
    """
    facts = FIXED[kind]
    dtype = _UNSIGNED[facts.width]
    valid = make_validity(array)
    if pa.types.is_null(array.type):
        return np.full(len(array), facts.null, dtype)
    if kind is ColumnType.BOOLEAN:
        bits: NDArray[Any] = unpack_booleans(array).view(dtype)
    elif kind is ColumnType.DATE_TIME and array.type != pa.int64():
        bits = _convert_nanoseconds(array, valid, place).view(dtype)
    elif kind is ColumnType.CHAR and is_text(array.type):
        bits = encode_code_units(array, place.make_error)
    else:
        array = cast(array, facts.arrow, place) if kind in NUMBERS else array
        bits = view_values(array, dtype)
    # Of other types than Char only readers take a second pattern for null.
    mask = facts.null ^ facts.also_null if kind is ColumnType.CHAR and facts.also_null is not None else 0
    refuse_nulls(bits, valid, (facts.null, mask), array, str(kind), place.make_error)
    return bits if valid is None else np.where(valid, bits, np.array(facts.null, dtype))


def _convert_nanoseconds(array: pa.Array, valid: NDArray[np.bool_] | None, place: ArrayPlace) -> NDArray[np.int64]:
    factor = TICKS_PER_SECOND["ns"] // TICKS_PER_SECOND[array.type.unit]
    values = view_values(array, "<i8")
    if factor == 1:
        return values
    limit = _MAX_LONG // factor
    far = (values > limit) | (values < -limit)
    if valid is not None:
        far &= valid
    if far.any():
        row = int(far.argmax())
        raise place.make_error(
            row, f"{array.cast(pa.int64())[row]} {array.type.unit} since 1970 is out of a DateTime's reach"
        )
    with np.errstate(over="ignore"):  # of nulls
        return values * factor


@dataclass(slots=True)
class Slices:
    """Values of variable width.

    Attributes:
        data: The bytes of all values, one after the other.
        ends: int32; value i is `data[ends[i] : ends[i + 1]]`, and `ends[0]` is 0.
        bad: Which values have offsets that cannot be.
    """

    data: Bytes
    ends: NDArray[np.int32]
    bad: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Bytes of every value."""
        return np.diff(self.ends)

    def make_binary(self, valid: NDArray[np.bool_]) -> pa.Array:
        """Return the values as binary."""
        buffers = [make_bitmap(valid), pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(valid), buffers)

    def keep(self, mask: NDArray[np.bool_]) -> Slices:
        """Return the values without those of their bytes that are not to be kept."""
        return Slices(self.data[mask], compute_offsets(mask)[self.ends].astype(np.int32), self.bad)


def check_ends(ends: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """Return which values have offsets that cannot be: before their own beginning, or outside the binary data.

    Args:
        ends: The end of the value before the first, then the ends of all values.
        size: Bytes of the binary data.
    """
    inside = (ends >= 0) & (ends <= size)
    bad: NDArray[np.bool_] = ~inside[1:] | ~inside[:-1] | (ends[1:] < ends[:-1])
    return bad


def gather(ends: NDArray[np.int64], bad: NDArray[np.bool_], data: Bytes, base: int) -> Slices:
    """Return the values between checked offsets. Bad ones become empty."""
    if not bad.any():
        return Slices(data, (ends - base).astype(np.int32), bad)
    lengths = np.where(bad, 0, np.diff(ends))
    starts = np.where(bad, 0, ends[:-1] - base)
    out = np.zeros(int(lengths.sum()), np.uint8)
    moved = np.zeros(len(ends), np.int32)
    gather_slices(data, starts, lengths, out, moved.view(np.uint8))
    out.flags.writeable = False
    return Slices(out, moved, bad)


def make_text_array(slices: Slices, charset: str) -> tuple[pa.Array, list[int]]:
    """Return strings: no byte is null, a single NUL is the empty string.

    Returns:
        Strings, and the rows in which something was replaced because it is malformed.
    """
    lengths = slices.lengths
    valid = lengths > 0
    single = np.flatnonzero(lengths == len(EMPTY_STRING))
    empty = slices.ends[:-1][single]
    empty = empty[slices.data[empty] == EMPTY_STRING[0]]
    if len(empty):
        mask = np.ones(len(slices.data), np.bool_)
        mask[empty] = False
        slices = slices.keep(mask)
    ascii = bool(slices.data.max(initial=0) < _BEYOND_ASCII)
    return decode_text(slices.make_binary(valid), charset, ascii=ascii)


def encode_strings(array: pa.Array, charset: str, place: ArrayPlace) -> tuple[NDArray[np.int64], Any]:
    """Return strings without a symbol table: bytes per row, and all bytes.

    Raises:
        SchemaError: For a string that the charset does not have, or a lone NUL, which would be read as empty.
    """
    import pyarrow.compute as pc

    # Nulls may own bytes in Arrow, never here.
    text = cast(array, pa.large_string(), place)
    encoded = _encode_charset(text, charset, place)
    sizes = pc.binary_length(encoded)
    extremes = pc.min_max(sizes)
    if array.null_count < len(array) and extremes["min"].as_py() <= 1:
        nul = find_index(encoded, EMPTY_STRING)
        if nul >= 0:
            raise place.make_error(nul, "a string of one NUL would be read as an empty one")
        if extremes["min"].as_py() == 0:
            encoded = pc.if_else(
                pc.equal(sizes, make_scalar(0, sizes.type)), make_scalar(EMPTY_STRING, pa.large_binary()), encoded
            )
    return split_binary(encoded)


def _encode_charset(text: pa.Array, charset: str, place: ArrayPlace) -> pa.Array:
    """Return strings as large_binary in a charset; empty ones stay empty."""
    import pyarrow.compute as pc

    binary = text.view(pa.large_binary())
    if charset == "UTF-8":
        return binary
    if not charset.startswith("UTF-16"):
        data = split_binary(binary)[1]
        if not (np.frombuffer(data, np.uint8) & 0x80).any():
            return binary
        try:
            moved = np.frombuffer(bytes(data).decode().encode(CHARSETS[charset]), np.uint8)
        except UnicodeEncodeError:
            pass  # the slow way below finds the row
        else:
            sizes = view_values(fill_null(pc.utf8_length(text), 0).cast(pa.int64()), "<i8")
            return _make_large_binary(sizes, moved, text)
    encoded = []
    for row, value in enumerate(text.to_pylist()):
        try:
            encoded.append(b"" if not value else _encode_text(value, charset))
        except ValueError as error:
            lacks = isinstance(error, UnicodeEncodeError)
            advice = f'{value!r} cannot be written in {charset}; charset="UTF-8" takes every text'
            raise place.make_error(row, advice if lacks else str(error)) from error
    return _make_large_binary(np.fromiter(map(len, encoded), np.int64, len(encoded)), b"".join(encoded), text)


def _make_large_binary(sizes: NDArray[np.int64], data: Any, like: pa.Array) -> pa.Array:
    buffers = [make_bitmap(make_validity(like)), pa.py_buffer(compute_offsets(sizes)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def split_binary(array: pa.Array) -> tuple[NDArray[np.int64], Any]:
    """Return a large_binary array as bytes per row and all bytes; a null has none."""
    array = fill_null(array, b"")
    data, ends = view_binary(array)
    return np.diff(ends), data[ends[0] : ends[-1]]


def _encode_text(text: str, charset: str) -> bytes:
    """Encode a string in a charset, as Java writes it; an empty one is a single zero byte.

    Raises:
        UnicodeEncodeError: When the charset lacks a character.
        ValueError: When the bytes would be read as an empty string.
    """
    if not text:
        return EMPTY_STRING
    data = encode_string(text, charset)
    if data == EMPTY_STRING:
        raise ValueError("a string of one NUL would be read as an empty one")
    return data
