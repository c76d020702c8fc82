"""Tables that keep to the width of the terminal."""

from __future__ import annotations

import os
import pty
import shutil
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sawlog.cli.output import Page, measure_width
from sawlog.cli.table import MIN_WIDTH, fit_widths
from tests.cli.conftest import RECORDS, Run, write_log

DATABASE = Path(__file__).parents[1] / "golden" / "leveldb_database" / "pebble-2.1.7-minlz" / "db"


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(20, 300))
def test_columns_fit_into_the_width_of_the_terminal(natural: list[int], room: int) -> None:
    widths = fit_widths(natural, room)
    assert 1 <= len(widths) <= len(natural)
    assert sum(widths) + 2 * (len(widths) - 1) <= room
    assert all(
        min(width, MIN_WIDTH) <= column_width <= width for column_width, width in zip(widths, natural, strict=False)
    )
    if sum(natural) + 2 * (len(natural) - 1) <= room:
        assert widths == natural


def run_on_terminal(columns: int, *args: object) -> list[str]:
    """Lines that a command prints on a terminal of some width."""
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "sawlog", *map(str, args)]
    # Output of these tests fits into the terminal's buffer, so it can be read when the command is done.
    process = subprocess.run(
        command,
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**environment, "NO_COLOR": "1", "TERM": "dumb"},
        check=True,
    )
    os.close(follower)
    text = b""
    try:
        while chunk := os.read(leader, 65536):
            text += chunk
    except OSError:
        pass
    finally:
        os.close(leader)
    # Where colorama is installed, Numba has it reset the terminal's colours at exit.
    return text.decode().replace("\r", "").removesuffix("\x1b[0m").splitlines() + process.stderr.decode().splitlines()


@pytest.mark.parametrize("columns", [20, 40, 150])
def test_a_terminal_is_not_overrun(columns: int, log: Path) -> None:
    lines = run_on_terminal(columns, "cat", log, "--columns", "record,_offset", "--limit", 5)
    assert len(lines) == 7
    assert all(measure_width(line) <= columns for line in lines)
    assert lines[0].split() == ["record", "_offset"]
    assert lines[6].split()[0].endswith("\u2026")


def test_columns_without_room_are_named(log: Path) -> None:
    lines = run_on_terminal(20, "cat", log, "--view", "damage")
    assert lines[0].split() == ["file", "offset"]
    assert lines[-1].startswith("sawlog: columns without room: length, kind, detail, dropped;")


def list_starts(text: str, *parts: str) -> list[int]:
    """The cells where parts of lines begin, each in a line of its own."""
    return [measure_width(line[: line.index(part)]) for part, line in zip(parts, text.splitlines(), strict=True)]


@pytest.mark.parametrize(
    "names", [("a", "b"), ("a", "comparator"), ("日本語の列", "b"), ("", "tables of level 0"), ("a\x1b", "b")]
)
def test_facts_are_aligned_by_the_longest_name(names: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(zip(names, ("first", "second"), strict=True))
    for show, margin in ((Page().print_facts, Page.margin), (lambda rows: Page().print_grid("  ", rows), 0)):
        show(rows)
        first, second = list_starts(capsys.readouterr().out, "first", "second")
        assert first == second >= max(margin, *map(measure_width, names)) + (not margin)


def test_wide_text_is_wrapped_at_the_edge_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    monkeypatch.setattr(page, "console", Console(force_terminal=True, width=40))
    lines = page.wrap_text("名前 " * 30, 10)
    assert max(map(measure_width, lines)) <= 30
    assert "".join(lines).replace(" ", "") == "名前" * 30
    assert page.wrap_text("", 10) == [""]


def test_files_of_a_report_are_aligned_by_the_longest_verdict(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "000003.log", RECORDS)
    shutil.copytree(DATABASE, tmp_path / "db")
    for table in (tmp_path / "db").glob("*.sst"):
        table.unlink()
    lines = run("verify", tmp_path).out.splitlines()
    files = [line for line in lines if line.startswith(("clean", "incomplete"))]
    assert {line.split()[0] for line in files} == {"clean", "incomplete"}
    assert len({len(line) - len(line.split(maxsplit=1)[1]) for line in files}) == 1
