"""Objects by their codecs, and arrays as Java serializes them, decoded and encoded. Section 4.4.

Everything is big endian, whatever the byte order of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    compute_offsets,
    fill_null,
    find_index,
    make_array,
    make_bitmap,
    make_constant,
    pack_bits,
    view_values,
)
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.types import ColumnSpec, split_arguments
from sawlog.deephaven.table.values import (
    ArrayPlace,
    ElementPlace,
    Slices,
    cast,
    decode_words,
    encode_fixed,
    make_plain_array,
    make_validity,
    split_binary,
)
from sawlog.deephaven.text import make_utf8_array
from sawlog.deephaven.types import ARRAYS, FIXED, ColumnType, find_element_type
from sawlog.guard import Undecodable, call_decoder
from sawlog.storage import Bytes

if TYPE_CHECKING:
    Decoded = tuple[pa.Array, NDArray[np.bool_]]
    Encoded = tuple[NDArray[np.int64], Any]

_LIMB = 8
_NANOS = 1_000_000_000
_MAX_DAYS = (1 << 31) - 1
_PLAIN_EXPONENT = 32
"""Decimals of a larger exponent are written with an E."""
_TIME_DIGITS = len(layout.TIME_FRACTION_BITS) - 1
_ARRAY_HEAD = layout.ARRAY_PREFIX_SIZE + layout.ARRAY_LENGTH_SIZE


def decode_slots(spec: ColumnSpec, data: Bytes, target: pa.DataType) -> Decoded:
    """Return objects of a fixed width.

    Returns:
        The values, and which of them (bool array) cannot be: they are null.
    """
    slots = data.reshape(-1, spec.slot_width)
    arguments = split_arguments(spec.arguments)
    nullable = "notNull" not in arguments
    if spec.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        scale = int(arguments[1]) if spec.type is ColumnType.BIG_DECIMAL else 0
        return _decode_wide_decimals(slots, scale) if pa.types.is_string(target) else _decode_decimals(slots, target)
    if spec.type is ColumnType.LOCAL_DATE:
        return _decode_dates(slots, nullable=nullable)
    if spec.type is ColumnType.LOCAL_TIME:
        digits = int(arguments[0]) if arguments and arguments[0].isdigit() else _TIME_DIGITS
        return _decode_times(slots, digits, nullable=nullable)
    return _decode_fixed_bytes(slots, nullable=nullable and "simple" not in arguments)


def encode_slots(spec: ColumnSpec, array: pa.Array, place: ArrayPlace) -> NDArray[np.uint8]:
    """Return objects whose codec has a fixed width, one slot per row.

    Raises:
        SchemaError: For a value, or a null, that the codec has no bytes for.
    """
    arguments = split_arguments(spec.arguments)
    nullable = "notNull" not in arguments and "simple" not in arguments
    if array.null_count and not nullable:
        raise place.make_error(find_index(array.is_null(), True), "null, which the codec's arguments exclude")
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), spec.choose_arrow_type())
    slots = np.zeros((len(array), spec.slot_width), np.uint8)
    if spec.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        scale = int(arguments[1]) if spec.type is ColumnType.BIG_DECIMAL else 0
        _encode_decimals(slots, array, int(arguments[0]), scale, place)
    elif spec.type is ColumnType.LOCAL_DATE:
        _encode_dates(slots, array, place)
    elif spec.type is ColumnType.LOCAL_TIME:
        _encode_times(slots, array, int(arguments[0]) if arguments and arguments[0].isdigit() else _TIME_DIGITS, place)
    else:
        _encode_fixed_bytes(slots, array, place, nullable=nullable)
    return slots


class _BadObjectError(Exception):
    """Bytes that are no object of their type."""


def decode_objects(spec: ColumnSpec, slices: Slices, target: pa.DataType) -> Decoded:
    """Return objects of variable width; see `decode_slots`."""
    lengths = slices.lengths
    if spec.slot_width:
        return _decode_slot_slices(spec, slices, target)
    if spec.type in (ColumnType.BYTE_ARRAY, ColumnType.BLOB):
        return slices.make_binary(lengths > 0), np.zeros(len(lengths), np.bool_)
    if spec.type is ColumnType.UTF8_STRING:
        return _decode_utf8(slices)
    decode = _choose_decoder(spec.type, target)
    values = []
    bad = np.zeros(len(lengths), np.bool_)
    data = slices.data.tobytes()
    for row in range(len(lengths)):
        value = data[slices.ends[row] : slices.ends[row + 1]]
        try:
            values.append(decode(value) if value else None)
        except _BadObjectError:
            values.append(None)
            bad[row] = True
    if pa.types.is_string(target):
        return make_utf8_array([None if value is None else value.encode() for value in values]), bad
    return make_array(values, target), bad


def encode_variable(spec: ColumnSpec, array: pa.Array, place: ArrayPlace) -> Encoded:
    """Return objects of variable width: bytes per row, and all bytes.

    Raises:
        SchemaError: For a value that cannot be stored, such as an empty one where no bytes mean null.
    """
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), spec.choose_arrow_type())
    if spec.type in (ColumnType.BYTE_ARRAY, ColumnType.BLOB):
        return _encode_bytes(array, place)
    if spec.type is ColumnType.UTF8_STRING:
        if array.null_count:
            raise place.make_error(find_index(array.is_null(), True), "null; this codec has none")
        return split_binary(cast(array, pa.large_string(), place).view(pa.large_binary()))
    if spec.type in ARRAYS:
        return _encode_arrays(spec.type, array, place)
    encode = _choose_encoder(spec.type)
    values = _list_zoned_values(array) if spec.type is ColumnType.ZONED_DATE_TIME else array.to_pylist()
    encoded = []
    for row, value in enumerate(values):
        try:
            encoded.append(b"" if value is None else encode(value))
        except (ValueError, InvalidOperation, OverflowError, struct.error) as error:
            raise place.make_error(row, f"{value!r} cannot be written as {spec.type.value}: {error}") from error
    return _join(encoded)


def _decode_slot_slices(spec: ColumnSpec, slices: Slices, target: pa.DataType) -> Decoded:
    """Return objects of a codec of fixed width that were stored with offsets all the same."""
    lengths = slices.lengths
    is_slot = lengths == spec.slot_width
    array, unfit = decode_slots(spec, np.ascontiguousarray(slices.data[np.repeat(is_slot, lengths)]), target)
    places = make_array(np.where(is_slot, np.cumsum(is_slot) - 1, 0), pa.int64(), ~is_slot)
    bad = (lengths > 0) & ~is_slot
    bad[np.flatnonzero(is_slot)[unfit]] = True
    return array.take(places), bad


def _choose_decoder(kind: ColumnType, target: pa.DataType) -> Callable[[bytes], Any]:
    if kind in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        if pa.types.is_string(target):
            return lambda data: _render_decimal(*_split_decimal(data))
        return _make_decimal_decoder(target)
    if kind is ColumnType.ZONED_DATE_TIME:
        return _decode_zoned
    return _make_map_decoder(kind)


def _choose_encoder(kind: ColumnType) -> Callable[[Any], bytes]:
    if kind in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        return lambda value: _encode_decimal(value, integer=kind is ColumnType.BIG_INTEGER)
    if kind is ColumnType.ZONED_DATE_TIME:
        return _encode_zoned
    return lambda value: _encode_map(kind, value)


def _join(values: list[bytes]) -> Encoded:
    return np.fromiter(map(len, values), np.int64, len(values)), b"".join(values)


def _unpack_integers(slots: Bytes) -> NDArray[np.int64]:
    """Return rows of at most 7 bytes as big-endian unsigned integers."""
    value = np.zeros(len(slots), np.int64)
    for column in range(slots.shape[1]):
        value = value << 8 | slots[:, column]
    return value


def _pack(slots: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
    """Write numbers into slots, big endian."""
    slots[:] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - slots.shape[1] :]


def _decode_decimals(slots: Bytes, target: pa.DataType) -> Decoded:
    sign, magnitudes = slots[:, 0], slots[:, 1:]
    negative = sign == layout.SIGN_NEGATIVE
    null = negative & (magnitudes == 0xFF).all(axis=1)
    limbs = _split_limbs(np.where(negative[:, None], ~magnitudes, magnitudes), target.bit_width // 64)
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
    return pa.Array.from_buffers(target, len(slots), [make_bitmap(valid), pa.py_buffer(out)]), bad


def _split_limbs(magnitudes: Bytes, count: int) -> list[NDArray[np.uint64]]:
    """Return big-endian numbers as words of 8 bytes, the least significant first."""
    padded = np.zeros((len(magnitudes), count * _LIMB), np.uint8)
    padded[:, count * _LIMB - magnitudes.shape[1] :] = magnitudes
    wide = padded.view(">u8").astype(np.uint64)
    return [wide[:, count - 1 - i] for i in range(count)]


def _decode_wide_decimals(slots: Bytes, scale: int) -> Decoded:
    """Return decimals of more digits than Arrow's have, as strings."""
    texts: list[bytes | None] = []
    bad = np.zeros(len(slots), np.bool_)
    for row, slot in enumerate(slots):
        negative = slot[0] == layout.SIGN_NEGATIVE
        magnitude = int.from_bytes((~slot[1:] if negative else slot[1:]).tobytes(), "big")
        bad[row] = slot[0] > layout.SIGN_POSITIVE
        null = negative and magnitude == 0
        try:
            text = _render_decimal(-magnitude if negative else magnitude, scale)
        except _BadObjectError:
            bad[row] = True
        texts.append(None if null or bad[row] else text.encode())
    return make_utf8_array(texts), bad


