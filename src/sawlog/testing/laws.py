"""The laws as a class of tests; those that hold for any bytes are one assertion, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from sawlog.testing import changes, mutations, reading, removal, storing, writing
from sawlog.testing.outcome import Outcome, examine
from sawlog.testing.sample import Files, Mutation, Sample, Span, Subject, place_sample, put

_SHOWN = 5


class Complaint(NamedTuple):
    """A law that is broken."""

    text: str
    mutation: Mutation | None = None

    def __str__(self) -> str:
        return f"{self.mutation.label}: {self.text}" if self.mutation is not None else self.text


@dataclass(frozen=True)
class Exemption:
    """A sentence that a format cannot keep.

    Attributes:
        law: The test that breaks, without `test_`.
        reason: Why, in the words of the format's page in the documentation, which must hold them.
        samples: Names of the samples that it is about; of all if there are none.
        spans: The bytes that it is about, when they are changed; all bytes if there are none.
        told: A regular expression for the complaints that it is about; all if it is empty.
        fuzzed: Whether only changes below checksums meet it, those of `mutators`: then no test needs it.
    """

    law: str
    reason: str
    samples: Sequence[str] = ()
    spans: Sequence[Span] = ()
    told: str = ""
    fuzzed: bool = False

    def is_about(self, law: str, sample: Sample) -> bool:
        """Return whether it is about a law and a sample."""
        return self.law == law and (not self.samples or sample.name in self.samples)

    def excuses(self, complaint: Complaint, sample: Sample) -> bool:
        """Return whether it is about what was changed, and what was said of it."""
        if self.told and not re.search(self.told, str(complaint)):
            return False
        if not self.spans:
            return True
        mutation = complaint.mutation
        return mutation is not None and not mutations.has_span_outside(mutation.spans, self.spans, sample)


Law = Callable[[Subject], Iterable[str]]


class Laws:
    """The laws that every format keeps. A format's test module derives a class from this one, and hands over samples.

    Each test is run for each sample. A test that fails names the sample and, where bytes were changed, the change:
    `mutations` makes it again.

    Attributes:
        exemptions: Sentences that the format cannot keep. Each must be in `page`, and must be needed.
        page: The format's page of documentation; needed where there are exemptions.
        mutators: Changes that know the format: below lengths and checksums, which they make good again.
    """

    exemptions: ClassVar[Sequence[Exemption]] = ()
    page: ClassVar[Path | None] = None
    mutators: ClassVar[Sequence[mutations.Mutator]] = ()

    def __init_subclass__(cls) -> None:
        """Have samples made once, however many tests there are."""
        own_samples: Any = vars(cls).get("samples")
        if own_samples is not None:
            cls.samples = classmethod(cache(own_samples.__func__))  # type: ignore[arg-type, assignment, method-assign]

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        """Return the samples: intact, small, of every view, dialect and codec."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Run each test, by Pytest's hook, for each sample that it concerns."""
        if "sample" not in metafunc.fixturenames:
            return
        import pytest

        concerned = getattr(metafunc.function, "concerns", lambda _: True)
        rows = [pytest.param(sample, id=sample.name) for sample in self.samples() if concerned(sample)]
        metafunc.parametrize("sample", rows)

    def judge(self, law: str, sample: Sample, complaints: Iterable[Complaint]) -> None:
        """Fail with what is not exempt, and with exemptions that nothing needs."""
        applicable = [exemption for exemption in self.exemptions if exemption.is_about(law, sample)]
        used_exemptions: set[int] = set()
        broken = []
        for complaint in complaints:
            excusing = [n for n, exemption in enumerate(applicable) if exemption.excuses(complaint, sample)]
            used_exemptions.update(excusing)
            if not excusing:
                broken.append(complaint)
        if broken:
            text = "".join(f"\n  - {complaint}" for complaint in broken[:_SHOWN])
            omission = f"\n  and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
            raise AssertionError(f"law {law}, sample {sample.name}: broken {len(broken)} times:{text}{omission}")
        stale = [
            exemption.reason
            for n, exemption in enumerate(applicable)
            if n not in used_exemptions and not exemption.fuzzed
        ]
        if stale and mutations.EFFORT >= 1:
            raise AssertionError(f"law {law}, sample {sample.name}: exemptions that nothing needs: {stale}")

    def check_intact(self, law: str, sample: Sample, check: Law) -> None:
        """Check the sample as it is."""
        with place_sample(sample) as subject:
            self.judge(law, sample, map(Complaint, changes.iterate_complaints(check, subject)))

    def check_changed(self, law: str, sample: Sample, kinds: Iterable[Mutation], check: Law) -> None:
        """Check the sample in changed copies."""
        self.judge(law, sample, _check_each(sample, kinds, check))

    # Law 1

    def test_any_fragments(self, sample: Sample) -> None:
        """Fragments of any task size, pickled, deliver what one fragment delivers, of intact and of damaged files."""
        self.check_changed(
            "any_fragments", sample, _choose_with_intact(sample, 16), _skip_refused(reading.check_fragments)
        )

    def test_two_threads(self, sample: Sample) -> None:
        """Two threads that read fragments get what one gets."""
        self.check_changed("two_threads", sample, _choose_with_intact(sample, 4), _skip_refused(reading.check_threads))

    # Law 2

    def test_same_counts(self, sample: Sample) -> None:
        """`count_rows`, `head`, tables and the Arrow stream agree."""
        self.check_changed("same_counts", sample, _choose_with_intact(sample, 8), _skip_refused(reading.check_counts))

    def test_same_columns(self, sample: Sample) -> None:
        """Columns are the same one by one and together; rows say where they come from."""
        self.check_changed("same_columns", sample, _choose_with_intact(sample, 4), _skip_refused(reading.check_columns))

    def test_projection(self, sample: Sample) -> None:
        """The rows, and the findings, do not depend on the columns that are asked for."""
        self.check_changed(
            "projection", sample, _choose_with_intact(sample, 16), _skip_refused(reading.check_projection)
        )

    def test_same_filters(self, sample: Sample) -> None:
        """Filters are exact."""
        self.check_changed("same_filters", sample, _choose_with_intact(sample, 4), _skip_refused(reading.check_filters))

    # Laws 3, 4, 5 and 9

    def test_intact(self, sample: Sample) -> None:
        """The sample is clean, to all verbs, and holds the rows that it should."""
        self.check_intact("intact", sample, changes.check_sample)

    def test_every_header_bit(self, sample: Sample) -> None:
        """No bit of a header or length can be changed without the same number of rows, or a word about it."""
        with place_sample(sample) as subject:
            check = changes.Reported(subject, turns=5)
        self.check_changed("every_header_bit", sample, mutations.flip_header_bits(sample), check)

    def test_bits(self, sample: Sample) -> None:
        """Bits changed anywhere: the verbs agree, and under checksums no row is made up or lost in silence."""
        with place_sample(sample) as subject:
            check = changes.Reported(subject) if sample.checked else changes.check_agreement
        self.check_changed("bits", sample, mutations.choose_mutations(sample, 60, mutations.any_bit), check)

    def test_lying_numbers(self, sample: Sample) -> None:
        """Lengths and counts that lie: the verbs agree, and work and memory follow the bytes."""
        self.check_changed(
            "lying_numbers", sample, mutations.choose_mutations(sample, 40, mutations.any_word), changes.check_frugality
        )

    def test_cuts(self, sample: Sample) -> None:
        """At any length at which a file ends, there are a prefix and a tail, or damage."""
        with place_sample(sample) as subject:
            check = changes.Prefix(subject, turns=4)
        self.check_changed("cuts", sample, mutations.cuts(sample, 150), check)

    def test_splices(self, sample: Sample) -> None:
        """Ranges lost, doubled, moved and overwritten: the verbs agree, and under checksums no row is made up."""
        with place_sample(sample) as subject:
            check = changes.Subsequence(subject) if sample.checked else changes.check_agreement
        self.check_changed("splices", sample, mutations.choose_mutations(sample, 40, mutations.any_splice), check)

    def test_any_bytes(self, sample: Sample) -> None:
        """Files of anything."""
        self.check_changed(
            "any_bytes", sample, mutations.choose_mutations(sample, 30, mutations.any_bytes), changes.check_agreement
        )

    def test_below_checksums(self, sample: Sample) -> None:
        """Changes below lengths and checksums, which the format's mutators make good again: the verbs agree."""
        kinds = mutations.choose_mutations(sample, 12, *self.mutators) if self.mutators else ()
        self.check_changed("below_checksums", sample, kinds, changes.check_agreement)

    def test_linear_work(self, sample: Sample) -> None:
        """Four times the records, intact or every one damaged, take four times the bytes looked at."""
        self.judge("linear_work", sample, map(Complaint, changes.check_linear_work(sample)))

    # Law 6

    def test_repair(self, sample: Sample) -> None:
        """A repaired file is clean, holds what `skip` delivers, and is repaired into itself."""
        self.check_changed("repair", sample, _choose_with_intact(sample, 32), _skip_refused(writing.check_repair))

    # Law 7

    def test_follow(self, sample: Sample) -> None:
        """A file that grows gives, in any number of looks, what one read gives in the end."""
        self.check_intact("follow", sample, writing.check_following)

    def test_follow_damaged(self, sample: Sample) -> None:
        """Of a damaged file that grows, everything intact arrives, whenever one looks."""
        chosen_mutations = mutations.choose_mutations(sample, 16, mutations.any_bit, mutations.any_splice)
        self.check_changed("follow_damaged", sample, chosen_mutations, _skip_refused(writing.check_following))

    # Law 8

    def test_write_and_read_back(self, sample: Sample) -> None:
        """Written rows are read back; the same bytes are written again; rows that cannot be written are refused."""
        self.check_intact("write_and_read_back", sample, writing.check_writing)

    # Law 9

    def test_stores(self, sample: Sample) -> None:
        """A store that fails, answers wrongly or changes gives all rows, or an error that says so."""
        self.check_intact("stores", sample, partial(storing.check_stores, self.samples()))

    # Law 10

    def test_removal(self, sample: Sample) -> None:
        """Files that are gone, emptied, cut or of an earlier state: the verdict is not clean, or all rows are there."""
        with place_sample(sample) as subject:
            check = removal.Whole(subject, turns=16)
        self.check_changed("removal", sample, removal.iterate_removals(sample), check)

    # What is exempt

    def test_exemptions_are_documented(self) -> None:
        """The format's page says what cannot be kept, and why."""
        if self.exemptions:
            text = " ".join(self.page.read_text("utf-8").split()) if self.page is not None else ""
            missing = [
                exemption.reason for exemption in self.exemptions if " ".join(exemption.reason.split()) not in text
            ]
            if missing:
                raise AssertionError(f"{self.page} does not say: {missing}")

    test_removal.concerns = lambda sample: not isinstance(sample.files, bytes)  # type: ignore[attr-defined]
    test_linear_work.concerns = lambda sample: sample.body is not None  # type: ignore[attr-defined]
    test_repair.concerns = lambda sample: sample.repaired != "no"  # type: ignore[attr-defined]
    test_follow_damaged.concerns = lambda sample: sample.grows  # type: ignore[attr-defined]
    test_follow.concerns = lambda sample: sample.grows  # type: ignore[attr-defined]
    test_write_and_read_back.concerns = lambda sample: sample.written is not None  # type: ignore[attr-defined]
    test_every_header_bit.concerns = lambda sample: bool(sample.headers)  # type: ignore[attr-defined]


