"""What docs/cli.md shows is what the commands print."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run
from tests.documents import blocks, read_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
# How small zstd makes a file depends on its version.
SIZE = re.compile(r"(?<=parquet, ).*")


def desk(place: Path) -> None:
    """What the page supposes to be there."""
    shutil.copytree(ROOT / "examples" / "data" / "shop", place / "shop")
    data = bytearray((place / "shop" / "000003.log").read_bytes()[:-3])
    data[50000:50001] = b"X"
    (place / "000007.log").write_bytes(data)


def transcript() -> list[tuple[str, str]]:
    """Commands of the page, each with what is shown below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [found for block in blocks for found in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


def test_commands_print_what_the_page_shows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = 0
    assert len(transcript()) > 10
    for command, shown in transcript():
        if command == "echo $?":
            assert shown == f"{code}\n"
            continue
        result = run(*shlex.split(command)[1:])
        code = result.code
        assert SIZE.sub("", result.out + result.err) == SIZE.sub("", shown), command


def test_all_other_blocks_run_or_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk(tmp_path)
    shutil.copy(tmp_path / "shop" / "000003.log", tmp_path)
    pq.write_table(pa.table({"Date": ["2024-03-01", "2024-03-02"], "Price": [1.5, 2.5]}), tmp_path / "trades.parquet")
    pq.write_table(pa.table({"key": [b"user:000001"], "name": ["one"]}), tmp_path / "users.parquet")
    monkeypatch.chdir(tmp_path)
    assert len(blocks("docs/cli.md")) >= 4
    read_page("docs/cli.md")
    assert (tmp_path / "copy.log").read_bytes() == (tmp_path / "000003.log").read_bytes()
