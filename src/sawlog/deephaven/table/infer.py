"""Types of columns: from options, a schema file, `table.tbl` as far as it is known, or by a look at the files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sawlog.deephaven.schema_xml import SchemaColumn
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.location import ColumnFiles, Headers, Location
from sawlog.deephaven.table.types import GROUPING, ColumnSpec, make_class_spec, make_codec_spec
from sawlog.deephaven.text import find_charset
from sawlog.deephaven.types import ARRAYS, FIXED, ColumnType
from sawlog.errors import SchemaError
from sawlog.storage import Storage, read_indexed

_BY_WIDTH = {
    1: (ColumnType.BYTE, "byte or Boolean"),
    2: (ColumnType.SHORT, "short or char"),
    4: (ColumnType.INT, "int or float"),
    8: (ColumnType.LONG, "long, double or DateTime"),
}
_SAMPLE_BYTES = 64
"""Bytes of binary data by which serialized objects are distinguished from text."""
_LONGEST_CLASS = 200
_CLASS = re.compile(rb"[\w.$\[;/]{1,%d}" % _LONGEST_CLASS)
_DESCRIPTORS = {row.descriptor.encode(): kind for kind, row in ARRAYS.items()}
_MAX_SLOT_BYTES = 40
"""Widest object that is taken for one: a decimal of Arrow's most digits, and some."""
MAX_DEFINITION = 4 << 20
"""Longer definitions of tables are not looked at."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts of a location that types of columns are inferred from."""

    location: Location
    headers: Headers
    rows: int | None


def make_schema_spec(column: SchemaColumn, source_name: str) -> ColumnSpec:
    """Return the column that a schema file defines."""
    spec = (
        make_codec_spec(column.codec, column.codec_arguments, f"{source_name}: column {column.name!r}")
        if column.codec
        else None
    )
    if spec is None:
        spec = (
            make_class_spec(column.data_type)
            if not column.codec
            else ColumnSpec(ColumnType.BLOB, class_name=column.codec)
        )
    if spec.type in (ColumnType.STRING, ColumnType.STRING_SET):
        charset = find_charset(column.encoding) or layout.DEFAULT_CHARSET
        spec = replace(spec, symbols=column.symbol_table.lower() != "none", charset=charset)
    return replace(spec, grouping=column.kind == GROUPING)


def infer(column: ColumnFiles, evidence: Evidence, storage: Storage) -> ColumnSpec | None:
    """Return the type of a column, as far as its files show it; None for one that is without rows.

    Raises:
        SchemaError: When the width of its values cannot be inferred.
    """
    data = column.data
    header = evidence.headers.of(column, layout.DATA) if data is not None else None
    if data is None or header is None:
        return None
    size = data.size - header.data_start
    if layout.SYMBOL_OFFSETS in column.files or layout.SYMBOL_BINARY in column.files:
        wide = evidence.rows is not None and size == evidence.rows * FIXED[ColumnType.STRING_SET].width
        return ColumnSpec(ColumnType.STRING_SET if wide and evidence.rows else ColumnType.STRING)
    binary = column.files.get(layout.BINARY)
    if binary is not None:
        return _of_bytes(read_indexed(storage, binary, 0, _SAMPLE_BYTES))
    if size <= 0:
        return None
    if evidence.rows is None:
        raise SchemaError(
            f"{data.path}: {size} bytes of an unknown type and an unknown number of rows: name the type"
            f" (types={{{column.name!r}: 'double'}}), a schema file, or num_rows"
        )
    if not evidence.rows:
        return None
    slot = size // evidence.rows
    if size % evidence.rows == 0 and 0 < slot <= _MAX_SLOT_BYTES and slot not in layout.WIDTHS:
        return ColumnSpec(ColumnType.BYTE_ARRAY, arguments=f"{slot},notNull", guessed=f"{slot} bytes a row: of a codec")
    exact = [width for width in layout.WIDTHS if width * evidence.rows == size]
    fitting = exact or [width for width in layout.WIDTHS if width * evidence.rows <= size]
    if not fitting:
        return None
    kind, choice = _BY_WIDTH[fitting[0]]
    return ColumnSpec(kind, guessed=f"{fitting[0]} bytes a row: {choice}")


