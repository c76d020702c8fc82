"""Symbol tables: the strings that the ids of a column stand for. Section 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    call_function,
    compute_offsets,
    fill_null,
    make_array,
    make_bitmap,
    make_fixed_array,
    view_values,
)
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.kernels import reaches
from sawlog.deephaven.table.location import ColumnFiles, Headers
from sawlog.deephaven.table.values import MAX_VALUE, check_ends, decode_words, gather, make_text_array
from sawlog.deephaven.types import FIXED, ColumnType
from sawlog.storage import Bytes, File, Storage

NULL = -1
UNUSABLE = -2
_MAX_CONTENT = MAX_VALUE - MAX_VALUE % layout.OFFSET_SIZE
_SMALL = 64 << 10
_FEW_SYMBOLS = 256
"""Symbols that Python compares sooner than Arrow."""


@dataclass(slots=True)
class SymbolTable:
    """Symbols of a column in one location.

    Attributes:
        strings: Distinct strings, without null.
        places: int32 by id: which string it stands for, `NULL`, or `UNUSABLE` for symbols whose offsets or characters
            are damaged. None where every id is the place of its string.
        count: How many ids there are.
    """

    strings: pa.Array
    places: NDArray[np.int32] | None
    count: int

    def convert_ids(self, ids: NDArray[Any]) -> tuple[pa.Array, NDArray[np.bool_] | None]:
        """Return ids as places in `strings`.

        Args:
            ids: uint32, the bit patterns of the file.

        Returns:
            int32 indices, and which rows (None: none) have an id that no symbol has: they are null.
        """
        if not reaches(ids, np.uint32(self.count)):
            places = ids.view(np.int32)
            if self.places is None:
                return pa.Array.from_buffers(pa.int32(), len(ids), [None, pa.py_buffer(places)]), None
            places = self.places[places]
            bad = places == UNUSABLE
        else:
            in_table = ids < self.count
            places = np.where(in_table, ids, 0).astype(np.int32)
            if self.places is not None:
                places = self.places[places]
            bad = ~in_table & (ids != layout.NULL_SYMBOL & 0xFFFF_FFFF)
            places[~in_table] = NULL
            bad |= places == UNUSABLE
        valid = places >= 0
        places[~valid] = 0
        array = pa.Array.from_buffers(pa.int32(), len(ids), [make_bitmap(valid), pa.py_buffer(places)])
        return array, bad if bad.any() else None


def load_symbols(column: ColumnFiles, headers: Headers, charset: str, storage: Storage) -> SymbolTable:
    """Return the symbol table of a column. Symbols that cannot be read do no harm until a row uses them."""
    offsets = column.files.get(layout.SYMBOL_OFFSETS)
    header = headers.of(column, layout.SYMBOL_OFFSETS) if offsets is not None else None
    empty = make_array([], pa.string())
    if offsets is None or header is None:
        return SymbolTable(empty, None, 0)
    data = _read_content(offsets, header.data_start, storage)
    count = len(data) // layout.OFFSET_SIZE
    ends = np.zeros(count + 1, np.int64)
    offset_bytes = data[: count * layout.OFFSET_SIZE]
    ends[1:] = decode_words(offset_bytes, layout.OFFSET_SIZE, little=headers.is_little(header)).view(np.int64)
    file = column.files.get(layout.SYMBOL_BINARY)
    characters = np.zeros(0, np.uint8) if file is None else _read_content(file, 0, storage)
    bad = check_ends(ends, len(characters))
    if bad.any():  # the readable symbols are together no longer than their file: what overlaps is unusable too
        bad |= np.cumsum(np.where(bad, 0, np.diff(ends))) > len(characters)
    slices = gather(ends, bad, characters, 0)
    strings, replaced = make_text_array(slices, charset)
    if (
        not bad.any()
        and not replaced
        and count <= _FEW_SYMBOLS
        and len(characters) <= _SMALL
        and len({*strings.to_pylist(), None}) == count + 1
    ):
        return SymbolTable(strings, None, count)
    encoded = call_function("dictionary_encode", strings)
    if not bad.any() and not replaced and len(encoded.dictionary) == count:
        return SymbolTable(strings, None, count)
    places = view_values(fill_null(encoded.indices, NULL), np.int32).copy()
    places[: len(bad)][bad[: len(places)]] = UNUSABLE
    places[replaced] = UNUSABLE
    return SymbolTable(encoded.dictionary, places, count)


def _read_content(file: File, start: int, storage: Storage) -> Bytes:
    """Return the bytes of a file from a byte on; most tables of symbols are small."""
    if file.size - start <= _SMALL:
        return np.frombuffer(storage.read(file.path, start, _SMALL), np.uint8)
    source = storage.open(file.path)
    data = source.read_window(start, min(max(0, source.size - start), _MAX_CONTENT))
    source.close()
    return data


def decode_symbol_sets(
    masks: NDArray[np.uint64], symbols: pa.Array, unusable: NDArray[np.bool_] | None, target: pa.DataType
) -> tuple[pa.Array, Any]:
    """Return masks over a symbol table as lists of strings.

    Args:
        masks: The values.
        symbols: The symbols by id.
        unusable: Which of them cannot be read; None where all can.
        target: The type of the lists.

    Returns:
        The lists, and which values (bool array) have bits without a readable symbol: they are null.
    """
    null = np.uint64(FIXED[ColumnType.STRING_SET].null)
    valid = masks != null
    symbol_count = min(len(symbols), layout.MAX_SYMBOLS_IN_SET)
    beyond = np.uint64(0) if symbol_count == layout.MAX_SYMBOLS_IN_SET else ~np.uint64((1 << symbol_count) - 1)
    if unusable is not None:
        for id in np.flatnonzero(unusable[:symbol_count]).tolist():
            beyond |= np.uint64(1 << id)
    bad = valid & ((masks & beyond) != 0)
    valid &= ~bad
    used = np.where(valid, masks, np.uint64(0)).astype("<u8")
    bits = np.unpackbits(used.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    rows, members = np.nonzero(bits)
    ends = compute_offsets(np.bincount(rows, minlength=len(masks)), np.int32)
    values = symbols.take(make_fixed_array(pa.int64(), np.ascontiguousarray(members, np.int64)))
    return pa.Array.from_buffers(target, len(masks), [make_bitmap(valid), pa.py_buffer(ends)], children=[values]), bad
