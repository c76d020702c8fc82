"""Pages of the documentation, parsed by Sybil, and what running a block of each language means."""

from __future__ import annotations

import ast
import contextlib
import glob
import io
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from sybil import Document, Example, Region
from sybil.example import NotEvaluated
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from sawlog.cli.app import run as run_sawlog
from tools import reference

ROOT = Path(__file__).resolve().parents[1]
VALUE = re.compile(r"#\s+(?P<value>\d+|True|False|b?'[^']*'|\[.*\]|\(\d.*\))(?:\b.*|)$")
RAISES = re.compile(r"^# (?P<name>\w+(?:Error|Warning)): (?P<text>.*)$", re.MULTILINE)


def python(example: Example) -> None:
    """Run statements; `# value` after an expression is its value, `# NameError: text` is what the block raises."""
    raises = RAISES.search(example.parsed)
    if raises is not None and raises["name"].endswith("Error"):
        with pytest.raises(Exception, match=re.escape(raises["text"].split(":")[0])) as error:
            statements(example)
        assert type(error.value).__name__ == raises["name"]
        assert raises["text"] in str(error.value), example
    elif raises is not None:
        with pytest.warns(UserWarning, match=re.escape(raises["text"])):
            statements(example)
    else:
        statements(example)


def statements(example: Example) -> None:
    lines = example.parsed.splitlines()
    for node in ast.parse(example.parsed).body:
        location = f"{example.path}, line {example.line + node.lineno}"
        if not isinstance(node, ast.Expr):
            exec(compile(ast.Module([node], []), location, "exec"), example.namespace)
            continue
        value, expression = VALUE.search(lines[node.end_lineno - 1]), node.value
        if isinstance(expression, ast.Call) and getattr(expression.func, "id", "") == "print":
            expression = expression.args[0]
        result = eval(compile(ast.Expression(expression), location, "eval"), example.namespace)
        if value is not None:
            assert str(result) == value["value"] or repr(result) == value["value"], (location, result)


def shell(example: Example) -> None:
    """Run the commands of sawlog in this process; there are no others."""
    for line in example.parsed.replace("\\\n", " ").splitlines():
        for command in line.split("  #")[0].strip().split(" && "):
            if command.startswith("sawlog "):
                sawlog_command(command, example)
            elif command and not command.startswith(("#", "echo ")):
                raise AssertionError(f"{example}: {command}: only sawlog is run; skip the block with a reason")


def sawlog_command(command: str, example: Example) -> None:
    command, _, may_fail = command.partition(" || ")
    command, _, target = command.partition(" > ")
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    errors = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("default")
        arguments = [argument for word in shlex.split(command)[1:] for argument in (sorted(glob.glob(word)) or [word])]
        code = run_sawlog(arguments)
    out.flush()
    assert code == 0 or may_fail, (example, command, errors.getvalue())
    if target:
        Path(target).write_bytes(out.buffer.getvalue())


def toml(example: Example) -> None:
    tomllib.loads(example.parsed)


def show_only(_: Example) -> None:
    """Only shown; what `console` shows is compared in tests/cli."""


RUN: Mapping[str, Callable[[Example], None]] = {
    **dict.fromkeys(("python", "py"), python),
    **dict.fromkeys(("sh", "bash"), shell),
    "toml": toml,
    **dict.fromkeys(("text", "console", "sql", ""), show_only),
}


def fences(document: Document) -> Iterator[Region]:
    for region in FencedCodeBlockLexer(".*")(document):
        region.parsed = region.lexemes["source"]
        assert "```" not in region.parsed, f"{document.path}: a fence without an end: {region.parsed[:80]}"
        region.evaluator = RUN[region.lexemes["language"]]
        yield region


def parsed(page: str, places: Mapping[str, str] = {}) -> Document:
    """A page; `places` are paths and URLs that it names, and what takes their place here."""
    text = (ROOT / page).read_text("utf-8")
    for place, directory in places.items():
        text = text.replace(place, directory)
    document = Document(text, page)
    for parser in (SkipParser(), fences):
        for region in parser(document):
            document.add(region)
    return document


def blocks(page: str, *evaluators: Callable[[Example], None]) -> list[Example]:
    """The blocks of a page that are run by some evaluators, by default all; those to be skipped are left out."""
    active_evaluators, skipped = evaluators or (python, shell, toml), False
    examples = []
    for example in parsed(page):
        if example.region.evaluator in active_evaluators and not skipped:
            examples.append(example)
        skipped = example.region.evaluator not in RUN.values()
    return examples


def pages() -> list[str]:
    """Every page for users; the written reference has signatures, and nothing to type."""
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in paths if path != reference.PAGE)


def read_page(
    page: str,
    names: Mapping[str, object] = {},
    places: Mapping[str, str] = {},
    skip: re.Pattern[str] | None = None,
) -> dict[str, Any]:
    """Type a whole page, but for Python blocks in which something is found; returns what is there in the end."""

    def passed_over(example: Example) -> None:
        if skip is None or example.region.evaluator is not python or not skip.search(example.parsed):
            raise NotEvaluated

    document = parsed(page, places)
    document.namespace.update(names)
    document.push_evaluator(passed_over)
    for example in document:
        with contextlib.suppress(SkipTest):
            example.evaluate()
    return document.namespace
