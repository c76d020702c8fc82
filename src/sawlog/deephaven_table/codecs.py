"""Objects by their codecs. Everything is big endian, whatever the byte order of the file. Section 4.4."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.deephaven.text import encoded_array
from sawlog.deephaven.types import FIXED, ColumnType, element_type
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.plain import bitmap
from sawlog.deephaven_table.types import codec_arguments
from sawlog.guard import Undecodable, decode_by

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray

    from sawlog.deephaven_table.types import ColumnSpec
    from sawlog.deephaven_table.variable import Slices
    from sawlog.storage import Bytes

    Decoded = tuple[pa.Array, NDArray[np.bool_]]

_LIMB = 8
_NANOS = 1_000_000_000
_MAX_DAYS = (1 << 31) - 1
_PLAIN_EXPONENT = 32
"""Decimals of a larger exponent are written with an E."""


def decode_slots(spec: ColumnSpec, data: Bytes, target: pa.DataType) -> Decoded:
    """Objects of a fixed width.

    Args:
        spec: The column.
        data: Whole slots.
        target: Arrow type of the column.

    Returns:
        The values, and which of them (bool array) cannot be: they are null.
    """
    slots = data.reshape(-1, spec.slot_width)
    arguments = codec_arguments(spec.arguments)
    nullable = "notNull" not in arguments
    if spec.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        scale = int(arguments[1]) if spec.type is ColumnType.BIG_DECIMAL else 0
        return _wide_decimals(slots, scale) if pa.types.is_string(target) else _decimals(slots, target)
    if spec.type is ColumnType.LOCAL_DATE:
        return _dates(slots, nullable=nullable)
    if spec.type is ColumnType.LOCAL_TIME:
        digits = int(arguments[0]) if arguments and arguments[0].isdigit() else len(layout.TIME_FRACTION_BITS) - 1
        return _times(slots, digits, nullable=nullable)
    return _fixed_bytes(slots, nullable=nullable and "simple" not in arguments)


class _BadObjectError(Exception):
    """Bytes that are no object of their type."""


def decode_objects(spec: ColumnSpec, slices: Slices, target: pa.DataType) -> Decoded:
    """Objects of variable width; see `decode_slots`."""
    lengths = slices.lengths
    if spec.slot_width:
        return _slots_in_slices(spec, slices, target)
    if spec.type in (ColumnType.BYTE_ARRAY, ColumnType.BLOB):
        return slices.binary(lengths > 0), np.zeros(len(lengths), np.bool_)
    if spec.type is ColumnType.UTF8_STRING:
        return _utf8(slices)
    decode = _decoder(spec.type, target)
    values = []
    bad = np.zeros(len(lengths), np.bool_)
    whole = slices.data.tobytes()
    for row in range(len(lengths)):
        value = whole[slices.ends[row] : slices.ends[row + 1]]
        try:
            values.append(decode(value) if value else None)
        except _BadObjectError:
            values.append(None)
            bad[row] = True
    if pa.types.is_string(target):
        return encoded_array([None if value is None else value.encode() for value in values]), bad
    return array_of(values, target), bad


def _integers(slots: Bytes) -> NDArray[np.int64]:
    """Big-endian unsigned integers of at most 7 bytes."""
    value = np.zeros(len(slots), np.int64)
    for column in range(slots.shape[1]):
        value = value << 8 | slots[:, column]
    return value


def _limbs(magnitudes: Bytes, count: int) -> list[NDArray[np.uint64]]:
    """Big-endian numbers as words of 8 bytes, the least significant first."""
    padded = np.zeros((len(magnitudes), count * _LIMB), np.uint8)
    padded[:, count * _LIMB - magnitudes.shape[1] :] = magnitudes
    wide = padded.view(">u8").astype(np.uint64)
    return [wide[:, count - 1 - i] for i in range(count)]


def _decimals(slots: Bytes, target: pa.DataType) -> Decoded:
    sign, magnitudes = slots[:, 0], slots[:, 1:]
    negative = sign == layout.SIGN_NEGATIVE
    null = negative & (magnitudes == 0xFF).all(axis=1)
    limbs = _limbs(np.where(negative[:, None], ~magnitudes, magnitudes), target.bit_width // 64)
    limit = 10**target.precision
    too_large = np.zeros(len(slots), np.bool_)
    for i, limb in enumerate(limbs):  # the most significant comes last, and decides
        bound = np.uint64(limit >> 64 * i & (1 << 64) - 1)
        too_large = (limb > bound) | (limb == bound) & (too_large if i else np.ones(len(slots), np.bool_))
    bad = ~null & ((sign > layout.SIGN_POSITIVE) | too_large)
    valid = ~null & ~bad
    out = np.zeros((len(slots), len(limbs)), np.uint64)
    carry = negative.copy()
    for i, limb in enumerate(limbs):
        turned = np.where(negative, ~limb, limb) + carry
        carry &= turned == 0
        out[:, i] = np.where(valid, turned, 0)
    return pa.Array.from_buffers(target, len(slots), [bitmap(valid), pa.py_buffer(out)]), bad


def _wide_decimals(slots: Bytes, scale: int) -> Decoded:
    """Decimals of more digits than Arrow's have, as strings."""
    texts: list[bytes | None] = []
    bad = np.zeros(len(slots), np.bool_)
    for row, slot in enumerate(slots):
        negative = slot[0] == layout.SIGN_NEGATIVE
        magnitude = int.from_bytes((~slot[1:] if negative else slot[1:]).tobytes(), "big")
        bad[row] = slot[0] > layout.SIGN_POSITIVE
        null = negative and magnitude == 0
        try:
            text = _text(-magnitude if negative else magnitude, scale)
        except _BadObjectError:
            bad[row] = True
        texts.append(None if null or bad[row] else text.encode())
    return encoded_array(texts), bad


