"""Databases keep the laws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sawlog.testing import Laws, Sample, Span

from .mutators import MUTATORS

WANTED = ("CURRENT", "MANIFEST", ".ldb", ".log")


@cache
def files() -> dict[str, bytes]:
    """A small database: two tables that overlap, and a log."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    with TemporaryDirectory() as directory:
        for keys in (b"abcd", b"cde", b"ef"):
            with plyvel.DB(directory, create_if_missing=True, compression=None) as database:
                for key in keys:
                    database.put(bytes([key]), keys)
                database.delete(b"a" if keys != b"abcd" else b"z")
        found = {path.name: path.read_bytes() for path in Path(directory).iterdir()}
    return {name: data for name, data in found.items() if any(part in name for part in WANTED)}


class TestLaws(Laws):
    mutators = MUTATORS

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        (log,) = (name for name in files() if name.endswith(".log"))
        return [
            Sample(view, "leveldb_database", files(), view=view, ordered=False, repaired="no", body=Span(0, 0, log))
            for view in ("live", "all")
        ]
