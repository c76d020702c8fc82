"""A process of the fuzzer: it names the input that it is about to try, tries it, and prints its findings."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from itertools import cycle
from typing import IO, Any

from sawlog.testing.counting import SPARE_MEMORY
from sawlog.testing.fuzz.inputs import CHECKS, Check, FuzzInputs, find_complaints
from sawlog.testing.sample import Mutation, Sample, place_sample

_SPARE_MEMORY = 4 << 30
"""Address space beyond what a process has when it begins: a machine must survive what is looked for."""


def run(inputs: FuzzInputs, first: int, step: int, out: IO[str]) -> None:
    """Try every `step`th input from the `first`, until somebody ends the process."""
    for sample, law in zip(inputs.samples, cycle(CHECKS)):  # load what is loaded once
        _try(inputs, sample, Mutation("nothing", sample.content), law)
        _send(out, sample=sample.name)
    _confine()
    _send(out, ready=True)
    number = first
    while True:
        _send(out, making=number)
        sample, mutation, law = inputs.make(number)
        _send(out, number=number)
        began = time.perf_counter()
        before = _measure_resident(reset=True)
        broken_laws = _try(inputs, sample, mutation, law)
        grown = _measure_resident() - before
        size = sum(map(len, mutation.files.values()))
        if grown > 2 * size + SPARE_MEMORY:
            broken_laws.append(("memory", f"{grown >> 20} MiB of memory"))
        _send(out, number=number, found=broken_laws, seconds=time.perf_counter() - began)
        number += step


def _try(inputs: FuzzInputs, sample: Sample, mutation: Mutation, law: tuple[str, Check]) -> list[tuple[str, str]]:
    with place_sample(sample, mutation) as subject:
        return find_complaints(inputs.laws, subject, law)


def _send(out: IO[str], **message: Any) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _confine() -> None:
    """Let the process not grow without bounds."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _SPARE_MEMORY, size + _SPARE_MEMORY))


def _measure_resident(*, reset: bool = False) -> int:
    """Return the most memory that was resident since the last reset; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        if reset:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    run(FuzzInputs.of(sys.argv[1], sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.stdout)
