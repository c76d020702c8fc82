"""The header of a column file, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sawlog.deephaven.table import layout
from sawlog.deephaven.table.location import HEAD_SIZE, parse_header
from sawlog.deephaven.types import BY_COLUMN, ColumnType
from sawlog.format.fields import Part
from sawlog.kernels.layout import Scalar

if TYPE_CHECKING:
    from sawlog.deephaven.table.types import ColumnSpec
    from sawlog.storage import Source


_MAX_VALUES = 64
"""Values that are named one by one."""


def parse_parts(source: Source, path: str, offset: int, spec: ColumnSpec | None = None) -> Iterator[Part]:
    """Yield the header, if the file has one, and the data: values of a fixed width one by one, others as they are."""
    head = source.read_window(0, HEAD_SIZE).tobytes()
    header = parse_header(head, source.size) if path.endswith((layout.DATA, layout.SYMBOL_OFFSETS)) else None
    position = offset
    if not offset and header is not None:
        order = "little endian" if header.little else "big endian"
        size = f"{header.metadata_size:,}, data {order}"
        yield Part("metadata size", layout.METADATA_SIZE_OFFSET, layout.DATA_START_OFFSET, size, use="header")
        width = layout.HEADER_SIZE - layout.DATA_START_OFFSET
        yield Part("data start", layout.DATA_START_OFFSET, width, f"{header.data_start:,}", use="header")
        if header.prefix_size:
            yield Part("metadata", layout.HEADER_SIZE, header.prefix_size, use="header")
        position = layout.HEADER_SIZE + header.prefix_size
        if header.data_start > position:
            yield Part("reserved", position, header.data_start - position, use="header")
        position = header.data_start
    if spec is not None and path.endswith(layout.DATA) and position == (header.data_start if header is not None else 0):
        for part in _parse_values(source, position, spec, little=header is not None and bool(header.little)):
            yield part
            position = part.end
    if position < source.size:
        yield Part("data", position, source.size - position)


def _parse_values(source: Source, offset: int, spec: ColumnSpec, *, little: bool) -> Iterator[Part]:
    """Yield the first values of a column whose width is that of its type, or of the numbers of its symbols."""
    kind = BY_COLUMN[ColumnType.INT if spec.type is ColumnType.STRING and spec.symbols else spec.type]
    if not kind.packed or kind.width != spec.width:
        return
    data = source.read_window(offset, _MAX_VALUES * kind.width).tobytes()
    nulls = tuple(null for null in (kind.null, kind.also_null) if null is not None)
    scalar = Scalar(f"{'<' if little else '>'}{kind.packed[1:]}", kind.arrow, nulls)
    for number in range(min(_MAX_VALUES, len(data) // kind.width)):
        value = scalar.render(data[number * kind.width :][: kind.width])
        symbol = "symbol " if kind.type is not spec.type else ""
        yield Part(f"row {number:,}", offset + number * kind.width, kind.width, symbol + value)
