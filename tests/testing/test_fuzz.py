"""The fuzzer: inputs that can be repeated, processes that die, hang and grow, findings by cause."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sawlog import api
from sawlog.dataset import opening
from sawlog.testing import sample
from sawlog.testing.fuzz.__main__ import ProcessWatch, main
from sawlog.testing.fuzz.findings import FindingLog
from sawlog.testing.fuzz.inputs import FuzzInputs

from . import toy

NAME = "tests.testing.faulty:TestLaws"


@pytest.fixture(autouse=True)
def register_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (api, opening):
        monkeypatch.setattr(module, "get_format", lambda _: toy.Toy())


def fuzz(out: Path, *faults: str, monkeypatch: pytest.MonkeyPatch, minutes: float = 0.02) -> tuple[int, dict[str, str]]:
    silence = 0.5 if "sleeps" in faults else 60
    monkeypatch.setenv("TOY_FAULTS", ",".join(faults))
    arguments = ["--minutes", minutes, "--seed", "s", "--jobs", 1, "--silence", silence, "--out", out]
    code = main([NAME, *map(str, arguments)])
    return code, {path.parent.name: path.read_text() for path in (out / "toy").glob("*/README")}


def test_inputs_depend_on_seed_and_number_alone() -> None:
    inputs, again, other_inputs = (FuzzInputs.of(NAME, seed) for seed in ("1", "1", "2"))
    files_made = [inputs.make(n)[1].files for n in range(50)]
    assert files_made == [again.make(n)[1].files for n in range(50)]
    assert files_made != [other_inputs.make(n)[1].files for n in range(50)]
    labels = "; ".join(inputs.make(n)[1].label for n in range(50))
    assert "another record" in labels
    assert "bit " in labels


def test_nothing_is_found_where_nothing_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz(tmp_path, monkeypatch=monkeypatch) == (0, {})
    tried = re.search(r"(\d+) inputs, 0 complaints of 0 kinds", capsys.readouterr().out)
    assert tried is not None
    assert int(tried[1]) > 10


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        ("aborts", "crash: the process died: signal 6"),
        ("sleeps", "hang: nothing for 0 s"),
        ("hungry", "memory: [0-9]+ MiB of memory"),
        ("verify is blind", "agreed: "),
    ],
)
@pytest.mark.nightly
def test_what_is_wrong_is_found_and_can_be_repeated(
    fault: str, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, readmes = fuzz(tmp_path, fault, monkeypatch=monkeypatch, minutes=0.06)
    assert code == 1
    (readme,) = [readme for readme in readmes.values() if re.match(pattern, readme)][:1]
    line = re.search(r"--seed s --number (\d+)", readme)
    assert line is not None
    if fault == "verify is blind":
        toy.FAULTS.add(fault)
        try:
            assert main([NAME, "--seed", "s", "--number", line[1]]) == 1
        finally:
            toy.FAULTS.clear()
        assert "agreed: " in capsys.readouterr().out


class Recorder(FindingLog):
    """Notes the numbers of findings, and stops the fuzzer after some."""

    def __init__(self, directory: Path, limit: int) -> None:
        super().__init__(directory, NAME, "s")
        self.numbers: list[int] = []
        self.limit = limit
        self.scratch = directory / "scratch"
        self.samples: set[Path] = set()
        self.stop = threading.Event()

    def add(self, inputs: FuzzInputs, number: int, law: str, text: str, *, is_made: bool = True) -> bool:
        self.numbers.append(number)
        self.samples.update(self.scratch.rglob("a.toy"))
        if len(self.numbers) == self.limit:
            self.stop.set()
        return super().add(inputs, number, law, text, is_made=is_made)


@pytest.mark.parametrize("fault", ["makes no end", "sleeps"])
def test_an_input_that_hangs_is_tried_once(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is its making that hangs, or its check: the next one is tried after it, and no sample stays."""
    inputs = FuzzInputs.of(NAME, "s")  # before there is a fault: what is watched here must not hang
    monkeypatch.setenv("TOY_FAULTS", fault)
    log = Recorder(tmp_path, 2)
    log.scratch.mkdir()
    monkeypatch.setattr(sample, "SCRATCH", str(log.scratch))
    ProcessWatch(NAME, "s", inputs, log, step=1, silence=0.3, seconds=60, stop=log.stop).run(0)
    assert len(set(log.numbers)) == 2
    assert bool(log.samples) == (fault == "sleeps")
    assert not os.listdir(log.scratch)
    readmes = [path.read_text() for path in tmp_path.glob("*/README")]
    assert all(readme.startswith("hang: nothing for 0 s") for readme in readmes)
    assert any(f"--number {log.numbers[0]}\n" in readme for readme in readmes)


def test_a_process_that_never_begins_ends_the_fuzzer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = FuzzInputs.of(NAME, "s")
    monkeypatch.setenv("TOY_FAULTS", "never begins")
    log = Recorder(tmp_path, 2)
    watch = ProcessWatch(NAME, "s", inputs, log, step=1, silence=0.3, seconds=60, stop=log.stop, starting=0.3)
    with pytest.raises(RuntimeError, match="nothing for 0 s"):
        watch.run(0)
    assert log.numbers == []


def test_a_process_tells_of_each_sample_before_it_begins(tmp_path: Path) -> None:
    """However long all of them take together."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "sawlog.testing.fuzz.worker", NAME, "s", "0", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        messages = [json.loads(line) for line in itertools.islice(process.stdout, 2)]
        process.kill()
    assert messages == [{"sample": FuzzInputs.of(NAME, "s").samples[0].name}, {"ready": True}]


def test_causes_are_told_apart_and_the_smallest_input_is_kept(tmp_path: Path) -> None:
    inputs = FuzzInputs.of(NAME, "1")
    log = FindingLog(tmp_path, NAME, "1")
    sizes = [len(inputs.make(n)[1].files["a.toy"]) for n in range(20)]
    for n in range(20):
        log.add(inputs, n, "agreed", f"/a.toy: damage at byte {n}: skip finds [('/a.toy', {n}, 4, 'bad')], verify []")
    log.add(inputs, 0, "agreed", "IndexError left from walk.py:17 (read): 7")
    assert sorted(log.causes.values()) == [1, 20]
    assert len(list(tmp_path.iterdir())) == 2
    (kept_folder,) = [path for path in tmp_path.iterdir() if "skip finds" in (path / "README").read_text()]
    assert (kept_folder / "a.toy").stat().st_size == min(sizes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.nightly
def test_totals_are_told_as_it_goes_and_when_it_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sawlog.testing.fuzz", NAME, "--minutes", "60", "--every", "0.01", "--jobs", "1"]
    environment = {**os.environ, "TOY_FAULTS": "verify is blind"}
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        matches = (re.search(r": (\d+) inputs, \d+ complaints of \d+ kinds", line) for line in process.stdout)
        assert any(match is not None and int(match[1]) > 20 for match in matches)
        process.send_signal(number)
        last = process.stdout.read()
    assert process.returncode == 1
    assert re.search(r"(?m)inputs, \d+ complaints of \d+ kinds\n +\d+ agreed: ", last)
