"""The symbol table of a column that is written: strings get numbers in the order in which they first appear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_fixed_array, view_binary, view_values
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.values import ArrayPlace, cast, encode_strings, make_validity
from sawlog.errors import SchemaError
from sawlog.kernels.intern import Interner, Strings

MAX_KNOWN_SYMBOLS = 1 << 20
"""A symbol table remembers so many strings; what comes after that is entered again, which readers allow for."""
_MAX_SYMBOLS = 1 << 31


class SymbolTable:
    """Numbers strings, and hands over what is to be written of them.

    Args:
        charset: Of the strings as they are stored.
    """

    def __init__(self, charset: str) -> None:
        self._charset = charset
        self._first = 0
        self._end = 0
        self._new: list[tuple[NDArray[np.int64], Any]] = []
        self._interner = Interner()

    def assign_ids(self, array: pa.Array, place: ArrayPlace) -> NDArray[np.int32]:
        """Return the ids of strings, plain or in a dictionary."""
        import pyarrow.compute as pc

        if pa.types.is_null(array.type):
            return np.full(len(array), layout.NULL_SYMBOL, np.int32)
        if not pa.types.is_dictionary(array.type):
            ids = self._enter(cast(array, pa.large_string(), place), place)
        else:
            texts, indices = cast(array.dictionary, pa.large_string(), place), array.indices.cast(pa.int64())
            valid = make_validity(indices)
            places = view_values(indices, "<i8")
            if valid is not None:
                places = np.where(valid, places, len(texts))
            # In the order in which they first appear, as pyarrow does not promise to keep but does.
            used = view_values(pc.unique(indices.drop_null()), "<i8")
            if len(used) and not 0 <= used.min() <= used.max() < len(texts):
                raise SchemaError(f"column {place.column!r}: an index outside the dictionary")
            of_texts = np.full(len(texts) + 1, layout.NULL_SYMBOL, np.int32)
            first = _FirstUse(place.column, place.row, places, used)
            of_texts[used] = self._enter(texts.take(make_fixed_array(pa.int64(), used)), first)
            ids = of_texts[places]
        if self._interner.count > MAX_KNOWN_SYMBOLS:
            self._first += self._interner.count
            self._interner = Interner()
        return ids

    def take(self) -> tuple[NDArray[np.int64], bytes]:
        """Return the end offsets and characters of the symbols that are new since the last call."""
        lengths = np.concatenate([np.zeros(0, np.int64), *(lengths for lengths, _ in self._new)])
        data = b"".join(bytes(data) for _, data in self._new)
        ends = np.cumsum(lengths, dtype=np.int64) + self._end
        self._end += len(data)
        self._new = []
        return ends, data

    def _enter(self, texts: pa.Array, place: ArrayPlace) -> NDArray[np.int32]:
        """Return the ids of strings, of which those that are new get the next ones."""
        valid, count = make_validity(texts), self._interner.count
        data, ends = view_binary(texts)
        strings = Strings(ends, data)
        numbers, rows = self._interner.assign_numbers(strings, None if valid is None else valid.view(np.uint8))
        if len(rows):
            self._add(count, _Nth(place.column, place.row, place, rows))
        numbers += np.int32(self._first)
        if valid is not None:
            numbers[~valid] = layout.NULL_SYMBOL
        return numbers

    def _add(self, count: int, place: ArrayPlace) -> None:
        interner = self._interner
        if self._first + interner.count > _MAX_SYMBOLS:
            raise SchemaError(f"a symbol table of {_MAX_SYMBOLS} strings is full")
        ends, data = interner.interned.strings
        ends = ends[count : interner.count + 1]
        buffers = [None, pa.py_buffer(ends - ends[0]), pa.py_buffer(data[ends[0] : ends[-1]].copy())]
        new = pa.Array.from_buffers(pa.large_string(), interner.count - count, buffers)
        self._new.append(encode_strings(new, self._charset, place))


@dataclass(frozen=True, slots=True)
class _FirstUse(ArrayPlace):
    """Places of rows in which values of a dictionary are first used.

    Attributes:
        places: Places in the dictionary, of every row.
        used: Those that are used, in the order of the values that are spoken of.
    """

    places: Any
    used: Any

    def make_error(self, index: int, message: str) -> SchemaError:
        return ArrayPlace(self.column, self.row + int((self.places == self.used[index]).argmax())).make_error(
            0, message
        )


@dataclass(frozen=True, slots=True)
class _Nth(ArrayPlace):
    """Places of those values of an array that have certain numbers."""

    place: ArrayPlace
    numbers: Any

    def make_error(self, index: int, message: str) -> SchemaError:
        return self.place.make_error(int(self.numbers[index]), message)
