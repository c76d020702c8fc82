"""The headlines of what was measured, as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from benchmarks.harness import lines

WIDTH, LABEL, BAR, GAP = 960, 330, 15, 16
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .case { font-weight: 600 } .ours { fill: #0072b2 }
.peer { fill: #9aa4ae } @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #56b4e9 } }
"""


def chart(results: Iterable[dict[str, Any]]) -> str:
    """An SVG: per headline the speeds of sawlog and its peers, relative to the fastest of them; longer is faster."""
    shapes, y = [], 4
    for result in results:
        for case in result["cases"]:
            sides = [line for line in lines(case) if not line.name.startswith("sawlog,")]
            if not case["headline"] or len(sides) < 2:
                continue
            y += BAR
            shapes.append(
                f'<text class="case" x="0" y="{y}">{escape(result["benchmark"])}: {escape(case["what"])}</text>'
            )
            y += 6
            fastest = max(line.gigabytes for line in sides)
            for line in sides:
                ours = line.name == case["sides"][0]["name"]
                length = max(1, round((WIDTH - LABEL - 90) * line.gigabytes / fastest))
                kind = "ours" if ours else "peer"
                shapes += [
                    f'<text x="{LABEL - 6}" y="{y + 11}" text-anchor="end">{escape(line.name)}</text>',
                    f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length}" height="{BAR - 3}"/>',
                    f'<text x="{LABEL + length + 5}" y="{y + 11}">{line.gigabytes:.2f} GB/s</text>',
                ]
                y += BAR
            y += GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img"'
        f' aria-label="Speeds of sawlog beside its peers"><style>{STYLE}</style>{"".join(shapes)}</svg>\n'
    )
