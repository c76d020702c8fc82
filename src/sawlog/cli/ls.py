"""`sawlog ls`: what a path holds, part by part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, explain
from sawlog.cli.output import Advance, Page, Result, describe_tail, render_count, render_size, show, show_progress
from sawlog.cli.scan import DamageSummary, divide_progress, make_recorder
from sawlog.dataset.folder import limit_threads, list_distinct_tables, make_folder_part
from sawlog.dataset.opening import DatasetFiles
from sawlog.dataset.scanning import count_rows
from sawlog.errors import InternalError, OptionError, collect_warnings, suggest_name
from sawlog.format.capabilities import HasDecoders
from sawlog.format.contract import Format
from sawlog.format.damage import Tail, TailStatus, Verdict
from sawlog.format.options import list_option_names
from sawlog.format.recognition import Part, find_parts
from sawlog.storage import Storage
from sawlog.storage.workers import count_cores, map_ordered, wrap_single_step

_COUNTED_BYTES = 8 << 20
"""Parts up to this size are read to count their rows, where nothing else is asked for."""


@dataclass(slots=True)
class ListedTable:
    """Table of a part, or all that the part is.

    Attributes:
        name: Its name; empty where the part is one table.
        options: What names it in a command.
        rows: How many rows it has; `None` where that was not looked at.
        error: Why it could not be read.
    """

    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None
    error: str | None = None


@dataclass(slots=True)
class ListedPath:
    """Part of a path, as it is listed.

    Attributes:
        part: Its files and its format.
        tables: Its tables; one without a name where it is one table, none where it could not be opened.
        tail: The first of its files that is not finished, if any was seen.
        verdict: The worst that was seen.
        error: Why it could not be opened.
        decoders: Views that decode what an application has put into the rows.
        options: Those of the options that its format has.
        remarks: What opening and counting it has warned of.
    """

    part: Part
    tables: list[ListedTable] = field(default_factory=list)
    tail: Tail | None = None
    verdict: Verdict = Verdict.CLEAN
    error: str | None = None
    decoders: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int | None:
        """Rows of all tables; `None` where they were not looked at."""
        counted = [table.rows for table in self.tables if table.rows is not None]
        return sum(counted) if counted else None

    @property
    def errors(self) -> list[str]:
        """Why the part, or a table of it, could not be read."""
        return [error for error in (self.error, *(table.error for table in self.tables)) if error is not None]

    def make_commands(self, table: ListedTable) -> list[str]:
        """Return commands that show a table's rows, and decode them further; none where they cannot be shown."""
        if table.error is not None:
            return []
        command = self.part.make_command({**self.options, **table.options})
        return [command, *(f"{command} --view {name}" for name in self.decoders)]

    @property
    def state(self) -> str:
        """State that a look at its bytes has shown, in a few words."""
        if self.errors:
            return "not readable" if self.rows is None else "in part not readable"
        if self.verdict is not Verdict.CLEAN:
            return "in part unsupported" if self.verdict is Verdict.UNSUPPORTED else str(self.verdict)
        if self.tail is not None:
            return f"tail {describe_tail(self.tail)}"
        return "" if self.rows is None else "clean"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        part = self.part
        commands = [command for table in self.tables for command in self.make_commands(table)[:1]]
        return {
            "path": part.path,
            "format": part.format.name if part.format is not None else None,
            "files": [{"path": file.path, "size": file.size} for file in part.files],
            "size": part.size,
            "rows": self.rows,
            "state": self.state or None,
            "error": next(iter(self.errors), None),
            "command": next(iter(commands), None),
            "decoders": self.decoders,
            "remarks": self.remarks,
            "tables": [
                {**asdict(listed_table), "command": next(iter(self.make_commands(listed_table)), None)}
                for listed_table in self.tables
                if listed_table.name
            ],
        }


