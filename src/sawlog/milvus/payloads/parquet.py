"""The metadata of a Parquet file, read and checked before pyarrow trusts it. Names are those of `parquet.thrift`.

pyarrow ends the process when the metadata of a column chunk makes no sense, takes hundreds of bytes for each that a
footer claims, and allocates what a page header claims.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from sawlog.guard import Undecodable, call_decoder
from sawlog.kernels.varints import encode_varint, read_varint
from sawlog.milvus.layout import PARQUET_MAGIC, BinlogDamageKind
from sawlog.storage import Source

FOOTER_END = struct.Struct("<I4s")
"""After the footer: its length, and the magic."""

# Types of Thrift's compact protocol.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class ThriftField(NamedTuple):
    """A field of a Thrift struct that is read or written; its number is its key.

    Attributes:
        name: As `parquet.thrift` has it.
        kind: Its type. Numbers are read from any integer type.
        element: Type of the elements of a list.
        of: The fields of a struct, or of each struct in a list.
    """

    name: str
    kind: int = I64
    element: int = STRUCT
    of: Mapping[int, ThriftField] = {}


Fields = Mapping[int, ThriftField]
_DATA_PAGE_HEADER = {1: ThriftField("num_values", I32), 2: ThriftField("encoding", I32)}
_DATA_PAGE_HEADER_V2 = {1: ThriftField("num_values", I32), 4: ThriftField("encoding", I32)}
_PAGE_HEADER = {
    1: ThriftField("type", I32),
    2: ThriftField("uncompressed_page_size", I32),
    3: ThriftField("compressed_page_size", I32),
    5: ThriftField("data_page_header", STRUCT, of=_DATA_PAGE_HEADER),
    8: ThriftField("data_page_header_v2", STRUCT, of=_DATA_PAGE_HEADER_V2),
}
_STATISTICS = {n: ThriftField(name, BINARY) for n, name in ((1, "max"), (2, "min"), (5, "max_value"), (6, "min_value"))}
_COLUMN_META_DATA = {
    1: ThriftField("type", I32),
    2: ThriftField("encodings", LIST, I32),
    3: ThriftField("path_in_schema", LIST, BINARY),
    4: ThriftField("codec", I32),
    5: ThriftField("num_values"),
    6: ThriftField("total_uncompressed_size"),
    7: ThriftField("total_compressed_size"),
    9: ThriftField("data_page_offset"),
    11: ThriftField("dictionary_page_offset"),
    12: ThriftField("statistics", STRUCT, of=_STATISTICS),
}
_COLUMN_CHUNK = {
    2: ThriftField("file_offset"),
    3: ThriftField("meta_data", STRUCT, of=_COLUMN_META_DATA),
    8: ThriftField("crypto_metadata", STRUCT),
}
_ROW_GROUP = {
    1: ThriftField("columns", LIST, of=_COLUMN_CHUNK),
    2: ThriftField("total_byte_size"),
    3: ThriftField("num_rows"),
}
_SCHEMA_ELEMENT = {
    1: ThriftField("type", I32),
    2: ThriftField("type_length", I32),
    3: ThriftField("repetition_type", I32),
    4: ThriftField("name", BINARY),
    5: ThriftField("num_children", I32),
}
FILE_META_DATA = {
    1: ThriftField("version", I32),
    2: ThriftField("schema", LIST, of=_SCHEMA_ELEMENT),
    3: ThriftField("num_rows"),
    4: ThriftField("row_groups", LIST, of=_ROW_GROUP),
}
FOOTER = {number: FILE_META_DATA[number] for number in (3, 4)}
"""What is read of a footer."""


class Physical(IntEnum):
    """Physical types."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_ARROW_CODECS = {name: name.lower() for name in ("SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")}
"""Codecs that pyarrow knows, by its names; not every build has all of them."""
_UNSURE = ("LZ4", "LZ4_RAW")
"""What "LZ4" stands for has changed over the years."""
_ARROW_ENCODINGS = frozenset({0, *range(2, 10)})
"""Encodings that pyarrow knows, from PLAIN to BYTE_STREAM_SPLIT."""
_INDICES = (2, 8)
"""Encodings of a data page whose values are indices into the dictionary: PLAIN_DICTIONARY, RLE_DICTIONARY."""
_DICTIONARY_PAGE = 2