def _check_each(sample: Sample, kinds: Iterable[Mutation], check: Law) -> Iterator[Complaint]:
    with place_sample(sample) as intact:
        present_files = intact.files
        for mutation in kinds:
            put(
                intact.directory,
                {name: data for name, data in mutation.files.items() if present_files.get(name) != data},
            )
            for name in present_files.keys() - mutation.files.keys():
                Path(intact.directory, name).unlink()
            present_files = mutation.files
            for text in changes.iterate_complaints(check, replace(intact, files=mutation.files, mutation=mutation)):
                yield Complaint(text.replace(intact.directory, ""), mutation)


def _choose_with_intact(sample: Sample, count: int) -> Iterator[Mutation]:
    yield Mutation("intact", sample.content)
    yield from mutations.choose_mutations(sample, count, *mutations.ANY)


def _skip_refused(check: Law) -> Law:
    """Return the law for readable files: those that no verb opens have nothing to compare, and are for other laws."""

    def check_readable(subject: Subject) -> Iterator[str]:
        if changes.is_readable(subject):
            yield from changes.iterate_complaints(check, subject)

    return check_readable


def check(
    sample: Sample, files: bytes | Files | None = None, *, laws: Sequence[Law] | None = None, **options: Any
) -> Outcome:
    """Check the laws that hold for any file, whatever is in it: that the commands agree, and some more.

    For tests of particular damage: what is left to them is to say which rows and which damage there should be.

    Args:
        sample: What an intact file looks like, and how it is read.
        files: The bytes of the one file, or of several by their paths; by default those of the sample.
        laws: What else is held up, such as `sawlog.testing.reading.check_columns`; by default fragments of any size,
            and `repair` where the sample can be repaired.
        options: Read options, besides those of the sample.

    Returns:
        What the commands made of it; `refused` says why, if it was not opened at all.

    Raises:
        AssertionError: When they do not agree, or a law is broken.
    """
    sample = replace(sample, options={**sample.options, **options})
    content = sample.content if files is None else {sample.file_name: files} if isinstance(files, bytes) else files
    if laws is None:
        laws = (
            (reading.check_fragments,) if sample.repaired == "no" else (reading.check_fragments, writing.check_repair)
        )
    with place_sample(sample, Mutation("what is checked", content)) as subject:
        outcome = examine(subject)
        problems = list(outcome.complaints)
        if outcome.refused is None:
            problems += [text for law in laws for text in changes.iterate_complaints(law, subject)]
    if problems:
        omission = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise AssertionError("".join(f"\n  - {problem}" for problem in problems[:_SHOWN]) + omission)
    return outcome
