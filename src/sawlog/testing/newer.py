"""The law of what is newer: a number that names a version or a kind, raised to one that nobody knows, is unsupported.

It is no damage, since nothing is known to be wrong, and not clean, since rows may be missing. What it cannot touch is
still read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from sawlog.errors import UnsupportedError
from sawlog.format.damage import UNSUPPORTED
from sawlog.testing.outcome import Outcome, examine
from sawlog.testing.sample import Files, Mutation, Sample, place_sample


@dataclass(frozen=True)
class Newer:
    """A sample in which one number is raised, with checksums that match.

    Attributes:
        number: What the number says.
        sample: The sample as it is.
        files: The changed files, by their paths; the others stay.
        told: What the finding must say.
        rows: The fewest rows that are still read.
    """

    number: str
    sample: Sample
    files: Files
    told: str
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.sample.format}: {self.number}"

    def find_complaints(self) -> list[str]:
        """Return how the law is broken; nothing where it is kept."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with place_sample(self.sample) as subject:
                truth = examine(subject)
            with place_sample(self.sample, Mutation(self.number, {**self.sample.content, **self.files})) as subject:
                outcome = examine(subject)
        messages = [damage.detail for report in outcome.reports for damage in report.damages]
        messages += [outcome.refused] if outcome.refused is not None else []
        problems = [*outcome.complaints, *self._judge(outcome)]
        if not any(self.told in message for message in messages):
            problems.append(f"nothing says {self.told!r}: {messages[:3]}")
        new_rows = set(outcome.rows) - set(truth.rows)
        if new_rows:
            problems.append(f"{len(new_rows)} rows that were not there")
        if len(outcome.rows) < self.rows:
            problems.append(f"{len(outcome.rows)} rows are read, {self.rows} could be")
        return problems

    def _judge(self, outcome: Outcome) -> Iterator[str]:
        if outcome.refused is not None:
            if not outcome.refused.startswith(UnsupportedError.__name__):
                yield f"refused, but not as unsupported: {outcome.refused}"
            return
        kinds = {place.kind for place in outcome.damages}
        if kinds != {UNSUPPORTED}:
            yield f"expected {UNSUPPORTED}, found {', '.join(sorted(kinds)) or 'a clean file'}"
