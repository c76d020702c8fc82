"""A dataset as a notebook shows it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sawlog.map import strip

if TYPE_CHECKING:
    import sawlog

SHOWN_ROWS = 10


def as_html(dataset: sawlog.Dataset) -> str:
    """Return a dataset as HTML: its description, the map of small files, and the first rows."""

    def render_row(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    head = dataset.head(SHOWN_ROWS)
    names = render_row("th", head.schema.names)
    types = render_row("th", head.schema.types)
    rows = "".join(render_row("td", list(row_values.values())) for row_values in head.to_pylist())
    picture = strip.as_html(strip.make_strips(dataset))
    table = f"<table><thead>{names}{types}</thead><tbody>{rows}</tbody></table>"
    return f"<p>{html.escape(repr(dataset))}</p>{picture}{table}"