def _encode_decimals(slots: NDArray[np.uint8], array: pa.Array, precision: int, scale: int, place: ArrayPlace) -> None:
    """Write decimals as a sign byte and a magnitude, of negative ones the one's complement. Null: 00 ff...ff.

    Deephaven's codec keeps the highest bit of the magnitude free, and refuses numbers that need it: with some
    precisions, such as 7, these are the largest ones.
    """
    valid = make_validity(array)
    width = slots.shape[1] - 1
    if precision <= 38:
        exact = cast(array, pa.decimal128(precision, scale), place)
        pairs = view_values(exact, "V16").view("<u8").reshape(-1, 2)
        negative = pairs[:, 1] >> np.uint64(63) == 1
        # ~|v| is v - 1 in two's complement.
        low = pairs[:, 0] - negative
        high = pairs[:, 1] - (negative & (pairs[:, 0] == 0))
        big = np.stack([high, low], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)
        slots[:, 0] = ~negative
        slots[:, 1:] = big[:, 16 - width :]
    else:
        for row, value in enumerate(array.to_pylist()):
            if value is not None:
                number = _unscale(value, precision, scale, place, row)
                slots[row, 0] = number >= 0
                magnitude = np.frombuffer(abs(number).to_bytes(width, "big"), np.uint8)
                slots[row, 1:] = magnitude if number >= 0 else ~magnitude
    _check_highest(slots, array, valid, place)
    if valid is not None:
        slots[~valid, 0] = layout.SIGN_NEGATIVE
        slots[~valid, 1:] = 0xFF