def _of_bytes(sample: bytes) -> ColumnSpec:
    for kind, row in ARRAYS.items():
        if sample.startswith(layout.make_array_prefix(row.descriptor)):
            return ColumnSpec(kind)
    if sample.startswith(layout.JAVA_STREAM_MAGIC):
        return ColumnSpec(ColumnType.BLOB, guessed="serialized objects")
    return ColumnSpec(ColumnType.STRING, symbols=False, guessed="text in ISO-8859-1, or objects of a codec")


def count_rows(location: Location, headers: Headers, specs: Mapping[str, ColumnSpec]) -> int | None:
    """Return how many rows the columns of known width have room for; None without such a column.

    Without one, all columns together may leave a single possibility: a number of rows by which the sizes of all of
    them can be divided to give widths of plain values.
    """
    counts = []
    sizes = []
    for name, column in location.columns.items():
        data = column.data
        header = headers.of(column, layout.DATA) if data is not None else None
        if data is None or header is None:
            continue
        size = data.size - header.data_start
        sizes.append(size)
        if name in specs:
            counts.append(size // specs[name].adapt_to_files(column.files).width)
        elif layout.BINARY in column.files and layout.SYMBOL_OFFSETS not in column.files:
            counts.append(size // layout.OFFSET_SIZE)
    if counts:
        return min(counts)
    symbols = _count_symbol_rows(location, headers)
    if symbols is not None:
        return symbols
    return _find_single_count(sizes)


def _count_symbol_rows(location: Location, headers: Headers) -> int | None:
    """Return the number of rows by the columns with symbols: almost all are Strings; sets of them are twice as wide."""
    sizes = []
    for column in location.columns.values():
        header = headers.of(column, layout.DATA) if column.data is not None else None
        if layout.SYMBOL_OFFSETS in column.files and column.data is not None and header is not None:
            sizes.append(column.data.size - header.data_start)
    return min(sizes) // layout.SYMBOL_SIZE if sizes else None


def _find_single_count(sizes: Sequence[int]) -> int | None:
    positive = [size for size in sizes if size > 0]
    if not positive:
        return 0 if sizes else None
    counts = (positive[0] // width for width in layout.WIDTHS if positive[0] % width == 0)
    possible = [rows for rows in counts if all(size % rows == 0 and size // rows in layout.WIDTHS for size in positive)]
    return possible[0] if len(possible) == 1 else None


def parse_definition(data: bytes, names: Sequence[str]) -> dict[str, ColumnSpec]:
    """Return types from the bytes of `table.tbl`, as far as known: a column's name, then the class of its values.

    The definition is a stream of objects whose classes were never published in full; nothing of it is run. What is
    found is what looks like the name of a column that exists, and after it the first name of a known class.
    """
    places = []
    for name in names:
        encoded = name.encode("utf-8")
        position = data.find(len(encoded).to_bytes(2, "big") + encoded)
        if position >= 0:
            places.append((position, position + 2 + len(encoded), name))
    places.sort()
    specs = {}
    for index, (_, end, name) in enumerate(places):
        following = places[index + 1][0] if index + 1 < len(places) else len(data)
        spec = _find_class(data, end, following)
        if spec is not None:
            specs[name] = spec
    return specs


def _find_class(data: bytes, start: int, end: int) -> ColumnSpec | None:
    for match in _CLASS.finditer(data, start, end):
        for position in range(match.start(), match.end()):
            # Names have their length before them.
            length = int.from_bytes(data[position - 2 : position], "big")
            if not 0 < length <= _LONGEST_CLASS or position + length > end:
                continue
            word = data[position : position + length]
            if not _CLASS.fullmatch(word):
                continue
            if word[:1] == b"[" and word[1:] in _DESCRIPTORS:
                return ColumnSpec(_DESCRIPTORS[word[1:]])
            spec = make_class_spec(word.decode("ascii", "replace"))
            if spec.type is not ColumnType.BLOB:
                return spec
    return None
