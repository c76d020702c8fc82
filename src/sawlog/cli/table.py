"""Rows as a table that is printed while it is being read."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sawlog.arrow import call_function, is_binary
from sawlog.cli.errors import complain
from sawlog.cli.output import Page, measure_width
from sawlog.format.printing import encode_texts, escape_unprintable

_SAMPLE_ROWS = 200
"""Rows that determine the widths of columns."""
MIN_WIDTH = 6
"""Columns are made no narrower than this, unless their content is."""
_PIPE_WIDTH = 60
"""Columns are aligned up to this width where nothing is cut off."""

_GAP = "  "
_CUT = "…"
_NULL = "null"


def print_table(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Print rows under a header of names and types.

    A terminal's width is kept: long values end in `…`, and columns that do not fit at all are named on stderr. Where
    stdout is no terminal nothing is cut off.
    """
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    first = next(batches, None)
    sample = [] if first is None else _render_cells(first.slice(0, _SAMPLE_ROWS), room)
    heads = [(escape_unprintable(field.name), render_type(field.type)) for field in schema]
    columns = itertools.zip_longest(heads, sample, fillvalue=())
    natural = [max(map(measure_width, (*head, *cells)), default=0) for head, cells in columns]
    widths = fit_widths(natural, room) if room is not None else [min(width, _PIPE_WIDTH) for width in natural]
    hidden = schema.names[len(widths) :]
    printer = _Printer(widths, [_is_number(field.type) for field in schema], room is not None)
    printer.print_header(heads)
    for batch in itertools.chain([] if first is None else [first], batches):
        printer.print_rows(_render_cells(batch.select(list(range(len(widths)))), room))
    if hidden:
        complain(f"columns without room: {', '.join(hidden)}; choose with --columns, or take --json")


def render_type(kind: pa.DataType) -> str:
    """Return the name of a type, of nested ones without their fields: `sawlog info` shows the whole schema."""
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_map(kind):
        return f"map<{render_type(kind.key_type)}, {render_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{render_type(kind.value_type)}>"
    return str(kind)


def fit_widths(natural: Sequence[int], room: int) -> list[int]:
    """Return widths for as many columns as fit into `room` cells: the widest give way first."""
    min_widths = [min(width, MIN_WIDTH) for width in natural]
    shown_columns = len(min_widths)
    while shown_columns > 1 and sum(min_widths[:shown_columns]) + len(_GAP) * (shown_columns - 1) > room:
        shown_columns -= 1
    free = room - len(_GAP) * (shown_columns - 1)
    widths = list(natural[:shown_columns])
    # Columns that need less than an equal share get what they need; the others share what is left.
    for count, index in enumerate(sorted(range(shown_columns), key=widths.__getitem__)):
        widths[index] = min(widths[index], max(min_widths[index], free // (shown_columns - count)))
        free -= widths[index]
    return widths


class _Printer:
    def __init__(self, widths: list[int], numbers: list[bool], cut: bool) -> None:
        self._widths = widths
        self._numbers = numbers
        self._cut = cut

    def print_header(self, heads: list[tuple[str, str]]) -> None:
        """Print names in bold, types below them dimmed, where a terminal can show that."""
        page = Page()
        for line, style in zip(zip(*heads, strict=True), ("bold", "dim"), strict=False):
            page.print_line((self._render_line(line[: len(self._widths)]), style))

    def print_rows(self, columns: list[list[str]]) -> None:
        lines = (self._render_line(cells) for cells in zip(*columns, strict=True))
        text = "".join(f"{line}\n" for line in lines)
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()

    def _render_line(self, cells: Sequence[str]) -> str:
        padded = map(self._pad, cells, self._widths, self._numbers)
        return _GAP.join(padded).rstrip()

    def _pad(self, text: str, width: int, number: bool) -> str:
        used = measure_width(text)
        if used > width and self._cut:
            text = _shorten(text, width)
            used = measure_width(text)
        space = " " * (width - used)
        return space + text if number else text + space


def _shorten(text: str, width: int) -> str:
    if text.isascii():
        return text[: width - 1] + _CUT
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + _CUT


def _render_cells(batch: pa.RecordBatch, room: int | None) -> list[list[str]]:
    """Return the texts of a batch by column, safe to show on a terminal; long binary values are cut."""
    columns = [
        call_function("binary_slice", column, options=("SliceOptions", 0, 4 * room))
        if room and is_binary(column.type)
        else column
        for column in batch.columns
    ]
    return [
        [_NULL if text is None else escape_unprintable(text) for text in encode_texts(column, nulls=False)]
        for column in columns
    ]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