def _check_highest(
    slots: NDArray[np.uint8], array: pa.Array, valid: NDArray[np.bool_] | None, place: ArrayPlace
) -> None:
    """Refuse magnitudes whose highest bit is set."""
    too_large = (slots[:, 1] >> 7 == 1) == (slots[:, 0] == layout.SIGN_POSITIVE)
    if valid is not None:
        too_large &= valid
    if too_large.any():
        row = int(too_large.argmax())
        raise place.make_error(
            row, f"{array[row]} is too large for Deephaven's codec; a precision of one digit more takes it"
        )


def _unscale(value: Any, precision: int, scale: int, place: ArrayPlace, row: int) -> int:
    try:
        number, exponent = _strip_zeros(value)
    except (ValueError, InvalidOperation) as error:
        raise place.make_error(row, f"{value!r} is no decimal: {error}") from error
    shift = exponent + scale
    if number and (shift < 0 or len(str(abs(number))) + shift > precision):
        raise place.make_error(row, f"{value!r} does not fit {precision} digits, {scale} of them after the point")
    return number * 10**shift if number else 0


def _strip_zeros(value: Any) -> tuple[int, int]:
    """Return a number without trailing zeros, and the power of ten that it is multiplied with."""
    decimal = Decimal(value)
    if not decimal.is_finite():
        raise ValueError("not a finite number")
    sign, digits, exponent = decimal.as_tuple()
    text = "".join(map(str, digits))
    significant = text.rstrip("0")
    if not significant:
        return 0, 0
    return int(f"-{significant}" if sign else significant), int(exponent) + len(text) - len(significant)


