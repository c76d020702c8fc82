"""Arrow arrays as NumPy buffers, cast to the types that the format has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import compute_offsets, find_index, is_binary, is_text, view_binary, view_offsets, view_values
from sawlog.errors import SchemaError
from sawlog.filodb.kernels.gather import Labels, Texts

_INVALID = "the Arrow array is invalid: offsets outside its data"


def cast(array: pa.Array, kind: pa.DataType, name: str, first_row: int) -> pa.Array:
    """Return a column in the type that the format has; nothing may be lost.

    Raises:
        SchemaError: When a value does not fit; names `name` and the row, counted from `first_row`.
    """
    if array.type == kind:
        return array
    if pa.types.is_binary(kind) and pa.types.is_string(array.type):
        return array.view(kind)
    try:
        if pa.types.is_binary(kind) and pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type) and array.type.tz is None:
            return array.cast(pa.timestamp(kind.unit)).cast(kind)
        if pa.types.is_binary(kind) and not _is_text(array.type):
            raise SchemaError(f"column {name!r} is {array.type}; expected strings or bytes")
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = next((i for i in range(len(array)) if not _fits(array.slice(i, 1), kind)), 0)
        raise SchemaError(f"column {name!r}, row {first_row + row}: does not fit {kind}: {error}") from error


def map_parts(array: pa.Array, name: str, first_row: int) -> Labels:
    """Return a map column as kernels take it.

    Raises:
        SchemaError: When it is no map of strings, or a value is null.
    """
    if not pa.types.is_map(array.type):
        raise SchemaError(f"column {name!r} is {array.type}; expected map<string, string>")
    ends = view_offsets(array)
    low, high = int(ends[0]), int(ends[-1])
    parts = []
    for entries in (array.keys, array.items):
        # `keys` and `items` of a slice are those of the whole, or of the slice, by the version of Arrow.
        text = entries.slice(low, high - low) if len(entries) != high - low else entries
        if not _is_text(text.type) and not pa.types.is_dictionary(text.type):
            raise SchemaError(f"column {name!r} is {array.type}; expected map<string, string>")
        parts.append(cast(text, pa.binary(), name, first_row))
    keys, items = parts
    ends = ends - np.int32(low)
    if ends[-1] > min(len(keys), len(items)):
        raise SchemaError(_INVALID)
    if items.null_count:
        entry = find_index(items.is_null(), True)
        row = int(np.searchsorted(ends, entry, side="right")) - 1
        raise SchemaError(f"column {name!r}, row {first_row + row}: the value of key {keys[entry].as_py()!r} is null")
    return Labels(ends, Texts(*view_binary(keys)), Texts(*view_binary(items)))


def pack_texts(strings: Sequence[bytes]) -> Texts:
    """Return strings as kernels take them."""
    ends = compute_offsets([len(string) for string in strings], np.int32)
    return Texts(np.frombuffer(b"".join(strings), np.uint8), ends)


def list_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return ends and values of an array of lists of doubles.

    Raises:
        SchemaError: When the ends lie outside the values.
    """
    ends = view_offsets(array)
    values = array.values
    if ends[-1] > len(values):
        raise SchemaError(_INVALID)
    return ends, view_values(values, np.float64).copy()


def _fits(value: pa.Array, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind) or is_binary(kind)
