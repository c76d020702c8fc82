"""Working on several things at a time, with results in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

PIECE_BYTES = 16 << 20
"""Input bytes of what one thread works on, and between two steps of a progress bar; results of as many may wait."""

_END = object()

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_cores() -> int:
    """Return the cores that the process may use; at most the CPU count of pyarrow."""
    import pyarrow as pa

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(int(pa.cpu_count()), allowed))


def map_ordered(
    items: Iterable[Item],
    work: Callable[[Item], Iterator[Result]],
    threads: int,
    ended: Callable[[Item], None] = lambda _: None,
    measure: Callable[[Result], int] | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Work on several items at a time; results come in the order of the items, as if done one after the other.

    No more than twice as many results as threads are in flight, unless they are small: an item of many small results is
    worked on to its end while earlier items are. When the consumer stops, nothing new is begun.

    Args:
        items: What to work on; taken as they are needed.
        work: The results of one item. Its steps may run in different threads, never two at a time.
        threads: How many work, the caller's among them.
        ended: Called with each item, once all of its results are taken.
        measure: The bytes of a result. While all that wait have less than a piece per thread, more are made.
    """
    if threads <= 1:
        for item in items:
            for result in work(item):
                yield item, result
            ended(item)
        return
    crew = WorkerPool(threads, measure)
    waiting = iter(items)
    try:
        while True:
            while len(crew.jobs) < 2 * threads and _take_next_item(crew, waiting, work):
                pass
            if not crew.jobs:
                return
            job = crew.jobs[0]
            result = crew.take_result()
            if result is _END:
                ended(job.item)
                continue
            yield job.item, result
            del result  # before the next one is asked for
    finally:
        crew.dismiss()


def wrap_single_step(work: Callable[[Item], Result]) -> Callable[[Item], Iterator[Result]]:
    """Return a function for `map_ordered` from one with a single result per item, which runs when that is taken."""

    def iterate_steps(item: Item) -> Iterator[Result]:
        yield work(item)

    return iterate_steps


def map_all(items: Iterable[Item], work: Callable[[Item], Result], threads: int) -> list[Result]:
    """Work on several items at a time, and return the results in the order of the items; see `map_ordered`."""
    return [result for _, result in map_ordered(items, wrap_single_step(work), threads)]


def finish_all(items: Iterable[Item], work: Callable[[Item], Result], threads: int) -> list[Result]:
    """Work on several items at a time, such as files to move, and return the results in the order of the items.

    Unlike with `map_ordered`, nothing runs any more when an error is raised: what was done can be taken back.
    """
    if threads <= 1:
        return list(map(work, items))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda item, context: context.run(work, item), items, iter(copy_context, None)))


def _take_next_item(crew: WorkerPool, waiting: Iterator[Any], work: Callable[[Any], Iterator[Any]]) -> bool:
    """Take the next item on. Errors are raised in order, after earlier results."""
    try:
        item = next(waiting, _END)
    except Exception as error:  # noqa: BLE001, it is raised when its turn comes
        crew.add(_Job(None, iter(()), deque([(_Failure(error), 0)]), has_ended=True))
        return False
    if item is not _END:
        crew.add(_Job(item, work(item), deque()))
    return item is not _END


@dataclass
class _Failure:
    """A step that has raised."""

    error: BaseException


@dataclass
class _Job:
    """An item that is worked on: what is still to do, and the results that nobody has taken yet, with their bytes."""

    item: Any
    steps: Iterator[Any]
    ready: deque[tuple[Any, int]]
    is_running: bool = False
    has_ended: bool = False