_MAX_DEPTH = 12
_SMALLEST_STRUCT = 3
"""Bytes of a struct in a list, at least: a field that is always there, its value, and the end."""
_TAIL_BYTES = 64 << 10
"""Bytes at the end that are fetched at once, as pyarrow does: most footers lie within."""
_SMALL_FOOTER_BYTES = 256 << 10
"""Bytes that the footer of a small file may have."""
_MAX_KEPT_FOOTERS = 16
"""Footers that are not parsed again."""
_FOOTER_FRACTION = 16
"""That of a large one may have this fraction of the file."""
MAX_CLAIMED_ROWS = 1 << 26
"""Rows that a small file may claim: constants take next to no bytes."""
ROWS_PER_BYTE = 1024
_MAX_PAGE_HEADER_BYTES = 64 << 10
"""Bytes within which a page header has to end, statistics included."""
FREE_PAGE = 8 << 20
"""Bytes that every page may have when it is decompressed: as many as a batch."""
EXPANSION = 64
"""Larger ones may have so many times the bytes that they take in the file, unless an option says otherwise."""
_LARGEST_PAGE = 256 << 20


class ParquetError(Exception):
    """Metadata that is broken or contradicts itself; of another `kind`, what it claims or asks for is not taken."""

    def __init__(self, message: str, kind: str = BinlogDamageKind.BAD_PAYLOAD.label) -> None:
        super().__init__(message)
        self.kind = kind


class Thrift:
    """Structs in the compact protocol, one after the other.

    Args:
        data: The bytes; `position` is after what was read.
        description: What they are, for messages.
    """

    def __init__(self, data: memoryview | bytes, description: str) -> None:
        self._data = data
        self._description = description
        self.position = 0

    def read_struct(self, fields: Fields, last: int = 1 << 15, depth: int = 0) -> dict[str, Any]:
        """Return the declared fields of the next struct, by name. Others, and those of another type, are skipped.

        Args:
            fields: What is declared.
            last: Number of a field after which nothing is wanted.
            depth: How deep the struct is.

        Raises:
            ParquetError: When there is no struct.
        """
        values: dict[str, Any] = {}
        number = 0
        data, pos = self._data, self.position
        size = len(data)
        while number != last:  # a footer has hundreds of fields: most are read without a call
            if pos >= size:
                raise self._make_error("no end")
            byte = data[pos]
            pos += 1
            kind = byte & 15
            if not kind:
                break
            if byte >> 4:
                number += byte >> 4
            else:
                self.position = pos
                number, pos = self._read_zigzag(), self.position
            field = fields.get(number)
            if I16 <= kind <= I64 and pos < size and data[pos] < 0x80:
                value: Any = data[pos] >> 1 ^ -(data[pos] & 1)
                pos += 1
            elif I16 <= kind <= I64 and pos + 1 < size and data[pos + 1] < 0x80:
                value = (data[pos] & 0x7F | data[pos + 1] << 7) >> 1 ^ -(data[pos] & 1)
                pos += 2
            elif kind == BINARY and pos < size and data[pos] < min(0x80, size - pos):
                value = bytes(data[pos + 1 : pos + 1 + data[pos]])
                pos += 1 + data[pos]
            elif kind <= FALSE and depth <= _MAX_DEPTH:
                value = None
            else:
                self.position = pos
                value, pos = self._read_value(kind, field, depth), self.position
            if field is not None and (kind == field.kind or I16 <= kind <= I64 >= field.kind >= I16):
                values[field.name] = value
        self.position = pos
        return values

    def _read_value(self, kind: int, field: ThriftField | None, depth: int) -> Any:
        if I16 <= kind <= I64:
            return self._read_zigzag()
        if kind == BINARY:
            return self._read_bytes(self._read_varint())
        if depth > _MAX_DEPTH:
            raise self._make_error("nested too deeply")
        if kind == STRUCT:
            return self.read_struct(field.of if field is not None else {}, depth=depth + 1)
        if kind in (LIST, SET):
            return self._read_list(field, depth)
        if kind <= FALSE:
            return None
        if kind in (BYTE, DOUBLE):
            return self._read_bytes(1 if kind == BYTE else 8)
        raise self._make_error(f"a field of type {kind}")

    def _read_list(self, field: ThriftField | None, depth: int) -> list[Any]:
        """Return the elements of a list; of one whose elements are not as declared, none."""
        (byte,) = self._read_bytes(1)
        kind = byte & 15
        count = byte >> 4 if byte >> 4 < 15 else self._read_varint()
        if count * (_SMALLEST_STRUCT if kind == STRUCT else 1) > len(self._data) - self.position:
            raise self._make_error(f"a list of {count}")
        # Booleans in lists are bytes.
        elements = [self._read_value(max(kind, BYTE), field, depth + 1) for _ in range(count)]
        return elements if field is None or kind == field.element else []

    def _read_bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.position:
            raise self._make_error("no end")
        self.position += count
        return bytes(self._data[self.position - count : self.position])

    def _read_varint(self) -> int:
        number = read_varint(self._data, self.position)
        if number is None:
            raise self._make_error("no end of a number")
        value, self.position = number
        return value

    def _read_zigzag(self) -> int:
        value = self._read_varint()
        return value >> 1 ^ -(value & 1)

    def _make_error(self, detail: str) -> ParquetError:
        return ParquetError(f"a broken {self._description}: {detail}")


