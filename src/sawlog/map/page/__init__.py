"""A map as one HTML file that needs no network and no server."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from urllib.parse import quote

from sawlog.format.damage import Verdict
from sawlog.map.model import Entry, Map, Summary

_SCRIPTS = ("model.js", "charts.js", "pictures.js", "bytes.js", "page.js")
"""The page's code, in the order in which it is run."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPES = str.maketrans(_UNSAFE)


def render(file_map: Map) -> str:
    """Return the page.

    Nothing of the data can be taken for markup or code: it is in one block of JSON in which `<`, `>` and `&` are
    escaped, and the page's code makes text of it, never markup.
    """
    folder = files(__name__)
    data = json.dumps(file_map.to_dict(), ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)
    parts = {
        "title": html.escape(f"{', '.join(file_map.paths)} · sawlog map"),
        "style": (folder / "page.css").read_text("utf-8"),
        "script": "\n".join((folder / name).read_text("utf-8") for name in _SCRIPTS),
        "data": data,
    }
    return _fill_template("page.html", parts)


def render_summary(summary: Summary) -> str:
    """Return the page that leads to those of several datasets, the worst first."""
    named, escape = ", ".join(summary.paths), html.escape
    rows = [
        _render_row(
            f"<span class='verdict{'' if entry.verdict is Verdict.CLEAN else ' bad'}'>{escape(entry.state)}</span>",
            _link(entry),
            escape(entry.title),
            "" if entry.rows is None else f"{entry.rows:,}",
            f"{entry.size:,}",
            escape(entry.error),
        )
        for entry in summary.worst_first
    ]
    skipped = [_render_row(escape(file.path), f"{file.bytes:,}", escape(file.reason)) for file in summary.skipped]
    parts = {
        "title": escape(f"{named} · sawlog map"),
        "style": (files(__name__) / "page.css").read_text("utf-8"),
        "heading": escape(named),
        "states": escape(f"{summary.states}; {summary.rows:,} rows"),
        "rows": "\n".join(rows),
        "hidden": "" if skipped else " hidden",
        "skipped": "\n".join(skipped),
    }
    return _fill_template("summary.html", parts)


def _render_row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _link(entry: Entry) -> str:
    name = html.escape(f"{entry.path} {entry.table}".strip())
    return f"<a href='{quote(entry.page)}'>{name}</a>" if entry.page else name


def _fill_template(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with each `{{name}}` replaced by the part of that name."""
    page = (files(__name__) / template).read_text("utf-8")
    head, *sections = page.split("{{")
    return head + "".join(parts[name] + after for name, after in (section.split("}}", 1) for section in sections))
