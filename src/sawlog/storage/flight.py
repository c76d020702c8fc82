"""Bytes of remote files that are on their way before they are asked for, and beginnings that were asked for before."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sawlog.errors import OptionError
from sawlog.storage.remote import IN_FLIGHT, ObjectState, StoreObject

REMOTE_RANGE = 8 << 20
"""Bytes fetched from a remote file in one request."""
AHEAD_BYTES = 64 << 20
"""Bytes of a read that are on their way, or have arrived, before they are needed, until more are worth it."""
AHEAD_FILES = 64
"""Small files of a read that are asked for before they are needed, until more are worth it."""
MAX_AHEAD_BYTES = 256 << 20
"""Bytes that `AHEAD_BYTES` may become, if nothing else is asked for."""
_MAX_AHEAD_FILES = 128
"""Files that `AHEAD_FILES` may become."""
WHOLE_BYTES = 160 << 10
"""Files up to this size are fetched whole by the first request, whatever it is for: small column files have 129 KiB."""
EDGE_BYTES = 128 << 10
"""Bytes of a range that are kept for those who read the range before it, and of the end of a file, at most."""
_TAIL_BYTES = 16 << 10
"""Bytes that are fetched where fewer at the end of a file are asked for: formats look there one by one."""
KEPT_BYTES = 128 << 20
"""Beginnings that are kept; of small files that is all of them."""

_DISK_DIVISOR = 4
"""The part of the room for temporary files that is taken for what another source will read is one of this many."""
_MAX_EDGES = 64
"""Ranges of which the first bytes are kept, and ends of files."""
_MEMORY_DIVISOR = 16
"""The part of the memory that `MAX_AHEAD_BYTES` may be is one of this many."""
_MIN_GAIN = 1.1
"""Twice as many requests at a time are worth it if so many times as much arrives."""
_ROUNDS_PER_SEARCH = 32
"""Rounds after which a pace that was found is looked for again."""


@dataclass(frozen=True, slots=True)
class PendingRange:
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
        """Return whether it has, or will have, the bytes up to an end."""
        return end <= self.end and not (self.answer.done() and self.answer.exception())


class _DiskFile:
    """A temporary file without a name, which is gone when nobody has it.

    Attributes:
        size: Its bytes.
        process: The process that made it. One that was forked from it has the file, too, and may not append to it.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._file = tempfile.TemporaryFile(prefix="sawlog-", buffering=0)
        weakref.finalize(self, self._file.close)
        self.size = 0

    def append(self, data: memoryview) -> int:
        """Write bytes at the end; return where they begin."""
        start = end = self.size
        while data:
            count = os.pwrite(self._file.fileno(), data, end)
            data, end = data[count:], end + count
        self.size = end
        return start

    def read(self, start: int, length: int) -> memoryview:
        """Return bytes that were written; fewer where the disk does not return them."""
        with contextlib.suppress(OSError):
            return memoryview(os.pread(self._file.fileno(), length, start))
        return memoryview(b"")


@dataclass(frozen=True, slots=True)
class _StoredRange:
    """A range of a remote file that is on disk.

    Attributes:
        start: Its first byte.
        end: The first byte after it.
        file: The file that has it.
        place: Where it begins there.
    """

    start: int
    end: int
    file: _DiskFile
    place: int


@dataclass(slots=True)
class _Head:
    """The beginning of a remote file.

    Attributes:
        state: The state of the remote file.
        piece: Its bytes.
        is_read: Whether a read has come past the file.
    """

    state: ObjectState
    piece: PendingRange
    is_read: bool = False


