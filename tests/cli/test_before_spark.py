"""What is wrong with a source is said before Spark is started, which takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from tests.cli.conftest import Run, run

__all__ = ["run"]

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["import", "{tmp}/nothing", "{tmp}/db"], "no such file, directory or glob match"),
        (["import", "{tmp}", "{tmp}/db"], "no binary log of what was asked for is there"),
        (["import", "{tmp}", "{tmp}/db", "-o", "tabel=x"], "unknown option 'tabel'"),
        (["import", "{tmp}", "s3://bucket/db"], "object stores rename no directories"),
        (["merge", "{tmp}/nothing", "Ns", "T", "2024-03-01"], "there are no rows of 2024-03-01 to merge"),
        (["merge", "{tmp}/nothing", "--nightly"], "no such directory"),
        (["compact", "{tmp}/nothing", "{tmp}/db"], "no such file, directory or glob match"),
        (["compact", "{tmp}/log.log", "{tmp}/db"], ""),
    ],
)
def test_a_source_that_is_not_there(
    arguments: list[str], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("sawlog.spark.sessions.session", started)
    (tmp_path / "log.log").write_bytes(b"no log")
    done = run(*(one.format(tmp=tmp_path) for one in arguments))
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log.log"]
