"""What is left of a column of which a page is broken: every page is decoded by itself, as a Parquet file of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, decode_by
from sawlog.milvus_binlog.columns import decode, kind_of
from sawlog.milvus_binlog.layout import PARQUET_MAGIC, Kind
from sawlog.milvus_binlog.payloads.parquet import (
    END,
    FILE_META_DATA,
    Page,
    ParquetError,
    Physical,
    check_size,
    written,
)
from sawlog.milvus_binlog.types import Field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.milvus_binlog.payloads.payload import Payload

MOST_BAD_VALUES = 1000
"""Values of a column that are looked for one by one: each takes a dozen attempts."""
_NAME = b"values"


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows of a column that cannot be read.

    Attributes:
        first: The first of them, counted from the beginning of the payload.
        end: The one after the last; `first` for damage that costs no row.
        kind: What kind of damage it is.
        detail: What is wrong.
        decoded: Whether pyarrow decodes them, and their values are not the field's.
    """

    first: int
    end: int
    kind: Kind
    detail: str
    decoded: bool = False


class _RefusedError(Exception):
    """Values that cannot be decoded; says why."""

    def __init__(self, detail: str, kind: Kind = Kind.BAD_PAYLOAD) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows that are decoded by themselves: of a page, or of a row group where values are lists.

    Attributes:
        first: The first of them.
        rows: How many they are.
        read: Decodes them, so many at a time; raises `_RefusedError`.
        single: Whether rows in front of the damage are intact when they are read one by one.
    """

    first: int
    rows: int
    read: Callable[[int], Iterator[pa.Array]]
    single: bool = False


def losses(payload: Payload, index: int, field: Field | None, batch_rows: int) -> list[Lost]:
    """The rows of a column that cannot be read, in order.

    Args:
        payload: The payload.
        index: Which column.
        field: The field whose values it holds; `None`: whatever is stored.
        batch_rows: How many values may be decoded at once.
    """
    found: list[Lost] = []
    values: list[Lost] = []
    for piece in _pieces(payload, index):
        at, end = piece.first, piece.first + piece.rows
        refused: _RefusedError | None = None
        try:
            for array in piece.read(batch_rows):
                if field is not None:
                    _bad_values(field, array, at, values)
                at += len(array)
        except _RefusedError as error:
            refused = error
        if refused is None and at != end:
            refused = _RefusedError(f"{at - piece.first} values where {piece.rows} were expected")
        if refused is not None:
            at = piece.first + (sum(map(len, _until_refused(piece))) if piece.single else 0)
            values = [one for one in values if one.first < at]
            found.append(Lost(at, end, refused.kind, str(refused)))
    return sorted([*found, *values], key=lambda one: one.first)


def salvaged(payload: Payload, index: int, lost: list[Lost], batch_rows: int) -> Iterator[pa.Array]:
    """The values of a column, at most so many at a time; nulls, or what is stored, for those that are lost."""
    broken = {one.end for one in lost if one.first < one.end and not one.decoded}
    for piece in filter(lambda piece: piece.rows, _pieces(payload, index)):
        at, end = piece.first, piece.first + piece.rows
        if end not in broken:
            yield from piece.read(batch_rows)
            continue
        for array in _until_refused(piece) if piece.single else ():
            at += len(array)
            yield array
        for start in range(at, end, batch_rows):
            yield pa.nulls(min(batch_rows, end - start), payload.schema.types[index])


def first_values(payload: Payload, index: int, count: int) -> list[pa.Array]:
    """The first values of a column that can be decoded, each an array of its own."""
    pieces = itertools.chain.from_iterable(map(_until_refused, _pieces(payload, index)))
    return list(itertools.islice(pieces, count))


def sound_rows(lost: Iterable[Lost], rows: int) -> NDArray[np.uint8]:
    """1 for each row of which nothing is lost, 0 for the others."""
    import numpy as np

    sound = np.ones(rows, np.uint8)
    for one in lost:
        sound[one.first : one.end] = 0
    return sound


def what_is_lost(lost: Sequence[Lost]) -> tuple[str, Kind]:
    """What to say of all that is lost of a payload, and of which kind it is: damage, unless all is unsupported."""
    first = min(lost, key=lambda one: (one.kind == Kind.UNSUPPORTED, one.first))
    if first.first == first.end:
        return first.detail, first.kind
    rows = f"rows {first.first} to {first.end - 1}" if first.end - first.first > 1 else f"row {first.first}"
    more = f"; and {len(lost) - 1} more places" if len(lost) > 1 else ""
    return f"{rows}: {first.detail}{more}", first.kind


def _until_refused(piece: _Piece) -> Iterator[pa.Array]:
    """The rows of a piece, one by one, up to the first that cannot be decoded."""
    arrays = piece.read(1)
    for _ in range(piece.rows):
        try:
            array = next(arrays, None)
        except _RefusedError:
            return
        if array is None:
            return
        yield array


def _bad_values(field: Field, array: pa.Array, first: int, found: list[Lost]) -> None:
    """Note the rows whose values are none of the field's; where there are very many, their neighbours with them."""
    try:
        decode(field, array)
    except SchemaError as error:
        half = len(array) // 2
        if half and len(found) < MOST_BAD_VALUES:
            _bad_values(field, array.slice(0, half), first, found)
            _bad_values(field, array.slice(half), first + half, found)
        else:
            found.append(Lost(first, first + len(array), kind_of(error), str(error), decoded=True))