def _dates(slots: Bytes, *, nullable: bool) -> Decoded:
    compact = slots.shape[1] == layout.DATE_COMPACT_SIZE
    packed = _integers(slots)
    year = packed >> layout.DATE_YEAR_SHIFT
    if not compact:
        year -= layout.DATE_YEAR_BIAS
    month = packed >> layout.DATE_MONTH_SHIFT & (1 << layout.DATE_YEAR_SHIFT - layout.DATE_MONTH_SHIFT) - 1
    day = packed & (1 << layout.DATE_MONTH_SHIFT) - 1
    null = (slots[:, 0] == layout.DATE_NULL) & nullable
    days = _days(year, month, day)
    fits = (month >= 1) & (month <= 12) & (day >= 1) & (np.abs(days) <= _MAX_DAYS)
    # A day that its month does not have would be one of the next month.
    following = _days(year + month // 12, month % 12 + 1, np.ones_like(day))
    fits &= days < following
    if compact:
        fits &= year <= layout.MAX_COMPACT_YEAR
    valid = fits & ~null
    values = np.where(valid, days, 0).astype(np.int32)
    return pa.Array.from_buffers(pa.date32(), len(slots), [bitmap(valid), pa.py_buffer(values)]), ~null & ~fits


def _days(year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; years are counted from March."""
    shifted = year - (month <= 2)
    from_march = (month + 9) % 12
    leap_days = shifted // 4 - shifted // 100 + shifted // 400
    result: NDArray[np.int64] = 365 * shifted + leap_days + (153 * from_march + 2) // 5 + day - 1 - 719_468
    return result


def _times(slots: Bytes, digits: int, *, nullable: bool) -> Decoded:
    bits = layout.TIME_FRACTION_BITS[digits]
    packed = _integers(slots)
    null = (slots[:, 0] == layout.TIME_NULL) & nullable
    sixth = (1 << layout.TIME_MINUTE_SHIFT) - 1
    hour = packed >> layout.TIME_HOUR_SHIFT + bits
    minute = packed >> layout.TIME_MINUTE_SHIFT + bits & sixth
    second = packed >> bits & sixth
    fraction = packed & (1 << bits) - 1
    fits = (hour < 24) & (minute < 60) & (second < 60) & (fraction < 10**digits)
    valid = fits & ~null
    nanos = ((hour * 60 + minute) * 60 + second) * _NANOS + fraction * 10 ** (9 - digits)
    values = np.where(valid, nanos, 0)
    return pa.Array.from_buffers(pa.time64("ns"), len(slots), [bitmap(valid), pa.py_buffer(values)]), ~null & ~fits


def _fixed_bytes(slots: Bytes, *, nullable: bool) -> Decoded:
    values = slots[:, 1:] if nullable else slots
    present = slots[:, 0] == layout.BYTES_PRESENT if nullable else np.ones(len(slots), np.bool_)
    bad = ~present & (slots[:, 0] != layout.BYTES_NULL) if nullable else np.zeros(len(slots), np.bool_)
    ends = np.zeros(len(slots) + 1, np.int32)
    np.cumsum(np.where(present, values.shape[1], 0), out=ends[1:])
    data = pa.py_buffer(np.ascontiguousarray(values[present]))
    return pa.Array.from_buffers(pa.binary(), len(slots), [bitmap(present), pa.py_buffer(ends), data]), bad


def _slots_in_slices(spec: ColumnSpec, slices: Slices, target: pa.DataType) -> Decoded:
    """Objects of a codec of fixed width that were stored with offsets all the same."""
    lengths = slices.lengths
    whole = lengths == spec.slot_width
    array, unfit = decode_slots(spec, np.ascontiguousarray(slices.data[np.repeat(whole, lengths)]), target)
    places = array_of(np.where(whole, np.cumsum(whole) - 1, 0), pa.int64(), ~whole)
    bad = (lengths > 0) & ~whole
    bad[np.flatnonzero(whole)[unfit]] = True
    return array.take(places), bad


def _utf8(slices: Slices) -> Decoded:
    everything = np.ones(len(slices.bad), np.bool_)
    text = slices.binary(everything).cast(pa.string(), safe=False)
    bad = np.zeros(len(text), np.bool_)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        values: list[bytes | None] = []
        for row, scalar in enumerate(slices.binary(everything)):
            value = scalar.as_py()
            bad[row] = isinstance(decode_by(bytes.decode, value), Undecodable)
            values.append(None if bad[row] else value)
        text = encoded_array(values)
    return text, bad


def _decoder(kind: ColumnType, target: pa.DataType) -> Callable[[bytes], Any]:
    if kind in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        return _variable_text if pa.types.is_string(target) else _variable_decimal(target)
    if kind is ColumnType.ZONED_DATE_TIME:
        return _zoned
    return _map_decoder(kind)


def _variable(data: bytes) -> tuple[int, int]:
    if len(data) <= layout.SCALE_SIZE:
        raise _BadObjectError
    scale = int.from_bytes(data[: layout.SCALE_SIZE], "big", signed=True)
    return int.from_bytes(data[layout.SCALE_SIZE :], "big", signed=True), scale


def _text(unscaled: int, scale: int) -> str:
    """As Java's `toPlainString`, but with an E where that would be mostly zeros."""
    digits = decode_by(str, unscaled)
    if isinstance(digits, Undecodable):  # of more digits than Python turns into text
        raise _BadObjectError
    value = Decimal((int(unscaled < 0), tuple(map(int, digits.lstrip("-"))), -scale))
    return format(value, "f") if abs(scale) <= len(digits) + _PLAIN_EXPONENT else str(value)


def _variable_text(data: bytes) -> str:
    return _text(*_variable(data))


def _variable_decimal(target: pa.DataType) -> Callable[[bytes], Decimal]:
    def decode(data: bytes) -> Decimal:
        unscaled, scale = _variable(data)
        shift = target.scale - scale
        if abs(shift) > target.precision + len(data) * 3:
            if unscaled:
                raise _BadObjectError
            shift = 0
        factor = 10 ** abs(shift)
        shifted, rest = (unscaled * factor, 0) if shift >= 0 else divmod(unscaled, factor)
        if rest or abs(shifted) >= 10**target.precision:
            raise _BadObjectError
        return Decimal((int(shifted < 0), tuple(map(int, str(abs(shifted)))), -target.scale))

    return decode


def _sized(data: bytes, at: int) -> tuple[str, int]:
    """A string after its length, and where it ends."""
    length, end = _number(data, at, ">i")
    if not 0 <= length <= len(data) - end:
        raise _BadObjectError
    text = decode_by(bytes.decode, data[end : end + length])
    if isinstance(text, Undecodable):
        raise _BadObjectError
    return text, end + length


def _number(data: bytes, at: int, packed: str) -> tuple[Any, int]:
    """A number, and where it ends."""
    end = at + struct.calcsize(packed)
    if end > len(data):
        raise _BadObjectError
    return struct.unpack_from(packed, data, at)[0], end


def _zoned(data: bytes) -> dict[str, Any]:
    nanos, end = _number(data, 0, ">q")
    zone, end = _sized(data, end)
    if end != len(data):
        raise _BadObjectError
    return {"time": nanos, "zone": zone}


def _map_decoder(kind: ColumnType) -> Callable[[bytes], list[tuple[str, Any]]]:
    def decode(data: bytes) -> list[tuple[str, Any]]:
        count, at = _number(data, 0, ">i")
        # An entry takes at least a length of its key and a byte of its value.
        if not 0 <= count <= len(data) // (layout.LENGTH_SIZE + 1):
            raise _BadObjectError
        entries = []
        for _ in range(count):
            key, at = _sized(data, at)
            value, at = _map_value(kind, data, at)
            entries.append((key, value))
        if at != len(data):
            raise _BadObjectError
        return entries

    return decode


def _map_value(kind: ColumnType, data: bytes, at: int) -> tuple[Any, int]:
    if kind is ColumnType.STRING_TO_STRING:
        return _sized(data, at)
    if kind is ColumnType.STRING_TO_BOOLEAN:
        value, end = _number(data, at, ">B")
        return None if value == layout.MAP_BOOLEAN_NULL else value != 0, end
    facts = FIXED[element_type(kind)]
    value, end = _number(data, at, facts.packed)
    null = int.from_bytes(data[at:end], "big") == facts.null
    return None if null else value, end
