"""`sawlog verify`: check every byte."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain, explain
from sawlog.cli.output import progress, watched
from sawlog.cli.rendering import rendering
from sawlog.cli.scan import size_of
from sawlog.damage import Account, FileReport, Report
from sawlog.format import Dataset
from sawlog.reading import PIECE_BYTES


@dataclass(slots=True)
class VerifiedPath:
    """One path: its report, or why there is none."""

    path: str
    report: Report | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        if self.report is None:
            return {"path": self.path, "error": self.error}
        return {"path": self.path, **self.report.to_dict()}


@dataclass(slots=True)
class Verified:
    """The outcome of `sawlog verify`.

    Attributes:
        paths: In the order they were given.
        every: Whether every damage is to be shown.
    """

    paths: list[VerifiedPath]
    every: bool

    @property
    def files(self) -> list[FileReport]:
        """The reports of all files."""
        return [file for path in self.paths if path.report is not None for file in path.report.files]

    @property
    def account(self) -> Account:
        """Bytes by use, over all files."""
        return Account.sum(file.account for file in self.files)

    @property
    def code(self) -> Exit:
        """Exit code: the worst of all paths."""
        if any(path.report is None for path in self.paths):
            return Exit.UNUSABLE
        return Exit.DAMAGED if any(file.damaged for file in self.files) else Exit.OK

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "damaged": any(file.damaged for file in self.files),
            "rows": sum(file.rows for file in self.files),
            "bytes": asdict(self.account),
            "paths": [path.to_dict() for path in self.paths],
        }


def verify(
    paths: arguments.Paths,
    every: Annotated[bool, typer.Option("--all", help="List every damage, not the first ones only.")] = False,
    view: arguments.View = "rows",
    format: arguments.FormatName = None,
    option: arguments.ReadOptions = None,
    threads: arguments.Threads = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Check every byte, and with a view what the bytes mean to it.

    Exit code 0 clean, 1 damaged, 2 unusable.
    """
    opened = functools.partial(
        sawlog.open,
        format=format,
        view=view,
        on_damage="skip",
        use_threads=True if threads is None else threads,
        storage_options=arguments.storage_options(storage),
        **arguments.format_options(option),
    )
    verified = Verified([_verify(path, opened, every) for path in paths], every)
    rendering(json).verified(verified)
    for path in verified.paths:
        if path.error is not None:
            complain(path.error)
    return verified.code


def _verify(path: str, opened: Callable[..., Dataset], every: bool) -> VerifiedPath:
    try:
        dataset = opened(path)
        with progress(size_of(dataset), f"verifying {path}") as advance:
            files = list(dataset.verify(PIECE_BYTES if watched() else None, advance, every=every))
        return VerifiedPath(path, Report(dataset.format.name, files, dataset.skipped))
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        return VerifiedPath(path, error=message)
