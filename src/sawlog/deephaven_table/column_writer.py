"""Writing the files of one column: data, binary data, symbols, header and metadata."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.deephaven.types import FIXED, ColumnType
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.encode import (
    ElementPlace,
    Place,
    cast,
    encode_fixed,
    encode_strings,
    validity,
    values_of,
)
from sawlog.deephaven_table.encode_objects import encode_slots, encode_variable
from sawlog.errors import SchemaError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.deephaven_table.header import Generation
    from sawlog.deephaven_table.types import ColumnSpec

MAX_KNOWN_SYMBOLS = 1 << 20
"""A symbol table remembers so many strings; what comes after that is entered anew, which readers allow for."""
HELD_BYTES = 64 << 20
"""Bytes of values that are held back until they are looked up in a large symbol table."""
MAX_SYMBOLS = 1 << 31


class ColumnWriter:
    """Appends to the files of one column, which are opened for each piece: tables have thousands of columns.

    Args:
        directory: Local directory of the files.
        name: Name of the column.
        spec: What it is.
        generation: How its files begin.

    Raises:
        SchemaError: Where names that differ in case only are the same.
    """

    def __init__(self, directory: str, name: str, spec: ColumnSpec, generation: Generation) -> None:
        self.name = name
        self.spec = spec
        self._directory = directory
        self._generation = generation
        self._binary_size = 0
        self._symbols: _Symbols | None = None
        self._held: list[pa.Array] = []
        self._held_row = 0
        if spec.type is ColumnType.STRING_SET or (spec.type is ColumnType.STRING and spec.symbols):
            self._symbols = _Symbols(spec.charset)
        self._begin(layout.DATA)
        if self._symbols is not None:
            self._begin(layout.SYMBOL_OFFSETS)
            self._append(layout.SYMBOL_BINARY, b"")
        elif spec.variable:
            self._append(layout.BINARY, b"")

    def write(self, array: pa.Array, row: int) -> None:
        """Append values.

        Args:
            array: The values.
            row: Row of the location that the first of them is.

        Raises:
            SchemaError: For a value that cannot be represented; names column and row.
        """
        place = Place(self.name, row)
        if self._symbols is not None:
            self._hold(self._symbols, array, row)
        elif self.spec.type in FIXED:
            self._append_numbers(layout.DATA, encode_fixed(self.spec.type, array, place))
        elif self.spec.variable:
            self._write_variable(array, place)
        else:
            self._append(layout.DATA, encode_slots(self.spec, array, place))

    def finish(self, metadata: bytes) -> None:
        """Write what is left, the metadata into the header of the data file, and what does not fit beside it.

        Raises:
            SchemaError: For a value that cannot be represented; names column and row.
        """
        if self._symbols is not None:
            self._write_symbols(self._symbols)
        if metadata == layout.JAVA_NULL:  # it is there
            return
        begin, rest = self._generation.header(metadata)
        with open(self._path(layout.DATA), "r+b") as file:
            file.write(begin)
        if rest:
            self._append(layout.OVERFLOW, rest)

    def _hold(self, symbols: _Symbols, array: pa.Array, row: int) -> None:
        """Hold values back until they are as many as the known symbols: looking them up takes as long as both."""
        self._held_row = self._held_row if self._held else row
        self._held.append(array)
        full = sum(one.nbytes for one in self._held) >= HELD_BYTES
        if full or sum(map(len, self._held)) >= symbols.known:
            self._write_symbols(symbols)

    def _write_symbols(self, symbols: _Symbols) -> None:
        if not self._held:
            return
        held = pa.chunked_array(self._held).unify_dictionaries() if len(self._held) > 1 else None
        array, place = self._held[0] if held is None else held.combine_chunks(), Place(self.name, self._held_row)
        self._held = []
        if self.spec.type is ColumnType.STRING:
            numbers = symbols.numbers(array, place).view("<u4")
        else:
            numbers = symbols.masks(array, place)
        ends, data = symbols.take()
        self._append(layout.SYMBOL_BINARY, data)
        self._append_numbers(layout.SYMBOL_OFFSETS, ends)
        self._append_numbers(layout.DATA, numbers)

    def _write_variable(self, array: pa.Array, place: Place) -> None:
        import numpy as np

        if self.spec.type is ColumnType.STRING:
            lengths, data = encode_strings(array, self.spec.charset, place)
        else:
            lengths, data = encode_variable(self.spec, array, place)
        ends = np.cumsum(lengths, dtype=np.int64) + self._binary_size
        self._binary_size += len(data)
        self._append(layout.BINARY, data)
        self._append_numbers(layout.DATA, ends)

    def _append_numbers(self, suffix: str, numbers: NDArray[Any]) -> None:
        self._append(suffix, numbers if self._generation.little else numbers.byteswap())

    def _begin(self, suffix: str) -> None:
        header = self._generation.header(layout.JAVA_NULL)[0]
        try:
            with open(self._path(suffix), "xb") as file:
                file.write(header.rstrip(b"\0"))
                file.truncate(len(header))  # most of it stays a hole
        except FileExistsError as error:
            raise SchemaError(
                f"column {self.name!r}: this file system does not tell its files from those of another column"
            ) from error

    def _append(self, suffix: str, data: Any) -> None:
        with open(self._path(suffix), "ab", buffering=0) as file:
            view = memoryview(data).cast("B")
            while len(view):
                view = view[file.write(view) :]

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, self.name + suffix)


def check(spec: ColumnSpec, array: pa.Array, place: Place) -> None:
    """Make sure that a column can hold values.

    Raises:
        SchemaError: When it cannot.
    """
    if spec.type is ColumnType.STRING_SET:
        _Symbols(spec.charset).masks(array, place)
    elif spec.type is ColumnType.STRING:
        encode_strings(array, spec.charset, place)
    elif spec.type in FIXED:
        encode_fixed(spec.type, array, place)
    elif spec.variable:
        encode_variable(spec, array, place)
    else:
        encode_slots(spec, array, place)


class _Symbols:
    """The symbol table of a column: ids in the order in which strings first appear."""

    def __init__(self, charset: str) -> None:
        self._charset = charset
        self._known = pa.array([], pa.large_string())
        self._first = 0
        self._end = 0
        self._new: list[tuple[NDArray[np.int64], Any]] = []

    @property
    def known(self) -> int:
        """How many symbols are remembered."""
        return len(self._known)

    def numbers(self, array: pa.Array, place: Place) -> NDArray[np.int32]:
        """The ids of strings, plain or in a dictionary."""
        import numpy as np
        import pyarrow.compute as pc

        if pa.types.is_null(array.type):
            return np.full(len(array), layout.NULL_SYMBOL, np.int32)
        if not pa.types.is_dictionary(array.type):
            return self._plain_numbers(cast(array, pa.large_string(), place), place)
        texts, indices = cast(array.dictionary, pa.large_string(), place), array.indices.cast(pa.int64())
        valid = validity(indices)
        places = values_of(indices, "<i8")
        if valid is not None:
            places = np.where(valid, places, len(texts))
        # In the order in which they first appear, as pyarrow does not promise to keep but does.
        used = values_of(pc.unique(indices.drop_null()), "<i8")
        if len(used) and not 0 <= used.min() <= used.max() < len(texts):
            raise SchemaError(f"column {place.column!r}: an index outside the dictionary")
        ids = np.full(len(texts) + 1, layout.NULL_SYMBOL, np.int32)
        numbers = self._enter(texts.take(pa.array(used)), _FirstUse(place.column, place.row, places, used))
        ids[used] = values_of(pc.fill_null(numbers, layout.NULL_SYMBOL), "<i4")
        self._forget()
        chosen: NDArray[np.int32] = ids[places]
        return chosen

    def _plain_numbers(self, array: pa.Array, place: Place) -> NDArray[np.int32]:
        ids = self._enter(array, place)
        self._forget()
        return values_of(ids.fill_null(layout.NULL_SYMBOL), "<i4")

    def _forget(self) -> None:
        if len(self._known) > MAX_KNOWN_SYMBOLS:
            self._first += len(self._known)
            self._known = self._known.slice(0, 0)

    def masks(self, array: pa.Array, place: Place) -> NDArray[np.uint64]:
        """Sets of strings as masks: bit k stands for symbol k."""
        import numpy as np
        import pyarrow.compute as pc

        null = np.uint64(FIXED[ColumnType.STRING_SET].null)
        if pa.types.is_null(array.type):
            return np.full(len(array), null, np.uint64)
        lists = cast(array, pa.list_(array.type.value_type), place)
        counts = values_of(pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64()), "<i8")
        elements = lists.flatten()
        where = ElementPlace(place.column, place.row, np.cumsum(counts))
        if elements.null_count:
            raise where.error(elements.is_null().index(True).as_py(), "a null in a set of strings")
        numbers = self.numbers(elements, where)
        if numbers.max(initial=0) >= layout.MAX_SYMBOLS_IN_SET:
            at = int((numbers >= layout.MAX_SYMBOLS_IN_SET).argmax())
            number = layout.MAX_SYMBOLS_IN_SET
            raise where.error(at, f"{elements[at].as_py()!r} is one string too many: sets have {number} different ones")
        masks = np.zeros(len(array), np.uint64)
        np.bitwise_or.at(masks, np.repeat(np.arange(len(array)), counts), np.uint64(1) << numbers.astype(np.uint64))
        taken = masks == null
        if taken.any():
            at = int(taken.argmax())
            text = lists[at].as_py()[0]
            raise place.error(at, f"the set of {text!r} alone stands for null, so that it cannot be written")
        valid = validity(lists)
        return masks if valid is None else np.where(valid, masks, null)

    def take(self) -> tuple[NDArray[np.int64], bytes]:
        """End offsets and characters of the symbols that are new since the last call."""
        import numpy as np

        lengths = np.concatenate([np.zeros(0, np.int64), *(lengths for lengths, _ in self._new)])
        data = b"".join(bytes(data) for _, data in self._new)
        ends = np.cumsum(lengths, dtype=np.int64) + self._end
        self._end += len(data)
        self._new = []
        return ends, data

    def _enter(self, texts: pa.Array, place: Place) -> pa.Array:
        """The ids of strings, of which those that are new get the next ones; null of null."""
        encoded = texts.dictionary_encode()
        return self._enter_distinct(
            encoded.dictionary, _Distinct(place.column, place.row, place, encoded.indices)
        ).take(encoded.indices)

    def _enter_distinct(self, texts: pa.Array, place: Place) -> pa.Array:
        """The ids of strings that are all different, none of them null."""
        import numpy as np
        import pyarrow.compute as pc

        numbers = np.full(len(texts), -1, np.int32)
        if len(self._known):
            numbers = values_of(pc.index_in(texts, value_set=self._known).fill_null(-1), "<i4").copy()
        missing = np.flatnonzero(numbers < 0)
        if len(missing):
            if self._first + len(self._known) + len(missing) > MAX_SYMBOLS:
                raise SchemaError(f"a symbol table of {MAX_SYMBOLS} strings is full")
            new = texts if len(missing) == len(texts) else texts.take(pa.array(missing))
            self._new.append(encode_strings(new, self._charset, _Nth(place.column, place.row, place, missing)))
            numbers[missing] = len(self._known) + np.arange(len(missing), dtype=np.int32)
            self._known = pa.concat_arrays([self._known, new])
        return pa.array(numbers + np.int32(self._first))


@dataclass(frozen=True, slots=True)
class _FirstUse(Place):
    """Where values of a dictionary are first used.

    Attributes:
        places: Places in the dictionary, of every row.
        used: Those that are used, in the order of the values that are spoken of.
    """

    places: Any
    used: Any

    def error(self, at: int, message: str) -> SchemaError:
        """See `Place.error`."""
        return Place(self.column, self.row + int((self.places == self.used[at]).argmax())).error(0, message)


@dataclass(frozen=True, slots=True)
class _Distinct(Place):
    """Where different values first stand among those that another place speaks of.

    Attributes:
        whole: That other place.
        indices: Which of the different values each of its values is.
    """

    whole: Place
    indices: pa.Array

    def error(self, at: int, message: str) -> SchemaError:
        """See `Place.error`."""
        return self.whole.error(self.indices.index(at).as_py(), message)


@dataclass(frozen=True, slots=True)
class _Nth(Place):
    """Where some of the values stand that another place speaks of.

    Attributes:
        whole: That other place.
        numbers: Which of its values they are.
    """

    whole: Place
    numbers: Any

    def error(self, at: int, message: str) -> SchemaError:
        """See `Place.error`."""
        return self.whole.error(int(self.numbers[at]), message)
