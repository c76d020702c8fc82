"""`sawlog map`: a path as a picture."""

from __future__ import annotations

import os
import re
import shlex
import sys
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Advance, Outcome, Page, make_text_sink, render_count, show, show_progress, write_page
from sawlog.cli.scan import choose_exit_code, count_bytes, divide_progress
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.folder import Folder, FolderPart, list_distinct_tables, open_folder
from sawlog.errors import InternalError, OptionError, SawlogError
from sawlog.format.damage import Verdict
from sawlog.format.printing import encode_ascii_json
from sawlog.map import Entry, Map, Summary, render, render_summary, survey

_PAGE = re.compile(r"-|[^=]*[./][^=]*")
"""What `-o` may still be given as the name of the page."""
_MAX_ADVISED_COMMANDS = 3
"""Commands that an error names, at most."""


def map(
    paths: arguments.Paths,
    *,
    output: Annotated[
        str, typer.Option("--output", metavar="FILE", help="The page; - writes it to stdout.")
    ] = "map.html",
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    format: arguments.FormatName = None,
    view: arguments.View = "rows",
    reading: arguments.Reading,
    json: Annotated[bool, typer.Option("--json", help="Write the data of the page to stdout instead.")] = False,
) -> int:
    """Draw every byte of a path on an HTML page.

    Where each byte went, damage, rows and their content. Of a folder of several datasets FILE is a summary that leads
    to a page of each: FILE-1 and so on. Exit code 0 clean, 1 damaged or incomplete, 2 unusable, 4 unsupported in part.
    """
    for page in [text for text in reading.option or () if _PAGE.fullmatch(text)]:
        complain(f"warning: -o {page}: names the page with --output; -o is for options of the format")
        output = page
        reading = replace(reading, option=[text for text in reading.option or () if text != page])
    folder = open_folder(list(paths), format=format, view=view, on_damage="skip", **reading.collect_settings())
    tables = folder.parts[0].open_tables() if folder.is_single else {}
    if len(tables) == 1:
        return _draw_single(next(iter(tables.values())), output, json=json, browse=browse)
    if output == "-" and not json:
        raise OptionError(_advise(folder, list(tables.values())))
    summary = _draw_folder(folder, [os.fspath(path) for path in paths], output, json=json)
    if not json:
        _print(summary, output, Page())
        if browse:
            _browse(output)
    return _choose_summary_code(summary)


def _choose_summary_code(summary: Summary) -> Exit:
    """Return the worst exit code of the parts of a folder; one that was not drawn counts as incomplete."""
    missed = [Verdict.INCOMPLETE for skipped in summary.skipped if skipped.missed]
    return choose_exit_code([*(entry.verdict or Verdict.INCOMPLETE for entry in summary.entries), *missed])


def _advise(folder: Folder, tables: list[Dataset]) -> str:
    """Return what to do where stdout cannot take all pages."""
    paths = [part.path for part in folder.parts]
    inmost = [path for path in paths if not any(inner.startswith(f"{path}/") for inner in paths)]
    commands = [f"sawlog map {shlex.quote(path)} --output -" for path in inmost]
    count = len(tables or paths)
    if tables:
        path = shlex.quote(folder.parts[0].path)
        named = (table.options.items() for table in list_distinct_tables(tables[0].contents))
        options = (" ".join(f"-o {shlex.quote(f'{name}={value}')}" for name, value in pairs) for pairs in named)
        commands = [f"sawlog map {path} {text} --output -" for text in options]
    continuation = "; and so on: sawlog ls lists all" if len(commands) > _MAX_ADVISED_COMMANDS else ""
    return (
        f"stdout takes one page, and there are {count:,} parts: name a file with --output for a summary and a page"
        f" of each, or draw one of them: {'; '.join(commands[:_MAX_ADVISED_COMMANDS])}{continuation}"
    )


class _Drawing(NamedTuple):
    """Entry of a summary, and the data of its page, if that was asked for."""

    entry: Entry
    document: str = ""


