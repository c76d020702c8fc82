"""Random access to the bytes of one file: local by `pread` or memory map, remote in large ranges through fsspec."""

from __future__ import annotations

import errno
import io
import mmap
import os
import weakref
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sawlog.arrow import Column
from sawlog.errors import ChangedError, DiskError, StorageError
from sawlog.storage import flight
from sawlog.storage.flight import Flight, PendingRange
from sawlog.storage.remote import StoreObject

Bytes: TypeAlias = "NDArray[np.uint8]"

WINDOW_BYTES = 4 << 20
"""Bytes of the file that walkers ask for at a time: smaller windows were measured slower, larger ones no faster."""

_NOTHING: Bytes = np.frombuffer(b"", np.uint8)

LEAST_BYTES = 64 << 10
"""Bytes read at least, so that neighbouring headers cost one call."""

_RELEASE = 32 << 20
"""Pages of a memory map are given back in steps of this many bytes."""


class Source(Protocol):
    """Random access to the bytes of one file."""

    @property
    def size(self) -> int:
        """Size in bytes when the file was opened; what is appended later is not seen."""
        ...

    def read_window(self, offset: int, length: int) -> Bytes:
        """Return the `length` bytes from `offset`, fewer only at the end: read-only uint8.

        Windows are expected to move forward; memory that no array points into any more is used again.

        Raises:
            ChangedError: When the file has become shorter, or was replaced.
            DiskError: When a local disk cannot read the range.
            StorageError: When the store, or the operating system, fails otherwise.
        """
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


