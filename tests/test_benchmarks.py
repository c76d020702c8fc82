"""Ratios, and how they get into the documents."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import report, threads
from benchmarks.__main__ import BENCHMARKS
from benchmarks.harness import Case, Settings, Side, lines, run_case

CASE = {
    "name": "read",
    "what": "records into Arrow",
    "per": "bytes",
    "cores": 1,
    "headline": True,
    "sides": [
        {"name": "sawlog", "bytes": 1000, "rows": 10, "note": "", "seconds": [1.0, 2.0, 3.0]},
        {"name": "slow", "bytes": 100, "rows": 1, "note": "objects", "seconds": [5.0, 4.0, 6.0]},
    ],
}
RESULT = {
    "benchmark": "some_log",
    "made": "2026-01-01",
    "environment": {"cpu": "a cpu", "cores": "2", "system": "Linux", "python": "3.11"},
    "settings": {"size": 1000, "big": 0, "repeat": 3},
    "cases": [CASE],
    "probes": [{"name": "memory", "what": "peak memory", "unit": "MB", "numbers": {"resident": 230.0}}],
}


def test_sides_are_compared_per_byte() -> None:
    ours, slow = lines(CASE)
    assert (ours.ratio_best, ours.ratio_median) == (1, 1)
    assert slow.ratio_best == pytest.approx(40)
    assert slow.ratio_median == pytest.approx(25)
    assert ours.rows == 10


@pytest.mark.nightly
def test_sides_run_in_turns_and_warm_up_is_not_measured(tmp_path: Path) -> None:
    from rich.console import Console

    order: list[str] = []
    sides = tuple(Side(name, lambda name=name: order.append(name), 1, 1) for name in "AB")
    result = run_case(Case("c", "w", sides), Settings(1, 1, 2, "", tmp_path, tmp_path), Console(quiet=True))
    assert "".join(order) == "ABABAB"
    assert [len(side["seconds"]) for side in result["sides"]] == [2, 2]


def test_results_appear_on_their_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "docs").mkdir()
    places = [tmp_path / "docs" / name for name in ("performance.md", "measurements.md")]
    for place in places:
        place.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nbehind\n")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "RESULTS", results)
    report.main()
    assert all(report.UNMEASURED in place.read_text() for place in places)
    (results / "some_log.json").write_text(json.dumps(RESULT))
    report.main()
    summary, page = (place.read_text() for place in places)
    assert "40.00 x slow" in summary
    assert "230 MB" in summary
    assert "| resident | 230 |" in page
    assert "| slow | 4.000 s | 5.000 s |" in page
    assert "- slow: objects" in page
    assert page.startswith("before\n")
    assert page.endswith("\nbehind\n")
    assert "old" not in page
    picture = ET.parse(tmp_path / "docs/images/speed.svg").getroot()
    assert "slow" in ["".join(one.itertext()) for one in picture.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks_find_what_they_use(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").cases


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("threads", "threads_"),
        ("deephaven_table", ""),
        ("leveldb_table", ""),
        ("stores", ""),
        ("small_questions", ""),
    ],
)
def test_benchmarks_run(name: str, only: str, tmp_path: Path) -> None:
    """With tiny sizes; those that need other peers than the tests do are not among them, and of Spark one is."""
    options = [
        "--size",
        "200kB",
        "--big",
        "400kB",
        "--repeat",
        "1",
        "--only",
        only,
        "--dir",
        tmp_path,
        "--out",
        tmp_path,
    ]
    command = [sys.executable, "-m", "benchmarks", name, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads((tmp_path / f"{name}.json").read_text())["cases"]
    assert cases
    assert all(len(side["seconds"]) == 1 for case in cases for side in case["sides"])


@pytest.mark.nightly
def test_a_call_of_every_kernel_is_found(tmp_path: Path) -> None:
    """It fails with the names of kernels that nothing calls."""
    script = "import sys, pathlib, benchmarks.kernel_calls as c; c.recorded(pathlib.Path(sys.argv[1]), 1000)"
    env = {**os.environ, "SAWLOG_KERNELS": "jit"}
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_threads_gain_is_told_beside_one_thread() -> None:
    gains = threads.Gains()
    for by, times in (("1 thread", 1), ("2 threads", 1), ("2 processes", 2)):
        gains.timed("log", by, lambda: None, times)()
    assert list(gains.numbers()) == ["log, 2 threads", "log, 2 threads: processor time", "log, 2 processes"]