def _draw_folder(folder: Folder, paths: list[str], output: str, *, json: bool) -> Summary:
    """Write the pages of the datasets of a folder and the summary, or their data line by line to stdout."""
    numbers = {id(part): number for number, part in enumerate(folder.parts, 1)}
    summary = Summary(paths, [], folder.skipped)
    with show_progress(folder.size, "looking at every byte") as advance:

        def draw(part: FolderPart) -> list[_Drawing]:
            with divide_progress(part.size, advance) as step:
                number = "" if folder.is_single else f"-{numbers[id(part)]}"
                return list(_draw_part(part, number, "" if json else output, step))

        for part, outcome in folder.map_parts(draw):
            drawings = [_make_failed_drawing(part, str(outcome))] if isinstance(outcome, Exception) else outcome
            for drawing in drawings:
                if drawing.entry.error:
                    complain(f"warning: {drawing.entry.path}: not drawn: {drawing.entry.error}")
                if json and drawing.document:
                    sys.stdout.write(f"{drawing.document}\n")
                summary.entries.append(drawing.entry)
    for skipped in folder.skipped:
        if skipped.missed:
            complain(f"warning: {skipped.path}: not drawn: {skipped.reason}")
    if not json:
        write_page(render_summary(summary), output)
    return summary


def _make_failed_drawing(part: FolderPart, error: str, table: str = "") -> _Drawing:
    entry = Entry(part.path, part.title, part.size, table, error=error)
    return _Drawing(entry, encode_ascii_json({"paths": [part.path], "table": table or None, "error": error}))


def _draw_part(part: FolderPart, number: str, output: str, advance: Advance) -> Iterator[_Drawing]:
    """Yield the drawing of a dataset, or what `verify` says of it and the drawings of its tables."""
    stem, suffix = os.path.splitext(output)
    tables = part.open_tables()
    if len(tables) > 1:
        yield _Drawing(Entry(part.path, part.title, part.size, verdict=part.open().report().verdict))
    for place, (name, dataset) in enumerate(tables.items(), 1):
        page = f"{stem}{number}{f'-{place}' if name else ''}{suffix}" if output else ""
        try:
            drawn, document = _draw(dataset, page, advance)
        except (SawlogError, OSError) as error:
            if isinstance(error, InternalError) or not name:
                raise
            yield _make_failed_drawing(part, str(error), name)
        else:
            entry = Entry(
                part.path, part.title, count_bytes(dataset), name, drawn.rows, drawn.verdict, os.path.basename(page)
            )
            yield _Drawing(entry, document)


def _draw(dataset: Dataset, output: str, advance: Advance) -> tuple[Map, str]:
    """Look at a dataset and write its page; without a name for it, return its data as JSON."""
    drawn = survey(dataset, advance)
    if not output:
        return drawn, encode_ascii_json(drawn.to_dict())
    page = render(drawn)
    if output == "-":
        make_text_sink(sys.stdout.buffer.write)(page.encode("utf-8", "surrogatepass"))
    else:
        write_page(page, output)
    return drawn, ""


def _draw_single(dataset: Dataset, output: str, *, json: bool, browse: bool) -> Exit:
    """Write the page of the only dataset of a path, or its data."""
    with show_progress(count_bytes(dataset), "looking at every byte") as advance:
        drawn, document = _draw(dataset, "" if json else output, advance)
    if json:
        sys.stdout.write(f"{document}\n")
    elif output != "-":
        facts = [("format", drawn.title), ("damage", "found" if drawn.damaged else "none")]
        if drawn.incomplete:
            facts.append(("incomplete", "files are missing, or metadata is cut; sawlog verify lists them"))
        show(Outcome({}, f"{drawn.rows:,} rows", f"drawn in {output}", facts), json=False)
        if browse:
            _browse(output)
    return _choose_summary_code(Summary([], [Entry("", drawn.title, 0, verdict=drawn.verdict)], []))


def _print(summary: Summary, output: str, page: Page) -> None:
    """Print a line of each part of a folder, and one for all."""
    margin = page.measure_margin(entry.state for entry in summary.entries)
    for entry in summary.entries:
        style = "green" if entry.verdict is Verdict.CLEAN else "bold red"
        rows = "" if entry.rows is None else f", {render_count(entry.rows, 'row')} in {entry.page}"
        name = f"{entry.path} {entry.table}".strip()
        page.print_line((page.pad_text(entry.state, margin), style), (name, "bold"), (f"  {entry.title}{rows}", ""))
    page.print_skipped(summary.skipped)
    page.print_line((f"{summary.states}; {render_count(summary.rows, 'row')}", "bold"), (f" drawn in {output}", ""))


def _browse(output: str) -> None:
    if not webbrowser.open(Path(output).resolve().as_uri()):
        complain(f"no browser was found; open {output}")
