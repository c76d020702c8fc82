"""`sawlog verify`: check every byte."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain, explain
from sawlog.cli.output import (
    Advance,
    Page,
    can_show_progress,
    describe_account,
    describe_tail,
    render_count,
    render_size,
    show,
    show_progress,
)
from sawlog.cli.scan import choose_exit_code, divide_progress
from sawlog.dataset.folder import Folder, FolderPart, open_folder, report
from sawlog.errors import InternalError, UnsupportedError
from sawlog.format.damage import Account, FileReport, HasVerdict, Report, Verdict
from sawlog.format.recognition import load_formats
from sawlog.storage.workers import PIECE_BYTES

_STYLES = {
    Verdict.CLEAN: "green",
    Verdict.DAMAGED: "bold red",
    Verdict.INCOMPLETE: "bold red",
    Verdict.UNSUPPORTED: "bold yellow",
}


@dataclass(slots=True)
class _VerifiedPath:
    """Verified path: its report, or why there is none."""

    path: str
    report: Report | None = None
    error: str | None = None
    unsupported: bool = False
    """Whether it is refused because all of it is of a kind that this version does not know."""

    def to_dict(self) -> dict[str, Any]:
        if self.report is None:
            return {"path": self.path, "error": self.error}
        return {"path": self.path, **self.report.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each part of the path."""
        if self.report is None or not self.report.parts:
            return [self.to_dict()]
        missed = [{"path": part.path, "error": part.reason} for part in self.report.own_skipped if part.missed]
        return [*({"path": report.path, **report.to_dict()} for report in self.report.parts), *missed]


@dataclass(slots=True)
class _VerifyOutcome(HasVerdict):
    """The outcome of `sawlog verify`.

    Attributes:
        paths: In the order they were given.
        show_all: Whether every damage is to be shown.
    """

    paths: list[_VerifiedPath]
    show_all: bool

    @property
    def files(self) -> list[FileReport]:
        return [file for path in self.paths if path.report is not None for file in path.report.files]

    @property
    def account(self) -> Account:
        """Bytes by use, over all files."""
        return Account.sum(file.account for file in self.files)

    def count(self, verdict: Verdict) -> int:
        return sum(path.report.count(verdict) for path in self.paths if path.report is not None)

    @property
    def code(self) -> Exit:
        """Exit code: the worst of all paths."""
        if any(path.report is None and not path.unsupported for path in self.paths):
            return Exit.UNUSABLE
        return choose_exit_code([self.verdict, *(Verdict.UNSUPPORTED for path in self.paths if path.unsupported)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "damaged": self.damaged,
            "incomplete": self.incomplete,
            "unsupported": self.unsupported,
            "rows": sum(file.rows for file in self.files),
            "bytes": asdict(self.account),
            "paths": [part for path in self.paths for part in path.to_dicts()],
        }

    def print_to(self, page: Page) -> None:
        files, account = self.files, self.account
        verdicts = Counter(file.verdict for file in files)
        margin = page.measure_margin(verdicts, page.file_margin)
        for path in self.paths:
            if path.report is not None:
                self._print_report(page, path.report, margin)
        if not files:
            return
        datasets = sum(max(1, len(path.report.parts)) for path in self.paths if path.report is not None)
        inside = f" in {datasets} parts" if datasets > len(self.paths) else ""
        parts = [
            f"{render_count(len(files), 'file')}{inside}: {verdicts[Verdict.CLEAN]} clean",
            render_count(sum(file.rows for file in files), "row"),
            f"{account.damage:,} of {account.total:,} bytes damaged",
        ]
        parts[0] += f", {verdicts[Verdict.DAMAGED]} damaged"
        if verdicts[Verdict.INCOMPLETE]:
            parts[0] += f", {verdicts[Verdict.INCOMPLETE]} incomplete"
        if self.unsupported:
            parts[0] += f", {verdicts[Verdict.UNSUPPORTED]} unsupported"
            parts.append(f"{account.unsupported:,} bytes unsupported")
        if unfinished := sum(file.tail.unfinished for file in files):
            parts.append(render_count(unfinished, "unfinished tail"))
        if unusable := sum(path.report is None for path in self.paths):
            parts.append(f"{render_count(unusable, 'path')} unusable")
        page.print_line(("; ".join(parts), "bold"))

    def _print_report(self, page: Page, report: Report, margin: int) -> None:
        for part in report.parts or [report]:
            if part.path:
                page.print_line((part.path, "bold"), (f"  {load_formats()[part.format].title}", "cyan"))
            for file in part.files:
                self._print_file(page, file, margin)
            page.print_skipped(part.skipped)
            page.print_facts([("rescue", part.rescue)] if part.rescue else [])
        page.print_skipped(report.own_skipped if report.parts else ())

    def _print_file(self, page: Page, file: FileReport, margin: int) -> None:
        size = f"  {render_count(file.rows, 'row')}, {render_size(file.size)}"
        page.print_line((page.pad_text(file.verdict, margin), _STYLES[file.verdict]), (file.path, "bold"), (size, ""))
        page.print_line((f"{'':<{margin}}{describe_account(file.account)}; tail {describe_tail(file.tail)}", ""))
        if file.notes:
            notes = ", ".join(f"{note.replace('_', ' ')} {count:,}" for note, count in sorted(file.notes.items()))
            page.print_line((f"{'':<{margin}}notes: {notes}", "yellow"))
        page.print_damage(file.damages, sum(file.kinds.values()), margin, show_all=self.show_all)


def verify(
    paths: arguments.Paths,
    *,
    show_all: Annotated[bool, typer.Option("--all", help="List every damage, not the first ones only.")] = False,
    view: arguments.View = "rows",
    format: arguments.FormatName = None,
    reading: arguments.Reading,
    json: arguments.Json = False,
) -> int:
    """Check every byte for damage.

    With a view, also what the bytes mean to it. Exit code 0 clean, 1 damaged or incomplete, 2 unusable, 4 unsupported
    in part.
    """
    opened = functools.partial(open_folder, format=format, view=view, on_damage="skip", **reading.collect_settings())
    verified = _VerifyOutcome([_verify(path, opened, show_all) for path in paths], show_all)
    show(verified, json=json)
    for path in verified.paths:
        if path.error is not None:
            complain(path.error)
    return verified.code


def _verify(path: str, opened: Callable[..., Folder], show_all: bool) -> _VerifiedPath:
    try:
        folder = opened(path)
        with show_progress(folder.size, f"verifying {path}") as advance:
            return _VerifiedPath(path, report(folder, functools.partial(_report, show_all=show_all, advance=advance)))
    except Exception as error:
        message = explain(error)
        if message is None or isinstance(error, InternalError):
            raise
        return _VerifiedPath(path, error=message, unsupported=isinstance(error, UnsupportedError))


def _report(part: FolderPart, *, show_all: bool, advance: Advance) -> Report:
    with divide_progress(part.size, advance) as step:
        return part.open().report(PIECE_BYTES if can_show_progress() else None, step, every=show_all)
