"""RocksDB's blob files: a header, records of a key and a value, and a footer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sawlog.chain.layout import Number
from sawlog.leveldb_log.kernels import masked_checksum
from sawlog.varints import decode_varints

if TYPE_CHECKING:
    from sawlog.storage import Source

MAGIC = 0x248F37
_MAGIC = Number(0, 4)
HEADER_SIZE = 30
FOOTER_SIZE = 32
_FOOTER_CHECKSUM = Number(28, 4)
_KEY_SIZE = Number(0, 8)
_VALUE_SIZE = Number(8, 8)
_HEADER_CHECKSUM = Number(24, 4)
"""Masked CRC-32C of the sizes, and of the expiration between them and it."""
_CHECKSUM = Number(28, 4)
"""Masked CRC-32C of key and value, which follow."""
RECORD_HEADER = _CHECKSUM.end

_IN_FILE = 1
"""First byte of what an entry says about its value: file, place and size as varints, and its compression, follow."""
_WITH_EXPIRATION = 2
"""Likewise, behind a varint of when it expires."""


class BlobIndex(NamedTuple):
    """Where a value is: the number of its file, its place there, its bytes as stored, and how they are compressed."""

    file: int
    offset: int
    size: int
    compression: int

    def record(self, key: bytes) -> int:
        """Where the record of a key begins that holds the value."""
        return self.offset - len(key) - RECORD_HEADER


def blob_index(value: bytes) -> BlobIndex | None:
    """What the value of an entry of the type `put_blob_index` says; `None` where it is no place in a file."""
    if not value or value[0] not in (_IN_FILE, _WITH_EXPIRATION):
        return None
    skipped = 1 if value[0] == _WITH_EXPIRATION else 0
    numbers = list(decode_varints(value[1:-1]))[skipped:]
    if len(numbers) != 3:
        return None
    file, offset, size = numbers
    return BlobIndex(file, offset, size, value[-1])


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
            ValueError: When it is not there, or not whole.
        """
        start = index.record(key)
        if start < 0 or index.offset + index.size > self._source.size:
            raise ValueError("no such value")
        record = bytes(self._source.window(start, RECORD_HEADER + len(key) + index.size))
        header, content = record[:RECORD_HEADER], record[RECORD_HEADER:]
        if (_KEY_SIZE.of(header), _VALUE_SIZE.of(header)) != (len(key), index.size):
            raise ValueError("a record of other sizes")
        if not self._whole(header, content) or not content.startswith(key):
            raise ValueError("a damaged record, or that of another key")
        return content[len(key) :]

    def parts(self) -> Iterator[Part]:
        """All of the file. Behind a header of a record that is damaged, nothing tells where the next one begins."""
        size = self._source.size
        sound = size >= HEADER_SIZE and _MAGIC.of(bytes(self._source.window(0, _MAGIC.end))) == MAGIC
        yield Part(0, min(HEADER_SIZE, size), "" if sound else "the header is damaged", header=True)
        limit = max(size - FOOTER_SIZE, min(HEADER_SIZE, size))
        at = HEADER_SIZE
        while at < limit:
            header = bytes(self._source.window(at, min(RECORD_HEADER, limit - at)))
            whole = len(header) == RECORD_HEADER and self._sound(header)
            length = RECORD_HEADER + _KEY_SIZE.of(header) + _VALUE_SIZE.of(header) if whole else 0
            if not whole or length > limit - at:
                yield Part(at, limit - at, "the header of a record is damaged: where the next one begins is not known")
                break
            content = bytes(self._source.window(at + RECORD_HEADER, length - RECORD_HEADER))
            yield Part(at, length, "" if self._whole(header, content) else "a damaged record")
            at += length
        if limit < size:
            footer = bytes(self._source.window(limit, size - limit))
            sound = len(footer) == FOOTER_SIZE and _MAGIC.of(footer) == MAGIC
            sound = sound and self._checks(footer[: _FOOTER_CHECKSUM.offset], _FOOTER_CHECKSUM.of(footer))
            yield Part(limit, size - limit, "" if sound else "the footer is damaged", header=True)

    def _sound(self, header: bytes) -> bool:
        return self._checks(header[: _HEADER_CHECKSUM.offset], _HEADER_CHECKSUM.of(header))

    def _whole(self, header: bytes, content: bytes) -> bool:
        """Whether a record is: its header, and key and value."""
        return self._sound(header) and self._checks(content, _CHECKSUM.of(header))

    def _checks(self, data: bytes, checksum: int) -> bool:
        return not self._verify or masked_checksum(data) == checksum
