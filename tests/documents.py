"""Pages of the documentation, block by block, and running them."""

from __future__ import annotations

import ast
import contextlib
import glob
import io
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sawlog.cli.app import run as run_sawlog

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"^(?P<marks>(?:<!-- [^\n]* -->\n)*)(?P<indent> *)```(?P<lang>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```\n",
    re.DOTALL | re.MULTILINE,
)
REASON = re.compile(r"<!-- not run: (.+?) -->")
VALUE = re.compile(r"#\s+(?P<value>\d+|True|False|b?'[^']*'|\[.*\]|\(\d.*\))(?:\b.*|)$")
RAISES = re.compile(r"^# (?P<name>\w+(?:Error|Warning)): (?P<text>.*)$", re.MULTILINE)
SHOWN = ("text", "console", "")
"""Blocks that show something. What `console` shows is compared in tests/cli."""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: The page, relative to the repository.
        line: Where its text begins.
        language: What it says behind the fence.
        text: What is in it.
        reason: Why it is not run; empty where it is.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """The blocks of a page."""
    text = (ROOT / page).read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        reason = REASON.search(match["marks"])
        line = text[: match.start("text")].count("\n") + 1
        found.append(Block(page, line, match["lang"], match["text"], reason[1] if reason else ""))
    return found


def pages() -> list[str]:
    """Every page for users."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


class Reader:
    """Somebody who types what a page says, block by block, in the directory they are in.

    Args:
        names: What is there already.
        places: Paths and URLs of the page, and what stands for them here.
    """

    def __init__(self, names: Mapping[str, object], places: Mapping[str, str]) -> None:
        self.names = dict(names)
        self._places = dict(places)

    def read(self, block: Block) -> None:
        """Do what a block says."""
        text = block.text
        for place, here in self._places.items():
            text = text.replace(place, here)
        runners: dict[str, Callable[[str, Block], None]] = {
            **dict.fromkeys(("python", "py"), self._python),
            **dict.fromkeys(("sh", "bash"), self._shell),
            "toml": lambda toml, _: tomllib.loads(toml) and None,
        }
        runners[block.language](text, block)

    def _python(self, text: str, block: Block) -> None:
        raises = RAISES.search(text)
        if raises is not None and raises["name"].endswith("Error"):
            with pytest.raises(Exception, match=re.escape(raises["text"].split(":")[0])) as error:
                self._statements(text, block)
            assert type(error.value).__name__ == raises["name"]
            assert raises["text"] in str(error.value), block
        elif raises is not None:
            with pytest.warns(UserWarning, match=re.escape(raises["text"])):
                self._statements(text, block)
        else:
            self._statements(text, block)

    def _statements(self, text: str, block: Block) -> None:
        lines = text.splitlines()
        for node in ast.parse(text).body:
            where = f"{block.page}, line {block.line + node.lineno - 1}"
            if not isinstance(node, ast.Expr):
                exec(compile(ast.Module([node], []), where, "exec"), self.names)
                continue
            value, expression = VALUE.search(lines[node.end_lineno - 1]), node.value
            if isinstance(expression, ast.Call) and getattr(expression.func, "id", "") == "print":
                expression = expression.args[0]
            found = eval(compile(ast.Expression(expression), where, "eval"), self.names)
            if value is not None:
                assert str(found) == value["value"] or repr(found) == value["value"], (where, found)

    def _shell(self, text: str, block: Block) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            commands = re.split(r" && ", line.split("  #")[0].strip())
            for command in commands:
                if command.startswith("sawlog "):
                    self._sawlog(command, block)
                elif command and not command.startswith(("#", "echo ")):
                    raise AssertionError(f"{block}: {command}: only sawlog is run; say why the block is not")

    @staticmethod
    def _sawlog(command: str, block: Block) -> None:
        command, _, may_fail = command.partition(" || ")
        command, _, target = command.partition(" > ")
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        errors = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("default")
            arguments = [found for one in shlex.split(command)[1:] for found in (sorted(glob.glob(one)) or [one])]
            code = run_sawlog(arguments)
        out.flush()
        assert code == 0 or may_fail, (block, command, errors.getvalue())
        if target:
            Path(target).write_bytes(out.buffer.getvalue())


def read_page(
    page: str,
    names: Mapping[str, object] = {},
    places: Mapping[str, str] = {},
    skip: re.Pattern[str] | None = None,
) -> dict[str, Any]:
    """Type a whole page, but for Python blocks in which something is found; returns what is there in the end."""
    reader = Reader(names, places)
    for block in blocks(page):
        skipped = skip is not None and block.language == "python" and skip.search(block.text)
        if not block.reason and block.language not in SHOWN and not skipped:
            reader.read(block)
    return reader.names
