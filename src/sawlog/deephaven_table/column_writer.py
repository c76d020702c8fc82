"""Writing the files of one column: data, binary data, symbols, header and metadata."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.deephaven_table import layout
from sawlog.deephaven_table.encode import (
    Place,
    cast,
    encode_fixed,
    encode_strings,
    encode_text,
    unencodable,
    unviewed,
    validity,
    values_of,
)
from sawlog.deephaven_table.encode_objects import encode_slots, encode_variable
from sawlog.deephaven_table.layout import ColumnType
from sawlog.errors import SchemaError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.deephaven_table.header import Generation
    from sawlog.deephaven_table.types import ColumnSpec

MAX_KNOWN_SYMBOLS = 1 << 20
"""A symbol table remembers so many strings; what comes after that is entered anew, which readers allow for."""
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
            self._write_symbols(self._symbols, array, place)
        elif self.spec.type in layout.FIXED:
            self._append_numbers(layout.DATA, encode_fixed(self.spec.type, array, place))
        elif self.spec.variable:
            self._write_variable(array, place)
        else:
            self._append(layout.DATA, encode_slots(self.spec, array, place))

    def finish(self, metadata: bytes) -> None:
        """Write the metadata into the header of the data file, and what does not fit beside it."""
        if metadata == layout.JAVA_NULL:  # it is there
            return
        begin, rest = self._generation.header(metadata)
        with open(self._path(layout.DATA), "r+b") as file:
            file.write(begin)
        if rest:
            self._append(layout.OVERFLOW, rest)

    def _write_symbols(self, symbols: _Symbols, array: pa.Array, place: Place) -> None:
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


class _Symbols:
    """The symbol table of a column: ids in the order in which strings first appear."""

    def __init__(self, charset: str) -> None:
        self._charset = charset
        self._known: dict[str, int] = {}
        self._count = 0
        self._end = 0
        self._new: list[bytes] = []

    def numbers(self, array: pa.Array, place: Place) -> NDArray[np.int32]:
        """The ids of strings, plain or in a dictionary."""
        import numpy as np
        import pyarrow.compute as pc

        if pa.types.is_null(array.type):
            return np.full(len(array), layout.NULL_SYMBOL, np.int32)
        if not pa.types.is_dictionary(array.type):
            array = cast(array, pa.large_string(), place).dictionary_encode()
        texts, indices = unviewed(array.dictionary), array.indices.cast(pa.int64())
        valid = validity(indices)
        places = values_of(indices, "<i8")
        if valid is not None:
            places = np.where(valid, places, len(texts))
        # In the order in which they first appear, as pyarrow does not promise to keep but does.
        used = values_of(pc.unique(indices.drop_null()), "<i8")
        if len(used) and not 0 <= used.min() <= used.max() < len(texts):
            raise SchemaError(f"column {place.column!r}: an index outside the dictionary")
        ids = np.full(len(texts) + 1, layout.NULL_SYMBOL, np.int32)
        for index, text in zip(used.tolist(), texts.take(pa.array(used)).to_pylist(), strict=True):
            try:
                ids[index] = layout.NULL_SYMBOL if text is None else self.number(text)
            except ValueError as error:
                raise unencodable(place, int((places == index).argmax()), text, self._charset, error) from error
        if len(self._known) > MAX_KNOWN_SYMBOLS:
            self._known.clear()
        chosen: NDArray[np.int32] = ids[places]
        return chosen

    def masks(self, array: pa.Array, place: Place) -> NDArray[np.uint64]:
        """Sets of strings as masks: bit k stands for symbol k."""
        import numpy as np

        masks = np.zeros(len(array), np.uint64)
        null = layout.FIXED[ColumnType.STRING_SET].null
        for at, texts in enumerate(array.to_pylist()):
            if texts is None:
                masks[at] = null
                continue
            mask = 0
            for text in texts:
                if text is None:
                    raise place.error(at, "a null in a set of strings")
                try:
                    number = self.number(text)
                except ValueError as error:
                    raise unencodable(place, at, text, self._charset, error) from error
                if number >= layout.MAX_SYMBOLS_IN_SET:
                    raise place.error(at, f"{text!r} is one string too many: sets have {number} different ones")
                mask |= 1 << number
            if mask == null:
                raise place.error(at, f"the set of {texts[0]!r} alone stands for null, so that it cannot be written")
            masks[at] = mask
        return masks

    def number(self, text: str) -> int:
        """The id of one string.

        Raises:
            ValueError: When the charset lacks a character, or the string would be read as another one.
        """
        known = self._known.get(text)
        if known is not None:
            return known
        if self._count >= MAX_SYMBOLS:
            raise SchemaError(f"a symbol table of {MAX_SYMBOLS} strings is full")
        self._new.append(encode_text(text, self._charset))
        self._known[text] = self._count
        self._count += 1
        return self._count - 1

    def take(self) -> tuple[NDArray[np.int64], bytes]:
        """End offsets and characters of the symbols that are new since the last call."""
        import numpy as np

        ends = np.cumsum([len(one) for one in self._new], dtype=np.int64) + self._end
        data = b"".join(self._new)
        self._end += len(data)
        self._new = []
        return ends, data
