"""Bytes of remote files that are on their way before they are asked for, and beginnings that were asked for before."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from sawlog.storage.remote import Remote, State

REMOTE_RANGE = 8 << 20
"""Bytes fetched from a remote file in one request."""
AHEAD_BYTES = 64 << 20
"""Bytes of a read that are on their way, or have arrived, before they are needed."""
AHEAD_FILES = 64
"""Files of a read that are asked for before they are needed."""
WHOLE_BYTES = 128 << 10
"""Files up to this size are fetched whole by the first request, whatever it is for."""
EDGE_BYTES = 128 << 10
"""Bytes of a range that are kept for those who read the range before it."""
KEPT_BYTES = 128 << 20
"""Beginnings that are kept; of small files that is all of them."""

_EDGES = 64
"""Ranges of which the first bytes are kept."""
_REQUESTS = 32
"""Requests at a time."""


@dataclass(frozen=True, slots=True)
class Request:
    """A range of a file that is on its way.

    Attributes:
        start: Its first byte.
        end: The first byte after it.
        answer: Its bytes.
    """

    start: int
    end: int
    answer: Future[memoryview]

    def serves(self, end: int) -> bool:
        """Whether it has, or will have, the bytes up to an end."""
        return end <= self.end and not (self.answer.done() and self.answer.exception())


class Flight:
    """Ranges of remote files that are fetched by threads of their own, and beginnings that are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[str, list[Request]] = {}
        self._heads: OrderedDict[str, tuple[State, Request]] = OrderedDict()
        self._head_bytes = 0
        self._edges: deque[tuple[str, Request]] = deque(maxlen=_EDGES)

    def begin(self, remote: Remote, start: int, end: int) -> list[Request]:
        """Have a range fetched; return the pieces that were not on their way before."""
        if remote.state.size <= WHOLE_BYTES:
            self.head(remote, remote.state.size)
            return []
        with self._lock:
            pieces = self._pieces.setdefault(remote.url, [])
            fresh = [
                Request(position, stop, _pool().submit(remote.fetch, position, stop))
                for position, stop in _gaps(pieces, start, min(end, remote.state.size))
            ]
            pieces += fresh
        return fresh

    def head(self, remote: Remote, length: int, *, at_once: bool = False) -> Request | None:
        """The beginning of a file, fetched if it is not there yet and is not long; it is kept.

        Args:
            remote: The file.
            length: Bytes from its start that are wanted; of a small file it is all of them. 0: what is there.
            at_once: Whether the caller waits for it, and makes the request itself.
        """
        size = remote.state.size
        length = size if length > 0 and size <= WHOLE_BYTES else min(length, size)
        with self._lock:
            state, piece = self._heads.get(remote.url, (None, None))
            if piece is not None and state is not None and state.same(remote.state) and piece.serves(length):
                self._heads.move_to_end(remote.url)
                return piece
            if not 0 < length <= WHOLE_BYTES:
                return None
            self._discard_head(remote.url)
            answer: Future[memoryview] = Future() if at_once else _pool().submit(remote.fetch, 0, length)
            piece = Request(0, length, answer)
            self._heads[remote.url] = remote.state, piece
            self._head_bytes += length
            while self._head_bytes > KEPT_BYTES:
                self._discard_head(next(iter(self._heads)))
        if at_once:
            try:
                answer.set_result(remote.fetch(0, length))
            except BaseException as error:  # those who wait for it raise it, too
                answer.set_exception(error)
                raise
        return piece

    def find(self, remote: Remote, offset: int) -> Request | None:
        """The piece that has a byte, if it is on its way."""
        head = self.head(remote, remote.state.size if remote.state.size <= WHOLE_BYTES else 0)
        if head is not None and offset < head.end:
            return head
        with self._lock:
            edges = [edge for url, edge in self._edges if url == remote.url]
            return _covering(self._pieces.get(remote.url, []), offset) or _covering(edges, offset)

    def drop(self, remote: Remote, piece: Request) -> None:
        """Let go of a piece; if its request has not been made, it never is.

        Its first bytes stay for a while: who reads the range before it may need them to end a record.
        """
        with self._lock:
            pieces = self._pieces.get(remote.url, [])
            if piece in pieces:
                pieces.remove(piece)
                if not piece.answer.cancel() and piece.answer.done() and not piece.answer.exception():
                    first: Future[memoryview] = Future()
                    first.set_result(memoryview(bytes(piece.answer.result()[:EDGE_BYTES])))
                    edge = Request(piece.start, min(piece.start + EDGE_BYTES, piece.end), first)
                    self._edges.append((remote.url, edge))
            if not pieces:
                self._pieces.pop(remote.url, None)

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            for pieces in self._pieces.values():
                for piece in pieces:
                    piece.answer.cancel()
            self._pieces.clear()
            self._heads.clear()
            self._edges.clear()
            self._head_bytes = 0

    def _discard_head(self, url: str) -> None:
        if url in self._heads:
            self._head_bytes -= self._heads.pop(url)[1].end


def _covering(pieces: list[Request], offset: int) -> Request | None:
    return next((piece for piece in pieces if piece.start <= offset < piece.end), None)


def _gaps(pieces: list[Request], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield what of a range is in no piece, cut to `REMOTE_RANGE`."""
    position = start
    while position < end:
        piece = _covering(pieces, position)
        if piece is not None:
            position = piece.end
            continue
        stop = min([end, position + REMOTE_RANGE, *(piece.start for piece in pieces if piece.start > position)])
        yield position, stop
        position = stop


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that make requests, the first made first; a process that was forked has its own."""
    return ThreadPoolExecutor(_REQUESTS, "sawlog-flight")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
