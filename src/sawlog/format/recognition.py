"""The formats that there are, and what each of them reads of a path."""

from __future__ import annotations

import glob
import itertools
import posixpath
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from sawlog.errors import FormatError, OptionError, suggest_name
from sawlog.format.contract import Format, Match, list_view_names, probe
from sawlog.format.damage import Skipped
from sawlog.format.lazy import find_entry_points
from sawlog.format.scan import Scan
from sawlog.guard import wrap_errors
from sawlog.storage import File, Storage, map_files, normalize

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "sawlog.formats"
_MAX_PROBED_FILES = 256
"""How many files that no format claims by their names are looked into."""


@cache
def load_formats() -> dict[str, Format]:
    """Return all formats, by name, from the entry points that are installed."""
    return {name: load(point) for name, point in find_entry_points(ENTRY_POINT_GROUP).items()}


@cache
def get_format(name: str) -> Format:
    """Return the format of that name.

    Raises:
        OptionError: When there is none.
    """
    registered = find_entry_points(ENTRY_POINT_GROUP)
    if name not in registered:
        raise OptionError(
            f"unknown format {name!r}{suggest_name(name, registered)}; known formats: {', '.join(registered)}"
        )
    return load(registered[name])


@cache
def load(point: EntryPoint) -> Format:
    """Return one format, without loading the others: each of Spark's Python processes starts with this."""
    format: Format = point.load()()
    return format


@dataclass(frozen=True, slots=True)
class Part:
    """Files of a path that one format reads together.

    Attributes:
        path: The directory that they are in, or the file; a pattern where a directory holds several tables.
        format: The format; `None` for files that no format knows.
        files: The files.
        other_files: Files next to them that hold none of the rows, but belong to the same system.
        mixed: Whether other parts are below the same path, so that the format has to be named.
        inputs: What is opened to read its files and no others: the path, or where that reads files of other parts, too,
            a pattern or the files.
    """

    path: str
    format: Format | None
    files: list[File]
    other_files: list[File] = field(default_factory=list)
    mixed: bool = False
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.inputs:
            object.__setattr__(self, "inputs", (self.path,))

    @property
    def size(self) -> int:
        """Bytes of the files that are read."""
        return sum(file.size for file in self.files)

    @property
    def title(self) -> str:
        """Title of the format."""
        return "unknown" if self.format is None else self.format.title

    def make_command(self, options: Mapping[str, Any]) -> str:
        """Return the command that shows the part's rows, read with these options; empty where no format is known."""
        if self.format is None:
            return ""
        named = f" --format {self.format.name}" if self.mixed else ""
        flags = "".join(f" -o {shlex.quote(f'{name}={value}')}" for name, value in options.items())
        return f"sawlog cat {' '.join(map(shlex.quote, self.inputs))}{named}{flags}"

    def make_commands(self) -> dict[str, str]:
        """Return, by the path of each of its files, the command that shows the rows of that file."""
        if self.format is None:
            return {}
        options = {file.path: self.format.directory_layout.table_options(file) for file in self.files}
        several = len({repr(table_options) for table_options in options.values() if table_options}) > 1
        return {path: self.make_command(table_options if several else {}) for path, table_options in options.items()}


