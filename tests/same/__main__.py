"""Compare the tree with a release: `python -m tests.same --release PYTHON`, where PYTHON has the release installed.

Both observe the samples of the laws, as they are and changed. Differences that `expected.py` lists are counted by
reason; every other one is printed with its path and both answers. The wording of messages is free, but not the file,
the kind and the place of damage that they begin with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import sawlog
from sawlog.testing.fuzz.inputs import FuzzInputs
from sawlog.testing.sample import Mutation, Sample, Subject, make_scratch, put

from .expected import EXPECTED, MISSING, Difference

OBSERVER = Path(__file__).with_name("observe.py")
MAX_SHOWN = 3
"""Differences of a kind that are printed whole."""
PROSE = re.compile(r"/(?:message|detail|reason|error|stderr|views/\w+|warnings/\d+)$")
"""Places of texts."""
FIXED = re.compile(r"(?:sawlog: )?(\w+Warning: )?(/\S*: )?(\w+ at byte \d+ \(\d+ bytes\))?")
"""What a text begins with that is more than wording."""


def subjects(root: Path, formats: Sequence[str], seed: str, count: int) -> Iterator[dict[str, Any]]:
    """Samples of every format put under a directory, as they are, and `count` changed ones of each format."""
    for name in formats:
        inputs = FuzzInputs.of(f"tests.{name}.test_laws:TestLaws", seed)
        intact = [(sample, Mutation("intact", sample.content)) for sample in inputs.samples]
        changed = [inputs.make(number)[:2] for number in range(count)]
        for number, (sample, mutation) in enumerate([*intact, *changed]):
            yield subject(root / name / str(number), sample, mutation)


def subject(directory: Path, sample: Sample, mutation: Mutation) -> dict[str, Any]:
    """One line of the work list, whose files are put into a directory."""
    put(str(directory), mutation.files)
    placed = Subject(sample, str(directory), mutation.files, mutation)
    subject_fields: dict[str, Any] = {
        "id": f"{sample.format} {sample.name}: {mutation.label}",
        "directory": placed.directory,
        "path": placed.path,
        "format": sample.format,
        "view": sample.view,
        "options": placed.options,
        "grows": sample.grows,
    }
    if sample.written is not None and mutation.label == "intact":
        subject_fields["table"] = f"{directory}.arrow"
        subject_fields["write_options"] = dict(sample.write_options)
        with pa.OSFile(subject_fields["table"], "wb") as sink, pa.ipc.new_file(sink, sample.written.schema) as writer:
            writer.write_table(sample.written)
    return subject_fields


def compare(expected: Any, new_value: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Places in two answers that differ. What the tree says in addition, under a key of its own, is no difference."""
    if isinstance(expected, dict) and isinstance(new_value, dict):
        for key, value in expected.items():
            yield from compare(value, new_value.get(key, MISSING), f"{place}/{key}")
    elif isinstance(expected, list) and isinstance(new_value, list) and len(expected) == len(new_value):
        for number, (old, new) in enumerate(zip(expected, new_value, strict=True)):
            yield from compare(old, new, f"{place}/{number}")
    elif expected != new_value and not reworded(expected, new_value, place):
        yield place, expected, new_value


def reworded(expected: Any, new_value: Any, place: str) -> bool:
    """Whether two texts say the same of the same place in other words."""
    if not (isinstance(expected, str) and isinstance(new_value, str) and PROSE.search(place)):
        return False
    old, new = FIXED.match(expected), FIXED.match(new_value)
    return old is not None and new is not None and bool(expected) == bool(new_value) and old.groups() == new.groups()


def main() -> int:
    """Print the differences: 0 where there are none."""
    parser = argparse.ArgumentParser("python -m tests.same", description=__doc__)
    parser.add_argument("--release", required=True, help="the Python that has the release installed")
    parser.add_argument("--format", nargs="+", default=sorted(sawlog.formats()), help="all by default")
    parser.add_argument("--count", type=int, default=100, help="changed samples of each format")
    parser.add_argument("--seed", default="1", help="any text: the same inputs for the same text")
    arguments = parser.parse_args()
    formats = [name for name in arguments.format if Path("tests", name, "test_laws.py").exists()]
    with make_scratch() as name:
        root = Path(name)
        work = root / "work.jsonl"
        listed = list(subjects(root, formats, arguments.seed, arguments.count))
        work.write_text("".join(json.dumps(subject_fields) + "\n" for subject_fields in listed), "utf-8")
        expected, observations = observe([arguments.release, sys.executable], work)
    return report([row["id"] for row in listed], expected, observations)


def observe(pythons: Sequence[str], work: Path) -> list[list[dict[str, Any]]]:
    """The answers of several installations, which observe at the same time."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    running = []
    for number, python in enumerate(pythons):
        out = work.with_name(f"{number}.jsonl").open("w+", encoding="utf-8")
        environment_used = environment if number == 0 else dict(os.environ)
        running.append((subprocess.Popen([python, str(OBSERVER), str(work)], stdout=out, env=environment_used), out))
    answers = []
    for process, out in running:
        process.wait()
        out.seek(0)
        answers.append([json.loads(line) for line in out if line.endswith("\n")])
        out.close()
    return answers


def report(ids: Sequence[str], expected: Sequence[dict[str, Any]], observations: Sequence[dict[str, Any]]) -> int:
    """Print how many differences are meant, and those that are not: the first of each kind whole."""
    intended: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for number, name in enumerate(ids):
        if number >= min(len(expected), len(observations)):
            print(
                f"the release answered {len(expected)} of {len(ids)} inputs, the tree {len(observations)}; next: {name}"
            )
            return 1
        release, tree = expected[number]["seen"], observations[number]["seen"]
        for key, old, new in compare(release, tree):
            difference = Difference(name, key, old, new, release, tree)
            reason = next((listed.why for listed in EXPECTED if listed.covers(difference)), None)
            if reason is not None:
                intended[reason] += 1
                continue
            kind = re.sub(r"/\d+", "/*", f"{name.split()[0]}: {key}")
            kinds[kind] += 1
            if kinds[kind] <= MAX_SHOWN:
                print(f"{name}\n  {key}\n  - {json.dumps(old)}\n  + {json.dumps(new)}")
    for title, counts in (("meant", intended), ("not explained", kinds)):
        for kind, count in counts.most_common():
            print(f"{count:6} {title}: {kind}")
    print(f"{len(ids)} inputs, {kinds.total()} differences that are not explained")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
