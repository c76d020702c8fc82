"""RocksDB's blob files: a header, records of a key and a value, and a footer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sawlog.leveldb.database.layout import (
    BLOB_CHECKSUM,
    BLOB_FILE_FOOTER,
    BLOB_FILE_HEADER,
    BLOB_FOOTER_CHECKSUM,
    BLOB_HEADER_CHECKSUM,
    BLOB_KEY_SIZE,
    BLOB_MAGIC,
    BLOB_MAGIC_NUMBER,
    BLOB_RECORD_HEADER,
    BLOB_VALUE_SIZE,
)
from sawlog.leveldb.log.kernels import masked_checksum
from sawlog.leveldb.table.addresses import BlobIndex
from sawlog.leveldb.table.columnar import MalformedError

if TYPE_CHECKING:
    from sawlog.storage import Source


def record_of(index: BlobIndex, key: bytes) -> int:
    """Where the record of a key begins that holds a value."""
    return index.offset - len(key) - BLOB_RECORD_HEADER


class Part(NamedTuple):
    """A part of a blob file: its offset and bytes, what is wrong there, if anything, and whether it leads to values."""

    offset: int
    length: int
    wrong: str = ""
    header: bool = False


class RecordFile:
    """A blob file of RocksDB's.

    Args:
        source: The file.
        verify: Whether checksums are verified.
    """

    def __init__(self, source: Source, *, verify: bool) -> None:
        self._source = source
        self._verify = verify

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    def value(self, index: BlobIndex, key: bytes) -> bytes:
        """A value as it is stored, if the record around it is that of the key.

        Raises:
            MalformedError: When it is not there, or not whole.
        """
        start = record_of(index, key)
        if start < 0 or index.offset + index.size > self._source.size:
            raise MalformedError("no such value")
        record = bytes(self._source.window(start, BLOB_RECORD_HEADER + len(key) + index.size))
        header, content = record[:BLOB_RECORD_HEADER], record[BLOB_RECORD_HEADER:]
        if (BLOB_KEY_SIZE.of(header), BLOB_VALUE_SIZE.of(header)) != (len(key), index.size):
            raise MalformedError("a record of other sizes")
        if not self._whole(header, content) or not content.startswith(key):
            raise MalformedError("a damaged record, or that of another key")
        return content[len(key) :]

    def parts(self) -> Iterator[Part]:
        """All of the file. After a damaged header of a record, the next one cannot be located."""
        size = self._source.size
        sound = (
            size >= BLOB_FILE_HEADER
            and BLOB_MAGIC_NUMBER.of(bytes(self._source.window(0, BLOB_MAGIC_NUMBER.end))) == BLOB_MAGIC
        )
        yield Part(0, min(BLOB_FILE_HEADER, size), "" if sound else "the header is damaged", header=True)
        limit = max(size - BLOB_FILE_FOOTER, min(BLOB_FILE_HEADER, size))
        at = BLOB_FILE_HEADER
        while at < limit:
            header = bytes(self._source.window(at, min(BLOB_RECORD_HEADER, limit - at)))
            whole = len(header) == BLOB_RECORD_HEADER and self._sound(header)
            length = BLOB_RECORD_HEADER + BLOB_KEY_SIZE.of(header) + BLOB_VALUE_SIZE.of(header) if whole else 0
            if not whole or length > limit - at:
                yield Part(at, limit - at, "the header of a record is damaged: where the next one begins is not known")
                break
            content = bytes(self._source.window(at + BLOB_RECORD_HEADER, length - BLOB_RECORD_HEADER))
            yield Part(at, length, "" if self._whole(header, content) else "a damaged record")
            at += length
        if limit < size:
            footer = bytes(self._source.window(limit, size - limit))
            sound = len(footer) == BLOB_FILE_FOOTER and BLOB_MAGIC_NUMBER.of(footer) == BLOB_MAGIC
            sound = sound and self._checks(footer[: BLOB_FOOTER_CHECKSUM.offset], BLOB_FOOTER_CHECKSUM.of(footer))
            yield Part(limit, size - limit, "" if sound else "the footer is damaged", header=True)

    def _sound(self, header: bytes) -> bool:
        return self._checks(header[: BLOB_HEADER_CHECKSUM.offset], BLOB_HEADER_CHECKSUM.of(header))

    def _whole(self, header: bytes, content: bytes) -> bool:
        """Whether a record is: its header, and key and value."""
        return self._sound(header) and self._checks(content, BLOB_CHECKSUM.of(header))

    def _checks(self, data: bytes, checksum: int) -> bool:
        return not self._verify or masked_checksum(data) == checksum
