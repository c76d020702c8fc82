"""`sawlog info`: what a path holds."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import progress
from sawlog.cli.render import metadata
from sawlog.cli.rendering import rendering
from sawlog.cli.scan import Losses, size_of, told
from sawlog.damage import Tail
from sawlog.format import Dataset, Format
from sawlog.skipped import Skipped
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.map.model import FileMap


@dataclass(slots=True)
class Info:
    """What is known about a path.

    Attributes:
        paths: As they were given.
        format: The format.
        files: The files of the dataset.
        view: The view that `schema` is of.
        schema: Columns of the view.
        facts: What the format itself tells.
        rows: Rows of the view, when they were counted.
        losses: What a count came across.
        skipped: What the path holds and the view does not read.
        strips: Where the bytes of small files went, for a terminal.
    """

    paths: list[str]
    format: Format
    files: list[File]
    view: str
    schema: pa.Schema
    facts: dict[str, Any]
    rows: int | None = None
    losses: Losses = field(default_factory=Losses)
    skipped: list[Skipped] = field(default_factory=list)
    strips: list[FileMap] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def tails(self) -> dict[str, Tail]:
        """How the files end, as far as a count has seen it."""
        return {path: found.tail for path, found in self.losses.files.items() if found.tail is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        document = {
            "paths": self.paths,
            "format": self.format.name,
            "title": self.format.title,
            "size": self.size,
            "files": [{"path": file.path, "size": file.size} for file in self.files],
            "views": dict(self.format.views),
            "view": self.view,
            "schema": [
                {
                    "name": column.name,
                    "type": str(column.type),
                    "nullable": column.nullable,
                    "metadata": metadata(column),
                }
                for column in self.schema
            ],
            "facts": self.facts,
            "skipped": [one.to_dict() for one in self.skipped],
        }
        if self.rows is not None:
            document["rows"] = self.rows
            document["tails"] = {path: asdict(tail) for path, tail in self.tails.items()}
        return document


def info(
    paths: arguments.Paths,
    format: arguments.FormatName = None,
    view: arguments.View = "rows",
    count: Annotated[bool, typer.Option("--count", help="Count the rows; reads every byte.")] = False,
    option: arguments.ReadOptions = None,
    threads: arguments.Threads = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Show format, size, views and columns; reads no more than headers, and small files for a picture in a terminal."""
    dataset = arguments.open_dataset(
        paths,
        format=format,
        view=view,
        storage=arguments.storage_options(storage),
        options=arguments.format_options(option),
        threads=threads,
    )
    found = Info([os.fspath(path) for path in paths], dataset.format, dataset.files, view, dataset.schema, {})
    found.facts = dataset.info()
    found.skipped = dataset.skipped
    if count:
        found.rows = _count(dataset, found.losses)
    if not json and sys.stdout.isatty():
        from sawlog.map.strip import strips

        found.strips = strips(dataset)
    rendering(json).info(found)
    found.losses.tell()
    return Exit.DAMAGED if found.losses.damaged else Exit.OK


def _count(dataset: Dataset, losses: Losses) -> int:
    if dataset.scan.view == "damage":
        return dataset.count_rows()
    with progress(size_of(dataset), "counting") as advance:
        return dataset.count(told(losses, advance))