def _split_decimal(data: bytes) -> tuple[int, int]:
    if len(data) <= layout.SCALE_SIZE:
        raise _BadObjectError
    scale = int.from_bytes(data[: layout.SCALE_SIZE], "big", signed=True)
    return int.from_bytes(data[layout.SCALE_SIZE :], "big", signed=True), scale


def _render_decimal(unscaled: int, scale: int) -> str:
    """Return what Java's `toPlainString` returns, but with an E where that would be mostly zeros."""
    digits = call_decoder(str, unscaled)
    if isinstance(digits, Undecodable):  # of more digits than Python turns into text
        raise _BadObjectError
    value = Decimal((int(unscaled < 0), tuple(map(int, digits.lstrip("-"))), -scale))
    return format(value, "f") if abs(scale) <= len(digits) + _PLAIN_EXPONENT else str(value)


def _make_decimal_decoder(target: pa.DataType) -> Callable[[bytes], Decimal]:
    def decode(data: bytes) -> Decimal:
        unscaled, scale = _split_decimal(data)
        shift = target.scale - scale
        if abs(shift) > target.precision + len(data) * 3:
            if unscaled:
                raise _BadObjectError
            shift = 0
        factor = 10 ** abs(shift)
        shifted, remainder = (unscaled * factor, 0) if shift >= 0 else divmod(unscaled, factor)
        if remainder or abs(shifted) >= 10**target.precision:
            raise _BadObjectError
        return Decimal((int(shifted < 0), tuple(map(int, str(abs(shifted)))), -target.scale))

    return decode


def _encode_decimal(value: Any, *, integer: bool) -> bytes:
    """Return the scale and the unscaled number without trailing zeros."""
    number, exponent = _strip_zeros(value)
    if integer and exponent < 0:
        raise ValueError("not a whole number")
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return (-exponent).to_bytes(layout.SCALE_SIZE, "big", signed=True) + number.to_bytes(size, "big", signed=True)