def recognize(files: Sequence[File], storage: Storage, paths: Sequence[str], view: str = "rows") -> Format:
    """Return the format that knows the files best, of those that have the view.

    Of equals, the format that explains most bytes.

    A path that is the directory of a dataset is of that dataset's format, even if others are below it.

    Raises:
        FormatError: When no format knows them, or several know them equally well.
    """
    location = ", ".join(paths)
    having = {
        name: candidate_format
        for name, candidate_format in load_formats().items()
        if view in list_view_names(candidate_format)
    } or load_formats()
    scores: dict[str, tuple[Match, int, Match]] = {}
    reading: set[str] = set()
    named: set[str] = set()
    for name, candidate in having.items():
        # What the view reads says it, where nothing is there that rows are read of: the MANIFEST of a database, say.
        view_names = dict.fromkeys(["rows", list_view_names(candidate).get(view, view)])
        selected = next(filter(None, (candidate.select(files, view_name) for view_name in view_names)), [])
        candidate_files = selected or (files if len(files) == 1 else [])
        with wrap_errors(f"{location}: {name} could not say whether the path is its own; name the format"):
            match = candidate.recognize(candidate_files, storage) if candidate_files else Match.NO
        explained = (
            _select_below(files, {candidate.directory_layout.dataset_directory(file) for file in candidate_files})
            if match is Match.TREE
            else candidate_files
        )
        if selected and match is not Match.NO:
            reading.add(name)
        if match >= Match.CONTENT and find_named_homes(candidate, selected, paths):
            named.add(name)
        scores[name] = (min(match, Match.CONTENT), sum(file.size for file in explained), match)
    scores = {name: score for name, score in scores.items() if name in reading or not reading}
    included = {
        absorbed
        for name, score in scores.items()
        if score[0] is Match.CONTENT
        for absorbed in having[name].directory_layout.absorbs
    }
    ranked = {name: score for name, score in scores.items() if name not in included}
    ranked = {name: score for name, score in ranked.items() if name in named or not named}
    best = max(ranked.values(), default=(Match.NO, 0, Match.NO))
    if best[0] is Match.NO:
        head = probe(storage, files[0], 16).hex(" ") or "none, the file is empty"
        evidence = f"first bytes: {head}" if len(files) == 1 else f"{len(files)} files, none of a known kind"
        raise FormatError(f"{location}: not recognised ({evidence}); name one of {', '.join(scores)} as the format")
    names = [name for name, score in ranked.items() if score == best]
    if len(names) > 1:
        raise FormatError(f"{location}: could be {' or '.join(names)}; name the format")
    return load_formats()[names[0]]


def find_named_homes(format: Format, files: Sequence[File], paths: Sequence[str]) -> set[str]:
    """Return the paths that are directories of datasets; empty where any directory may hold files of one."""
    if not format.directory_layout.is_directory:
        return set()
    return {format.directory_layout.dataset_directory(file) for file in files} & {
        normalize(path).rstrip("/") for path in paths
    }


def _select_below(files: Sequence[File], directories: Collection[str]) -> list[File]:
    above = {"" if directory == "." else directory for directory in directories}
    return [file for file in files if not above.isdisjoint(_walk_up(file.directory))]


def find_unread(format: Format, files: Sequence[File], view: str) -> list[Skipped]:
    """Return why files that a format did not select are not read, as far as it knows: another view reads them."""
    unread = format.directory_layout.unread(files, view)
    explained = {skipped.path for skipped in unread}
    unexplained = [file for file in files if file.path not in explained]
    if not unexplained:
        return unread
    selected = {name: {file.path for file in format.select(unexplained, name)} for name in format.views if name != view}
    readers = {file: [repr(name) for name, paths in selected.items() if file.path in paths] for file in unexplained}
    by_views = [(file, f"read by view {' or '.join(views)}") for file, views in readers.items() if views]
    return [*(Skipped(file.path, reason, file.size) for file, reason in by_views), *unread]