def encode_thrift(fields: Fields, values: Mapping[str, Any]) -> bytes:
    """Return a struct in the compact protocol, of the declared fields that have values."""
    out = bytearray()
    last = 0
    for number, field in fields.items():
        if field.name in values:
            out.append((number - last) << 4 | field.kind)
            out += _encode_value(field.kind, field, values[field.name])
            last = number
    return bytes([*out, 0])


def _encode_value(kind: int, field: ThriftField, value: Any) -> bytes:
    if kind == STRUCT:
        return encode_thrift(field.of, value)
    if kind == BINARY:
        return encode_varint(len(value)) + bytes(value)
    if kind == LIST:
        return bytes([len(value) << 4 | field.element]) + b"".join(
            _encode_value(field.element, field, element) for element in value
        )
    return encode_varint(value << 1 ^ value >> 63)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Column chunk of a Parquet file.

    Attributes:
        type: Physical type.
        codec: Number of the codec.
        values: Values and nulls, those of lists one by one.
        uncompressed: Bytes of its pages before compression, headers included.
        compressed: Bytes that its pages take in the file.
        start: Where they begin, counted from the beginning of the Parquet file.
        minimum: The least value as it is stored; `None` where not given, or not given twice: footers have no checksums.
        maximum: The greatest value.
        is_encrypted: Whether the column is encrypted.
    """

    type: int
    codec: int
    values: int
    uncompressed: int
    compressed: int
    start: int
    minimum: bytes | None
    maximum: bytes | None
    is_encrypted: bool

    @property
    def compression(self) -> str:
        """Name of the codec."""
        return CODECS[self.codec] if self.codec < len(CODECS) else f"codec {self.codec}"

    @property
    def unsupported(self) -> str:
        """Codec or cipher that is not decoded; empty where all is."""
        if self.is_encrypted:
            return "an encrypted column"
        codec = _ARROW_CODECS.get(self.compression)
        if self.compression == "UNCOMPRESSED" or (codec and pa.Codec.is_available(codec)):
            return ""
        return f"a column compressed with {self.compression}, which pyarrow does not have"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Row group of a Parquet file: how many rows, and a chunk per leaf column."""

    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """Row groups that a footer lists, and how many bytes it takes."""

    rows: int
    groups: tuple[RowGroup, ...]
    length: int


