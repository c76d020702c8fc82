"""What docs/cli.md shows is what the commands print."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
import typer.main

from sawlog import formats
from sawlog.cli.app import app
from sawlog.format.contract import list_view_names
from tests import documents_world as worlds
from tests.cli.conftest import Run
from tests.documents import ROOT
from tools import reference

PAGE = ROOT / "docs" / "cli.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# How small zstd makes a file depends on its version.
SIZE = re.compile(r"(?<=parquet, ).*")


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command of sawlog that a page names, in blocks and between backticks."""
    text = page.read_text("utf-8")
    lines = re.findall(r"^(?:\$ )?sawlog (.*)$", text, re.MULTILINE) + re.findall(r"`sawlog ([^`\n]+)`", text)
    for line in lines:
        yield line.split(" #")[0].split(" | ")[0].split()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_pages_name_verbs_options_and_views_that_there_are(page: Path) -> None:
    group = typer.main.get_command(app)
    known_formats = formats().values()
    classes = [options for format in known_formats for options in (format.read_options, format.write_options)]
    names = {field.name for options in classes for field in fields(options)} | {"index", "binary_columns"}
    names |= {old for options in classes for old in getattr(options, "old", {})}
    views = {view for format in known_formats for view in list_view_names(format)}
    for verb, *words in commands(page):
        if verb in group.commands:  # or prose, which says what sawlog does
            _, command, _ = group.resolve_command(None, [verb])
            flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
            options = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
            assert options <= flags | {"--help", "-h", "--driver-class-path"}, verb
        for word, value in pairwise(words):
            if word in ("-o", "--option") and "=" in value:
                assert value.partition("=")[0] in names, value
            if word == "--view" and value.islower():
                assert value in views, value


def test_verbs_exit_codes_and_options_of_the_page_are_those_of_the_program() -> None:
    texts = {page: page.read_text("utf-8") for page in PAGES}
    assert sum(len(reference.BLOCK.findall(text)) for text in texts.values()) == 4
    assert [page for page, text in texts.items() if text != reference.with_blocks(text)] == [], "run make docs"


def test_the_page_links_to_what_explains_each_verb() -> None:
    text = PAGE.read_text("utf-8")
    verbs = typer.main.get_command(app).commands
    assert [verb for verb in verbs if (verb in reference.EXPLAINED) == (f"\n## {verb}\n" in text)] == []


def transcript(page: Path, places: Mapping[str, str]) -> list[tuple[str, str]]:
    """Commands of a page, each with what is shown below it; `places` as in a `World`."""
    text = page.read_text("utf-8")
    for name, place in places.items():
        text = text.replace(name, place)
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [match for block in blocks for match in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


def shows(page: str, printed: str) -> bool:
    """Whether a page shows what is printed; a line of three dots stands for any lines."""
    pieces = [re.escape(piece) for piece in re.split(r"^\.\.\.\n", SIZE.sub("", page), flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(pieces), SIZE.sub("", printed)) is not None


TRANSCRIPTS = {
    "docs/cli.md": 10,
    "README.md": 2,
    "docs/cookbooks/filodb.md": 4,
    "docs/cookbooks/forensics.md": 10,
    "docs/cookbooks/milvus.md": 10,
    "docs/cookbooks/rocksdb.md": 2,
}
"""Pages whose commands are compared with what they print, and how many there are at least."""


@pytest.mark.spread(1)
@pytest.mark.filterwarnings("always::UserWarning")
@pytest.mark.parametrize("page", TRANSCRIPTS)
def test_commands_print_what_the_page_shows(
    page: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if page == "README.md":
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    code = 0
    with worlds.of(page, monkeypatch) as world:
        commands = transcript(ROOT / page, world.places)
        assert len(commands) >= TRANSCRIPTS[page]
        for command, output in commands:
            if command == "echo $?":
                assert output == f"{code}\n"
            elif command.startswith("sawlog "):
                result = run(*shlex.split(command)[1:])
                code, printed = result.code, result.out + result.err
                assert shows(output, printed), f"{command}\n{printed}"
            else:
                done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
                assert shows(output, done.stdout + done.stderr), command
