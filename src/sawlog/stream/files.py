"""The files of a stream: what they are called, whose they are, and how far they can be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sawlog.format.contract import BoundScan, Contents, Format, WriterPosition
from sawlog.format.damage import describe_skipped
from sawlog.format.recognition import explain_unselected
from sawlog.format.scan import Scan
from sawlog.storage import Storage
from sawlog.stream.limits import StreamOptions
from sawlog.stream.listing import FileSnapshot, Listing

logger = logging.getLogger("sawlog")


class OpenFiles(NamedTuple):
    """Files of a stream that were opened, and what is wanted of them."""

    contents: Contents
    request: BoundScan


@dataclass(slots=True)
class _CommittedEnd:
    """Position up to which a file could be read when it had a stamp."""

    stamp: tuple[Any, ...]
    position: int


@dataclass
class Files:
    """State of a stream's files.

    Args:
        paths: What the stream reads.
        storage: Where that is.
        format: Of the files.
        view: Of the stream.
        options: Limits, and when files are finished.
        open: Opens some of the files, with the columns of the stream.
        foreign: Paths of files that there are but do not belong to the stream.
        schema: The columns of the view, for the offsets; see `Offset.schema`.
        table: Which table the stream is of, as far as that is known before any offset.
        begun_names: Names of the files that have been read from.
    """

    paths: Sequence[str]
    storage: Storage
    format: Format
    view: str
    options: StreamOptions
    open: Callable[[Sequence[FileSnapshot]], OpenFiles]
    foreign: Iterable[str] = ()
    schema: str | None = None
    table: str | None = None
    begun_names: Collection[str] = ()
    _committed_ends: dict[str, _CommittedEnd] = field(default_factory=dict)
    _foreign: dict[str, tuple[Any, ...] | None] = field(default_factory=dict)
    _positions: dict[str, WriterPosition | None] = field(default_factory=dict)
    _last: dict[Hashable, int] = field(default_factory=dict)
    _disowned_names: set[str] = field(default_factory=set)
    _mentions: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.root = find_root(self.paths)
        self.listing = Listing(self.paths, self.storage, self.make_name)
        self._foreign = {self.make_name(path): None for path in self.foreign}
        self._mentions = set(self._foreign)

    def add_group_members(
        self, taken_entries: Sequence[FileSnapshot], entries: dict[str, FileSnapshot]
    ) -> list[FileSnapshot]:
        """Return files, and those that have to be looked at with them."""
        groups = {
            group
            for entry in taken_entries
            if (group := self.format.directory_layout.judged_together(entry.file)) is not None
        }
        singles = [entry for entry in taken_entries if self.format.directory_layout.judged_together(entry.file) is None]
        if not groups:
            return singles
        return singles + [
            entry for entry in entries.values() if self.format.directory_layout.judged_together(entry.file) in groups
        ]

    def find_committed_end(self, name: str, entry: FileSnapshot) -> int | None:
        """Return how far a file can be read, where that is known."""
        committed = self._committed_ends.get(name)
        return committed.position if committed is not None and committed.stamp == entry.stamp else None

    def forget_committed_end(self, name: str) -> int | None:
        """Forget how far a file could be read, and return it; `None` where that was not known."""
        committed = self._committed_ends.pop(name, None)
        return committed.position if committed is not None else None

    def set_committed_end(self, name: str, entry: FileSnapshot, position: int) -> None:
        """Keep how far a file can be read."""
        self._committed_ends[name] = _CommittedEnd(entry.stamp, position)

    def may_be_foreign(self, name: str, entry: FileSnapshot) -> bool:
        """Return whether a file that cannot be opened may be of others: nothing was read, and its name says nothing."""
        return name not in self.begun_names and self.writer_position(entry) is None

    def disown(self, name: str, entry: FileSnapshot, error: Exception | None) -> None:
        """Leave a file out of the stream, as long as it stays what it is."""
        if error is not None:
            logger.warning("%s: left out of the stream until it changes: %s", entry.file.path, error)
        self._foreign[name] = entry.stamp

    def is_member(self, name: str, entry: FileSnapshot) -> bool:
        """Return whether a file belongs to the stream, as far as its name says."""
        if name in self._foreign:
            stamp = self._foreign[name]
            if stamp is None:
                self._foreign[name] = entry.stamp
            if stamp in (None, entry.stamp):
                return False
            del self._foreign[name]
        if self.format.select([entry.file], self.view) and self.format.stream_rules.is_followed(entry.file, self.view):
            table = self.format.directory_layout.table_name(entry.file)
            self.table = self.table or table
            if table in (None, self.table):
                return True
            if table not in self._disowned_names:
                self._disowned_names.add(table)
                logger.warning(
                    "%s: a log of the table %s: the stream is of %s, and leaves logs of other tables out",
                    entry.file.path,
                    table,
                    self.table,
                )
        elif name not in self._mentions:
            self._mentions.add(name)
            self._mention(entry)
        self._foreign[name] = entry.stamp
        return False

    def _mention(self, entry: FileSnapshot) -> None:
        """Log that a file which has appeared is of another dataset, once for each command that reads such files."""
        skipped = explain_unselected(
            self.format, (), [entry.file], Scan(self.view, storage=self.storage, roots=tuple(self.paths))
        )
        unmentioned = [file for file in skipped if file.command and file.command not in self._mentions]
        self._mentions.update(file.command for file in unmentioned)
        for remark in describe_skipped(unmentioned):
            logger.warning("%s", remark)

    def turn(self, group: Hashable) -> int:
        """Return when a writer was last read from; those that waited longest come first."""
        return self._last.get(group, 0)

    def group(self, name: str, entry: FileSnapshot) -> tuple[Hashable, Any]:
        """Return the writer of a file, and the file's place among that writer's."""
        place = self.writer_position(entry)
        return (name, 0) if place is None else (place.writer, place.place)

    def writer_position(self, entry: FileSnapshot) -> WriterPosition | None:
        """Return the place of a file among its writer's."""
        path = entry.file.path
        if path not in self._positions:
            self._positions[path] = self.format.stream_rules.writer_position(entry.file)
        return self._positions[path]

    def make_name(self, path: str) -> str:
        """Return the stream's name of the file at a path."""
        inner = path.removeprefix(self.root) if self.root else path
        return self.format.stream_rules.stream_name(inner or path)


def find_root(paths: Sequence[str]) -> str:
    """Return the root that the names of a stream's files leave out; empty where there are several roots."""
    (*other_paths, root) = paths
    return "" if other_paths else root.rstrip("/") + "/"
