"""Opening: from inputs to the files of one format, and from those to a dataset."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sawlog.dataset.dataset import Dataset
from sawlog.errors import FormatError, OptionError, suggest_name
from sawlog.format.contract import Format, list_view_names
from sawlog.format.damage import OnDamage, check_on_damage
from sawlog.format.options import parse_options
from sawlog.format.recognition import find_named_homes, get_format, recognize
from sawlog.format.scan import Columns, Scan, parse_columns, parse_filter
from sawlog.guard import wrap_errors
from sawlog.storage import File, Storage, normalize
from sawlog.storage.inputs import Input
from sawlog.storage.workers import count_cores

Filters = Sequence[tuple[str, str, Any] | list[tuple[str, str, Any]]]


def make_storage(storage_options: Mapping[str, Any] | Storage | None, memory_map: bool = False) -> Storage:
    """Return the storage of paths: one that is in use already knows what came through pipes."""
    return storage_options if isinstance(storage_options, Storage) else Storage(dict(storage_options or {}), memory_map)


def resolve_threads(use_threads: bool | int) -> int:
    """Return how many threads are to be used."""
    if isinstance(use_threads, bool):
        return count_cores() if use_threads else 1
    if use_threads < 1:
        raise OptionError(f"use_threads={use_threads}: expected True, False or a number of threads")
    return use_threads


class DatasetFiles(NamedTuple):
    """The format of a path, its name of a view, those of its files that belong to that, and the others."""

    format: Format
    view: str
    files: list[File]
    unselected: list[File]


def list_input_names(inputs: Input | Sequence[Input], storage: Storage) -> list[str]:
    """Return the paths of inputs; what has none gets a name."""
    several = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return [storage.inputs.name_input(single) for single in several]


def find(
    paths: list[str], format: str | None, view: str, storage: Storage, files: Sequence[File] | None = None
) -> DatasetFiles:
    """Find what is read of paths, whose files may be known already.

    Raises:
        FormatError: When they hold no files of a format.
    """
    location = ", ".join(paths)
    detected = get_format(format) if format is not None else None
    files_of_paths = storage.find(paths) if files is None else list(files)
    if not files_of_paths:
        raise FormatError(f"{location}: the directory holds no files (names that begin with . or _ do not count)")
    if detected is None:
        detected = recognize(files_of_paths, storage, paths, view)
    full_view = detected.aliases.get(view, view)
    selected = detected.select(files_of_paths, full_view)
    if named := find_named_homes(detected, selected, paths):
        selected = [file for file in selected if detected.directory_layout.dataset_directory(file) in named]
    if not selected:
        other_views = [
            name
            for name in detected.views
            if name not in (full_view, "damage") and detected.select(files_of_paths, name)
        ]
        start = f"{location}: none of the {len(files_of_paths)} files there is"
        if full_view in detected.views and other_views:
            raise FormatError(f"{start} read by view {view!r}; views with files: {', '.join(other_views)}")
        names = detected.directory_layout.file_names or f"*{detected.suffix}"
        raise FormatError(
            f"{start} a {detected.title} by its name ({names}), which decides in a directory: rename"
            f" {files_of_paths[0].path}, or read the file by its own path, whatever it is called"
        )
    unselected: list[File] = []
    if len(selected) < len(files_of_paths):
        read = {file.path for file in selected}
        unselected = [file for file in files_of_paths if file.path not in read]
    return DatasetFiles(detected, full_view, selected, unselected)


def open_found(
    selection: DatasetFiles,
    paths: Sequence[str],
    /,  # a format may have an option that is called paths
    *,
    is_format_named: bool,
    storage_options: Storage,
    columns: Columns | None = None,
    filter: Any = None,
    filters: Filters | None = None,
    on_damage: OnDamage = "fail",
    provenance: bool = False,
    use_threads: bool | int = True,
    **options: Any,
) -> Dataset:
    """Open files that were found at paths; arguments are those of `open`."""
    format = selection.format
    if selection.view not in format.views:
        near = suggest_name(selection.view, list_view_names(format))
        raise OptionError(f"{format.name} has no view {selection.view!r}{near}; views: {', '.join(format.views)}")
    scan = Scan(
        view=selection.view,
        columns=parse_columns(columns),
        filters=tuple(filters or ()),
        expression=parse_filter(filter),
        on_damage=check_on_damage(on_damage),
        provenance=provenance,
        options=parse_options(format.read_options, options, context=f"reading {format.name}", general=GENERAL),
        storage=storage_options,
        roots=tuple(map(normalize, paths)),
        threads=resolve_threads(use_threads),
        is_format_named=is_format_named,
    )
    with wrap_errors(f"{scan.roots[0]}: opening as {format.name} failed"):
        contents = format.open(selection.files, scan)
        contents.unselected = selection.unselected
        return Dataset(contents, scan)


GENERAL = [
    *(
        name
        for name, parameter in inspect.signature(open_found).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ),
    *("format", "view", "memory_map", "index"),
]
"""The names of the arguments of `sawlog.open`, which no option of a format has."""
