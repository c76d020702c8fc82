"""The picture of a file or a directory: where every byte went, what is damaged, how rows lie, and what they hold.

- `levels`: every file as a row of bins, filled in one pass by kernels, in memory that does not grow with the file;
- `content`: what the columns hold: nulls, bounds, estimates of distinct values, the largest keys;
- `excerpts`: bytes worth showing, with the parts of the format;
- `survey`: the single pass that feeds these;
- `model`: what it finds, as plain data;
- `page`: that as one HTML file; `strip`: as a line of characters.
"""

from sawlog.map.model import Entry, Map, Summary
from sawlog.map.page import render, render_summary
from sawlog.map.survey import survey

__all__ = ["Entry", "Map", "Summary", "render", "render_summary", "survey"]
