"""What the next micro-batch takes: files in turn, each as far as it can be read, within the limits."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.errors import FormatError
from sawlog.follow import Range
from sawlog.names import natural_order
from sawlog.scan import OFFSET_COLUMN
from sawlog.stream.offset import Place
from sawlog.stream.proof import check_proof

if TYPE_CHECKING:
    from sawlog.stream.files import Files, Followed
    from sawlog.stream.listing import Seen

TOGETHER = 100
"""Files that are opened as one dataset to see how far they can be read."""


class Intake:
    """One choice of what is read next.

    Args:
        follower: Whose files.
        places: How far files were read.
        limited: Whether the limits are in force.
    """

    def __init__(self, follower: Files, places: Mapping[str, Place], *, limited: bool) -> None:
        self._follower = follower
        self._places = places
        options = follower.options
        self._files = options.maxfilespertrigger if limited else None
        self._bytes: int | None = options.maxbytespertrigger if limited else None
        self._rows = options.maxrowspertrigger if limited else None
        self._reached: dict[str, int] = {}
        self._full = False
        self._counted: tuple[Followed, Followed] | None = None

    def take(self, names: Sequence[str], seen: dict[str, Seen]) -> dict[str, int]:
        """Positions to read up to, of those files that have something new.

        Raises:
            SawlogError: When a file is not the one it was.
        """
        for some in self._chunks(self._in_turn(names, seen)):
            for names_of_one, dataset in self._opened(some, seen):
                files = {file.path for file in dataset.contents.files}
                for name in names_of_one:
                    if seen[name].file.path not in files:
                        self._follower.disown(name, seen[name], None)
                        continue
                    self._take_one(name, seen[name], dataset)
                    if self._full:
                        return self._reached
        return self._reached

    def _opened(self, names: Sequence[str], seen: dict[str, Seen]) -> Iterator[tuple[Sequence[str], Followed]]:
        """Files as one dataset; one by one where a foreign one is among them."""
        try:
            yield names, self._follower.open(self._follower.together([seen[name] for name in names], seen))
            return
        except FormatError:
            if len(names) == 1 and not self._follower.may_be_foreign(names[0], seen[names[0]]):
                raise
        for name in names:
            try:
                dataset = self._follower.open(self._follower.together([seen[name]], seen))
            except FormatError as error:
                if not self._follower.may_be_foreign(name, seen[name]):
                    raise
                self._follower.disown(name, seen[name], error)
                continue
            yield [name], dataset

    def _in_turn(self, names: Sequence[str], seen: dict[str, Seen]) -> list[str]:
        """Writers in the order in which they waited; the files of each in the order of writing."""
        groups = {name: self._follower.group(name, seen[name]) for name in names}
        eldest: dict[Hashable, str] = {}
        for name in sorted(names, key=natural_order):
            eldest.setdefault(groups[name][0], name)

        def key(name: str) -> tuple[Any, ...]:
            writer, place = groups[name]
            return self._follower.turn(writer), natural_order(eldest[writer]), place, natural_order(name)

        return sorted(names, key=key)

    @staticmethod
    def _chunks(names: list[str]) -> Iterator[tuple[str, ...]]:
        waiting = iter(names)
        # The first few by themselves: the limits may leave room for no more.
        size = 8
        while some := tuple(itertools.islice(waiting, size)):
            yield some
            size = TOGETHER

    def _take_one(self, name: str, one: Seen, dataset: Followed) -> None:
        place = self._places.get(name, Place(0))
        known = self._follower.committed_end(name, one)
        if known is None and place.at:
            check_proof(one.file, place.at, place.proof, self._follower.storage)
        end = self._end(name, one, dataset, place.at, known)
        if end > place.at:
            self._reached[name] = end
            self._full = self._full or (self._files is not None and len(self._reached) >= self._files)

    def _end(self, name: str, one: Seen, dataset: Followed, at: int, known: int | None) -> int:
        """How far a file is read now: to its committed_end, or as far as the limits leave room."""
        whole = self._follower.format.whole(self._follower.view)
        target = one.file.size
        if self._bytes is not None and not whole:
            target = min(target, at + self._bytes)
        end = known if known is not None and known <= target else self._advance(name, one, dataset, at, target)
        if end > at and self._bytes is not None and whole and self._reached and end - at > self._bytes:
            self._full = True
            return at
        if end > at and self._rows is not None:
            end = self._within_rows(name, one, dataset, at, end, whole=whole)
        if end > at and self._bytes is not None:
            self._bytes = max(0, self._bytes - (end - at))
            self._full = self._full or not self._bytes or target < one.file.size
        return end

    def _advance(self, name: str, one: Seen, dataset: Followed, at: int, target: int) -> int:
        """The committed_end of the file as if it ended at `target`; of more of it if nothing complete ends there."""
        size = one.file.size
        while target < size:
            end = dataset.committed_end(replace(one.file, size=target), at)
            if end > at:
                return end
            if self._reached:
                self._full = True
                return at
            target = min(size, at + 2 * (target - at))
        end = dataset.committed_end(one.file, at)
        self._follower.remember(name, one, end)
        return end

    def _within_rows(self, name: str, one: Seen, dataset: Followed, at: int, end: int, *, whole: bool) -> int:
        """The last position up to `end` for whose rows there is room."""
        room = self._rows or 0
        cut = None
        for offsets in self._offsets(dataset, Range(one.file, at, end)):
            if offsets.num_rows > room:
                cut = int(offsets.column(0)[room].as_py())
                break
            room -= offsets.num_rows
        if cut is None:
            self._rows = room
            self._full = self._full or not room
            return end
        self._full = True
        if whole or cut <= at:
            return at if self._reached else end
        return min(end, self._advance(name, one, dataset, at, cut))

    def _offsets(self, dataset: Followed, asked: Range) -> Iterator[pa.RecordBatch]:
        """Where the rows of a range begin."""
        if self._counted is None or self._counted[0] is not dataset:
            scan = replace(dataset.scan, columns=(OFFSET_COLUMN,), filters=(), on_damage="skip")
            self._counted = dataset, dataset.with_scan(scan)
        for fragment in self._counted[1].between([asked]):
            yield from fragment.to_batches(Findings("skip"))
