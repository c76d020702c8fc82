"""Laws 3, 4, 5 and 9: what the verbs say of files that were changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator

from sawlog.errors import FormatError
from sawlog.format.contract import Match
from sawlog.format.damage import TailStatus
from sawlog.guard import is_system_error
from sawlog.storage import File
from sawlog.testing.counting import SPARE_MEMORY, count_work, measure_memory
from sawlog.testing.mutations import count_changes, make_random
from sawlog.testing.outcome import (
    Outcome,
    allow_refusal,
    examine,
    explain,
    is_subsequence,
    open_subject,
    read_rows,
    render_rows,
)
from sawlog.testing.sample import Mutation, Sample, Span, Subject, place_sample

_MAX_PASSES = 16
"""How often a verb may look at every byte, on average."""
_SPARE_BYTES = 1 << 16
"""Bytes that it may look at besides."""


_TEXT = b"plain text\n" * 100
_SMALL_FILE_BYTES = 1 << 16
"""Bytes of the smaller of two files that are compared."""


def is_readable(subject: Subject) -> bool:
    """Return whether the path is opened at all."""
    with warnings.catch_warnings(), allow_refusal():
        warnings.simplefilter("ignore")
        open_subject(subject, on_damage="skip")
        return True
    return False


def iterate_complaints(check: Callable[[Subject], Iterable[str]], subject: Subject) -> Iterator[str]:
    """Yield complaints of a check; exceptions that leave a verb are complaints too, but that nothing reads the path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield from check(subject)
        except AssertionError:
            raise
        except FormatError as error:
            if examine(subject, every_verb=False).refused is None:
                yield explain(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            if not is_system_error(error):
                yield explain(error)


def check_agreement(subject: Subject) -> list[str]:
    """Return complaints where verbs disagree."""
    return examine(subject).complaints


def check_sample(subject: Subject) -> list[str]:
    """Return complaints about a sample that is not intact, whole, and what it is said to be."""
    outcome = examine(subject)
    problems = list(outcome.complaints)
    if outcome.refused is not None:
        problems.append(f"refused: {outcome.refused}")
    elif open_subject(subject).format.match(File("text", len(_TEXT)), _TEXT) >= Match.CONTENT:
        problems.append("a text of nobody's format is recognised by its content")
    problems += [f"damaged: {place}" for place in outcome.damages]
    problems += [f"{report.path}: {report.tail}" for report in outcome.reports if report.tail.unfinished]
    if subject.sample.rows is not None and outcome.rows != render_rows(subject.sample.rows):
        problems.append(f"expected {len(render_rows(subject.sample.rows))} rows, found {len(outcome.rows)}, or others")
    return problems


class Compared:
    """A sample as it is, to compare changed ones with.

    Args:
        intact: The sample as it is.
        turns: Of so many changes, one is read with every verb, the others with `skip` and `verify`.
    """

    def __init__(self, intact: Subject, turns: int = 1) -> None:
        self._turns = turns
        self._checks = 0
        self.truth: Outcome = examine(intact)
        if self.truth.refused is not None:
            raise AssertionError(f"the sample itself is refused: {self.truth.refused}")
        self.words = self.truth.collect_words()

    def examine(self, subject: Subject) -> Outcome:
        """Return the outcome of a changed sample under the verbs whose turn it is."""
        self._checks += 1
        return examine(subject, every_verb=self._checks % self._turns == 0)


class Reported(Compared):
    """Law 5: the same rows, or a word about it. Under checksums equal rows, else as many."""

    def __call__(self, subject: Subject) -> list[str]:
        outcome = self.examine(subject)
        problems = list(outcome.complaints)
        rows, truth = outcome.rows, self.truth.rows
        if outcome.refused is None and outcome.collect_words() <= self.words:
            if len(rows) != len(truth):
                problems.append(f"{len(rows)} rows instead of {len(truth)}, and not a word")
            elif subject.sample.checked and rows != truth:
                problems.append("other rows, and not a word")
        if subject.sample.checked and not is_subsequence(rows, truth):
            problems.append("rows that were not there, under checksums")
        return problems


class Subsequence(Compared):
    """Law 4: what `skip` delivers is a subsequence of the truth. Rows may come twice where bytes do."""

    def __call__(self, subject: Subject) -> list[str]:
        outcome = examine(subject)
        unknown = set(outcome.rows) - set(self.truth.rows)
        return [*outcome.complaints, *(f"a row that was not there, under checksums: {row}" for row in unknown)]


class Prefix(Compared):
    """Law 4: a file that ends early gives a prefix and a tail, or damage."""

    def __call__(self, subject: Subject) -> list[str]:
        outcome = self.examine(subject)
        problems = list(outcome.complaints)
        if outcome.refused is not None or not subject.sample.ordered or len(subject.files) > 1:
            return problems
        rows, truth = outcome.rows, self.truth.rows
        if rows != truth[: len(rows)] and not (outcome.damages and is_subsequence(rows, truth)):
            problems.append(f"the {len(rows)} rows are no prefix")
        (report,) = outcome.reports
        if report.tail.status is TailStatus.CLEAN and not outcome.damages and report.tail.length:
            problems.append(f"a clean tail of {report.tail.length} bytes")
        if len(rows) == len(truth) and outcome.damages:
            problems.append("damage, where all rows are whole")
        return problems


def check_linear_work(sample: Sample) -> Iterator[str]:
    """Yield complaints where the bytes looked at grow faster than the file, whatever is wrong with it."""
    place = sample.body if isinstance(sample.body, Span) else Span(sample.body or 0, 0)
    name = sample.find_file(place)
    data = sample.content[name]
    head, body = data[: place.offset], data[place.offset :]
    dice = make_random(sample.format, sample.name, "linear")
    flipped = [None, 0, *(dice.randrange(len(body)) for _ in range(count_changes(sample, 4)))]
    for position in flipped:
        part = bytearray(body)
        if position is not None:
            part[position] ^= 0xFF
        for view in (sample.view, "damage"):
            byte_counts = []
            for size in (_SMALL_FILE_BYTES, 4 * _SMALL_FILE_BYTES):
                content = head + bytes(part) * -(-size // len(part))
                with place_sample(sample, Mutation("repeated", {**sample.content, name: content})) as subject:
                    byte_counts.append(_count_read_bytes(subject, view))
            if byte_counts[1] > 5 * byte_counts[0] + _SPARE_BYTES:
                sizes = f"{_SMALL_FILE_BYTES} and {4 * _SMALL_FILE_BYTES}"
                yield f"byte {position} of every copy changed, {view}: looked at {byte_counts} bytes of {sizes}"


def _count_read_bytes(subject: Subject, view: str) -> int:
    """Return the number of bytes that a read of a view looks at; 0 where the path is refused."""
    with warnings.catch_warnings(), allow_refusal():
        warnings.simplefilter("ignore")
        dataset, work = count_work(open_subject(subject, on_damage="skip", view=view))
        for batch in dataset.to_batches():
            del batch
        dataset.count_rows()
        return work.bytes
    return 0


def check_frugality(subject: Subject) -> list[str]:
    """Return complaints where verbs disagree, read more bytes than there are, or take more memory than these justify.

    Memory is measured of a read and of a check: the other verbs do what these do, and to trace costs more than to read.
    """
    size = sum(map(len, subject.files.values()))
    problems = examine(subject).complaints
    with warnings.catch_warnings(), allow_refusal(), measure_memory() as memory:
        warnings.simplefilter("ignore")
        dataset, work = count_work(open_subject(subject, on_damage="skip"))
        read_rows(dataset)
        looked = work.bytes
        for _ in dataset.verify():
            pass
        if looked > _MAX_PASSES * size + _SPARE_BYTES:
            problems.append(f"looked at {looked} bytes of {size}")
    if memory.peak > 2 * size + SPARE_MEMORY:
        problems.append(f"{memory.peak} bytes of memory for {size} bytes of input")
    return problems
