"""Trees of locations: where they go, which of them count, and how they come and go without a trace of half of one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from sawlog.deephaven.ingest.records import MAX_RECORD_BYTES, RECORD_NAME, Partition, PositionRecord, Progress
from sawlog.deephaven.table import layout
from sawlog.errors import FormatError, OptionError, SawlogError
from sawlog.storage import PathLike, Storage, is_remote, normalize
from sawlog.storage.directories import is_directory_entry
from sawlog.storage.staging import lock_file, make_staged_name, sync_directory

_SEQUENCE = re.compile(r"(.+)~(\d{6,})")
"""The second and later locations of a partition: a writer never appends to one that is published."""
_LOCK_NAME = ".sawlog.lock"
_BOARD = ".sawlog-board-"


@dataclass(frozen=True, slots=True)
class TreeLocation:
    """A location of a tree.

    Attributes:
        path: Its directory.
        partition: Its table and partitions; the internal one as its directory is called.
        record: Where its rows came from; None when sawlog did not import it.
    """

    path: str
    partition: Partition
    record: PositionRecord | None = None


def resolve_root(root: PathLike) -> str:
    """Return the root of a tree as an absolute path.

    Raises:
        OptionError: On an object store, where no directory can be renamed.
    """
    name = normalize(root)
    if is_remote(name):
        raise OptionError(f"{name}: the tree needs a file system, local or shared: object stores rename no directories")
    return os.path.abspath(name)


def require_root(root: PathLike) -> str:
    """Return the root of a tree that is there, as an absolute path.

    Raises:
        OptionError: When it is not, or on an object store.
    """
    place = resolve_root(root)
    if not os.path.isdir(place):
        raise OptionError(f"{root}: no such directory")
    return place


def require_table(root: PathLike, namespace: str, table: str, date: str) -> IntradayTable:
    """Return the intraday table whose rows of a date are to be merged.

    Raises:
        FormatError: When it is not there.
    """
    check_part(date, "date")
    tree = IntradayTable(resolve_root(root), namespace, table)
    if not os.path.isdir(tree.directory):  # its lock would make it
        raise FormatError(f"{tree.directory}: there are no rows of {date} to merge")
    return tree


def check_part(part: str, description: str) -> str:
    """Check that a name can be that of a directory, and be found again.

    Raises:
        OptionError: When it is empty, hidden, or leads elsewhere.
    """
    if not part or part[0] in "._" or "/" in part or "\\" in part or not part.isprintable():
        raise OptionError(
            f"{description} {part!r} cannot be a directory of the tree: expected a name without / that is shown"
        )
    return part


class IntradayTable:
    """A table of an intraday tree: `ROOT/Intraday/NAMESPACE/TABLE/INTERNAL/COLUMN/TABLE`.

    A partition's first location has the name of the internal partition; what is imported later goes to
    `INTERNAL~000001` and so on, for a location is never changed.

    Attributes:
        clean: Whether nothing can have been left half done since it was tidied.
    """

    def __init__(self, root: str, namespace: str, table: str) -> None:
        self.root = root
        self.namespace = check_part(namespace, "namespace")
        self.table = check_part(table, "table")
        self.directory = os.path.join(root, layout.INTRADAY, namespace, table)
        self.clean = False
        self._locations_by_path: dict[str, tuple[tuple[int, int], TreeLocation]] = {}

    def build_path(self, partition: Partition, sequence: int) -> str:
        """Return the path of a location.

        Raises:
            OptionError: For partitions whose names cannot be directories, or look like those of later locations.
        """
        path = self._build_path(partition, sequence)
        check_inside(path, self.root)
        return path

    def _build_path(self, partition: Partition, sequence: int) -> str:
        internal = check_part(partition.internal_partition, "internal partition")
        if _SEQUENCE.fullmatch(internal):
            raise OptionError(
                f"internal partition {internal!r}: names that end like ~000001 are those of later imports"
            )
        name = f"{internal}~{sequence:06d}" if sequence else internal
        column = check_part(partition.column_partition, "column partition")
        return os.path.join(self.directory, name, column, self.table)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other import and merge of the table out; the system frees the lock of a process that is killed.

        Raises:
            SawlogError: When another one is at work.
        """
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, _LOCK_NAME)
        with open(path, "w", encoding="utf-8") as file:
            if not lock_file(file.fileno(), waits=False):
                raise SawlogError(f"{self.directory}: another import or merge of this table is at work")
            yield

    def make_board(self) -> str:
        """Return a new place for messages between tasks while they run; `tidy` deletes what was left."""
        return os.path.join(self.directory, f"{_BOARD}{uuid.uuid4().hex[:12]}")

    def list_locations(self, column_partition: str | None = None) -> list[TreeLocation]:
        """Return locations that are published: by column partition, internal partition, and place in it.

        Raises:
            FormatError: When a position record is not readable.
        """
        locations = []
        for internal in list_directories(self.directory, self.root):
            for column in list_directories(os.path.join(self.directory, internal), self.root):
                if column_partition in (None, column):
                    location = self._find_location(internal, column)
                    locations += [] if location is None else [location]
        return sorted(locations, key=_order)

    def _find_location(self, internal: str, column: str) -> TreeLocation | None:
        """Return the location of two partitions; its record is read once."""
        path = os.path.join(self.directory, internal, column, self.table)
        try:
            state = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        key = state.st_ino, state.st_mtime_ns
        known_location = self._locations_by_path.get(path)
        if known_location is not None and known_location[0] == key:
            return known_location[1]
        if not os.path.isdir(path):
            return None
        partition = Partition(self.namespace, self.table, internal, column)
        location = TreeLocation(path, partition, self._read_record(path, partition))
        self._locations_by_path[path] = key, location
        return location

    def find_progress(self, partition: Partition, locations: list[TreeLocation]) -> Progress:
        """Return the progress of a partition's import, from the locations of the table.

        Raises:
            SawlogError: When there is a location in its place that no import made.
        """
        path = self.build_path(partition, 0)
        if any(location.path == path and location.record is None for location in locations):
            raise SawlogError(f"{path}: a location is there that no import of sawlog made; choose another root")
        return Progress.of(location.record for location in self.of(partition, locations) if location.record is not None)

    def of(self, partition: Partition, locations: list[TreeLocation]) -> list[TreeLocation]:
        """Return the locations that the import of a partition made, in order."""
        return [
            location for location in locations if location.record is not None and location.record.partition == partition
        ]

    def list_void_locations(self, locations: list[TreeLocation]) -> list[TreeLocation]:
        """Return locations that a truncating one has made void, the oldest first."""
        begins: dict[Partition, int] = {}
        for record in (location.record for location in locations):
            if record is not None and record.truncates:
                begins[record.partition] = max(record.sequence, begins.get(record.partition, 0))
        return [
            location
            for location in locations
            if location.record is not None and location.record.sequence < begins.get(location.record.partition, 0)
        ]

    def tidy(self) -> list[TreeLocation]:
        """Bring to an end what a killed import has left: void locations, staged and half-deleted ones.

        Returns:
            The locations that count.
        """
        locations = self.list_locations()
        void = self.list_void_locations(locations)
        for location in void:
            remove_location(location.path)
        if self.clean:
            return [location for location in locations if location not in void]
        sweep(self.directory)
        for name in os.listdir(self.directory):
            if name.startswith(_BOARD):
                shutil.rmtree(os.path.join(self.directory, name), ignore_errors=True)
        for internal in list_directories(self.directory, self.root):
            for column in list_directories(os.path.join(self.directory, internal), self.root):
                remove_empty(os.path.join(self.directory, internal, column))
        return [location for location in locations if location not in void]

    def _read_record(self, path: str, partition: Partition) -> PositionRecord | None:
        record_path = os.path.join(path, RECORD_NAME)
        data = read_small(record_path)
        if data is None:
            return None
        record = PositionRecord.from_json(data, record_path)
        if record.partition.table != partition.table or self._build_path(record.partition, record.sequence) != path:
            raise FormatError(f"{record_path}: the record is that of {record.partition}, location {record.sequence}")
        return record


