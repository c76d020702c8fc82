"""`sawlog report`: what an examiner hands in."""

from __future__ import annotations

import datetime as dt
import html
import os
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from sawlog import __version__
from sawlog.cli import arguments
from sawlog.cli.output import Outcome, render_count, show, show_progress, write_page
from sawlog.cli.scan import choose_exit_code
from sawlog.dataset.examination import Examination, ExaminedPart, RecordingStorage, examine
from sawlog.dataset.folder import open_folder
from sawlog.dataset.timeline import MAX_EVENTS
from sawlog.format.printing import encode_ascii_json

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #ccc; padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; }
code { overflow-wrap: anywhere; }
.clean { color: #176b2c; } .damaged, .incomplete { color: #a11; } .unsupported { color: #8a5a00; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }
"""


def report(
    paths: arguments.Paths,
    *,
    output: Annotated[str, typer.Option("--output", metavar="FILE", help="The page.")] = "report.html",
    format: arguments.FormatName = None,
    reading: arguments.Reading,
    json: Annotated[bool, typer.Option("--json", help="Write the data of the page to stdout instead.")] = False,
) -> int:
    """Write what was found, with hashes, as a page.

    Every dataset with its verdict and its damage, rows of its views, and SHA-256 of every file that was opened,
    metadata included; what was left out, and why; a timeline of all datasets; version and time. Exit code 0 clean,
    1 damaged or incomplete, 2 unusable, 4 unsupported in part.
    """
    recorder = RecordingStorage(arguments.parse_storage_options(reading.storage))
    folder = open_folder(list(paths), format=format, on_damage="skip", **reading.collect_settings(recorder))
    with show_progress(folder.size, "examining") as advance:
        examination = examine(folder, [os.fspath(path) for path in paths], recorder, advance)
    document = {"sawlog": __version__, **examination.to_dict()}
    if json:
        typer.echo(encode_ascii_json(document, indent=2))
    else:
        write_page(_render_page(examination), output)
        files = sum(len(part.files) for part in examination.parts)
        summary = f"with {render_count(files, 'hashed file')}, in {output}"
        show(Outcome(document, render_count(len(examination.parts), "part"), summary), json=False)
    return choose_exit_code(examination.verdicts)


def _render_page(examination: Examination) -> str:
    """Return the page of an examination; all text of files is escaped."""
    escape = html.escape
    named = ", ".join(examination.paths)
    ended = dt.datetime.now().astimezone().isoformat(timespec="seconds")
    facts = f"sawlog {__version__}; begun {examination.begin_time}, ended {ended}"
    parts = "\n".join([*map(_render_part, examination.parts), _render_timeline(examination)])
    skipped = [(escape(file.path), f"{file.bytes:,}", escape(file.reason)) for file in examination.skipped]
    missed = f"<h2>Not read</h2>{_render_table(('file', 'bytes', 'why'), skipped)}" if skipped else ""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(named)} \u00b7 sawlog report</title><style>{_STYLE}</style>"
        f"<h1>{escape(named)}</h1><p>{escape(facts)}</p>{parts}{missed}</html>\n"
    )


def _render_part(part: ExaminedPart) -> str:
    escape = html.escape
    report = part.report
    verdict = str(report.verdict)
    views = [(escape(view), f"{rows:,}") for view, rows in part.views.items()]
    files = [
        (
            f"<code>{escape(file.path)}</code>",
            f"{file.size:,}",
            escape(file.modified or ""),
            f"<code>{file.sha256}</code>",
        )
        for file in part.files
    ]
    damages = [
        (
            f"<code>{escape(damage.path)}</code>",
            f"{damage.offset:,}",
            f"{damage.length:,}",
            escape(damage.kind),
            escape(damage.detail),
        )
        for file in report.files
        for damage in file.damages
    ]
    sections = [
        f"<h2>{escape(part.path)}</h2>",
        f"<p>{escape(part.title)}: <strong class='{verdict}'>{escape(verdict)}</strong></p>",
        _render_table(("view", "rows"), views),
        f"<h3>Findings</h3>{_render_table(('file', 'byte', 'bytes', 'kind', 'detail'), damages)}" if damages else "",
        f"<h3>Files that were read</h3>{_render_table(('file', 'bytes', 'changed', 'SHA-256'), files)}",
    ]
    skipped = [(escape(file.path), f"{file.bytes:,}", escape(file.reason)) for file in report.skipped]
    if skipped:
        sections.append(f"<h3>Left out</h3>{_render_table(('file', 'bytes', 'why'), skipped)}")
    return "\n".join(sections)


def _render_timeline(examination: Examination) -> str:
    escape = html.escape
    days = [
        (day.day, f"<code>{escape(day.part)}</code>", escape(day.view), escape(day.column), f"{day.count:,}")
        for day in examination.days
    ]
    events = [
        (
            escape(event.time),
            event.zone or "none",
            f"<code>{escape(event.part)}</code>",
            escape(event.view),
            escape(event.column),
            escape(event.label),
        )
        for event in examination.events
    ]
    if not days:
        return ""
    return (
        "<h2>Timeline</h2><p>Times in rows as they are now. Those without a zone are sorted as if they were in UTC.</p>"
        f"<h3>Rows per day</h3>{_render_table(('day', 'part', 'view', 'column', 'rows'), days)}"
        f"<h3>Newest {MAX_EVENTS} of each part</h3>"
        f"{_render_table(('time', 'zone', 'part', 'view', 'column', 'row'), events)}"
    )


def _render_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
