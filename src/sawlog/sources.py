"""Random access to the bytes of one file: local by memory map, remote in large ranges through fsspec."""

from __future__ import annotations

import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]

REMOTE_RANGE = 8 << 20
"""Bytes fetched from a remote file in one request."""

_RELEASE = 32 << 20
"""Pages of a memory map are given back in steps of this many bytes."""


class Source(Protocol):
    """Random access to the bytes of one file."""

    @property
    def size(self) -> int:
        """Size in bytes when the file was opened; what is appended later is not seen."""
        ...

    def window(self, offset: int, length: int) -> Bytes:
        """`length` bytes from `offset`, fewer only at the end: read-only uint8, valid until the next call.

        Windows are expected to move forward; memory behind them is given back.
        """
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


class LocalSource:
    """A memory-mapped file. Pages behind the window are released, so that resident memory stays bounded."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self._map = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ) if self.size else None
        self._released = 0

    def window(self, offset: int, length: int) -> Bytes:
        """See `Source.window`."""
        import numpy as np

        length = max(0, min(length, self.size - offset))
        if self._map is None or not length:
            return np.frombuffer(b"", np.uint8)
        behind = offset - offset % mmap.ALLOCATIONGRANULARITY
        if behind - self._released >= _RELEASE and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, self._released, behind - self._released)
            self._released = behind
        return np.frombuffer(self._map, np.uint8, length, offset)

    def close(self) -> None:
        """See `Source.close`."""
        # Arrays may still point into the map; it is unmapped when the last of them goes.
        self._map = None


class RemoteSource:
    """A remote file, read in ranges of `REMOTE_RANGE` with one range of read-ahead."""

    def __init__(self, fs: Any, path: str, url: str, end: int | None = None) -> None:
        self._fs = fs
        self._path = path
        self._url = url
        self.size = int(fs.info(path)["size"])
        self._end = self.size if end is None else min(end, self.size)
        self._pool = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[bytes]] | None = None
        self._start = 0
        self._bytes = b""

    def window(self, offset: int, length: int) -> Bytes:
        """See `Source.window`."""
        import numpy as np

        length = max(0, min(length, self.size - offset))
        end = offset + length
        if offset < self._start or offset > self._start + len(self._bytes):
            self._start, self._bytes = offset, b""
        parts = [self._bytes[offset - self._start :]]
        have = self._start + len(self._bytes)
        while have < end:
            part = self._range(have, end)
            parts.append(part)
            have += len(part)
        self._start, self._bytes = offset, b"".join(parts) if len(parts) > 1 else parts[0]
        return np.frombuffer(self._bytes, np.uint8, length)

    def close(self) -> None:
        """See `Source.close`."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _range(self, offset: int, end: int) -> bytes:
        """The range at `offset`; the one behind it is requested before this one is handed out."""
        if self._ahead is not None and self._ahead[0] == offset:
            part = self._ahead[1].result()
        else:
            part = self._fetch(offset, max(end, self._end))
        following = offset + len(part)
        ahead = following < self._end
        self._ahead = (following, self._pool.submit(self._fetch, following, self._end)) if ahead else None
        return part

    def _fetch(self, offset: int, end: int) -> bytes:
        end = min(offset + REMOTE_RANGE, end)
        part = bytes(self._fs.cat_file(self._path, start=offset, end=end))
        while offset + len(part) < end:
            more = bytes(self._fs.cat_file(self._path, start=offset + len(part), end=end))
            if not more:
                raise OSError(f"{self._url}: expected bytes up to {end}, the store ended at {offset + len(part)}")
            part += more
        return part
