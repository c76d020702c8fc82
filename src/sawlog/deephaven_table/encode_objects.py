"""Objects as their codecs, or Java's serialization, store them: the opposite of `codecs` and `arrays`. Section 4.4."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.deephaven.types import ARRAYS, FIXED, ColumnType, element_type
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.encode import (
    ElementPlace,
    Place,
    cast,
    encode_fixed,
    lengths_and_bytes,
    validity,
    values_of,
)
from sawlog.deephaven_table.types import codec_arguments

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.deephaven_table.types import ColumnSpec

    Variable = tuple[NDArray[np.int64], Any]

_DIGITS = 9


def encode_slots(spec: ColumnSpec, array: pa.Array, place: Place) -> NDArray[np.uint8]:
    """Objects whose codec has a fixed width, one slot per row.

    Raises:
        SchemaError: For a value, or a null, that the codec has no bytes for.
    """
    import numpy as np

    arguments = codec_arguments(spec.arguments)
    nullable = "notNull" not in arguments and "simple" not in arguments
    if array.null_count and not nullable:
        raise place.error(array.is_null().index(True).as_py(), "null, which the codec's arguments exclude")
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), spec.arrow_type())
    slots = np.zeros((len(array), spec.slot_width), np.uint8)
    if spec.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        scale = int(arguments[1]) if spec.type is ColumnType.BIG_DECIMAL else 0
        _decimals(slots, array, int(arguments[0]), scale, place)
    elif spec.type is ColumnType.LOCAL_DATE:
        _dates(slots, array, place)
    elif spec.type is ColumnType.LOCAL_TIME:
        _times(slots, array, int(arguments[0]) if arguments and arguments[0].isdigit() else _DIGITS, place)
    else:
        _fixed_bytes(slots, array, place, nullable=nullable)
    return slots


def encode_variable(spec: ColumnSpec, array: pa.Array, place: Place) -> Variable:
    """Objects of variable width: bytes per row, and all bytes.

    Raises:
        SchemaError: For a value that cannot be stored, such as an empty one where no bytes mean null.
    """
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), spec.arrow_type())
    if spec.type in (ColumnType.BYTE_ARRAY, ColumnType.BLOB):
        return _bytes(array, place)
    if spec.type is ColumnType.UTF8_STRING:
        if array.null_count:
            raise place.error(array.is_null().index(True).as_py(), "null; this codec has none")
        return lengths_and_bytes(cast(array, pa.large_string(), place).view(pa.large_binary()))
    if spec.type in ARRAYS:
        return _arrays(spec.type, array, place)
    encode = _encoder(spec.type)
    values = _zoned_values(array) if spec.type is ColumnType.ZONED_DATE_TIME else array.to_pylist()
    encoded = []
    for at, value in enumerate(values):
        try:
            encoded.append(b"" if value is None else encode(value))
        except (ValueError, InvalidOperation, OverflowError, struct.error) as error:
            raise place.error(at, f"{value!r} cannot be written as {spec.type.value}: {error}") from error
    return _joined(encoded)


def _joined(values: list[bytes]) -> Variable:
    import numpy as np

    return np.fromiter(map(len, values), np.int64, len(values)), b"".join(values)


def _bytes(array: pa.Array, place: Place) -> Variable:
    import pyarrow.compute as pc

    binary = cast(array, pa.large_binary(), place)
    empty = pc.fill_null(pc.equal(pc.binary_length(binary), 0), False).index(True).as_py()
    if empty >= 0:
        raise place.error(empty, "an empty value would be read as null")
    return lengths_and_bytes(binary)


def _decimals(slots: NDArray[np.uint8], array: pa.Array, precision: int, scale: int, place: Place) -> None:
    """A sign byte and a magnitude; that of a negative number as its one's complement. Null: 00 ff...ff.

    Deephaven's codec keeps the highest bit of the magnitude free, and refuses numbers that need it: with some
    precisions, such as 7, these are the largest ones.
    """
    import numpy as np

    valid = validity(array)
    width = slots.shape[1] - 1
    if precision <= 38:
        exact = cast(array, pa.decimal128(precision, scale), place)
        pairs = values_of(exact, "V16").view("<u8").reshape(-1, 2)
        negative = pairs[:, 1] >> np.uint64(63) == 1
        # ~|v| is v - 1 in two's complement.
        low = pairs[:, 0] - negative
        high = pairs[:, 1] - (negative & (pairs[:, 0] == 0))
        big = np.stack([high, low], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)
        slots[:, 0] = ~negative
        slots[:, 1:] = big[:, 16 - width :]
    else:
        for at, value in enumerate(array.to_pylist()):
            if value is not None:
                number = _unscaled(value, precision, scale, place, at)
                slots[at, 0] = number >= 0
                magnitude = np.frombuffer(abs(number).to_bytes(width, "big"), np.uint8)
                slots[at, 1:] = magnitude if number >= 0 else ~magnitude
    _check_highest(slots, array, valid, place)
    if valid is not None:
        slots[~valid, 0] = layout.SIGN_NEGATIVE
        slots[~valid, 1:] = 0xFF


def _check_highest(slots: NDArray[np.uint8], array: pa.Array, valid: NDArray[np.bool_] | None, place: Place) -> None:
    """Refuse magnitudes whose highest bit is set."""
    taken = (slots[:, 1] >> 7 == 1) == (slots[:, 0] == layout.SIGN_POSITIVE)
    if valid is not None:
        taken &= valid
    if taken.any():
        at = int(taken.argmax())
        raise place.error(at, f"{array[at]} is too large for Deephaven's codec; a precision of one digit more takes it")


def _unscaled(value: Any, precision: int, scale: int, place: Place, at: int) -> int:
    try:
        number, exponent = _stripped(value)
    except (ValueError, InvalidOperation) as error:
        raise place.error(at, f"{value!r} is no decimal: {error}") from error
    shift = exponent + scale
    if number and (shift < 0 or len(str(abs(number))) + shift > precision):
        raise place.error(at, f"{value!r} does not fit {precision} digits, {scale} of them after the point")
    return number * 10**shift if number else 0


def _stripped(value: Any) -> tuple[int, int]:
    """A number without trailing zeros, and the power of ten that it is multiplied with."""
    decimal = Decimal(value)
    if not decimal.is_finite():
        raise ValueError("not a finite number")
    sign, digits, exponent = decimal.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    if not kept:
        return 0, 0
    return int(f"-{kept}" if sign else kept), int(exponent) + len(text) - len(kept)


def _dates(slots: NDArray[np.uint8], array: pa.Array, place: Place) -> None:
    import numpy as np

    valid = validity(array)
    days = values_of(cast(array, pa.date32(), place), "<i4").astype("M8[D]")
    if valid is not None:
        days = np.where(valid, days, np.array(0, "M8[D]"))
    months = days.astype("M8[M]")
    year = days.astype("M8[Y]").astype(np.int64) + 1970
    month = months.astype(np.int64) % 12 + 1
    day = (days - months.astype("M8[D]")).astype(np.int64) + 1
    if slots.shape[1] == layout.DATE_COMPACT_SIZE:
        far = (year < 0) | (year > layout.MAX_COMPACT_YEAR)
        if far.any():
            at = int(far.argmax())
            raise place.error(at, f"the year {year[at]} is not within 0 to {layout.MAX_COMPACT_YEAR}")
    else:
        year += layout.DATE_YEAR_BIAS
    _pack(slots, year << layout.DATE_YEAR_SHIFT | month << layout.DATE_MONTH_SHIFT | day)
    if valid is not None:
        slots[~valid] = 0
        slots[~valid, 0] = layout.DATE_NULL


def _times(slots: NDArray[np.uint8], array: pa.Array, digits: int, place: Place) -> None:
    import numpy as np

    valid = validity(array)
    nanos = values_of(cast(array, pa.time64("ns"), place), "<i8")
    if valid is not None:
        nanos = np.where(valid, nanos, 0)
    unit = 10 ** (_DIGITS - digits)
    unfit = (nanos % unit != 0) | (nanos < 0) | (nanos >= 86_400 * 10**_DIGITS)
    if unfit.any():
        at = int(unfit.argmax())
        raise place.error(at, f"{array[at]} is no time of day with {digits} digits of a second")
    seconds, fraction = np.divmod(nanos // unit, 10**digits)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    bits = layout.TIME_FRACTION_BITS[digits]
    packed = hour << layout.TIME_HOUR_SHIFT | minute << layout.TIME_MINUTE_SHIFT | second
    _pack(slots, packed << bits | fraction)
    if valid is not None:
        slots[~valid] = 0
        slots[~valid, 0] = layout.TIME_NULL


def _pack(slots: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
    """Numbers into slots, big endian."""
    import numpy as np

    slots[:] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - slots.shape[1] :]


def _fixed_bytes(slots: NDArray[np.uint8], array: pa.Array, place: Place, *, nullable: bool) -> None:
    import numpy as np

    valid = validity(array)
    width = slots.shape[1] - nullable
    lengths, data = lengths_and_bytes(cast(array, pa.large_binary(), place))
    wrong = lengths != width
    if valid is not None:
        wrong &= valid
    if wrong.any():
        at = int(wrong.argmax())
        raise place.error(at, f"{lengths[at]} bytes in a column of {width} bytes each")
    values = np.frombuffer(data, np.uint8).reshape(-1, width)
    slots[slice(None) if valid is None else valid, int(nullable) :] = values
    if valid is not None:
        slots[~valid, 0] = layout.BYTES_NULL


def _arrays(kind: ColumnType, array: pa.Array, place: Place) -> Variable:
    """Lists of primitives as serialized arrays: the same bytes up to the length, then big-endian elements."""
    import numpy as np
    import pyarrow.compute as pc

    element = element_type(kind)
    width = FIXED[element].width
    valid = validity(array)
    lists = cast(array, pa.list_(array.type.value_type), place)
    counts = values_of(pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64()), "<i8")
    ends = np.cumsum(counts)
    elements = lists.flatten()
    where = ElementPlace(place.column, place.row, ends)
    if kind is ColumnType.BOOLEANS and elements.null_count:
        raise where.error(elements.is_null().index(True).as_py(), "null in an array of booleans")
    data = encode_fixed(element, elements, where).byteswap().tobytes()
    prefix = layout.array_prefix(ARRAYS[kind].descriptor)
    encoded = []
    for at, (count, end) in enumerate(zip(counts.tolist(), ends.tolist(), strict=True)):
        if valid is not None and not valid[at]:
            encoded.append(b"")
        else:
            length = count.to_bytes(layout.ARRAY_LENGTH_SIZE, "big")
            encoded.append(b"".join([prefix, length, data[(end - count) * width : end * width]]))
    return _joined(encoded)


def _encoder(kind: ColumnType) -> Callable[[Any], bytes]:
    if kind in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        return lambda value: _variable_decimal(value, integer=kind is ColumnType.BIG_INTEGER)
    if kind is ColumnType.ZONED_DATE_TIME:
        return _zoned
    return lambda value: _map(kind, value)


def _variable_decimal(value: Any, *, integer: bool) -> bytes:
    """The scale and the unscaled number without trailing zeros."""
    number, exponent = _stripped(value)
    if integer and exponent < 0:
        raise ValueError("not a whole number")
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return (-exponent).to_bytes(layout.SCALE_SIZE, "big", signed=True) + number.to_bytes(size, "big", signed=True)


def _zoned_values(array: pa.Array) -> list[tuple[int, str] | None]:
    """Nanoseconds and zones, from the structs that reading yields or from times with a zone."""
    zone = pa.scalar(array.type.tz if pa.types.is_timestamp(array.type) else None, pa.string())
    if pa.types.is_timestamp(array.type):
        times, zones = array, pa.repeat(zone, len(array))
    else:
        times, zones = array.field("time"), array.field("zone")
    nanos = times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()
    there = array.is_valid().to_pylist()
    triples = zip(there, nanos, zones.to_pylist(), strict=True)
    return [(time, name) if known else None for known, time, name in triples]


def _zoned(value: tuple[int | None, str | None]) -> bytes:
    nanos, zone = value
    if nanos is None or zone is None:
        raise ValueError("a time without a zone, or a zone without a time")
    return nanos.to_bytes(layout.ZONED_TIME_SIZE, "big", signed=True) + _sized(zone)


def _sized(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(layout.LENGTH_SIZE, "big") + data


def _map(kind: ColumnType, entries: list[tuple[str, Any]]) -> bytes:
    if len(dict(entries)) != len(entries):
        raise ValueError("a key twice")
    parts = [len(entries).to_bytes(layout.LENGTH_SIZE, "big")]
    for key, value in entries:
        parts += [_sized(key), _map_value(kind, value)]
    return b"".join(parts)


def _map_value(kind: ColumnType, value: Any) -> bytes:
    if kind is ColumnType.STRING_TO_STRING:
        if value is None:
            raise ValueError("a null string in a map")
        return _sized(value)
    if kind is ColumnType.STRING_TO_BOOLEAN:
        return bytes([layout.MAP_BOOLEAN_NULL if value is None else value])
    facts = FIXED[element_type(kind)]
    null = facts.null.to_bytes(facts.width, "big")
    if value is None:
        return null
    data = struct.pack(facts.packed, value)
    if data == null:
        raise ValueError(f"{value} stands for null")
    return data
