"""The inputs of the fuzzer: input `n` of a seed is the same on every machine."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sawlog.testing import changes, mutations, reading, writing
from sawlog.testing.laws import Complaint, Laws
from sawlog.testing.sample import Mutation, Sample, Span, Subject

Check = Callable[[Subject], Iterable[str]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("any_fragments", reading.check_fragments),
    ("repair", writing.check_repair),
    ("same_counts", reading.check_counts),
    ("same_columns", reading.check_columns),
    ("same_filters", reading.check_filters),
    ("two_threads", reading.check_threads),
)
"""Of these, some inputs go through one; that the commands agree is seen with every input."""

_AGREEMENT: tuple[str, Check] = ("agreed", lambda subject: ())
_TURNS = 4
"""Of so many inputs, one goes through another law, which takes as long as a dozen inputs of which only this is seen."""

_AGREEING = ("agreed", "below_checksums", "bits", "lying_numbers", "splices", "any_bytes")
"""Tests of laws that see whether the verbs agree, of files that are changed in some way."""


def load(name: str) -> type[Laws]:
    """Return the class of laws at `module:class`; modules are found from the current directory, too."""
    sys.path.insert(0, os.getcwd())
    module, _, attribute = name.partition(":")
    laws: type[Laws] = getattr(importlib.import_module(module), attribute or "TestLaws")
    return laws


@dataclass(frozen=True)
class FuzzInputs:
    """The inputs of one seed."""

    laws: type[Laws]
    samples: Sequence[Sample]
    seed: str

    @classmethod
    def of(cls, name: str, seed: str) -> FuzzInputs:
        """Return the inputs for a class of laws at `module:class`."""
        laws = load(name)
        return cls(laws, laws.samples(), f"{name} {seed}")

    def make(self, number: int) -> tuple[Sample, Mutation, tuple[str, Check]]:
        """Return an input, and the law that it is tried on."""
        dice = mutations.make_random(self.seed, number)
        sample = dice.choice(self.samples)
        kinds = [*mutations.ANY, *[kind for kind in self.laws.mutators for _ in range(3)]]
        changing, labels, spans = sample, [], list[Span]()
        for _ in range(dice.choice((1, 1, 2, 3, 4))):
            if not any(changing.content.values()):
                break
            mutation = dice.choice(kinds)(changing, dice)
            labels.append(mutation.label)
            spans += mutation.spans
            files = mutation.files
            changing = replace(changing, files=files[sample.file_name] if isinstance(sample.files, bytes) else files)
        law = dice.choice([check for check in CHECKS if check[0] != "repair" or sample.repaired != "no"])
        law = _AGREEMENT if dice.randrange(_TURNS) else law
        return sample, Mutation("; ".join(labels), changing.content, tuple(spans)), law


def find_complaints(laws: type[Laws], subject: Subject, law: tuple[str, Check]) -> list[tuple[str, str]]:
    """Return the laws that a subject breaks, and how; without what its sample is exempt from."""

    def find_breaches(names: Sequence[str], check: Check) -> Iterator[tuple[str, str]]:
        exempt = [
            exemption
            for exemption in laws.exemptions
            if any(exemption.is_about(name, subject.sample) for name in names)
        ]
        for text in changes.iterate_complaints(check, subject):
            if not any(exemption.excuses(Complaint(text, subject.mutation), subject.sample) for exemption in exempt):
                yield names[0], text.replace(subject.directory, "")

    broken_laws = list(find_breaches(_AGREEING, changes.check_agreement))
    if changes.is_readable(subject):
        broken_laws += find_breaches(law[:1], law[1])
    return broken_laws
