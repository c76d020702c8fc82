"""Following the files of a dataset: from one offset to the next, and what lies between two."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import SawlogError
from sawlog.follow import Range, Succession
from sawlog.format import Dataset, Format, Fragment
from sawlog.names import natural_order
from sawlog.storage import Storage
from sawlog.stream.intake import Intake
from sawlog.stream.limits import StreamOptions
from sawlog.stream.listing import Listing, Seen
from sawlog.stream.offset import Finished, Offset, Place, covered
from sawlog.stream.proof import check_proof, prove

logger = logging.getLogger("sawlog")

REMOTE_PAUSE = 1.0
"""Seconds between looks at remote files."""
CHEAP = 0.01
"""Seconds of computing that a look may cost for the next one to follow at once: Spark asks every ten milliseconds."""
SHARE = 10
"""After a longer look that found nothing, this many times its duration passes before the next one."""


@dataclass(slots=True)
class _Frontier:
    """How far a file could be read when it had a stamp."""

    stamp: tuple[int, ...]
    at: int


@dataclass
class Follower:
    """What one stream knows of its files. Offsets alone decide what is read; all else is remembered to save work.

    Args:
        paths: What the stream reads.
        storage: Where that is.
        format: Of the files.
        view: Of the stream.
        options: Limits, and when files are finished.
        open: Opens some of the files as a dataset with the columns of the stream.
        foreign: Paths of files that there are but do not belong to the stream.
    """

    paths: Sequence[str]
    storage: Storage
    format: Format
    view: str
    options: StreamOptions
    open: Callable[[Sequence[Seen]], Dataset]
    foreign: Iterable[str] = ()
    _frontiers: dict[str, _Frontier] = field(default_factory=dict)
    _finished: dict[str, int] = field(default_factory=dict)
    _settled: Finished | None = None
    _foreign: set[str] = field(default_factory=set)
    _successions: dict[str, Succession | None] = field(default_factory=dict)
    _proved: dict[str, int] = field(default_factory=dict)
    _last: dict[Hashable, int] = field(default_factory=dict)
    _frozen: dict[str, Seen] | None = None
    _rest: float = 0.0
    _rested: Offset | None = None

    def __post_init__(self) -> None:
        (*others, root) = self.paths
        self._root = "" if others else root.rstrip("/") + "/"
        self.listing = Listing(self.paths, self.storage, self._name)
        self._foreign = {self._name(path) for path in self.foreign}

    def freeze(self) -> None:
        """Take the files as they are now for all that there will ever be."""
        self._frozen = None
        self._look()
        self._frozen = dict(self._look())

    def latest(self, start: Offset, *, limited: bool = True) -> Offset:
        """The next offset: `start` itself when nothing was added.

        Args:
            start: Where the stream stands.
            limited: Whether the limits of the options are in force.

        Raises:
            SawlogError: When a file was replaced, rewritten or cut, or removed before it was read.
        """
        if start == self._rested and time.monotonic() < self._rest:
            return start
        begun = time.thread_time()
        seen = self._look()
        self._settle(start, seen)
        self._lost(start, seen)
        waiting = self._waiting(start, seen)
        took = time.thread_time() - begun
        reached = Intake(self, start, limited=limited).take(waiting, seen)
        if reached:
            self._rested = None
            return self._next(start, reached, seen)
        self._rested = start
        pause = REMOTE_PAUSE if self.listing.remote else SHARE * took if took > CHEAP else 0.0
        self._rest = time.monotonic() + pause
        return start

    def between(self, start: Offset, end: Offset) -> list[Fragment]:
        """The fragments of the micro-batch between two offsets; the same whenever it is asked for.

        Raises:
            SawlogError: When one of its files was replaced, rewritten, cut or removed.
        """
        news = {name: place for name, place in end.files.items() if place.at > start.files.get(name, Place(0)).at}
        if not news:
            return []
        seen = self._frozen or self.listing.files
        if not all(name in seen and self._proved.get(name, -1) >= place.at for name, place in news.items()):
            seen = self.listing.refresh(())
        gone = [name for name in news if name not in seen]
        if gone:
            raise SawlogError(
                f"{self._root}{gone[0]}: the file was removed; a micro-batch that has to be repeated needs its"
                f" bytes up to {news[gone[0]].at}. Put it back, or start the stream with a new checkpoint"
            )
        chosen = [seen[name] for name in news]
        for one, (name, place) in zip(chosen, news.items(), strict=True):
            if one.file.size < place.at or self._proved.get(name, -1) < place.at:
                check_proof(one.file, place.at, place.proof, self.storage)
        dataset = self.open(self.together(chosen, seen))
        positions = {self._name(file.path): file for file in dataset.files}
        ranges = [
            Range(file, start.files.get(name, Place(0)).at, news[name].at)
            for name, file in positions.items()
            if name in news
        ]
        return dataset.between(ranges)

    def behind(self, start: Offset) -> tuple[int, int]:
        """Files, and bytes, that lie behind an offset, as last seen; unfinished tails included."""
        waiting = [
            seen.file.size - start.files.get(name, Place(0)).at
            for name, seen in self.listing.files.items()
            if name not in self._finished and name not in self._foreign
        ]
        return sum(one > 0 for one in waiting), sum(one for one in waiting if one > 0)

    def together(self, chosen: Sequence[Seen], seen: dict[str, Seen]) -> list[Seen]:
        """Files, and those that have to be looked at with them."""
        wanted = {group for one in chosen if (group := self.format.companions(one.file)) is not None}
        alone = [one for one in chosen if self.format.companions(one.file) is None]
        return alone + [one for one in seen.values() if self.format.companions(one.file) in wanted] if wanted else alone

    def frontier(self, name: str, seen: Seen) -> int | None:
        """How far a file can be read, where that is known."""
        known = self._frontiers.get(name)
        return known.at if known is not None and known.stamp == seen.stamp else None

    def remember(self, name: str, seen: Seen, at: int) -> None:
        """Keep how far a file can be read."""
        self._frontiers[name] = _Frontier(seen.stamp, at)

    def disown(self, name: str) -> None:
        """A file is none of the stream's."""
        self._foreign.add(name)

    def turn(self, group: Hashable) -> int:
        """When a writer was last read from; those that waited longest come first."""
        return self._last.get(group, 0)

    def group(self, name: str, seen: Seen) -> tuple[Hashable, Any]:
        """Who writes a file, and its place among that writer's."""
        place = self._succession(seen)
        return (name, 0) if place is None else (place.writer, place.place)

    def _succession(self, seen: Seen) -> Succession | None:
        path = seen.file.path
        if path not in self._successions:
            self._successions[path] = self.format.succession(seen.file)
        return self._successions[path]

    def _name(self, path: str) -> str:
        inner = path.removeprefix(self._root) if self._root else path
        return self.format.stream_name(inner or path)

    def _look(self) -> dict[str, Seen]:
        if self._frozen is not None:
            return self._frozen
        return self.listing.refresh(self._finished)

    def _settle(self, start: Offset, seen: dict[str, Seen]) -> None:
        """Find out which files are finished: by the offset at first, then by memory."""
        if self._settled != start.finished:
            names = [name for name in covered(seen, start) if name not in self._foreign and self._ours(seen[name])]
            self._finished = {name: seen[name].file.size for name in names}
            self._settled = start.finished.copy()
            start.finished.settle(self._finished, ", ".join(self.paths))
        for name, size in self._finished.items():
            one = seen.get(name)
            if one is not None and one.file.size != size:
                raise SawlogError(
                    f"{one.file.path}: the file was finished with {size} bytes and has {one.file.size} now: a later"
                    " file of its writer was there, or it had been quiet; see the option finishedAfter"
                )

    def _lost(self, start: Offset, seen: dict[str, Seen]) -> None:
        """Notice files that were removed before all of them was read."""
        for name, place in start.files.items():
            known = self._frontiers.get(name)
            if name not in seen and known is not None and known.at > place.at:
                del self._frontiers[name]
                told = (
                    f"{self._root}{name}: the file was removed; {place.at} bytes of it were read, {known.at} could have"
                    " been"
                )
                if self.options.failondataloss:
                    raise SawlogError(f"{told}; failOnDataLoss=false reads on without them")
                logger.warning(told)

    def _waiting(self, start: Offset, seen: dict[str, Seen]) -> list[str]:
        """Names of files that may have something new."""
        found: list[str] = []
        stuck: dict[str, str] = {}
        for name, one in seen.items():
            if name in self._finished or name in self._foreign:
                continue
            at = start.files[name].at if name in start.files else 0
            frontier = self.frontier(name, one)
            if frontier is None:
                if one.file.size or at:
                    found.append(name)
            elif frontier > at:
                found.append(name)
            elif one.file.size > at and (group := self.format.companions(one.file)) is not None:
                stuck[name] = group
        if stuck:
            moved = {self.format.companions(seen[name].file) for name in found}
            freed = [name for name, group in stuck.items() if group in moved]
            for name in freed:
                del self._frontiers[name]
            found += freed
        return [name for name in found if self._ours(seen[name])]

    def _ours(self, one: Seen) -> bool:
        if self.format.select([one.file], self.view) and self.format.follows(one.file, self.view):
            return True
        self._foreign.add(self._name(one.file.path))
        return False

    def _next(self, start: Offset, reached: dict[str, int], seen: dict[str, Seen]) -> Offset:
        """The offset behind a micro-batch; what was finished before it is told in short."""
        files = dict(start.files)
        finished = start.finished.copy()
        remembered = dict(self._finished)
        for name, at in reached.items():
            files[name] = Place(at, prove(seen[name].file, at, self.storage))
            self._proved[name] = at
            group, _ = self.group(name, seen[name])
            self._last[group] = self.listing.number
        newest = self._newest(seen)
        done = [name for name in start.files if name not in reached and self._done(name, files[name].at, seen, newest)]
        unread = [name for name in seen if name not in files and name not in remembered and name not in self._foreign]
        bound = min((natural_order(name) for name in unread), default=None)
        for name in sorted(done, key=natural_order):
            if bound is None or natural_order(name) < bound or natural_order(name) <= (finished.through or []):
                size = seen[name].file.size if name in seen else files[name].at
                finished.add(name, size)
                remembered[name] = size
                del files[name]
                self._frontiers.pop(name, None)
        through = finished.through
        for name in unread:
            if through is not None and natural_order(name) <= through and name not in files:
                files[name] = Place(0)
        self._finished, self._settled = remembered, finished.copy()
        return Offset(files, finished)

    def _done(self, name: str, at: int, seen: dict[str, Seen], newest: dict[Hashable, Any]) -> bool:
        """Whether a file that was read up to a position is finished."""
        one = seen.get(name)
        if one is None:
            return True
        if one.file.size != at and self.frontier(name, one) != at:
            return False  # there is more to be read, or nobody has looked yet
        place = self._succession(one)
        succeeded = place is not None and place.writer in newest and newest[place.writer] > place.place
        if one.file.size == at and (succeeded or self.format.whole(self.view)):
            return True
        return time.time() - one.changed > self.options.finishedafter

    def _newest(self, seen: dict[str, Seen]) -> dict[Hashable, Any]:
        """The place of each writer's newest file, of those that an earlier look has found.

        Files are looked at one after the other: only of those that are looked at again is it certain that nothing was
        written to them before their successor was begun.
        """
        newest: dict[Hashable, Any] = {}
        for other in seen.values():
            place = self._succession(other)
            if place is not None and other.first < self.listing.number:
                newest[place.writer] = max(newest.get(place.writer, place.place), place.place)
        return newest
