"""What docs/cli.md shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.documents import ROOT
from tests.documents_world import made

PAGE = ROOT / "docs" / "cli.md"
# How small zstd makes a file depends on its version.
SIZE = re.compile(r"(?<=parquet, ).*")


def transcript() -> list[tuple[str, str]]:
    """Commands of the page, each with what is shown below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [found for block in blocks for found in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


def test_commands_print_what_the_page_shows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made("docs/cli.md")
    code = 0
    assert len(transcript()) > 10
    for command, shown in transcript():
        if command == "echo $?":
            assert shown == f"{code}\n"
            continue
        result = run(*shlex.split(command)[1:])
        code = result.code
        assert SIZE.sub("", result.out + result.err) == SIZE.sub("", shown), command
