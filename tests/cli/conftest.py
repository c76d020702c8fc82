"""A command line that is run in this process, and files to run it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sawlog.cli import main
from tests.support import write_records

RECORDS = [
    b"plain text",
    b"",
    b"caf\xc3\xa9 \\ \xff\x00",
    b"two\nlines\x1b[31m",
    b"x" * 70_000,
    *(b"n%d" % i for i in range(5)),
]


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: object) -> Result:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


def write_log(path: Path, records: list[bytes]) -> Path:
    write_records(path, records)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An intact log of three blocks."""
    return write_log(tmp_path / "000003.log", RECORDS)


@pytest.fixture
def damaged(log: Path, tmp_path: Path) -> Path:
    """A copy with one flipped bit in its long record, which is lost: one damaged fragment, two without their start."""
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    path = tmp_path / "000004.log"
    path.write_bytes(data)
    return path


@pytest.fixture
def torn(log: Path, tmp_path: Path) -> Path:
    """A copy whose last record is cut off in the middle."""
    path = tmp_path / "000005.log"
    path.write_bytes(log.read_bytes()[:-1])
    return path
