"""Opening logs: remote and small ones so that nothing is fetched twice, nor more than is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sawlog.errors import ChangedError
from sawlog.storage import File, Source, Storage, is_remote

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL = 8 << 20
"""Remote files up to this size are fetched whole."""
BLOCK = 64 << 10
"""Bytes fetched at least: those of headers, or of a footer."""


def open_log(file: File, storage: Storage) -> Source:
    """Open a log for reading. Its windows stay what they are: Arrow's arrays may point into them."""
    if is_remote(file.path) or (file.size <= BLOCK and not storage.memory_map):
        return _Fetched(file, storage)
    return storage.open(file.path)


class _Fetched:
    """A remote log. Small ones are fetched whole; of large ones, what is asked for.

    What was fetched last is kept, and windows within it cost nothing.
    """

    def __init__(self, file: File, storage: Storage) -> None:
        self.size = file.size
        self._path = file.path
        self._storage = storage
        self._start = 0
        self._bytes = b""

    def window(self, offset: int, length: int) -> NDArray[np.uint8]:
        """See `Source.window`; windows may go anywhere.

        Raises:
            ChangedError: When the file has become shorter.
        """
        length = min(length, self.size - offset)
        if length <= 0:
            return np.empty(0, np.uint8)
        if offset < self._start or offset + length > self._start + len(self._bytes):
            self._fetch(offset, length)
        return np.frombuffer(self._bytes, np.uint8, length, offset - self._start)

    def close(self) -> None:
        """Let go of what was fetched, once no array points into it."""
        self._bytes = b""

    def _fetch(self, offset: int, length: int) -> None:
        start, size = (0, self.size) if self.size <= SMALL else (offset, max(length, BLOCK))
        size = min(size, self.size - start)
        self._bytes = self._storage.read(self._path, start, size)
        self._start = start
        if len(self._bytes) < size:
            raise ChangedError.shorter(self._path, start + size, start + len(self._bytes))
