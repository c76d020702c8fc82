"""Bad input to any verb, at any option: one clear line, exit code 2, and nothing that was there is changed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer.main
from typer.core import TyperArgument, TyperOption

import sawlog
from sawlog.cli.app import app
from tests.cli.conftest import RECORDS, Run, write_log

GOOD = {
    "cat": ["{log}"],
    "compact": ["{root}", "{tmp}/new"],
    "convert": ["{log}", "{tmp}/new.csv"],
    "diff": ["{log}", "{log}"],
    "formats": ["leveldb_log"],
    "import": ["{tmp}/logs", "{tmp}/db"],
    "import-status": ["{tmp}/logs", "{tmp}/db"],
    "index": ["{root}"],
    "info": ["{log}"],
    "ls": ["{log}"],
    "init": ["{tmp}/new.toml"],
    "map": ["{log}", "--output", "{tmp}/new.html"],
    "report": ["{log}", "--output", "{tmp}/new.html"],
    "merge": ["{tmp}/db", "N", "T", "2024-01-02"],
    "repair": ["{log}", "{tmp}/new.log"],
    "run": ["{pipeline}"],
    "spark-jar": [],
    "sql": ["SELECT * FROM '{log}'"],
    "vacuum": ["{root}"],
    "validate": ["{table}"],
    "verify": ["{log}"],
    "warm-up": ["leveldb_log"],
}
"""Arguments that each verb takes."""
BAD = ["{tmp}/missing", "{tmp}/missing/*.log", "{junk}", "{empty}", "memory://nothing/there", "nosuch://bucket/key", ""]
"""Sources that no verb can read."""
SOURCES = ("cat", "convert", "diff", "info", "map", "repair", "report", "run", "validate", "verify")
"""Verbs whose first argument is a source, and which need no Spark to find out that it is none."""


def options() -> Iterator[tuple[str, str, str | None]]:
    """Verbs and options, each with a value that it does not take; None for one that takes none."""
    group = typer.main.get_command(app)
    context = typer.Context(group)
    for verb in group.list_commands(context):  # type: ignore[attr-defined]
        yield verb, "--no-such-option", None
        for parameter in group.resolve_command(context, [verb])[1].params:  # type: ignore[attr-defined]
            if not isinstance(parameter, TyperOption) or parameter.is_flag:
                continue
            kind: Any = parameter.type_descriptor.annotation
            if (
                kind in (int, float)
                or issubclass(getattr(kind, "__origin__", kind), Enum)
                or "=" in (parameter.metavar or "")
            ):
                yield verb, parameter.opts[-1], "nonsense"
            if kind in (int, float):
                yield verb, parameter.opts[-1], "-1"
            if parameter.opts[-1] in ("--format", "--from", "--to", "--view", "--columns", "--partition-by"):
                yield verb, parameter.opts[-1], "nonsense"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What verbs are given; shared by all tests, as none of them may change any of it."""
    root = tmp_path_factory.mktemp("places")
    (root / "empty").mkdir()
    (root / "junk").write_bytes(b"junk" * 100)
    (root / "pipeline.toml").write_text("name = 1\n")
    sawlog.write(pa.table({"i": [1]}), root / "table", format="deephaven_table")
    sawlog.write(pa.table({"id": [1]}), root / "root", format="milvus_binlog", primary_key="id", timestamp=5)
    names = {"junk": "junk", "empty": "empty", "table": "table", "root": "root", "pipeline": "pipeline.toml"}
    log = write_log(root / "000001.log", RECORDS)
    return {"tmp": root, "log": log} | {name: root / place for name, place in names.items()}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> None:
        raise AssertionError("Spark was started before the arguments were looked at")

    monkeypatch.setattr("sawlog.spark.sessions.start_session", started)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def check(run: Run, places: dict[str, Path], arguments: list[str]) -> None:
    before = contents(places["tmp"])
    result = run(*(text.format_map(places) for text in arguments))
    assert (result.code, result.out) == (2, ""), (arguments, result)
    of_query = arguments[0] == "sql" and " Error: " in result.err
    assert of_query or len(result.err.splitlines()) == 1, (arguments, result.err)
    assert result.err.startswith("sawlog: ")
    assert len(result.err) > 20
    assert contents(places["tmp"]) == before


def test_every_verb_is_tried() -> None:
    group = typer.main.get_command(app)
    assert set(group.list_commands(typer.Context(group))) == set(GOOD)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("verb", "option", "value"), list(options()))
def test_an_option_that_is_wrong(verb: str, option: str, value: str | None, run: Run, places: dict[str, Path]) -> None:
    check(run, places, [verb, *GOOD[verb], option, *([] if value is None else [value])])


@pytest.mark.parametrize("verb", SOURCES)
def test_a_source_that_is_none(verb: str, run: Run, places: dict[str, Path]) -> None:
    for bad in BAD:
        check(run, places, [verb, bad, *GOOD[verb][1:]])


@pytest.mark.parametrize("verb", sorted(GOOD))
def test_too_many_arguments_or_too_few_are_refused(verb: str, run: Run, places: dict[str, Path]) -> None:
    group = typer.main.get_command(app)
    params = group.resolve_command(typer.Context(group), [verb])[1].params  # type: ignore[attr-defined]
    positional = [param for param in params if isinstance(param, TyperArgument)]
    if any(argument.required for argument in positional):
        check(run, places, [verb])
    if all(argument.nargs > 0 for argument in positional):
        check(run, places, [verb, *GOOD[verb], *["one", "too", "many"]])


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "{log}", "{log}", "--to", "leveldb_log"],
        ["convert", "{log}", "{tmp}/new.unknown"],
        ["convert", "{log}", "{junk}/below.csv"],
        ["convert", "{log}", "{tmp}/new.log", "--to", "leveldb_log", "-O", "nonsense=1"],
        ["repair", "{log}", "{log}"],
        ["repair", "{log}", "{junk}/below.log"],
        ["init", "{junk}"],
        ["map", "{log}", "--output", "{empty}"],
        ["sql", "SELECT nonsense FROM '{log}'"],
        ["sql", "SELEC"],
        ["sql", "SELECT * FROM '{tmp}/missing'"],
        ["cat", "{log}", "--filter", "nonsense"],
        ["cat", "{log}", "-f", "--tail", "1", "--sample", "2"],
        ["formats", "nonsense"],
        ["import-status", "{tmp}/missing", "{tmp}/db"],
        ["import-status", "{empty}", "{tmp}/db"],
        ["import-status", "{junk}", "{tmp}/db"],
        ["warm-up", "nonsense"],
    ],
)
def test_what_cannot_be_done(arguments: list[str], run: Run, places: dict[str, Path]) -> None:
    check(run, places, arguments)
