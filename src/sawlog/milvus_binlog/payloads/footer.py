"""The footer of a Parquet file, read and checked before pyarrow trusts it.

pyarrow ends the process when the metadata of a column chunk makes no sense, and takes hundreds of bytes for each that
a footer claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.milvus_binlog.layout import PARQUET_MAGIC, Kind
from sawlog.milvus_binlog.payloads import parquet
from sawlog.milvus_binlog.payloads.parquet import COLUMN_META_DATA, ColumnMetaData, FileMetaData, RowGroup, Statistics
from sawlog.milvus_binlog.payloads.thrift import Thrift, ThriftError
from sawlog.storage import Source

_TAIL = 64 << 10
"""Bytes at the end that are fetched at once, as pyarrow does: most footers lie within."""
LARGEST = 256 << 10
"""Bytes that the footer of a small file may have."""
_SHARE = 16
"""That of a large one may have this share of the file."""
MOST_ROWS = 1 << 26
"""Rows that a small file may claim: constants take next to no bytes."""
_ROWS_PER_BYTE = 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column chunk.

    Attributes:
        type: Physical type.
        compression: Codec.
        values: Values and nulls, those of lists one by one.
        uncompressed: Bytes of its pages before compression, headers included.
        compressed: Bytes that its pages take in the file.
        start: Where they begin, counted from the beginning of the Parquet file.
        minimum: The least value as it is stored; `None` where not told, or not twice: footers have no checksums.
        maximum: The greatest value.
        unsupported: Codec or cipher that is not decoded; empty where all is.
    """

    type: int
    compression: str
    values: int
    uncompressed: int
    compressed: int
    start: int
    minimum: bytes | None
    maximum: bytes | None
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """One row group: how many rows, and a chunk per leaf column."""

    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """What a footer says about the rows of its file, and how many bytes it takes."""

    rows: int
    groups: tuple[Group, ...]
    length: int


class FooterError(Exception):
    """A footer that is broken, or claims what cannot be."""

    kind = Kind.BAD_PAYLOAD


class FooterSizeError(FooterError):
    """A footer that claims more than the file justifies."""

    kind = Kind.PAYLOAD_TOO_LARGE


def read_footer(source: Source, start: int, length: int) -> Footer:
    """Read the footer of the Parquet file at `source[start : start + length]`.

    Raises:
        FooterError: When it is broken, or contradicts itself.
        FooterSizeError: When it, or the number of rows that it claims, is out of proportion.
    """
    room = min(length, _TAIL)
    tail = bytes(source.window(start + length - room, room))
    size, magic = parquet.END.unpack_from(tail, len(tail) - parquet.END.size)
    if magic != PARQUET_MAGIC:
        raise FooterError(f"expected {PARQUET_MAGIC!r} at the end, found {magic!r}")
    if size > length - parquet.END.size - len(PARQUET_MAGIC):
        raise FooterError(f"a footer of {size} bytes in {length} bytes")
    if size > LARGEST + length // _SHARE:
        raise FooterSizeError(f"a footer of {size} bytes in {length} bytes")
    whole = size + parquet.END.size
    data = tail[-whole : -parquet.END.size] if whole <= room else bytes(source.window(start + length - whole, size))
    try:
        fields = Thrift(data).struct(last=FileMetaData.ROW_GROUPS)
    except ThriftError as error:
        raise FooterError(f"a broken footer: {error}") from None
    groups = tuple(_group(one, length) for one in _list(fields, FileMetaData.ROW_GROUPS))
    rows = _count(fields, FileMetaData.NUM_ROWS, "rows")
    if rows != sum(group.rows for group in groups):
        raise FooterError(f"{rows} rows, where the row groups have {sum(group.rows for group in groups)}")
    if rows > max(MOST_ROWS, _ROWS_PER_BYTE * length):
        raise FooterSizeError(f"{rows} rows in {length} bytes")
    return Footer(rows, groups, size)


def _group(fields: Any, length: int) -> Group:
    if not isinstance(fields, dict):
        raise FooterError("a row group that is none")
    chunks = []
    for one in _list(fields, RowGroup.COLUMNS):
        stored = one.get(COLUMN_META_DATA) if isinstance(one, dict) else None
        if not isinstance(stored, dict):
            raise FooterError("a column chunk without metadata")
        encrypted = parquet.COLUMN_CRYPTO_METADATA in one
        chunks.append(_chunk(stored, length, "an encrypted column" if encrypted else _unsupported(stored)))
    return Group(_count(fields, RowGroup.NUM_ROWS, "rows of a row group"), tuple(chunks))


def _unsupported(fields: dict[int, Any]) -> str:
    """The codec of a column chunk that pyarrow does not have; empty where it has it."""
    name = _codec(fields)
    known = parquet.ARROW_CODECS.get(name)
    if name == parquet.Codec.UNCOMPRESSED.name or (known and pa.Codec.is_available(known)):
        return ""
    return f"a column compressed with {name}, which pyarrow does not have"


def _codec(fields: dict[int, Any]) -> str:
    codec = _count(fields, ColumnMetaData.CODEC, "codec")
    known = codec in parquet.Codec.__members__.values()
    return parquet.Codec(codec).name if known else f"codec {codec}"


def _chunk(fields: dict[int, Any], length: int, unsupported: str) -> Chunk:
    values = _count(fields, ColumnMetaData.NUM_VALUES, "values of a column chunk")
    compressed = _count(fields, ColumnMetaData.TOTAL_COMPRESSED_SIZE, "bytes of a column chunk")
    start = _count(fields, ColumnMetaData.DATA_PAGE_OFFSET, "offset of a column chunk")
    dictionary = fields.get(ColumnMetaData.DICTIONARY_PAGE_OFFSET)
    if isinstance(dictionary, int) and dictionary > 0:
        start = min(start, dictionary)
    if values and compressed > length - start:  # without values there are no pages, and offsets mean nothing
        raise FooterError(f"a column chunk of {compressed} bytes at byte {start} of a payload of {length} bytes")
    statistics = fields.get(ColumnMetaData.STATISTICS)
    limits = statistics if isinstance(statistics, dict) else {}
    return Chunk(
        _count(fields, ColumnMetaData.TYPE, "type of a column chunk"),
        _codec(fields),
        values,
        _count(fields, ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, "bytes of a column chunk"),
        compressed,
        start,
        _limit(limits, Statistics.MIN_VALUE, Statistics.OLD_MIN),
        _limit(limits, Statistics.MAX_VALUE, Statistics.OLD_MAX),
        unsupported,
    )


def _list(fields: dict[int, Any], number: int) -> list[Any]:
    found = fields.get(number)
    if not isinstance(found, list):
        raise FooterError(f"no list in field {number}")
    return found


def _count(fields: dict[int, Any], number: int, what: str) -> int:
    found = fields.get(number)
    if not isinstance(found, int) or found < 0:
        raise FooterError(f"{what}: expected a number, found {found!r}")
    return found


def _limit(fields: dict[int, Any], number: int, old: int) -> bytes | None:
    """A limit of numbers, which writers tell in two fields."""
    found = fields.get(number)
    return found if isinstance(found, bytes) and found == fields.get(old) else None
