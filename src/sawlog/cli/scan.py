"""Rows of a dataset on their way to a command, and the ledger of what did not make it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Advance, can_show_progress
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.scanning import read_rows
from sawlog.format.contract import Fragment
from sawlog.format.damage import (
    Findings,
    HasVerdict,
    Skipped,
    Verdict,
    count_findings,
    describe_losses,
    describe_skipped,
    merge_findings,
)
from sawlog.storage.workers import PIECE_BYTES


def choose_exit_code(verdicts: Iterable[Verdict]) -> Exit:
    """Return the exit code of the worst of some verdicts."""
    present = set(verdicts)
    if present - {Verdict.CLEAN, Verdict.UNSUPPORTED}:
        return Exit.DAMAGED
    return Exit.UNSUPPORTED if Verdict.UNSUPPORTED in present else Exit.OK


class DamageSummary(HasVerdict):
    """Summary of what scans left out, per file."""

    def __init__(self, skipped: Iterable[Skipped] = ()) -> None:
        self.files: dict[str, Findings] = {}
        self.skipped = list(skipped)

    def add(self, fragment: Fragment, findings: Findings) -> None:
        """Take in the findings of one fragment."""
        merge_findings(self.files.setdefault(fragment.about, Findings("skip")), findings)

    def count(self, verdict: Verdict) -> int:
        return count_findings((findings.kinds for findings in self.files.values()), self.skipped, verdict)

    @property
    def code(self) -> Exit:
        """The exit code of a command that shows what it can read."""
        return choose_exit_code([self.verdict])

    def report(self) -> None:
        """Report a line per file with damage or an unfinished tail, and one per reason why others were not read."""
        for remark in describe_skipped(self.skipped):
            complain(f"warning: {remark}")
        for path, findings in self.files.items():
            for remark in describe_losses(findings, path):
                complain(f"warning: {remark}")


def read_dataset_rows(dataset: Dataset, losses: DamageSummary, advance: Advance) -> Iterator[pa.RecordBatch]:
    """Return the rows of a dataset; what is left out is entered into `losses`."""
    done = make_recorder(losses, advance)
    return read_rows(dataset.contents, dataset.request, done, PIECE_BYTES if can_show_progress() else None)


def make_recorder(losses: DamageSummary, advance: Advance) -> Callable[[Fragment, Findings], None]:
    """Return a function that enters the findings of a fragment into `losses`, and moves the bar."""

    def record_findings(fragment: Fragment, findings: Findings) -> None:
        losses.add(fragment, findings)
        advance(fragment.size)

    return record_findings


@contextmanager
def divide_progress(size: int, advance: Advance) -> Iterator[Advance]:
    """Yield the advance of one of several parts that a bar is for: its bytes in all, however it counts them itself."""
    remainder = size

    def advance_part(done: int) -> None:
        nonlocal remainder
        done = min(done, remainder)
        remainder -= done
        advance(done)

    try:
        yield advance_part
    finally:
        advance(remainder)


def count_bytes(dataset: Dataset) -> int:
    """Return the number of bytes of all files."""
    return sum(file.size for file in dataset.files)
