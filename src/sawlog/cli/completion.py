"""Completions for a shell: formats, views, columns and options."""

from __future__ import annotations

import os
import textwrap
from typing import Any

import typer

import sawlog
from sawlog.cli.app import describe_completion
from sawlog.cli.cards import make_option_cards
from sawlog.dataset.dataset import Dataset
from sawlog.format.planning import list_available_columns
from sawlog.format.recognition import get_format


def complete_formats(incomplete: str) -> list[str]:
    """Return names of formats."""
    return [name for name in sawlog.formats() if name.startswith(incomplete)]


def complete_views(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return views that the paths have, also by formats that theirs includes; of all formats where there is no path."""
    dataset, format_name = _open_dataset(ctx), ctx.params.get("format")
    if dataset is None:
        candidates, files = [get_format(format_name)] if format_name else [*sawlog.formats().values()], None
    else:
        included = [] if format_name else sorted(dataset.format.directory_layout.absorbs)
        candidates, files = [dataset.format, *map(get_format, included)], dataset.files
    descriptions: dict[str, str] = {}
    for format in candidates:
        for name, description in format.views.items():
            if name.startswith(incomplete) and (files is None or format.select(files, name)):
                descriptions.setdefault(name, description)
    return [describe_completion(name, _shorten_text(description)) for name, description in descriptions.items()]


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return columns of the view; names before it are kept."""
    dataset = _open_dataset(ctx)
    before, comma, last = incomplete.rpartition(",")
    names = list_available_columns(dataset.contents).names if dataset is not None else []
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete_options(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return options for reading the format."""
    if ctx.params.get("format"):
        format = get_format(ctx.params["format"])
    elif (dataset := _open_dataset(ctx)) is not None:
        format = dataset.format
    else:
        return []
    return [
        describe_completion(f"{card.name}=", _shorten_text(card.doc))
        for card in make_option_cards(format.read_options)
        if card.name.startswith(incomplete)
    ]


def _shorten_text(text: str) -> str:
    """Return a description that Typer does not wrap: fish takes each line for a word to complete."""
    return textwrap.shorten(text.partition(":")[0], 60, placeholder=" …")


def _open_dataset(ctx: typer.Context) -> Dataset | None:
    """Open what the command line names so far; nothing where it cannot be opened."""
    params: dict[str, Any] = ctx.params
    paths = [word for word in ctx.args if os.path.exists(word)]  # an unfinished line is not parsed further
    try:
        return sawlog.open(paths, format=params.get("format"), view=params.get("view") or "rows") if paths else None
    except (sawlog.SawlogError, OSError):
        return None