def read_footer(source: Source, start: int, length: int) -> Footer:
    """Read the footer of the Parquet file at `source[start : start + length]`.

    Raises:
        ParquetError: When it is broken, contradicts itself, or claims more than the file justifies.
    """
    room = min(length, _TAIL_BYTES)
    tail = bytes(source.read_window(start + length - room, room))
    size, magic = FOOTER_END.unpack_from(tail, len(tail) - FOOTER_END.size)
    if magic != PARQUET_MAGIC:
        raise ParquetError(f"expected {PARQUET_MAGIC!r} at the end, found {magic!r}")
    if size > length - FOOTER_END.size - len(PARQUET_MAGIC):
        raise ParquetError(f"a footer of {size} bytes in {length} bytes")
    if size > _SMALL_FOOTER_BYTES + length // _FOOTER_FRACTION:
        raise ParquetError(f"a footer of {size} bytes in {length} bytes", BinlogDamageKind.PAYLOAD_TOO_LARGE.label)
    total = size + FOOTER_END.size
    data = tail[-total : -FOOTER_END.size] if total <= room else bytes(source.read_window(start + length - total, size))
    footer = _parse_footer(data, length)
    if footer.rows > max(MAX_CLAIMED_ROWS, ROWS_PER_BYTE * length):
        raise ParquetError(f"{footer.rows} rows in {length} bytes", BinlogDamageKind.PAYLOAD_TOO_LARGE.label)
    return footer


@lru_cache(_MAX_KEPT_FOOTERS)
def _parse_footer(data: bytes, length: int) -> Footer:
    """Return a footer, of a file of `length` bytes. Parts of a file are read one after the other."""
    footer = Thrift(data, "footer").read_struct(FOOTER, last=max(FOOTER))
    groups = tuple(_parse_group(group, length) for group in _parse_list(footer, FOOTER, 4))
    rows = _parse_count(footer, "num_rows", "rows")
    if rows != sum(group.rows for group in groups):
        raise ParquetError(f"{rows} rows, where the row groups have {sum(group.rows for group in groups)}")
    return Footer(rows, groups, len(data))


def _parse_group(record: dict[str, Any], length: int) -> RowGroup:
    chunks = tuple(_parse_chunk(chunk, length) for chunk in _parse_list(record, _ROW_GROUP, 1))
    return RowGroup(_parse_count(record, "num_rows", "rows of a row group"), chunks)


def _parse_chunk(record: dict[str, Any], length: int) -> Chunk:
    stored = record.get("meta_data")
    if stored is None:
        raise ParquetError("a column chunk without metadata")
    codec = _parse_count(stored, "codec", "codec")
    values = _parse_count(stored, "num_values", "values of a column chunk")
    compressed = _parse_count(stored, "total_compressed_size", "bytes of a column chunk")
    start = _parse_count(stored, "data_page_offset", "offset of a column chunk")
    dictionary = stored.get("dictionary_page_offset", 0)
    if dictionary > 0:
        start = min(start, dictionary)
    if values and compressed > length - start:  # without values there are no pages, and offsets mean nothing
        raise ParquetError(f"a column chunk of {compressed} bytes at byte {start} of a payload of {length} bytes")
    limits = stored.get("statistics", {})
    # Writers state the limits of numbers in two fields.
    lowest, highest = (
        limits.get(name) if limits.get(name) == limits.get(old) else None
        for name, old in (("min_value", "min"), ("max_value", "max"))
    )
    kind = _parse_count(stored, "type", "type of a column chunk")
    uncompressed = _parse_count(stored, "total_uncompressed_size", "bytes of a column chunk")
    return Chunk(kind, codec, values, uncompressed, compressed, start, lowest, highest, "crypto_metadata" in record)


def _parse_list(record: dict[str, Any], fields: Fields, number: int) -> list[dict[str, Any]]:
    value: list[dict[str, Any]] | None = record.get(fields[number].name)
    if value is None:
        raise ParquetError(f"no list in field {number}")
    return value


