"""Every number of Parquet that is read here, by the names of `parquet.thrift`."""

from __future__ import annotations

import struct
from enum import IntEnum

END = struct.Struct("<I4s")
"""Behind the footer: its length, and the magic."""


class Kind(IntEnum):
    """Types of the compact protocol."""

    STOP = 0
    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12


class FileMetaData(IntEnum):
    """Fields of the footer."""

    VERSION = 1
    SCHEMA = 2
    NUM_ROWS = 3
    ROW_GROUPS = 4


class SchemaElement(IntEnum):
    """Fields of an element of the schema."""

    TYPE = 1
    TYPE_LENGTH = 2
    REPETITION_TYPE = 3
    NAME = 4
    NUM_CHILDREN = 5


class RowGroup(IntEnum):
    """Fields of a row group."""

    COLUMNS = 1
    TOTAL_BYTE_SIZE = 2
    NUM_ROWS = 3


FILE_OFFSET = 2
"""Field of a column chunk that nobody reads and that has to be there."""
COLUMN_META_DATA = 3
"""Field of a column chunk that holds its metadata."""
COLUMN_CRYPTO_METADATA = 8
"""Field of a column chunk that is encrypted."""


class ColumnMetaData(IntEnum):
    """Fields of the metadata of a column chunk."""

    TYPE = 1
    ENCODINGS = 2
    PATH_IN_SCHEMA = 3
    CODEC = 4
    NUM_VALUES = 5
    TOTAL_UNCOMPRESSED_SIZE = 6
    TOTAL_COMPRESSED_SIZE = 7
    DATA_PAGE_OFFSET = 9
    DICTIONARY_PAGE_OFFSET = 11
    STATISTICS = 12


class Statistics(IntEnum):
    """Fields of the statistics of a column chunk."""

    OLD_MAX = 1
    OLD_MIN = 2
    MAX_VALUE = 5
    MIN_VALUE = 6


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


class Codec(IntEnum):
    """Codecs of pages."""

    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    BROTLI = 4
    LZ4 = 5
    ZSTD = 6
    LZ4_RAW = 7


ARROW_CODECS = {
    Codec.SNAPPY.name: "snappy",
    Codec.GZIP.name: "gzip",
    Codec.BROTLI.name: "brotli",
    Codec.LZ4.name: "lz4",
    Codec.ZSTD.name: "zstd",
    Codec.LZ4_RAW.name: "lz4",
}
"""Codecs that pyarrow knows, by its names; not every build has all of them."""
ARROW_ENCODINGS = frozenset({0, *range(2, 10)})
"""Encodings that pyarrow knows, from PLAIN to BYTE_STREAM_SPLIT."""


class PageHeader(IntEnum):
    """Fields of a page header."""

    TYPE = 1
    UNCOMPRESSED_PAGE_SIZE = 2
    COMPRESSED_PAGE_SIZE = 3
    DATA_PAGE_HEADER = 5
    DATA_PAGE_HEADER_V2 = 8


class DataPageHeader(IntEnum):
    """Fields of the header of a data page; those of version 2 begin alike."""

    NUM_VALUES = 1
    ENCODING = 2


ENCODING_V2 = 4
"""Field of the header of a data page of version 2 that holds the encoding."""


class Encoding(IntEnum):
    """Encodings of a data page whose values are indices into the dictionary."""

    PLAIN_DICTIONARY = 2
    RLE_DICTIONARY = 8


class PageType(IntEnum):
    """Types of pages."""

    DICTIONARY_PAGE = 2
