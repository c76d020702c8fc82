"""What README and Getting started tell newcomers to type does what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "docs/getting-started.md", "docs/python.md"]
EXPECTED = re.compile(r"^(?P<expression>[^#\n]*\S)\s+# (?P<value>\d+|True|False)\b", re.MULTILINE)


def python_blocks(page: str) -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if "spark" not in block]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(page)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
        for found in EXPECTED.finditer(block):
            expression = found["expression"].removeprefix("print(").rstrip(")") if "print(" in block else None
            value = eval(expression or found["expression"], names)
            assert str(value) == found["value"], found["expression"]


@pytest.mark.parametrize("page", PAGES[:2])
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawlog.cli.app import run

    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^sawlog (.*?)(?: &&.*)?$", (ROOT / page).read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        assert run(command.split()) == 0, command
