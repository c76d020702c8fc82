"""`sawlog formats`: formats, their views and options."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.cards import OptionCard, make_option_cards
from sawlog.cli.errors import Exit
from sawlog.cli.output import Page, show
from sawlog.cli.tabular import TABLE_FORMATS
from sawlog.errors import OptionError


@dataclass(frozen=True, slots=True)
class _FormatCard:
    name: str
    title: str
    suffix: str
    views: dict[str, str]
    read_options: list[OptionCard]
    write_options: list[OptionCard]


@dataclass(frozen=True, slots=True)
class _Cards:
    """Descriptions of formats."""

    formats: list[_FormatCard]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def print_to(self, page: Page) -> None:
        for card in self.formats:
            page.print_line((card.name, "bold"), (f"  {card.title}, {card.suffix}", ""))
            if card.views:
                page.print_line(("  views", "dim"))
                page.print_grid("    ", card.views.items())
            for title, options in (("reading (-o)", card.read_options), ("writing (-O)", card.write_options)):
                if options:
                    page.print_line((f"  options for {title}", "dim"))
                for option in options:
                    default = "" if option.default is None else f" = {option.default or '(none)'}"
                    page.print_line((f"    {option.name}", "bold"), (default, ""), (f"  {option.takes}", "dim"))
                    for line in page.wrap_text(option.doc, 8) if option.doc else ():
                        page.print_line((f"        {line}", ""))
            page.print_line()


def formats(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these.")] = None,
    json: arguments.Json = False,
) -> int:
    """List formats, their views and options."""
    formats: dict[str, Any] = {**sawlog.formats(), **TABLE_FORMATS}
    for name in names or ():
        if name not in formats:
            raise OptionError(f"unknown format {name!r}; known formats: {', '.join(formats)}")
    show(_Cards([_make_card(formats[name]) for name in names or formats]), json=json)
    return Exit.OK


def _make_card(format: Any) -> _FormatCard:
    options = make_option_cards(format.read_options), make_option_cards(format.write_options)
    return _FormatCard(format.name, format.title, format.suffix, dict(getattr(format, "views", {})), *options)
