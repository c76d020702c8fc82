"""The toy with the faults that the environment names, for processes of the fuzzer."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from sawlog import api
from sawlog.dataset import opening
from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import change_file
from testing import toy
from testing.test_suite import SAMPLE, ToyLaws

for module in (api, opening):
    module.get_format = lambda _: toy.Toy()  # type: ignore[attr-defined]
toy.FAULTS.update(filter(None, os.environ.get("TOY_FAULTS", "").split(",")))


def below(sample: Sample, dice: Random) -> Mutation:
    if "makes no end" in toy.FAULTS and dice.random() < 0.5:
        time.sleep(60)
    return change_file(sample, "a.toy", toy.record(b"below \xff\x7f\x80"), "another record")


class TestLaws(ToyLaws):
    mutators = (below,)

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        if "never begins" in toy.FAULTS:
            time.sleep(60)
        return [SAMPLE]