def read_small(path: str) -> bytes | None:
    """Return a record of ours; None when there is none.

    Raises:
        FormatError: When it is larger than any.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_RECORD_BYTES:
        raise FormatError(f"{path}: more than {MAX_RECORD_BYTES} bytes; records are small")
    return data


def remove_location(path: str) -> None:
    """Delete a location: it is gone in one step, and its bytes after that. So are directories that it leaves empty."""
    column = os.path.dirname(path)
    unlinked_path = make_staged_name(path, "")
    os.rename(path, unlinked_path)
    sync_directory(column)
    Storage().directories.remove(unlinked_path)
    remove_empty(column)


def sweep(directory: str, marker: str = "") -> None:
    """Delete what was staged, or half deleted, under a directory; where orphaned workers still write, the next time."""
    storage = Storage()
    for path in storage.directories.find_staged_paths(directory, marker):
        with contextlib.suppress(OSError):
            storage.directories.remove(path)


def remove_empty(column: str) -> None:
    """Remove the directory of a column partition and that of its internal partition, when nothing is in them."""
    with contextlib.suppress(OSError):
        os.rmdir(column)
        os.rmdir(os.path.dirname(column))


def _order(location: TreeLocation) -> tuple[str, str, int]:
    partition, record = location.partition, location.record
    if record is None:
        return partition.column_partition, partition.internal_partition, 0
    return partition.column_partition, record.partition.internal_partition, record.sequence


def list_directories(path: str, root: str) -> list[str]:
    """Return names of the directories in a directory, hidden ones left out.

    Raises:
        SawlogError: When one of them is a link that leads out of the root, where no reader would follow it.
    """
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as entries:
        directories = [entry for entry in entries if entry.name[0] not in "._" and is_directory_entry(entry)]
    for entry in directories:
        if entry.is_symlink():
            check_inside(entry.path, root)
    return sorted(entry.name for entry in directories)


def check_inside(path: str, root: str) -> None:
    """Check that what is read or written at a path is below the root, wherever links lead.

    Raises:
        SawlogError: When it does not.
    """
    real, top = os.path.realpath(path), os.path.realpath(root)
    if os.path.commonpath([real, top]) != top:
        raise SawlogError(f"{path}: a link leads to {real}, outside of {root}, where no reader follows it")
