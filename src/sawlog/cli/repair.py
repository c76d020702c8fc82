"""`sawlog repair`: keep everything intact."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Page, describe_account, describe_tail, refuse_terminal, render_count, show
from sawlog.errors import OptionError
from sawlog.format.damage import Account, Report, TailStatus, Verdict, describe_places
from sawlog.storage.staging import STDOUT


@dataclass(slots=True)
class _RepairOutcome:
    """The outcome of `sawlog repair`: the report on the source, whose rows are what was written."""

    source: str
    destination: str
    report: Report

    @property
    def code(self) -> Exit:
        """0 everything kept, 3 something lost, 1 nothing recovered. An unfinished tail was never a record."""
        report = self.report
        if not report.rows and (report.damaged or report.incomplete or report.account.tail):
            return Exit.DAMAGED
        is_kept = report.verdict is Verdict.CLEAN or (report.verdict is Verdict.UNSUPPORTED and self.has_unsupported)
        return Exit.OK if is_kept else Exit.LOST

    @property
    def has_unsupported(self) -> bool:
        """Whether the copy has all bytes of the source that this version does not support."""
        return 0 < self.report.account.unsupported <= self.report.unsupported_in_copy

    @property
    def outcome(self) -> str:
        """The exit code in words."""
        if self.code is Exit.OK and self.report.remarks:
            return "everything kept, what is damaged in meaning included"
        if self.code is Exit.OK and self.has_unsupported:
            return "everything kept, what this version does not support included"
        return {Exit.OK: "everything kept", Exit.LOST: "something lost"}.get(self.code, "nothing recovered")

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            "outcome": self.outcome,
            **self.report.to_dict(),
        }

    def print_to(self, page: Page) -> None:
        files = self.report.files
        for file in files:
            if len(files) > 1:
                page.print_line((file.path, "bold"))
            count = sum(file.kinds.values())
            tail = [] if file.tail.status is TailStatus.CLEAN else [("tail", describe_tail(file.tail))]
            page.print_facts([*self._list_facts(file.rows, file.account, file.count(Verdict.DAMAGED)), *tail])
            page.print_damage(file.damages, count)
        if len(files) > 1:
            page.print_line((f"all {len(files)} files", "bold"))
            count = sum(file.count(Verdict.DAMAGED) for file in files)
            page.print_facts(self._list_facts(self.report.rows, self.report.account, count))
        page.print_facts(("meaning", f"{remark.path}: {remark.text}") for remark in self.report.remarks)
        page.print_skipped(self.report.skipped)
        page.print_line((self.outcome, "bold"), (f"; written to {self.destination}", ""))

    def _list_facts(self, rows: int, account: Account, damages: int) -> list[tuple[str, str]]:
        losses = describe_places(damages) if damages else "nothing"
        if account.damage:
            losses = f"{account.damage:,} bytes in {render_count(damages, 'damaged range')}"
        facts = [("kept", f"{render_count(rows, 'row')}, {account.record:,} bytes"), ("lost", losses)]
        if account.unsupported:
            label = "unchanged" if self.has_unsupported else "left out"
            facts.append((label, f"{account.unsupported:,} bytes that this version does not support"))
        return [*facts, ("source", f"{account.total:,} bytes: {describe_account(account)}")]


def repair(
    src: Annotated[str, typer.Argument(metavar="SRC", help="File or directory; it is not changed.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="New file, or directory for the files of a directory.")],
    *,
    format: arguments.FormatName = None,
    no_clobber: arguments.NoClobber = False,
    reading: arguments.Reading,
    json: arguments.Json = False,
) -> int:
    """Copy everything intact to a new file.

    Exit code 0 everything kept, 1 nothing recovered, 3 something lost.
    """
    check_apart(src, dst)
    refuse_terminal(dst, "what is repaired")
    report = sawlog.repair(
        src,
        dst,
        format=format,
        mode="error" if no_clobber else "overwrite",
        **reading.collect_settings(call=sawlog.repair),
    )
    repaired = _RepairOutcome(src, dst, report)
    if dst in STDOUT:
        complain(f"{repaired.outcome}, {render_count(report.rows, 'row')}")
    else:
        show(repaired, json=json)
    return repaired.code


def check_apart(src: str, dst: str) -> None:
    """Refuse to overwrite a source.

    Raises:
        OptionError: When both are the same, be it by way of links.
    """
    if os.path.exists(src) and os.path.exists(dst) and os.path.samefile(src, dst):
        raise OptionError(f"{dst}: that is the source, which is never changed; name another destination")
