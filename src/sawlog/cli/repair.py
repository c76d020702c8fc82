"""`sawlog repair`: keep everything intact."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.rendering import rendering
from sawlog.damage import Report
from sawlog.errors import OptionError


@dataclass(slots=True)
class Repaired:
    """The outcome of `sawlog repair`: the report on the source, whose rows are what was written."""

    source: str
    destination: str
    report: Report

    @property
    def code(self) -> Exit:
        """0 everything kept, 3 something lost, 1 nothing recovered. An unfinished tail was never a record."""
        if not self.report.rows and (self.report.damaged or self.report.account.tail):
            return Exit.DAMAGED
        return Exit.LOST if self.report.damaged else Exit.OK

    @property
    def outcome(self) -> str:
        """The exit code in words."""
        return {Exit.OK: "everything kept", Exit.LOST: "something lost"}.get(self.code, "nothing recovered")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "source": self.source,
            "destination": self.destination,
            "outcome": self.outcome,
            **self.report.to_dict(),
        }


def repair(
    src: Annotated[str, typer.Argument(metavar="SRC", help="File or directory; it is not changed.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="New file, or directory for the files of a directory.")],
    format: arguments.FormatName = None,
    option: arguments.ReadOptions = None,
    no_clobber: arguments.NoClobber = False,
    threads: arguments.Threads = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Write everything intact to a new file.

    Exit code 0 everything kept, 3 something lost, 1 nothing recovered.
    """
    check_apart(src, dst)
    report = sawlog.repair(
        src,
        dst,
        format=format,
        mode="error" if no_clobber else "overwrite",
        use_threads=True if threads is None else threads,
        storage_options=arguments.storage_options(storage),
        **arguments.format_options(option),
    )
    repaired = Repaired(src, dst, report)
    rendering(json).repaired(repaired)
    return repaired.code


def check_apart(src: str, dst: str) -> None:
    """See to it that a source is not overwritten.

    Raises:
        OptionError: When both are the same, be it by way of links.
    """
    if os.path.exists(src) and os.path.exists(dst) and os.path.samefile(src, dst):
        raise OptionError(f"{dst}: that is the source, which is never changed; name another destination")
