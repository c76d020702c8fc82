"""The containers of a file, found one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sawlog.filodb_record.kernels import frames as f

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.storage import Source

WINDOW_BYTES = 16 << 20
"""Bytes of the file that kernels see at a time."""
FRAMES_ROOM = 1024
"""Containers that are settled at a time."""


class Framing:
    """One pass over the containers that start in `[start, end)`.

    Args:
        source: The file.
        size: Where it is taken to end.
        start: Where a container starts.
        end: Containers that start here or behind are not ours.
        step: Bytes of whole containers; 0 to find out.
    """

    def __init__(self, source: Source, size: int, start: int, end: int, step: int) -> None:
        self._source = source
        self._size = size
        self._end = end
        self._head = np.zeros(3, np.int64)
        self._state = np.zeros(f.STATE_SIZE, np.int64)
        self._state[[f.POSITION, f.WANTED]] = start
        self._state[f.STEP] = step

    @property
    def position(self) -> int:
        """Where the next container starts, or the tail."""
        return int(self._state[f.POSITION])

    @property
    def step(self) -> int:
        """Bytes of whole containers, as far as known; 0 if not."""
        return int(self._state[f.STEP])

    @property
    def tail(self) -> int:
        """What was met at the end of the file: `NO_TAIL`, `TORN_HEADER`, `TORN_CONTAINER` or `UNUSED`."""
        return int(self._state[f.TAIL])

    def tables(self) -> Iterator[NDArray[np.int64]]:
        """Frames, in order, some at a time.

        Raises:
            OSError: When the file cannot be read.
        """
        status = f.MORE
        while status != f.DONE:
            base = int(self._state[f.WANTED])
            window = self._source.window(base, min(WINDOW_BYTES, self._size - base))
            frames = np.zeros((FRAMES_ROOM, f.FRAME_FIELDS), np.int64)
            self._state[f.ROWS] = 0
            status = f.FULL
            while status == f.FULL:
                status = f.frame_containers(
                    window,
                    np.uint64(base),
                    np.uint64(self._size),
                    np.uint64(self._end),
                    self._head,
                    self._state,
                    frames,
                )
                # Those in one window together: their records are read from the same bytes.
                if self._state[f.ROWS]:
                    yield frames[: int(self._state[f.ROWS])]
                    frames = np.zeros((FRAMES_ROOM, f.FRAME_FIELDS), np.int64)
                    self._state[f.ROWS] = 0
