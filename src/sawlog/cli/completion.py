"""What a shell may complete: formats, views, columns and options."""

from __future__ import annotations

import os
from typing import Any

import typer

import sawlog
from sawlog.cli.cards import option_cards
from sawlog.dataset import Dataset
from sawlog.format import Format
from sawlog.recognition import get_format


def formats(incomplete: str) -> list[str]:
    """Names of formats."""
    return [name for name in sawlog.formats() if name.startswith(incomplete)]


def views(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Views of the format at hand, or of all."""
    chosen = _format(ctx)
    known: dict[str, str] = {}
    for format in [chosen] if chosen is not None else sawlog.formats().values():
        known |= format.views
    return [(name, said) for name, said in known.items() if name.startswith(incomplete)]


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns of the view; names that stand before it are kept."""
    dataset = _dataset(ctx)
    before, comma, last = incomplete.rpartition(",")
    names = dataset.contents.available.names if dataset is not None else []
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def options(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Options for reading the format."""
    format = _format(ctx)
    cards = option_cards(format.read_options) if format is not None else []
    return [(f"{card.name}=", card.doc) for card in cards if card.name.startswith(incomplete)]


def _format(ctx: typer.Context) -> Format | None:
    if ctx.params.get("format"):
        return get_format(ctx.params["format"])
    dataset = _dataset(ctx)
    return None if dataset is None else dataset.format


def _dataset(ctx: typer.Context) -> Dataset | None:
    """What the command line names so far; nothing where it cannot be opened."""
    given: dict[str, Any] = ctx.params
    paths = [word for word in ctx.args if os.path.exists(word)]  # an unfinished line is not taken apart further
    try:
        return sawlog.open(paths, format=given.get("format"), view=given.get("view") or "rows") if paths else None
    except (sawlog.SawlogError, OSError):
        return None
