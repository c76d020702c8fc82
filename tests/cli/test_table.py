"""Tables that keep to the width of the terminal."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.cli.table import MIN_WIDTH, fit, measure_width


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(20, 300))
def test_columns_fit_into_the_width_of_the_terminal(natural: list[int], room: int) -> None:
    widths = fit(natural, room)
    assert 1 <= len(widths) <= len(natural)
    assert sum(widths) + 2 * (len(widths) - 1) <= room
    assert all(min(width, MIN_WIDTH) <= given <= width for given, width in zip(widths, natural, strict=False))
    if sum(natural) + 2 * (len(natural) - 1) <= room:
        assert widths == natural


def on_terminal(columns: int, *args: object) -> list[str]:
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
    lines = on_terminal(columns, "cat", log, "--columns", "record,_offset", "--limit", 5)
    assert len(lines) == 7
    assert all(measure_width(line) <= columns for line in lines)
    assert lines[0].split() == ["record", "_offset"]
    assert lines[6].split()[0].endswith("\u2026")


def test_columns_without_room_are_named(log: Path) -> None:
    lines = on_terminal(20, "cat", log, "--view", "damage")
    assert lines[0].split() == ["file", "offset"]
    assert lines[-1].startswith("sawlog: columns without room: length, kind, detail, dropped;")
