"""Folders: the datasets that a path holds, each opened by itself, so that a verdict is about the whole path."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sawlog.dataset.dataset import Dataset
from sawlog.dataset.index import with_index
from sawlog.dataset.opening import (
    GENERAL,
    DatasetFiles,
    find,
    list_input_names,
    make_storage,
    open_found,
    resolve_threads,
)
from sawlog.errors import FormatError, InternalError, OptionError, SawlogError, suggest_name
from sawlog.format.capabilities import list_tables
from sawlog.format.contract import Contents, Format, list_view_names
from sawlog.format.damage import Report, Skipped
from sawlog.format.options import list_option_names
from sawlog.format.planning import hold_full_collections
from sawlog.format.recognition import Part, find_named_parts, find_parts, find_unread, load_formats
from sawlog.format.scan import NamedTable
from sawlog.storage import File, Storage
from sawlog.storage.flight import AHEAD_BYTES
from sawlog.storage.inputs import Input
from sawlog.storage.names import is_remote
from sawlog.storage.workers import map_ordered, wrap_single_step

_MAX_REMOTE_PARTS = 32
"""Remote datasets that are worked on at a time, where they are small: they wait for the network."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Folder:
    """The datasets of a path.

    Attributes:
        parts: Its datasets; a single one stands for the path itself, and is opened as `sawlog.open` opens that.
        skipped: Files that are read as none of them.
        threads: How many of its datasets are worked on at a time.
    """

    parts: list[FolderPart]
    skipped: list[Skipped] = field(default_factory=list)
    threads: int = 1

    @property
    def is_single(self) -> bool:
        """Whether the path is one dataset."""
        return len(self.parts) == 1

    @property
    def size(self) -> int:
        """Bytes of its datasets."""
        return sum(part.size for part in self.parts)

    def map_parts(
        self, work: Callable[[FolderPart], Result], threads: int | None = None
    ) -> Iterator[tuple[FolderPart, Result | Exception]]:
        """Work on several datasets at a time; yields each, in order, with the result, or the error that it ended with.

        Args:
            work: Makes a result of a dataset.
            threads: How many at a time, if not as many as the folder has threads.

        Raises:
            SawlogError: When the path is one dataset, and cannot be read, and for faults of sawlog's own.
        """
        threads = self.threads if threads is None else threads
        yield from map_items(self.parts, work, threads, is_single=self.is_single)


def map_items(
    items: Sequence[Item], work: Callable[[Item], Result], threads: int, *, is_single: bool = False
) -> Iterator[tuple[Item, Result | Exception]]:
    """Work on several items at a time; yields each, in order, with the result, or the error that it ended with.

    Raises:
        SawlogError: For a single item that cannot be read, and for faults of sawlog's own.
    """

    def attempt(item: Item) -> Result | Exception:
        try:
            return work(item)
        except (SawlogError, OSError) as error:
            if is_single or isinstance(error, InternalError):
                raise
            return error

    yield from map_ordered(items, wrap_single_step(attempt), threads)


@dataclass(frozen=True, slots=True)
class FolderPart:
    """Dataset of a path that holds several.

    Attributes:
        path: Where it is, as a command names it.
        home: The directory that it is in, or its file.
        dataset_files: Its files and its format.
        size: Bytes of its files.
        options: Those of the options that its format has.
        open: Opens it, in another view or with more options if there are any; raises what `sawlog.open` raises.
    """

    path: str
    home: str
    dataset_files: DatasetFiles
    size: int
    options: Mapping[str, Any]
    open: Callable[..., Dataset]

    @property
    def title(self) -> str:
        """Title of its format."""
        return self.dataset_files.format.title

    def open_tables(self, dataset: Dataset | None = None) -> dict[str, Dataset]:
        """Return a dataset for each of its tables, by name; itself, without a name, where it is one table.

        Raises:
            SawlogError: When it, or one of its tables, cannot be opened.
        """
        dataset = dataset or self.open()
        tables = list_distinct_tables(dataset.contents)
        is_chosen = any(table.options.keys() <= self.options.keys() for table in tables)
        if len(tables) < 2 or is_chosen or dataset.scan.view != next(iter(dataset.format.views)):
            return {"": dataset}
        return {table.title: self.open(**table.options) for table in tables}


