"""The containers of a file, found one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sawlog.filodb_record import layout
from sawlog.filodb_record.judge import PLAIN_WORD
from sawlog.filodb_record.kernels import frames as f

if TYPE_CHECKING:
    from sawlog.storage import Source

WINDOW_BYTES = 4 << 20
"""Bytes of the file that kernels see at a time."""
FRAMES_ROOM = 4096
"""Containers that are settled at a time."""


class Framing:
    """One pass over the containers that start in `[start, end)`.

    Args:
        source: The file.
        size: Where it is taken to end.
        start: Where a container starts.
        end: Containers that start here or behind are not ours.
        step: Bytes of whole containers; 0 to find out.
        given: Whether the user has said so.
        resumed: Whether an earlier pass has read up to `start`, when the file held no more.
    """

    def __init__(
        self, source: Source, size: int, start: int, end: int, step: int, *, given: bool, resumed: bool = False
    ) -> None:
        self._source = source
        self._size = size
        self._end = end
        self._state = f.new_state(start, step, given=given, resumed=resumed)
        self._flagged = _first_word(source, size)

    @property
    def position(self) -> int:
        """Where the next container starts, or the tail."""
        return int(self._state.position)

    @property
    def tail(self) -> int:
        """What was met at the end of the file: `NO_TAIL`, `TORN_HEADER`, `TORN_CONTAINER` or `UNUSED`."""
        return int(self._state.tail)

    @property
    def skipped(self) -> int:
        """Unused bytes in front of the first container, of one that an earlier pass has read."""
        return int(self._state.skipped)

    @property
    def looked(self) -> int:
        """At how many places headers were searched for."""
        return int(self._state.looked)

    def tables(self) -> Iterator[Any]:
        """Frames (an array of `FRAME` records), in order, some at a time.

        Raises:
            OSError: When the file cannot be read.
        """
        state = self._state
        status = f.MORE
        while status != f.DONE:
            # The records of what is settled are read from the same bytes.
            wanted, position = int(state.wanted), int(state.position)
            near = wanted - position < WINDOW_BYTES // 2
            base = position if near else wanted
            window = self._source.window(base, min(WINDOW_BYTES, self._size - base))
            sight = f.Sight(
                window, np.uint64(base), np.uint64(self._size), np.uint64(self._end), np.int64(self._flagged)
            )
            frames = np.zeros(FRAMES_ROOM, f.FRAME).view(np.recarray)
            state.rows = 0
            status = f.frame_containers(sight, state, f.handed(frames))
            if status == f.FULL:
                state.wanted = state.position
            if state.rows:
                yield frames[: int(state.rows)]


def _first_word(source: Source, size: int) -> int:
    """The version word of the file's first container."""
    if size < layout.TIMESTAMP_OFFSET:
        return PLAIN_WORD
    head = source.window(0, layout.TIMESTAMP_OFFSET)
    return int.from_bytes(head[layout.VERSION_OFFSET :].tobytes(), "little")
