"""Drivers are killed in every step of a commit, next to a reader that never stops.

`python -m tests.exactly_once.commits --kills 200`. Each job is a generation of rows. The reader has to see whole
generations only, and the harness, after every kill, the old ones or the new one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sawlog.storage import Storage
from tests.exactly_once.commit_reader import generations

SIDES = {"partitionby": "side"}
DYNAMIC = {**SIDES, "partitionoverwritemode": "dynamic"}
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "append": ("append", {}),
    "append by side": ("append", SIDES),
    "overwrite": ("overwrite", {}),
    "overwrite by side": ("overwrite", SIDES),
    "overwrite sides": ("overwrite", DYNAMIC),
    "stream": ("stream", {}),
    "stream by side": ("stream", SIDES),
    "complete": ("complete", {}),
}
"""What jobs do, and their options."""
REPLACING = ("overwrite", "complete")
TASKS = 5
ROWS = 2 * TASKS


@dataclass
class Tally:
    """What came of a number of kills.

    Attributes:
        kills: How many there were.
        committed: In how many of them the new rows were there already.
        looks: How often the reader looked meanwhile.
        states: Different states that it saw.
        steps: How often a driver was killed at which call.
        faults: What it must not have seen.
    """

    kills: int = 0
    committed: int = 0
    looks: int = 0
    states: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.committed} of them after the new rows were there;"
            f" {self.looks} looks of readers, who saw {self.states} states; {len(self.faults)} faults;"
            f" killed at {', '.join(f'{step} {count}' for step, count in self.steps.most_common())}"
            + "".join(f"\n  {fault}" for fault in self.faults)
        )


class Commits:
    """One directory that jobs are committed to.

    Args:
        root: The directory.
        kind: Of the jobs, one of `KINDS`.
        options: To reach it.
        exchange: Whether the system can exchange directories.
        seed: Of the steps at which drivers are killed.
    """

    def __init__(self, root: str, kind: str, options: dict[str, Any], seed: int, *, exchange: bool = True) -> None:
        self.root, self.options, self.exchange = root, options, exchange
        self.kind, self._own = KINDS[kind]
        self.tally = Tally()
        self._random = random.Random(seed)
        self._generation = 0
        self._visible: list[int] = []
        self._steps = 0

    def run(self, kills: int) -> Tally:
        """Kill drivers, and look after each."""
        with subprocess.Popen(
            [sys.executable, "-m", "tests.exactly_once.commit_jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as self._jobs:
            self._steps = self._commit(None)["steps"]
            reader = self._reader()
            for number in itertools.count():
                if self.tally.kills == kills:
                    break
                # From the first step to the last one, so that few kills find the most different ones.
                share = (self.tally.kills + self._random.random()) / kills
                answer = self._commit(max(1, min(self._steps, int(share * self._steps) + 1)))
                if number % 4 == 3 or not answer["killed"]:
                    self._steps = self._commit(None)["steps"]
            self._commit(None)
            reader.terminate()
            reader.wait()
            self._watching.join()
            assert reader.stdout is not None
            reader.stdout.close()
            assert self._jobs.stdin is not None
            self._jobs.stdin.close()
        staged_paths = Storage(self.options).directories.find_staged_paths(os.path.dirname(self.root), "")
        self.tally.faults += [f"left over: {path}" for path in staged_paths]
        return self.tally

    def _commit(self, kill: int | None) -> dict[str, Any]:
        """Commit the next generation; the harness sees the old ones or the new one afterwards."""
        repeated = self.kind in ("stream", "complete") and self._generation not in self._visible
        self._generation += not (repeated and self._generation)
        request = {
            "root": self.root,
            "kind": self.kind,
            "options": {**self._own, **({"storage_options": json.dumps(self.options)} if self.options else {})},
            "exchange": self.exchange,
            "generation": self._generation,
            "tasks": TASKS,
            "kill": kill,
        }
        assert self._jobs.stdin is not None
        assert self._jobs.stdout is not None
        print(json.dumps(request), file=self._jobs.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._jobs.stdout.readline())
        if answer["code"] and not answer["killed"]:
            self.tally.faults.append(f"generation {self._generation} was not committed: {answer}")
        new = [self._generation] if self.kind in REPLACING else [*self._visible, self._generation]
        visible_counts = generations(self.root, self.options)
        if visible_counts == _make_complete(new):
            self._visible = new
        elif visible_counts != _make_complete(self._visible) or not answer["killed"]:
            self.tally.faults.append(
                f"killed at {kill} of {self._steps}: {visible_counts}, expected {self._visible} or {new}"
            )
        self.tally.kills += answer["killed"]
        self.tally.committed += answer["killed"] and visible_counts == _make_complete(new)
        if answer["killed"]:
            self.tally.steps[answer["step"]] += 1
        return answer

    def _reader(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.exactly_once.commit_reader", self.root, json.dumps(self.options)]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        start_event = threading.Event()

        def watch() -> None:
            assert reader.stdout is not None
            newest: list[int] = []
            for line in reader.stdout:
                ((kind, counts),) = json.loads(line).items()
                if kind == "looks":
                    self.tally.looks += counts
                    continue
                self.tally.states += 1
                start_event.set()
                if kind == "rows":
                    page = sorted(map(int, counts))
                    is_whole = set(counts.values()) == {ROWS} and (len(page) == 1 or self.kind not in REPLACING)
                    if not is_whole or page[-1:] < newest[-1:] or len(page) < len(newest):
                        self.tally.faults.append(f"the reader saw {counts} after {newest}")
                    newest = page
                elif kind == "error":
                    self.tally.faults.append(f"the reader saw {counts}")
                elif self.exchange and not (
                    set(counts.values()) <= {TASKS} and (len(counts) <= 1 or self.kind not in REPLACING)
                ):
                    self.tally.faults.append(f"a listing showed {counts}")

        self._watching = threading.Thread(target=watch)
        self._watching.start()
        start_event.wait(60)
        return reader


def _make_complete(visible: list[int]) -> dict[str, int]:
    return {str(generation): ROWS for generation in sorted(visible)}


def main() -> int:
    from tests.conftest import s3_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory(prefix="commits-") as directory, s3_server() as options:
        places = [
            (f"{place}, {kind}", root, kind, settings, exchange)
            for kind in KINDS
            for place, root, settings, exchange in (
                ("local", f"{directory}/a/{kind.replace(' ', '-')}/out", {}, True),
                ("local without exchange", f"{directory}/b/{kind.replace(' ', '-')}/out", {}, False),
                ("S3", f"s3://logs/{kind.replace(' ', '-')}/out", options, True),
            )
        ]
        for number, (name, root, kind, settings, exchange) in enumerate(places):
            if "://" not in root:
                Path(root).parent.mkdir(parents=True)
            kills = (number + 1) * arguments.kills // len(places) - number * arguments.kills // len(places)
            tally = Commits(root, kind, settings, arguments.seed + number, exchange=exchange).run(kills)
            faults += len(tally.faults)
            print(f"{name}: {tally}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