def list_distinct_tables(contents: Contents) -> list[NamedTable]:
    """Return the tables that options can name, each once, by the first of its names."""
    named = {repr(table.options): table for table in reversed(list_tables(contents))}
    return list(reversed(named.values()))


def open_folder(
    path: Input | Sequence[Input], *, format: str | None = None, view: str = "rows", **arguments: Any
) -> Folder:
    """Find the datasets of a path; arguments are those of `sawlog.open`.

    Raises:
        FormatError: When no format knows any of it.
        OptionError: For an option that no part has.
    """
    storage = make_storage(arguments.pop("storage_options", None), arguments.pop("memory_map", False))
    paths = list_input_names(path, storage)
    if index := arguments.pop("index", False):
        storage = with_index(storage, index, paths)
    general = {name: arguments.pop(name) for name in GENERAL if name in arguments}
    general |= {"storage_options": storage, "is_format_named": format is not None}
    with hold_full_collections():
        files = storage.find(paths)
        selection, all_parts, skipped = _split_into_parts(files, storage, paths, format, view, arguments)
    threads = resolve_threads(general.get("use_threads", True))
    if selection is not None and len(all_parts) < 2:
        return Folder([make_folder_part(selection, paths, general, arguments, home=all_parts[0].path)], threads=threads)
    names = {name for part in all_parts for name in list_option_names(_require_format(part).read_options)}
    for name in arguments.keys() - names:
        raise OptionError(
            f"unknown option {name!r}{suggest_name(name, names)}; options of its parts: {', '.join(sorted(names))}"
        )
    carriers = Counter(
        name
        for part_format in {_require_format(part) for part in all_parts}
        for name in list_option_names(part_format.read_options)
    )
    shared = frozenset(name for name in arguments if carriers[name] > 1)
    opened = []
    for part in all_parts:
        part_format = _require_format(part)
        part_view = list_view_names(part_format).get(view, "rows")
        part_files = DatasetFiles(
            part_format, part_view, part_format.select(part.files, part_view) or part.files, part.other_files
        )
        part_options = {
            name: value for name, value in arguments.items() if name in list_option_names(part_format.read_options)
        }
        opened.append(make_folder_part(part_files, [part.path], general, part_options, shared))
    if general.get("use_threads", True) is True:
        threads = limit_threads(opened, threads)
    return Folder(opened, skipped, threads)