class WorkerPool:
    """Threads that work on jobs, those in front first; the thread of the consumer is one of them.

    Attributes:
        jobs: In order; the results of the first are taken next.
    """

    def __init__(self, threads: int, measure: Callable[[Any], int] | None = None) -> None:
        self._limit = 2 * threads
        self._measure = measure
        self._spare_bytes = threads * PIECE_BYTES if measure else 0  # less what waits to be taken
        self._idle = threads - 1
        self._changed = threading.Condition()
        self._stopped = False
        self._in_flight = 0  # results that are being made or wait to be taken
        self.jobs: deque[_Job] = deque()

    def add(self, job: _Job) -> None:
        """Take on a job, after the others."""
        with self._changed:
            self.jobs.append(job)
            self._wake_threads()

    def take_result(self) -> Any:
        """Return the next result of the first job; `_END`, and the job is gone, when there are no more.

        Raises:
            Exception: What its next step has raised.
        """
        first = self.jobs[0]
        while True:
            with self._changed:
                if first.ready:
                    result, size = first.ready.popleft()
                    if isinstance(result, _Failure):
                        raise result.error
                    self._in_flight -= 1
                    self._spare_bytes += size
                    self._wake_threads()
                    return result
                if first.has_ended:
                    self.jobs.popleft()
                    self._wake_threads()
                    return _END
                job = self._begin(is_consumer=True)
                if job is None:
                    self._changed.wait()
            if job is not None:
                self._run_step(job, going_on=False)

    def dismiss(self) -> None:
        """Begin nothing more; what runs ends with its step."""
        with self._changed:
            self._stopped = True
            idle = [job for job in self.jobs if not job.is_running]
        for job in idle:
            _close(job)

    def _wake_threads(self) -> None:
        """Have idle threads begin what there is room for."""
        while self._idle and (job := self._begin(is_consumer=False)) is not None:
            self._idle -= 1
            _make_pool().submit(copy_context().run, self._work, job)

    def _begin(self, *, is_consumer: bool) -> _Job | None:
        """Return the first job that a thread may make a result of; it is the caller's then.

        Args:
            is_consumer: Whether the consumer asks. Others leave the first job, which the consumer has, for last.
        """
        if self._stopped or not self.jobs:
            return None
        jobs = iter(self.jobs)
        first = next(jobs)
        is_first_free = not (first.is_running or first.has_ended)
        if is_consumer and is_first_free:  # there are no results of it: nothing is taken before there are
            return self._start(first)
        if self._has_room(self._limit - 1):
            for job in jobs:
                if not (job.is_running or job.has_ended):
                    return self._start(job)
        return self._start(first) if is_first_free and self._has_room(self._limit) else None

    def _start(self, job: _Job) -> _Job:
        job.is_running = True
        self._in_flight += 1
        return job

    def _has_room(self, limit: int) -> bool:
        """Return whether one more result may be made.

        The last place belongs to the first job, which everybody waits for.
        """
        return self._in_flight < limit or self._spare_bytes > 0

    def _work(self, job: _Job | None) -> None:
        """Work while there is something to do, in a thread of the pool."""
        while job is not None:
            while self._run_step(job, going_on=True):
                pass
            with self._changed:
                job = self._begin(is_consumer=False)
                self._idle += job is None

    def _run_step(self, job: _Job, *, going_on: bool) -> bool:
        """Make one result of a job; returns whether to go on with it: what a thread has in hand stays near to it."""
        try:
            result = _END if self._stopped else next(job.steps, _END)
        except Exception as error:  # noqa: BLE001, the consumer raises it
            result = _Failure(error)
        is_last = result is _END or isinstance(result, _Failure)
        size = 0 if is_last or self._measure is None else self._measure(result)
        with self._changed:
            self._in_flight -= is_last
            self._spare_bytes -= size
            job.has_ended = job.has_ended or is_last
            if result is not _END:
                job.ready.append((result, size))
            del result
            stopped = self._stopped
            limit = self._limit - (job is not self.jobs[0])
            job.is_running = going_on and not (is_last or stopped) and self._has_room(limit)
            self._in_flight += job.is_running
            self._wake_threads()
            self._changed.notify_all()
        if stopped:
            _close(job)
        return job.is_running


class ReadOnce(Generic[Result]):
    """A part of a file, such as the map of a table, that is read once for all ranges that a process reads.

    Attributes:
        value: The part; None until it is read.
    """

    def __init__(self) -> None:
        self.value: Result | None = None
        self._lock = threading.Lock()

    def get(self, read: Callable[[], Result]) -> Result:
        """Return it, read when it is first asked for."""
        with self._lock:
            if self.value is None:
                self.value = read()
            return self.value


@cache
def _make_pool() -> ThreadPoolExecutor:
    """Return threads that are begun when none is idle, and kept: what they have allocated serves the next read, too."""
    return ThreadPoolExecutor(1 << 16, "sawlog")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_make_pool.cache_clear)


def _close(job: _Job) -> None:
    """End the work on a job that nobody waits for."""
    if isinstance(job.steps, Generator):
        job.steps.close()