class LocalSource:
    """A local file that may change: `pread` into buffers that are reused once nobody looks at them any more.

    Args:
        descriptor: The open file, which the source closes.
        path: Its name, for messages.
        end: Nothing past this is read unless a window reaches there.
    """

    def __init__(self, descriptor: int, path: str, end: int | None = None) -> None:
        self._descriptor = descriptor
        self._path = path
        self.size = os.fstat(descriptor).st_size
        self._end = end or 0
        self._piece = self._spare = _EMPTY

    def read_window(self, offset: int, length: int) -> Bytes:
        """Read a window, as `Source.read_window` says."""
        length = max(0, min(length, self.size - offset))
        if not length:
            return _NOTHING
        piece = self._piece
        if not piece.start <= offset <= offset + length <= piece.end:
            piece = self._fill_around(offset, length)
        return piece.view(offset, length)

    def close(self) -> None:
        """Close the file, as `Source.close` says. Windows outlive it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    __del__ = close

    def _fill_around(self, offset: int, length: int) -> SourceBuffer:
        """Read a piece of `LEAST_BYTES` at least, at the end of a file the last ones: they lead to the others."""
        start = max(0, min(offset, self.size - LEAST_BYTES))
        end = min(max(offset + length, start + LEAST_BYTES), self.size)
        if offset + length <= self._end:
            end = min(end, self._end)
        try:
            return self._fill(start, end - start)
        except DiskError:
            if (start, end) == (offset, offset + length):
                raise
            return self._fill(offset, length)  # what is asked for may be readable, though not all around it

    def _fill(self, offset: int, length: int) -> SourceBuffer:
        """Read a piece, into the buffer before the last if nobody holds it; what the last piece has of it is copied."""
        last, piece = self._piece, self._spare
        if piece.is_in_use or piece.capacity < length:
            piece = SourceBuffer(length)
        piece.start = piece.end = offset
        if last.start <= offset < last.end:
            piece.append(last, offset)
        while piece.end < offset + length:
            try:
                got = os.preadv(self._descriptor, [piece.reserve_room(offset + length)], piece.end)
            except OSError as error:
                raise make_read_error(self._path, piece.end, error) from error
            if not got:
                raise ChangedError.from_sizes(self._path, self.size, piece.end)
            piece.end += got
        self._piece, self._spare = piece, last
        return piece


def read_bytes(descriptor: int, path: str, offset: int, length: int | None) -> bytes:
    """Return bytes of an open file from an offset on: so many, or all there are; fewer only at its end.

    Raises:
        StorageError: When the operating system does not deliver them.
    """
    parts: list[bytes] = []
    remaining = length
    piece = max(os.fstat(descriptor).st_size - offset, 0) + 1 if length is None else length
    while remaining is None or remaining > 0:
        try:
            part = os.pread(descriptor, piece if remaining is None else remaining, offset)
        except OSError as error:
            raise make_read_error(path, offset, error) from error
        if not part:
            break
        parts.append(part)
        offset += len(part)
        remaining = None if remaining is None else remaining - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def make_read_error(path: str, offset: int, error: OSError) -> StorageError:
    """Return the error to raise when the system cannot read a local file: its disk, or what is between, is at fault."""
    kind = DiskError if error.errno == errno.EIO else StorageError
    return kind(f"{path}: cannot be read at byte {offset}: {error.strerror or error}")


class SourceBuffer:
    """A buffer, and the bytes of a file that are in it."""

    def __init__(self, capacity: int) -> None:
        self._memory = Column(np.uint8, capacity).values.data
        self._array: weakref.ref[Bytes] | None = None
        self.capacity = capacity
        self.start = self.end = 0

    @property
    def is_in_use(self) -> bool:
        """Whether somebody still has a view of it: every view of an array keeps that array."""
        return self._array is not None and self._array() is not None

    def view(self, offset: int, length: int) -> Bytes:
        """Return bytes of the file that are in the buffer."""
        array = None if self._array is None else self._array()
        if array is None:
            array = np.frombuffer(self._memory.toreadonly(), np.uint8)
            self._array = weakref.ref(array)
        return array[offset - self.start : offset - self.start + length]

    def reserve_room(self, end: int) -> memoryview:
        """Return the memory that the bytes up to `end` belong in."""
        return self._memory[self.end - self.start : end - self.start]

    def append(self, piece: SourceBuffer, offset: int) -> None:
        """Copy what another piece has from `offset`, as far as there is room."""
        count = min(piece.end - offset, self.capacity)
        self._memory[:count] = piece._memory[offset - piece.start : offset - piece.start + count]
        self.end = self.start + count


_EMPTY = SourceBuffer(0)
"""What a source begins with: no byte is ever read into it."""


class MappedSource:
    """A local file that never changes, memory-mapped. Pages before the window are released, so that memory is bounded.

    Args:
        descriptor: The open file, which the source closes.
        path: Its name, for messages.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self._path = path
        self.size = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ) if self.size else None
        os.close(descriptor)
        self._released = 0

    def read_window(self, offset: int, length: int) -> Bytes:
        """Return a window of the mapped memory."""
        length = max(0, min(length, self.size - offset))
        if self._map is None or not length:
            return _NOTHING
        self.check(offset + length)
        done = offset - offset % mmap.ALLOCATIONGRANULARITY
        if done - self._released >= _RELEASE and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, self._released, done - self._released)
            self._released = done
        return np.frombuffer(self._map, np.uint8, length, offset)

    def check(self, end: int) -> None:
        """Look whether the file still reaches to `end`: to touch what is gone would end the process.

        Raises:
            ChangedError: When it has become shorter.
        """
        if self._map is not None and self._map.size() < end:  # of the file as it is now
            raise ChangedError.from_sizes(self._path, self.size, self._map.size())

    def close(self) -> None:
        """Let go of the map."""
        # Arrays may still point into the map; it is unmapped when the last of them goes.
        self._map = None


class MemorySource:
    """Bytes that are in memory already.

    Args:
        data: Anything with the buffer protocol.
    """

    def __init__(self, data: Any) -> None:
        self._data = np.frombuffer(memoryview(data).toreadonly(), np.uint8)
        self.size = len(self._data)

    def read_window(self, offset: int, length: int) -> Bytes:
        """Return a window of the memory."""
        return self._data[offset : offset + max(0, length)]

    def close(self) -> None:
        """Close the source, as `Source.close` says."""


class SourceRange:
    """A range of a source as a source of its own.

    Args:
        source: The bytes; closed with the range.
        start: Where the range begins.
        length: Its bytes; up to the end if not given.
    """

    def __init__(self, source: Source, start: int, length: int | None = None) -> None:
        self._source = source
        self._start = start
        self.size = source.size - start if length is None else length

    def read_window(self, offset: int, length: int) -> Bytes:
        """Return a window of the range."""
        return self._source.read_window(self._start + offset, min(length, self.size - offset))

    def close(self) -> None:
        """Close the source, as `Source.close` says."""
        self._source.close()


