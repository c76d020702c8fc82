"""The laws that hold whatever the bytes are, as one assertion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sawlog.testing import changes, reading, writing
from sawlog.testing.laws import Law
from sawlog.testing.outcome import Outcome, examine
from sawlog.testing.sample import Files, Mutation, Sample, placed

_SHOWN = 5


def check(
    sample: Sample, files: bytes | Files | None = None, *, laws: Sequence[Law] | None = None, **options: Any
) -> Outcome:
    """Hold a file, whatever is in it, to the laws that ask nothing of its bytes: that the verbs agree, and some more.

    For tests of particular damage: what is left to them is to say which rows and which damage there should be.

    Args:
        sample: What an intact file looks like, and how it is read.
        files: The bytes of the one file, or of several by their paths; by default those of the sample.
        laws: What else is held up, such as `sawlog.testing.reading.same_columns`; by default fragments of any size,
            and `repair` where the sample can be repaired.
        options: Read options, besides those of the sample.

    Returns:
        What the verbs made of it; `refused` says why, if it was not opened at all.

    Raises:
        AssertionError: When they do not agree, or a law is broken.
    """
    sample = replace(sample, options={**sample.options, **options})
    content = sample.content if files is None else {sample.file_name: files} if isinstance(files, bytes) else files
    if laws is None:
        laws = (reading.any_fragments,) if sample.repaired == "no" else (reading.any_fragments, writing.repaired)
    with placed(sample, Mutation("what is checked", content)) as subject:
        outcome = examine(subject)
        found = list(outcome.complaints)
        if outcome.refused is None:
            found += [text for law in laws for text in changes.watched(law, subject)]
    if found:
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise AssertionError("".join(f"\n  - {one}" for one in found[:_SHOWN]) + more)
    return outcome