def explain_unselected(format: Format, read: Sequence[File], unselected: Sequence[File], scan: Scan) -> list[Skipped]:
    """Return why files of a path are not read.

    Names say most. Up to 256 other parts are looked into, but where the user has named the format.

    Files of another dataset are missed: a user who opens a path that holds both may take one for all there is.
    """
    homes = (
        {format.directory_layout.dataset_directory(file) for file in read}
        if format.directory_layout.is_directory
        else set()
    )
    near = [file for file in unselected if not homes or format.directory_layout.dataset_directory(file) in homes]
    explained = {skipped.path: skipped for skipped in find_unread(format, near, scan.view)}
    if len(explained) == len(unselected):
        return list(explained.values())
    named = find_named_homes(format, read, scan.roots)
    other_parts = find_named_parts(unselected, () if format.directory_layout.is_directory else {format.name})
    if not scan.is_format_named:
        are_sure = map_files(lambda part: _is_recognised(part, scan.storage), other_parts[:_MAX_PROBED_FILES])
        other_parts = [*itertools.compress(other_parts, are_sure), *other_parts[_MAX_PROBED_FILES:]]
    for skipped in _take_neighbours(other_parts, unselected):
        explained.setdefault(skipped.path, skipped)
    *other_parts, _ = _with_mixed([*other_parts, Part("", format, list(read))])
    commands_by_path = {path: (part, command) for part in other_parts for path, command in part.make_commands().items()}
    for file in unselected:
        if file.path in explained:
            continue
        part, command = commands_by_path.get(file.path, (None, ""))
        if part is None or part.format is None:
            explained[file.path] = Skipped(file.path, f"not a {format.title}", file.size)
            continue
        separate = format.name not in part.format.directory_layout.absorbs
        # Who names the directory of a dataset does not mean the one in a directory inside.
        inside = bool(named) and file.directory not in homes
        missed = separate and not scan.is_format_named and not inside
        reason = f"read as {part.title} by: {command}"
        explained[file.path] = Skipped(file.path, reason, file.size, missed=missed, command=command if separate else "")
    return [explained[file.path] for file in unselected]


def find_parts(files: Sequence[File], storage: Storage) -> list[Part]:
    """Return the parts of a path, in the order of their paths; every file is in exactly one.

    Names say most, unless the content of files is that of no such file; up to 256 files whose names say nothing, or
    too much, are looked into.
    """
    named = find_named_parts([file for file in files if not file.explicit])
    located = list(itertools.compress(named, map_files(lambda part: _is_recognised(part, storage), named)))
    claimed = {file.path for part in located for file in part.files}
    claimed.update(skipped.path for skipped in _take_neighbours(located, files))
    unknown: dict[str, list[File]] = defaultdict(list)
    unclaimed = [file for file in files if file.path not in claimed]
    probed = [file for place, file in enumerate(unclaimed) if place < _MAX_PROBED_FILES or file.explicit]
    formats_by_file = dict(zip(probed, map_files(lambda file: _recognize_file(file, storage), probed), strict=True))
    for file in unclaimed:
        if (format := formats_by_file.get(file)) is None:
            unknown[file.directory].append(file)
        else:
            located.append(Part(file.path, format, [file]))
    located += [Part(directory, None, group) for directory, group in unknown.items()]
    return sorted(_with_mixed(located), key=lambda part: (part.path, part.format is None))


def _is_recognised(part: Part, storage: Storage) -> bool:
    return part.format is not None and part.format.recognize(part.files, storage) is not Match.NO


def _take_neighbours(located: Sequence[Part], files: Sequence[File]) -> Iterator[Skipped]:
    """Yield why files next to those of parts hold none of their rows, and enter them into the parts."""
    claimed = {file.path for part in located for file in part.files}
    unclaimed = [file for file in files if file.path not in claimed]
    homes: dict[str, dict[str, list[File]]] = {}  # by format, and by the directory of the dataset they would be of
    for part in located:
        assert part.format is not None
        layout, elsewhere = part.format.directory_layout, []
        is_first = part.format.name not in homes
        if is_first:
            by_home = homes[part.format.name] = defaultdict(list)
            for file in unclaimed:
                by_home[layout.dataset_directory(file)].append(file)
        near = [file for file in homes[part.format.name].get(part.path, ()) if file.path not in claimed]
        explained = {skipped.path: skipped for skipped in find_unread(part.format, near, "rows")}
        if is_first and not layout.is_directory:  # a system may keep more of its own elsewhere
            assigned = claimed | explained.keys()
            elsewhere = [file for file in unclaimed if file.path not in assigned]
            server_files = layout.unread(elsewhere, "rows")
            explained |= {skipped.path: skipped for skipped in server_files if not skipped.missed}
        part.other_files.extend(file for file in (*near, *elsewhere) if file.path in explained)
        claimed.update(explained)
        yield from explained.values()


