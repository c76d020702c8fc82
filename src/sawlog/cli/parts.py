"""Parts of a folder: their names, and the tables that they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace

from sawlog.cli.arguments import Reading, Selection, parse_column_names, parse_where
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.folder import Folder, FolderPart, open_folder
from sawlog.format.planning import list_available_columns
from sawlog.storage import Storage, normalize

ROOT = "."
"""Name of the part that is at the path itself."""
_UNFIT = re.compile(r"[*?\[\]]+")
"""Characters of a pattern, which no name of a file has."""


def open_selected(
    path: str,
    reading: Reading,
    selection: Selection,
    storage: Storage,
    *,
    format: str | None,
    on_damage: str,
    provenance: bool = False,
) -> Folder:
    """Return the datasets of a path with the columns of a selection; its conditions are those of `open_part`."""
    return open_folder(
        path,
        format=format,
        view=selection.view,
        columns=parse_column_names(selection.columns),
        on_damage=on_damage,
        provenance=provenance,
        **reading.collect_settings(storage),
    )


def make_part_name(part: FolderPart, root: str) -> str:
    """Return where a part is below the path that it was found in."""
    home, top = normalize(part.home).rstrip("/"), normalize(root).rstrip("/")
    return home.removeprefix(f"{top}/") if home.startswith(f"{top}/") else ROOT


def open_part(part: FolderPart, conditions: Iterable[str] | None) -> dict[str, Dataset]:
    """Return the tables of a part by name, with the rows that conditions leave.

    Raises:
        OptionError: For a condition of another shape.
        SchemaError: For a condition on a column that it does not have.
    """
    return {name: _filter_rows(dataset, conditions or ()) for name, dataset in part.open_tables().items()}


def _filter_rows(dataset: Dataset, conditions: Iterable[str]) -> Dataset:
    filters = parse_where(conditions, list_available_columns(dataset.contents))
    return replace(dataset, scan=replace(dataset.scan, filters=tuple(filters))) if filters else dataset


def make_file_name(part: FolderPart, root: str, table: str, suffix: str) -> str:
    """Return the relative path of the file that a table of a part is converted to."""
    name = make_part_name(part, root)
    if name == ROOT:
        name = os.path.basename(normalize(root).rstrip("/")) or part.dataset_files.format.name
    inside = f"/{table.replace('/', '_')}" if table else ""
    return _UNFIT.sub("_", f"{name.removesuffix('.*')}{inside}") + suffix
