"""A map as one HTML file that needs no network and no server."""

from __future__ import annotations

import html
import json
from importlib.resources import files

from sawlog.map.model import Map

_SCRIPTS = ("model.js", "charts.js", "pictures.js", "bytes.js", "page.js")
"""The page's code, in the order in which it is run."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPES = str.maketrans(_UNSAFE)


def render(file_map: Map) -> str:
    """The page.

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
    page = (folder / "page.html").read_text("utf-8")
    head, *sections = page.split("{{")
    return head + "".join(parts[name] + after for name, after in (section.split("}}", 1) for section in sections))
