"""Following the files of a dataset: from one offset to the next, and what is between two."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from sawlog.errors import FormatError, SawlogError
from sawlog.format.capabilities import require_followable
from sawlog.format.contract import BoundScan, Contents, Fragment, Range, Scan
from sawlog.format.damage import Findings
from sawlog.format.planning import bind_scan, describe_files, find_view_schema, find_whole_end
from sawlog.format.scan import OFFSET_COLUMN
from sawlog.guard import wrap_errors
from sawlog.storage.names import make_natural_key
from sawlog.stream.files import Files, OpenFiles
from sawlog.stream.limits import StreamOptions
from sawlog.stream.listing import FileSnapshot
from sawlog.stream.offset import (
    MAX_WAITING_FILES,
    FinishedFile,
    Offset,
    ReadPosition,
    check_proof,
    hash_name,
    load_schema,
    prove,
)
from sawlog.stream.records import Records

logger = logging.getLogger("sawlog")

_FILES_AT_ONCE = 100
"""Files that are opened as one dataset to see how far they can be read; more, after as many."""


@dataclass
class Follower(Files):
    """Follower of the files of a stream. Only offsets decide what is read; all else is remembered to save work."""

    _proved: dict[str, int] = field(default_factory=dict)
    _records: Records | None = None
    _frozen: dict[str, FileSnapshot] | None = None

    @classmethod
    def of(
        cls,
        contents: Contents,
        paths: Sequence[str],
        scan: Scan,
        options: StreamOptions,
        foreign: Iterable[str] = (),
        schema: str | None = None,
    ) -> Self:
        """Return a follower of files that were opened, and of those that appear.

        Raises:
            OptionError: When the view cannot be followed.
        """
        format, files = contents.format, contents.files
        # Files may be replaced, which is for the follower to judge; an index counts for the same state of a file only.
        storage = replace(scan.storage.make_fresh(), index=scan.storage.index)
        scan = replace(scan, storage=storage)
        if scan.view != "damage":
            scan = replace(scan, schema=load_schema(schema) if schema is not None else find_view_schema(contents))

        added: set[str] = set()

        def open_entries(entries: Sequence[FileSnapshot]) -> OpenFiles:
            contents = format.open([entry.file for entry in entries], scan)
            request = bind_scan(contents, scan)
            if scan.schema is not None:
                _mention_added(contents, scan.schema, added)
            return OpenFiles(contents, request)

        if format.stream_rules.is_complete(scan.view):
            contents = format.open(files, scan)
        require_followable(contents).list_fragments(bind_scan(contents, contents.scan), ())
        tables = {table for file in files if (table := format.directory_layout.table_name(file)) is not None}
        table = tables.pop() if len(tables) == 1 else None
        return cls(paths, storage, format, scan.view, options, open_entries, foreign, schema, table)

    def freeze(self) -> None:
        """Take the files as they are now for all that there will ever be."""
        self._frozen = None
        self._look()
        self._frozen = dict(self._look())

    def find_latest(self, start: Offset, *, limited: bool = True) -> Offset:
        """Return the next offset: `start` itself when nothing was added.

        Raises:
            SawlogError: When a file was replaced, rewritten or cut, or removed before it was read.
        """
        if self._records is None or start != self._records.start:
            self._records = Records(self, start, self._records)
        entries = self._look()
        self.table = start.table or self.table
        self._records.refresh(entries)
        self.begun_names = self._records.files
        waiting = self._list_waiting(self._records, entries)
        with wrap_errors(f"{', '.join(self.paths)}: following failed"):
            reached = _Intake(self, self._records.files, limited=limited).take(waiting, entries)
        return self._make_next_offset(self._records, reached, entries) if reached else start

    def list_fragments(self, start: Offset, end: Offset) -> list[Fragment]:
        """Return the fragments of the micro-batch between two offsets; the same whenever it is asked for.

        Raises:
            SawlogError: When one of its files was replaced, rewritten, cut or removed.
        """
        begins = {name: place.begin for name, place in end.files.items()}
        news = {name: place for name, place in end.files.items() if place.position > begins[name]}
        if not news:
            return []
        entries = self._frozen or self.listing.files
        if not all(name in entries and self._proved.get(name, -1) >= place.position for name, place in news.items()):
            entries = self.listing.refresh(())
        entries_by_name: dict[str, FileSnapshot] = {}
        for name, place in news.items():
            entry = entries.get(name)
            if entry is None or entry.file.size < place.position:
                entry = Records(self, end).find_moved(place, entries) or entry
            if entry is None:
                raise SawlogError(
                    f"{self.root}{name}: the file was removed; a micro-batch that has to be repeated needs its"
                    f" bytes up to {place.position}. Put it back, or start again with a new checkpoint, or without"
                    " positions"
                )
            if entry.file.size < place.position or self._proved.get(name, -1) < place.position:
                check_proof(entry.file, place.position, place.proof, self.storage)
            entries_by_name[name] = entry
        with wrap_errors(f"{', '.join(self.paths)}: planning failed"):
            contents, request = self.open(self.add_group_members(list(entries_by_name.values()), entries))
            names = {entry.file.path: name for name, entry in entries_by_name.items()}
            read = [(file, names[file.path]) for file in contents.files if file.path in names]
            return require_followable(contents).list_fragments(
                request, [Range(file, begins[name], news[name].position) for file, name in read]
            )

    def measure_lag(self, start: Offset) -> tuple[int, int]:
        """Return files, and bytes, past an offset, as last seen; unfinished tails included."""
        waiting = [
            entry.file.size - (start.files[name].position if name in start.files else 0)
            for name, entry in self.listing.files.items()
            if name not in self._foreign
            and start.finished.get(key := hash_name(name)) is None
            and key not in start.copies
        ]
        return sum(byte_count > 0 for byte_count in waiting), sum(
            byte_count for byte_count in waiting if byte_count > 0
        )

    def _look(self) -> dict[str, FileSnapshot]:
        if self._frozen is not None:
            return self._frozen
        return self.listing.refresh(self._records.ended if self._records is not None else ())

    def _list_waiting(self, records: Records, entries: dict[str, FileSnapshot]) -> list[str]:
        """Return names of files that may have something new."""
        names: list[str] = []
        stuck: dict[str, str] = {}
        for name, entry in entries.items():
            if name in records.ended or name in records.copies:
                continue
            position = records.files[name].position if name in records.files else 0
            committed_end = self.find_committed_end(name, entry)
            if committed_end is None:
                if entry.file.size or position:
                    names.append(name)
            elif committed_end > position:
                names.append(name)
            elif (
                entry.file.size > position
                and (group := self.format.directory_layout.judged_together(entry.file)) is not None
            ):
                stuck[name] = group
        if stuck:
            moved = {self.format.directory_layout.judged_together(entries[name].file) for name in names}
            freed = [name for name, group in stuck.items() if group in moved]
            for name in freed:
                del self._committed_ends[name]
            names += freed
        return [name for name in names if self.is_member(name, entries[name])]

    def _make_next_offset(self, records: Records, reached: dict[str, int], entries: dict[str, FileSnapshot]) -> Offset:
        """Return the offset after a micro-batch; what was finished before it is summed up."""
        files = {
            name: ReadPosition(place.position, place.proof, place.position) for name, place in records.files.items()
        }
        for name, position in reached.items():
            begin = files[name].position if name in files else 0
            files[name] = ReadPosition(position, prove(entries[name].file, position, self.storage), begin)
            self._proved[name] = position
            group, _ = self.group(name, entries[name])
            self._last[group] = self.listing.number
        newest = self._find_newest(entries)
        ended: dict[str, FinishedFile] = {}
        for name in records.start.files.keys() & files.keys() - reached.keys():
            entry = entries.get(name)
            if self._is_done(name, files[name].position, entry, newest):
                ended[name] = FinishedFile.of(files.pop(name), entry.version if entry is not None else "")
                self._committed_ends.pop(name, None)
        finished = records.finish(ended, entries)
        waiting: dict[bytes, int] = {}
        for name, entry in entries.items():
            if name in files or name in records.ended or name in records.copies:
                continue
            if entry.file.size and name not in self._foreign:
                waiting[hash_name(name)] = entry.file.size
                if len(waiting) == MAX_WAITING_FILES:
                    break
        schema = self.schema or records.start.schema
        return Offset(files, finished, waiting, self.table, schema, copies=dict(records.copies.links))

    def _is_done(self, name: str, position: int, entry: FileSnapshot | None, newest: dict[Hashable, Any]) -> bool:
        """Return whether a file that was read up to a position is finished, for the time being."""
        if entry is None:
            return True
        if entry.file.size != position and self.find_committed_end(name, entry) != position:
            return False  # there is more to be read, or nobody has looked yet
        place = self.writer_position(entry)
        succeeded = place is not None and place.writer in newest and newest[place.writer] > place.place
        if entry.file.size == position and (succeeded or self.format.stream_rules.is_complete(self.view)):
            return True
        return time.time() - entry.changed > self.options.finishedafter

    def _find_newest(self, entries: dict[str, FileSnapshot]) -> dict[Hashable, Any]:
        """Return the place of each writer's newest file, of those that an earlier look has found.

        Files are looked at one after the other: only of those that are looked at again is it certain that nothing was
        written to them before their successor was begun.
        """
        newest: dict[Hashable, Any] = {}
        for entry in entries.values():
            place = self.writer_position(entry)
            if place is not None and entry.first < self.listing.number:
                newest[place.writer] = max(newest.get(place.writer, place.place), place.place)
        return newest


def _mention_added(contents: Contents, schema: pa.Schema, added: set[str]) -> None:
    """Log the columns of files that a stream does not have, each once; those that were logged are in `added`."""
    names = [name for name in find_view_schema(contents).names if name not in schema.names and name not in added]
    if names:
        added.update(names)
        logger.warning(
            "%s: left out: column%s %s, which the stream did not begin with; one that starts from where it has stopped"
            " has the columns that it is asked for then",
            describe_files(contents),
            "s" if len(names) > 1 else "",
            ", ".join(map(repr, names)),
        )


class _Intake:
    """Choice of what the next micro-batch takes: files in turn, each as far as it is read within the limits."""

    def __init__(self, follower: Files, places: Mapping[str, ReadPosition], *, limited: bool) -> None:
        self._follower = follower
        self._places = places
        options = follower.options
        self._files = options.maxfilespertrigger if limited else None
        self._bytes: int | None = options.maxbytespertrigger if limited else None
        self._rows = options.maxrowspertrigger if limited else None
        self._reached: dict[str, int] = {}
        self._full = False
        self._counting: tuple[Contents, BoundScan] | None = None

    def take(self, names: Sequence[str], entries: dict[str, FileSnapshot]) -> dict[str, int]:
        """Return positions to read up to, of those files that have something new."""
        for chunk in self._split_chunks(self._order_names(names, entries)):
            for names_of_one, opened in self._open_files(chunk, entries):
                files = {file.path for file in opened.contents.files}
                for name in names_of_one:
                    if entries[name].file.path not in files:
                        self._follower.disown(name, entries[name], None)
                        continue
                    self._take_one(name, entries[name], opened)
                    if self._full:
                        return self._reached
        return self._reached

    def _open_files(
        self, names: Sequence[str], entries: dict[str, FileSnapshot]
    ) -> Iterator[tuple[Sequence[str], OpenFiles]]:
        """Yield files as one dataset; one by one where a foreign one is among them."""
        try:
            yield (
                names,
                self._follower.open(self._follower.add_group_members([entries[name] for name in names], entries)),
            )
            return
        except FormatError:
            if len(names) == 1 and not self._follower.may_be_foreign(names[0], entries[names[0]]):
                raise
        for name in names:
            try:
                opened = self._follower.open(self._follower.add_group_members([entries[name]], entries))
            except FormatError as error:
                if not self._follower.may_be_foreign(name, entries[name]):
                    raise
                self._follower.disown(name, entries[name], error)
                continue
            yield [name], opened

    def _order_names(self, names: Sequence[str], entries: dict[str, FileSnapshot]) -> list[str]:
        """Return files by how long their writers waited, those of a writer in the order of writing."""
        groups = {name: self._follower.group(name, entries[name]) for name in names}
        eldest: dict[Hashable, str] = {}
        for name in sorted(names, key=make_natural_key):
            eldest.setdefault(groups[name][0], name)

        def make_sort_key(name: str) -> tuple[Any, ...]:
            writer, place = groups[name]
            return self._follower.turn(writer), make_natural_key(eldest[writer]), place, make_natural_key(name)

        return sorted(names, key=make_sort_key)

    @staticmethod
    def _split_chunks(names: list[str]) -> Iterator[list[str]]:
        # The first few by themselves: the limits may leave room for no more. Then ever more at a time, for some formats
        # list the whole directory whenever they open files of it.
        start, size = 0, 8
        while start < len(names):
            yield names[start : start + size]
            start += size
            size = max(_FILES_AT_ONCE, start)

    def _take_one(self, name: str, entry: FileSnapshot, opened: OpenFiles) -> None:
        place = self._places.get(name, ReadPosition(0))
        committed_end = self._follower.find_committed_end(name, entry)
        if committed_end is None and place.position:
            check_proof(entry.file, place.position, place.proof, self._follower.storage)
        end = self._find_read_end(name, entry, opened, place.position, committed_end)
        if end > place.position:
            self._reached[name] = end
            self._full = self._full or (self._files is not None and len(self._reached) >= self._files)

    def _find_read_end(
        self, name: str, entry: FileSnapshot, opened: OpenFiles, position: int, committed_end: int | None
    ) -> int:
        """Return the offset that a file is read to now: its committed end, or less where the limits are reached."""
        is_complete = self._follower.format.stream_rules.is_complete(self._follower.view)
        target = entry.file.size
        if self._bytes is not None and not is_complete:
            target = min(target, position + self._bytes)
        end = (
            committed_end
            if committed_end is not None and committed_end <= target
            else self._advance(name, entry, opened, position, target)
        )
        if (
            end > position
            and self._bytes is not None
            and is_complete
            and self._reached
            and end - position > self._bytes
        ):
            self._full = True
            return position
        if end > position and self._rows is not None:
            end = self._cut_at_rows(name, entry, opened, position, end, is_complete=is_complete)
        if end > position and self._bytes is not None:
            self._bytes = max(0, self._bytes - (end - position))
            self._full = self._full or not self._bytes or target < entry.file.size
        return end

    def _advance(self, name: str, entry: FileSnapshot, opened: OpenFiles, position: int, target: int) -> int:
        """Return the committed end of the file if it ended at `target`, or later if nothing complete ends there."""
        request, size = opened.request, entry.file.size
        contents = require_followable(opened.contents)
        while target < size:
            end = contents.find_committed_end(request, replace(entry.file, size=target), position)
            if end > position:
                return end
            if self._reached:
                self._full = True
                return position
            target = min(size, position + 2 * (target - position))
        end = (
            contents.find_committed_end(request, entry.file, position)
            if position
            else find_whole_end(opened.contents, request, entry.file)
        )
        self._follower.set_committed_end(name, entry, end)
        return end

    def _cut_at_rows(
        self, name: str, entry: FileSnapshot, opened: OpenFiles, position: int, end: int, *, is_complete: bool
    ) -> int:
        """Return the last position up to `end` for whose rows there is room."""
        room = self._rows or 0
        cut = None
        for offsets in self._read_offsets(opened, Range(entry.file, position, end)):
            if offsets.num_rows > room:
                cut = int(offsets.column(0)[room].as_py())
                break
            room -= offsets.num_rows
        if cut is None:
            self._rows = room
            self._full = self._full or not room
            return end
        self._full = True
        if is_complete or cut <= position:
            return position if self._reached else end
        return min(end, self._advance(name, entry, opened, position, cut))

    def _read_offsets(self, opened: OpenFiles, requested: Range) -> Iterator[pa.RecordBatch]:
        """Yield where the rows of a range begin."""
        contents, request = opened
        if self._counting is None or self._counting[0] is not contents:
            scan = replace(request.scan, columns=(OFFSET_COLUMN,), filters=(), on_damage="skip")
            self._counting = contents, bind_scan(contents, scan)
        for fragment in require_followable(contents).list_fragments(self._counting[1], [requested]):
            yield from fragment.to_batches(Findings("skip"))