@dataclass(slots=True)
class Listing(Result):
    """The outcome of `sawlog ls`."""

    paths: list[str]
    parts: list[ListedPath] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"paths": self.paths, "parts": [part.to_dict() for part in self.parts]}

    def print_to(self, page: Page) -> None:
        for listed in self.parts:
            part = listed.part
            facts = [render_count(len(part.files), "file"), render_size(part.size)]
            if listed.rows is not None:
                facts.append(render_count(listed.rows, "row"))
            facts += [listed.state] if listed.state else []
            style = "bold red" if listed.verdict in (Verdict.DAMAGED, Verdict.INCOMPLETE) or listed.errors else ""
            page.print_line((part.path, "bold"), (f"  {part.title}", "cyan" if part.format else "dim"))
            page.print_line((f"  {', '.join(facts)}", style))
            if listed.error is not None:
                page.print_line((f"  {listed.error}", "red"))
            for remark in listed.remarks:
                page.print_line((f"  warning: {remark}", "yellow"))
            if part.format is None:
                names = ", ".join(file.name for file in part.files[:5])
                page.print_line((f"  {names}{' …' if len(part.files) > 5 else ''}", "dim"))
            for table in listed.tables:
                if table.name:
                    rows = "" if table.rows is None else f", {render_count(table.rows, 'row')}"
                    page.print_line((f"  {table.name}{rows}", ""))
                if table.error is not None:
                    page.print_line((f"  {table.error}", "red"))
                for command in listed.make_commands(table):
                    page.print_line((f"  {command}", "green"))
        formats = {listed.part.format.name for listed in self.parts if listed.part.format is not None}
        page.print_line((f"{render_count(len(self.parts), 'part')}, {render_count(len(formats), 'format')}", "bold"))


def ls(
    paths: arguments.Paths,
    count: Annotated[
        bool, typer.Option("--count", help="Also count the rows of large parts; reads every byte.")
    ] = False,
    option: arguments.ReadOptions = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """List the datasets of a path.

    Format, files, bytes, rows and state of each, and the command that shows its rows.
    """
    place = Storage(arguments.parse_storage_options(storage))
    listing = Listing([os.fspath(path) for path in paths])
    parts = find_parts(place.find(paths), place)
    options = arguments.parse_format_options(option)
    names = {name for part in parts if part.format is not None for name in list_option_names(part.format.read_options)}
    for name in options.keys() - names:
        raise OptionError(
            f"unknown option {name!r}{suggest_name(name, names)}; options of the parts: {', '.join(sorted(names))}"
        )
    with show_progress(sum(part.size for part in parts), "looking") as advance:

        def inspect_part(part: Part) -> ListedPath:
            with divide_progress(part.size, advance) as step:
                return _inspect_part(part, place, options, step if count or part.size <= _COUNTED_BYTES else None)

        looks = map_ordered(parts, wrap_single_step(inspect_part), limit_threads(parts, count_cores()))
        listing.parts += [listed for _, listed in looks]
    show(listing, json=json)
    return Exit.OK


def _inspect_part(part: Part, storage: Storage, options: Mapping[str, Any], advance: Advance | None) -> ListedPath:
    """Open a part, and say what it holds; with a bar, read it. What it warns of is noted with it."""
    listed = ListedPath(part)
    if part.format is None:
        return listed
    own_names = list_option_names(part.format.read_options)
    listed.options = {name: value for name, value in options.items() if name in own_names}
    with collect_warnings() as messages:
        _open(listed, part.format, storage, advance)
    listed.remarks = list(dict.fromkeys(messages))
    return listed


def _open(listed: ListedPath, format: Format, storage: Storage, advance: Advance | None) -> None:
    part = listed.part
    losses = DamageSummary()
    general = {"storage_options": storage, "on_damage": "skip", "is_format_named": True}
    files = DatasetFiles(format, "rows", part.files, part.other_files)
    opened = make_folder_part(files, part.inputs, general, listed.options)
    with _explain_faults(listed):
        dataset = opened.open()
        contents = dataset.contents
        listed.decoders = contents.find_decoders() if isinstance(contents, HasDecoders) else []
        tables = list_distinct_tables(dataset.contents)
        several = [ListedTable(table.title, table.options) for table in tables]
        listed.tables = several if len(several) > 1 else [ListedTable()]
        for table in listed.tables:
            with _explain_faults(table):
                if table.options:
                    dataset = opened.open(**table.options)
                if advance is not None:
                    table.rows = count_rows(dataset.contents, dataset.request, make_recorder(losses, advance))
                    losses.skipped += dataset.skipped
    listed.verdict = losses.verdict
    tails = [report.tail for report in losses.files.values() if report.tail is not None]
    listed.tail = next((tail for tail in tails if tail.status is not TailStatus.CLEAN), None)


@contextmanager
def _explain_faults(listed: ListedPath | ListedTable) -> Iterator[None]:
    """Note why something cannot be read; faults of sawlog's own are raised."""
    try:
        yield
    except Exception as error:
        listed.error = explain(error)
        if listed.error is None or isinstance(error, InternalError):
            raise