def _pieces(payload: Payload, index: int) -> Iterator[_Piece]:
    """The pages of a column; its row groups, where values are lists: those may go on in the next page."""
    first = 0
    leaves = payload.leaves(index)
    flat = len(leaves) == 1 and payload.columns[leaves[0]].max_definition_level <= 1 and _is_flat(payload, index)
    for group, one in enumerate(payload.footer.groups):
        if flat:
            yield from _flat_pieces(payload, index, group, first)
        elif one.rows:
            yield _Piece(first, one.rows, partial(_read_group, payload, index, group), single=True)
        first += one.rows


def _is_flat(payload: Payload, index: int) -> bool:
    kind = payload.schema.types[index]
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def _read_group(payload: Payload, index: int, group: int, batch_rows: int) -> Iterator[pa.Array]:
    """The values of one row group."""
    try:
        for leaf in payload.leaves(index):
            payload.check_chunk(group, leaf)
    except ParquetError as error:
        raise _refused(error) from None
    batches = _decoded(payload.file.reader.iter_batches, batch_rows, [group], payload.leaves(index), use_threads=False)
    while (batch := _decoded(next, batches, None)) is not None:
        yield batch.column(0)


def _flat_pieces(payload: Payload, index: int, group: int, first: int) -> Iterator[_Piece]:
    """The data pages of one column chunk; what follows a broken page header cannot be found."""
    (leaf,) = payload.leaves(index)
    rows, chunk = payload.footer.groups[group].rows, payload.footer.groups[group].chunks[leaf]
    end = first + rows
    kind = payload.columns[leaf].physical_type
    count = 0
    broken: _RefusedError | None = None
    try:
        for page in payload.pages(group, leaf, any_size=True):
            count += page.values
    except ParquetError as error:
        broken = _refused(error)
    if chunk.type != Physical.__members__.get(kind):
        broken = _RefusedError(f"pages of physical type {chunk.type} where the schema says {kind}")
        count = 0
    elif count > rows or chunk.values != rows or (count < rows and not broken):
        broken = _RefusedError(f"pages of {count} values, where the footer says {chunk.values} values in {rows} rows")
        count = 0
    dictionary: Page | None = None
    known = first + count
    pages = payload.pages(group, leaf, any_size=True)
    while first < known:
        page = next(pages)
        dictionary = page if page.dictionary else dictionary
        if page.values:
            yield _Piece(first, page.values, partial(_read_page, payload, index, group, dictionary, page))
            first += page.values
    if broken is not None:
        yield _Piece(first, end - first, partial(_refuse, broken))


def _refuse(error: _RefusedError, batch_rows: int) -> Iterator[pa.Array]:
    del batch_rows
    raise error
    yield


def _read_page(
    payload: Payload, index: int, group: int, dictionary: Page | None, page: Page, batch_rows: int
) -> Iterator[pa.Array]:
    """The values of one page."""
    import pyarrow.parquet as pq

    needed = [page] if dictionary is None or not page.indices else [dictionary, page]
    try:
        for one in needed:
            check_size(one, payload.max_page_bytes)
    except ParquetError as error:
        raise _refused(error) from None
    data = _page_file(payload, index, group, needed)
    file = _decoded(pq.ParquetFile, pa.BufferReader(data), page_checksum_verification=True)
    batches = _decoded(file.reader.iter_batches, batch_rows, [0], [0], use_threads=False)
    while (batch := _decoded(next, batches, None)) is not None:
        yield _as_stored(batch.column(0), payload.schema.types[index])


def _page_file(payload: Payload, index: int, group: int, pages: list[Page]) -> bytes:
    """A Parquet file of one column: some pages, as they are."""
    (leaf,) = payload.leaves(index)
    column, chunk = payload.columns[leaf], payload.footer.groups[group].chunks[leaf]
    content = b"".join(
        bytes(payload.source.window(one.offset, one.start + one.compressed - one.offset)) for one in pages
    )
    rows, start = pages[-1].values, len(PARQUET_MAGIC)
    before = sum(one.start + one.compressed - one.offset for one in pages[:-1])
    meta: dict[str, Any] = {
        "type": chunk.type,
        "encodings": [0],
        "path_in_schema": [_NAME],
        "codec": chunk.codec,
        "num_values": rows,
        "total_uncompressed_size": len(content),
        "total_compressed_size": len(content),
        "data_page_offset": start + before,
        **({"dictionary_page_offset": start} if before else {}),
    }
    values = {
        "type": chunk.type,
        "type_length": max(0, column.length),
        "repetition_type": column.max_definition_level,
        "name": _NAME,
    }
    row_group = {"columns": [{"file_offset": 0, "meta_data": meta}], "total_byte_size": len(content), "num_rows": rows}
    schema = [{"name": b"root", "num_children": 1}, values]
    footer = written(FILE_META_DATA, {"version": 2, "schema": schema, "num_rows": rows, "row_groups": [row_group]})
    return PARQUET_MAGIC + content + footer + END.pack(len(footer), PARQUET_MAGIC)


def _as_stored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a physical type as those of the logical type of their column."""
    if array.type == kind:
        return array
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        array = array.cast(pa.large_binary())
    same = pa.types.is_string(kind) or pa.types.is_large_string(kind) or _width(kind) == _width(array.type)
    found = decode_by(array.view, kind) if same else decode_by(array.cast, kind, safe=False)
    if isinstance(found, Undecodable):
        raise _RefusedError(found.detail)
    return found


def _width(kind: pa.DataType) -> int:
    return int(kind.bit_width) if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) else -1


def _refused(error: ParquetError) -> _RefusedError:
    return _RefusedError(str(error), error.kind)


def _decoded(decoder: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """What pyarrow makes of the bytes."""
    found = decode_by(decoder, *args, **settings)
    if isinstance(found, Undecodable):
        raise _RefusedError(f"pyarrow cannot read the Parquet payload: {found.detail[:200]}")
    return found
