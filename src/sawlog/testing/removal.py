"""Law 10: files that are gone, emptied, cut or of an earlier state: a word about it, or all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sawlog.format.damage import Verdict
from sawlog.testing.changes import Compared
from sawlog.testing.mutations import EFFORT, change_file, count_changes, cut, make_random
from sawlog.testing.sample import Mutation, Sample, Span, Subject

_EVERY_LENGTH_BYTES = 256
"""Bytes of files that are cut at every length."""
_SAMPLED_LENGTHS = 24
"""Lengths at which larger files are cut."""


def iterate_removals(sample: Sample) -> Iterator[Mutation]:
    """Yield each file of a sample taken away, emptied, cut, and replaced by that of an earlier state.

    With less effort, small files are cut at as large a share of their lengths.
    """
    for name, data in sample.content.items():
        other_files = {other_name: content for other_name, content in sample.content.items() if other_name != name}
        yield Mutation(f"without {name}", other_files, (Span(0, len(data), name),))
        if data:
            yield change_file(sample, name, b"", "nothing", Span(0, len(data), name))
        for length in _choose_lengths(sample, name):
            yield cut(sample, name, length)
        for number, state in enumerate(sample.earlier):
            if state.get(name, data) != data:
                yield change_file(
                    sample, name, state[name], f"that of earlier state {number} instead", Span(0, 0, name)
                )


def _choose_lengths(sample: Sample, name: str) -> list[int]:
    """Return lengths at which a file is cut."""
    size = len(sample.content[name])
    count = (
        count_changes(sample, size - 1)
        if size <= _EVERY_LENGTH_BYTES and EFFORT < 1
        else _EVERY_LENGTH_BYTES
        if size <= _EVERY_LENGTH_BYTES
        else 0
    )
    count = count or count_changes(sample, _SAMPLED_LENGTHS)
    lengths = range(1, size)
    return (
        list(lengths)
        if count >= len(lengths)
        else sorted(make_random(sample.name, name, "removals").sample(lengths, count))
    )


class Whole(Compared):
    """The verdict is not clean, or the rows are those of the whole.

    A tail that a writer has begun counts as a word: it says that something is missing at the end of that file.
    """

    def __call__(self, subject: Subject) -> list[str]:
        outcome = self.examine(subject)
        if outcome.refused is not None or outcome.verdict is not Verdict.CLEAN:
            return outcome.complaints
        if any(report.tail.unfinished for report in outcome.reports):
            return outcome.complaints
        truth, rows = Counter(self.truth.rows), Counter(outcome.rows)
        missing, extra = truth - rows, rows - truth
        if not missing and not extra:
            return outcome.complaints
        text = (
            f"{missing.total()} of {len(self.truth.rows)} rows are missing, {extra.total()} are new, and all is clean"
        )
        return [*outcome.complaints, text]
