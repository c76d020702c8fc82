"""What a running pipeline shows: log lines, live status, metrics."""

from __future__ import annotations

import io
import json
import socket
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from sawlog.cli.output import print_event, render_logfmt
from sawlog.errors import OptionError
from sawlog.pipeline import load
from sawlog.pipeline.metrics import serve
from sawlog.pipeline.settings import Metrics

pytest.importorskip("pyspark")

from sawlog.cli import status
from sawlog.cli.run import choose_log_level, run_pipeline
from sawlog.cli.status import Status, show_status
from sawlog.pipeline.progress import BatchReport, sum_read_bytes, sum_waiting_bytes
from sawlog.stream.offset import Offset, ReadPosition
from tests.pipeline.support import STREAM

REPORT = BatchReport("2026-01-05T09:30:10.021Z", "my trades", "rows", 42, 51_200, 1_642_496, None, 2, 0.8124)


def test_each_batch_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_event(REPORT.to_dict(), json=False)
    assert capsys.readouterr().out == (
        'event=batch time=2026-01-05T09:30:10.021Z pipeline="my trades" sink=rows batch=42 rows=51200 bytes=1642496'
        " damage=2 seconds=0.812\n"
    )
    print_event(REPORT.to_dict(), json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["lag_bytes"] is None
    assert json.loads(line)["pipeline"] == "my trades"


def test_values_that_need_quotes() -> None:
    assert (
        render_logfmt({"a": "", "b": 'x"y', "c": "1\n2", "d": {"e": 1}, "f": None}) == r'a="" b="x\"y" c="1\n2" d.e=1'
    )


def source(start: Any, end: Any, latest: Any) -> Any:
    texts = (None if value is None else json.dumps(value) for value in (start, end, latest))
    return SimpleNamespace(**dict(zip(("startOffset", "endOffset", "latestOffset"), texts, strict=True)))


def offset(**places: tuple[int, int]) -> dict[str, Any]:
    """Of files, where their bytes end and where the micro-batch begins."""
    return Offset({name: ReadPosition(end, "x", begin) for name, (end, begin) in places.items()}).to_json()


def test_bytes_from_offsets() -> None:
    behind = {"behind": {"bytes": 7, "files": 1}}
    ours = source(offset(a=(100, 0), b=(5, 0)), offset(a=(150, 100), c=(10, 0)), behind)
    first = source(None, offset(a=(3, 0)), behind)
    kafka = source({"topic": {"0": 1}}, {"topic": {"0": 5}}, {"topic": {"0": 9}})
    assert (sum_read_bytes([ours]), sum_waiting_bytes([ours])) == (60, 7)
    assert (sum_read_bytes([ours, first, kafka]), sum_waiting_bytes([ours, first, kafka])) == (63, 14)
    assert (sum_read_bytes([kafka]), sum_waiting_bytes([kafka])) == (None, None)
    empty_source = source(None, None, None)
    assert (sum_read_bytes([empty_source]), sum_waiting_bytes([empty_source])) == (None, None)


def pipeline(tmp_path: Path) -> Any:
    path = tmp_path / "p.toml"
    path.write_text(STREAM)
    return load(path)


def test_the_live_status_shows_batches_and_sources(tmp_path: Path) -> None:
    status = Status(pipeline(tmp_path))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(status)
    assert "waiting for rows" in console.export_text()
    status.add(REPORT)
    status.add(replace(REPORT, batch=43, rows=800, lag_bytes=12_345, damage=1))
    console.print(status)
    text = console.export_text()
    for label in ("p, up 0:00", "rows", "43", "52,000", "985", "12,345 bytes", " 3 ", "0:00 ago"):
        assert label in text, label


def test_no_status_is_drawn_where_nobody_watches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with show_status(pipeline(tmp_path)) as add:
        add(REPORT)
    assert capsys.readouterr() == ("", "")


def test_the_status_below_a_line_knows_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []

    class Run:
        def __init__(self, plan: Any, report: Any, stop: Any, warn: Any) -> None:
            self._report = report

        def __call__(self) -> Any:
            self._report(REPORT)
            return SimpleNamespace(skipped=0, to_dict=dict)

    monkeypatch.setattr("sawlog.pipeline.run.PipelineRun", Run)
    monkeypatch.setattr(Status, "add", lambda _, report: messages.append("status"))
    monkeypatch.setattr("sawlog.cli.run.print_event", lambda event, *, json: messages.append("line") if event else None)
    run_pipeline(pipeline(tmp_path), cast("Any", None))
    assert messages == ["status", "line"]


def test_a_live_status_is_not_broken_by_warnings_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = pipeline(tmp_path)
    assert choose_log_level(stream) == {}
    monkeypatch.setattr(status, "can_show_progress", lambda: True)
    assert choose_log_level(stream) == {"spark.log.level": "ERROR"}
    (tmp_path / "p.toml").write_text(STREAM + '\n[spark]\nlog.level = "INFO"\n')
    assert choose_log_level(load(tmp_path / "p.toml")) == {}


def test_metrics_are_served_for_prometheus() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serve(Metrics(port=port)) as add:
        add(REPORT)
        add(replace(REPORT, batch=43, rows=800, lag_bytes=7))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    labels = '{pipeline="my trades",sink="rows"}'
    for name, value in {
        "rows_total": 52_000,
        "read_bytes_total": 2 * 1_642_496,
        "damage_total": 4,
        "lag_bytes": 7,
        "last_batch": 43,
        "batch_seconds_count": 2,
    }.items():
        (line_found,) = [line for line in lines if line.startswith(f"sawlog_{name}{labels} ")]
        assert float(line_found.split()[-1]) == value


def test_metrics_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(OptionError, match="pip install"), serve(Metrics(port=0)):
        pass