def limit_threads(datasets: Sequence[FolderPart | Part], threads: int) -> int:
    """Return how many datasets are worked on at a time: of remote ones as many as one read may keep ahead, whole."""
    largest = max((dataset.size for dataset in datasets), default=0)
    if not datasets or not is_remote(datasets[0].path):
        return threads
    return max(threads, min(_MAX_REMOTE_PARTS, AHEAD_BYTES // max(1, largest)))


def make_folder_part(
    selection: DatasetFiles,
    paths: Sequence[str],
    general: Mapping[str, Any],
    options: Mapping[str, Any],
    shared: frozenset[str] = frozenset(),
    home: str = "",
) -> FolderPart:
    """Return a part that opens with its options, without one for other formats that it has no use for itself."""

    def open_part(view: str = selection.view, **changes: Any) -> Dataset:
        part_options = {**options, **changes}
        view_files = selection._replace(view=view)
        try:
            with hold_full_collections():
                return open_found(view_files, paths, **general, **part_options)
        except OptionError as error:
            if error.inapplicable not in shared:
                raise
            fitting = {name: value for name, value in part_options.items() if name != error.inapplicable}
            return open_found(view_files, paths, **general, **fitting)

    return FolderPart(
        paths[0], home or paths[0], selection, sum(file.size for file in selection.files), options, open_part
    )


def _require_format(part: Part) -> Format:
    assert part.format is not None
    return part.format


def _split_into_parts(
    files: list[File], storage: Storage, paths: list[str], format: str | None, view: str, options: Mapping[str, Any]
) -> tuple[DatasetFiles | None, list[Part], list[Skipped]]:
    """Return the dataset that a read of the paths opens, all datasets below them by path, and files that are in none.

    Raises:
        FormatError: When the paths hold no dataset that can be read.
    """
    selection: DatasetFiles | None = None
    try:
        selection = find(paths, format, view, storage, files)
    except FormatError:
        other_parts = find_parts(files, storage) if format is None else []
        if sum(part.format is not None for part in other_parts) < (1 if view == "rows" else 2):
            raise
        primary: list[Part] = []
        skipped: list[Skipped] = []
    else:
        layout = selection.format.directory_layout
        primary = _find_homes(selection, paths, options)
        homes = {part.path for part in primary}
        near = [
            file
            for file in selection.unselected
            if not layout.is_directory or (layout.dataset_directory(file) or ".") in homes
        ]
        skipped = [entry for entry in find_unread(selection.format, near, view) if not entry.missed]
        explained = {entry.path for entry in skipped}
        remaining = [file for file in selection.unselected if file.path not in explained]
        other_parts = find_parts(remaining, storage) if remaining and (format is None or layout.is_directory) else []
        if format is not None:
            other_parts = [part for part in other_parts if part.format is selection.format]
        parts_by_home = {part.path: part for part in primary}
        for file in near:
            home = layout.dataset_directory(file) or "."
            if file.path in explained and home in parts_by_home:
                parts_by_home[home].other_files.append(file)
        skipped = [entry for entry in skipped if not layout.is_directory]
    for part in other_parts:
        if part.format is None:
            skipped += [Skipped(file.path, "of no known format", file.size) for file in part.files]
    other_parts = [part for part in other_parts if part.format is not None]
    return selection, sorted([*primary, *other_parts], key=lambda part: part.path), skipped


def _find_homes(selection: DatasetFiles, paths: list[str], options: Mapping[str, Any]) -> list[Part]:
    """Return the datasets of found files: directories, tables by the names of their files, or one of all files."""
    format = selection.format
    if not format.directory_layout.is_directory:
        named = {format.directory_layout.table_name(file) for file in selection.files}
        table_options = {name for file in selection.files for name in format.directory_layout.table_options(file)}
        if len(named) > 1 and table_options.isdisjoint(options):
            return find_named_parts(selection.files, load_formats().keys() - {format.name})
        homes = {format.directory_layout.dataset_directory(file) for file in selection.files}
        return [Part(homes.pop() or "." if len(homes) == 1 else paths[0], format, selection.files)]
    groups: dict[str, list[File]] = defaultdict(list)
    for file in selection.files:
        groups[format.directory_layout.dataset_directory(file)].append(file)
    return [Part(home or ".", format, group) for home, group in groups.items()]


def describe_missed_part(part: FolderPart, error: object, failure: str = "cannot be read") -> Skipped:
    """Return what is said of a part that ended with an error."""
    return Skipped(part.path, f"{part.title}, which {failure}: {error}", part.size, missed=True)


def report(
    folder: Folder, examine: Callable[[FolderPart], Report], failure: str = "cannot be read", threads: int | None = None
) -> Report:
    """Make a report of each part, and of all of them one; a part that cannot be read is missed, as `failure` says.

    Raises:
        SawlogError: When the path is one dataset, and cannot be read.
    """
    if folder.is_single:
        return examine(folder.parts[0])
    combined = Report("", skipped=list(folder.skipped))
    for part, outcome in folder.map_parts(examine, threads):
        if isinstance(outcome, Exception):
            combined.skipped.append(describe_missed_part(part, outcome, failure))
            continue
        outcome.path = part.path
        combined.parts.append(outcome)
        combined.files += outcome.files
        combined.skipped += outcome.skipped
        combined.remarks += outcome.remarks
        combined.unsupported_in_copy += outcome.unsupported_in_copy
    combined.format = ", ".join(dict.fromkeys(part.format for part in combined.parts))
    combined.rescue = "; ".join(part.rescue for part in combined.parts if part.rescue)
    return combined
