"""Helpers that several tests of the package share."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import sawlog
from sawlog.format.damage import DamageWarning, FileReport
from sawlog.testing import Sample, check

from .reference import DELETE, Col, entry, header, row

ALL_COLUMNS = [
    Col("Bool", "Boolean"),
    Col("Byte", "Byte"),
    Col("Char", "Char"),
    Col("Short", "Short"),
    Col("Int", "Int"),
    Col("Long", "Long"),
    Col("Float", "Float"),
    Col("Double", "Double"),
    Col("Blob", "Blob"),
    Col("Str", "EnhancedString"),
    Col("Enum", "Enum", table=("Buy", "Sell", "", "Buy")),
]


def convert_values(values: dict) -> dict:
    """A row as sawlog delivers it."""
    enum = values["Enum"]
    return {**values, "Enum": None if enum is None else ALL_COLUMNS[-1].table[enum]}


def save(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


NULLS = {
    "Boolean": "80",
    "Byte": "80",
    "Char": "fffe",
    "Short": "8000",
    "Int": "80000000",
    "Long": "8000000000000000",
    "Float": "ff7fffff",
    "Double": "ffefffffffffffff",
    "EnhancedString": "80000000",
    "Blob": "80000000",
    "Enum": "80000000",
}
COLS = [Col("N", "Int"), Col("S", "EnhancedString")]
HEADER = header(COLS)
OTHER_RECORD = b"\x00\x00\x4e\x20\x00\x00\x00\x01\x00\x00\x00\x63payload"


def make(flags: list[int]) -> bytes:
    """A log whose rows hold their index; flag 4 is a DELETE_PARTITION, 5 some other command."""
    parts = [HEADER]
    for index, flag in enumerate(flags):
        if flag == 4:
            parts.append(entry(4, DELETE))
        elif flag == 5:
            parts.append(entry(4, OTHER_RECORD))
        else:
            parts.append(row(COLS, {"N": index, "S": "x" * (index % 7)} if index % 3 else {"N": index}, flag))
    return b"".join(parts)


def put(data: bytes) -> str:
    handle, path = tempfile.mkstemp(suffix=".bin")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path


FLAGS = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5]), max_size=40)

SINGLES = make([3] * 12)
LOG = Sample("log", "deephaven_log", SINGLES, "log.bin", repaired="rows")


def checked(data: bytes, **options: object) -> tuple[list[int], FileReport]:
    """Rows and report of damaged bytes that keep the laws."""
    outcome = check(LOG, data, **options)
    return outcome.table["N"].to_pylist(), outcome.report


def read_numbers(path: Path | str, **options: Any) -> list[int]:
    """Return the column N of a log, whatever is damaged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        numbers: list[int] = sawlog.read(path, format="deephaven_log", **options).column("N").to_pylist()
    return numbers
