"""The content of columns: nulls, bounds, estimates of distinct values, and the keys with most bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sawlog.arrow import fill_null, make_fixed_array, view_binary, view_values
from sawlog.map.kernels import find_bounds, hash_slices, hash_words, move_new

_SKETCH_HASHES = 1024
"""Hashes that an estimate of distinct values keeps: it is off by 3 % or so."""
_MAX_KEYS = 4096
"""Keys that are counted at a time."""
_SHOWN_KEYS = 20
KEY_BYTES = 256
"""Longer values are no keys."""


class Distinct:
    """An estimate of how many values there are, from the smallest of their hashes."""

    def __init__(self) -> None:
        self._smallest: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._filter = np.arange(4 * _SKETCH_HASHES, dtype=np.uint64) ^ np.uint64(1)  # none leads to its place

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Take in the hashes of values, which are changed."""
        limit = self._smallest[-1] if len(self._smallest) == _SKETCH_HASHES else np.uint64(2**64 - 1)
        new = hashes[: move_new(hashes, limit, self._filter)]
        if len(new):
            self._smallest = np.unique(np.concatenate([self._smallest, new]))[:_SKETCH_HASHES]

    @property
    def count(self) -> int:
        """The estimate; exact below `_SKETCH_HASHES`."""
        if len(self._smallest) < _SKETCH_HASHES:
            return len(self._smallest)
        return round((_SKETCH_HASHES - 1) * 2.0**64 / float(self._smallest[-1]))


def _convert_words(values: pa.Array) -> NDArray[np.uint64] | None:
    """Return values of a fixed width; None for other types."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if not pa.types.is_primitive(values.type) or values.type.bit_width not in (8, 16, 32, 64):
        return None
    return view_values(values, f"u{values.type.bit_width // 8}").astype(np.uint64)


def _split_slices(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
    """Return the ends of values of variable length, and their bytes; None for other types."""
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        values = values.cast(pa.binary(kind.byte_width)).cast(pa.large_binary())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = values.cast(pa.large_binary())
    elif not pa.types.is_large_string(kind) and not pa.types.is_large_binary(kind):
        return None
    data, ends = view_binary(values)
    return ends, data


def _select_distinct(values: pa.Array) -> pa.Array:
    """Return the values without nulls; of a dictionary those that there are, each once."""
    if not pa.types.is_dictionary(values.type):
        return values.drop_null() if values.null_count else values
    codes = view_values(values.indices.drop_null().cast(pa.int64()), np.int64)
    used_codes = np.flatnonzero(np.bincount(codes, minlength=len(values.dictionary)))
    return values.dictionary.take(make_fixed_array(pa.int64(), used_codes)).drop_null()


class ColumnStatistics:
    """The statistics of a column, batch by batch."""

    def __init__(self, field: pa.Field) -> None:
        self.field = field
        self.rows = 0
        self.nulls = 0
        self._low: Any = None
        self._high: Any = None
        self._distinct: Distinct | None = Distinct()

    def add(self, values: pa.Array) -> None:
        """Take in the values of a batch, which may be encoded with a dictionary."""
        self.rows += len(values)
        self.nulls += values.null_count
        different = _select_distinct(values)
        if not len(different):
            return
        slices = _split_slices(different)
        words = _convert_words(different) if slices is None else None
        hashes = np.empty(len(different), np.uint64)
        if slices is not None:
            hash_slices(*slices, hashes)
        elif words is not None:
            hash_words(words, hashes)
        else:
            self._distinct = None
        if self._distinct is not None:
            self._distinct.add(hashes)
        if slices is not None:
            places = np.zeros(2, np.int64)
            find_bounds(*slices, places)
            self._widen(*(different[place] for place in places.tolist()))
        elif _is_bounded(different.type):
            bounds = pc.min_max(different)
            self._widen(bounds["min"], bounds["max"])

    def _widen(self, low: pa.Scalar, high: pa.Scalar) -> None:
        if low.is_valid:
            self._low = low if self._low is None or pc.less(low, self._low).as_py() else self._low
            self._high = high if self._high is None or pc.greater(high, self._high).as_py() else self._high

    @property
    def bounds(self) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """The least and the greatest value."""
        return self._low, self._high

    @property
    def distinct(self) -> int | None:
        """An estimate of how many different values there are, at most what is possible; None where it is not known."""
        if self._distinct is None:
            return None
        possible = self.rows - self.nulls
        if self._low is not None and pa.types.is_integer(self._low.type):
            possible = min(possible, self._high.as_py() - self._low.as_py() + 1)
        return min(self._distinct.count, possible)


def _is_bounded(kind: pa.DataType) -> bool:
    tests = (pa.types.is_nested, pa.types.is_null, pa.types.is_float16)
    return not any(test(kind) for test in tests) and not isinstance(kind, pa.BaseExtensionType)


def is_key(field: pa.Field) -> bool:
    """Return whether a column may say which series, key or member a row belongs to."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in (*text, pa.types.is_boolean))


class KeyStatistics:
    """The values of a column with most bytes in the file: exact while there are few, then at least what is said.

    Where there are more than `_MAX_KEYS`, those with least bytes are dropped, and counted from nothing if they return.

    Attributes:
        name: The column.
        dropped: Whether the counts are lower bounds.
        repeats: Whether keys come again; what is different in most rows is no key, and not counted further.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dropped = False
        self.repeats = True
        self._rows = 0
        self._weights_by_key: dict[Any, tuple[int, int]] = {}

    def add(self, values: pa.Array, sizes: NDArray[np.int64]) -> pa.Array:
        """Take in the keys of a batch and the bytes of its rows; return the keys, in a dictionary if they repeat."""
        if not self.repeats:
            return values
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        if len(values) >= _SKETCH_HASHES and 2 * len(encoded.dictionary) > len(values):
            self.repeats = False
            return values
        codes = view_values(fill_null(encoded.indices.cast(pa.int64()), len(encoded.dictionary)), np.int64)
        rows = np.bincount(codes, minlength=len(encoded.dictionary) + 1)
        total = np.bincount(codes, sizes, minlength=len(rows)).astype(np.int64)
        largest = np.argsort(-total, kind="stable")[:_MAX_KEYS]
        self.dropped |= len(largest) < int(np.count_nonzero(rows))
        for code in largest.tolist():
            if not rows[code]:
                continue
            key = encoded.dictionary[code].as_py() if code < len(encoded.dictionary) else None
            if isinstance(key, str | bytes) and len(key) > KEY_BYTES:
                self.dropped = True
                continue
            count, weight = self._weights_by_key.get(key, (0, 0))
            self._weights_by_key[key] = count + int(rows[code]), weight + int(total[code])
        if len(self._weights_by_key) > 2 * _MAX_KEYS:
            self.dropped = True
            self._weights_by_key = dict(sorted(self._weights_by_key.items(), key=lambda item: -item[1][1])[:_MAX_KEYS])
        self._rows += len(values) - values.null_count
        self.repeats = self._rows < _SKETCH_HASHES or 2 * len(self._weights_by_key) <= self._rows
        return encoded

    @property
    def top(self) -> list[tuple[Any, int, int]]:
        """Key, rows and bytes of the largest."""
        best = sorted(self._weights_by_key.items(), key=lambda item: (-item[1][1], str(item[0])))[:_SHOWN_KEYS]
        return [(key, rows, weight) for key, (rows, weight) in best]