def _parse_count(record: dict[str, Any], name: str, description: str) -> int:
    value: int | None = record.get(name)
    if value is None or value < 0:
        raise ParquetError(f"{description}: expected a number, found {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Page:
    """Page of a column chunk: type, where header and data begin, and size before and after decompression.

    Of a data page also the number of its values, nulls included, and whether they are indices into the dictionary.
    """

    type: int
    offset: int
    start: int
    compressed: int
    uncompressed: int
    values: int = 0
    has_indices: bool = False

    @property
    def is_dictionary(self) -> bool:
        """Whether it holds the values that other pages refer to."""
        return self.type == _DICTIONARY_PAGE


def read_pages(source: Source, start: int, length: int) -> Iterator[Page]:
    """Yield the pages of the column chunk at `start`, headers only.

    Raises:
        ParquetError: When a header is broken, or a page reaches beyond the chunk.
    """
    pos, end = start, start + length
    while pos < end:
        offset = pos
        header = Thrift(source.read_window(pos, min(_MAX_PAGE_HEADER_BYTES, end - pos)).data, "page header")
        page_header = header.read_struct(_PAGE_HEADER)
        first, second = page_header.get("data_page_header", {}), page_header.get("data_page_header_v2", {})
        encoding = first.get("encoding", second.get("encoding", 0))
        if encoding not in _ARROW_ENCODINGS:
            detail = f"a page of encoding {encoding}, which pyarrow does not have"
            raise ParquetError(detail, BinlogDamageKind.UNSUPPORTED.label)
        pos += header.position
        compressed, uncompressed = map(page_header.get, ("compressed_page_size", "uncompressed_page_size"), (-1, -1))
        if compressed < 0 or uncompressed < 0 or compressed > end - pos:
            raise ParquetError(
                f"a page of {compressed} bytes ({uncompressed} decompressed) in a chunk with {end - pos} left"
            )
        values = max(0, (first or second).get("num_values", 0))
        yield Page(page_header.get("type", -1), offset, pos, compressed, uncompressed, values, encoding in _INDICES)
        pos += compressed


def read_checked_pages(
    source: Source, base: int, chunk: Chunk, max_page: int | None, *, any_size: bool
) -> Iterator[Page]:
    """Yield the pages of a column chunk, none of which claims more than it may.

    Args:
        source: The file.
        base: Where the Parquet file begins in it.
        chunk: The column chunk; the footer was checked.
        max_page: Bytes that a decompressed page may have; `None`: what its compressed bytes justify.
        any_size: Whether pages that claim more are taken, too: the caller that decodes them checks each of them.

    Raises:
        ParquetError: For a broken page header, a page that is too large, and pages that are not decoded.
    """
    if not chunk.values:
        return  # without values there are no pages, and offsets mean nothing
    if chunk.unsupported:
        raise ParquetError(chunk.unsupported, BinlogDamageKind.UNSUPPORTED.label)
    for page in read_pages(source, base + chunk.start, chunk.compressed):
        if not any_size:
            check_size(page, max_page)
        yield page


def check_size(page: Page, max_page: int | None) -> None:
    """Refuse a page that claims more than it may.

    Raises:
        ParquetError: Says how much.
    """
    limit = max_page if max_page is not None else compute_page_limit(page.compressed)
    if page.uncompressed > limit:
        claim = f"a page of {page.compressed} bytes claims {page.uncompressed} bytes; max_item_bytes is {limit}"
        raise ParquetError(claim, BinlogDamageKind.PAYLOAD_TOO_LARGE.label)


def compute_page_limit(compressed: int) -> int:
    """Return the size that a page may have when it is decompressed, by its size in the file."""
    return min(_LARGEST_PAGE, max(FREE_PAGE, EXPANSION * compressed))


def measure_longest_value(source: Source, dictionary: Page, compression: str) -> int:
    """Return the length of the longest value of a dictionary of byte arrays, found without expanding any row.

    Raises:
        ParquetError: When the page cannot be decompressed, or its values do not fit into it.
    """
    import numpy as np

    from sawlog.milvus import kernels

    data = decompress_page(source, dictionary, compression)
    if data is None:
        return dictionary.uncompressed
    values = np.frombuffer(data, np.uint8)
    values.flags.writeable = False
    longest = int(kernels.find_longest_value(values))
    if longest < 0:
        raise ParquetError("a dictionary page whose values do not fit into it")
    return longest


def decompress_page(source: Source, page: Page, compression: str) -> pa.Buffer | None:
    """Return the bytes of a page; `None` where nothing says for sure how it is compressed.

    Raises:
        ParquetError: When the page cannot be decompressed.
    """
    data = pa.py_buffer(source.read_window(page.start, page.compressed))
    if compression == "UNCOMPRESSED":
        return data
    name = _ARROW_CODECS.get(compression)
    if name is None or compression in _UNSURE:
        return None
    content = call_decoder(pa.Codec(name).decompress, data, page.uncompressed)
    if isinstance(content, Undecodable):
        raise ParquetError(f"a page that cannot be decompressed: {content.detail}")
    return content
