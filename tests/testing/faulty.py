"""The toy with the faults that the environment names, for processes of the fuzzer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sawlog import api
from sawlog.testing import Sample
from sawlog.testing.mutations import change_file
from testing import toy
from testing.test_suite import SAMPLE, ToyLaws

api.get_format = lambda _: toy.Toy()
toy.FAULTS.update(filter(None, os.environ.get("TOY_FAULTS", "").split(",")))


def below(sample: Sample, dice: object) -> object:
    return change_file(sample, "a.toy", toy.record(b"below \xff\x7f\x80"), "another record")


class TestLaws(ToyLaws):
    mutators = (below,)

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [SAMPLE]