def _decode_dates(slots: Bytes, *, nullable: bool) -> Decoded:
    compact = slots.shape[1] == layout.DATE_COMPACT_SIZE
    packed = _unpack_integers(slots)
    year = packed >> layout.DATE_YEAR_SHIFT
    if not compact:
        year -= layout.DATE_YEAR_BIAS
    month = packed >> layout.DATE_MONTH_SHIFT & (1 << layout.DATE_YEAR_SHIFT - layout.DATE_MONTH_SHIFT) - 1
    day = packed & (1 << layout.DATE_MONTH_SHIFT) - 1
    null = (slots[:, 0] == layout.DATE_NULL) & nullable
    days = _count_days(year, month, day)
    fits = (month >= 1) & (month <= 12) & (day >= 1) & (np.abs(days) <= _MAX_DAYS)
    # A day that its month does not have would be one of the next month.
    following = _count_days(year + month // 12, month % 12 + 1, np.ones_like(day))
    fits &= days < following
    if compact:
        fits &= year <= layout.MAX_COMPACT_YEAR
    valid = fits & ~null
    values = np.where(valid, days, 0).astype(np.int32)
    return pa.Array.from_buffers(pa.date32(), len(slots), [make_bitmap(valid), pa.py_buffer(values)]), ~null & ~fits


def _count_days(year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar; years are counted from March."""
    shifted = year - (month <= 2)
    from_march = (month + 9) % 12
    leap_days = shifted // 4 - shifted // 100 + shifted // 400
    result: NDArray[np.int64] = 365 * shifted + leap_days + (153 * from_march + 2) // 5 + day - 1 - 719_468
    return result


def _encode_dates(slots: NDArray[np.uint8], array: pa.Array, place: ArrayPlace) -> None:
    valid = make_validity(array)
    days = view_values(cast(array, pa.date32(), place), "<i4").astype("M8[D]")
    if valid is not None:
        days = np.where(valid, days, np.array(0, "M8[D]"))
    months = days.astype("M8[M]")
    year = days.astype("M8[Y]").astype(np.int64) + 1970
    month = months.astype(np.int64) % 12 + 1
    day = (days - months.astype("M8[D]")).astype(np.int64) + 1
    if slots.shape[1] == layout.DATE_COMPACT_SIZE:
        far = (year < 0) | (year > layout.MAX_COMPACT_YEAR)
        if far.any():
            row = int(far.argmax())
            raise place.make_error(row, f"the year {year[row]} is not within 0 to {layout.MAX_COMPACT_YEAR}")
    else:
        year += layout.DATE_YEAR_BIAS
    _pack(slots, year << layout.DATE_YEAR_SHIFT | month << layout.DATE_MONTH_SHIFT | day)
    if valid is not None:
        slots[~valid] = 0
        slots[~valid, 0] = layout.DATE_NULL


def _decode_times(slots: Bytes, digits: int, *, nullable: bool) -> Decoded:
    bits = layout.TIME_FRACTION_BITS[digits]
    packed = _unpack_integers(slots)
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
    return pa.Array.from_buffers(pa.time64("ns"), len(slots), [make_bitmap(valid), pa.py_buffer(values)]), ~null & ~fits


def _encode_times(slots: NDArray[np.uint8], array: pa.Array, digits: int, place: ArrayPlace) -> None:
    valid = make_validity(array)
    nanos = view_values(cast(array, pa.time64("ns"), place), "<i8")
    if valid is not None:
        nanos = np.where(valid, nanos, 0)
    unit = 10 ** (_TIME_DIGITS - digits)
    unfit = (nanos % unit != 0) | (nanos < 0) | (nanos >= 86_400 * 10**_TIME_DIGITS)
    if unfit.any():
        row = int(unfit.argmax())
        raise place.make_error(row, f"{array[row]} is no time of day with {digits} digits of a second")
    seconds, fraction = np.divmod(nanos // unit, 10**digits)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    bits = layout.TIME_FRACTION_BITS[digits]
    packed = hour << layout.TIME_HOUR_SHIFT | minute << layout.TIME_MINUTE_SHIFT | second
    _pack(slots, packed << bits | fraction)
    if valid is not None:
        slots[~valid] = 0
        slots[~valid, 0] = layout.TIME_NULL


def _decode_fixed_bytes(slots: Bytes, *, nullable: bool) -> Decoded:
    values = slots[:, 1:] if nullable else slots
    present = slots[:, 0] == layout.BYTES_PRESENT if nullable else np.ones(len(slots), np.bool_)
    bad = ~present & (slots[:, 0] != layout.BYTES_NULL) if nullable else np.zeros(len(slots), np.bool_)
    ends = compute_offsets(np.where(present, values.shape[1], 0), np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values[present]))
    return pa.Array.from_buffers(pa.binary(), len(slots), [make_bitmap(present), pa.py_buffer(ends), data]), bad


def _encode_fixed_bytes(slots: NDArray[np.uint8], array: pa.Array, place: ArrayPlace, *, nullable: bool) -> None:
    valid = make_validity(array)
    width = slots.shape[1] - nullable
    lengths, data = split_binary(cast(array, pa.large_binary(), place))
    wrong = lengths != width
    if valid is not None:
        wrong &= valid
    if wrong.any():
        row = int(wrong.argmax())
        raise place.make_error(row, f"{lengths[row]} bytes in a column of {width} bytes each")
    values = np.frombuffer(data, np.uint8).reshape(-1, width)
    slots[slice(None) if valid is None else valid, int(nullable) :] = values
    if valid is not None:
        slots[~valid, 0] = layout.BYTES_NULL


def _encode_bytes(array: pa.Array, place: ArrayPlace) -> Encoded:
    import pyarrow.compute as pc

    binary = cast(array, pa.large_binary(), place)
    empty = find_index(pc.binary_length(binary), 0)
    if empty >= 0:
        raise place.make_error(empty, "an empty value would be read as null")
    return split_binary(binary)


def _decode_utf8(slices: Slices) -> Decoded:
    all_rows = np.ones(len(slices.bad), np.bool_)
    text = slices.make_binary(all_rows).cast(pa.string(), safe=False)
    bad = np.zeros(len(text), np.bool_)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        values: list[bytes | None] = []
        for row, scalar in enumerate(slices.make_binary(all_rows)):
            value = scalar.as_py()
            bad[row] = isinstance(call_decoder(bytes.decode, value), Undecodable)
            values.append(None if bad[row] else value)
        text = make_utf8_array(values)
    return text, bad


def decode_arrays(kind: ColumnType, slices: Slices, target: pa.DataType, *, sentinels: bool) -> tuple[pa.Array, Any]:
    """Return serialized arrays as lists.

    Returns:
        The lists, and which values (bool array) are no such arrays: they are null.
    """
    element = find_element_type(kind)
    width = FIXED[element].width
    lengths = slices.lengths
    starts = slices.ends[:-1].astype(np.int64)
    prefix = np.frombuffer(layout.make_array_prefix(ARRAYS[kind].descriptor), np.uint8)
    long_enough = np.flatnonzero(lengths >= _ARRAY_HEAD)
    heads = slices.data[starts[long_enough, None] + np.arange(_ARRAY_HEAD)]
    counts = decode_words(np.ascontiguousarray(heads[:, layout.ARRAY_PREFIX_SIZE :]).ravel(), 4, little=False).astype(
        np.int64
    )
    fitting = (heads[:, : layout.ARRAY_PREFIX_SIZE] == prefix).all(axis=1)
    fitting &= _ARRAY_HEAD + counts * width == lengths[long_enough]
    array_rows = long_enough[fitting]
    good = np.zeros(len(lengths), np.bool_)
    good[array_rows] = True
    bad = (lengths > 0) & ~good & ~_find_null_streams(slices, starts, lengths)
    element_bytes = np.repeat(good, lengths)
    heads_at = (starts[array_rows, None] + np.arange(_ARRAY_HEAD)).ravel()
    element_bytes[heads_at] = False
    elements = slices.keep(element_bytes)
    payload = np.ascontiguousarray(elements.data)
    if kind is ColumnType.BOOLEANS:
        bits = pack_bits(payload != 0)
        values = pa.Array.from_buffers(pa.bool_(), len(payload), [None, bits])
    else:
        values = make_plain_array(
            element, decode_words(payload, width, little=False), target.value_type, sentinels=sentinels
        )
    ends = pa.py_buffer((elements.ends // width).astype(np.int32))
    return pa.Array.from_buffers(target, len(lengths), [make_bitmap(good), ends], children=[values]), bad


def _find_null_streams(slices: Slices, starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return a mask of the values that are a serialized null."""
    nulls = np.zeros(len(lengths), np.bool_)
    size = len(layout.JAVA_NULL)
    rows = np.flatnonzero(lengths == size)
    null = np.frombuffer(layout.JAVA_NULL, np.uint8)
    nulls[rows] = (slices.data[starts[rows, None] + np.arange(size)] == null).all(axis=1)
    return nulls


def _encode_arrays(kind: ColumnType, array: pa.Array, place: ArrayPlace) -> Encoded:
    """Return lists of primitives as serialized arrays: the same bytes up to the length, then big-endian elements."""
    import pyarrow.compute as pc

    element = find_element_type(kind)
    width = FIXED[element].width
    valid = make_validity(array)
    lists = cast(array, pa.list_(array.type.value_type), place)
    counts = view_values(fill_null(pc.list_value_length(lists), 0).cast(pa.int64()), "<i8")
    ends = np.cumsum(counts)
    elements = lists.flatten()
    element_place = ElementPlace(place.column, place.row, ends)
    if kind is ColumnType.BOOLEANS and elements.null_count:
        raise element_place.make_error(find_index(elements.is_null(), True), "null in an array of booleans")
    data = encode_fixed(element, elements, element_place).byteswap().tobytes()
    prefix = layout.make_array_prefix(ARRAYS[kind].descriptor)
    encoded = []
    for row, (count, end) in enumerate(zip(counts.tolist(), ends.tolist(), strict=True)):
        if valid is not None and not valid[row]:
            encoded.append(b"")
        else:
            length = count.to_bytes(layout.ARRAY_LENGTH_SIZE, "big")
            encoded.append(b"".join([prefix, length, data[(end - count) * width : end * width]]))
    return _join(encoded)


def _read_number(data: bytes, position: int, packed: str) -> tuple[Any, int]:
    """Return a number, and where it ends."""
    end = position + struct.calcsize(packed)
    if end > len(data):
        raise _BadObjectError
    return struct.unpack_from(packed, data, position)[0], end


def _decode_sized(data: bytes, position: int) -> tuple[str, int]:
    """Return a string after its length, and where it ends."""
    length, end = _read_number(data, position, ">i")
    if not 0 <= length <= len(data) - end:
        raise _BadObjectError
    text = call_decoder(bytes.decode, data[end : end + length])
    if isinstance(text, Undecodable):
        raise _BadObjectError
    return text, end + length


def _encode_sized(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(layout.LENGTH_SIZE, "big") + data


def _decode_zoned(data: bytes) -> dict[str, Any]:
    nanos, end = _read_number(data, 0, ">q")
    zone, end = _decode_sized(data, end)
    if end != len(data):
        raise _BadObjectError
    return {"time": nanos, "zone": zone}


def _list_zoned_values(array: pa.Array) -> list[tuple[int, str] | None]:
    """Return nanoseconds and zones, from the structs that reading yields or from times with a zone."""
    if pa.types.is_timestamp(array.type):
        times, zones = array, make_constant(array.type.tz, pa.string(), len(array))
    else:
        times, zones = array.field("time"), array.field("zone")
    nanos = times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()
    validity_flags = array.is_valid().to_pylist()
    triples = zip(validity_flags, nanos, zones.to_pylist(), strict=True)
    return [(time, name) if is_valid else None for is_valid, time, name in triples]


def _encode_zoned(value: tuple[int | None, str | None]) -> bytes:
    nanos, zone = value
    if nanos is None or zone is None:
        raise ValueError("a time without a zone, or a zone without a time")
    return nanos.to_bytes(layout.ZONED_TIME_SIZE, "big", signed=True) + _encode_sized(zone)


def _make_map_decoder(kind: ColumnType) -> Callable[[bytes], list[tuple[str, Any]]]:
    def decode(data: bytes) -> list[tuple[str, Any]]:
        count, position = _read_number(data, 0, ">i")
        # An entry takes at least a length of its key and a byte of its value.
        if not 0 <= count <= len(data) // (layout.LENGTH_SIZE + 1):
            raise _BadObjectError
        entries = []
        for _ in range(count):
            key, position = _decode_sized(data, position)
            value, position = _decode_map_value(kind, data, position)
            entries.append((key, value))
        if position != len(data):
            raise _BadObjectError
        return entries

    return decode


def _encode_map(kind: ColumnType, entries: list[tuple[str, Any]]) -> bytes:
    if len(dict(entries)) != len(entries):
        raise ValueError("a key twice")
    parts = [len(entries).to_bytes(layout.LENGTH_SIZE, "big")]
    for key, value in entries:
        parts += [_encode_sized(key), _encode_map_value(kind, value)]
    return b"".join(parts)


def _decode_map_value(kind: ColumnType, data: bytes, position: int) -> tuple[Any, int]:
    if kind is ColumnType.STRING_TO_STRING:
        return _decode_sized(data, position)
    if kind is ColumnType.STRING_TO_BOOLEAN:
        value, end = _read_number(data, position, ">B")
        return None if value == layout.MAP_BOOLEAN_NULL else value != 0, end
    facts = FIXED[find_element_type(kind)]
    value, end = _read_number(data, position, facts.packed)
    null = int.from_bytes(data[position:end], "big") == facts.null
    return None if null else value, end


def _encode_map_value(kind: ColumnType, value: Any) -> bytes:
    if kind is ColumnType.STRING_TO_STRING:
        if value is None:
            raise ValueError("a null string in a map")
        return _encode_sized(value)
    if kind is ColumnType.STRING_TO_BOOLEAN:
        return bytes([layout.MAP_BOOLEAN_NULL if value is None else value])
    facts = FIXED[find_element_type(kind)]
    null = facts.null.to_bytes(facts.width, "big")
    if value is None:
        return null
    data = struct.pack(facts.packed, value)
    if data == null:
        raise ValueError(f"{value} stands for null")
    return data
