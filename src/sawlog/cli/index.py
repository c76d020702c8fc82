"""`sawlog index`: keep what planning asks of many files in one, so that reads need not ask each."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import Outcome, render_count, show
from sawlog.dataset.index import index as update


def index(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory, glob or fsspec URL of the files.")],
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="The index; _sawlog_index in the directory by default."),
    ] = None,
    format: arguments.FormatName = None,
    statistics: Annotated[
        bool | None,
        typer.Option(
            "--statistics/--no-statistics",
            help="Read files whole, once: filters then leave out files by their smallest and largest values.",
        ),
    ] = None,
    option: arguments.ReadOptions = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Write an index that makes planning fast.

    The index is one file with the answers to all that planning asks of many files; run again, the command looks at
    changed files only. Reads use it by -o index=true, or -o index=FILE.
    """
    done = update(
        path,
        to=output,
        format=format,
        statistics=statistics,
        storage_options=arguments.parse_storage_options(storage),
        **arguments.parse_format_options(option, call=update),
    )
    facts = [("index", done.path), ("looked into", f"{done.read:,}"), ("dropped", f"{done.dropped:,}")]
    show(Outcome(asdict(done), render_count(done.files, "file"), f"of {done.format} in the index", facts), json=json)
    return Exit.OK
