"""`sawlog ls`: what a path holds, part by part."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.errors import Exit, explain
from sawlog.cli.output import Page, counted, progress, show, size_text, tail_text
from sawlog.cli.scan import DamageSummary, recorded, size_of
from sawlog.damage import Tail, TailStatus
from sawlog.dataset import count_rows
from sawlog.errors import InternalError
from sawlog.recognition import Part, parts
from sawlog.storage import Storage

COUNTED_BYTES = 8 << 20
"""Parts up to this size are read to count their rows, where nothing else is asked for."""


@dataclass(slots=True)
class Listed:
    """One part of a path.

    Attributes:
        part: Its files and its format.
        rows: How many rows it has; `None` where that was not looked at.
        tail: The first of its files that is not finished, if any was seen.
        damaged: Whether damage was seen.
        unsupported: Whether something was seen that this version does not support.
        error: Why it could not be read.
        decoders: Views that decode what an application has put into the rows.
    """

    part: Part
    rows: int | None = None
    tail: Tail | None = None
    damaged: bool = False
    unsupported: bool = False
    error: str | None = None
    decoders: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        """What shows the rows, and what decodes them further."""
        command = self.part.command
        return [command, *(f"{command} --view {name}" for name in self.decoders)] if command else []

    @property
    def state(self) -> str:
        """What a look at its bytes has shown, in a few words."""
        if self.error is not None:
            return "not readable"
        if self.damaged:
            return "damaged"
        if self.unsupported:
            return "in part unsupported"
        if self.tail is not None:
            return f"tail {tail_text(self.tail)}"
        return "" if self.rows is None else "clean"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        part = self.part
        return {
            "path": part.path,
            "format": part.format.name if part.format is not None else None,
            "files": [{"path": file.path, "size": file.size} for file in part.files],
            "size": part.size,
            "rows": self.rows,
            "state": self.state or None,
            "error": self.error,
            "command": part.command or None,
            "decoders": self.decoders,
        }


@dataclass(slots=True)
class Listing:
    """The outcome of `sawlog ls`."""

    paths: list[str]
    parts: list[Listed] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"paths": self.paths, "parts": [one.to_dict() for one in self.parts]}

    def print_to(self, page: Page) -> None:
        """Text for people."""
        for one in self.parts:
            part = one.part
            facts = [counted(len(part.files), "file"), size_text(part.size)]
            if one.rows is not None:
                facts.append(counted(one.rows, "row"))
            facts += [one.state] if one.state else []
            style = "bold red" if one.damaged or one.error is not None else ""
            page.line((part.path, "bold"), (f"  {part.title}", "cyan" if part.format else "dim"))
            page.line((f"  {', '.join(facts)}", style))
            if one.error is not None:
                page.line((f"  {one.error}", "red"))
            if part.format is None:
                names = ", ".join(file.name for file in part.files[:5])
                page.line((f"  {names}{' …' if len(part.files) > 5 else ''}", "dim"))
            else:
                for command in one.commands:
                    page.line((f"  {command}", "green"))
        known = {one.part.format.name for one in self.parts if one.part.format is not None}
        page.line((f"{counted(len(self.parts), 'part')}, {counted(len(known), 'format')}", "bold"))


def ls(
    paths: arguments.Paths,
    count: Annotated[
        bool, typer.Option("--count", help="Count the rows of large parts, too; reads every byte.")
    ] = False,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Show what a path holds, part by part: format, files, bytes, rows, state, and the command that shows its rows."""
    place = Storage(arguments.storage_options(storage))
    listing = Listing([os.fspath(path) for path in paths])
    for part in parts(place.find(paths), place):
        listing.parts.append(_look(part, place) if count or part.size <= COUNTED_BYTES else Listed(part))
    show(listing, json=json)
    return Exit.OK


def _look(part: Part, storage: Storage) -> Listed:
    """Read a part, and say what it holds."""
    found = Listed(part)
    if part.format is None:
        return found
    losses = DamageSummary()
    try:
        dataset = sawlog.open(part.path, format=part.format.name, on_damage="skip", storage_options=storage)
        with progress(size_of(dataset), f"counting {part.path}") as advance:
            found.rows = count_rows(dataset, recorded(losses, advance))
        found.decoders = dataset.contents.decoders()
    except Exception as error:
        found.error = explain(error)
        if found.error is None or isinstance(error, InternalError):
            raise
        return found
    found.damaged, found.unsupported = losses.damaged, losses.unsupported
    tails = [one.tail for one in losses.files.values() if one.tail is not None]
    found.tail = next((tail for tail in tails if tail.status is not TailStatus.CLEAN), None)
    return found
