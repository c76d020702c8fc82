"""Nothing that a terminal would obey gets there from data, names or messages, whatever a verb prints."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from sawlog.cli import main
from sawlog.deephaven.log import Logger
from tests.cli.conftest import Run
from tests.support import write_records

HOSTILE = "\x1b]0;owned\x07\x1b[5m\x9b2J\x7f\r\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
NAME = HOSTILE.replace("\r", "")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hostile text in values, keys, names of columns, of files and of directories."""
    place = tmp_path_factory.mktemp("hostile") / f"d{NAME}"
    place.mkdir()
    table = pa.table({f"c{HOSTILE}": [HOSTILE, "b"], "n": [1, 2]})
    parquet.write_table(table, place / f"rows{NAME}.parquet")
    schema = pa.schema([("text", pa.string())])
    with Logger(str(place / "trades"), schema, namespace="N", table="T", internal_partition="w") as logger:
        logger.write(pa.record_batch([pa.array([HOSTILE, "b"])], schema=schema))
    log = place / f"{NAME}.log"
    write_records(log, [HOSTILE.encode()] * 9)
    damaged = bytearray(log.read_bytes())
    damaged[30] ^= 1
    (place / f"damaged{NAME}.log").write_bytes(damaged)
    (place / "text").write_text(HOSTILE)
    return place


def run_on_terminal(*args: object, code: int = 0) -> str:
    """All that a command line, run in this process, prints on a terminal that shows no styles."""
    leader, follower = pty.openpty()
    text = bytearray()

    def drain() -> None:
        try:
            while chunk := os.read(leader, 65536):
                text.extend(chunk)
        except OSError:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    outputs = [os.dup(1), os.dup(2)]
    with pytest.MonkeyPatch.context() as patch, open(follower, "w", encoding="utf-8") as terminal:
        for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "400"}.items():
            patch.setenv(name, value)
        for number, name in enumerate(("stdout", "stderr"), 1):
            os.dup2(follower, number)
            patch.setattr(sys, name, terminal)
        exit_code = main([str(arg) for arg in args])
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
            os.close(output)
    reader.join()
    os.close(leader)
    assert exit_code == code, text
    return text.decode().replace("\r\n", "\n").removesuffix("\x1b[0m")


@pytest.mark.parametrize("output", ["csv", "jsonl", "table"])
def test_rows_cannot_command_the_terminal(place: Path, output: str) -> None:
    screen = run_on_terminal("cat", place / "trades", "--output", output)
    assert "owned" in screen
    assert not OBEYED.findall(screen)
    if output == "jsonl":
        assert json.loads(screen.splitlines()[0])["text"] == HOSTILE


@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_converted_text_cannot_command_the_terminal(place: Path, to: str) -> None:
    screen = run_on_terminal("convert", next(place.glob("rows*")), "-", "--to", to)
    assert screen.count("owned") == (2 if to == "csv" else 3)
    assert not OBEYED.findall(screen)


@pytest.mark.parametrize("output", ["csv", "jsonl", "table"])
def test_answers_of_queries_cannot_command_the_terminal(place: Path, output: str) -> None:
    query = f"""SELECT text, 1 AS "{HOSTILE}" FROM '{place / "trades"}'"""
    screen = run_on_terminal("sql", query, "--output", output)
    assert "owned" in screen
    assert not OBEYED.findall(screen)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("ls", "."), 0),
        (("ls", ".", "--json"), 0),
        (("info", "{log}"), 0),
        (("info", "{log}", "--json"), 0),
        (("info", "."), 0),
        (("verify", "{damaged}"), 1),
        (("verify", "{damaged}", "--json"), 1),
        (("cat", "{damaged}"), 1),
        (("diff", "{log}", "{damaged}"), 1),
        (("repair", "{damaged}", "{place}/repaired"), 3),
        (("map", "{damaged}", "--json"), 1),
        (("map", "{damaged}", "--output", "{place}/map.html"), 1),
        (("map", "{damaged}", "--output", "-"), 1),
        (("cat", "{place}/text"), 2),
        (("cat", "{place}/missing" + NAME), 2),
        (("cat", "{log}", "--columns", HOSTILE), 2),
        (("cat", "{log}", "--" + HOSTILE), 2),
        (("sql", "SELECT " + HOSTILE), 2),
        (("convert", "{log}", "{place}/folder" + NAME), 0),
        (("convert", "{log}", "{place}/x" + NAME + ".zip"), 2),
        (("convert", "{log}", "{place}/x" + NAME + ".csv"), 0),
    ],
)
def test_all_that_verbs_say(place: Path, args: tuple[str, ...], code: int) -> None:
    damaged = next(place.glob("damaged*"))
    log = next(path for path in place.glob("*.log") if path != damaged)
    filled = [
        str(place) if arg == "." else arg.replace("{log}", str(log)).replace("{damaged}", str(damaged)) for arg in args
    ]
    screen = run_on_terminal(*(argument.replace("{place}", str(place)) for argument in filled), code=code)
    assert screen
    assert not OBEYED.findall(screen), screen


def test_what_is_piped_is_what_the_data_says(run: Run, place: Path) -> None:
    result = run("cat", place / "trades", "--output", "csv")
    assert HOSTILE in result.out


def test_a_fault_of_ours_shows_its_message_without_harm(monkeypatch: pytest.MonkeyPatch, run: Run, place: Path) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr("sawlog.cli.info.render_size", fails)
    result = run("info", place / "trades")
    assert "ZeroDivisionError" in result.err
    assert not OBEYED.findall(result.err)


def test_repair_writes_no_bytes_to_a_terminal(place: Path) -> None:
    for destination in ("-", "/dev/stdout"):
        screen = run_on_terminal("repair", next(place.glob("damaged*")), destination, code=2)
        assert "is binary, and stdout is a terminal" in screen
