"""A map in one line per file: characters for terminals, a small picture for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from sawlog.format.damage import Verdict
from sawlog.map.kernels import USES
from sawlog.map.model import FileMap
from sawlog.map.survey import inspect_files

if TYPE_CHECKING:
    import sawlog

STRIP_BYTES = 32 << 20
"""More is not read just for a strip."""
_MAX_STRIP_FILES = 8
"""Files that have a strip."""
SIGNS = {"header": "▒", "record": "█", "padding": "·", "tail": "░", "damage": "✗", "unsupported": "?", "": " "}
"""What each use of bytes is drawn as; the empty one is what was not read."""
COLOURS = {
    "header": "#0072b2",
    "record": "#56b4e9",
    "padding": "#c9cdd2",
    "tail": "#e69f00",
    "damage": "#d55e00",
    "unsupported": "#cc79a7",
}
_SHOWN_FIRST = ("damage", "unsupported", "tail")


def make_strips(dataset: sawlog.Dataset) -> list[FileMap]:
    """Return the first files with their bins; none, where there is more to read than a glance is worth."""
    if sum(file.size for file in dataset.files) > STRIP_BYTES:
        return []
    return [file for file in inspect_files(dataset) if file.size][:_MAX_STRIP_FILES]


def choose_cells(file: FileMap, width: int) -> list[str]:
    """Return the use that each of `width` equal parts of a file is shown as: the most frequent, but damage first."""
    bins = np.array([file.bins[f"{use}_bytes"] for use in USES])
    count = bins.shape[1]
    # Parts that are smaller than bins are what their bin is.
    edges = np.linspace(0, count, width + 1)
    starts = np.minimum(np.floor(edges[:-1]).astype(np.int64), count - 1)
    ends = np.maximum(np.ceil(edges[1:]).astype(np.int64), starts + 1)
    sums = np.concatenate([np.zeros((len(USES), 1), np.int64), np.cumsum(bins, 1)], 1)
    cell_uses = []
    for start, end in zip(starts, ends, strict=True):
        uses = dict(zip(USES, (sums[:, end] - sums[:, start]).tolist(), strict=True))
        urgent = next((use for use in _SHOWN_FIRST if uses[use]), None)
        main_use = max(uses, key=uses.__getitem__)
        cell_uses.append(urgent or (main_use if uses[main_use] else ""))
    return cell_uses


def as_html(files: list[FileMap], width: int = 120) -> str:
    """Return the strips as a picture in HTML, which needs no script."""
    rows = []
    for file in files:
        file_cells = choose_cells(file, width)
        boxes = "".join(
            f'<rect x="{cell}" width="1.05" height="10" fill="{COLOURS[use]}"/>'
            for cell, use in enumerate(file_cells)
            if use
        )
        status = file.tail.status if file.tail else "unknown"
        title = f"{file.path}: {file.size:,} bytes, {file.count(Verdict.DAMAGED)} damaged ranges, tail {status}"
        rows.append(
            f'<div>{html.escape(title)}<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {width} 10"'
            f' preserveAspectRatio="none" style="display:block;width:100%;height:14px">{boxes}</svg></div>'
        )
    return "".join(rows)
