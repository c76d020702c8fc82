"""Following the files of a dataset: from one offset to the next, and what is between two."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from sawlog.errors import SawlogError
from sawlog.follow import Range
from sawlog.guard import wrap_errors
from sawlog.stream.files import Files, Followed
from sawlog.stream.intake import Intake
from sawlog.stream.listing import Seen
from sawlog.stream.offset import WAITING, Ended, Offset, Place, key_of, load_schema
from sawlog.stream.proof import check_proof, prove
from sawlog.stream.records import Records

if TYPE_CHECKING:
    from sawlog.format import Fragment, Scan
    from sawlog.stream.limits import StreamOptions


@dataclass
class Follower(Files):
    """What follows the files of a stream. Only offsets decide what is read; all else is remembered to save work."""

    _proved: dict[str, int] = field(default_factory=dict)
    _records: Records | None = None
    _frozen: dict[str, Seen] | None = None

    @classmethod
    def of(
        cls,
        dataset: Followed,
        paths: Sequence[str],
        scan: Scan,
        options: StreamOptions,
        foreign: Iterable[str] = (),
        schema: str | None = None,
    ) -> Self:
        """What follows the files of a dataset, and those that appear.

        Args:
            dataset: What the stream begins with; without `schema`, its columns are those of the stream.
            paths: Where its files are, and others will be.
            scan: What is wanted of the files.
            options: See `Files`.
            foreign: See `Files`.
            schema: See `Files`.

        Raises:
            OptionError: When the view cannot be followed.
        """
        format, files = dataset.contents.format, dataset.contents.files
        storage = scan.storage.anew()  # files may be replaced, which is for the follower to judge
        scan = replace(scan, storage=storage)
        if scan.view != "damage":
            scan = replace(scan, schema=load_schema(schema) if schema is not None else dataset.contents.view_schema())

        def opened(some: Sequence[Seen]) -> Followed:
            return dataset.of(format, [one.file for one in some], scan)

        (dataset.of(format, files, scan) if format.whole(scan.view) else dataset).between(())
        tables = {table for file in files if (table := format.table(file)) is not None}
        table = tables.pop() if len(tables) == 1 else None
        return cls(paths, storage, format, scan.view, options, opened, foreign, schema, table)

    def freeze(self) -> None:
        """Take the files as they are now for all that there will ever be."""
        self._frozen = None
        self._look()
        self._frozen = dict(self._look())

    def latest(self, start: Offset, *, limited: bool = True) -> Offset:
        """The next offset: `start` itself when nothing was added.

        Args:
            start: Where the stream is.
            limited: Whether the limits of the options are in force.

        Raises:
            SawlogError: When a file was replaced, rewritten or cut, or removed before it was read.
        """
        if self._records is None or start != self._records.start:
            self._records = Records(self, start, self._records)
        seen = self._look()
        self.table = start.table or self.table
        self._records.refresh(seen)
        self.begun = self._records.files
        waiting = self._waiting(self._records, seen)
        with wrap_errors(f"{', '.join(self.paths)}: following failed"):
            reached = Intake(self, self._records.files, limited=limited).take(waiting, seen)
        return self._next(self._records, reached, seen) if reached else start

    def between(self, start: Offset, end: Offset) -> list[Fragment]:
        """The fragments of the micro-batch between two offsets; the same whenever it is asked for.

        Raises:
            SawlogError: When one of its files was replaced, rewritten, cut or removed.
        """
        begins = {name: start.begin_of(name, place) for name, place in end.files.items()}
        news = {name: place for name, place in end.files.items() if place.at > begins[name]}
        if not news:
            return []
        seen = self._frozen or self.listing.files
        if not all(name in seen and self._proved.get(name, -1) >= place.at for name, place in news.items()):
            seen = self.listing.refresh(())
        chosen: dict[str, Seen] = {}
        for name, place in news.items():
            one = seen.get(name)
            if one is None or one.file.size < place.at:
                one = Records(self, end).moved_to(place, seen) or one
            if one is None:
                raise SawlogError(
                    f"{self.root}{name}: the file was removed; a micro-batch that has to be repeated needs its"
                    f" bytes up to {place.at}. Put it back, or start again with a new checkpoint, or without positions"
                )
            if one.file.size < place.at or self._proved.get(name, -1) < place.at:
                check_proof(one.file, place.at, place.proof, self.storage)
            chosen[name] = one
        with wrap_errors(f"{', '.join(self.paths)}: planning failed"):
            dataset = self.open(self.together(list(chosen.values()), seen))
            names = {one.file.path: name for name, one in chosen.items()}
            read = [(file, names[file.path]) for file in dataset.contents.files if file.path in names]
            return dataset.between([Range(file, begins[name], news[name].at) for file, name in read])

    def behind(self, start: Offset) -> tuple[int, int]:
        """Files, and bytes, past an offset, as last seen; unfinished tails included."""
        waiting = [
            seen.file.size - (start.files[name].at if name in start.files else 0)
            for name, seen in self.listing.files.items()
            if name not in self._foreign and start.finished.get(key := key_of(name)) is None and key not in start.copies
        ]
        return sum(one > 0 for one in waiting), sum(one for one in waiting if one > 0)

    def _look(self) -> dict[str, Seen]:
        if self._frozen is not None:
            return self._frozen
        return self.listing.refresh(self._records.ended if self._records is not None else ())

    def _waiting(self, records: Records, seen: dict[str, Seen]) -> list[str]:
        """Names of files that may have something new."""
        found: list[str] = []
        stuck: dict[str, str] = {}
        for name, one in seen.items():
            if name in records.ended or name in records.copies:
                continue
            at = records.files[name].at if name in records.files else 0
            committed_end = self.committed_end(name, one)
            if committed_end is None:
                if one.file.size or at:
                    found.append(name)
            elif committed_end > at:
                found.append(name)
            elif one.file.size > at and (group := self.format.companions(one.file)) is not None:
                stuck[name] = group
        if stuck:
            moved = {self.format.companions(seen[name].file) for name in found}
            freed = [name for name, group in stuck.items() if group in moved]
            for name in freed:
                del self._frontiers[name]
            found += freed
        return [name for name in found if self.ours(name, seen[name])]

    def _next(self, records: Records, reached: dict[str, int], seen: dict[str, Seen]) -> Offset:
        """The offset after a micro-batch; what was finished before it is summed up."""
        files = {name: Place(place.at, place.proof, place.at) for name, place in records.files.items()}
        for name, at in reached.items():
            begin = files[name].at if name in files else 0
            files[name] = Place(at, prove(seen[name].file, at, self.storage), begin)
            self._proved[name] = at
            group, _ = self.group(name, seen[name])
            self._last[group] = self.listing.number
        newest = self._newest(seen)
        ended: dict[str, Ended] = {}
        for name in records.start.files.keys() & files.keys() - reached.keys():
            one = seen.get(name)
            if self._done(name, files[name].at, one, newest):
                ended[name] = Ended.of(files.pop(name), one.version if one is not None else "")
                self._frontiers.pop(name, None)
        finished = records.finish(ended, seen)
        waiting: dict[bytes, int] = {}
        for name, one in seen.items():
            if name in files or name in records.ended or name in records.copies:
                continue
            if one.file.size and name not in self._foreign:
                waiting[key_of(name)] = one.file.size
                if len(waiting) == WAITING:
                    break
        schema = self.schema or records.start.schema
        return Offset(files, finished, waiting, self.table, schema, copies=dict(records.copies.links))

    def _done(self, name: str, at: int, one: Seen | None, newest: dict[Hashable, Any]) -> bool:
        """Whether a file that was read up to a position is finished, for the time being."""
        if one is None:
            return True
        if one.file.size != at and self.committed_end(name, one) != at:
            return False  # there is more to be read, or nobody has looked yet
        place = self.succession(one)
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
            place = self.succession(other)
            if place is not None and other.first < self.listing.number:
                newest[place.writer] = max(newest.get(place.writer, place.place), place.place)
        return newest