class Pace:
    """Requests to a store that are worth having under way at a time: twice as many while then more arrives.

    After each change, as many as that are answered before the next as many are timed. Rounds in which nobody waits for
    an answer say nothing: then decoding is what takes long.

    Args:
        first: Their number at first, and at least.
        max_limit: Their number at most.
        clock: Returns seconds.

    Attributes:
        limit: Their number.
    """

    def __init__(self, first: int, max_limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = self._earlier_limit = first
        self._max_limit = max_limit
        self._clock = clock
        self._lock = threading.Lock()
        self._rate = 0.0
        self._rounds = 0  # left until a pace is looked for again
        self._under_way = 0
        self._begin_round()

    def fetch(self, remote: StoreObject, start: int, end: int) -> memoryview:
        """Return the bytes of a range, fetched now."""
        self.begin()
        try:
            return remote.fetch(start, end)
        finally:
            self.end()

    def begin(self) -> None:
        """Count a request that is being made."""
        with self._lock:
            if not self._under_way:
                self._begin_round()
            self._under_way += 1

    def end(self) -> None:
        """Count an answer; with the last one of a round, find out how many requests are worth it."""
        with self._lock:
            self._under_way -= 1
            self._answers += 1
            if self._answers == self.limit:
                self._since = self._clock()
            elif self._answers >= 2 * self.limit:
                self._end_round(self.limit / max(1e-9, self._clock() - self._since))

    def wait(self) -> None:
        """Note that somebody waits for an answer."""
        self._is_awaited = True

    def _begin_round(self) -> None:
        self._answers = 0
        self._since = 0.0
        self._is_awaited = False

    def _end_round(self, rate: float) -> None:
        if self._rounds:
            self._rounds -= 1
        elif self._is_awaited:
            if rate > _MIN_GAIN * self._rate:
                self._rate, self._earlier_limit = rate, self.limit
                self.limit = min(2 * self.limit, self._max_limit)
            else:
                self._rate, self._rounds, self.limit = 0.0, _ROUNDS_PER_SEARCH, self._earlier_limit
        self._begin_round()


class Flight:
    """Ranges of remote files that are fetched by threads of their own, and beginnings that are kept.

    Args:
        most_bytes: Bytes of a read that are on their way, or have arrived, before they are needed, at most.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most_bytes = compute_default_bytes() if most_bytes is None else most_bytes
        self._lock = threading.RLock()  # the garbage collector may close a source, and drop pieces, in any call
        self._pieces: dict[str, list[PendingRange]] = {}
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._head_bytes = 0
        self._disk_file: _DiskFile | None = None
        self._head_places: dict[str, tuple[ObjectState, _DiskFile, int, int]] = {}  # with starts and lengths
        self._stored_ranges: dict[str, tuple[ObjectState, dict[int, list[_StoredRange]]]] = {}  # by where they begin
        self._edges: deque[tuple[str, ObjectState, PendingRange]] = deque(maxlen=_MAX_EDGES)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Flight:
        """Return the flight that the options of a storage ask for.

        Raises:
            OptionError: When they do not give a number of bytes.
        """
        if IN_FLIGHT not in options:
            return cls()
        with contextlib.suppress(TypeError, ValueError):
            if (most_bytes := int(options[IN_FLIGHT])) > 0:
                return cls(most_bytes)
        raise OptionError(f"{IN_FLIGHT}={options[IN_FLIGHT]!r}: expected a number of bytes, at least 1")

    def count_ranges(self, remote: StoreObject) -> int:
        """Return how many ranges of a large file are worth having on their way at a time."""
        return max(1, min(_find_pace(remote, is_small=False).limit, self._most_bytes // REMOTE_RANGE))

    def measure_room(self, remote: StoreObject) -> tuple[int, int]:
        """Return how many bytes, and how many files, of a read are worth having on their way at a time."""
        return min(self.count_ranges(remote) * REMOTE_RANGE, self._most_bytes), _find_pace(remote, is_small=True).limit

    def take_bytes(self, remote: StoreObject, piece: PendingRange) -> memoryview:
        """Return the bytes of a piece, once they are there.

        Raises:
            CancelledError: When another source of the file had no more use for it.
        """
        if not piece.answer.done():
            _find_pace(remote, is_small=remote.state.size <= WHOLE_BYTES).wait()
        return piece.answer.result()

    def read(self, remote: StoreObject, start: int, end: int) -> bytes:
        """Return a range, of which nothing is fetched that is on its way already."""
        first, parts = start, []
        while start < end:
            with self._lock:
                piece = self._find_piece(remote, start)
            if piece is None or not piece.serves(piece.end):
                break
            try:
                parts.append(self.take_bytes(remote, piece)[start - piece.start : end - piece.start])
            except CancelledError:
                break
            start = min(end, piece.end)
        if start < end:
            head = self.fetch_head(remote, end, at_once=True) if start == first else None
            if head is None and end - start <= EDGE_BYTES and end == remote.state.size:
                tail = remote.fetch(max(0, min(start, end - _TAIL_BYTES)), end)
                with self._lock:
                    self._keep_edge(remote, end - len(tail), tail)
                parts.append(tail[start - end :])
            else:
                parts.append(remote.fetch(start, end) if head is None else head.answer.result()[start:end])
        return b"".join(parts)

    def begin(self, remote: StoreObject, start: int, end: int) -> list[PendingRange]:
        """Have a range fetched; return the pieces that were not on their way before."""
        if remote.state.size <= WHOLE_BYTES:
            self.fetch_head(remote, remote.state.size)
            return []
        with self._lock:
            fetch = _find_pace(remote, is_small=False).fetch
            fresh = [
                PendingRange(position, stop, _make_pool().submit(fetch, remote, position, stop))
                for position, stop in _find_gaps(
                    self._list_pieces(remote, start, end), start, min(end, remote.state.size)
                )
            ]
            if fresh:
                self._pieces[remote.url] = self._pieces.get(remote.url, []) + fresh
        return fresh

    def fetch_head(self, remote: StoreObject, length: int, *, at_once: bool = False) -> PendingRange | None:
        """Return the beginning of a file, fetched if it is not there yet and is not long; it is kept.

        Args:
            remote: The file.
            length: Bytes from its start that are wanted; of a small file it is all of them. 0: what is there.
            at_once: Whether the caller waits for it, and makes the request itself.
        """
        size = remote.state.size
        length = size if length > 0 and size <= WHOLE_BYTES else min(length, size)
        with self._lock:
            head = self._heads.get(remote.url)
            if head is not None and head.state.is_same(remote.state) and head.piece.serves(length):
                self._heads.move_to_end(remote.url)
                head.is_read = False
                return head.piece
            place = self._head_places.get(remote.url)
            if place is not None:
                state, file, start, end = place
                is_enough = state.is_same(remote.state) and end >= length
                if is_enough and len(data := file.read(start, end)) == end:
                    return _make_piece(0, data)
                del self._head_places[remote.url]
            if not 0 < length <= WHOLE_BYTES:
                return None
            self._discard_head(remote.url)
            answer: Future[memoryview] = (
                Future() if at_once else _make_pool().submit(_find_pace(remote, is_small=True).fetch, remote, 0, length)
            )
            piece = PendingRange(0, length, answer)
            self._heads[remote.url] = _Head(remote.state, piece)
            self._head_bytes += length
            while self._head_bytes > KEPT_BYTES:
                url, head = next(iter(self._heads.items()))
                if not head.is_read and url != remote.url:
                    self._keep_head_on_disk(url, head)
                self._discard_head(url)
        if at_once:
            try:
                answer.set_result(remote.fetch(0, length))
            except BaseException as error:  # those who wait for it raise it, too
                answer.set_exception(error)
                raise
        return piece

    def find(self, remote: StoreObject, offset: int) -> PendingRange | None:
        """Return the piece that has a byte, if it is on its way."""
        if remote.state.size <= WHOLE_BYTES:
            return self.fetch_head(remote, remote.state.size)
        with self._lock:
            return self._find_piece(remote, offset)

    def _find_piece(self, remote: StoreObject, offset: int) -> PendingRange | None:
        edges = [edge for url, state, edge in list(self._edges) if url == remote.url and state.is_same(remote.state)]
        piece = _find_covering([*self._list_pieces(remote, offset, offset + 1), *edges], offset)
        if not isinstance(piece, _StoredRange):
            return piece
        data = piece.file.read(piece.place, piece.end - piece.start)
        if len(data) == piece.end - piece.start:
            return _make_piece(piece.start, data)
        del self._stored_ranges[remote.url]
        return None

    def _list_pieces(self, remote: StoreObject, start: int, end: int) -> list[PendingRange | _StoredRange]:
        """Return what is on its way, the beginning if it is kept, and what a range has on disk."""
        head, (state, slots) = self.fetch_head(remote, 0), self._stored_ranges.get(remote.url, (None, {}))
        places = range(start // REMOTE_RANGE - 1, end // REMOTE_RANGE + 1)
        are_same = state is not None and state.is_same(remote.state)
        on_disk = [stored_range for place in places for stored_range in slots.get(place, ())] if are_same else []
        return [*([] if head is None else [head]), *self._pieces.get(remote.url, []), *on_disk]

    def _keep_edge(self, remote: StoreObject, start: int, data: memoryview) -> None:
        self._edges.append((remote.url, remote.state, _make_piece(start, data)))

    def _keep_on_disk(self, remote: StoreObject, piece: PendingRange) -> None:
        """Write a piece to disk, if there is room for all of its file; else it is fetched again."""
        state, slots = self._stored_ranges.get(remote.url, (None, {}))
        if state is None or not state.is_same(remote.state):
            if not self._has_room(remote.state.size):
                return
            slots = {}
        with contextlib.suppress(OSError):
            stored_range = _StoredRange(piece.start, piece.end, *self._store(piece.answer.result()))
            slots.setdefault(piece.start // REMOTE_RANGE, []).append(stored_range)
            self._stored_ranges[remote.url] = remote.state, slots

    def _keep_head_on_disk(self, url: str, head: _Head) -> None:
        """Write a beginning that nobody has read yet to disk, if it has come and there is room."""
        answer = head.piece.answer
        if answer.done() and not answer.exception() and self._has_room(head.piece.end):
            with contextlib.suppress(OSError):
                self._head_places[url] = head.state, *self._store(answer.result()), head.piece.end

    def _store(self, data: memoryview) -> tuple[_DiskFile, int]:
        """Write bytes to disk; return where they are."""
        file = self._disk_file
        if file is None or file.process != os.getpid():
            file = self._disk_file = _DiskFile()
        return file, file.append(data)

    def _has_room(self, length: int) -> bool:
        """Return whether there is room for so many bytes on disk, besides those that are there."""
        size = 0 if self._disk_file is None else self._disk_file.size
        free = shutil.disk_usage(tempfile.gettempdir()).free
        return size + length <= (size + free) // _DISK_DIVISOR

    def _forget_places(self) -> None:
        """Let go of the file on disk, if nothing of it is wanted any more."""
        if not self._head_places and not self._stored_ranges:
            self._disk_file = None

    def drop(self, remote: StoreObject, piece: PendingRange, *, is_read_again: bool = False) -> None:
        """Let go of a piece; if its request has not been made, it never is.

        Its first bytes stay for a while: who reads the range before it may need them to end a record. All of it stays
        on disk if it is read again.
        """
        with self._lock:
            pieces = self._pieces.get(remote.url, [])
            _, slots = self._stored_ranges.get(remote.url, (None, {}))
            if piece in pieces:
                pieces.remove(piece)
                has_come = not piece.answer.cancel() and piece.answer.done() and not piece.answer.exception()
                if has_come and is_read_again:
                    self._keep_on_disk(remote, piece)
                elif has_come:
                    self._keep_edge(remote, piece.start, memoryview(bytes(piece.answer.result()[:EDGE_BYTES])))
            elif slots and not is_read_again:
                ranges = slots.pop(piece.start // REMOTE_RANGE, [])
                ranges = [stored_range for stored_range in ranges if stored_range.start != piece.start]
                if ranges:
                    slots[piece.start // REMOTE_RANGE] = ranges
                elif not slots:
                    del self._stored_ranges[remote.url]
                    self._forget_places()
            if not pieces:
                self._pieces.pop(remote.url, None)

    def retire(self, remote: StoreObject) -> None:
        """Let go of a small file before those that a read has not come to, if there is not room for all of them."""
        with self._lock:
            if self._head_places.pop(remote.url, None):
                self._forget_places()
            if remote.url in self._heads:
                self._heads.move_to_end(remote.url, last=False)
                self._heads[remote.url].is_read = True

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            for pieces in list(self._pieces.values()):
                for piece in pieces:
                    piece.answer.cancel()
            self._pieces.clear()
            self._heads.clear()
            self._edges.clear()
            self._stored_ranges.clear()
            self._head_places.clear()
            self._disk_file, self._head_bytes = None, 0

    def _discard_head(self, url: str) -> None:
        if url in self._heads:
            self._head_bytes -= self._heads.pop(url).piece.end


def _make_piece(start: int, data: memoryview) -> PendingRange:
    """Return a range of which the bytes are there."""
    answer: Future[memoryview] = Future()
    answer.set_result(data)
    return PendingRange(start, start + len(data), answer)


def _find_covering(pieces: Iterable[PendingRange | _StoredRange], offset: int) -> PendingRange | _StoredRange | None:
    return next((piece for piece in pieces if piece.start <= offset < piece.end), None)


def _find_gaps(pieces: Sequence[PendingRange | _StoredRange], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield what of a range is in no piece, cut to `REMOTE_RANGE`."""
    position = start
    while position < end:
        piece = _find_covering(pieces, position)
        if piece is not None:
            position = piece.end
            continue
        stop = min([end, position + REMOTE_RANGE, *(piece.start for piece in pieces if piece.start > position)])
        yield position, stop
        position = stop


@cache
def _make_pool() -> ThreadPoolExecutor:
    """Return threads that make requests, the first made first; a process that was forked has its own."""
    return ThreadPoolExecutor(_MAX_AHEAD_FILES, "sawlog-flight")


@cache
def find_paces(store: str) -> tuple[Pace, Pace]:
    """Return the paces of a store, for ranges and for small files; this process remembers them.

    Args:
        store: Where it is: what is in front of the path in its URLs.
    """
    return Pace(AHEAD_BYTES // REMOTE_RANGE, _MAX_AHEAD_FILES), Pace(AHEAD_FILES, _MAX_AHEAD_FILES)


def _find_pace(remote: StoreObject, *, is_small: bool) -> Pace:
    return find_paces("/".join(remote.url.split("/")[:3]))[is_small]


@cache
def compute_default_bytes() -> int:
    """Return `MAX_AHEAD_BYTES`, or a share of the memory of the machine or the process, where that is less."""
    memory = [_MEMORY_DIVISOR * MAX_AHEAD_BYTES]
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not every system says
        memory.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        memory.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))  # which may be "max"
    return min(memory) // _MEMORY_DIVISOR


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_make_pool.cache_clear)
