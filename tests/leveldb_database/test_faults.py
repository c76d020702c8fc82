"""Faults of sawlog's own in what reads Pebble's blocks and the files of values are not damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.errors import InternalError
from sawlog.leveldb.database.blobs import RecordFile, ValueFile
from sawlog.leveldb.table import meta, pebble

from .support import database

PEBBLE = Path(__file__).parents[1] / "golden" / "leveldb_table" / "pebble"


@pytest.mark.parametrize(
    ("place", "name", "path"),
    [
        (pebble, "split_rows", "15-at"),
        (pebble, "BlockColumns", "24-plain"),
        (meta, "BlockColumns", "24-plain"),
        (ValueFile, "read_value", "24-plain"),
        (ValueFile, "__init__", "24-plain"),
        (RecordFile, "read_value", None),
    ],
)
def test_a_value_error_of_sawlog_is_not_damage(
    place: Any, name: str, path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object, **__: object) -> None:
        raise ValueError("oh")

    if path is None:
        database(tmp_path / "db", "none")
    source_path = PEBBLE / path if path is not None else tmp_path / "db"
    monkeypatch.setattr(place, name, fault)
    for options in ({}, {"on_damage": "skip"}):
        with pytest.raises(InternalError, match=r"ValueError.*oh.*please report"):
            sawlog.read(source_path, format="leveldb_database", view="live", **options)
