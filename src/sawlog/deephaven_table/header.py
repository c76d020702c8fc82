"""Headers of `.dat` and `.sym`: generation, byte order, where the data begins, and the metadata. Sections 1 to 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sawlog.deephaven_table import layout
from sawlog.errors import FormatError

if TYPE_CHECKING:
    from sawlog.storage import File, Storage

HEAD_SIZE = 16
"""Bytes from the start of a file that show its generation."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """How a file of a column begins.

    Attributes:
        version: Column version: 1 has a header, 2 has none.
        little: Whether the data is little endian; None when the file does not tell.
        data_start: Where the data begins.
        metadata_size: Bytes of the metadata, the overflow included.
        certain: Whether the bytes can hardly be anything but such a header: there is a Java stream in it.
    """

    version: int
    little: bool | None
    data_start: int
    metadata_size: int = 0
    certain: bool = False

    @property
    def prefix_size(self) -> int:
        """Bytes of the metadata that are in the header."""
        return min(self.data_start - layout.HEADER_SIZE, self.metadata_size) if self.version == 1 else 0

    @property
    def overflow_size(self) -> int:
        """Bytes of the metadata that are in the overflow file."""
        return self.metadata_size - self.prefix_size


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of how the files of a location begin, by its reader or by a schema file next to them.

    Attributes:
        version: Column version; None when nobody says so.
        little: Whether data is little endian; None likewise.
    """

    version: int | None = None
    little: bool | None = None


NOTHING_TOLD = Told()
HEADERLESS = FileHeader(2, None, 0)
"""A file of column version 2."""


def parse_header(head: bytes, size: int, *, forced: bool = False) -> FileHeader | None:
    """The header of column version 1, if the bytes can be one.

    Args:
        head: The first `HEAD_SIZE` bytes of the file, or all of it.
        size: Size of the file.
        forced: Whether the file is known to have a header: unknown metadata is then left aside.
    """
    if size < layout.HEADER_SIZE:
        return None
    first = int.from_bytes(head[: layout.DATA_START_OFFSET], "big")
    second = int.from_bytes(head[layout.DATA_START_OFFSET : layout.HEADER_SIZE], "big")
    metadata, start = first & layout.METADATA_SIZE_MASK, second & layout.DATA_START_MASK
    if not layout.HEADER_SIZE <= start <= min(layout.MAX_DATA_START, size):
        return None
    room = min(start - layout.HEADER_SIZE, metadata)
    body = head[layout.HEADER_SIZE : layout.HEADER_SIZE + room]
    java = body.startswith(layout.JAVA_STREAM_MAGIC)
    own = body.startswith((layout.OBJECT_STREAM_START, layout.OBJECT_STREAM_LONG_START))
    if metadata and not (java or own or forced):
        return None
    little = bool(first & layout.LITTLE_ENDIAN_BIT)
    return FileHeader(1, little, start, metadata, java)


def read_metadata(file: File, overflow: File | None, header: FileHeader, storage: Storage) -> bytes:
    """The metadata of a file, from its header and its overflow file.

    Raises:
        FormatError: When the overflow file is missing or too short.
    """
    if not header.metadata_size or header.version != 1:
        return b""
    held = overflow.size if overflow is not None else 0
    if held < header.overflow_size:
        raise FormatError(
            f"{file.path}: the metadata has {header.metadata_size} bytes: expected {header.overflow_size} of them in"
            f" the overflow file, found {held}"
        )
    prefix = storage.read(file.path, layout.HEADER_SIZE, header.prefix_size)
    if overflow is None or not header.overflow_size:
        return prefix
    return prefix + storage.read(overflow.path, 0, header.overflow_size)


@dataclass(frozen=True, slots=True)
class Generation:
    """How all files of a location begin and which way round their numbers are.

    Attributes:
        version: Column version, 1 or 2.
        little: Whether numbers are little endian.
        data_start: Where the data begins, in files that have a header.
    """

    version: int = 1
    little: bool = True
    data_start: int = layout.MAX_DATA_START

    def header(self, metadata: bytes) -> tuple[bytes, bytes]:
        """The beginning of a file up to its data, and what of the metadata belongs into the overflow file."""
        if self.version != 1:
            return b"", b""
        order = layout.LITTLE_ENDIAN_BIT if self.little else 0
        numbers = (order | len(metadata)).to_bytes(4, "big") + self.data_start.to_bytes(4, "big")
        room = self.data_start - layout.HEADER_SIZE
        return (numbers + metadata[:room]).ljust(self.data_start, b"\0"), metadata[room:]
