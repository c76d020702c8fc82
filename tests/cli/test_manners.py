"""What a command line says when something is mistyped, missing, slow or broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import sawlog
from sawlog.cli import main
from sawlog.cli.app import app
from sawlog.guard import install
from sawlog.storage import Storage
from tests.cli.conftest import Run


def test_mistyped_names_are_answered_with_the_nearest(run: Run, log: Path) -> None:
    with pytest.raises(sawlog.OptionError, match=r"unknown option 'colums'; did you mean 'columns'\?"):
        sawlog.open(log, colums=["record"])
    with pytest.raises(sawlog.OptionError, match=r"did you mean 'verify_checksums'\?"):
        sawlog.open(log, verify_checksum=False)
    with pytest.raises(sawlog.OptionError, match=r"did you mean 'mode'\?"):
        sawlog.write(sawlog.open(log), log.with_name("x.log"), format="leveldb_log", mod="error")
    assert "did you mean 'record'?" in run("cat", log, "--columns", "recrod").err
    assert "did you mean 'writes'?" in run("cat", log, "--view", "write").err
    assert "did you mean 'leveldb_log'?" in run("cat", log, "--format", "leveldb-log").err
    assert "did you mean" not in run("cat", log, "--columns", "zzz").err


@pytest.mark.parametrize("url", ["gs://bucket/x", "abfs://box@account/x", "s3://bucket/x"])
def test_a_store_that_needs_a_package_names_the_extra_that_has_it(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "sawlog.storage.objects", raising=False)
    result = run("cat", url)
    assert (result.code, result.err) == (2, f"sawlog: {url}: {install('remote')}\n")


@pytest.mark.nightly
def test_hdfs_without_java_is_told_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    def missing(*_: object, **__: object) -> object:
        raise OSError("Unable to load libjvm: " + "/very/long/path: no such file\n" * 100)

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(sawlog.SawlogError, match="set JAVA_HOME and HADOOP_HOME"):
        Storage().find("hdfs://host/x")
    result = run("cat", "hdfs://host/x")
    assert (result.code, len(result.err) < 300) == (2, True)


def test_a_bug_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("sawlog.cli.app.run", broken)
    assert main(["info", "x"]) == 70
    err = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in err
    assert "please report" in err


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_what_needs_no_data_imports_no_arrow(argument: str) -> None:
    script = (
        f"import sys; from sawlog.cli import main; assert main([{argument!r}]) == 0;"
        "print({'numpy', 'pyarrow', 'pandas', 'numba'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == "set()\n"


@pytest.mark.parametrize(
    ("suffix", "code"), [("parquet", 2), ("arrow", 2), ("leveldb_log", 2), ("csv", 0), ("jsonl", 0)]
)
def test_binary_is_not_for_a_terminal(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, code: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("sawlog.storage.Storage.stage", lambda *_: pytest.fail("written")) if code else None
    result = run("convert", log, "-", "--to", suffix)
    assert result.code == code
    assert ("is binary, and stdout is a terminal; name a file or a pipe" in result.err) is bool(code)


@pytest.mark.parametrize(
    ("query", "kind", "line", "token"),
    [
        ("SELECT 1,\n       nothing more 1\nFROM '{log}'", "Parser", "LINE 2: ", "1"),
        ("SELECT 1\nFROM '{log}' nothing more", "Parser", "LINE 2: FROM '{log}'", "more"),
        ("SELECT 1,\n       nothing\nFROM '{log}'", "Binder", "LINE 2: ", "nothing"),
        ("SELECT 1,\n       coun(*)\nFROM '{log}'", "Catalog", "LINE 2: ", "coun"),
    ],
)
def test_an_error_in_sql_keeps_its_lines_and_its_caret(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch, query: str, kind: str, line: str, token: str
) -> None:
    monkeypatch.chdir(log.parent)
    result = run("sql", query.format(log=log.name))
    assert result.code == 2
    first, *_, query_line, caret = result.err.splitlines()
    assert first.startswith(f"sawlog: {kind} Error: ")
    assert query_line.startswith(line.format(log=log.name))
    assert query_line[caret.index("^") :].startswith(token), result.err
    assert "\x1b" not in run("sql", "SELECT \x1b[31m").err


def test_help_is_whole_at_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider, nothing is cut off, and every sentence ends."""
    monkeypatch.setenv("COLUMNS", "80")
    group = typer.main.get_command(app)
    for verb in ("", *group.commands):
        text = run(*verb.split(), "--help").out
        assert [line for line in text.splitlines() if len(line) > 80 or "\u2026" in line] == [], verb
        if verb:
            _, command, _ = group.resolve_command(None, [verb])
            texts = [parameter.help for parameter in command.params] + command.help.split("\n\n")
            assert [text for text in texts if not text.strip().endswith((".", ":"))] == [], verb
            words = " ".join(text.split())
            assert [text for text in texts if " ".join(text.split()) not in words] == [], verb
