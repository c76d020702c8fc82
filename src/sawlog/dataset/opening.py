"""Opening: from inputs to the files of one format, and from those to a dataset."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sawlog.dataset.dataset import Dataset
from sawlog.errors import FormatError, OptionError, meant
from sawlog.format.contract import Format, view_names
from sawlog.format.damage import OnDamage, check_on_damage
from sawlog.format.options import parse_options
from sawlog.format.recognition import get_format, named_homes, recognize
from sawlog.format.scan import Columns, Scan, parse_columns, parse_filter
from sawlog.guard import wrap_errors
from sawlog.storage import File, Storage, normalize
from sawlog.storage.inputs import Input
from sawlog.storage.workers import cores

Filters = Sequence[tuple[str, str, Any] | list[tuple[str, str, Any]]]


def storage_of(given: Mapping[str, Any] | Storage | None, memory_map: bool = False) -> Storage:
    """Return the storage of paths: one that is in use already knows what came through pipes."""
    return given if isinstance(given, Storage) else Storage(dict(given or {}), memory_map)


def threads_of(wanted: bool | int) -> int:
    """Return how many threads are to be used."""
    if isinstance(wanted, bool):
        return cores() if wanted else 1
    if wanted < 1:
        raise OptionError(f"use_threads={wanted}: expected True, False or a number of threads")
    return wanted


class Found(NamedTuple):
    """The format of a path, its name of a view, those of its files that belong to that, and the others."""

    format: Format
    view: str
    files: list[File]
    unselected: list[File]


def names_of_inputs(given: Input | Sequence[Input], storage: Storage) -> list[str]:
    """The paths of inputs; what has none gets a name."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    return [storage.inputs.name(one) for one in several]


def find(
    paths: list[str], format: str | None, view: str, storage: Storage, files: Sequence[File] | None = None
) -> Found:
    """Find what is read of paths, whose files may be known already.

    Raises:
        FormatError: When they hold no files of a format.
    """
    where = ", ".join(paths)
    chosen = get_format(format) if format is not None else None
    found = storage.find(paths) if files is None else list(files)
    if not found:
        raise FormatError(f"{where}: the directory holds no files (names that begin with . or _ do not count)")
    if chosen is None:
        chosen = recognize(found, storage, paths, view)
    wanted = view_names(chosen).get(view, view)
    selected = chosen.select(found, wanted)
    if named := named_homes(chosen, selected, paths):
        selected = [file for file in selected if chosen.directory_layout.dataset_directory(file) in named]
    if not selected:
        others = [name for name in chosen.views if name not in (wanted, "damage") and chosen.select(found, name)]
        start = f"{where}: none of the {len(found)} files there is"
        if wanted in chosen.views and others:
            raise FormatError(f"{start} read by view {view!r}; views with files: {', '.join(others)}")
        raise FormatError(f"{start} a {chosen.title}")
    read = {file.path for file in selected}
    return Found(chosen, wanted, selected, [file for file in found if file.path not in read])


def open_found(
    found: Found,
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
    chosen = found.format
    if found.view not in chosen.views:
        near = meant(found.view, view_names(chosen))
        raise OptionError(f"{chosen.name} has no view {found.view!r}{near}; views: {', '.join(chosen.views)}")
    scan = Scan(
        view=found.view,
        columns=parse_columns(columns),
        filters=tuple(filters or ()),
        expression=parse_filter(filter),
        on_damage=check_on_damage(on_damage),
        provenance=provenance,
        options=parse_options(chosen.read_options, options, where=f"reading {chosen.name}", general=GENERAL),
        storage=storage_options,
        roots=tuple(map(normalize, paths)),
        threads=threads_of(use_threads),
        is_format_named=is_format_named,
    )
    with wrap_errors(f"{scan.roots[0]}: opening as {chosen.name} failed"):
        contents = chosen.open(found.files, scan)
        contents.unselected = found.unselected
        return Dataset(contents, scan)


GENERAL = [
    *(name for name, one in inspect.signature(open_found).parameters.items() if one.kind is one.KEYWORD_ONLY),
    *("format", "view", "memory_map", "index"),
]
"""The names of the arguments of `sawlog.open`, which no option of a format has."""