class SourceFile(io.RawIOBase):
    """A source as a binary file, for libraries that want one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        """Return whether `read` works: always."""
        return True

    def seekable(self) -> bool:
        """Return whether `seek` works: always."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes from the start."""
        return self._position

    def size(self) -> int:
        """Return the length in bytes; pyarrow asks for it."""
        return self._source.size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        return self._position

    def read(self, size: int = -1) -> Bytes:
        """Return the `size` bytes, or all that are left, as a window of the source."""
        remaining = max(0, self._source.size - self._position)
        data = self._source.read_window(self._position, remaining if size < 0 else min(size, remaining))
        self._position += len(data)
        return data


class RemoteSource:
    """A remote file, read in ranges that are asked for before they are needed: the more, the longer it is read on.

    Windows are views of the memory that answers came in, but where they cross two of them.

    Args:
        remote: The object.
        flight: What is on its way.
        end: Nothing past this is read unless a window reaches there.

    Attributes:
        is_read_again: Whether what it lets go of stays on disk, until another source has read it.
    """

    is_read_again = False

    def __init__(self, remote: StoreObject, flight: Flight, end: int | None = None) -> None:
        self._remote = remote
        self._flight = flight
        self.size = remote.state.size
        self._end = self.size if end is None else min(end, self.size)
        self._ranges = 1  # that are asked for ahead
        self._own_pieces: list[PendingRange] = []
        self._pieces: list[PendingRange] = []  # of others, read from their beginnings on
        self._position = 0  # the end of the last window
        self._start = 0
        self._bytes = memoryview(b"")

    def read_window(self, offset: int, length: int) -> Bytes:
        """Read a window, as `Source.read_window` says."""
        length = max(0, min(length, self.size - offset))
        end = offset + length
        if offset < self._start or offset > self._start + len(self._bytes):
            self._start, self._bytes, self._ranges = offset, memoryview(b""), 1
            self._let_go([piece for piece in self._own_pieces if not piece.start <= offset < piece.end])
        if offset > self._position:  # what is skipped may be another source's
            self._pieces.clear()
        parts = [self._bytes[offset - self._start :]]
        position = self._start + len(self._bytes)
        while position < end:
            part = self._read_part(position, end)
            parts.append(part)
            position += len(part)
        parts = [part for part in parts if len(part)]
        self._start, self._bytes = offset, parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        self._position = end
        return np.frombuffer(self._bytes, np.uint8, length)

    def close(self) -> None:
        """Close the source, as `Source.close` says. What it has not read to the end may be another source's."""
        past = [piece for piece in self._pieces if piece.end <= self._position or piece.end == self._end]
        self._let_go([*self._own_pieces, *past])
        self._remote.close()

    def _read_part(self, offset: int, end: int) -> memoryview:
        """Return the bytes from `offset` on that have come, or come next; those after them are asked for, too."""
        piece = self._flight.find(self._remote, offset)
        if piece is None:
            stop = min(offset + flight.REMOTE_RANGE, max(end, self._end))
            self._own_pieces += self._flight.begin(self._remote, offset, stop)
            piece = self._flight.find(self._remote, offset)
        if piece is None:
            return self._remote.fetch(offset, min(offset + flight.REMOTE_RANGE, max(end, self._end)))
        self._let_go([past for past in (*self._own_pieces, *self._pieces) if past.end <= offset])
        if piece.start == offset and piece.end <= self._end and piece not in self._own_pieces:
            self._pieces.append(piece)
        after = min(self._end, piece.end + self._ranges * flight.REMOTE_RANGE)
        if piece.end < after:
            self._own_pieces += self._flight.begin(self._remote, piece.end, after)
        self._ranges = min(2 * self._ranges, self._flight.count_ranges(self._remote))
        try:
            return self._flight.take_bytes(self._remote, piece)[offset - piece.start :]
        except CancelledError:  # another source of the file had no more use for it
            return self._remote.fetch(offset, piece.end)

    def _let_go(self, pieces: list[PendingRange]) -> None:
        for piece in pieces:
            (self._own_pieces if piece in self._own_pieces else self._pieces).remove(piece)
            self._flight.drop(self._remote, piece, is_read_again=self.is_read_again)
