"""What verbs say: results on stdout, for people or for programs; remarks and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sawlog.cli.convert import Conversion
    from sawlog.cli.formats import FormatCard
    from sawlog.cli.info import Info
    from sawlog.cli.init import Created
    from sawlog.cli.repair import Repaired
    from sawlog.cli.run import Planned
    from sawlog.cli.verify import Verified
    from sawlog.cli.warm_up import Warmed
    from sawlog.pipeline.progress import BatchReport
    from sawlog.pipeline.run import Totals

PATIENCE = 1.0
"""Seconds that work has to last before a progress bar appears."""

Advance = Callable[[int], None]
"""Called with the input bytes that have been worked off."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a format's own verb did.

    Attributes:
        document: Plain data for JSON.
        amount: What it was about, such as `12 rows`.
        summary: The rest of the first line.
        facts: Names and values, a line each.
    """

    document: dict[str, Any]
    amount: str
    summary: str
    facts: Sequence[tuple[str, str]] = ()


class Output(ABC):
    """Where a verb puts its result. Every verb has one method here, and so both renderings."""

    @abstractmethod
    def info(self, info: Info) -> None:
        """What `sawlog info` found."""

    @abstractmethod
    def verified(self, verified: Verified) -> None:
        """What `sawlog verify` found."""

    @abstractmethod
    def repaired(self, repaired: Repaired) -> None:
        """What `sawlog repair` kept and lost."""

    @abstractmethod
    def converted(self, conversion: Conversion) -> None:
        """What `sawlog convert` wrote."""

    @abstractmethod
    def formats(self, cards: list[FormatCard]) -> None:
        """What is known about formats."""

    @abstractmethod
    def warmed(self, warmed: Warmed) -> None:
        """What `sawlog warm-up` compiled."""

    @abstractmethod
    def created(self, created: Created) -> None:
        """What `sawlog init` wrote."""

    @abstractmethod
    def planned(self, planned: Planned) -> None:
        """What `sawlog run --dry-run` would do."""

    @abstractmethod
    def done(self, outcome: Outcome) -> None:
        """What a format's own verb did."""

    def batch(self, report: BatchReport) -> None:
        """A batch of `sawlog run`: one line."""
        self._tell(report.to_dict())

    def ended(self, totals: Totals) -> None:
        """The end of `sawlog run`: one line."""
        self._tell(totals.to_dict())

    @abstractmethod
    def _tell(self, event: dict[str, Any]) -> None:
        """One line of a log, at once."""


class JsonOutput(Output):
    """One JSON object on stdout."""

    def info(self, info: Info) -> None:
        """See `Output.info`."""
        self._print(info.to_dict())

    def verified(self, verified: Verified) -> None:
        """See `Output.verified`."""
        self._print(verified.to_dict())

    def repaired(self, repaired: Repaired) -> None:
        """See `Output.repaired`."""
        self._print(repaired.to_dict())

    def converted(self, conversion: Conversion) -> None:
        """See `Output.converted`."""
        self._print(conversion.to_dict())

    def formats(self, cards: list[FormatCard]) -> None:
        """See `Output.formats`."""
        self._print({"formats": [card.to_dict() for card in cards]})

    def done(self, outcome: Outcome) -> None:
        """See `Output.done`."""
        self._print(outcome.document)

    def warmed(self, warmed: Warmed) -> None:
        """See `Output.warmed`."""
        self._print(warmed.to_dict())

    def created(self, created: Created) -> None:
        """See `Output.created`."""
        self._print(created.to_dict())

    def planned(self, planned: Planned) -> None:
        """See `Output.planned`."""
        self._print(planned.to_dict())

    def _tell(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    def _print(self, document: dict[str, Any]) -> None:
        # ASCII only: file names may be no valid UTF-8, and a terminal may not either.
        sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")


def counted(count: int, what: str) -> str:
    """A number and its noun."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def watched() -> bool:
    """Whether somebody may see a progress bar: stderr is a terminal that rows are not being printed on."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def progress(total: int, label: str) -> Iterator[Advance]:
    """A progress bar on stderr: on a terminal only, and only for work that takes longer than `PATIENCE`.

    Args:
        total: Input bytes; 0 for no bar.
        label: What is being done.
    """
    if not (total and watched()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(label, total=total)
    begun = time.monotonic()

    def advance(size: int) -> None:
        bar.advance(task, size)
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
