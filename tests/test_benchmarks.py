"""Ratios, and how they get into the documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import compare, deephaven_import, kernel_calls, many_files, report, threads
from benchmarks.__main__ import BENCHMARKS
from benchmarks.harness import RESULTS, Case, Settings, Side, lines, run_case

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
    result = run_case(Case("c", "w", sides), Settings(1, 1, 2, "", tmp_path, tmp_path, tmp_path), Console(quiet=True))
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
    small = {**RESULT, "benchmark": "small_files", "cases": [{**CASE, "files": 100}]}
    (results / "small_files.json").write_text(json.dumps(small))
    report.main()
    _, _, many = places[0].read_text().partition("## Many small files")
    assert "| records into Arrow | 10.00 ms each | slow 40.00 ms each | 40.00 x slow |" in many
    assert page.startswith("before\n")
    assert page.endswith("\nbehind\n")
    assert "old" not in page
    picture = ET.parse(tmp_path / "docs/images/speed.svg").getroot()
    assert "slow" in ["".join(element.itertext()) for element in picture.iter("{http://www.w3.org/2000/svg}text")]


LINES = 60
"""Of what a program has written before it failed: the traceback, and Java's above it."""


def run_benchmarks(tmp_path: Path, *names: str, only: str = "", repeat: int = 0) -> dict[str, dict[str, Any]]:
    """Run some as a program, every side once, of tiny sizes; what each wrote."""
    sizes = ["--size", "40kB", "--big", "80kB", f"--repeat={repeat}"]
    places = [f"--only={only}", f"--dir={tmp_path}", f"--out={tmp_path}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "benchmarks", *names, *sizes, *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        ends = ["\n".join(text.splitlines()[-LINES:]) for text in (done.stdout, done.stderr)]
        pytest.fail("\n\n".join([f"it ended with {done.returncode}", *ends]), pytrace=False)
    return {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in names}


def test_rows_are_counted_before_a_first_import_is_published(tmp_path: Path) -> None:
    assert deephaven_import.count(tmp_path) == 0
    (tmp_path / "Intraday" / ".sawlog-staged").mkdir(parents=True)
    (tmp_path / "Intraday" / ".sawlog-staged" / "table.size").write_bytes(bytes(8))
    assert deephaven_import.count(tmp_path) == 0


def assert_all_rows(results: dict[str, dict[str, Any]]) -> None:
    """Every row of the page is there, but for peers that are not installed; and no case is empty."""
    cases = [(name, case) for name, run in results.items() for case in run["cases"]]
    absent = {(name, case["name"], side) for name, case in cases for side in case["not installed"]}
    comparison = compare.Comparison.of(compare.read_results(RESULTS), results.values())
    rows = [row for row in comparison.removed if row not in absent and not is_of_size(row)]
    assert not rows
    for run in results.values():
        assert run["cases"] or run["probes"]
        assert all(len(side["seconds"]) == 1 for case in run["cases"] for side in case["sides"])
        assert all(probe["numbers"] for probe in run["probes"])


def is_of_size(row: compare.Row) -> bool:
    """Whether its name has a size in it."""
    return row[1] == "memory"


WITHOUT_SPARK = (
    "leveldb_payloads",
    "leveldb_table",
    "application_views",
    "deephaven_table",
    "filodb_record",
    "stores",
    "small_files",
    "threads",
    "startup",
)
WITH_SPARK = (
    "first_query",
    "small_questions",
    "spark_columnar",
    "leveldb_log",
    "deephaven_log",
    "milvus_binlog",
    "deephaven_import",
    "streams",
)
"""Those with the jar first: the Java of the first one, and then the session of the second one, are those of all."""


def test_each_benchmark_is_run_by_a_test() -> None:
    assert sorted([*WITHOUT_SPARK, *WITH_SPARK, "kernels"]) == sorted(BENCHMARKS)


def test_benchmarks_without_spark_run(tmp_path: Path) -> None:
    assert_all_rows(run_benchmarks(tmp_path, *WITHOUT_SPARK))


def test_benchmarks_with_spark_run(tmp_path: Path) -> None:
    assert_all_rows(run_benchmarks(tmp_path, *WITH_SPARK))


def test_a_kernel_is_measured(tmp_path: Path) -> None:
    """Every side is compiled, which takes minutes for all of them."""
    run_benchmarks(tmp_path, "kernels", only="kernels.columns.gather_slices")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["first_query", "startup"])
def test_benchmarks_of_processes_run(name: str, tmp_path: Path) -> None:
    """The tests above run all sides in one process."""
    assert_all_rows(run_benchmarks(tmp_path, name, repeat=1))


def with_seconds(name: str, seconds: float) -> dict[str, Any]:
    """The result above with another side's seconds, under another name."""
    result: dict[str, Any] = json.loads(json.dumps(RESULT))
    result["cases"][0]["sides"][1] |= {"name": name, "seconds": [seconds]}
    return result


@pytest.mark.parametrize(("seconds", "moved"), [(4.0, 40), (4.7, 40), (3.3, 40), (4.9, 49), (3.1, 31)])
def test_ratios_that_moved_are_told(seconds: float, moved: float) -> None:
    row = ("some_log", "read", "slow")
    comparison = compare.Comparison.of([RESULT], [with_seconds("slow", seconds)])
    assert comparison.moved == ({} if moved == 40 else {row: (pytest.approx(40), pytest.approx(moved))})
    assert not comparison.removed
    assert not comparison.new


def test_rows_of_one_side_only_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compare.Comparison.of([RESULT, {**RESULT, "benchmark": "not_run"}], [with_seconds("fast", 4.0)])
    assert comparison.removed == [("some_log", "read", "slow")]
    assert comparison.new == [("some_log", "read", "fast")]
    assert "lacks: 1\n\n- some_log, read, slow" in comparison.text()
    (tmp_path / "a.json").write_text(json.dumps(RESULT))
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    assert ended.value.code == 0


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


def test_many_files_are_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(many_files, "measure_apart", many_files.measure_here)
    monkeypatch.setattr(sys, "argv", ["", "20", "40"])
    many_files.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [name for name, *_ in cells] == [*kernel_calls.samples(1), "leveldb_database"]
    for name, *times in cells:
        assert [verb for verb, time in zip(many_files.VERBS, times, strict=True) if time] == many_files.list_verbs(name)
