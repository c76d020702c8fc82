"""A stream that is stopped: by Ctrl-C, or by SIGTERM, as services are."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sawlog.cli import run
from sawlog.pipeline.run import Totals
from sawlog.pipeline.settings import load

PIPELINE = """\
[pipeline]
mode = "stream"
checkpoint = "{place}/checkpoint"

[sources.ticks]
path = "{place}/logs"
format = "leveldb_log"

[sinks.table]
from = "ticks"
format = "parquet"
path = "{place}/out"
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_what_ends_a_stream_is_told_by_its_exit_code(
    number: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(PIPELINE.format(place=tmp_path))

    class EndedRun:
        def __init__(self, plan: object, report: object, stop: Any, tell: object) -> None:
            self.stop = stop

        def __call__(self) -> Totals:
            os.kill(os.getpid(), number)
            assert self.stop.wait(10)
            return Totals()

    monkeypatch.setattr("sawlog.pipeline.run.PipelineRun", EndedRun)
    assert run.run_pipeline(load(str(path)), None) == code  # type: ignore[arg-type]
