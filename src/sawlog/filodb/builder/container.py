"""Containers: bytes that hold records. Section 4 of the format."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sawlog.errors import FormatError, OptionError
from sawlog.filodb import layout
from sawlog.filodb.schemas.record import Buffer

_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")


class RecordContainer:
    """Bytes that begin with a container header; what follows the container's end is not looked at.

    Raises:
        FormatError: When they hold no complete container of version 1.
    """

    def __init__(self, data: Buffer) -> None:
        self.array = data
        if len(data) < layout.CONTAINER_HEADER_SIZE:
            raise FormatError(f"container: {len(data)} bytes; its header already has {layout.CONTAINER_HEADER_SIZE}")
        if self.version != layout.VERSION:
            raise FormatError(f"container: version {self.version}; only version {layout.VERSION} is known")
        if not layout.EMPTY_CONTAINER <= self.num_bytes <= len(data) - layout.LENGTH_SIZE:
            raise FormatError(f"container: length {self.num_bytes}; {len(data)} bytes are there")

    @property
    def num_bytes(self) -> int:
        """Bytes after the length field: the rest of the header, and the records with their padding."""
        return int(_INT.unpack_from(self.array, 0)[0])

    @property
    def version(self) -> int:
        """Version of the container."""
        return self.array[layout.VERSION_WORD.end - 1]

    @property
    def timestamp(self) -> int:
        """When the container was begun, in milliseconds since the epoch."""
        return int(_LONG.unpack_from(self.array, layout.TIMESTAMP.offset)[0])

    @property
    def is_empty(self) -> bool:
        """Whether it holds no records."""
        return self.num_bytes <= layout.EMPTY_CONTAINER

    def trimmed_bytes(self) -> bytes:
        """Return the container without what follows its end."""
        return bytes(self.array[: self.num_bytes + layout.LENGTH_SIZE])

    def offsets(self) -> Iterator[int]:
        """Yield the offset of each record.

        Raises:
            FormatError: When a record runs over the end.
        """
        end = self.num_bytes + layout.LENGTH_SIZE
        offset = layout.CONTAINER_HEADER_SIZE
        while offset < end:
            length = _INT.unpack_from(self.array, offset)[0] if end - offset >= layout.LENGTH_SIZE else -1
            if not 0 <= length <= end - offset - layout.LENGTH_SIZE:
                raise FormatError(
                    f"container: the record at byte {offset} has length {length}; the container ends at {end}"
                )
            yield offset
            offset += layout.align(length + layout.LENGTH_SIZE)

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the records: views, not copies, each without padding."""
        view = memoryview(self.array)
        for offset in self.offsets():
            yield view[offset : offset + layout.LENGTH_SIZE + _INT.unpack_from(self.array, offset)[0]]

    def __len__(self) -> int:
        return sum(1 for _ in self.offsets())


def check_container_size(size: int) -> None:
    """Check the size of containers to be written.

    Raises:
        OptionError: When it is no multiple of 4, or not between 2048 and 2**31 - 1.
    """
    if size % layout.ALIGNMENT or not layout.MIN_CONTAINER_SIZE <= size <= layout.MAX_CONTAINER_SIZE:
        raise OptionError(
            f"container_size={size}: expected a multiple of {layout.ALIGNMENT},"
            f" at least {layout.MIN_CONTAINER_SIZE} and less than 2 GiB"
        )
