"""`sawlog vacuum`: delete what killed writers have left."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import Outcome, render_count, show
from sawlog.errors import OptionError
from sawlog.storage.vacuum import vacuum as delete
from sawlog.stream.limits import SECONDS


def vacuum(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory that jobs write.")],
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Delete what has not changed for this long, if its process cannot be seen from here: 90m, 12h, 7d.",
        ),
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Delete leftovers of writers that were killed.

    Commits that were cut off are finished. Rows that can be read are never deleted, nor is anything of a process that
    still runs on this machine.
    """
    leftovers = delete(
        path,
        older_than=_parse_seconds(older_than),
        dry_run=dry_run,
        storage_options=arguments.parse_storage_options(storage),
    )
    dead = [leftover for leftover in leftovers if leftover.dead]
    document = {"path": path, "dry_run": dry_run, "leftovers": [asdict(leftover) for leftover in leftovers]}
    summary = f"{'would be ' if dry_run else ''}deleted, {len(leftovers) - len(dead)} kept"
    facts = [
        (leftover.path, f"{render_count(leftover.files, 'file')}, {leftover.size:,} bytes: {leftover.reason}")
        for leftover in leftovers
    ]
    show(Outcome(document, render_count(len(dead), "leftover"), summary, facts), json=json)
    return Exit.OK


def _parse_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise OptionError(f"--older-than {text!r}: expected a number and s, m, h or d, as in 12h")
    return float(match[1]) * SECONDS[match[2]]
