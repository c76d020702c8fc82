"""What is wrong with a source is said before Spark is started, which takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from tests.cli.conftest import Run, run

__all__ = ["run"]

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("arguments", "message"),
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
    arguments: list[str], message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("sawlog.spark.sessions.start_session", started)
    (tmp_path / "log.log").write_bytes(b"no log")
    done = run(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log.log"]


PIPELINE = """
[sources.log]
path = "{tmp}/log.log"
format = "leveldb_log"
options = {{ verify_checksums = true }}
[sinks.out]
from = "log"
path = "{tmp}/out"
format = "parquet"
mode = "overwrite"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("log.log", "no.log", "p.toml:3: sources.log.path: {tmp}/no.log: no such file, directory or glob match"),
        (
            "verify_checksums",
            "verify_checksum",
            "p.toml:5: sources.log.options: reading leveldb_log: unknown option 'verify_checksum'; did you mean",
        ),
        (
            '"parquet"',
            '"parket"',
            "p.toml:9: sinks.out.format: neither sawlog nor Spark has a format 'parket'; did you",
        ),
        (
            '"parquet"',
            '"leveldb_log"\noptions = {{ colour = "red" }}',
            "p.toml:10: sinks.out.options: writing leveldb_log: unknown option 'colour'",
        ),
    ],
)
def test_a_pipeline_that_cannot_run(
    old: str, new: str, message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("sawlog.spark.sessions.hold_session", started)
    monkeypatch.setattr("sawlog.pipeline.session.hold_session", started)
    for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "log.log").write_bytes(b"")
    path = tmp_path / "p.toml"
    path.write_text(PIPELINE.replace(old, new, 1).format(tmp=tmp_path))
    done = run("run", str(path))
    assert (done.code, done.out) == (2, "")
    assert message.format(tmp=tmp_path) in done.err
    assert done.err.count("\n") == 1
