"""The order of rows by columns: nulls first, numbers as Java orders them, text by its characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types as arrow

from sawlog.arrow import fill_null, is_binary, is_text, unpack_booleans, view_values
from sawlog.deephaven.ingest.kernels import count_order
from sawlog.errors import OptionError

_LEAST_COUNTED = 1 << 16
_LARGEST = np.int64((1 << 63) - 1)


def check_sortable(field: pa.Field) -> None:
    """Make sure that rows can be sorted by a column.

    Raises:
        OptionError: When they cannot.
    """
    kind = field.type
    if not (
        _is_number(kind) or arrow.is_dictionary(kind) or is_text(kind) or is_binary(kind) or arrow.is_decimal(kind)
    ):
        raise OptionError(f"column {field.name!r} is {kind}; rows cannot be sorted by it")


def compute_sort_order(keys: Sequence[pa.Array], rows: int) -> NDArray[np.int64]:
    """Return the numbers of the rows in order: by the first column, where it is the same by the second, and so on."""
    order = np.arange(rows)
    for key in reversed(keys):
        codes, validity = _compute_codes(key), None
        if key.null_count:
            validity = unpack_booleans(key.is_valid()).astype(np.int64)
            codes = codes * validity
        for code in (codes,) if validity is None else (codes, validity):
            order = _sort_codes(code, order)
    return order


def sort_key(keys: Sequence[pa.Array], row: int) -> tuple[Any, ...]:
    """Return a value that compares as the rows are ordered."""
    return tuple(_make_sort_value(key.slice(row, 1)) for key in keys)


def _sort_codes(codes: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(codes):
        return before
    lowest, highest = int(codes.min()), int(codes.max())
    if lowest == highest:
        return before
    if highest - lowest > max(4 * len(codes), _LEAST_COUNTED):
        return before[np.argsort(codes[before], kind="stable")]
    order = np.empty_like(before)
    count_order(codes, np.int64(lowest), np.zeros(highest - lowest + 2, np.int64), before, order)
    return order


def _make_sort_value(array: pa.Array) -> tuple[bool, Any]:
    if array.null_count:
        return False, 0
    return True, int(_compute_codes(array)[0]) if _is_number(array.type) else array[0].as_py()


def _is_number(kind: pa.DataType) -> bool:
    return bool(arrow.is_boolean(kind) or arrow.is_floating(kind) or arrow.is_integer(kind) or arrow.is_temporal(kind))


def _compute_codes(array: pa.Array) -> NDArray[np.int64]:
    """Return a code per value; codes are ordered as the values are. Null has any code."""
    kind = array.type
    if arrow.is_boolean(kind):
        return unpack_booleans(array).astype(np.int64)
    if arrow.is_floating(kind):
        values = view_values(array.cast(pa.float64()), "<f8")
        bits = values.view(np.int64)
        return np.where(np.isnan(values), _LARGEST, np.where(bits < 0, bits ^ _LARGEST, bits))
    if _is_number(kind):
        dtype = ("u" if arrow.is_unsigned_integer(kind) else "i") + str(kind.bit_width // 8)
        return view_values(array, f"<{dtype}").astype(np.int64)
    import pyarrow.compute as pc

    encoded = array if arrow.is_dictionary(kind) else array.dictionary_encode()
    ranks = view_values(pc.rank(encoded.dictionary, tiebreaker="dense").cast(pa.int64()), "<i8")
    places = fill_null(encoded.indices.cast(pa.int64()), len(ranks))
    codes: NDArray[np.int64] = np.append(ranks, 0)[view_values(places, "<i8")]
    return codes
