"""`sawlog info`: what a path holds."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import Advance, Page, Result, describe_tail, render_count, render_size, show, show_progress
from sawlog.cli.scan import DamageSummary, divide_progress, make_recorder
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.folder import FolderPart, describe_missed_part, open_folder
from sawlog.dataset.scanning import count_rows
from sawlog.format.contract import Format, list_view_names
from sawlog.format.damage import Skipped, Tail, TailStatus
from sawlog.format.printing import decode_metadata
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.map.model import FileMap

_STYLES = {
    "damage": "bold red",
    "unsupported": "bold yellow",
    "tail": "yellow",
    "header": "blue",
    "record": "cyan",
    "padding": "dim",
}


@dataclass(slots=True)
class Info(Result):
    """Facts that are known about a path."""

    paths: list[str]
    format: Format
    files: list[File]
    view: str
    schema: pa.Schema
    facts: dict[str, Any]
    rows: int | None = None
    losses: DamageSummary = field(default_factory=DamageSummary)
    skipped: list[Skipped] = field(default_factory=list)
    strips: list[FileMap] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def tails(self) -> dict[str, Tail]:
        """Tails of the files, as far as a count has seen them."""
        return {path: report.tail for path, report in self.losses.files.items() if report.tail is not None}

    def to_dict(self) -> dict[str, Any]:
        document = {
            "paths": self.paths,
            "format": self.format.name,
            "title": self.format.title,
            "size": self.size,
            "files": [{"path": file.path, "size": file.size} for file in self.files],
            "views": {name: self.format.views[view] for name, view in list_view_names(self.format).items()},
            "view": self.view,
            "schema": [
                {
                    "name": column.name,
                    "type": str(column.type),
                    "nullable": column.nullable,
                    "metadata": decode_metadata(column),
                }
                for column in self.schema
            ],
            "facts": self.facts,
            "skipped": [skipped.to_dict() for skipped in self.skipped],
        }
        if self.rows is not None:
            document["rows"] = self.rows
            document["tails"] = {path: asdict(tail) for path, tail in self.tails.items()}
        return document

    def print_to(self, page: Page) -> None:
        facts = [("format", f"{self.format.name} ({self.format.title})")]
        if len(self.files) == 1:
            facts.append(("file", self.files[0].path))
        else:
            facts.append(("files", f"{len(self.files)}: {self.files[0].path} … {self.files[-1].path}"))
        facts.append(("size", render_size(self.size)))
        facts += [(name, str(value)) for name, value in self.facts.items()]
        if self.rows is not None:
            facts.append(("rows", f"{self.rows:,}"))
        for path, tail in self.tails.items():
            if tail.status is not TailStatus.CLEAN:
                facts.append(("tail", (f"{path}: " if len(self.files) > 1 else "") + describe_tail(tail)))
        margin = page.measure_margin(name for name, _ in facts)
        page.print_facts(facts, margin)
        self._print_strips(page, margin)
        page.print_skipped(self.skipped, margin)
        if any(skipped.missed for skipped in self.skipped):
            page.print_facts([("parts", f"listed by: sawlog ls {shlex.join(self.paths)}")], margin)
        page.print_line(("views", "bold"))
        page.print_grid("  ", self.format.views.items())
        page.print_line((f"columns of {self.view}", "bold"))
        page.print_grid("  ", ((column.name, _describe_column(column)) for column in self.schema))

    def _print_strips(self, page: Page, margin: int) -> None:
        """Print what the bytes of small files are for, a line per file, damage in red."""
        if not self.strips:
            return
        from sawlog.map.strip import SIGNS, choose_cells

        for file in self.strips:
            if len(self.files) > 1:
                page.print_facts([("", file.path)], margin)
            runs = itertools.groupby(choose_cells(file, max(20, min(page.console.width, 130) - margin)))
            parts = [(SIGNS[use] * len(list(group)), _STYLES.get(use, "")) for use, group in runs]
            page.print_line((page.pad_text("map" if file is self.strips[0] else "", margin), "bold"), *parts)
        signs = "  ".join(f"{sign} {use or 'not read'}" for use, sign in SIGNS.items() if sign.strip())
        page.print_line((" " * margin + signs, "dim"))


def info(
    paths: arguments.Paths,
    *,
    format: arguments.FormatName = None,
    view: arguments.View = "rows",
    count: Annotated[bool, typer.Option("--count", help="Count the rows; reads every byte.")] = False,
    reading: arguments.Reading,
    json: arguments.Json = False,
) -> int:
    """Show format, size, views and columns.

    Reads no more than headers, and small files for a picture in a terminal. Exit code 1 damaged or incomplete,
    4 unsupported in part.
    """
    folder = open_folder(list(paths), format=format, view=view, on_damage="skip", **reading.collect_settings())
    with show_progress(folder.size if count else 0, "counting") as advance:

        def describe(part: FolderPart) -> Info:
            with divide_progress(part.size, advance) as step:
                named = [os.fspath(path) for path in paths] if folder.is_single else [part.path]
                return _describe(part.open(), named, step if count else None, strips=not json and sys.stdout.isatty())

        outcomes = list(folder.map_parts(describe))
    infos = [outcome for _, outcome in outcomes if isinstance(outcome, Info)]
    skipped = [
        *folder.skipped,
        *(describe_missed_part(*outcome) for outcome in outcomes if isinstance(outcome[1], Exception)),
    ]
    show(infos[0] if folder.is_single else _Parts(infos, skipped), json=json)
    for described in infos:
        described.losses.report()
    codes = {described.losses.code for described in infos}
    if any(part.missed for part in skipped):
        codes.add(Exit.DAMAGED)
    return next((code for code in (Exit.DAMAGED, Exit.UNSUPPORTED) if code in codes), Exit.OK)


def _describe(dataset: Dataset, paths: list[str], advance: Advance | None, *, strips: bool) -> Info:
    """Return what is known of a dataset; its rows, too, where there is a bar for what is read of it."""
    info = Info(paths, dataset.format, dataset.contents.files, dataset.scan.view, dataset.schema, dataset.info())
    info.skipped = dataset.skipped
    if advance is not None and dataset.scan.view == "damage":
        info.rows = dataset.count_rows()
    elif advance is not None:
        info.rows = count_rows(dataset.contents, dataset.request, make_recorder(info.losses, advance))
    if strips:
        from sawlog.map.strip import make_strips as strips_of

        info.strips = strips_of(dataset)
    return info


@dataclass(slots=True)
class _Parts(Result):
    """Facts that are known about a folder of several datasets."""

    parts: list[Info]
    skipped: list[Skipped]

    def to_dict(self) -> dict[str, Any]:
        return {"parts": [part.to_dict() for part in self.parts], "skipped": [file.to_dict() for file in self.skipped]}

    def print_to(self, page: Page) -> None:
        for part in self.parts:
            page.print_line((part.paths[0], "bold"))
            part.print_to(page)
            page.print_line(("", ""))
        page.print_skipped(self.skipped)
        facts = [render_count(len(self.parts), "part"), render_size(sum(part.size for part in self.parts))]
        if all(part.rows is not None for part in self.parts):
            facts.append(render_count(sum(part.rows or 0 for part in self.parts), "row"))
        if unread := sum(file.missed for file in self.skipped):
            facts.append(f"{unread:,} not read")
        page.print_line((", ".join(facts), "bold"))


def _describe_column(column: pa.Field) -> str:
    nulls = "" if column.nullable else " not null"
    return f"{column.type}{nulls}" + "".join(f" {key}={value}" for key, value in decode_metadata(column).items())
