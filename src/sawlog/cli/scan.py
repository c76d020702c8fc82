"""Rows of a dataset on their way to a verb, and the ledger of what did not make it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.cli.errors import complain
from sawlog.cli.output import Advance, watched
from sawlog.damage import Findings
from sawlog.format import Dataset, Fragment
from sawlog.skipped import Skipped, remarks

if TYPE_CHECKING:
    from collections.abc import Iterable

PIECE_BYTES = 16 << 20
"""Input bytes between two steps of a progress bar."""


class Losses:
    """What scans left out, per file.

    Attributes:
        files: Damage and tails of the files that were read.
        skipped: Files that were not.
    """

    def __init__(self, skipped: Iterable[Skipped] = ()) -> None:
        self.files: dict[str, Findings] = {}
        self.skipped = list(skipped)

    def add(self, path: str, findings: Findings) -> None:
        """Take in the findings of one fragment."""
        known = self.files.setdefault(path, Findings("skip"))
        known.account.add(findings.account)
        known.kinds += findings.kinds
        known.tail = findings.tail or known.tail

    @property
    def damaged(self) -> bool:
        """Whether damage was skipped."""
        return any(findings.kinds for findings in self.files.values())

    def tell(self) -> None:
        """One line per file with damage or an unfinished tail, and one per reason why others were not read."""
        for remark in remarks(self.skipped):
            complain(f"warning: {remark}")
        for path, findings in self.files.items():
            for remark in findings.remarks(path):
                complain(f"warning: {remark}")


def pieces(dataset: Dataset) -> Iterable[Fragment]:
    """The fragments of a dataset: as few as possible, unless somebody watches the progress."""
    return dataset.plan(PIECE_BYTES if watched() else None)


def rows(dataset: Dataset, losses: Losses, advance: Advance) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a dataset; what is left out is entered into `losses`."""
    for fragment in pieces(dataset):
        findings = Findings(dataset.scan.on_damage)
        try:
            yield from fragment.to_batches(findings)
        finally:
            losses.add(fragment.path, findings)
        advance(fragment.size)


def size_of(dataset: Dataset) -> int:
    """Bytes of all files."""
    return sum(file.size for file in dataset.files)