def find_named_parts(files: Sequence[File], without: Collection[str] = ()) -> list[Part]:
    """Return the parts of a path as far as names say, each file in one at most."""
    located: list[Part] = []
    remaining = list(files)
    candidates = [candidate for name, candidate in load_formats().items() if name not in without]
    for format in sorted(candidates, key=lambda candidate: not candidate.directory_layout.absorbs):
        groups: dict[tuple[str, str | None], list[File]] = defaultdict(list)
        for file in format.select(remaining, "rows"):
            groups[format.directory_layout.dataset_directory(file), format.directory_layout.table_name(file)].append(
                file
            )
        several = Counter(home for home, _ in groups)
        for (home, table), group in groups.items():
            if selected := format.select(group, "rows"):
                path = home if table is None or several[home] == 1 else posixpath.join(home, f"{table}.*")
                located.append(Part(path or ".", format, selected))
        claimed = {file.path for part in located for file in part.files}
        remaining = [file for file in remaining if file.path not in claimed]
    return located


def _recognize_file(file: File, storage: Storage) -> Format | None:
    """Return the format of one file: one that the user named may be recognised by its name, others by their bytes."""
    named = replace(file, explicit=True)
    scores = {name: candidate.recognize([named], storage) for name, candidate in load_formats().items()}
    best = max(scores.values())
    names = [name for name, score in scores.items() if score is best]
    sure = best is not Match.NO and (file.explicit or best >= Match.CONTENT)
    return load_formats()[names[0]] if sure and len(names) == 1 else None


def _with_mixed(located: list[Part]) -> list[Part]:
    """Return the same parts, which know whether others, but for parts of their own, have files below their paths."""
    holders: dict[str, set[str]] = defaultdict(set)
    for part in located:
        directories = {file.directory for file in part.files} if part.format is not None else ()
        for above in {above or "." for directory in directories for above in _walk_up(directory)}:
            holders[above].add(part.format.name if part.format is not None else "")
    below: dict[str, list[File]] = defaultdict(list)
    for file in (file for part in located for file in part.files):
        for above in _walk_up(file.directory):
            below[above or "."].append(file)
    return [
        replace(
            part,
            mixed=bool(holders[part.path] - {part.format.name} - part.format.directory_layout.absorbs),
            inputs=_choose_inputs(part, part.format, below[part.path]),
        )
        if part.format is not None
        else part
        for part in located
    ]


def _choose_inputs(part: Part, format: Format, below: Sequence[File]) -> tuple[str, ...]:
    """Return what is opened to read the files of a part, and no others below its path."""
    layout = format.directory_layout
    part_paths = {file.path for file in part.files}
    is_loose = not layout.is_directory and all(
        (file.directory or ".") == part.path and layout.judged_together(file) is None for file in part.files
    )
    other_files = [file for file in below if file.path not in part_paths] if is_loose else []
    if not format.select(other_files, "rows"):
        return (part.path,)
    suffixes = {posixpath.splitext(path)[1] for path in part_paths}
    start = "" if part.path == "." else f"{part.path.rstrip('/')}/"
    entries = {file.path.removeprefix(start).split("/")[0] for file in other_files}
    suffix = suffixes.pop()
    if (
        len(part_paths) == 1
        or suffixes
        or not suffix
        or any(entry.endswith(suffix) for entry in entries)
        or glob.has_magic(start)
    ):
        return tuple(sorted(part_paths))
    return (f"{start}*{suffix}",)


def _walk_up(directory: str) -> Iterator[str]:
    """Yield a directory, and those above it."""
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]
    yield ""
