"""Writing the files of one column: data, binary data, symbols, header and metadata."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import fill_null, find_index, view_values
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.codecs import encode_slots, encode_variable
from sawlog.deephaven.table.location import Generation
from sawlog.deephaven.table.symbol_table import SymbolTable
from sawlog.deephaven.table.types import ColumnSpec
from sawlog.deephaven.table.values import ArrayPlace, ElementPlace, cast, encode_fixed, encode_strings, make_validity
from sawlog.deephaven.types import FIXED, ColumnType
from sawlog.errors import SchemaError


class ColumnWriter:
    """Appends to the files of one column, which are opened for each piece: tables have thousands of columns.

    Raises:
        SchemaError: Where names that differ in case only are the same.
    """

    def __init__(self, directory: str, name: str, spec: ColumnSpec, generation: Generation) -> None:
        self.name = name
        self.spec = spec
        self._directory = directory
        self._generation = generation
        self._binary_size = 0
        self._symbols: SymbolTable | None = None
        if spec.type is ColumnType.STRING_SET or (spec.type is ColumnType.STRING and spec.symbols):
            self._symbols = SymbolTable(spec.charset)
        self._begin(layout.DATA)
        if self._symbols is not None:
            self._begin(layout.SYMBOL_OFFSETS)
            self._append(layout.SYMBOL_BINARY, b"")
        elif spec.variable:
            self._append(layout.BINARY, b"")

    def write(self, array: pa.Array, row: int) -> None:
        """Append values.

        Raises:
            SchemaError: For a value that cannot be represented; names column and row.
        """
        place = ArrayPlace(self.name, row)
        if self._symbols is not None:
            self._write_symbols(self._symbols, array, place)
        elif self.spec.type in FIXED:
            self._append_numbers(layout.DATA, encode_fixed(self.spec.type, array, place))
        elif self.spec.variable:
            self._write_variable(array, place)
        else:
            self._append(layout.DATA, encode_slots(self.spec, array, place))

    def finish(self, metadata: bytes) -> None:
        """Write the metadata into the header of the data file, and what does not fit into a file next to it."""
        if metadata == layout.JAVA_NULL:  # it is there
            return
        begin, overflow = self._generation.encode_header(metadata)
        with open(self._build_path(layout.DATA), "r+b") as file:
            file.write(begin)
        if overflow:
            self._append(layout.OVERFLOW, overflow)

    def _write_symbols(self, symbols: SymbolTable, array: pa.Array, place: ArrayPlace) -> None:
        if self.spec.type is ColumnType.STRING:
            numbers = symbols.assign_ids(array, place).view("<u4")
        else:
            numbers = _encode_masks(symbols, array, place)
        ends, data = symbols.take()
        self._append(layout.SYMBOL_BINARY, data)
        self._append_numbers(layout.SYMBOL_OFFSETS, ends)
        self._append_numbers(layout.DATA, numbers)

    def _write_variable(self, array: pa.Array, place: ArrayPlace) -> None:
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
        header = self._generation.encode_header(layout.JAVA_NULL)[0]
        try:
            with open(self._build_path(suffix), "xb") as file:
                file.write(header.rstrip(b"\0"))
                file.truncate(len(header))  # most of it stays a hole
        except FileExistsError as error:
            raise SchemaError(
                f"column {self.name!r}: this file system does not distinguish its files from those of another column"
            ) from error

    def _append(self, suffix: str, data: Any) -> None:
        with open(self._build_path(suffix), "ab", buffering=0) as file:
            view = memoryview(data)
            view = view.cast("B") if view.nbytes else memoryview(b"")  # what has no rows has no shape to be cast
            while len(view):
                view = view[file.write(view) :]

    def _build_path(self, suffix: str) -> str:
        return os.path.join(self._directory, self.name + suffix)


def check(spec: ColumnSpec, array: pa.Array, place: ArrayPlace) -> None:
    """Make sure that a column can hold values.

    Raises:
        SchemaError: When it cannot.
    """
    if spec.type is ColumnType.STRING_SET:
        _encode_masks(SymbolTable(spec.charset), array, place)
    elif spec.type is ColumnType.STRING:
        encode_strings(array, spec.charset, place)
    elif spec.type in FIXED:
        encode_fixed(spec.type, array, place)
    elif spec.variable:
        encode_variable(spec, array, place)
    else:
        encode_slots(spec, array, place)


def _encode_masks(symbols: SymbolTable, array: pa.Array, place: ArrayPlace) -> NDArray[np.uint64]:
    """Return sets of strings as masks: bit k stands for symbol k."""
    import pyarrow.compute as pc

    null = np.uint64(FIXED[ColumnType.STRING_SET].null)
    if pa.types.is_null(array.type):
        return np.full(len(array), null, np.uint64)
    lists = cast(array, pa.list_(array.type.value_type), place)
    counts = view_values(fill_null(pc.list_value_length(lists), 0).cast(pa.int64()), "<i8")
    elements = lists.flatten()
    element_place = ElementPlace(place.column, place.row, np.cumsum(counts))
    if elements.null_count:
        raise element_place.make_error(find_index(elements.is_null(), True), "a null in a set of strings")
    numbers = symbols.assign_ids(elements, element_place)
    if numbers.max(initial=0) >= layout.MAX_SYMBOLS_IN_SET:
        row = int((numbers >= layout.MAX_SYMBOLS_IN_SET).argmax())
        number = layout.MAX_SYMBOLS_IN_SET
        raise element_place.make_error(
            row, f"{elements[row].as_py()!r} is one string too many: sets have {number} different ones"
        )
    masks = np.zeros(len(array), np.uint64)
    np.bitwise_or.at(masks, np.repeat(np.arange(len(array)), counts), np.uint64(1) << numbers.astype(np.uint64))
    ambiguous = masks == null
    if ambiguous.any():
        row = int(ambiguous.argmax())
        text = lists[row].as_py()[0]
        raise place.make_error(row, f"the set of only {text!r} stands for null, so that it cannot be written")
    valid = make_validity(lists)
    return masks if valid is None else np.where(valid, masks, null)
