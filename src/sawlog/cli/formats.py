"""`sawlog formats`: what is known about formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.cards import OptionCard, option_cards
from sawlog.cli.errors import Exit
from sawlog.cli.rendering import rendering
from sawlog.cli.tabular import TABLE_FORMATS
from sawlog.errors import OptionError


@dataclass(frozen=True, slots=True)
class FormatCard:
    """One format, as `sawlog formats` shows it."""

    name: str
    title: str
    suffix: str
    views: dict[str, str]
    read_options: list[OptionCard]
    write_options: list[OptionCard]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "suffix": self.suffix,
            "views": self.views,
            "read_options": [option.to_dict() for option in self.read_options],
            "write_options": [option.to_dict() for option in self.write_options],
        }


def formats(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these.")] = None,
    json: arguments.Json = False,
) -> int:
    """Show the formats, their views, and their options with defaults."""
    known = {name: _card(format, dict(format.views)) for name, format in sawlog.formats().items()}
    known |= {name: _card(table, {}) for name, table in TABLE_FORMATS.items()}
    for name in names or ():
        if name not in known:
            raise OptionError(f"unknown format {name!r}; known formats: {', '.join(known)}")
    rendering(json).formats([known[name] for name in names or known])
    return Exit.OK


def _card(format: Any, views: dict[str, str]) -> FormatCard:
    return FormatCard(
        format.name,
        format.title,
        format.suffix,
        views,
        option_cards(format.read_options),
        option_cards(format.write_options),
    )
